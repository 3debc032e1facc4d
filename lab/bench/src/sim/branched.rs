//! Tests the branches of runs ([`branches`](crate::harness::branches)).

use core::cell::Cell;
use std::process::Command;

use archipelago_platform::SIMULATED;
use archipelago_sim::{Config, Machine, world};

use super::experiment;
use super::tests::parse;
use crate::failure::Failure;
use crate::harness::branches::{ALONE, can_branch};
use crate::harness::instructions::Charge;
use crate::harness::program::{Done, Turns as _};
use crate::harness::simulated::{self, Branch, Contender, Figures, Run, Setting, Variant};
use crate::harness::steady::Wish;

/// Returns the setting of a small experiment, and its contenders.
fn experiment(words: &[&str]) -> (Setting, Vec<Contender>) {
    let what = parse(words);
    let setting = experiment::setting(experiment::common(&what).unwrap(), &what).unwrap();
    (setting, experiment::contenders(&what).unwrap())
}

/// Runs a test in a process that runs no other test.
fn alone(test: &str, body: impl FnOnce()) {
    if !SIMULATED {
        return;
    }
    if can_branch() {
        return body();
    }
    assert!(std::env::var_os(ALONE).is_none(), "a process that runs a single test can branch");
    let test = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let arguments = ["--exact", &test, "--test-threads=1"];
    let output = Command::new(std::env::current_exe().unwrap()).args(arguments).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Each branch measures what a process measures that sets up for the branch's machine itself.
#[test]
fn a_branch_is_a_run_on_its_own_machine() {
    alone("a_branch_is_a_run_on_its_own_machine", || {
        let words = "ycsb --index art-olc --count 400 --workload a --machine xeon-e5-4620-4s --warm 2 --micros 10 \
                     --min-ops 0 --runs 2 --instructions 2 --sweep";
        let (setting, contenders) = experiment(&words.split_whitespace().collect::<Vec<_>>());
        let figures = simulated::figures(&contenders[0], &setting, 6).unwrap().unwrap();
        let variations = simulated::variations(&setting);
        assert!(variations.len() > 20 && figures.runs.len() == 2 * variations.len());
        let mut runs = figures.runs.iter();
        for variation in &variations {
            let variant = simulated::variant(&contenders[0], &setting, variation).unwrap();
            for seed in [setting.seed, setting.seed + 1] {
                let config = Config { seed, ..setting.config() };
                let program = &*contenders[0].program;
                let direct =
                    program.runs(&[Branch { program, variant: variant.clone() }], &config, 6).remove(0).unwrap();
                let branch = runs.next().unwrap();
                assert_eq!((branch.hash, &branch.stats), (direct.hash, &direct.stats), "{variation:?}");
                assert_eq!((branch.mops, branch.held_bytes), (direct.mops, direct.held_bytes), "{variation:?}");
            }
        }
        let hashes: std::collections::HashSet<u64> = figures.runs.iter().map(|run| run.hash).collect();
        assert!(hashes.len() > variations.len(), "the variations differ");
    });
}

/// Experiments of two contenders, each in three cells, of which the last two begin alike.
const ALIKE: [&str; 2] = [
    "ycsb --index art-olc,art --count 400 --workload load,a,e --machine xeon-e5-4620-4s --warm 2 --micros 10 \
     --min-ops 0 --runs 2 --instructions 2",
    "blink --technique standard,default --count 400 --update-percent 0,25,50 --machine xeon-e5-4620-4s --warm 2 \
     --micros 10 --min-ops 0 --runs 2 --sweep",
];

/// Returns the setting of one of these experiments, and the cells of each contender.
fn alike(words: &str) -> (Setting, [[Contender; 3]; 2]) {
    let (setting, contenders) = experiment(&words.split_whitespace().collect::<Vec<_>>());
    let name = contenders[0].name.clone();
    let (first, second): (Vec<_>, Vec<_>) = contenders.into_iter().partition(|contender| contender.name == name);
    let three = |cells: Vec<Contender>| cells.try_into().unwrap_or_else(|_| panic!("{words}"));
    (setting, [three(first), three(second)])
}

#[test]
fn what_begins_alike_shares_a_set_up() {
    for words in ALIKE {
        let (setting, [[first, second, third], [_, other, _]]) = alike(words);
        assert!(second.shares_setup(&third) && !second.shares_setup(&other), "{words}");
        assert_eq!(first.shares_setup(&second), words.starts_with("blink"), "`load` has room for twice as many keys");
        let longer = Setting { wish: Wish { measured_ns: 20_000, ..setting.wish }, ..setting.clone() };
        assert!(setting.shares_setup(&longer) && !setting.shares_setup(&Setting { seed: 5, ..longer }));
    }
}

/// A workload that begins with another one's set-up measures what it measures with a set-up of its own, for as long as it
/// is to be measured.
#[test]
fn a_branch_is_a_run_of_its_own_workload() {
    alone("a_branch_is_a_run_of_its_own_workload", || {
        for words in ALIKE {
            let (setting, [[_, second, third], _]) = alike(words);
            let longer = Setting { wish: Wish { measured_ns: 20_000, ..setting.wish }, ..setting.clone() };
            let runs = |figures: Figures| {
                let facts = |run: Run| (run.hash, run.stats, run.mops.to_bits(), run.measured_ns, run.held_bytes);
                figures.runs.into_iter().map(facts).collect::<Vec<_>>()
            };
            let both = [(&second, &setting), (&third, &longer)];
            let together = simulated::figures_of_all(&both, 6).unwrap().unwrap();
            let together: Vec<_> = together.into_iter().map(|figures| runs(figures.unwrap())).collect();
            let apart =
                both.map(|(contender, setting)| runs(simulated::figures(contender, setting, 6).unwrap().unwrap()));
            assert_eq!(together, apart, "{words}");
            assert_ne!(apart[0], apart[1], "{words}");
        }
    });
}

/// A branch has the threads that work in the background, and these know it. Without their work, inserting becomes
/// several times slower. Though a branch frees nothing at its end, these threads end as in a run of its own.
#[test]
fn a_branch_has_the_threads_of_the_run() {
    alone("a_branch_has_the_threads_of_the_run", || {
        let words = "ycsb --index hydralist --count 20k --workload load --machine xeon-8180-4s --warm 500 --micros 100 \
                     --pin spread --min-ops 0 --runs 1 --sweep";
        let (setting, contenders) = experiment(&words.split_whitespace().collect::<Vec<_>>());
        // Unchanged, and some variations that change little.
        let variations = simulated::variations(&setting);
        let program = &*contenders[0].program;
        let chosen = [0, 9, 10, 11].map(|at| simulated::variant(&contenders[0], &setting, &variations[at]).unwrap());
        let chosen = chosen.map(|variant| Branch { program, variant });
        let runs = program.runs(&chosen, &setting.config(), 112);
        let runs: Vec<Run> = runs.into_iter().map(Result::unwrap).collect();
        let mops: Vec<f64> = runs.iter().map(|run| run.mops).collect();
        assert!(mops.iter().all(|of| *of > mops[0] / 2.0), "{mops:?}");
        let direct = program.runs(&chosen[3..], &setting.config(), 112).remove(0).unwrap();
        assert_eq!((runs[3].hash, &runs[3].stats), (direct.hash, &direct.stats));
    });
}

/// A branch that fails, panics, or is killed is reported, and never continues as the process that has forked it.
#[test]
fn a_branch_that_fails_is_reported() {
    alone("a_branch_that_fails_is_reported", || {
        let (setting, _) = experiment(&["locks", "--lock", "ttas", "--micros", "1", "--warm", "1", "--min-ops", "0"]);
        let faster = Machine { overlap: 20.0, ..setting.machine.clone() };
        let variants = [setting.machine.clone(), faster].map(|machine| Variant {
            machine,
            charge: Charge::default(),
            wish: setting.wish,
        });
        let run = |fails: &dyn Fn() -> Result<Option<u64>, String>| {
            let is_branch = Cell::new(false);
            let body = |_, (): &(), turns: &mut simulated::Turns<'_>| {
                is_branch.set(world::machine().is_some_and(|machine| machine.overlap == 20.0));
                turns.go(
                    usize::MAX,
                    |_| {
                        world::work(100);
                        Done::Found
                    },
                    || (),
                );
            };
            let check = |_, (): &()| if is_branch.get() { fails() } else { Ok(None) };
            simulated::run(&variants, &setting.config(), 2, || (), body, check)
        };
        let end = || -> ! {
            // SAFETY: `_exit` ends the process.
            unsafe { libc::_exit(0) }
        };
        let text = |runs: Vec<Result<Run, Failure>>| {
            let [unvaried, varied] = runs.try_into().expect("a run of each");
            unvaried.unwrap();
            varied.map(|_| ()).map_err(|it| it.to_string())
        };
        assert_eq!(text(run(&|| Ok(None))), Ok(()));
        let failed = text(run(&|| Err("a lost key".to_owned()))).unwrap_err();
        assert!(failed.contains("a lost key"), "{failed}");
        let ended = text(run(&|| end())).unwrap_err();
        assert!(ended.contains("ended before its run"), "{ended}");
        let panicked = text(run(&|| panic!("planned"))).unwrap_err();
        assert!(panicked.contains("planned"), "{panicked}");
    });
}

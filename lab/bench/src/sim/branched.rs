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
use crate::harness::simulated::{self, Contender, Run, Setting, Variant};

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
                let direct = (contenders[0].program)(std::slice::from_ref(&variant), &config, &setting, 6).unwrap();
                let (branch, direct) = (runs.next().unwrap(), &direct[0]);
                assert_eq!((branch.hash, &branch.stats), (direct.hash, &direct.stats), "{variation:?}");
                assert_eq!((branch.mops, branch.held_bytes), (direct.mops, direct.held_bytes), "{variation:?}");
            }
        }
        let hashes: std::collections::HashSet<u64> = figures.runs.iter().map(|run| run.hash).collect();
        assert!(hashes.len() > variations.len(), "the variations differ");
    });
}

/// A branch has the threads that work in the background, and these know it. Without their work, inserting becomes
/// several times slower.
#[test]
fn a_branch_has_the_threads_of_the_run() {
    alone("a_branch_has_the_threads_of_the_run", || {
        let words = "ycsb --index hydralist --count 20k --workload load --machine xeon-8180-4s --warm 500 --micros 100 \
                     --pin spread --min-ops 0 --runs 1 --sweep";
        let (setting, contenders) = experiment(&words.split_whitespace().collect::<Vec<_>>());
        // Unchanged, and some variations that change little.
        let variations = simulated::variations(&setting);
        let chosen = [0, 9, 10, 11].map(|at| simulated::variant(&contenders[0], &setting, &variations[at]).unwrap());
        let runs = (contenders[0].program)(&chosen, &setting.config(), &setting, 112).unwrap();
        let mops: Vec<f64> = runs.iter().map(|run| run.mops).collect();
        assert!(mops.iter().all(|of| *of > mops[0] / 2.0), "{mops:?}");
    });
}

/// A branch that fails, panics, or is killed is reported, and never continues as the process that has forked it.
#[test]
fn a_branch_that_fails_is_reported() {
    alone("a_branch_that_fails_is_reported", || {
        let (setting, _) = experiment(&["locks", "--lock", "ttas", "--micros", "1", "--warm", "1", "--min-ops", "0"]);
        let faster = Machine { overlap: 20.0, ..setting.machine.clone() };
        let variants = [setting.machine.clone(), faster].map(|machine| Variant { machine, charge: Charge::default() });
        let run = |fails: &dyn Fn() -> Result<Option<u64>, String>| {
            let is_branch = Cell::new(false);
            let body = |_: &(), turns: &mut simulated::Turns<'_>| {
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
            let check = |_: &()| if is_branch.get() { fails() } else { Ok(None) };
            simulated::run(&variants, &setting.config(), &setting, 2, || (), body, check)
        };
        let end = || -> ! {
            // SAFETY: `_exit` ends the process.
            unsafe { libc::_exit(0) }
        };
        let text = |result: Result<Vec<Run>, Failure>| result.map(|runs| runs.len()).map_err(|it| it.to_string());
        assert_eq!(text(run(&|| Ok(None))), Ok(2));
        let failed = text(run(&|| Err("a lost key".to_owned()))).unwrap_err();
        assert!(failed.contains("a lost key"), "{failed}");
        let ended = text(run(&|| end())).unwrap_err();
        assert!(ended.contains("ended before its run"), "{ended}");
        let panicked = text(run(&|| panic!("planned"))).unwrap_err();
        assert!(panicked.contains("planned"), "{panicked}");
    });
}

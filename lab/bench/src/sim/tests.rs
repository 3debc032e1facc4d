//! Tests of the experiments' arguments and reports. The experiments themselves run in the build for the virtual machine
//! (a simulator).

use clap::Parser;

use archipelago_sim::Placement;

use super::*;
use crate::args::{Cli, Command, SimCommon};
use crate::harness::instructions::{Charge, Counted, Instructions};
use crate::harness::program::{Done, Program, Turns, work};
use crate::harness::simulated::program;
use crate::report::row::Cell;
use crate::workload::OpKind;
use crate::{nr, sets, ycsb};

pub(super) fn parse(args: &[&str]) -> Sim {
    let cli = Cli::try_parse_from([&["archipelago", "sim"], args].concat()).unwrap();
    let Some(Command::Sim { what }) = cli.command else { panic!("not parsed as sim") };
    *what
}

pub(super) fn common(what: &Sim) -> &SimCommon {
    experiment::common(what).unwrap()
}

#[test]
fn the_default_threads_have_every_socket_boundary() {
    let what = parse(&["locks", "--machine", "xeon-e7-8870v3-4s"]);
    let machine = machines::named("xeon-e7-8870v3-4s").unwrap();
    assert_eq!(threads(common(&what), &machine).unwrap(), [1, 2, 9, 18, 36, 72, 108, 144]);
}

#[test]
fn the_machine_is_the_papers_if_that_is_asked_for() {
    let machine = |line: &[&str]| {
        let what = parse(line);
        setting(common(&what), &what).unwrap().machine.name
    };
    assert_eq!(machine(&["nr", "--paper"]), "xeon-e7-4850v3-4s");
    assert_eq!(machine(&["locks", "--paper"]), "xeon-e7-8870v3-4s");
    assert_eq!(machine(&["nr"]), machine(&["ycsb", "--paper"]));
    assert_eq!(machine(&["nr", "--paper", "--machine", "xeon-8180-8s"]), machine(&["sets", "--paper"]));
    let others = ["blink", "cache", "euno", "ranges"].map(|experiment| machine(&[experiment, "--paper"]));
    assert!(others.iter().all(|name| !name.is_empty()), "{others:?}");
}

/// Rows of different caches must not be compared, so the machine's name tells the caches.
#[test]
fn the_caches_are_divided_if_that_is_asked_for() {
    let machine = |line: &[&str]| {
        let what = parse(line);
        setting(common(&what), &what).map(|setting| setting.machine).map_err(|failure| failure.to_string())
    };
    let (full, small) = (machine(&["ycsb"]).unwrap(), machine(&["ycsb", "--caches", "32"]).unwrap());
    assert_eq!(small.name, format!("{}, caches 1/32", full.name));
    assert_eq!(small.caches.l3.bytes() * 32, full.caches.l3.bytes());
    assert_eq!(machine(&["locks", "--paper", "--caches", "2"]).unwrap().name, "xeon-e7-8870v3-4s, caches 1/2");
    let wrong = machine(&["nr", "--caches", "2000"]).unwrap_err();
    assert!(wrong.starts_with("--caches: ") && wrong.contains("from 1 to 1024"), "{wrong}");
    assert!(Cli::try_parse_from(["archipelago", "sim", "ycsb", "--caches", "0"]).is_err());
}

#[test]
fn contenders_are_all_combinations() {
    let Sim::Ycsb(args) = parse(&["ycsb", "--index", "all", "--workload", "c,a"]) else { panic!() };
    let names: Vec<_> = ycsb::simulated(&args).unwrap().into_iter().map(|it| (it.name, it.cell.workload)).collect();
    assert_eq!(names.len(), 44);
    assert_eq!(names[0], ("hydralist".to_owned(), "a".to_owned()));
    // An index without scans is left out of the workload with scans.
    let line = ["ycsb", "--index", "art,cuckoo-like", "--workload", "c,e"];
    assert_eq!(contenders(&parse(&line)).unwrap().len(), 3);
    // Exclusive locks have one cell (a workload with its parameters), whatever the percentages are.
    let count = |line: &[&str]| contenders(&parse(line)).unwrap().len();
    assert_eq!(count(&["locks", "--lock", "all"]), 10 + 7 * 3);
    assert_eq!(count(&["locks", "--lock", "bravo,mcs", "--write-percent", "1"]), 2);
    let Sim::Nr(args) = parse(&["nr", "--workload", "all", "--update-percent", "0,10"]) else { panic!() };
    assert_eq!(nr::simulated(&args).unwrap().len(), 4 * 2 * 5);
    let line = [
        "nr",
        "--workload",
        "all",
        "--method",
        "nr,lf",
        "--distribution",
        "uniform,zipf:1.5",
        "--external-work",
        "0,9",
    ];
    let Sim::Nr(args) = parse(&[&line[..], &["--update-percent", "10"]].concat()) else { panic!() };
    // The sorted set has no lock-free method, since no lock-free structure changes two structures at once.
    assert_eq!(nr::simulated(&args).unwrap().len(), 4 * (2 + 2 + 1 + 1));
    let Sim::Sets(args) = parse(&["sets", "--structure", "all", "--mechanism", "rcu,mvrlu"]) else { panic!() };
    assert_eq!(sets::simulated(&args).unwrap().len(), 3 * 3 * 2);
}

#[test]
fn a_watch_measures_nothing() {
    assert!(common(&parse(&["locks", "--watch"])).watch);
    for (option, value) in [("--out", "FILE"), ("--format", "json"), ("--report", "FILE"), ("--compare", "FILE")] {
        let error = Cli::try_parse_from(["archipelago", "sim", "locks", "--watch", option, value]).unwrap_err();
        assert!(error.to_string().contains("cannot be used with"), "{error}");
    }
}

#[test]
fn wrong_arguments_are_told() {
    assert!(contenders(&parse(&["locks", "--lock", "tas,tsa"])).is_err());
    let message = machines::named("xeon").unwrap_err().to_string();
    assert!(message.contains("xeon-8180-4s"), "{message}");
    let what = parse(&["locks", "--threads", "100000"]);
    assert!(threads(common(&what), &machines::named("this-host").unwrap()).is_err());
    let Sim::Ycsb(args) = parse(&["ycsb", "--keys", "words"]) else { panic!() };
    assert!(ycsb::simulated(&args).is_err());
    let Sim::Ycsb(args) = parse(&["ycsb", "--index", "cuckoo-like", "--workload", "e"]) else { panic!() };
    assert!(ycsb::simulated(&args).err().unwrap().to_string().contains("none of them can run --workload e"));
    let Sim::Ycsb(args) = parse(&["ycsb", "--stall", "everything"]) else { panic!() };
    assert!(ycsb::faults(&args).is_err());
    let charged = |line: &[&str]| {
        let what = parse(&[line, &["--instructions", "2"]].concat());
        setting(common(&what), &what)
            .map(|setting| setting.instructions.map(|it| it.per_cycle))
            .map_err(|failure| failure.to_string())
    };
    assert_eq!(charged(&["euno"]), Ok(Some(2.0)));
    assert_eq!(charged(&["ycsb", "--keys", "email"]), Ok(Some(2.0)));
    assert_eq!(charged(&["nr", "--workload", "sorted-set"]), Ok(Some(2.0)));
    assert!(charged(&["nr", "--workload", "pqueue,server"]).unwrap_err().contains("one workload at a time"));
    for line in [&["euno", "--workload", "rising"][..], &["ycsb", "--keys", "clustered"], &["locks"]] {
        assert!(charged(line).unwrap_err().contains("no others"));
    }
}

/// Charged instructions take time after each access, by the operation's kind; instructions that are not charged take
/// none.
#[test]
fn instructions_take_time() {
    if !SIMULATED {
        return;
    }
    // Returns the nanoseconds and the accesses of an operation.
    let cost = |line: &str, charged: &str| {
        let line = format!("{line} --count 1k --micros 20 --min-ops 500 --runs 1 {charged}");
        let what = parse(&line.split_whitespace().collect::<Vec<_>>());
        let setting = setting(common(&what), &what).unwrap();
        let figures = simulated::figures(&contenders(&what).unwrap()[0], &setting, 1).unwrap().unwrap();
        let run = figures.first();
        (1e3 / run.mops, run.stats.accesses as f64 / run.ops as f64)
    };
    let machine = machines::named("xeon-8180-4s").unwrap();
    let check = |line: &str, name: &str, counted, kinds: &[OpKind]| {
        let ((free, _), (charged, accesses)) = (cost(line, ""), cost(line, "--instructions 1"));
        let charge = Charge::of(name, &machine, Instructions { per_cycle: 1.0, counted }).unwrap();
        let added = |kind: &OpKind| charge.ps(*kind) as f64 * accesses / 1e3;
        let [least, most] = [f64::min, f64::max].map(|of| kinds.iter().map(added).reduce(of).unwrap());
        let ns = charged - free;
        assert!((least * 0.9..most * 1.1).contains(&ns), "{line}: {ns} ns, not from {least} to {most}");
    };
    let (both, ints) = ([OpKind::Read, OpKind::Update], Counted::Ints);
    check("euno --index htm-btree-16 --theta 0", "htm-btree-16", Counted::Euno, &both);
    check("ycsb --index btree-olc --workload c", "btree-olc", ints, &[OpKind::Read]);
    check("ycsb --index btree-olc --workload a", "btree-olc", ints, &both);
    check("ycsb --index btree-olc --workload load", "btree-olc", ints, &[OpKind::Insert]);
    check("ycsb --index btree-olc --workload e", "btree-olc", ints, &[OpKind::Scan]);
    let nr = "nr --method sl --update-percent 50 --workload dictionary";
    check(nr, "sl", Counted::Dictionary, &both);
    // External work is no part of an operation.
    let added = |line: &str| cost(line, "--instructions 1").0 - cost(line, "").0;
    let (alone, beside_work) = (added(nr), added(&format!("{nr} --external-work 100")));
    assert!((beside_work / alone - 1.0).abs() < 0.1, "{beside_work} ns, {alone} without the work");
}

#[test]
fn machines_are_described_with_sources() {
    let all = machines::describe(None).unwrap();
    assert!(archipelago_sim::machine::PRESETS.iter().all(|name| all.contains(name)), "{all}");
    let one = machines::describe(Some("xeon-8180-4s".as_ref())).unwrap();
    assert!(one.contains("latency.l3") && one.contains("estimate"), "{one}");
    assert!(Machine::from_toml(Machine::EXAMPLE).is_ok());
}

#[test]
fn the_real_machine_refuses() {
    if SIMULATED {
        return;
    }
    let message = execute(&parse(&["locks"])).unwrap_err().to_string();
    assert!(message.contains("cargo sim"), "{message}");
}

#[test]
fn an_experiment_runs_and_is_reported_in_every_format() {
    if !SIMULATED {
        return;
    }
    let what = parse(&[
        "locks",
        "--threads",
        "1,4",
        "--lock",
        "ttas,mcs",
        "--micros",
        "20",
        "--warm",
        "5",
        "--min-ops",
        "0",
        "--runs",
        "2",
        "--sweep",
    ]);
    let (common, contenders) = (common(&what), contenders(&what).unwrap());
    let setting = setting(common, &what).unwrap();
    let mut sink = Sink::open(common, &setting).unwrap();
    assert!(compare(&contenders, &setting, &common.threads, &mut sink, &Progress::hidden()).unwrap());
    let rows = sink.rows();
    assert_eq!(rows.len(), 4);
    let variations = archipelago_sim::Variation::all().count();
    assert!(rows.iter().all(|row| row.sweep.len() == variations * 2 && row.seeds.len() == 2 && row.speeds()[0] > 0.0));
    let mut text = Vec::new();
    report::tables(rows, true, &[], &mut text).unwrap();
    let (text, page) = (String::from_utf8(text).unwrap(), report::page(rows, &setting.machine, true, &[]));
    assert!(text.contains("ticket") == page.contains("ticket") && page.contains("Simulated."), "{page}");
    for (text, parts) in [(&text, ["Mops/s", "PARTIAL"]), (&page, ["<svg", "Partial:"])] {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

/// A row warns of few operations and of a changing throughput.
#[test]
fn doubtful_figures_have_a_warning() {
    if !SIMULATED {
        return;
    }
    let warned = |more: &[&str]| {
        let arguments = ["locks", "--lock", "tas", "--runs", "1", "--threads", "224", "--format", "csv"];
        let what = parse(&[&arguments[..], more].concat());
        let setting = setting(common(&what), &what).unwrap();
        let contender = &contenders(&what).unwrap()[0];
        let figures = simulated::figures(contender, &setting, 224).unwrap().unwrap();
        row::row(contender, 224, &figures, &setting)
    };
    let row = warned(&["--micros", "4", "--warm", "0", "--min-ops", "100k", "--patience", "8"]);
    let warning = row.text("warning");
    assert!(
        row.whole("micros") == Some(8) && warning.starts_with("fewer than 100000 operations counted in 1 of 1 runs"),
        "{warning}"
    );
    let row = warned(&["--micros", "4", "--min-ops", "0", "--patience", "8"]);
    assert_eq!(row.text("warning"), "not steady within 8 us in 1 of 1 runs");
    let row = warned(&["--micros", "40"]);
    assert!(
        row.fields["warning"].is_null() && row.whole("ops") >= Some(1000) && row.whole("warm_micros") >= Some(40),
        "{row:?}"
    );
    // A run that had to share the process's heap.
    let what = parse(&["locks", "--lock", "tas", "--runs", "1", "--micros", "4", "--warm", "0", "--min-ops", "0"]);
    let (setting, contender) = (setting(common(&what), &what).unwrap(), &contenders(&what).unwrap()[0]);
    let mut figures = simulated::figures(contender, &setting, 2).unwrap().unwrap();
    figures.runs[0].repeats = false;
    let row = row::row(contender, 2, &figures, &setting);
    assert!(row.text("warning").starts_with("no address space was left for the memory of 1 of 1 runs"), "{row:?}");
}

/// The file returns the row of the same contender in the same setting only.
#[test]
fn a_file_gives_back_its_rows() {
    if !SIMULATED {
        return;
    }
    let path = std::env::temp_dir().join(format!("archipelago-rows-{}", std::process::id()));
    // A killed process with this number may have left the file.
    _ = std::fs::remove_file(&path);
    let line = ["locks", "--lock", "mcs", "--threads", "1,2", "--micros", "20", "--runs", "2", "--out"];
    let run = |more: &[&str]| {
        let what = parse(&[&line[..], &[path.to_str().unwrap(), "--format", "csv"], more].concat());
        let setting = setting(common(&what), &what).unwrap();
        let mut sink = Sink::open(common(&what), &setting).unwrap();
        let contenders = contenders(&what).unwrap();
        let known = sink.done(&contenders[0], 2, &setting).is_some();
        assert!(compare(&contenders, &setting, &common(&what).threads, &mut sink, &Progress::hidden()).unwrap());
        (known, sink.rows().to_vec())
    };
    let (known, rows) = run(&[]);
    assert!(!known && rows.len() == 2);
    // The time on the host would differ if the row had been measured again.
    assert_eq!(run(&[]), (true, rows.clone()));
    let (known, others) = run(&["--seed", "7"]);
    assert!(!known && others[0].text("hash") != rows[0].text("hash"));
    assert_eq!(run(&[]), (true, rows));
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 4);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn counts_beyond_memory_are_refused() {
    for line in [
        &["ycsb", "--count", "900G"][..],
        &["sets", "--count", "900G"],
        &["sets", "--buckets", "900G"],
        &["nr", "--count", "900G"],
    ] {
        let failure = checked(line, 1).unwrap_err().to_string();
        assert!(failure.contains("a smaller --count") && !failure.contains('\n'), "{failure}");
    }
    assert!(checked(&["ycsb"], 1).is_ok());
    for (line, threads) in
        [(&["txn", "--workload", "all", "--whole", "--warehouses", "65535"][..], 1), (&["txn"], 1 << 40)]
    {
        let failure = checked(line, threads).unwrap_err().to_string();
        assert!(failure.contains("fewer --warehouses"), "{failure}");
    }
}

fn checked(line: &[&str], threads: usize) -> Result<(), Failure> {
    limits::check(&parse(line), &machines::named("xeon-8180-4s").unwrap(), threads)
}

/// The contender's look-ups miss: its short operations are no result.
#[test]
fn a_contender_that_loses_keys_has_failed() {
    if !SIMULATED {
        return;
    }
    struct Losing(u64);

    impl Program for Losing {
        type Shared = ();

        fn setup(&self, _: usize, _: u64) {}

        fn shares_setup(&self, _: &Self) -> bool {
            true
        }

        fn body(&self, (): &(), turns: &mut impl Turns) {
            let Losing(kept) = *self;
            turns.go(usize::MAX, |at| if (at as u64) < kept { Done::Read } else { Done::Missed }, || work(10));
        }
    }

    let what = parse(&["locks", "--micros", "1", "--warm", "0", "--min-ops", "0", "--runs", "1"]);
    let setting = setting(common(&what), &what).unwrap();
    let losing = |kept| Contender { name: "losing".into(), cell: Cell::of("c"), program: program(Losing(kept)) };
    let figures = |kept| simulated::figures(&losing(kept), &setting, 2);
    assert!(figures(u64::MAX).unwrap().unwrap().first().ops > 0);
    let failure = figures(3).unwrap_err().to_string();
    assert!(failure.contains("operations missed a key that is present (again with --seed 1)"), "{failure}");
    // Those that share its set-up have not failed.
    let all = [u64::MAX, 3, u64::MAX].map(losing);
    let figures = simulated::figures_of_all(&all.each_ref().map(|contender| (contender, &setting)), 2);
    let good: Vec<bool> = figures.unwrap().unwrap().iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, false, true]);
}

/// A row says which isolation its contender has. Write skews that this isolation permits are counted.
#[test]
fn isolation_is_a_fact() {
    if !SIMULATED {
        return;
    }
    let line = "txn --store silo-art,silo-snapshot-art --workload smallbank --count 100 --micros 20 --warm 5 --min-ops 0 \
                --runs 1";
    let what = parse(&line.split_whitespace().collect::<Vec<_>>());
    let setting = setting(common(&what), &what).unwrap();
    let facts = contenders(&what).unwrap().into_iter().map(|contender| {
        let figures = simulated::figures(&contender, &setting, 4).unwrap().unwrap();
        let row = row::row(&contender, 4, &figures, &setting);
        (row.text("isolation").to_owned(), row.whole("write_skews").is_some())
    });
    let expected = [("serializable", false), ("snapshot", true)].map(|(name, counted)| (name.to_owned(), counted));
    assert!(facts.eq(expected));
}

/// Returns the memory of both runs of both contenders.
fn held_by_two(line: &str) -> [[f64; 2]; 2] {
    let what = parse(&line.split_whitespace().collect::<Vec<_>>());
    let setting = setting(common(&what), &what).unwrap();
    let held = |contender: &simulated::Contender| {
        let figures = simulated::figures(contender, &setting, 4).unwrap().unwrap();
        let counts = row::row(contender, 4, &figures, &setting).counts;
        <[f64; 2]>::try_from(counts["memory"].clone()).expect("a figure of each run")
    };
    [0, 1].map(|which| held(&contenders(&what).unwrap()[which]))
}

/// A row has the memory of every run. Replicas hold more than one structure, and tuples are not counted.
#[test]
fn memory_is_a_figure() {
    if !SIMULATED {
        return;
    }
    let [one, replicas] = held_by_two(
        "nr --method sl,nr --workload dictionary --count 2k --machine xeon-e7-4850v3-4s --micros 20 --warm 5 \
         --min-ops 0 --runs 2",
    );
    // Each item has a key, a value and a link at least.
    assert!(one.iter().all(|bytes| *bytes > 24.0 * 2_000.0), "{one:?}");
    assert!(replicas.iter().zip(one).all(|(replicas, one)| *replicas > 3.0 * one), "{replicas:?} beside {one:?}");

    let [all, without] = held_by_two(
        "ycsb --index art,art-tids --workload c --count 2k --machine xeon-8180-4s --micros 20 --warm 5 --min-ops 0 \
         --runs 2",
    );
    // The counter has two cache lines of its own.
    let less = [0, 1].map(|run| all[run] - without[run]);
    assert_eq!(less, [16.0 * 2_000.0 - 128.0; 2]);
}

#[test]
fn simulated_threads_have_places() {
    let set = |pin| {
        let what = parse(&["locks", "--pin", pin]);
        setting(common(&what), &what).map(|setting| setting.placement)
    };
    assert_eq!((set("fill").unwrap(), set("spread").unwrap()), (Placement::Fill, Placement::Spread));
    assert_eq!(set("cores").unwrap(), Placement::Cores);
    assert!(set("none").unwrap_err().to_string().contains("try fill, cores or spread"));
}

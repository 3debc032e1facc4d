//! The arguments and reports of the experiments; the experiments themselves run in the build for the virtual machine.

use clap::Parser;

use super::*;
use crate::args::{Cli, Command};

pub(super) fn parse(args: &[&str]) -> Sim {
    let cli = Cli::try_parse_from([&["archipelago", "sim"], args].concat()).unwrap();
    let Some(Command::Sim { what }) = cli.command else { panic!("not parsed as sim") };
    *what
}

pub(super) fn common(what: &Sim) -> &SimCommon {
    match what {
        Sim::Machines { .. } | Sim::Host => panic!("no experiment"),
        Sim::Locks { common, .. } => common,
        Sim::Ycsb(args) => &args.common,
        Sim::Sets(args) => &args.common,
        Sim::Nr(args) => &args.common,
    }
}

#[test]
fn the_default_threads_have_every_socket_boundary() {
    let what = parse(&["locks", "--machine", "xeon-e7-8870v3-4s"]);
    let machine = machines::named("xeon-e7-8870v3-4s").unwrap();
    assert_eq!(threads(common(&what), &machine).unwrap(), [1, 2, 9, 18, 36, 72, 108, 144]);
}

#[test]
fn contenders_are_all_combinations() {
    let Sim::Ycsb(args) = parse(&["ycsb", "--index", "all", "--workload", "c,a"]) else { panic!() };
    let names: Vec<_> = ycsb::contenders(&args).unwrap().into_iter().map(|it| (it.name, it.workload)).collect();
    assert_eq!(names.len(), 8);
    assert_eq!(names[0], ("hydralist".to_owned(), "a".to_owned()));
    let Sim::Nr(args) = parse(&["nr", "--workload", "all", "--update-percent", "0,10"]) else { panic!() };
    assert_eq!(nr::contenders(&args).unwrap().len(), 3 * 2 * 5);
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
    // None changes two structures at once.
    assert_eq!(nr::contenders(&args).unwrap().len(), 4 * (2 + 2 + 1));
    let Sim::Sets(args) = parse(&["sets", "--structure", "all", "--mechanism", "rcu,mvrlu"]) else { panic!() };
    assert_eq!(sets::contenders(&args).unwrap().len(), 3 * 3 * 2);
}

#[test]
fn wrong_arguments_are_told() {
    assert!(locks::contenders("tas,tsa").is_err());
    let message = machines::named("xeon").unwrap_err().to_string();
    assert!(message.contains("xeon-8180-4s"), "{message}");
    let what = parse(&["locks", "--threads", "100000"]);
    assert!(threads(common(&what), &machines::named("this-host").unwrap()).is_err());
    let Sim::Ycsb(args) = parse(&["ycsb", "--stall", "everything"]) else { panic!() };
    assert!(ycsb::faults(&args).is_err());
}

#[test]
fn machines_are_described_with_sources() {
    let all = machines::describe(None).unwrap();
    assert!(archipelago_sim::machine::PRESETS.iter().all(|name| all.contains(name)), "{all}");
    let one = machines::describe(Some("xeon-8180-4s")).unwrap();
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
        "--runs",
        "2",
        "--sweep",
    ]);
    let Sim::Locks { common, lock } = &what else { panic!() };
    let setting = setting(common, &what).unwrap();
    let points = compare(&locks::contenders(lock).unwrap(), &setting, &common.threads).unwrap();
    assert_eq!(points.len(), 4);
    let variations = archipelago_sim::Variation::all().count();
    assert!(points.iter().all(|point| point.figures.sweep.len() == variations * 2 && point.figures.first.mops > 0.0));
    let (text, page) = report::samples(&points, &setting);
    assert!(text.contains("ticket") == page.contains("ticket") && page.contains("Simulated."), "{page}");
    for (text, parts) in [(&text, ["Mops/s", "Simulated."]), (&page, ["<svg", "mcs"])] {
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

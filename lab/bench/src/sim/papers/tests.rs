//! Tests that the repository's files are valid, and that a small run results in a table.

use std::path::{Path, PathBuf};

use super::data::Side;
use super::verdict::Verdict;
use super::*;
use crate::harness::instructions::{Charge, Counted, Instructions};
use crate::report::row::Row;
use crate::sim::{SIMULATED, experiment, machines};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../papers")
}

pub fn args(folder: &Path) -> SimPapers {
    let (folder, runs, seed) = (folder.to_owned(), 1, 1);
    let (only, figure, sweep, more_runs, out, jobs, program, from, judge, later, cell, write) = Default::default();
    SimPapers {
        only,
        figure,
        folder,
        sweep,
        paper: false,
        sizes: false,
        runs,
        more_runs,
        seed,
        out,
        jobs,
        program,
        from,
        judge,
        later,
        cell,
        write,
    }
}

/// Every experiment parses with both sizes, has the contenders that its claims name, and runs on a machine with enough
/// CPUs.
#[test]
fn every_file_is_one_that_can_be_run() {
    let papers = data::read(&folder(), None).unwrap();
    assert!(papers.len() >= 3);
    for paper in &papers {
        for figure in &paper.figure {
            let name = format!("{}, {}", paper.key, figure.name);
            let machine = machines::named(figure.machine(paper)).unwrap();
            for full in [false, true] {
                let command = command(paper, figure, &SimPapers { paper: full, ..args(&folder()) });
                let what = parse(&command).unwrap();
                let contenders = contenders(&what).unwrap();
                setting(common(&what).unwrap(), &what).unwrap();
                for side in sides(figure) {
                    let found = contenders.iter().filter(|contender| side.is(contender)).count();
                    assert_eq!(found, 1, "{name}: {} is ambiguous or missing in `{command}`", side.name);
                    assert!(side.threads <= machine.cpus(), "{name}: {} threads", side.threads);
                }
            }
            let claims = &figure.claim;
            assert!(!claims.is_empty() && !figure.section.is_empty() && !figure.what.is_empty(), "{name}");
            assert!(claims.iter().all(|claim| claim.ratio.is_none_or(|ratio| ratio > 1.0)), "{name}");
            assert!(claims.iter().all(|claim| claim.within.is_none_or(|within| within > 1.0)), "{name}");
        }
    }
}

/// The papers' experiments on maps and on node replication can be run with the instructions of all their contenders.
#[test]
fn the_contenders_were_all_counted() {
    let mut charged = 0;
    for paper in data::read(&folder(), Some("eunomia,hydralist,node-replication")).unwrap() {
        for figure in &paper.figure {
            let counted = match parse(&command(&paper, figure, &args(&folder()))).unwrap() {
                Sim::Euno(_) => Counted::Euno,
                Sim::Ycsb(args) if args.keys == "email" => Counted::Emails,
                Sim::Ycsb(_) => Counted::Ints,
                Sim::Nr(args) => experiment::of_nr(&args.workload).unwrap(),
                _ => continue,
            };
            let machine = machines::named(figure.machine(&paper)).unwrap();
            let instructions = Instructions { per_cycle: 1.0, counted };
            for side in sides(figure) {
                let charge = Charge::of(&side.name, &machine, instructions);
                assert!(charge.is_ok(), "{}, {}: {:?}", paper.key, figure.name, charge.err());
                charged += 1;
            }
        }
    }
    assert!(charged > 0, "the papers have such experiments");
}

/// Makes a folder with one file.
pub fn one(name: &str, text: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("archipelago-papers-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tiny.toml"), text).unwrap();
    folder
}

pub const TINY: &str = r#"
title = "A tiny paper"
machine = "xeon-8180-4s"
[[figure]]
name = "Figure 1"
section = "§1"
what = "short sections"
run = "locks --micros 20 --warm 0 --min-ops 0"
threads = 2
claim = [
    { ahead = "ttas", threads = 1, behind = "ttas", behind_threads = 2, ratio = 1.5, reason = "a reason" },
    { ahead = "tas", behind = "mcs" },
    { ahead = "tas", behind = "mcs", by = "remote", ours = true },
]
"#;

#[test]
fn a_small_paper_becomes_a_table() {
    let folder = one("table", TINY);
    let papers = data::read(&folder, Some("tiny")).unwrap();
    let paper = &papers[0];
    assert_eq!(sides(&paper.figure[0]).len(), 4);
    assert!(command(paper, &paper.figure[0], &args(&folder)).contains("--lock ttas,tas,mcs --machine xeon-8180-4s"));
    if SIMULATED {
        let path = folder.join("table.md");
        let sweep = SimPapers { sweep: Some(String::new()), write: Some(path.clone()), ..args(&folder) };
        assert_eq!(execute(&sweep).unwrap(), ExitCode::SUCCESS);
        let text = std::fs::read_to_string(&path).unwrap();
        for part in [
            "Orderings that the paper states: 2; ",
            "| Figure 1, §1 | short sections | 1 ÷ 2 | `ttas` ÷ `ttas` | 1.5 |",
            "of 19 cells",
            "a reason",
            "On `xeon-8180-4s` the sweep goes 20 % to either side of what was measured or published (`overlap`, `latency.l3`, `latency.core_to_core`, \
             `occupancy.transfer`, `occupancy.memory`, `occupancy.link`), and 50 % of what is guessed (`smt_slowdown`, `latency.dirty_remote.1`, ",
            "Not in the paper, and not counted:",
            "| `tas` ÷ `mcs`, accesses that leave the socket, an operation | > 1 |",
            "| tiny | 2 | ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("**holds**"), "{text}");
        assert_eq!(file::with(&text, &[]).as_deref(), Some(text.as_str()));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A claim may compare a contender with itself under another value of a parameter. Each side has a row of its own.
#[test]
fn values_of_a_parameter_are_sides() {
    let run = "run = \"sets --structure list --count 64 --update-percent 2,80 --micros 20 --warm 0 --min-ops 0\"";
    let text = TINY.replace("run = \"locks --micros 20 --warm 0 --min-ops 0\"", run);
    let start = text.find("claim").unwrap();
    let with = |claims: &str| format!("{}claim = [{claims}]", &text[..start]);
    let claim = "{ ahead = \"rlu\", at = { update_percent = 80 }, behind = \"rlu\", behind_at = { update_percent = 2 }, \
                 by = \"repeats\" }";
    let folder = one("shares", &with(claim));
    let paper = &data::read(&folder, None).unwrap()[0];
    let planned = plan(paper, &paper.figure[0], &args(&folder)).unwrap();
    let shares = planned.sides.iter().map(|(_, place)| planned.contenders[*place].cell.update_percent);
    assert_eq!(shares.collect::<Vec<_>>(), [Some(80), Some(2)]);
    let table = table::paper(paper, &[Done::of(&paper.figure[0], &planned, Vec::new())], &args(&folder));
    assert!(table.contains("| `rlu`, 80 % updates ÷ `rlu`, 2 % updates, attempts repeated |"), "{table}");
    std::fs::remove_dir_all(folder).unwrap();
    for (wrong, says) in [
        (claim.replace("80", "50"), "no contender `rlu`, 50 % updates"),
        (claim.replace("= 80", "= 2"), "compared with itself"),
        (claim.replace("{ update_percent = 2 }", "{ updates = 2 }"), "`updates` is no parameter; known are workload, "),
    ] {
        let folder = one("no-shares", &with(&wrong));
        let planned = data::read(&folder, None)
            .and_then(|papers| plan(&papers[0], &papers[0].figure[0], &args(&folder)).map(|_| ()));
        let failure = planned.unwrap_err().to_string();
        assert!(failure.contains(says), "{failure}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// A value is a field's whole text, or one of the parts of its details. So 1 warehouse is not 11, and Zipf 0.9 not 0.99.
#[test]
fn a_value_is_a_whole_part() {
    let run = "run = \"txn --workload tpcc --warehouses 1,11 --micros 20 --warm 0 --min-ops 0\"";
    let text = TINY.replace("run = \"locks --micros 20 --warm 0 --min-ops 0\"", run);
    let claim = "{ ahead = \"silo-art\", at = { details = \"11 warehouses\" }, behind = \"silo-art\", \
                 behind_at = { details = \"1 warehouses\" } }";
    let folder = one("parts", &format!("{}claim = [{claim}]", &text[..text.find("claim").unwrap()]));
    let paper = &data::read(&folder, None).unwrap()[0];
    let what = parse(&command(paper, &paper.figure[0], &args(&folder))).unwrap();
    let cells: Vec<String> = contenders(&what).unwrap().iter().map(|found| found.cell.details.clone()).collect();
    assert!(cells[0].starts_with("1 warehouses, SCALED") && cells[1].starts_with("11 warehouses, SCALED"), "{cells:?}");
    // Tables have a column for each.
    let columns: Vec<String> = contenders(&what).unwrap().iter().map(|found| found.cell.column()).collect();
    assert_eq!(columns, ["tpcc 1 warehouses", "tpcc 11 warehouses"]);
    for side in sides(&paper.figure[0]) {
        let found = contenders(&what).unwrap().iter().filter(|contender| side.is(contender)).count();
        assert_eq!(found, 1, "{side:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A claim says by values which of several contenders it means.
#[test]
fn an_ambiguous_claim_is_refused() {
    let run = "run = \"sets --structure list --count 64 --update-percent 2,80 --micros 20 --warm 0 --min-ops 0\"";
    let text = TINY.replace("run = \"locks --micros 20 --warm 0 --min-ops 0\"", run);
    let text = text.replace("\"tas\"", "\"rlu\"").replace("\"ttas\"", "\"rcu\"").replace("\"mcs\"", "\"mvrlu\"");
    let folder = one("ambiguous", &text);
    let failure = check(&data::read(&folder, None).unwrap(), &args(&folder)).unwrap_err().to_string();
    assert!(failure.contains("several contenders are `") && failure.contains("`at` says which one"), "{failure}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// What the table says of a claim is what is judged, also for claims of this project, whose ratios are not shown.
#[test]
fn the_order_is_shown() {
    let claims = "claim = [
        { ahead = \"ttas\", behind = \"mcs\", ratio = 3, within = 1.25 },
        { ahead = \"tas\", behind = \"mcs\", ratio = 3, within = 1.25, or_better = true, ours = true },
        { ahead = \"tas\", behind = \"ttas\", least = 2, ours = true },
    ]";
    let folder = one("orders", &format!("{}{claims}", &TINY[..TINY.find("claim").unwrap()]));
    let paper = &data::read(&folder, None).unwrap()[0];
    let planned = plan(paper, &paper.figure[0], &args(&folder)).unwrap();
    let table = table::paper(paper, &[Done::of(&paper.figure[0], &planned, Vec::new())], &args(&folder));
    for order in ["`mcs` | 3 (alike to 1.25) |", "`mcs` | no less (to 1.25) |", "`ttas` | > 2 |"] {
        assert!(table.contains(order), "{order}: {table}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A table with gaps does not take the place of one without. If the file has none, it is written.
#[test]
fn a_table_with_gaps_replaces_none() {
    if !SIMULATED {
        return;
    }
    let folder = one("gaps", TINY);
    let page = folder.join("page.md");
    let all = SimPapers { write: Some(page.clone()), ..args(&folder) };
    execute(&all).unwrap();
    let whole = std::fs::read_to_string(&page).unwrap();
    one("gaps", &TINY.replace("by = \"remote\"", "by = \"retries\""));
    let failure = execute(&all).unwrap_err().to_string();
    assert_eq!(failure, "tiny, Figure 1: tas ahead of mcs: rows of this experiment do not count `retries`");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), whole);
    std::fs::remove_file(&page).unwrap();
    assert_eq!(execute(&all).unwrap_err().to_string(), failure);
    assert!(std::fs::read_to_string(&page).unwrap().contains("| - | - | - | unresolved: not counted |"));
    // A device is not read: it may have no end.
    #[cfg(unix)]
    {
        let device = SimPapers { write: Some("/dev/null".into()), ..args(&folder) };
        assert!(execute(&device).unwrap_err().to_string().contains("/dev/null: it is no ordinary file"));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Figures share rows: a row is measured once, also without `--jobs`.
#[test]
fn shared_rows_are_measured_once() {
    if !SIMULATED {
        return;
    }
    let second = TINY[TINY.find("[[figure]]").unwrap()..].replace("Figure 1", "Figure 2");
    let folder = one("shared", &(TINY.to_owned() + &second));
    let rows = folder.join("rows");
    execute(&SimPapers { out: Some(rows.clone()), write: Some(folder.join("page.md")), ..args(&folder) }).unwrap();
    assert_eq!(std::fs::read_to_string(&rows).unwrap().lines().count(), 4);
    let fewer = SimPapers { runs: 3, more_runs: Some(3), ..args(&folder) };
    assert_eq!(execute(&fewer).unwrap_err().to_string(), "--more-runs 3: --runs 3 are not fewer");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The list of experiments tells the paper's size where the experiment has another.
#[test]
fn other_sizes_are_told() {
    for (small, told) in [("5", true), ("7", false)] {
        let sized = format!("--warm 0\"\npaper = \"--min-ops 7\"\nsmall = \"--min-ops {small}\"");
        let folder = one(&format!("sizes-{small}"), &TINY.replace("--warm 0 --min-ops 0\"", &sized));
        let paper = &data::read(&folder, None).unwrap()[0];
        let planned = plan(paper, &paper.figure[0], &args(&folder)).unwrap();
        let table = table::paper(paper, &[Done::of(&paper.figure[0], &planned, Vec::new())], &args(&folder));
        assert_eq!(table.contains("(for the paper's size: `--min-ops 7`)"), told, "{table}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// A figure or a claim that is there twice would be counted twice, and two opposites cannot both hold.
#[test]
fn nothing_is_stated_twice() {
    let with = |claim: &str| TINY.replace("\n]", &format!("\n    {claim},\n]"));
    let loaded = |text: &str| {
        let folder = one("stated-twice", text);
        let papers = data::read(&folder, None).map(|_| ());
        std::fs::remove_dir_all(folder).unwrap();
        papers.map_err(|failure| failure.to_string())
    };
    for claim in [
        "{ ahead = \"tas\", threads = 2, behind = \"mcs\", behind_threads = 2, ours = true, ratio = 2, reason = \"b\" }",
        "{ ahead = \"mcs\", behind = \"tas\" }",
        "{ ahead = \"mcs\", behind = \"tas\", least = 1.25 }",
        "{ ahead = \"tas\", behind = \"ttas\", within = 2 }, { ahead = \"ttas\", behind = \"tas\", within = 2 }",
    ] {
        let failure = loaded(&with(claim)).unwrap_err();
        assert!(failure.contains("` with 2 threads: an earlier claim states the same, or the opposite"), "{failure}");
    }
    for claim in [
        "{ ahead = \"tas\", behind = \"mcs\", least = 1.25 }",
        "{ ahead = \"mcs\", behind = \"tas\", within = 1.25 }",
        "{ ahead = \"mcs\", behind = \"tas\", by = \"repeats\" }",
        "{ ahead = \"tas\", threads = 1, behind = \"mcs\" }",
    ] {
        assert_eq!(loaded(&with(claim)), Ok(()));
    }
    let level = "ahead = \"tas\", behind = \"mcs\", within = 2, or_better = true";
    let swapped = "ahead = \"mcs\", behind = \"tas\", within = 2, or_better = true";
    assert_eq!(loaded(&with(&format!("{{ {level} }}, {{ {swapped} }}"))), Ok(()), "both hold if they are level");
    let twice = TINY.to_owned() + &TINY[TINY.find("[[figure]]").unwrap()..];
    assert!(loaded(&twice).unwrap_err().ends_with("Figure 1: two figures have this name"));
}

/// A claim without rows counts as unresolved, and the section says so.
#[test]
fn what_was_not_run_is_counted() {
    let folder = one("not-run", TINY);
    let paper = &data::read(&folder, None).unwrap()[0];
    let planned = plan(paper, &paper.figure[0], &args(&folder)).unwrap();
    let table = table::paper(paper, &[Done::of(&paper.figure[0], &planned, Vec::new())], &args(&folder));
    assert!(table.contains("states: 2; 0 hold, 0 are contradicted, 2 unresolved, of which 2 were not run."), "{table}");
    let count = count::Count::read(&table).unwrap();
    assert_eq!((count.all(), count.unresolved, count.not_run), (2, 2, 2));
    assert_eq!(count::Count::read(&count.to_string()), Some(count));
    let all_run = count::Count { not_run: 0, ..count };
    assert!(all_run.to_string().ends_with(", 2 unresolved."));
    assert_eq!(count::Count::read(&all_run.to_string()), Some(all_run));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The paper's column shows the ratio, or by what factor the first side must be ahead.
#[test]
fn the_least_lead_is_told() {
    for (least, told) in [("least = 1.25", "> 1.25"), ("least = 1.25, ratio = 1.5", "1.5 (> 1.25)"), ("ratio = 2", "2")]
    {
        let folder = one("least-lead", &TINY.replace("ratio = 1.5", least));
        let paper = &data::read(&folder, None).unwrap()[0];
        let planned = plan(paper, &paper.figure[0], &args(&folder)).unwrap();
        let table = table::paper(paper, &[Done::of(&paper.figure[0], &planned, Vec::new())], &args(&folder));
        assert!(table.contains(&format!("| `ttas` ÷ `ttas` | {told} |")), "{table}");
        assert!(table.contains("| `tas` ÷ `mcs` | > 1 |"), "{table}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// A claim may compare by how much two contenders gain: four rows, of which each side divides two.
#[test]
fn gains_are_compared() {
    let with = |claim: &str| TINY.replace("\n]", &format!("\n    {claim},\n]"));
    let claim = "{ ahead = \"tas\", behind = \"mcs\", since_threads = 1 }";
    let folder = one("gains", &with(claim));
    let paper = &data::read(&folder, None).unwrap()[0];
    let figure = &paper.figure[0];
    let planned = plan(paper, figure, &args(&folder)).unwrap();
    let threads: Vec<usize> = figure.claim[3].needed(figure).iter().map(|side| side.threads).collect();
    assert_eq!((threads, planned.sides.len()), (vec![2, 2, 1, 1], 6));
    // With two threads `tas` does less than `mcs`, but three times as much as with one.
    let cells = |side: &Side| match (side.name.as_str(), side.threads) {
        ("tas", threads) => [1.0, 3.0][threads - 1],
        (_, threads) => [4.0, 8.0][threads - 1],
    };
    let row = |(side, place): &(Side, usize)| {
        let mut row = Row::new(&side.name, side.threads, &planned.contenders[*place].cell, Vec::new());
        row.sweep = vec![cells(side); 19];
        (side.clone(), row)
    };
    let rows: done::Rows = planned.sides.iter().map(row).collect();
    let done = Done::of(figure, &planned, rows.clone());
    let [plain, gains] = [1, 3].map(|claim| done.finding(&figure.claim[claim]).unwrap());
    assert_eq!((plain.verdict, plain.ratios[0]), (Verdict::Contradicted, 0.375));
    assert_eq!((gains.verdict, gains.ratios[0]), (Verdict::Holds, 1.5));
    let table = table::paper(paper, std::slice::from_ref(&done), &args(&folder));
    assert!(table.contains("| 2 | `tas` ÷ `mcs`, each ÷ itself with 1 threads | > 1 | 1.50 "), "{table}");
    // Without one of the four rows the claim is not judged.
    for lost in figure.claim[3].needed(figure) {
        let rows = rows.iter().filter(|(side, _)| *side != lost).cloned().collect();
        assert_eq!(Done::of(figure, &planned, rows).finding(&figure.claim[3]), None);
    }
    std::fs::remove_dir_all(folder).unwrap();
    for (wrong, says) in [
        ("since_threads = 2", "so its figure would be 1"),
        ("since_threads = 0", "0 threads do nothing"),
        ("since = { updates = 2 }", "`updates` is no parameter; known are workload, "),
    ] {
        let folder = one("no-gains", &with(&claim.replace("since_threads = 1", wrong)));
        let failure = data::read(&folder, None).unwrap_err().to_string();
        assert!(failure.contains(says), "{failure}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// Rows that a larger computer has measured can be judged where the experiment does not fit.
#[test]
fn judging_needs_no_room() {
    let run = "run = \"txn --workload tpcc --whole --warehouses 65535 --micros 20 --warm 0 --min-ops 0\"";
    let text = TINY.replace("run = \"locks --micros 20 --warm 0 --min-ops 0\"", run);
    let claim = "{ ahead = \"silo-art\", behind = \"silo-blink\" }";
    let folder = one("no-room", &format!("{}claim = [{claim}]", &text[..text.find("claim").unwrap()]));
    let paper = &data::read(&folder, None).unwrap()[0];
    let planned =
        |judge| plan(paper, &paper.figure[0], &SimPapers { judge, ..args(&folder) }).map(|plan| plan.sides.len());
    let failure = planned(false).unwrap_err().to_string();
    assert!(failure.contains("of memory"), "{failure}");
    assert_eq!(planned(true).unwrap(), 2);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn some_figures_are_swept() {
    let folder = one("swept", TINY);
    let paper = &data::read(&folder, None).unwrap()[0];
    let swept = |texts: Option<&str>| {
        let args = SimPapers { sweep: texts.map(str::to_owned), ..args(&folder) };
        (command(paper, &paper.figure[0], &args).ends_with(" --sweep"), table::made_by(paper, &args, true))
    };
    for (texts, is, says) in [
        (None, false, "nothing is resolved"),
        (Some(""), true, "papers --only tiny --sweep --runs"),
        (Some("other; Figure 1"), true, "papers --only tiny --sweep 'Figure 1' --runs"),
        (Some("Fig ;Figure 1"), true, "papers --only tiny --sweep 'Fig;Figure 1' --runs"),
        (Some("tiny, Figure"), true, "without the sweep"),
        (Some("Figure 2;other"), false, "papers --only tiny --runs"),
    ] {
        let (found, head) = swept(texts);
        assert!(found == is && head.contains(says), "{texts:?}: {head}");
    }
    // A text that names nothing is misspelt, but one process measures a single paper's row.
    let checked = |texts: &str, cell| {
        check(std::slice::from_ref(paper), &SimPapers { sweep: Some(texts.to_owned()), cell, ..args(&folder) })
    };
    let failure = checked("Figure 1; other", Vec::new()).unwrap_err().to_string();
    assert!(failure.contains("--sweep other: no figure of these papers"), "{failure}");
    assert!(checked("Figure 1; tiny", Vec::new()).is_ok() && checked("", Vec::new()).is_ok());
    assert!(checked("other", vec![crate::args::Cell { figure: 0, side: 0 }]).is_ok());
    std::fs::remove_dir_all(folder).unwrap();
}

/// A section of some figures replaces another one of some, but none of all.
#[test]
fn some_figures_do_not_replace_all() {
    let folder = one("some-figures", TINY);
    let (rows, page) = (folder.join("rows"), folder.join("page.md"));
    std::fs::write(&rows, "").unwrap();
    let paper = &data::read(&folder, None).unwrap()[0];
    let all = args(&folder);
    let some = SimPapers { figure: Some("Figure".to_owned()), ..all.clone() };
    let made = |args: &SimPapers| {
        let planned = plan(paper, &paper.figure[0], args).unwrap();
        file::with("", &[table::paper(paper, &[Done::of(&paper.figure[0], &planned, Vec::new())], args)]).unwrap()
    };
    let (of_all, of_some) = (made(&all), made(&some));
    assert_eq!([&of_all, &of_some, ""].map(|text| file::has_whole(text, "tiny")), [true, false, false]);
    assert!(!file::has_whole(&of_all, "another"));
    std::fs::write(&page, &of_all).unwrap();
    let write =
        SimPapers { judge: true, out: Some(rows), program: Some("p".to_owned()), write: Some(page.clone()), ..some };
    let failure = execute(&write).unwrap_err().to_string();
    assert!(failure.contains("section in ") && failure.contains(" of all figures of tiny; "), "{failure}");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), of_all);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_section_is_replaced_and_the_others_stay() {
    let section = |key: &str, what: &str| format!("{key}: a paper\n\n{what}\n");
    let old = file::with("", &[section("b", "one"), section("a", "two")]).unwrap();
    assert!(old.find("## a: a paper\n\ntwo\n").unwrap() < old.find("## b: a paper\n\none\n").unwrap(), "{old}");
    assert_eq!(file::with(&old, &[]).unwrap(), old);
    let new = file::with(&old, &[section("c", "three"), section("b", "four")]).unwrap();
    assert_eq!(new, file::with("", &[section("a", "two"), section("b", "four"), section("c", "three")]).unwrap());
    let folder = one("kept", TINY);
    let path = folder.join("tiny.toml");
    let failure = file::update(&path, &[section("a", "two")]).unwrap_err().to_string();
    assert!(failure.contains("no file of papers' tables"), "{failure}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), TINY, "it stays as it is");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The repository's file of tables is valid, and has a section for each paper.
#[test]
fn the_tables_of_the_repository_can_be_replaced() {
    let text = std::fs::read_to_string(folder().join("../docs/papers.md")).unwrap();
    let is_of_today = file::with(&text, &[]).as_deref() == Some(text.as_str());
    assert!(is_of_today, "its head or its counts are of another program: write it again by --judge");
    for paper in data::read(&folder(), None).unwrap() {
        assert!(text.contains(&format!("\n## {}: {}\n", paper.key, paper.title)), "{}", paper.key);
    }
}

#[test]
fn wrong_files_are_one_sentence() {
    for (name, text, says) in [
        ("unknown", TINY.replace("ahead = \"tas\"", "ahead = \"spinning\""), "unknown lock 'spinning'"),
        ("field", TINY.replace("what =", "when ="), "tiny.toml: unknown field `when`"),
        ("option", TINY.replace("--warm 0", "--cold 0"), "--cold"),
        (
            "within",
            TINY.replace("ratio = 1.5", "within = 1.0"),
            "Figure 1: ttas ahead of ttas: `within` is a factor above 1",
        ),
        ("least", TINY.replace("ratio = 1.5", "least = 1.0"), "`least` is a factor above 1"),
        ("infinite", TINY.replace("ratio = 1.5", "least = inf"), "`least` is a factor above 1"),
        ("both", TINY.replace("ratio = 1.5", "least = 1.25, within = 1.25"), "and `within` that neither is"),
        ("better", TINY.replace("ratio = 1.5", "or_better = true"), "`or_better` needs `within`"),
        ("nan", TINY.replace("ratio = 1.5", "within = nan"), "`within` is a factor above 1"),
        ("ratio", TINY.replace("ratio = 1.5", "ratio = -1.5"), "`ratio` is a number above 0"),
        ("no-lead", TINY.replace("ratio = 1.5", "ratio = 1"), "a `ratio` of at most 1 is no lead"),
        ("nothing", TINY.replace("behind_threads = 2", "behind_threads = 0"), "0 threads"),
        ("itself", TINY.replace("behind_threads = 2", "behind_threads = 1"), "compared with itself"),
        ("by", TINY.replace("\"remote\"", "\"luck\""), "tiny.toml: unknown variant `luck`"),
        ("cells", TINY.replace("a reason", "a|b"), "`a|b` has"),
        (
            "sweep",
            TINY.replace("--warm 0", "--warm 0 --sweep"),
            "`run` has --sweep, which is an option of `sim papers`",
        ),
        ("head", TINY.replace("machine =", "note = \"a\\n## b: c\"\nmachine ="), "`## b: c` is a line that only"),
        ("count", TINY.replace("A tiny", "Orderings that the paper states: 9; a"), "is a line that only the table"),
        ("empty", TINY.split("claim").next().unwrap().to_owned() + "claim = []", "no claim"),
    ] {
        let folder = one(name, &text);
        let failed = data::read(&folder, None).and_then(|papers| {
            let paper = &papers[0];
            contenders(&parse(&command(paper, &paper.figure[0], &args(&folder)))?).map(|_| ())
        });
        let failure = failed.unwrap_err().to_string();
        assert!(failure.contains(says) && !failure.contains('\n'), "{failure}");
        std::fs::remove_dir_all(folder).unwrap();
    }
    assert!(data::read(Path::new("/dev/null"), None).is_err());
    // An error in the last figure is reported before the first figure runs.
    let second =
        TINY.find("[[figure]]").map(|at| TINY.to_owned() + &TINY[at..].replace("Figure 1", "Figure 2")).unwrap();
    let at = second.rfind("threads = 2\n").unwrap();
    for (wrong, says) in [("threads = 900000\n", "--threads 900000"), ("threads = 2\nmachine = \"zx81\"\n", "zx81")] {
        let folder = one("late", &(second[..at].to_owned() + wrong + &second[at + "threads = 2\n".len()..]));
        let papers = data::read(&folder, None).unwrap();
        let failure = plan(&papers[0], &papers[0].figure[1], &args(&folder)).err().unwrap().to_string();
        assert!(failure.starts_with("tiny, Figure 2: ") && failure.contains(says), "{failure}");
        let path = folder.join("table.md");
        let started = SimPapers { write: Some(path.clone()), out: Some(folder.join("rows")), ..args(&folder) };
        assert!(execute(&started).is_err() && !path.exists() && !folder.join("rows").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
    let none = SimPapers { figure: Some("Figure 99".to_owned()), ..args(&folder()) };
    assert!(!SIMULATED || execute(&none).unwrap_err().to_string().contains("no figure of these papers"));
    assert!(data::read(&folder(), Some("nothing")).unwrap_err().to_string().contains("known are"));
}

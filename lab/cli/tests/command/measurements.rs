//! Every measurement runs, and prints its table in every format.

use super::*;

/// `calibrate` measures this machine and writes a file. The same command reads every number from the file.
#[test]
fn the_machine_is_calibrated() {
    let file = Temporary::new("machine.toml", b"");
    assert!(printed(run(&["calibrate", "--quick", "--out", file.path()], b"")).is_empty());
    let text = printed(run(&["sim", "machines", file.path()], b""));
    let line =
        |field: &str| text.lines().find(|line| line.starts_with(field)).unwrap_or_else(|| panic!("no {field}: {text}"));
    assert!(line("latency.memory.0").contains("measured: a chain"), "{text}");
    assert!(line("occupancy.transfer").contains("guessed: as preset"), "{text}");
    let nowhere = sentence(run(&["calibrate", "--quick", "--out", "/nowhere/machine.toml"], b""));
    assert!(nowhere.contains("/nowhere/machine.toml"), "{nowhere}");
    let imagined =
        Command::new(env!("CARGO_BIN_EXE_archipelago")).arg("calibrate").env("ARCHIPELAGO_TOPOLOGY", "2x2").output();
    assert!(sentence(imagined.unwrap()).contains("unset ARCHIPELAGO_TOPOLOGY"));
}

#[test]
fn the_machine_and_the_version_are_told() {
    let machine = printed(run(&["machine"], b""));
    // A logical clock must be reported with its reason.
    assert!(!machine.lines().any(|line| line == "clock: logical (a shared counter)"), "{machine}");
    assert!(printed(run(&["--version"], b"")).contains(env!("CARGO_PKG_VERSION")));
    assert!(printed(run(&["--help"], b"")).contains("bench"));
    for command in ["ycsb", "verify"] {
        let help = printed(run(&["bench", command, "--help"], b""));
        let names = ["hydralist", "euno-skiplist", "masstree-like", "mutex-btreemap", "all, ours, peers"];
        // The help's lines may be broken anywhere.
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(names.iter().all(|name| help.contains(name)), "{help}");
    }
}

#[test]
fn ours_pass_the_exam() {
    let table = printed(run(&["bench", "verify", "--index", "ours", "--seconds", "0.02"], b""));
    assert!(table.contains("neighbours") && !table.contains("FAIL"), "{table}");
}

#[test]
fn node_replication_is_measured_in_every_format() {
    let quick = |more: &[&str]| {
        let args = ["bench", "nr", "--count", "300", "--millis", "10", "--runs", "1", "--threads", "2", "--latency"];
        let cell = ["--workload", "dictionary", "--update-percent", "10", "--method", "sl,fc+,nr,nr+"];
        printed(run(&[&args[..], &cell, more].concat(), b""))
    };
    let lines = quick(&["--format", "json"]);
    let methods = ["sl", "fc+", "nr", "nr+"];
    assert_eq!(lines.lines().count(), methods.len(), "{lines}");
    for (method, line) in methods.iter().zip(lines.lines()) {
        assert!(line.contains(&format!(r#""structure":"{method}","workload":"dictionary""#)), "{line}");
        assert!(line.contains(r#""update_percent":10,"external_work":0"#), "{line}");
        assert!(line.contains(r#""baseline":"sl""#) && !line.contains(r#""max_ns":null"#), "{line}");
    }
    let lines = quick(&["--format", "csv"]);
    assert!(lines.lines().next().unwrap().contains("update_percent,external_work"), "{lines}");
    let report = Temporary::new("nr.html", b"");
    let table = quick(&["--report", report.path()]);
    let page = std::fs::read_to_string(report.path()).unwrap();
    assert!(page.contains("<h2>dictionary 10% uniform</h2>") && page.contains("<svg"), "{page}");
    assert!(table.contains("dictionary 10% uniform; 2 threads, 300 int keys"), "{table}");
    assert!(table.contains("nr+") && table.contains("max ns"), "{table}");
    assert!(refused(run(&["bench", "nr", "--method", "mcs"], b"")).contains("unknown method 'mcs'"));
}

/// Measures applications. The command fails if they leave an inconsistent state.
fn measured(lines: &[(&str, &[&str])]) {
    for (line, parts) in lines {
        let options = ["--millis", "10", "--runs", "1", "--threads", "2"];
        let words: Vec<&str> = line.split(' ').chain(options).collect();
        let text = printed(run(&words, b""));
        assert!(parts.iter().all(|part| text.contains(part)) && !text.contains("WRONG"), "{line}: {text}");
    }
}

#[test]
fn stores_are_measured() {
    let stores = "bench txn --store silo,schemes,silo-logged-hydralist,lock";
    let line = format!("{stores} --workload all --small --count 300 --update-percent 20");
    measured(&[(&line, &["silo-euno-skiplist", "mvrlu-hydralist", "silo-logged-hydralist", "payment: "])]);
}

#[test]
fn caches_and_spaces_are_measured() {
    let requests: String = (0..2_000).map(|at| format!("{} {at}\n", at * at % 601)).collect();
    let trace = Temporary::new("requests", requests.as_bytes());
    let cached = "bench cache --count 400 --capacity-percent 50";
    let of_file = format!("{cached} --workload trace-file --trace {}", trace.path());
    let of_loop = format!("{cached} --workload trace-loop");
    let best = ["the best", "% hits", "sieve", "kyoto"];
    measured(&[
        (cached, &["s3-fifo", "sieve", "sampled-lru", "kyoto"]),
        (&of_file, &[&best[..], &["200 of 2000 requests"]].concat()),
        (&of_loop, &best),
        ("bench ranges", &["ranges", "rwlock", "spf", "psearchy"]),
    ]);
    let said = sentence(run(&["bench", "cache", "--workload", "trace-file"], b""));
    assert!(said.contains("--trace FILE"), "{said}");
}

#[test]
fn locks_are_measured_in_every_format() {
    let quick = |more: &[&str]| {
        let args = ["bench", "locks", "--millis", "10", "--runs", "1", "--threads", "2", "--latency"];
        let cells = ["--lock", "ttas,bravo,parking-lot,std", "--write-percent", "10"];
        printed(run(&[&args[..], &cells, more].concat(), b""))
    };
    let lines = quick(&["--format", "json"]);
    let cells = [("sections", ["ttas", "parking-lot", "std"]), ("reading sections", ["bravo", "parking-lot", "std"])];
    let expected = cells.iter().flat_map(|(cell, locks)| locks.iter().map(move |lock| (cell, lock)));
    assert_eq!(lines.lines().count(), 6, "{lines}");
    for ((cell, lock), line) in expected.zip(lines.lines()) {
        assert!(line.contains(&format!(r#""structure":"{lock}","workload":"{cell}""#)), "{line}");
        assert!(line.contains(r#""baseline":"parking-lot""#) && !line.contains(r#""max_ns":null"#), "{line}");
    }
    assert!(quick(&["--format", "csv"]).starts_with("structure,workload,threads"));
    let report = Temporary::new("locks.html", b"");
    let table = quick(&["--report", report.path()]);
    assert!(table.contains("reading sections 10%; 2 threads") && table.contains("x parking-lot"), "{table}");
    assert!(std::fs::read_to_string(report.path()).unwrap().contains("<svg"));
    let said = refused(run(&["bench", "locks", "--lock", "spinning"], b""));
    assert!(
        said.contains("unknown lock 'spinning'; known are tas, ttas") && said.matches("std").count() == 1,
        "{said}"
    );
}

/// A row says which isolation its contender has. Write skews that this isolation permits are no error.
#[test]
fn snapshots_may_skew() {
    let line = "bench txn --store lock,silo-snapshot-hydralist --workload ycsb,smallbank --update-percent 20 --count 100 \
                --millis 50 --threads 2 --runs 1 --format json";
    let rows = printed(run(&line.split_whitespace().collect::<Vec<_>>(), b""));
    let facts: Vec<_> = rows
        .lines()
        .map(|row| {
            let isolation = ["serializable", "snapshot"].map(|it| row.contains(&format!(r#""isolation":"{it}""#)));
            (isolation, row.contains(r#""write_skews":null"#))
        })
        .collect();
    let (serializable, snapshot) = ([true, false], [false, true]);
    assert_eq!(facts, [(serializable, true), (snapshot, true), (serializable, true), (snapshot, false)], "{rows}");
}

/// Every peer is loaded, read and scanned with each kind of keys that it supports, and finds the keys that were
/// inserted.
#[cfg(feature = "peers")]
#[test]
fn peers_are_measured() {
    for (keys, peers) in [("int", 9), ("email", 8)] {
        let args =
            ["bench", "ycsb", "--index", "peers", "--threads", "2", "--runs", "1", "--ops", "500", "--count", "2k"];
        let lines =
            printed(run(&[&args[..], &["--workload", "c,e", "--keys", keys, "--format", "json"]].concat(), b""));
        assert_eq!(lines.lines().count(), 2 * peers, "{lines}");
        assert!(lines.lines().all(|line| line.contains(r#""misses":0"#)), "{lines}");
    }
}

/// A peer's lock-free list is a method of `bench nr` in the two workloads that change one structure at a time.
#[cfg(feature = "peers")]
#[test]
fn the_list_of_a_peer_is_a_method() {
    let args = ["bench", "nr", "--count", "300", "--millis", "10", "--runs", "1", "--threads", "2", "--format", "json"];
    let lines =
        printed(run(&[&args[..], &["--update-percent", "10", "--method", "all", "--workload", "all"]].concat(), b""));
    assert_eq!(lines.lines().count(), 13 + 13 + 9 + 9, "{lines}");
    assert_eq!(lines.matches(r#""structure":"lf-crossbeam""#).count(), 2, "{lines}");
}

/// Results for three thread counts are shown as curves, for two as bars. The page is readable on a phone and in dark
/// mode.
#[test]
fn pages_fit_phones_and_nights() {
    for (threads, has) in [("1,2", "<rect"), ("1,2,3", "<polyline")] {
        let report = Temporary::new("page.html", b"");
        let args = "bench locks --lock ttas,std --write-percent 10 --millis 1 --runs 1 --report".split(' ');
        let args: Vec<&str> = args.chain([report.path(), "--threads", threads]).collect();
        printed(run(&args, b""));
        let page = std::fs::read_to_string(report.path()).unwrap();
        let parts =
            ["name=\"viewport\"", "prefers-color-scheme:dark", "<h2>Summary</h2>", "<div class=\"scroll\"", "<b>", has];
        assert!(parts.iter().all(|part| page.contains(part)), "{page}");
    }
}

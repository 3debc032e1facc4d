//! Tests the command as its users see it: its output, its error messages and its exit codes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A quick measurement whose results are of no use.
const QUICK: [&str; 10] = ["bench", "ycsb", "--index", "hydralist", "--threads", "1", "--runs", "1", "--ops", "200"];

fn run(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_archipelago"))
        .args(args)
        .env_remove("ARCHIPELAGO_TOPOLOGY")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have closed it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn quick(args: &[&str], input: &[u8]) -> Output {
    run(&[&QUICK, args].concat(), input)
}

/// Returns the standard output of a successful run.
fn printed(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error message of a run that exits with 2 and prints nothing on standard output.
fn refused(output: Output) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "nothing is measured when something is wrong");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// Returns the message as [`refused`] does, for an error that the command itself finds, not the parser of arguments.
fn sentence(output: Output) -> String {
    let said = refused(output);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("archipelago: "), "one sentence: {said}");
    said
}

/// A file that is deleted when the test is over.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, text: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("archipelago-command-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Temporary(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

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
fn wrong_arguments_are_refused_with_2() {
    let cases: [(&[&str], &str); 9] = [
        (&["--threads", "0"], "not a positive number"),
        (&["--count", "many"], "not a positive number"),
        (&["--format", "xml"], "possible values"),
        (&["--no-such-option"], "unexpected argument"),
        (&["--seed", "x"], "invalid"),
        (&["--batch", "0"], "not a positive number"),
        (&["--batch", "18446744073709551615"], "not 1 to 65_536 keys"),
        (&["--pin", "somewhere"], "possible values"),
        (&["extra"], "unexpected argument"),
    ];
    for (args, says) in cases {
        let said = refused(run(&[&["bench", "ycsb"], args].concat(), b""));
        assert!(said.contains(says), "{args:?}: {said}");
    }
    assert!(refused(run(&["no-such-command"], b"")).contains("no-such-command"));
    assert!(refused(run(&["bench", "verify", "--seconds", "0"], b"")).contains("above 0"));
}

#[test]
fn names_that_are_not_known_are_told_with_those_that_are() {
    let ycsb = |args: &[&str]| sentence(run(&[&["bench", "ycsb", "--count", "10"], args].concat(), b""));
    let said = ycsb(&["--index", "hydralist,nothing"]);
    assert!(said.contains("'nothing'") && said.contains("art, blink"), "{said}");
    let said = ycsb(&["--workload", "a,z"]);
    assert!(said.contains("'z'") && said.contains("load, a, b, c, d, e, f, grow"), "{said}");
    let said = ycsb(&["--distribution", "zipf:0"]);
    assert!(said.contains("zipf:S (S > 0"), "{said}");
    let said = sentence(run(&["bench", "locks", "--lock", "std,ttas", "--baseline", "nosuch"], b""));
    assert!(said.contains("measured are") && said.matches("std").count() == 1, "{said}");
    let said = ycsb(&["--index", "art", "--baseline", "hydralist"]);
    assert!(said.contains("--baseline hydralist is not measured; measured are art"), "{said}");
    let said = sentence(run(&["bench", "verify", "--index", "nothing"], b""));
    assert!(said.contains("'nothing'"), "{said}");
}

/// An index without scans is left out of a run with scans.
#[test]
fn an_index_without_scans_runs_no_scans() {
    let run = |indexes: &str, workloads: &str| {
        run(
            &["bench", "ycsb", "--count", "100", "--ops", "100", "--threads", "1", "--runs", "1", "--index", indexes]
                .into_iter()
                .chain(["--workload", workloads, "--format", "csv"])
                .collect::<Vec<_>>(),
            b"",
        )
    };
    let said = refused(run("cuckoo-like", "c,e"));
    assert!(said.contains("cuckoo-like is left out: it has no scans, which the workload e needs"), "{said}");
    assert!(said.contains("none of the chosen indexes takes these keys and workloads"), "{said}");
    let lines = printed(run("art,cuckoo-like", "c,e"));
    assert!(lines.contains("art,e,") && !lines.contains("cuckoo-like"), "{lines}");
    assert!(printed(run("cuckoo-like", "load,a,b,c,d,f")).contains("cuckoo-like,f,"));
}

#[test]
fn an_impossible_topology_is_told() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
    let said = sentence(command.arg("machine").env("ARCHIPELAGO_TOPOLOGY", "round").output().unwrap());
    assert!(said.contains("ARCHIPELAGO_TOPOLOGY"), "{said}");
}

#[test]
fn more_memory_than_there_is_is_not_asked_for() {
    // The last count's bytes overflow 64 bits, so that a wrapping product would be small.
    for count in ["900G", "126347562148695560"] {
        let said = sentence(quick(&["--count", count], b""));
        assert!(said.contains("try a smaller --count"), "{said}");
    }
    let measurements: [&[&str]; 9] = [
        &["nr", "--count", "900G"],
        &["nr", "--count", "1M", "--replicas", "1M"],
        &["sets", "--structure", "list", "--count", "900G"],
        &["sets", "--structure", "hash", "--count", "10", "--buckets", "900G"],
        &["euno", "--count", "900G"],
        &["blink", "--count", "900G"],
        &["txn", "--count", "900G"],
        &["cache", "--count", "900G"],
        &["blink", "--count", "18446744073709551615"],
    ];
    // 65,535 warehouses take 16 TiB. The bytes of the third number would wrap to none.
    let warehouses: [&[&str]; 4] = [
        &["--workload", "all", "--whole", "--warehouses", "65535"],
        &["--workload", "smallbank,tpcc-pair", "--warehouses", "65535"],
        &["--workload", "tpcc", "--warehouses", "70368744177664"],
        &["--workload", "tpcc", "--small", "--warehouses", "65536"],
    ];
    for (args, says) in warehouses.into_iter().zip(["fewer --warehouses", "fewer --warehouses", "65_535", "65_535"]) {
        let said = refused(run(&[&["bench", "txn"], args, &["--threads", "1"]].concat(), b""));
        assert!(said.contains(says), "{args:?}: {said}");
    }
    let said = refused(run(&["bench", "euno", "--workload", "orders", "--warehouses", "1G"], b""));
    assert!(said.contains("65_535 warehouses"), "{said}");
    // No trace is made for a machine on which it cannot run.
    let said = refused(run(&["sim", "cache", "--workload", "trace-zipf", "--count", "100G"], b""));
    assert!(said.contains("cargo sim"), "{said}");
    for args in measurements {
        let said = refused(run(&[&["bench"], args, &["--threads", "1"]].concat(), b""));
        assert!(said.contains("try a smaller --count"), "{args:?}: {said}");
    }
}

#[test]
fn key_files_that_are_missing_or_empty_are_told() {
    let empty = Temporary::new("empty", b"");
    let said = sentence(quick(&["--keys", empty.path()], b""));
    assert!(said.contains(empty.path()) && said.contains("one key per line"), "{said}");
    let missing = format!("{}-missing", empty.path());
    let said = sentence(quick(&["--keys", &missing], b""));
    assert!(said.contains(&missing) && said.contains("--keys takes int, clustered, sequential, email"), "{said}");
    let said = sentence(quick(&["--keys", "-"], b""));
    assert!(said.contains("standard input is empty"), "{said}");
    let few = Temporary::new("few", b"one\ntwo\n");
    let said = sentence(quick(&["--keys", few.path(), "--count", "3"], b""));
    assert!(said.contains("--count 3 is more than the file has: 2 distinct keys"), "{said}");
}

#[test]
fn a_report_that_cannot_be_written_is_told() {
    let file = Temporary::new("no-folder", b"");
    let path = format!("{}/report.html", file.path());
    let output = quick(&["--count", "100", "--workload", "c", "--report", &path], b"");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot write the report") && said.contains(&path), "{said}");
}

#[test]
fn keys_come_from_standard_input_and_from_files() {
    let mut text: Vec<u8> = (0..300).flat_map(|n| format!("key {n}\n").into_bytes()).collect();
    text.extend(b"key 7\nkey 7\n\xff\x00\xfe\n\n");
    let args = ["--workload", "load,c", "--format", "json"];
    let file = Temporary::new("keys", &text);
    for (source, name, input) in [("-", "stdin", &text[..]), (file.path(), file.path(), b"")] {
        let output = quick(&[&args, &["--keys", source][..]].concat(), input);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("2 lines repeat an earlier one and are used once"), "{said}");
        let lines = printed(output);
        assert_eq!(lines.lines().count(), 2, "{lines}");
        for line in lines.lines() {
            assert!(line.contains(r#""structure":"hydralist""#) && line.contains(r#""count":302"#), "{line}");
            assert!(line.contains(&format!("\"keys\":{name:?}")) && line.contains(r#""misses":0"#), "{line}");
        }
    }
}

#[test]
fn every_workload_finds_its_keys_in_every_format() {
    for keys in ["int", "clustered", "sequential", "email"] {
        let args = ["--keys", keys, "--count", "2k", "--workload", "all", "--format", "json"];
        let lines = printed(quick(&args, b""));
        let workloads: Vec<bool> = ["load", "a", "b", "c", "f", "d", "e", "grow"]
            .into_iter()
            .zip(lines.lines())
            .map(|(name, line)| line.contains(&format!(r#""workload":"{name}""#)) && line.contains(r#""misses":0"#))
            .collect();
        assert_eq!(workloads, [true; 8], "{lines}");
    }
    let report = Temporary::new("report.html", b"");
    let csv = ["--count", "2k", "--workload", "c", "--format", "csv", "--latency", "--report", report.path()];
    let lines = printed(quick(&csv, b""));
    assert!(lines.starts_with("structure,workload,keys,count,threads,machine,seed,runs,mops"), "{lines}");
    assert_eq!(lines.lines().count(), 2);
    assert!(std::fs::read_to_string(report.path()).unwrap().contains("<svg"));
    let table = printed(quick(&["--count", "2k", "--workload", "c"], b""));
    assert!(table.contains("C: reads; 1 thread, 2000 int keys") && table.contains("hydralist"), "{table}");
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

/// Small measurements by every command that measures. Each has two runs, so that its noise is known.
const MEASUREMENTS: [&str; 4] = [
    "bench ycsb --index hydralist --workload c --count 1k --ops 500",
    "bench nr --workload dictionary --method sl --update-percent 10 --count 300 --millis 10",
    "bench sets --structure hash --mechanism rcu --update-percent 20 --count 300 --seconds 0.01",
    "bench locks --lock ttas --millis 10",
];

#[test]
fn every_measurement_is_compared_with_an_earlier_one() {
    for measurement in MEASUREMENTS {
        let args: Vec<&str> = measurement.split(' ').chain(["--threads", "1", "--runs", "2"]).collect();
        let before = printed(run(&[&args[..], &["--format", "json"]].concat(), b""));
        // Pretends that the earlier run was faster than possible, and then that it was slower: than 0, too, since it may be
        // that the thread gets no processor in a run.
        for (speed, says) in [("1e9", "SLOWER: "), ("-1", "faster: ")] {
            let (least, most) = (format!(r#""mops_min":{speed},"l":"#), format!(r#""mops_max":{speed},"m":"#));
            let changed = before.replace(r#""mops_min":"#, &least).replace(r#""mops_max":"#, &most);
            let file = Temporary::new("earlier", changed.as_bytes());
            let table = printed(run(&[&args[..], &["--compare", file.path()]].concat(), b""));
            assert!(table.contains(says) && table.contains("Compared with"), "{measurement}: {table}");
        }
        let said = sentence(run(&[&args[..], &["--compare", "/dev/null"]].concat(), b""));
        assert!(said.contains("--compare /dev/null: it is empty"), "{said}");
    }
}

/// Runs that differ in an option which changes what is measured are not compared.
#[test]
fn other_measurements_are_not_compared() {
    let nr = "bench nr --workload dictionary --method nr --update-percent 10 --count 300 --millis 10";
    let cases = [
        (nr, "--replicas 1", "--replicas 2"),
        (nr, "", "--replicas 2"),
        ("bench locks --lock ttas", "--millis 10", "--millis 11"),
        ("bench locks --lock ttas --millis 10", "", "--latency"),
        ("bench sets --structure hash --mechanism rcu --update-percent 20 --seconds 0.01", "", "--latency"),
        ("bench ycsb --index hydralist --workload c --count 1k", "--ops 500", "--ops 600"),
    ];
    for (line, first, second) in cases {
        let args =
            |more: &'static str| [line, more, "--threads 1 --runs 2"].map(str::split_whitespace).into_iter().flatten();
        let before = printed(run(&args(first).chain(["--format", "json"]).collect::<Vec<_>>(), b""));
        let file = Temporary::new("others", before.as_bytes());
        let compared = |more| printed(run(&args(more).chain(["--compare", file.path()]).collect::<Vec<_>>(), b""));
        let (same, other) = (compared(first), compared(second));
        assert!(!same.contains("WARNING"), "{line} {first}: {same}");
        assert!(other.contains("WARNING: nothing was compared"), "{line} {second}: {other}");
    }
}

/// If a store cannot be loaded, the complete rows of the other stores are still printed.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_loaded_loses_no_rows() {
    let line = "bench txn --store lock,silo-logged-hydralist --workload ycsb --update-percent 20 --count 100 --millis 10 \
                --threads 1 --runs 1 --format json";
    let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
    let output = command.args(line.split_whitespace()).env("TMPDIR", "/proc").output().unwrap();
    let (rows, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(rows.lines().count() == 1 && rows.contains(r#""structure":"lock""#), "{rows}");
    assert!(said.lines().last().unwrap().starts_with("archipelago: silo-logged-hydralist: "), "{said}");
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

#[test]
fn what_is_slower_fails_if_that_is_asked_for() {
    let args = "bench locks --lock ttas --write-percent 10 --millis 5 --threads 1".split(' ').collect::<Vec<_>>();
    let run = |more: &[&str]| run(&[&args[..], more].concat(), b"");
    let twice = printed(run(&["--runs", "2", "--format", "json"]));
    let changed = |least: &str, most: &str| {
        let changed = twice.replace(r#""mops_min":"#, &format!(r#""mops_min":{least},"l":"#));
        changed.replace(r#""mops_max":"#, &format!(r#""mops_max":{most},"m":"#))
    };
    let renamed = twice.replace(r#""structure":"ttas""#, r#""structure":"gone""#);
    let cases = [
        ("slower", changed("1e9", "2e9"), "2", "SLOWER: ", 1),
        ("faster", changed("-1", "-1"), "2", "faster: ", 0),
        ("alike", changed("0", "1e9"), "2", "1 within the noise", 0),
        ("renamed", renamed, "2", "WARNING: nothing was compared", 1),
        ("once", twice.clone(), "1", "WARNING: nothing was compared", 1),
    ];
    for (name, earlier, runs, says, code) in cases {
        let file = Temporary::new(&format!("earlier-{name}"), earlier.as_bytes());
        let compare = ["--runs", runs, "--compare", file.path()];
        let table = printed(run(&compare));
        assert!(table.contains(says), "{name}: {table}");
        let output = run(&[&compare[..], &["--fail-on-slower"]].concat());
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains(says) && output.status.code() == Some(code), "{name}: {table}");
    }
    assert!(refused(run(&["--fail-on-slower"])).contains("--compare"), "of what is not compared nothing is slower");
}

/// Thread counts that no machine has, and thread counts without enough memory, are refused at once.
#[test]
fn threads_that_cannot_be_there_are_refused() {
    let commands = [
        "bench ycsb --index art --count 10 --ops 10",
        "bench nr --workload dictionary --method sl --count 10 --millis 1",
        "bench sets --structure hash --mechanism rcu --count 10 --stuck-reader",
        "bench locks --lock ttas --millis 1",
        "bench blink --technique default --count 10 --millis 1",
        "bench euno --index art --count 10 --millis 1",
    ];
    for command in commands {
        let args: Vec<&str> = command.split(' ').chain(["--threads", "1,100000"]).collect();
        let said = sentence(run(&args, b""));
        assert!(said.contains("--threads 100000: this machine has"), "{command}: {said}");
        // Stacks take room in the address space.
        #[cfg(target_os = "linux")]
        {
            let limited = format!("ulimit -v 2000000; exec \"$0\" {command} --threads 1000");
            let sh = Command::new("sh").args(["-c", &limited, env!("CARGO_BIN_EXE_archipelago")]).output().unwrap();
            let said = sentence(sh);
            assert!(said.contains("a thread cannot be started"), "{command}: {said}");
        }
    }
}

/// Output that cannot be written leads to one sentence. Output that nobody reads is no error. Neither causes a panic.
#[cfg(target_os = "linux")]
#[test]
fn streams_that_are_full_or_closed_make_no_panic() {
    let commands = [
        "machine",
        "--help",
        "bench ycsb --help",
        "sim machines",
        "bench locks --lock ttas --write-percent 10 --millis 1 --threads 1 --runs 1",
        "bench locks --lock ttas --write-percent 10 --millis 1 --threads 1 --runs 1 --format json",
        "bench locks --lock ttas --write-percent 10 --millis 1 --threads 1 --runs 1 --format csv",
        "bench verify --index art --seconds 0.01",
    ];
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for command in commands {
        let start = || {
            let mut child = Command::new(env!("CARGO_BIN_EXE_archipelago"));
            child.args(command.split(' ')).stdin(Stdio::null());
            child
        };
        let output = start().stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("archipelago: cannot write to standard output: No space left"), "{command}: {said}");
        // All messages are lost, and the command continues.
        let output = start().stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}");
        let mut child = start().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(0) && !said.contains("panicked"), "{command}: {said}");
    }
}

/// Without a terminal, a long measurement writes a line of progress from time to time.
#[cfg(unix)]
#[test]
fn long_measurements_say_what_they_are_at() {
    use std::io::{BufRead, BufReader};

    let mut child = endless("bench locks --lock ttas --millis 10");
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains(" of ") && line.contains("run ") && line.contains("ttas"), "{line}");
    signal(&child, "KILL");
    child.wait().unwrap();
}

/// Starts a measurement of a million runs, whose output streams the test reads.
#[cfg(unix)]
fn endless(measurement: &str) -> std::process::Child {
    endless_by(Command::new(env!("CARGO_BIN_EXE_archipelago")), measurement)
}

#[cfg(unix)]
fn endless_by(mut command: Command, measurement: &str) -> std::process::Child {
    let args = measurement.split(' ').chain(["--threads", "1", "--runs", "1_000_000"]);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[cfg(unix)]
fn signal(child: &std::process::Child, name: &str) {
    let name = format!("-{name}");
    assert!(Command::new("kill").args([&name, &child.id().to_string()]).status().unwrap().success());
}

/// Waits until a measurement reports its progress. By then the measurement has begun, and its process handles signals.
#[cfg(unix)]
fn measuring(child: &mut std::process::Child) {
    use std::io::Read;

    let mut said = [0];
    child.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
}

/// Waits until a measurement reports its second run, so that its first run is complete. Returns the further lines.
#[cfg(unix)]
fn second_run(child: &mut std::process::Child) -> impl Iterator<Item = String> + use<> {
    use std::io::{BufRead, BufReader};

    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let run = |line: &str| line.split("run ").nth(1)?.split(':').next()?.parse::<u64>().ok();
    assert!(lines.any(|line| run(&line).is_some_and(|run| run > 1)), "it has ended");
    lines
}

/// The signals that supervisors send end a measurement, as Ctrl-C does.
#[cfg(unix)]
#[test]
fn a_measurement_is_terminated() {
    for (name, code) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        if name == "HUP" && hears_no_hangup() {
            continue;
        }
        let mut child = endless("bench locks --lock ttas --millis 10");
        measuring(&mut child);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let table = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {table}");
        assert!(table.contains("Mops/s") && table.contains("PARTIAL"), "{name}: {table}");
    }
    // `nohup` makes the process ignore SIGHUP: the first signal is not counted, so the second does not end the process
    // at once.
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_archipelago"));
    let mut child = endless_by(nohup, "bench locks --lock ttas --millis 10");
    measuring(&mut child);
    ["HUP", "TERM"].iter().for_each(|name| signal(&child, name));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    assert!(String::from_utf8(output.stdout).unwrap().contains("PARTIAL"));
}

/// Returns whether this process, and so its children, ignore SIGHUP, for example because `nohup` started it.
#[cfg(unix)]
fn hears_no_hangup() -> bool {
    // If the file does not exist, the process handles the signal.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 != 0
}

/// Sends one signal during a run that would last a day, or two signals while a tree is filled for minutes.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_is_not_waited_out() {
    // Returns whether SIGTERM is in one of the process's signal masks.
    let is_in = |child: &std::process::Child, mask: &str| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let signals = status.lines().find_map(|line| line.strip_prefix(mask)).unwrap_or("0");
        u64::from_str_radix(signals.trim(), 16).unwrap() & 1 << 14 != 0
    };
    let wait = || std::thread::sleep(std::time::Duration::from_millis(1));
    let cases = [
        ("bench sets --structure hash --mechanism rcu --update-percent 20 --count 300 --seconds 86400", 1),
        ("bench blink --technique default --update-percent 50 --millis 1 --count 50M", 2),
    ];
    for (measurement, signals) in cases {
        let child = endless(measurement);
        while !is_in(&child, "SigCgt:") {
            wait();
        }
        for _ in 0..signals {
            signal(&child, "TERM");
            // Two equal pending signals would be merged into one.
            while is_in(&child, "ShdPnd:") {
                wait();
            }
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(143), "{measurement}");
        // The second signal ends the process before it can report that nothing is complete.
        assert_eq!(output.stdout.is_empty(), signals == 2, "{measurement}");
    }
}

/// The command reports if not all keys of a file are loaded, or if keys end with an invisible character. A file may
/// have any name.
#[cfg(target_os = "linux")]
#[test]
fn what_becomes_of_the_keys_of_a_file_is_told() {
    use std::os::unix::ffi::OsStringExt;

    let text: Vec<u8> = (0..300).flat_map(|n| format!("key {n}\r\n").into_bytes()).collect();
    let path = [
        std::env::temp_dir().into_os_string().into_vec(),
        format!("/archipelago-{}-", std::process::id()).into(),
        vec![0xff],
    ];
    let path = PathBuf::from(std::ffi::OsString::from_vec(path.concat()));
    std::fs::write(&path, text).unwrap();
    let report = Temporary::new("of-keys.html", b"");
    let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
    command
        .args(QUICK)
        .args(["--workload", "load,e", "--format", "json", "--report", report.path(), "--keys"])
        .arg(&path);
    let output = command.output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(" of 300 keys are loaded; the others are held back"), "{said}");
    assert!(said.contains("300 lines end with a carriage return"), "{said}");
    let lines = printed(output);
    assert!(lines.contains(r#""misses":0"#) && lines.contains('\u{fffd}'), "{lines}");
    assert!(std::fs::read_to_string(report.path()).unwrap().contains('\u{fffd}'));
}

/// A printed ratio is the ratio of the printed figures.
#[test]
fn ratios_are_of_what_is_printed() {
    let args =
        "bench locks --lock ttas,std --write-percent 10 --millis 5 --threads 2 --runs 5 --baseline std --format csv";
    let text = printed(run(&args.split(' ').collect::<Vec<_>>(), b""));
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let column = |name: &str| head.iter().position(|known| *known == name).unwrap();
    let (mops, ratio, paired) = (column("mops"), column("ratio"), column("paired_ratio"));
    let sections: Vec<Vec<f64>> = lines
        .filter(|line| line[column("workload")] == "sections")
        .map(|line| [mops, ratio, paired].map(|at| line[at].parse().unwrap()).to_vec())
        .collect();
    let [one, base] = &sections[..] else { panic!("{text}") };
    assert!((one[1] - one[0] / base[0]).abs() < 1e-9 && base[1] == 1.0 && base[2] == 1.0, "{text}");
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

/// Ctrl-C ends a measurement of any kind, which then reports its complete runs.
#[cfg(unix)]
#[test]
fn every_measurement_can_be_interrupted() {
    let children = MEASUREMENTS.map(endless);
    for (measurement, mut child) in MEASUREMENTS.into_iter().zip(children) {
        let _said = second_run(&mut child);
        signal(&child, "INT");
        let output = child.wait_with_output().unwrap();
        let table = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(130), "{measurement}: {table}");
        assert!(table.contains("Mops/s") && table.contains("PARTIAL"), "{measurement}: {table}");
    }
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

/// Without the peers, their names are refused, with a message that says how to build them.
#[cfg(not(feature = "peers"))]
#[test]
fn what_needs_the_peers_says_so() {
    for args in [&["bench", "nr", "--method", "lf-crossbeam"][..], &["bench", "ycsb", "--index", "masstree"]] {
        let said = sentence(run(args, b""));
        assert!(said.contains("feature 'peers'"), "{said}");
    }
}

/// A server that a signal ends has made all its answers durable, and exits successfully.
#[cfg(unix)]
#[test]
fn a_signal_ends_a_server_well() {
    use std::io::{BufRead, BufReader, Read};

    let directory = std::env::temp_dir().join(format!("archipelago-serve-{}", std::process::id()));
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
        command.args(["serve", "--port", "0", "--appendonly", "everysec", "--maxmemory", "100mb", "--dir"]);
        let mut child = command.arg(&directory).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix("listening on ")?.split(';').next()?.to_owned()));
        (child, std::net::TcpStream::connect(address.expect("it says where it listens")).unwrap())
    };
    let ask = |stream: &mut std::net::TcpStream, line: &str, expected: &str| {
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), expected, "{line}");
    };
    for number in 1..=3 {
        let (mut child, mut stream) = start();
        ask(&mut stream, "INCR a", &format!(":{number}\r\n"));
        signal(&child, "TERM");
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    std::fs::remove_dir_all(directory).unwrap();
}

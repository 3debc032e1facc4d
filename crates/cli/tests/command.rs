//! The command as people meet it: what it prints, what it says when something is wrong, and its exit codes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A measurement of no use but quick.
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
    // Whoever does not read it has closed it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn quick(args: &[&str], input: &[u8]) -> Output {
    run(&[&QUICK, args].concat(), input)
}

/// What a run wrote to standard output, which went well.
fn printed(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The one sentence of a run that exits with 2 and prints nothing.
fn refused(output: Output) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty(), "nothing is measured when something is wrong");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// As [`refused`], of what the command itself, not the parser of arguments, finds wrong.
fn sentence(output: Output) -> String {
    let said = refused(output);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 1 && lines[0].starts_with("archipelago: "), "one sentence: {said}");
    said
}

/// A file that is gone when the test is over.
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

#[test]
fn wrong_arguments_are_refused_with_2() {
    let cases: [(&[&str], &str); 8] = [
        (&["--threads", "0"], "not a positive number"),
        (&["--count", "many"], "not a positive number"),
        (&["--format", "xml"], "possible values"),
        (&["--no-such-option"], "unexpected argument"),
        (&["--seed", "x"], "invalid"),
        (&["--batch", "0"], "not a positive number"),
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
    assert!(said.contains("'nothing'") && said.contains("hydralist, art"), "{said}");
    let said = ycsb(&["--workload", "a,z"]);
    assert!(said.contains("'z'") && said.contains("load, a, b, c, d, e, f"), "{said}");
    let said = ycsb(&["--distribution", "zipf:0"]);
    assert!(said.contains("zipf:S (S > 0"), "{said}");
    let said = ycsb(&["--index", "art", "--baseline", "hydralist"]);
    assert!(said.contains("--baseline hydralist is not measured; measured are art"), "{said}");
    let said = sentence(run(&["bench", "verify", "--index", "nothing"], b""));
    assert!(said.contains("'nothing'"), "{said}");
}

#[test]
fn an_impossible_topology_is_told() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
    let said = sentence(command.arg("machine").env("ARCHIPELAGO_TOPOLOGY", "round").output().unwrap());
    assert!(said.contains("ARCHIPELAGO_TOPOLOGY"), "{said}");
}

#[test]
fn more_memory_than_there_is_is_not_asked_for() {
    let said = sentence(quick(&["--count", "900G"], b""));
    assert!(said.contains("try a smaller --count"), "{said}");
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
        let lines = printed(quick(&["--keys", keys, "--count", "2k", "--format", "json"], b""));
        let workloads: Vec<bool> = ["load", "a", "b", "c", "f", "d", "e"]
            .into_iter()
            .zip(lines.lines())
            .map(|(name, line)| line.contains(&format!(r#""workload":"{name}""#)) && line.contains(r#""misses":0"#))
            .collect();
        assert_eq!(workloads, [true; 7], "{lines}");
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
    assert!(!printed(run(&["machine"], b"")).trim().is_empty());
    assert!(printed(run(&["--version"], b"")).contains(env!("CARGO_PKG_VERSION")));
    assert!(printed(run(&["--help"], b"")).contains("bench"));
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

/// Small measurements of every command that measures, twice each, so that they show their noise.
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
        // As if it had been a thousand times faster, and slower.
        for (factor, says) in [("1e9", "SLOWER: "), ("0", "faster: ")] {
            let (least, most) = (format!(r#""mops_min":{factor},"l":"#), format!(r#""mops_max":{factor},"m":"#));
            let changed = before.replace(r#""mops_min":"#, &least).replace(r#""mops_max":"#, &most);
            let file = Temporary::new("earlier", changed.as_bytes());
            let table = printed(run(&[&args[..], &["--compare", file.path()]].concat(), b""));
            assert!(table.contains(says) && table.contains("Compared with"), "{measurement}: {table}");
        }
        let said = sentence(run(&[&args[..], &["--compare", "/dev/null"]].concat(), b""));
        assert!(said.contains("--compare /dev/null: it is empty"), "{said}");
    }
}

/// Ctrl-C ends a measurement of any kind with what is complete.
#[cfg(unix)]
#[test]
fn every_measurement_can_be_interrupted() {
    let start = |measurement: &'static str| {
        let args = measurement.split(' ').chain(["--threads", "1", "--runs", "1_000_000"]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
        (measurement, command.args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    };
    let children: Vec<_> = MEASUREMENTS.into_iter().map(start).collect();
    // Long enough for all to have begun.
    std::thread::sleep(std::time::Duration::from_secs(3));
    for (measurement, child) in children {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let table = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(130), "{measurement}: {table}");
        assert!(table.contains("Mops/s") && table.contains("PARTIAL"), "{measurement}: {table}");
    }
}

/// Every peer is loaded, read and scanned, with each kind of keys that it takes, and finds what it was given.
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

/// The lock-free list of a peer is a method of `bench nr`: on the two workloads that change one structure at a time.
#[cfg(feature = "peers")]
#[test]
fn the_list_of_a_peer_is_a_method() {
    let args = ["bench", "nr", "--count", "300", "--millis", "10", "--runs", "1", "--threads", "2", "--format", "json"];
    let lines =
        printed(run(&[&args[..], &["--update-percent", "10", "--method", "all", "--workload", "all"]].concat(), b""));
    assert_eq!(lines.lines().count(), 9 + 9 + 6, "{lines}");
    assert_eq!(lines.matches(r#""structure":"lf-crossbeam""#).count(), 2, "{lines}");
}

/// Without the peers, what they would add is refused, with the way to have it.
#[cfg(not(feature = "peers"))]
#[test]
fn what_needs_the_peers_says_so() {
    for args in [&["bench", "nr", "--method", "lf-crossbeam"][..], &["bench", "ycsb", "--index", "masstree"]] {
        let said = sentence(run(args, b""));
        assert!(said.contains("feature 'peers'"), "{said}");
    }
}

//! Tests the command as its users see it: its output, its error messages and its exit codes.

mod comparisons;
mod keys;
mod measurements;
mod refusals;
mod signals;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A quick measurement whose results are of no use.
const QUICK: [&str; 10] = ["bench", "ycsb", "--index", "hydralist", "--threads", "1", "--runs", "1", "--ops", "200"];

/// Small measurements by every command that measures. Each has two runs, so that its noise is known.
const MEASUREMENTS: [&str; 4] = [
    "bench ycsb --index hydralist --workload c --count 1k --ops 500",
    "bench nr --workload dictionary --method sl --update-percent 10 --count 300 --millis 10",
    "bench sets --structure hash --mechanism rcu --update-percent 20 --count 300 --seconds 0.01",
    "bench locks --lock ttas --millis 10",
];

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

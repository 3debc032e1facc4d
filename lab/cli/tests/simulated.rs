//! Tests `sim` as its users see it, in the build for the virtual machine (a simulator): an error is one line with exit
//! code 2, and complete results are never lost.

#![cfg(archipelago_sim)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_archipelago"));
    command.arg("sim").args(line.split_whitespace()).env_remove("ARCHIPELAGO_SIM_SEED").stdin(Stdio::null());
    command
}

fn run(line: &str) -> Output {
    command(line).output().unwrap()
}

/// Returns the one sentence of a run that exits with 2 and prints no row.
fn sentence(line: &str) -> String {
    let output = run(line);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}: {said}");
    assert!(output.stdout.is_empty(), "{line}: nothing is complete");
    assert!(said.lines().count() == 1 && said.starts_with("archipelago: "), "{line}: one sentence: {said}");
    said
}

/// A path of a file that is deleted when the test is over.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        Temporary(std::env::temp_dir().join(format!("archipelago-simulated-{}-{name}", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn arguments_beyond_their_limits_are_one_line() {
    for (line, says) in [
        ("nr --update-percent 101", "not a percentage"),
        ("sets --update-percent 2,101", "not a percentage"),
        ("locks --micros 0", "microseconds"),
        ("locks --micros 18446744073709551615", "microseconds"),
        ("locks --warm 18446744073709551615", "microseconds"),
        ("locks --runs 0", "not a positive number"),
        ("sets --scan 18446744073709551615 --structure list", "not a width"),
        ("ycsb --count 900G", "a smaller --count"),
        ("sets --buckets 900G", "(or --buckets)"),
        ("nr --count 900G", "a smaller --count"),
        ("nr --external-work 100M", "words"),
        ("locks --threads 100000", "more than 896 is refused"),
        ("ycsb --keys numbers", "known are int"),
    ] {
        let said = sentence(line);
        assert!(said.contains(says), "{line}: {said}");
    }
}

/// In this build, measurements of this machine would be meaningless, so they are refused; the exam works.
#[test]
fn this_machine_is_another_programs() {
    let run =
        |line: &str| Command::new(env!("CARGO_BIN_EXE_archipelago")).args(line.split_whitespace()).output().unwrap();
    for line in ["", "bench ycsb --index art --count 10 --ops 10 --threads 1", "bench locks --millis 1 --threads 1"] {
        let output = run(line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{line}: {said}");
        assert!(said.contains("built for the virtual machine") && said.contains("cargo archipelago"), "{line}: {said}");
    }
    assert!(run("bench verify --index art --seconds 0.01").status.success());
}

#[test]
fn files_are_tried_before_the_run() {
    // The measurement is so long that the test would notice if it ran before the error is found.
    let long = "locks --micros 10M --patience 10M --runs 1000";
    for option in ["report", "out"] {
        let said = sentence(&format!("{long} --{option} /dev/null/file"));
        assert!(said.contains("cannot write") && said.contains("/dev/null/file"), "{said}");
    }
    let letter = Temporary::new("letter");
    std::fs::write(&letter.0, "Dear friend,\n").unwrap();
    let said = sentence(&format!("{long} --out {}", letter.0.display()));
    assert!(said.contains("line 1 is no row"), "{said}");
    assert_eq!(std::fs::read_to_string(&letter.0).unwrap(), "Dear friend,\n");
}

/// A thread is preempted while it holds the lock, for longer than a run may last without progress.
#[test]
fn a_stalled_simulation_is_one_sentence_and_exit_code_2() {
    let said = sentence(
        "ycsb --index art --workload a --count 10 --threads 4 --stall lock-holder --micros 200000 --runs 1 \
         --format json",
    );
    assert!(said.contains("ended badly: stalled") && said.contains("--seed 1"), "{said}");
}

/// The first row is on standard output and in the file while the next one is measured. Ctrl-C ends the run with its
/// complete rows. The next run takes these rows from the file.
#[test]
fn what_is_complete_survives_an_interrupt() {
    let file = Temporary::new("rows");
    let line = |threads| {
        let out = file.0.display();
        format!("locks --lock ttas --runs 50 --min-ops 0 --format json --out {out} --threads {threads}")
    };
    let mut child = command(&line("1,896")).stdout(Stdio::piped()).spawn().unwrap();
    let mut rows = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = rows.next().unwrap().unwrap();
    interrupt(child.id());
    assert!(rows.next().is_none(), "the second cell takes far longer than it takes to press Ctrl-C");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_to_string(&file.0).unwrap().lines().count(), 1);
    // The row contains the time on the host, which would differ if the row had been measured again.
    assert_eq!(printed(&line("1")).trim(), first);
    let more = printed(&line("1,2"));
    assert_eq!((more.lines().next(), more.lines().count()), (Some(&*first), 2));
    assert_eq!(printed(&line("1,2")), more);
}

/// A run is compared with an earlier one: it equals itself, and is slower than a result that is faster than possible.
#[test]
fn a_simulation_is_compared_with_an_earlier_one() {
    let file = Temporary::new("earlier");
    let line = "locks --lock ttas --threads 1 --runs 2 --micros 20 --warm 5";
    let before = printed(&format!("{line} --format json"));
    std::fs::write(&file.0, &before).unwrap();
    let compared = || printed(&format!("{line} --compare {}", file.0.display()));
    assert!(compared().contains(": 0 slower, 0 faster, 1 within the noise"), "{}", compared());
    std::fs::write(&file.0, before.replace(r#""mops_min":"#, r#""mops_min":1e9,"l":"#)).unwrap();
    assert!(compared().contains("SLOWER: ttas, sections, 1 thread: "), "{}", compared());
}

/// Runs that differ in an option which changes what is simulated are not compared.
#[test]
fn other_simulations_are_not_compared() {
    let file = Temporary::new("others");
    let line = "locks --lock ttas --threads 2 --runs 2 --machine xeon-e5-2650v3-2s";
    let usual = "--pin fill --micros 20 --warm 5 --min-ops 10 --patience 1000";
    std::fs::write(&file.0, printed(&format!("{line} {usual} --format json"))).unwrap();
    let options =
        [("fill", "spread"), ("micros 20", "micros 21"), ("warm 5", "warm 6"), ("ops 10", "ops 11"), ("1000", "1001")];
    for (this, other) in options.into_iter().chain([("", "")]) {
        let said = printed(&format!("{line} {} --compare {}", usual.replacen(this, other, 1), file.0.display()));
        assert_eq!(said.contains("WARNING: nothing was compared"), this != other, "{other}: {said}");
    }
}

fn printed(line: &str) -> String {
    let output = run(line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Sends the signal of Ctrl-C.
fn interrupt(process: u32) {
    assert!(Command::new("kill").args(["-INT", &process.to_string()]).status().unwrap().success());
}

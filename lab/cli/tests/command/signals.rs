//! Interrupts, streams that close, and what long measurements say meanwhile.

use super::*;

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

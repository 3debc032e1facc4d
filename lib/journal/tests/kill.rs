//! Kills a real process that writes real files (`kill -9`): no acknowledged record is lost, and no recovered record is
//! incomplete.
//!
//! `ARCHIPELAGO_KILLS=N` kills N processes (20 by default).

#![cfg(unix)]

use archipelago_journal::{Journal, Options, Policy, Position, Real};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const CHILD: &str = "ARCHIPELAGO_JOURNAL_CHILD";
const WRITERS: u64 = 3;

/// Returns the options of a kind of journal. Each kind has a directory of its own.
fn options(kind: usize) -> Options {
    let small = Options { segment: 20_000, queue: 16 << 10, ..Options::default() };
    match kind {
        0 => small,
        1 => Options { policy: Policy::Every(Duration::from_millis(2)), ..small },
        2 => Options { policy: Policy::Never, ..small },
        _ => Options { lanes: 2, epochs: true, ..small },
    }
}

const KINDS: usize = 4;

/// Returns a writer's record: the writer, the number, and further bytes that these two determine.
fn record(writer: u64, number: u64) -> Vec<u8> {
    let mut bytes = [writer.to_le_bytes(), number.to_le_bytes()].concat();
    bytes.extend((0..(number * 37 + writer) % 400).map(|at| (at ^ number) as u8));
    bytes
}

fn read(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (writer, number) = (word(0), word(8));
    assert!(bytes == record(writer, number), "a record is half there");
    (writer, number)
}

/// The program that is killed. It appends records and prints which ones were acknowledged. It is not a test of its own.
#[test]
fn child() {
    let Some(text) = std::env::var_os(CHILD) else { return };
    let text = text.into_string().unwrap();
    let mut parts = text.splitn(2, ' ');
    let (kind, directory): (usize, _) = (parts.next().unwrap().parse().unwrap(), PathBuf::from(parts.next().unwrap()));
    let next = Mutex::new(BTreeMap::new());
    let (journal, recovery) = Journal::open(Arc::new(Real), &directory, options(kind), |record| {
        let (writer, number) = read(record.bytes);
        next.lock().unwrap().insert(writer, number + 1);
    })
    .unwrap();
    let next = next.into_inner().unwrap();
    let mut first = [0; WRITERS as usize];
    // The journal does not deliver retired records. So if it delivers none, the next number is read from the file in
    // which the parent has stored it.
    for (writer, first) in (0..).zip(&mut first) {
        *first = next.get(&writer).copied().unwrap_or_else(|| seen(&directory, writer));
    }
    thread::scope(|scope| {
        let journal = &journal;
        for (writer, first) in (0..WRITERS).zip(first) {
            scope.spawn(move || match kind {
                0..3 => write(journal, writer, first),
                _ => write_epochs(journal, writer, first, recovery.next_epoch),
            });
        }
    });
}

fn seen(directory: &Path, writer: u64) -> u64 {
    let text = std::fs::read_to_string(directory.with_extension("seen")).unwrap_or_default();
    text.lines().nth(writer as usize).map_or(0, |line| line.parse().unwrap())
}

fn say(writer: u64, number: u64) {
    // A line is written by one call, so it is printed as a whole or not at all.
    let _ = std::io::stdout().write_all(format!("\nack {writer} {number}\n").as_bytes());
}

fn write(journal: &Journal, writer: u64, first: u64) {
    for number in first.. {
        let position = journal.append(0, 0, &record(writer, number)).unwrap();
        if number % 3 == 0 {
            journal.wait(position).unwrap();
            say(writer, number);
        }
    }
}

/// The first writer closes epochs. All writers append to the epoch after the last closed one, and report the records
/// that are durable.
fn write_epochs(journal: &Journal, writer: u64, first: u64, epoch: u64) {
    let lane = (writer % 2) as u32;
    let (mut number, mut waiting) = (first, Vec::<(u64, Position)>::new());
    for round in 0.. {
        // The epoch may be closed between the load of its number and the append. Then the append fails, and the next
        // round tries again.
        let open = (journal.durable_epoch() + 1 + u64::from(writer != 0)).max(epoch + round * u64::from(writer == 0));
        if let Ok(position) = journal.append(lane, open, &record(writer, number)) {
            waiting.push((number, position));
            number += 1;
        }
        if writer == 0 {
            journal.close_epoch(open).unwrap();
            journal.wait_epoch(open).unwrap();
        }
        waiting.retain(|&(number, position)| {
            let durable = journal.is_durable(position).unwrap();
            if durable {
                say(writer, number);
            }
            !durable
        });
        if writer != 0 && round % 8 == 0 {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_there() {
    let kills = std::env::var("ARCHIPELAGO_KILLS").map_or(20, |text| text.parse().expect("a number of kills"));
    let base = std::env::temp_dir().join(format!("archipelago-journal-{}", std::process::id()));
    std::fs::create_dir(&base).unwrap();
    let mut acknowledged = 0;
    let mut known = [[0; WRITERS as usize]; KINDS];
    for kill in 0..kills {
        let (kind, directory) = (kill % KINDS, base.join(format!("{}", kill % KINDS)));
        let told = run_and_kill(kind, &directory, 5 + 13 * (kill as u64 * 7 % 11));
        acknowledged += told.len();
        check(kind, &directory, &told, &mut known[kind]);
    }
    assert!(acknowledged > 5 * kills, "{acknowledged} acknowledgements");
    println!("{kills} kills, {acknowledged} acknowledgements");
    std::fs::remove_dir_all(&base).unwrap();
}

/// Kills a child after some acknowledgements. Returns everything that the child has reported.
fn run_and_kill(kind: usize, directory: &Path, after: u64) -> Vec<(u64, u64)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{kind} {}", directory.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut told = Vec::new();
    let hear = |line: &str| {
        let mut words = line.strip_prefix("ack ")?.strip_suffix('\n')?.split(' ').map(|word| word.parse().unwrap());
        Some((words.next()?, words.next()?))
    };
    let mut line = String::new();
    while (told.len() as u64) < after {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child ended by itself");
        told.extend(hear(&line));
    }
    child.kill().unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    told.extend(rest.split_inclusive('\n').filter_map(hear));
    child.wait().unwrap();
    told
}

/// Recovers as the child's successor would, compares the records with the reported ones, and retires the known records.
fn check(kind: usize, directory: &Path, told: &[(u64, u64)], known: &mut [u64; WRITERS as usize]) {
    let delivered = Mutex::new(vec![BTreeMap::new(); WRITERS as usize]);
    let (journal, recovery) = Journal::open(Arc::new(Real), directory, options(kind), |record| {
        let (writer, number) = read(record.bytes);
        let earlier = delivered.lock().unwrap()[writer as usize].insert(number, record.position);
        assert!(earlier.is_none(), "record {number} of writer {writer} is there twice");
    })
    .unwrap_or_else(|error| panic!("{error}"));
    for (writer, delivered) in delivered.into_inner().unwrap().iter().enumerate() {
        let (next, first) = (&mut known[writer], delivered.keys().next().copied());
        if let (Some(first), Some(last)) = (first, delivered.keys().last()) {
            assert!(first <= *next, "records of writer {writer} from {next} to {first} are missing");
            assert_eq!(delivered.len() as u64, last - first + 1, "records of writer {writer} are missing");
            *next = last + 1;
        }
        let acknowledged = told.iter().filter(|told| told.0 == writer as u64).map(|told| told.1 + 1).max();
        assert!(
            acknowledged <= Some(*next),
            "writer {writer}: {acknowledged:?} acknowledged, {next} there: {recovery:?}"
        );
    }
    let lines: Vec<String> = known.iter().map(u64::to_string).collect();
    std::fs::write(directory.with_extension("seen"), lines.join("\n")).unwrap();
    for lane in 0..options(kind).lanes as u32 {
        journal.retire_before(journal.end(lane)).unwrap();
    }
}

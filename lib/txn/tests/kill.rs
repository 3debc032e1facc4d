//! Kills a real process that writes real files (`kill -9`): no acknowledged transaction is lost, and no transaction is
//! recovered in part.
//!
//! `ARCHIPELAGO_KILLS=N` kills N processes (9 by default).
#![cfg(all(unix, feature = "durable", not(archipelago_sim)))]

#[path = "common/bank.rs"]
mod bank;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use archipelago_txn::{Acknowledge, Database, Silo};
use bank::Bank;

const CHILD: &str = "ARCHIPELAGO_TXN_CHILD";
const TELLERS: u64 = 3;

fn open(kind: usize, directory: &Path) -> (Database<Silo>, Bank<Silo>) {
    let later = Acknowledge::Committed { every: Duration::from_millis(1) };
    let acknowledge = [Acknowledge::Durable, Acknowledge::Durable, later][kind];
    let mut opening = Database::open(directory).lanes([1, 3, 2][kind]).segment(30_000).acknowledge(acknowledge);
    let bank = Bank::declare(&mut opening);
    (opening.start().unwrap_or_else(|failure| panic!("{failure}")), bank)
}

/// The process that is killed: transfers money, and prints the acknowledged transfers. Not a test by itself.
#[test]
fn child() {
    let Some(text) = std::env::var_os(CHILD) else { return };
    let text = text.into_string().unwrap();
    let (kind, directory) = text.split_once(' ').unwrap();
    let kind = kind.parse().unwrap();
    let (db, bank) = open(kind, &PathBuf::from(directory));
    let there = bank.audit(&db);
    thread::scope(|scope| {
        for teller in 0..TELLERS {
            let (db, bank, first) = (&db, &bank, there.get(&teller).map_or(0, |moves| moves.len() as u64));
            scope.spawn(move || {
                for number in first.. {
                    db.transact(|tx| bank.transfer(tx, teller, number, false)).unwrap();
                    if kind < 2 || number % 20 == 0 {
                        db.flush().unwrap();
                        // A line is written by one call, so it is printed as a whole or not at all.
                        let _ = std::io::stdout().write_all(format!("\nack {teller} {number}\n").as_bytes());
                    }
                }
            });
        }
        scope.spawn(|| {
            loop {
                db.checkpoint().unwrap();
                bank.audit(&db);
            }
        });
    });
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_there() {
    let kills = std::env::var("ARCHIPELAGO_KILLS").map_or(9, |text| text.parse().expect("a number of kills"));
    let base = std::env::temp_dir().join(format!("archipelago-txn-{}", std::process::id()));
    std::fs::create_dir(&base).unwrap();
    let mut acknowledged = 0;
    for kill in 0..kills {
        let (kind, directory) = (kill % 3, base.join(format!("{}", kill % 3)));
        let told = run_and_kill(kind, &directory, 5 + 7 * (kill * 7 % 11));
        acknowledged += told.len();
        let (db, bank) = open(kind, &directory);
        let there = bank.audit(&db);
        for (teller, number) in told {
            let moves = there.get(&teller).map_or(0, Vec::len) as u64;
            assert!(number < moves, "teller {teller}: move {number} was acknowledged, {moves} are there");
            assert_eq!(there[&teller], (0..moves).collect::<Vec<_>>());
        }
    }
    assert!(acknowledged > 5 * kills, "{acknowledged} acknowledgements");
    println!("{kills} kills, {acknowledged} acknowledgements");
    std::fs::remove_dir_all(&base).unwrap();
}

/// Kills a child after some acknowledgements. Returns all acknowledgements that it printed.
fn run_and_kill(kind: usize, directory: &Path, after: usize) -> Vec<(u64, u64)> {
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
    while told.len() < after {
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

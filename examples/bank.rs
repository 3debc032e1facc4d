//! A bank that survives `kill -9`: the program starts itself again as a bank, which moves money and says which moves are durable, and kills
//! it; then it opens the bank's directory as an auditor. No acknowledged move is missing, none is half there, and no cent is lost.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use archipelago::txn::{Database, Error, Index, Row, Silo, Table, on};
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Account {
    number: u64,
    owner: String,
    cents: i64,
}

impl Row for Account {
    type Key = u64;
    type Map = on::HydraList;
    type Indexes = (ByOwner,);
    fn key(&self) -> u64 {
        self.number
    }
}

struct ByOwner;

impl Index for ByOwner {
    type Row = Account;
    type Key = String;
    type Map = on::BLinkTree;
    const UNIQUE: bool = true;
    fn key(row: &Account) -> String {
        row.owner.clone()
    }
}

/// A move of money: the books.
#[derive(Clone, Serialize, Deserialize)]
struct Move {
    teller: u64,
    number: u64,
    from: u64,
    to: u64,
    cents: i64,
}

impl Row for Move {
    type Key = (u64, u64);
    type Map = on::HydraList;
    type Indexes = ();
    fn key(&self) -> (u64, u64) {
        (self.teller, self.number)
    }
}

const ACCOUNTS: u64 = 100;
const EACH: i64 = 1_000;
const TELLERS: u64 = 3;

type Bank = (Database<Silo>, Table<Account>, Table<Move>);

fn open(directory: &Path) -> Bank {
    let mut opening = Database::<Silo>::open(directory).lanes(2);
    let (accounts, moves) = (opening.table::<Account>("accounts"), opening.table::<Move>("moves"));
    let db = opening.start().unwrap_or_else(|failure| panic!("{failure}"));
    db.transact(|tx| {
        if tx.get(&accounts, &0)?.is_none() {
            for number in 0..ACCOUNTS {
                tx.insert(&accounts, Account { number, owner: format!("owner {number}"), cents: EACH })?;
            }
        }
        Ok::<_, Error>(())
    })
    .expect("the disk works");
    (db, accounts, moves)
}

/// Moves money until it is killed.
fn trade(directory: &Path) {
    let (db, accounts, moves) = open(directory);
    thread::scope(|scope| {
        for teller in 0..TELLERS {
            let (db, accounts, moves) = (&db, &accounts, &moves);
            let first = db.snapshot().range(moves, (teller, 0)..=(teller, u64::MAX)).count() as u64;
            scope.spawn(move || {
                for number in first.. {
                    let (from, to) = (number * 7 % ACCOUNTS, (number * 13 + teller + 1) % ACCOUNTS);
                    let paid = db.transact(|tx| {
                        let cents = tx.get(accounts, &from)?.map_or(0, |account| account.cents / 10);
                        tx.update(accounts, &from, |account| account.cents -= cents)?;
                        tx.update(accounts, &to, |account| account.cents += cents)?;
                        tx.insert(moves, Move { teller, number, from, to, cents })
                    });
                    paid.expect("the disk works");
                    // It is durable; one write of a line.
                    let _ = std::io::stdout().write_all(format!("{teller} {number}\n").as_bytes());
                }
            });
        }
        // The log stays short.
        scope.spawn(|| {
            loop {
                db.checkpoint().expect("the disk works");
                thread::sleep(std::time::Duration::from_millis(20));
            }
        });
    });
}

/// Looks at all that is there; how many moves each teller has made.
fn audit(directory: &Path) -> Vec<u64> {
    let (db, accounts, moves) = open(directory);
    let view = db.snapshot();
    let mut cents = vec![EACH; ACCOUNTS as usize];
    let mut made = vec![0; TELLERS as usize];
    for entry in view.range(&moves, ..) {
        assert_eq!(made[entry.teller as usize], entry.number, "a move is missing");
        made[entry.teller as usize] += 1;
        cents[entry.from as usize] -= entry.cents;
        cents[entry.to as usize] += entry.cents;
    }
    for account in view.range(&accounts, ..) {
        assert_eq!(account.cents, cents[account.number as usize], "{} is not what the books say", account.owner);
        assert_eq!(view.get_by::<ByOwner>(&accounts, &account.owner).map(|row| row.number), Some(account.number));
    }
    assert_eq!(cents.iter().sum::<i64>(), ACCOUNTS as i64 * EACH);
    made
}

fn main() {
    if let Some(directory) = std::env::var_os("ARCHIPELAGO_BANK") {
        return trade(Path::new(&directory));
    }
    let directory = std::env::temp_dir().join(format!("archipelago-bank-{}", std::process::id()));
    for life in 1..=4 {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        // As a test it is one of the program's tests.
        if cfg!(test) {
            command.args(["--exact", "survives_kills", "--nocapture"]);
        }
        let mut bank =
            command.env("ARCHIPELAGO_BANK", &directory).stdout(Stdio::piped()).spawn().expect("it starts again");
        let said = BufReader::new(bank.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut acknowledged = [0; TELLERS as usize];
        let moves = said.filter_map(|line| {
            let (teller, number) = line.split_once(' ')?;
            Some((teller.parse::<usize>().ok()?, number.parse::<u64>().ok()?))
        });
        for (teller, number) in moves.take(300) {
            acknowledged[teller] = number + 1;
        }
        bank.kill().expect("it runs");
        bank.wait().expect("it has ended");
        let made = audit(&directory);
        assert!(made.iter().zip(acknowledged).all(|(made, acknowledged)| *made >= acknowledged));
        println!("life {life}: {acknowledged:?} moves were acknowledged, {made:?} are there, and the books are right");
    }
    std::fs::remove_dir_all(&directory).expect("it is ours");
}

#[cfg(test)]
#[test]
fn survives_kills() {
    main();
}

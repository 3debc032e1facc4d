//! A change of a part of a value copies no value, and a command that joins sorted sets copies none of them. The tests
//! have a program of their own, since they count the allocated memory.

use archipelago_check::hostile::Counting;
use archipelago_server::args::Args;
use archipelago_server::command;
use archipelago_server::db::Db;
use archipelago_server::operation::{Call, Write};
use archipelago_server::reply::Reply;
use std::sync::Mutex;

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Memory is counted for one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn call(line: &str) -> Write {
    let args: Args = line.split(' ').collect();
    let command = command::find(&args[0]).unwrap();
    Write::Call(Call { command, args, db: 0, now: 1, seed: 1, wishes: 0, rights: None, deadline: None })
}

#[test]
fn changes_of_a_part_copy_no_value() {
    let _alone = ALONE.lock();
    let mut db = Db::default();
    db.write(&call("SETBIT s 8388607 1"));
    // The first one makes room for the second.
    db.write(&call("APPEND s x"));
    for line in ["APPEND s x", "SETRANGE s 5 x", "SETBIT s 7 1", "BITFIELD s SET u8 0 5", "BITFIELD s GET u8 0"] {
        let write = call(line);
        let (bytes, outcome) = HEAP.most(|| db.write(&write));
        assert!(matches!(outcome.reply, Reply::Int(_) | Reply::Array(_)), "{line}: {:?}", outcome.reply);
        assert!(bytes < 100_000, "{line} allocates {bytes} bytes for a string of 1 MiB");
    }
}

#[test]
fn joins_of_sorted_sets_copy_none() {
    let _alone = ALONE.lock();
    let mut db = Db::default();
    for block in 0..20 {
        let pairs: String = (0..500).map(|number| format!(" {number} member:{}", block * 500 + number)).collect();
        db.write(&call(&format!("ZADD z{pairs}")));
        db.write(&call(&format!("SADD s{pairs}")));
    }
    db.write(&call("ZADD one 1 member:77"));
    for (line, most) in [
        (format!("ZINTERCARD 500{} LIMIT 1", " z".repeat(500)), 200_000),
        (format!("ZINTERCARD 21{} s", " z".repeat(20)), 200_000),
        (format!("ZINTERSTORE to 41{} one", " z".repeat(40)), 100_000),
        (format!("ZDIFFSTORE to 40{}", " z".repeat(40)), 100_000),
        (format!("ZDIFFSTORE to 41 one{}", " z".repeat(40)), 100_000),
        // The result has all members.
        (format!("ZUNIONSTORE to 40{}", " z".repeat(40)), 3_000_000),
    ] {
        let call = call(&line);
        let (bytes, outcome) = HEAP.most(|| db.write(&call));
        assert!(matches!(outcome.reply, Reply::Int(_)), "{line}: {:?}", outcome.reply);
        assert!(bytes < most, "{line} allocates {bytes} bytes for a sorted set of 10,000 members");
    }
}

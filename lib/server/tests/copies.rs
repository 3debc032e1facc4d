//! A change of a part of a value copies no value. The test has a program of its own, since it counts the allocated memory.

use archipelago_check::hostile::Counting;
use archipelago_server::args::Args;
use archipelago_server::command;
use archipelago_server::db::Db;
use archipelago_server::operation::{Call, Write};
use archipelago_server::reply::Reply;

#[global_allocator]
static HEAP: Counting = Counting::new();

fn call(line: &str) -> Write {
    let args: Args = line.split(' ').collect();
    let command = command::find(&args[0]).unwrap();
    Write::Call(Call { command, args, db: 0, now: 1, seed: 1, wishes: 0, rights: None, deadline: None })
}

#[test]
fn changes_of_a_part_copy_no_value() {
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

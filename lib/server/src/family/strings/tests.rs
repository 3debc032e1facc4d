use crate::args::Args;
use crate::command;
use crate::db::Db;
use crate::operation::{Call, Write};
use crate::reply::Reply;
use std::time::{Duration, Instant};

fn call(line: &str) -> Write {
    let args: Args = line.split(' ').collect();
    let command = command::find(&args[0]).unwrap();
    Write::Call(Call { command, args, db: 0, now: 1, seed: 1, wishes: 0, rights: None, deadline: None })
}

/// The fastest of several calls counts, so a busy machine does not matter. A copy of the value takes milliseconds.
#[test]
fn changes_of_a_part_copy_no_value() {
    let mut db = Db::default();
    db.write(&call("SETBIT s 536870911 1"));
    for line in ["APPEND s x", "SETRANGE s 5 x", "SETBIT s 7 1", "BITFIELD s SET u8 0 5", "BITFIELD s GET u8 0"] {
        let write = call(line);
        let mut took = |_| {
            let began = Instant::now();
            let outcome = db.write(&write);
            assert!(matches!(outcome.reply, Reply::Int(_) | Reply::Array(_)), "{line}: {:?}", outcome.reply);
            began.elapsed()
        };
        let fastest = (0..20).map(&mut took).min().unwrap();
        assert!(fastest < Duration::from_millis(1), "{line} takes {fastest:?} for a string of 64 MiB");
    }
}

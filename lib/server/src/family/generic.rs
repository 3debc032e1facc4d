//! Keys of any type.

use crate::args::Args;
use crate::command::{ALL_KEYS, Command, Keys, category, flag};
use crate::db::table::Keyed;
use crate::db::{Change, View};
use crate::reply::{Answer, Reply};
use category::{DANGEROUS, KEYSPACE};
use flag::FAST;

/// The family's commands.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("del", -2, 0, ALL_KEYS, KEYSPACE, del),
    Command::write("unlink", -2, FAST, ALL_KEYS, KEYSPACE, del),
    Command::read("exists", -2, FAST, ALL_KEYS, KEYSPACE, exists),
    Command::read("dbsize", 1, FAST, Keys::None, KEYSPACE, dbsize),
    Command::write("flushall", -1, 0, Keys::None, KEYSPACE | DANGEROUS, flushall),
];

fn del(change: &mut Change<'_>, args: &Args) -> Answer {
    let mut removed = 0;
    for key in args.from(1) {
        change.bury(key);
        if change.remove(key).is_some() {
            change.changed(key, b'g', "del");
            removed += 1;
        }
    }
    Ok(Reply::Int(removed))
}

fn exists(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::count(args.from(1).filter(|key| view.find(key).is_some()).count()))
}

fn dbsize(view: &View<'_>, _: &Args) -> Answer {
    Ok(Reply::count(view.space().keys.len()))
}

fn flushall(change: &mut Change<'_>, _: &Args) -> Answer {
    for index in 0..change.db.spaces.len() {
        change.index = index as u32;
        let keys: Vec<Vec<u8>> = change.db.watched_in(change.index);
        for key in keys {
            if change.view().space().keys.contains(&key) {
                change.db.touch(index as u32, &key);
            }
        }
        change.db.spaces[index] = Default::default();
    }
    Ok(Reply::OK)
}

/// All keys that are there.
pub fn live<'d>(view: &View<'d>) -> impl Iterator<Item = &'d [u8]> {
    let now = view.now;
    view.space().keys.iter().filter(move |entry| !entry.is_dead(now)).map(Keyed::key)
}

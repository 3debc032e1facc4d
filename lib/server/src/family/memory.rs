//! `MEMORY`: reports how much memory keys take.
//!
//! The reported sizes are those that [`meter`](crate::db::meter) counts for `maxmemory`. They follow from the entries
//! alone. All replicas therefore report the same sizes, and no value has to be sampled.

use crate::args::Args;
use crate::command::{Command, Keys, category, help};
use crate::db::View;
use crate::family::generic::{arity, unknown_subcommand};
use crate::family::parse;
use crate::reply::{Answer, Fault, Reply, fault};

/// The commands of this family.
pub const COMMANDS: &[Command] =
    &[Command { categories: category::SLOW, flags: 0, ..Command::read("memory", -2, 0, Keys::None, 0, memory) }];

/// The subcommands, with the least and the most words of each.
const PARTS: [(&str, usize, usize); 6] = [
    ("doctor", 2, 2),
    ("help", 2, 2),
    ("malloc-stats", 2, 2),
    ("purge", 2, 2),
    ("stats", 2, 2),
    ("usage", 3, usize::MAX),
];

/// Checks a subcommand of `MEMORY`. This check takes place before a transaction queues the command, like the check of a
/// command's number of arguments.
///
/// # Errors
/// Returns an error if the subcommand is unknown or its number of arguments is wrong.
pub fn part(args: &Args) -> Result<&'static str, Fault> {
    let part = PARTS.into_iter().find(|(name, ..)| args.is(1, name));
    let (name, least, most) = part.ok_or_else(|| unknown_subcommand(args))?;
    arity(args, &format!("memory|{name}"), least, most)?;
    Ok(name)
}

fn memory(view: &View<'_>, args: &Args) -> Answer {
    match part(args)? {
        "usage" => usage(view, args),
        "stats" => Ok(stats(view)),
        // Freed memory goes back to the allocator, which has no function to purge memory or to report statistics.
        "purge" => Ok(Reply::OK),
        "malloc-stats" => Ok(Reply::bulk("Stats not supported for the current allocator")),
        "doctor" => Ok(Reply::bulk("Keys take what MEMORY STATS tells, on each replica; INFO memory has the process.")),
        _ => Ok(help::of("memory")),
    }
}

fn usage(view: &View<'_>, args: &Args) -> Answer {
    for at in (3..args.len()).step_by(2) {
        let count = args.get(at + 1).filter(|_| args.is(at, "SAMPLES")).ok_or(fault::SYNTAX)?;
        if parse::integer(count)? < 0 {
            return Err(fault::SYNTAX);
        }
    }
    Ok(view.find(&args[2]).map_or(Reply::Null, |entry| Reply::count(entry.weight())))
}

/// Carries out `MEMORY STATS`. O(keys).
fn stats(view: &View<'_>) -> Reply {
    let spaces: Vec<(usize, usize, usize)> = (view.db.spaces.iter().enumerate())
        .filter(|(_, space)| !space.keys.is_empty())
        .map(|(index, space)| (index, space.keys.len(), space.weight()))
        .collect();
    let keys = spaces.iter().map(|(_, keys, _)| keys).sum();
    let bytes = spaces.iter().map(|(.., bytes)| bytes).sum();
    let mut told =
        vec![Reply::bulk("keys.count"), Reply::count(keys), Reply::bulk("dataset.bytes"), Reply::count(bytes)];
    for (index, keys, bytes) in spaces {
        told.push(Reply::bulk(format!("db.{index}")));
        let counts = [("keys.count", keys), ("dataset.bytes", bytes)];
        told.push(Reply::Map(
            counts.into_iter().flat_map(|(name, count)| [Reply::bulk(name), Reply::count(count)]).collect(),
        ));
    }
    Reply::Map(told)
}

//! Scripts in Lua 5.1.
//!
//! A script that may write is one operation of the log, and each replica runs the script. A script therefore must not
//! see anything that differs between replicas:
//! - The log gets the script's text. A session replaces `EVALSHA` by `EVAL` first ([`table`]), so replicas need no
//!   table of scripts.
//! - Time and random numbers are those of the operation.
//! - Lua 5.1 hashes strings without a seed, so that tables with strings as keys have the same order everywhere. Tables
//!   and functions as keys are hashed by their addresses. A script cannot iterate over a table with tables or functions
//!   as keys, and cannot convert an address to a string.
//! - Several scripts use the same Lua state, one after the other. No script sees what another script has left in the
//!   state ([`stage`]).
//! - A limit on the number of instructions stops a script at the same instruction on each replica.
//! - A time limit stops a script that runs too long, at one point on which all replicas agree
//!   ([`Deadline`](crate::deadline::Deadline)). A recovery from the log knows this point.
//!
//! What a script wrote before an error stays written.
//!
//! Functions of libraries ([`functions`]) are scripts in the same way. The database stores the texts of the libraries,
//! and each call of a function first runs the text of its library. The log and the snapshots have these texts, but no
//! state of Lua.

mod bits;
mod budget;
mod convert;
pub mod functions;
mod given;
mod json;
mod library;
mod packs;
mod pattern;
mod stage;
mod state;
mod strings;
mod structs;
pub mod table;

use crate::args::Args;
use crate::command::{Command, Keys, category, flag};
use crate::db::{Change, View};
use crate::family::parse;
use crate::reply::{Answer, Fault};
use category::SCRIPTING;
use flag::{DENYOOM, INTERNAL, NOSCRIPT};
use state::Target;

/// The error for the digest of an unknown script.
const NO_SCRIPT: Fault = Fault::new("NOSCRIPT No matching script. Please use EVAL.");

/// The number of digits of a script's digest.
const DIGITS: usize = 40;

const KEYS: Keys = Keys::Counted { first: 0, count: 2 };

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command { categories: SCRIPTING | category::SLOW, flags: NOSCRIPT, ..Command::write("eval", -3, 0, KEYS, 0, eval) },
    Command { categories: SCRIPTING | category::SLOW, flags: NOSCRIPT, ..Command::write("evalsha", -3, 0, KEYS, 0, |_, args| unknown(args)) },
    Command { categories: SCRIPTING | category::SLOW, ..Command::read("eval_ro", -3, NOSCRIPT, KEYS, 0, eval_ro) },
    Command { categories: SCRIPTING | category::SLOW, ..Command::read("evalsha_ro", -3, NOSCRIPT, KEYS, 0, |_, args| unknown(args)) },
    Command::session("script", -2, NOSCRIPT, SCRIPTING),
    Command { categories: SCRIPTING | category::SLOW, flags: NOSCRIPT, ..Command::write("fcall", -3, 0, KEYS, 0, functions::call) },
    Command { categories: SCRIPTING | category::SLOW, ..Command::read("fcall_ro", -3, NOSCRIPT, KEYS, 0, functions::call_ro) },
    Command { categories: category::SLOW, flags: NOSCRIPT, ..Command::read("function", -2, 0, Keys::None, 0, functions::look) },
    // Internal commands for the subcommands of `FUNCTION` that change something. The name in the request stays
    // FUNCTION, because the user's rights are checked for that name.
    Command::write("function|load", -3, DENYOOM | NOSCRIPT | INTERNAL, Keys::None, SCRIPTING, functions::load),
    Command::write("function|delete", 3, NOSCRIPT | INTERNAL, Keys::None, SCRIPTING, functions::delete),
    Command::write("function|flush", -2, NOSCRIPT | INTERNAL, Keys::None, SCRIPTING, functions::flush),
    Command::write("function|restore", -3, DENYOOM | NOSCRIPT | INTERNAL, Keys::None, SCRIPTING, functions::restore),
];

/// Parses the number of keys, which is the second argument.
fn keys(args: &Args) -> Result<usize, Fault> {
    counted(parse::integer(&args[2])?, args)
}

/// Converts a number of keys. Returns an error if the number is negative or larger than the number of arguments that
/// follow.
fn counted(count: i64, args: &Args) -> Result<usize, Fault> {
    if count > args.len() as i64 - 3 {
        return Err(Fault::new("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| Fault::new("ERR Number of keys can't be negative"))
}

/// Returns the error of an `EVALSHA` whose script is unknown.
fn unknown(args: &Args) -> Answer {
    // As in Redis, the number of keys is parsed before the script is looked up, and an argument that is not as long as
    // a digest is not looked up.
    if args[1].len() == DIGITS {
        keys(args)?;
    }
    Err(NO_SCRIPT)
}

fn eval(change: &mut Change<'_>, args: &Args) -> Answer {
    let keys = keys(args)?;
    state::run(Target::Change(change), args, keys)
}

fn eval_ro(view: &View<'_>, args: &Args) -> Answer {
    let keys = keys(args)?;
    state::run(Target::View(*view), args, keys)
}

#[cfg(test)]
mod tests;

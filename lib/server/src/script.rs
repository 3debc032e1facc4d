//! Scripts in Lua 5.1.
//!
//! A script that may write is one operation of the log: each replica runs it. So it sees nothing that differs between
//! replicas:
//! - The log gets the script's text: a session makes `EVAL` of `EVALSHA` before ([`table`]), and a replica needs no table.
//! - Time and randomness are the operation's.
//! - Lua 5.1 hashes strings without a seed, so tables have the same order everywhere; keys that are tables or functions are
//!   hashed by their addresses, and such tables cannot be walked. No address becomes a string.
//! - A Lua state is used for one script after the other, and none sees what another has left there ([`stage`]). The limit of
//!   instructions stops a script at the same place on each replica.
//! - Time ends a script that runs too long, at one point that the replicas agree on ([`Deadline`](crate::deadline::Deadline)). It is known to
//!   a recovery.
//!
//! What a script wrote before an error stays written.
//!
//! Functions of libraries ([`functions`]) are scripts in the same way: the database has the libraries' texts, and each call
//! runs its library's text first. The log and a snapshot have texts, and no state of Lua.

mod bits;
mod budget;
mod convert;
pub mod functions;
mod given;
mod json;
mod library;
mod packs;
mod pattern;
mod reach;
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

/// The error for a digest of which the script is not known.
const NO_SCRIPT: Fault = Fault::new("NOSCRIPT No matching script. Please use EVAL.");

const KEYS: Keys = Keys::Counted { first: 0, count: 2 };

/// The family's commands.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command { categories: SCRIPTING | category::SLOW, flags: NOSCRIPT, ..Command::write("eval", -3, 0, KEYS, 0, eval) },
    Command { categories: SCRIPTING | category::SLOW, flags: NOSCRIPT, ..Command::write("evalsha", -3, 0, KEYS, 0, |_, _| Err(NO_SCRIPT)) },
    Command { categories: SCRIPTING | category::SLOW, ..Command::read("eval_ro", -3, NOSCRIPT, KEYS, 0, eval_ro) },
    Command { categories: SCRIPTING | category::SLOW, ..Command::read("evalsha_ro", -3, NOSCRIPT, KEYS, 0, |_, _| Err(NO_SCRIPT)) },
    Command::session("script", -2, NOSCRIPT, SCRIPTING),
    Command { categories: SCRIPTING | category::SLOW, flags: NOSCRIPT, ..Command::write("fcall", -3, 0, KEYS, 0, functions::call) },
    Command { categories: SCRIPTING | category::SLOW, ..Command::read("fcall_ro", -3, NOSCRIPT, KEYS, 0, functions::call_ro) },
    Command { categories: category::SLOW, flags: NOSCRIPT, ..Command::read("function", -2, 0, Keys::None, 0, functions::look) },
    // Parts of `FUNCTION` that change something. A request's name stays FUNCTION: what its user may do is asked of that.
    Command::write("function|load", -3, DENYOOM | NOSCRIPT | INTERNAL, Keys::None, SCRIPTING, functions::load),
    Command::write("function|delete", 3, NOSCRIPT | INTERNAL, Keys::None, SCRIPTING, functions::delete),
    Command::write("function|flush", -2, NOSCRIPT | INTERNAL, Keys::None, SCRIPTING, functions::flush),
    Command::write("function|restore", -3, DENYOOM | NOSCRIPT | INTERNAL, Keys::None, SCRIPTING, functions::restore),
];

/// The number of keys.
fn keys(args: &Args) -> Result<usize, Fault> {
    counted(parse::integer(&args[2])?, args)
}

/// The number of keys that a request says, if it has as many.
fn counted(count: i64, args: &Args) -> Result<usize, Fault> {
    if count > args.len() as i64 - 3 {
        return Err(Fault::new("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| Fault::new("ERR Number of keys can't be negative"))
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

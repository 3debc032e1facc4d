//! Commands about the connection, transactions and the whole server.

use crate::args::Args;
use crate::command::{Command, Keys, category, flag};
use crate::db::View;
use crate::reply::{Answer, Reply};
use category::{CONNECTION, DANGEROUS, TRANSACTION};
use flag::{ADMIN, FAST, NO_AUTH, NO_MULTI, NOSCRIPT};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command { categories: CONNECTION | category::FAST, flags: FAST, ..Command::read("ping", -1, FAST, Keys::None, 0, ping) },
    Command { categories: CONNECTION | category::FAST, flags: FAST, ..Command::read("echo", 2, FAST, Keys::None, 0, echo) },
    Command { categories: category::FAST, flags: FAST, ..Command::read("time", 1, FAST, Keys::None, 0, time) },
    Command::session("select", 2, FAST, CONNECTION),
    Command::session("quit", -1, FAST | NOSCRIPT | NO_AUTH, CONNECTION),
    Command::session("hello", -1, FAST | NOSCRIPT | NO_AUTH, CONNECTION),
    Command::session("reset", 1, FAST | NOSCRIPT | NO_AUTH, CONNECTION),
    Command::session("multi", 1, FAST | NOSCRIPT, TRANSACTION),
    Command::session("exec", 1, NOSCRIPT, TRANSACTION),
    Command::session("discard", 1, FAST | NOSCRIPT, TRANSACTION),
    Command::session("watch", -2, FAST | NOSCRIPT, TRANSACTION),
    Command::session("unwatch", 1, FAST | NOSCRIPT, TRANSACTION),
    Command::session("client", -2, NOSCRIPT, CONNECTION),
    Command::session("command", -1, 0, CONNECTION),
    Command::session("config", -2, ADMIN | NOSCRIPT, 0),
    Command::session("info", -1, 0, DANGEROUS),
    Command::session("shutdown", -1, ADMIN | NOSCRIPT | NO_MULTI, 0),
];

fn ping(_: &View<'_>, args: &Args) -> Answer {
    match args.len() {
        1 => Ok(Reply::Status("PONG")),
        2 => Ok(Reply::bulk(&args[1])),
        _ => Err(crate::session::wrong_number("ping")),
    }
}

fn echo(_: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::bulk(&args[1]))
}

fn time(view: &View<'_>, _: &Args) -> Answer {
    Ok(Reply::bulks([(view.now / 1000).to_string(), (view.now % 1000 * 1000).to_string()]))
}

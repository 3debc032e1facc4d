//! Strings.

use crate::args::Args;
use crate::command::{Command, ONE_KEY, category, flag};
use crate::db::value::Value;
use crate::db::{Change, View};
use crate::reply::{Answer, Reply};
use category::STRING;
use flag::{DENYOOM, FAST};

/// The family's commands.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::read("get", 2, FAST, ONE_KEY, STRING, get),
    Command::write("set", -3, DENYOOM, ONE_KEY, STRING, set),
];

fn get(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::optional(view.string(&args[1])?))
}

fn set(change: &mut Change<'_>, args: &Args) -> Answer {
    change.set(&args[1], Value::string(&args[2]));
    change.changed(&args[1], b'$', "set");
    Ok(Reply::OK)
}

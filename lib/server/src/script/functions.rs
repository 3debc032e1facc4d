//! `FUNCTION` and `FCALL`.

use archipelago_platform::sync::Arc;

use super::budget::Budget;
use super::state::{self, Target};
use super::{counted, library};
use crate::args::Args;
use crate::command::{self, Command, help};
use crate::db::functions::{FLAGS, Function, Functions, Library, Policy};
use crate::db::{Change, View};
use crate::family::generic::{arity, unknown_subcommand};
use crate::family::{glob, parse};
use crate::rdb;
use crate::reply::{Answer, Fault, Reply};

/// The subcommands of `FUNCTION`: the name, the least and the most words, and the command that carries it out.
const PARTS: [(&str, usize, usize, &str); 9] = [
    ("delete", 3, 3, "function|delete"),
    ("dump", 2, 2, "function"),
    ("flush", 2, usize::MAX, "function|flush"),
    ("help", 2, 2, "function"),
    ("kill", 2, 2, "function"),
    ("list", 2, usize::MAX, "function"),
    ("load", 3, usize::MAX, "function|load"),
    ("restore", 3, usize::MAX, "function|restore"),
    ("stats", 2, 2, "function"),
];

/// Checks a subcommand of `FUNCTION`. This check takes place before a transaction queues the command, like the check of
/// a command's number of arguments. Returns the command that carries the subcommand out.
///
/// # Errors
/// Returns an error if the subcommand is unknown or its number of arguments is wrong.
pub fn part(args: &Args) -> Result<&'static Command, Fault> {
    let part = PARTS.into_iter().find(|(name, ..)| args.is(1, name));
    let (name, least, most, row) = part.ok_or_else(|| unknown_subcommand(args))?;
    arity(args, &format!("function|{name}"), least, most)?;
    Ok(command::find(row.as_bytes()).expect("it is in the registry"))
}

fn is_one_too_many(args: &Args, most: usize) -> Result<(), Fault> {
    let word = String::from_utf8_lossy(&args[1]);
    let wrong = || format!("ERR unknown subcommand or wrong number of arguments for '{word}'. Try FUNCTION HELP.");
    if args.len() > most { Err(Fault::made(wrong())) } else { Ok(()) }
}

/// Returns the error for an unknown word. As in C, the word ends at the first zero byte.
fn unknown(what: &str, word: &[u8]) -> Fault {
    let word = String::from_utf8_lossy(word.split(|byte| *byte == 0).next().unwrap_or_default());
    Fault::made(format!("ERR Unknown {what} {}", word.trim_end_matches(['\r', '\n'])))
}

fn missing() -> Fault {
    Fault::new("ERR Library not found")
}

/// Returns the library and the function that a call names, and the call's number of keys.
fn named<'f>(functions: &'f Functions, args: &Args) -> Result<(&'f Arc<Library>, &'f Function, usize), Fault> {
    let (library, function) = functions.find(&args[1]).ok_or(Fault::new("ERR Function not found"))?;
    let count = parse::integer(&args[2]).map_err(|_| Fault::new("ERR Bad number of keys provided"))?;
    Ok((library, function, counted(count, args)?))
}

/// Carries out `FCALL`.
pub fn call(change: &mut Change<'_>, args: &Args) -> Answer {
    let (library, function, keys) = named(&change.db.functions, args)?;
    let (library, function) = (library.clone(), function.clone());
    state::call(Target::Change(change), &library, &function, args, keys)
}

/// Carries out `FCALL_RO`.
pub fn call_ro(view: &View<'_>, args: &Args) -> Answer {
    let (library, function, keys) = named(&view.db.functions, args)?;
    state::call(Target::View(*view), library, function, args, keys)
}

/// Carries out `FUNCTION LOAD`.
pub fn load(change: &mut Change<'_>, args: &Args) -> Answer {
    let last = args.len() - 1;
    if let Some(word) = (2..last).find(|at| !args.is(*at, "REPLACE")) {
        return Err(unknown("option given:", &args[word]));
    }
    let (code, functions) = (&args[last], &mut change.db.functions);
    let name = library::named(code)?;
    if last == 2 && functions.library(&name).is_some() {
        return Err(Fault::made(format!("ERR Library '{name}' already exists")));
    }
    let budget = Budget::new(change.deadline);
    functions.insert(Arc::new(library::load(name.clone(), code, &budget)?))?;
    Ok(Reply::bulk(name))
}

/// Carries out `FUNCTION DELETE`.
pub fn delete(change: &mut Change<'_>, args: &Args) -> Answer {
    let name = core::str::from_utf8(&args[2]).map_err(|_| missing())?;
    if change.db.functions.remove(name) { Ok(Reply::OK) } else { Err(missing()) }
}

/// Carries out `FUNCTION FLUSH`.
pub fn flush(change: &mut Change<'_>, args: &Args) -> Answer {
    is_one_too_many(args, 3)?;
    if args.len() == 3 && !args.is(2, "SYNC") && !args.is(2, "ASYNC") {
        return Err(Fault::new("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    change.db.functions = Functions::default();
    Ok(Reply::OK)
}

/// Carries out `FUNCTION RESTORE`. All libraries of a payload together may use the instructions of one script.
pub fn restore(change: &mut Change<'_>, args: &Args) -> Answer {
    is_one_too_many(args, 4)?;
    let policy = match args.get(3) {
        None => Policy::Append,
        Some(_) if args.is(3, "APPEND") => Policy::Append,
        Some(_) if args.is(3, "REPLACE") => Policy::Replace,
        Some(_) if args.is(3, "FLUSH") => Policy::Flush,
        Some(_) => {
            return Err(Fault::new("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."));
        }
    };
    let wrong = Fault::new("ERR DUMP payload version or checksum are wrong");
    let (mut loaded, budget) = (Functions::default(), Budget::new(change.deadline));
    for code in rdb::restore_functions(&args[2]).ok_or(wrong)? {
        let code = code?;
        let name = library::named(&code)?;
        if loaded.library(&name).is_some() {
            return Err(Fault::made(format!("ERR Library '{name}' already exists")));
        }
        loaded.insert(Arc::new(library::load(name, &code, &budget)?))?;
    }
    change.db.functions.join(&loaded, policy)?;
    Ok(Reply::OK)
}

/// Carries out the subcommands of `FUNCTION` that change nothing.
pub fn look(view: &View<'_>, args: &Args) -> Answer {
    let functions = &view.db.functions;
    match args[1].to_ascii_uppercase().as_slice() {
        b"LIST" => list(functions, args),
        b"DUMP" => Ok(Reply::Bulk(rdb::dump_functions(functions))),
        b"STATS" => Ok(stats(functions)),
        // A running function is ended by its limits.
        b"KILL" => Err(Fault::new("NOTBUSY No scripts in execution right now.")),
        _ => Ok(help::of("function")),
    }
}

fn map<const N: usize>(pairs: [(&str, Reply); N]) -> Reply {
    Reply::Map(pairs.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect())
}

fn list(functions: &Functions, args: &Args) -> Answer {
    let (mut pattern, mut code, mut at) = (None, false, 2);
    while at < args.len() {
        if !code && args.is(at, "WITHCODE") {
            code = true;
        } else if pattern.is_none() && args.is(at, "LIBRARYNAME") {
            at += 1;
            pattern = Some(args.get(at).ok_or(Fault::new("ERR library name argument was not given"))?);
        } else {
            return Err(unknown("argument", &args[at]));
        }
        at += 1;
    }
    let pattern = pattern.map(<[u8]>::to_ascii_lowercase);
    let fits = |library: &&Library| {
        let name = library.name.to_ascii_lowercase();
        pattern.as_ref().is_none_or(|pattern| glob::fits(pattern, name.as_bytes()))
    };
    Ok(Reply::Array(functions.iter().filter(fits).map(|library| told(library, code)).collect()))
}

fn told(library: &Library, code: bool) -> Reply {
    let functions = library.functions.iter().map(|function| {
        let flags = FLAGS.iter().enumerate().filter(|(bit, _)| function.flags >> bit & 1 == 1);
        map([
            ("name", Reply::bulk(&*function.name)),
            ("description", Reply::optional(function.description.clone())),
            ("flags", Reply::Set(flags.map(|(_, flag)| Reply::Status(flag)).collect())),
        ])
    });
    let mut pairs = vec![
        Reply::bulk("library_name"),
        Reply::bulk(&*library.name),
        Reply::bulk("engine"),
        Reply::bulk("LUA"),
        Reply::bulk("functions"),
        Reply::Array(functions.collect()),
    ];
    if code {
        pairs.extend([Reply::bulk("library_code"), Reply::bulk(&*library.code)]);
    }
    Reply::Map(pairs)
}

fn stats(functions: &Functions) -> Reply {
    let (libraries, count) = functions.counts();
    let engine = map([("libraries_count", Reply::count(libraries)), ("functions_count", Reply::count(count))]);
    map([("running_script", Reply::Null), ("engines", map([("LUA", engine)]))])
}

#[cfg(test)]
mod tests;

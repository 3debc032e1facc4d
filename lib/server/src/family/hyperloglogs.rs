//! Commands for HyperLogLogs: strings that estimate the number of distinct elements.
//!
//! `PFCOUNT` of a single key stores the count in the string, and `GET` returns that string. `PFCOUNT` is therefore a
//! change: it goes through the log, so that all replicas store the count.

use crate::args::Args;
use crate::command::{ALL_KEYS, Command, Keys, ONE_KEY, category, flag};
use crate::db::hyperloglog::{self, Registers, Run};
use crate::db::value::Value;
use crate::db::{Change, View};
use crate::family::strings::raw;
use crate::reply::{Answer, Fault, Reply, fault};
use category::{HYPERLOGLOG, READ, SLOW};
use flag::{ADMIN, DENYOOM, FAST, READONLY};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("pfadd", -2, DENYOOM | FAST, ONE_KEY, HYPERLOGLOG, pfadd),
    Command { categories: HYPERLOGLOG | READ | SLOW, flags: READONLY, ..Command::write("pfcount", -2, 0, ALL_KEYS, 0, pfcount) },
    Command::write("pfmerge", -2, DENYOOM, ALL_KEYS, HYPERLOGLOG, pfmerge),
    Command::write("pfdebug", 3, DENYOOM | ADMIN, Keys::Range(2, 2, 1), HYPERLOGLOG, pfdebug),
];

const NONE: Fault = Fault::new("WRONGTYPE Key is not a valid HyperLogLog string value.");

fn check(value: &Value) -> Result<(), Fault> {
    let bytes = value.bytes().ok_or(fault::WRONG_TYPE)?;
    if hyperloglog::is_one(&bytes) { Ok(()) } else { Err(NONE) }
}

/// Returns the bytes of a key's HyperLogLog for a change. Records no effect.
fn get<'c>(change: &'c mut Change<'_>, key: &[u8]) -> Result<Option<&'c mut Vec<u8>>, Fault> {
    match change.value(key) {
        Some(value) => check(value)?,
        None => return Ok(None),
    }
    raw(change, key).map(Some)
}

/// Returns the bytes of a key's HyperLogLog for a change, and whether the key is new. Creates the key if it is missing.
fn make<'c>(change: &'c mut Change<'_>, key: &[u8]) -> Result<(&'c mut Vec<u8>, bool), Fault> {
    let is_new = get(change, key)?.is_none();
    if is_new {
        change.set(key, Value::Raw(Box::new(hyperloglog::new())));
    }
    Ok((raw(change, key)?, is_new))
}

fn pfadd(change: &mut Change<'_>, args: &Args) -> Answer {
    let most = change.db.sparse;
    let (bytes, mut updated) = make(change, &args[1])?;
    for element in args.from(2) {
        updated |= hyperloglog::add(bytes, element, most)?;
    }
    if updated {
        hyperloglog::spoil(bytes);
        change.changed(&args[1], b'$', "pfadd");
    }
    Ok(Reply::Int(updated.into()))
}

/// Returns, for each register, the maximum over all keys, and whether any of the HyperLogLogs is dense.
fn union<'a>(view: &View<'_>, keys: impl Iterator<Item = &'a [u8]>) -> Result<(Box<Registers>, bool), Fault> {
    let (mut all, mut dense) = (Box::new([0; hyperloglog::REGISTERS]), false);
    for value in keys.filter_map(|key| view.value(key)) {
        check(value)?;
        let bytes = value.bytes().ok_or(fault::WRONG_TYPE)?;
        dense |= !hyperloglog::is_sparse(&bytes);
        hyperloglog::merge(&bytes, &mut all)?;
    }
    Ok((all, dense))
}

fn pfcount(change: &mut Change<'_>, args: &Args) -> Answer {
    if args.len() > 2 {
        let (all, _) = union(&change.view(), args.from(1))?;
        return Ok(Reply::Int(hyperloglog::count_of(&all) as i64));
    }
    let Some(bytes) = get(change, &args[1])? else { return Ok(Reply::Int(0)) };
    if let Some(count) = hyperloglog::cached(bytes) {
        return Ok(Reply::Int(count as i64));
    }
    let count = hyperloglog::count(bytes)?;
    hyperloglog::cache(bytes, count);
    change.touched(&args[1]);
    Ok(Reply::Int(count as i64))
}

fn pfmerge(change: &mut Change<'_>, args: &Args) -> Answer {
    let (all, dense) = union(&change.view(), args.from(1))?;
    let most = change.db.sparse;
    let (bytes, _) = make(change, &args[1])?;
    if dense {
        hyperloglog::expand(bytes)?;
    }
    for (index, value) in all.iter().enumerate().filter(|(_, value)| **value > 0) {
        hyperloglog::raise(bytes, index, *value, most)?;
    }
    hyperloglog::spoil(bytes);
    change.changed(&args[1], b'$', "pfadd");
    Ok(Reply::OK)
}

/// Returns a run in the notation of `PFDEBUG DECODE`.
fn told(run: Run) -> String {
    match run {
        Run { value: 0, len, size: 1 } => format!("z:{len}"),
        Run { value: 0, len, .. } => format!("Z:{len}"),
        Run { value, len, .. } => format!("v:{value},{len}"),
    }
}

fn pfdebug(change: &mut Change<'_>, args: &Args) -> Answer {
    let bytes = get(change, &args[2])?.ok_or(Fault::new("ERR The specified key does not exist"))?;
    match args[1].to_ascii_lowercase().as_slice() {
        b"getreg" => {
            hyperloglog::expand(bytes)?;
            let mut all = [0; hyperloglog::REGISTERS];
            hyperloglog::merge(bytes, &mut all)?;
            Ok(Reply::Array(all.iter().map(|value| Reply::Int((*value).into())).collect()))
        }
        b"decode" if !hyperloglog::is_sparse(bytes) => Err(Fault::new("ERR HLL encoding is not sparse")),
        b"decode" => Ok(Reply::bulk(hyperloglog::runs(bytes).map(told).collect::<Vec<_>>().join(" "))),
        b"encoding" => Ok(Reply::Status(if hyperloglog::is_sparse(bytes) { "sparse" } else { "dense" })),
        b"todense" => Ok(Reply::Int(hyperloglog::expand(bytes)?.into())),
        _ => {
            let name = String::from_utf8_lossy(&args[1]);
            Err(Fault::made(format!("ERR Unknown PFDEBUG subcommand '{name}'")))
        }
    }
}

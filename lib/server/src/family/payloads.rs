//! `DUMP` and `RESTORE`: values as serialized payloads.

use crate::args::Args;
use crate::command::{Command, ONE_KEY, category, flag};
use crate::db::{Change, View};
use crate::family::parse;
use crate::rdb::{self, Refused};
use crate::reply::{Answer, Fault, Reply, fault};

/// The commands of this family.
pub const COMMANDS: &[Command] = &[
    Command::read("dump", 2, 0, ONE_KEY, category::KEYSPACE, dump),
    Command::write("restore", -4, flag::DENYOOM, ONE_KEY, category::KEYSPACE | category::DANGEROUS, restore),
];

fn dump(view: &View<'_>, args: &Args) -> Answer {
    Ok(Reply::optional(view.use_of(&args[1]).map(rdb::dump)))
}

/// The options of `RESTORE`.
#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    idle: Option<u32>,
}

impl Options {
    fn parse(args: &Args) -> Result<Self, Fault> {
        let (mut options, mut frequency, mut at) = (Self::default(), false, 4);
        while at < args.len() {
            let value = args.get(at + 1);
            match value {
                _ if args.is(at, "REPLACE") => options.replace = true,
                _ if args.is(at, "ABSTTL") => options.absolute = true,
                Some(value) if args.is(at, "IDLETIME") && !frequency => {
                    let idle = u64::try_from(parse::integer(value)?);
                    let idle = idle.map_err(|_| Fault::new("ERR Invalid IDLETIME value, must be >= 0"))?;
                    options.idle = Some(u32::try_from(idle).unwrap_or(u32::MAX));
                    at += 1;
                }
                Some(value) if args.is(at, "FREQ") && options.idle.is_none() => {
                    if !(0..=255).contains(&parse::integer(value)?) {
                        return Err(Fault::new("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                    }
                    frequency = true;
                    at += 1;
                }
                _ => return Err(fault::SYNTAX),
            }
            at += 1;
        }
        Ok(options)
    }
}

fn restore(change: &mut Change<'_>, args: &Args) -> Answer {
    let options = Options::parse(args)?;
    let (key, now) = (&args[1], change.now);
    if !options.replace && change.find(key).is_some() {
        return Err(Fault::new("BUSYKEY Target key name already exists."));
    }
    let bad = Fault::new("ERR Invalid TTL value, must be >= 0");
    let left = u64::try_from(parse::integer(&args[2])?).map_err(|_| bad)?;
    let value = rdb::restore(&args[3]).map_err(|refused| match refused {
        Refused::Checksum => Fault::new("ERR DUMP payload version or checksum are wrong"),
        Refused::Format => Fault::new("ERR Bad data format"),
    })?;
    let expires = (left > 0).then(|| if options.absolute { left } else { left.saturating_add(now) });
    if expires.is_some_and(|at| at <= now) {
        crate::family::generic::delete(change, key);
        return Ok(Reply::OK);
    }
    change.set(key, value);
    change.expire_at(key, expires);
    if let Some((entry, idle)) = change.find(key).zip(options.idle) {
        entry.set_access(entry.access().saturating_sub(idle));
    }
    change.changed(key, b'g', "restore");
    change.ready(key);
    Ok(Reply::OK)
}

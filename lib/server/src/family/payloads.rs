//! `DUMP` and `RESTORE`: values as serialized payloads.

use crate::args::Args;
use crate::command::{Command, ONE_KEY, category, flag};
use crate::db::{Change, View, evict};
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
    frequency: Option<u8>,
}

impl Options {
    fn parse(args: &Args) -> Result<Self, Fault> {
        let (mut options, mut at) = (Self::default(), 4);
        while at < args.len() {
            let value = args.get(at + 1);
            match value {
                _ if args.is(at, "REPLACE") => options.replace = true,
                _ if args.is(at, "ABSTTL") => options.absolute = true,
                Some(value) if args.is(at, "IDLETIME") && options.frequency.is_none() => {
                    let idle = u64::try_from(parse::integer(value)?);
                    let idle = idle.map_err(|_| Fault::new("ERR Invalid IDLETIME value, must be >= 0"))?;
                    options.idle = Some(u32::try_from(idle).unwrap_or(u32::MAX));
                    at += 1;
                }
                Some(value) if args.is(at, "FREQ") && options.idle.is_none() => {
                    let frequency = u8::try_from(parse::integer(value)?);
                    let bad = Fault::new("ERR Invalid FREQ value, must be >= 0 and <= 255");
                    options.frequency = Some(frequency.map_err(|_| bad)?);
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
    let value = rdb::restore(&args[3], change.db.hashing).map_err(|refused| match refused {
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
    // Each option has an effect only under the policies that record what it sets, as in Redis.
    let access = match (options.idle, options.frequency) {
        (Some(idle), _) if !change.db.lfu => Some(evict::used_at(now).saturating_sub(idle)),
        (_, Some(frequency)) if change.db.lfu => Some(evict::rated(now, frequency)),
        _ => None,
    };
    if let Some(access) = access
        && let Some(entry) = change.find(key)
    {
        entry.set_access(access);
    }
    change.changed(key, b'g', "restore");
    change.ready(key);
    Ok(Reply::OK)
}

//! `COMMAND`: describes the commands from their [`catalog`].

use crate::args::Args;
use crate::command::catalog::{self, Begin, Find, Row, Spec, of};
use crate::command::{self, Command, Keys, flag, help};
use crate::family::{glob, parse};
use crate::reply::{Answer, Fault, Reply, fault};

fn shown() -> impl Iterator<Item = &'static Command> {
    command::all().filter(|command| !command.has(flag::INTERNAL))
}

/// Carries out `COMMAND`.
pub fn commands(args: &Args) -> Answer {
    let every = || Ok(Reply::Array(shown().map(|command| told(of(command))).collect()));
    match (args.get(1).map(<[u8]>::to_ascii_uppercase).as_deref(), args.len()) {
        (None, _) | (Some(b"INFO"), 2) => every(),
        (Some(b"COUNT"), _) => Ok(Reply::count(shown().count())),
        (Some(b"LIST"), _) => list(args),
        (Some(b"INFO"), _) => {
            let one = |name| catalog::named(name).map_or(Reply::Null, |row| told(with_parts(row)));
            Ok(Reply::Array(args.from(2).map(one).collect()))
        }
        (Some(b"DOCS"), 2) => Ok(Reply::Map(shown().flat_map(|command| docs(of(command))).collect())),
        (Some(b"DOCS"), _) => {
            Ok(Reply::Map(args.from(2).filter_map(catalog::named).flat_map(|row| docs(with_parts(row))).collect()))
        }
        (Some(b"GETKEYS"), _) => {
            keys(args).map(|(_, call, places)| Reply::bulks(places.iter().map(|place| &call[*place])))
        }
        (Some(b"GETKEYSANDFLAGS"), _) => keys_and_uses(args),
        _ => Ok(help::of("command")),
    }
}

fn list(args: &Args) -> Answer {
    let all = shown().flat_map(of);
    let wanted = match args.len() {
        2 => return Ok(Reply::bulks(all.map(|row| row.name))),
        5 if args.is(2, "FILTERBY") => &args[4],
        _ => return Err(fault::SYNTAX),
    };
    let lower = wanted.to_ascii_lowercase();
    let fits = |row: &&Row| match () {
        () if args.is(3, "PATTERN") => glob::fits(&lower, row.name.as_bytes()),
        () if args.is(3, "ACLCAT") => row.categories.split(' ').any(|name| name.as_bytes() == lower),
        // The filter by module matches nothing, because there are no modules.
        () => false,
    };
    if !["PATTERN", "ACLCAT", "MODULE"].iter().any(|word| args.is(3, word)) {
        return Err(fault::SYNTAX);
    }
    Ok(Reply::bulks(all.filter(fits).map(|row| row.name)))
}

/// Reads a request from the arguments after the second. Returns its row of the catalog, the request, and the indices of its
/// keys.
fn keys(args: &Args) -> Result<(&'static Row, Args, Vec<usize>), Fault> {
    let call: Args = args.from(2).collect();
    let unknown = Fault::new("ERR Invalid command specified");
    let command = command::find(&call[0]).filter(|command| !command.has(flag::INTERNAL)).ok_or(unknown.clone())?;
    let row = match of(command) {
        [_, parts @ ..] if !parts.is_empty() && call.len() > 1 => {
            let name = [&call[0], b"|", &call[1]].concat();
            catalog::named(&name).ok_or(unknown)?
        }
        rows => &rows[0],
    };
    if row.specs().all(|spec| spec.flags().any(|flag| flag == "not_key")) {
        return Err(Fault::new("ERR The command has no key arguments"));
    }
    if !row.takes(call.len()) {
        return Err(Fault::new("ERR Invalid number of arguments specified for command"));
    }
    let places = match (command.keys, row.keys) {
        // The registry has no key positions for commands of the session, so those of the catalog are used.
        (Keys::None, [first, last, step]) => Keys::Range(first, last, step).places(&call),
        (Keys::Counted { count, .. }, _) if !counts(&call, count) => Vec::new(),
        (keys, _) => keys.places(&call),
    };
    match places {
        places if places.is_empty() && !words(row.flags).any(|flag| flag == "no_mandatory_keys") => {
            Err(Fault::new("ERR Invalid arguments specified for command"))
        }
        places => Ok((row, call, places)),
    }
}

/// Returns whether the argument at `place` is a positive number, and at least this number of arguments follow it.
fn counts(call: &Args, place: usize) -> bool {
    let count = parse::integer(&call[place]).ok().and_then(|count| usize::try_from(count).ok());
    count.is_some_and(|count| (1..call.len() - place).contains(&count))
}

/// Carries out `COMMAND GETKEYSANDFLAGS`.
fn keys_and_uses(args: &Args) -> Answer {
    let (row, call, places) = keys(args)?;
    let told = |place: &usize| {
        let unknown = |spec: &Spec| spec.begin == Begin::Unknown;
        let spec = row.specs().find(|spec| spec.has(&call, *place)).or_else(|| row.specs().filter(unknown).last());
        let mut uses: Vec<&'static str> = spec.iter().flat_map(Spec::flags).filter(|flag| *flag != VARIABLE).collect();
        match row.name {
            // `SET` reads the old value only with the option `GET`.
            "set" if !(3..call.len()).any(|at| call.is(at, "GET")) => uses = vec!["OW", "update"],
            // `BITFIELD` changes the value only with `SET` or `INCRBY`.
            "bitfield" if !(2..call.len()).any(|at| call.is(at, "SET") || call.is(at, "INCRBY")) => {
                uses = vec!["RO", "access"];
            }
            _ => {}
        }
        let uses = uses.into_iter().map(Reply::Status).collect();
        Reply::Array(vec![Reply::bulk(&call[*place]), Reply::Set(uses)])
    };
    Ok(Reply::Array(places.iter().map(told).collect()))
}

/// The flag of keys whose use depends on other arguments.
const VARIABLE: &str = "variable_flags";

/// Returns a row, followed by the rows of its subcommands if it is a command.
fn with_parts(row: &'static Row) -> &'static [Row] {
    match row.part() {
        None => of(command::find(row.name.as_bytes()).expect("commands of rows are there")),
        Some(_) => core::slice::from_ref(row),
    }
}

fn map<const COUNT: usize>(pairs: [(&'static str, Reply); COUNT]) -> Reply {
    Reply::Map(pairs.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect())
}

fn docs(rows: &'static [Row]) -> [Reply; 2] {
    let (row, parts) = (&rows[0], &rows[1..]);
    let mut pairs = vec![Reply::bulk("since"), Reply::bulk(row.since), Reply::bulk("group"), Reply::bulk(row.group)];
    if !parts.is_empty() {
        let parts = parts.iter().flat_map(|row| docs(core::slice::from_ref(row))).collect();
        pairs.extend([Reply::bulk("subcommands"), Reply::Map(parts)]);
    }
    [Reply::bulk(row.name), Reply::Map(pairs)]
}

fn words(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split(' ').filter(|word| !word.is_empty())
}

/// Returns a command in the format of `COMMAND`. The first row is the command's, the others are its subcommands'.
fn told(rows: &'static [Row]) -> Reply {
    let (row, parts) = (&rows[0], &rows[1..]);
    let categories = words(row.categories).map(|name| Reply::Line(format!("@{name}").into_bytes()));
    let mut fields = vec![
        Reply::bulk(row.name),
        Reply::Int(row.arity.into()),
        Reply::Set(words(row.flags).map(Reply::Status).collect()),
    ];
    fields.extend(row.keys.map(|number| Reply::Int(number.into())));
    fields.extend([
        Reply::Set(categories.collect()),
        Reply::Set(words(row.tips).map(Reply::bulk).collect()),
        Reply::Set(row.specs().map(told_spec).collect()),
        // As in Redis: an array of subcommands, or an empty set.
        match parts {
            [] => Reply::Set(Vec::new()),
            parts => Reply::Array(parts.iter().map(|row| told(core::slice::from_ref(row))).collect()),
        },
    ]);
    Reply::Array(fields)
}

/// Returns a specification of key positions in the format of `COMMAND`, without Redis's notes for people.
fn told_spec(spec: Spec) -> Reply {
    let typed = |name: &str, spec: Reply| map([("type", Reply::bulk(name)), ("spec", spec)]);
    let number = |number: usize| Reply::Int(number as i64);
    let begin = match spec.begin {
        Begin::At(place) => typed("index", map([("index", number(place))])),
        Begin::Behind(word, from) => {
            typed("keyword", map([("keyword", Reply::bulk(word)), ("startfrom", Reply::Int(from.into()))]))
        }
        Begin::Unknown => typed("unknown", map([])),
    };
    let find = match spec.find {
        Find::Range(last, step, limit) => typed(
            "range",
            map([("lastkey", Reply::Int(last.into())), ("keystep", number(step)), ("limit", Reply::Int(limit.into()))]),
        ),
        Find::Counted(count, first, step) => {
            typed("keynum", map([("keynumidx", number(count)), ("firstkey", number(first)), ("keystep", number(step))]))
        }
        Find::Unknown => typed("unknown", map([])),
    };
    map([
        ("flags", Reply::Set(spec.flags().map(Reply::Status).collect())),
        ("begin_search", begin),
        ("find_keys", find),
    ])
}

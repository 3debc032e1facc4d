//! The table of commands in the documentation, and the list of those that are left out, are generated.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::{env, fs, iter};

use archipelago_server::command::catalog::{self, Find};
use archipelago_server::command::{self, Keys, Run, category, flag};
use archipelago_server::server::{Server, Settings};

fn table() -> String {
    let mut all: Vec<_> = command::all().filter(|command| !command.has(flag::INTERNAL)).collect();
    all.sort_by_key(|command| command.name);
    let mut table = String::from("| command | arity | runs | keys | categories |\n|---|---:|---|---|---|\n");
    for command in all {
        let runs = match command.run {
            Run::Read(_) => "on a replica",
            Run::Write(_) => "through the log",
            Run::Session => "in the session",
        };
        let keys = match command.keys {
            Keys::None => "none".into(),
            Keys::Range(first, last, step) => format!("{first} to {last} by {step}"),
            Keys::Counted { count, .. } => format!("counted at {count}"),
            Keys::Streams => "behind STREAMS".into(),
            Keys::Stores => "1 and behind STORE".into(),
        };
        let named = category::NAMES.iter().enumerate().filter(|(bit, _)| command.categories >> bit & 1 == 1);
        let categories = named.map(|(_, name)| format!("@{name}")).collect::<Vec<_>>().join(" ");
        table += &format!("| `{}` | {} | {runs} | {keys} | {categories} |\n", command.name, command.arity);
    }
    table
}

/// The names of the commands and subcommands of redis-server 7.0.15, as `COMMAND LIST` returns them, in order.
/// (`differential` compares the file with the server.)
const REDIS: &str = include_str!("redis-commands.txt");

/// Returns the sentences on Redis's commands that are left out.
fn left_out() -> String {
    let (parts, whole): (Vec<&str>, Vec<&str>) = REDIS.lines().partition(|name| name.contains('|'));
    let missing = |names: &[&str]| {
        let missing = names.iter().filter(|name| catalog::named(name.as_bytes()).is_none());
        missing.map(|name| format!("`{}`", name.to_uppercase().replace('|', " "))).collect::<Vec<_>>()
    };
    let told = |what: &str, names: &[&str]| match &missing(names)[..] {
        [] => format!("None of the {} {what} is missing.\n", names.len()),
        some => format!("Of the {} {what}, {} are missing:\n{}.\n", names.len(), some.len(), some.join(", ")),
    };
    told("commands of Redis 7.0.15", &whole) + &told("subcommands", &parts)
}

/// Compares a part of the documentation with what is generated. `ARCHIPELAGO_RECORD=1` writes it.
fn compare(name: &str, new: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mechanisms/server.md");
    let text = fs::read_to_string(&path).expect("the documentation is there");
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(&start).expect("the part has a start");
    let (old, after) = rest.split_once(&end).expect("the part has an end");
    if env::var_os("ARCHIPELAGO_RECORD").is_some() {
        fs::write(&path, format!("{before}{start}{new}{end}{after}")).expect("it can be written");
        return;
    }
    assert_eq!(old, new, "make it anew: ARCHIPELAGO_RECORD=1 cargo test -p archipelago-server --test table");
}

#[test]
fn what_the_documentation_has_of_commands_is_current() {
    compare("commands", &table());
    compare("left out", &left_out());
}

/// A row of the catalog says that a command or subcommand is there, so the server must know it.
#[test]
fn what_is_not_left_out_is_there() {
    let server = Server::start(&Settings { address: ([127, 0, 0, 1], 0).into(), ..Settings::default() }).unwrap();
    for name in REDIS.lines() {
        let Some(row) = catalog::named(name.as_bytes()) else { continue };
        let Some((command, part)) = name.split_once('|') else { continue };
        // As few arguments as the row permits. Each is a word that no subcommand expects.
        let words = [command, part].into_iter().chain(iter::repeat("?")).take(row.arity.unsigned_abs() as usize);
        let request: String = words.flat_map(|word| [word, " "]).chain(["\r\nQUIT\r\n"]).collect();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server ends the connection");
        let answer = String::from_utf8_lossy(&answer);
        let first = answer.lines().next().unwrap_or_default();
        assert!(
            !["-ERR unknown", "-ERR wrong number"].iter().any(|error| first.starts_with(error)),
            "{request}{first}"
        );
        assert!(answer.ends_with("+OK\r\n"), "{request}{first}");
    }
    server.stop().unwrap();
}

#[test]
fn no_name_is_there_twice_and_each_is_found_in_either_case() {
    let mut names: Vec<&str> = command::all().map(|command| command.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    for name in names {
        assert_eq!(command::find(name.to_ascii_uppercase().as_bytes()).map(|command| command.name), Some(name));
    }
}

/// The catalog contains what clients are told about commands, and the registry what the server does. For commands
/// without subcommands both must agree.
#[test]
fn the_catalog_agrees_with_the_registry() {
    let mut differences = Vec::new();
    for command in command::all() {
        let rows = catalog::of(command);
        if command.has(flag::INTERNAL) {
            assert!(rows.is_empty(), "{}", command.name);
            continue;
        }
        let (row, parts) = rows.split_first().unwrap_or_else(|| panic!("{} has no row", command.name));
        assert_eq!((row.name, row.arity), (command.name, command.arity));
        for row in rows {
            assert_eq!(catalog::named(row.name.to_uppercase().as_bytes()).map(|row| row.name), Some(row.name));
            assert!(row.bits() > 0 && !row.group.is_empty() && !row.since.is_empty(), "{}", row.name);
            assert!(row.specs().all(|spec| spec.flags().next().is_some()), "{}", row.name);
        }
        if !parts.is_empty() {
            continue;
        }
        let (first, last, step) = command.keys.told();
        let is_counted = row.specs().any(|spec| matches!(spec.find, Find::Counted(..)));
        let mut agrees = vec![
            ("categories", row.bits() == command.categories),
            // The registry has no keys and channels for commands of the session.
            ("keys", command.keys == Keys::None || row.keys == [first, last, step]),
            ("counted keys", is_counted == matches!(command.keys, Keys::Counted { .. })),
        ];
        let has = |name| row.flags.split(' ').any(|flag| flag == name);
        agrees.extend(flag::NAMES.iter().map(|(bit, name)| (*name, has(*name) == command.has(*bit))));
        let wrong = agrees.into_iter().filter(|(_, agrees)| !agrees);
        differences.extend(wrong.map(|(what, _)| format!("{}: {what}", row.name)));
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn no_row_of_the_catalog_is_of_no_command() {
    let rows = include_str!("../src/command/catalog.txt").lines().count();
    assert_eq!(rows, command::all().map(|command| catalog::of(command).len()).sum::<usize>());
}

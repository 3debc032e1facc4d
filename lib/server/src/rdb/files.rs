//! Loads a server's database from a file, and saves it into a file.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;

use super::{Error, dump, read, write};
use crate::args::Args;
use crate::command;
use crate::db::Db;
use crate::db::table::Keyed;
use crate::log::{Refusal, Store};
use crate::operation::{Call, Write};

/// The number of keys in a batch.
const BATCH: usize = 64;
/// The number of bytes after which a batch is complete.
const BATCH_BYTES: usize = 1 << 20;

/// The counts of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The number of keys in the file, including expired ones.
    pub keys: u64,
    /// The number of libraries of functions. A server without scripts skips libraries.
    pub libraries: usize,
}

/// Reads a file into a database without keys. Each key enters the log as a `RESTORE`, and each library as a `FUNCTION
/// LOAD`, so that a recovery restores them. Keys that have expired by `now` (milliseconds since 1970) are not created.
/// O(bytes); needs the memory of a second database meanwhile.
///
/// # Errors
/// A sentence with the file and the position. If the log refuses a change, some of the keys are already in the log.
pub fn import(store: &Store, path: &Path, now: u64) -> Result<Imported, Refusal> {
    let shown = path.display();
    let refused = |what: String| format!("{shown}: {what}");
    let found = |db: &Db| (db.spaces.iter().map(|space| space.keys.len()).sum::<usize>(), db.hashing);
    let (keys, hashing) = store.db().inspect(0, found).map_err(|poisoned| poisoned.to_string())?;
    if keys > 0 {
        return Err(refused("the database has keys already: start without --load, or with another directory".into()));
    }
    let open = |error: std::io::Error| refused(format!("cannot be read: {error}. Name another file with --load"));
    let loaded = read(&mut BufReader::new(File::open(path).map_err(open)?), hashing);
    let loaded = loaded.map_err(|error: Error| refused(error.to_string()))?;
    let mut handle = store.handle();
    let mut carry_out = |batch: &mut Vec<Write>| match store
        .write_many(&mut handle, core::mem::take(batch))
        .into_iter()
        .find(|outcome| outcome.reply.is_error())
    {
        Some(outcome) => {
            let what =
                format!("a key or a library is refused: {:?}. Begin again with an empty directory", outcome.reply);
            Err(refused(what))
        }
        None => Ok(()),
    };
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for call in libraries(&loaded.functions).chain(calls(&loaded.db, now)) {
        bytes += call.args.bytes();
        batch.push(Write::Call(call));
        if batch.len() == BATCH || bytes > BATCH_BYTES {
            carry_out(&mut batch)?;
            bytes = 0;
        }
    }
    carry_out(&mut batch)?;
    Ok(Imported { keys: loaded.keys, libraries: loaded.functions.len() })
}

/// Returns the operations that load these libraries, if the server supports scripts.
fn libraries(texts: &[Vec<u8>]) -> impl Iterator<Item = Call> {
    command::find(b"function|load").into_iter().flat_map(move |command| {
        texts.iter().map(move |text| {
            let args: Args = [&b"function"[..], b"load", text].into_iter().collect();
            Call { command, args, db: 0, now: 0, seed: 0, wishes: 0, rights: None, deadline: None }
        })
    })
}

/// Returns the operations that create the keys of these databases.
fn calls(db: &Db, now: u64) -> impl Iterator<Item = Call> {
    let command = command::find(b"restore").expect("it is in the registry");
    db.spaces.iter().zip(0..).flat_map(move |(space, index)| {
        space.keys.iter().map(move |entry| {
            let expires = entry.expires().unwrap_or(0).to_string();
            let payload = dump(&entry.value);
            let words = [b"restore", entry.key(), expires.as_bytes(), &payload, b"absttl"];
            let args: Args = words.into_iter().collect();
            Call { command, args, db: index, now, seed: 0, wishes: 0, rights: None, deadline: None }
        })
    })
}

/// Writes the database into a file. The bytes first go to a temporary file, so that `path` never names a partial file.
/// O(bytes). The first replica applies no changes meanwhile.
///
/// # Errors
/// A sentence with the file.
pub fn export(store: &Store, path: &Path) -> Result<(), Refusal> {
    let beside = path.with_extension("rdb.tmp");
    let save = |db: &Db| {
        let mut file = BufWriter::new(File::create(&beside)?);
        write(db, &mut file)?;
        file.flush()?;
        file.get_ref().sync_all()?;
        fs::rename(&beside, path)
    };
    let saved = store.db().inspect(0, save).map_err(|poisoned| poisoned.to_string())?;
    saved.map_err(|error| format!("{}: cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Reply;

    fn ask(store: &Store, line: &str) -> Reply {
        let args: Args = line.split(' ').collect();
        let command = command::find(&args[0]).expect("it is in the registry");
        let call = Call { command, args, db: 0, now: 1_000, seed: 0, wishes: 0, rights: None, deadline: None };
        let outcome = store.write_many(&mut store.handle(), vec![Write::Call(call)]).pop();
        outcome.expect("each has an outcome").reply
    }

    #[test]
    fn what_is_exported_is_imported() {
        let path = std::env::temp_dir().join(format!("archipelago-files-{}.rdb", std::process::id()));
        let (one, other) = (Store::volatile(), Store::volatile());
        for number in 0..200 {
            ask(&one, &format!("rpush list{} a{number} b", number % 150));
            ask(&one, &format!("set key{number} {}", "x".repeat(30_000)));
        }
        ask(&one, "pexpireat key1 2000");
        ask(&one, "pexpireat key2 4000");
        let call = |store: &Store, words: [&str; 3]| {
            let args: Args = words.into_iter().collect();
            let command = command::find(if words[0] == "fcall" { b"fcall" } else { b"function|load" }).unwrap();
            let call = Call { command, args, db: 0, now: 1_000, seed: 0, wishes: 0, rights: None, deadline: None };
            store.write_many(&mut store.handle(), vec![Write::Call(call)]).remove(0).reply
        };
        let code = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";
        assert_eq!(call(&one, ["function", "load", code]), Reply::bulk("lib"));
        export(&one, &path).unwrap();
        assert_eq!(import(&other, &path, 3_000), Ok(Imported { keys: 350, libraries: 1 }));
        assert_eq!(call(&other, ["fcall", "f", "0"]), Reply::Int(7));
        assert_eq!(ask(&other, "dbsize"), Reply::Int(349), "one has expired");
        assert_eq!(ask(&other, "pexpiretime key2"), Reply::Int(4_000));
        for key in ["list0", "list149"] {
            let line = format!("lrange {key} 0 -1");
            assert_eq!(ask(&one, &line), ask(&other, &line));
        }
        assert!(import(&other, &path, 3_000).unwrap_err().contains("has keys already"));
        fs::write(&path, b"REDIS0010\xff").unwrap();
        let refused = import(&Store::volatile(), &path, 0).unwrap_err();
        assert!(refused.contains("at byte 10") && refused.contains("files-"), "{refused}");
        fs::remove_file(&path).unwrap();
    }
}

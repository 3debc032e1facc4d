//! The memtable of a log-structured store. An entry is a key with the number of the write that made it; newer versions come
//! first. A reader chooses a moment by a number, and sees what had been written by then. A flush is a scan: it writes a
//! sorted run while writers go on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use archipelago::HydraList;

/// A key and the complement of a write's number: of one key's versions the newest sorts first.
type Version = (String, u64);

#[derive(Default)]
struct Memtable {
    /// `None` says that the key was deleted.
    entries: HydraList<Version, Option<String>>,
    /// Writes up to this number are complete, if each writer takes its number before it writes (as one writer does here).
    written: AtomicU64,
}

impl Memtable {
    fn write(&self, key: &str, value: Option<&str>) {
        let number = self.written.fetch_add(1, Ordering::Relaxed) + 1;
        self.entries.pin().insert((key.to_owned(), !number), value.map(str::to_owned));
    }

    /// The value that `key` had after the write with this number.
    fn get(&self, key: &str, at: u64) -> Option<String> {
        let versions = (key.to_owned(), !at)..=(key.to_owned(), u64::MAX);
        let (_, value) = self.entries.pin().range(versions).next()?;
        value
    }

    /// The newest version of each key as of a moment, in order: what goes to disk.
    fn flush(&self, at: u64) -> Vec<(String, String)> {
        let mut run: Vec<(String, String)> = Vec::new();
        let mut last = None;
        for ((key, number), value) in self.entries.pin().iter() {
            if !number > at || last.as_ref() == Some(&key) {
                continue;
            }
            last = Some(key.clone());
            run.extend(value.map(|value| (key, value)));
        }
        run
    }
}

fn main() {
    let table = Memtable::default();
    table.write("apple", Some("green"));
    table.write("pear", Some("yellow"));
    let before = table.written.load(Ordering::Relaxed);
    table.write("apple", Some("red"));
    table.write("pear", None);
    let after = table.written.load(Ordering::Relaxed);

    assert_eq!(table.get("apple", before).as_deref(), Some("green"));
    assert_eq!(table.get("apple", after).as_deref(), Some("red"));
    assert_eq!(table.get("pear", after), None);

    // A writer goes on while the run of an earlier moment is made.
    let run = thread::scope(|scope| {
        scope.spawn(|| (0..100_000).for_each(|number| table.write(&format!("key {number:05}"), Some("later"))));
        table.flush(after)
    });
    assert_eq!(run, [("apple".to_owned(), "red".to_owned())]);
    println!("{} versions; the run as of write {after}: {run:?}", table.entries.len());
}

#[test]
fn it_runs() {
    main();
}

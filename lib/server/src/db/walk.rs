//! A walk over all entries as they were at one moment, while changes continue.
//!
//! The walk visits the databases in the order of their numbers, and each table in the order of the keys' hashes, some
//! entries at a time. Before a change touches a key that the walk has not yet reached, the change puts a copy of the
//! key's entry aside, once for each key ([`Walk::keep`]). The walk hands these copies out and later skips the keys in
//! their tables. A change therefore waits for one portion of the walk at most. The only extra memory is the copies of
//! entries that were changed ahead of the walk.
//!
//! # Invariant
//! Each entry that existed at the beginning is in exactly one of four states: handed out; put aside; in a table that
//! was emptied; or unchanged in its table, at or after the walk's position. Each path that can change an entry goes
//! through [`Change`](super::Change), which calls `keep` first. `FLUSHDB` hands the whole table over to the walk.
//! `SWAPDB` swaps the *origins* of two databases, which are the numbers that they had at the beginning.

use std::collections::BTreeMap;

use archipelago_platform::sync::Mutex;

use super::functions::Functions;
use super::hashing::Hashing;
use super::table::{Keyed, Table};
use super::value::Entry;
use super::{Db, Watch, image};
use crate::operation::{Input, put_bytes, put_number};

/// A walk in progress. See the module.
#[derive(Debug, Default)]
pub struct Walk {
    /// For each current number of a database: the number that the database had at the beginning. `None` if the database
    /// was emptied since then.
    origins: Vec<Option<u32>>,
    /// The walk's position: the database, and the hash in this database from which the walk continues.
    at: u32,
    cursor: u64,
    /// Keys ahead of the walk that the walk skips in their tables, by database and hash.
    met: BTreeMap<(u32, u32), Vec<Box<[u8]>>>,
    /// The entries of the skipped keys, as they were at the beginning. A key that did not exist has no entry here.
    aside: Vec<(u32, Entry)>,
    /// Tables that were emptied ahead of the walk.
    emptied: Vec<(u32, Table<Entry>)>,
}

/// A replica's walk, if one is in progress. A clone of the database has no walk.
#[derive(Debug, Default)]
pub(super) struct Walker(Mutex<Option<Box<Walk>>>);

impl Clone for Walker {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The result of one step of the walk.
#[derive(Debug, Default)]
pub struct Portion {
    /// Entries, encoded as [`image`] describes.
    pub bytes: Vec<u8>,
    /// Entries that changes have put aside, with the numbers of their databases.
    pub aside: Vec<(u32, Entry)>,
    /// Tables that the walk no longer needs. The receiver drops them where dropping delays nothing.
    gone: Vec<(u32, Table<Entry>)>,
    /// Whether this is the last portion.
    pub last: bool,
}

impl Walker {
    /// Returns the walk, for use by a change. Takes no lock, because `&mut self` is exclusive.
    pub(super) fn current(&mut self) -> Option<&mut Walk> {
        self.0.get_mut().expect("nothing panics while it is locked").as_deref_mut()
    }
}

impl Walk {
    /// Puts a copy of a key's entry aside before the entry is changed.
    pub(super) fn keep(&mut self, index: u32, table: &Table<Entry>, key: &[u8]) {
        let Some(origin) = self.origins[index as usize] else { return };
        let hash = table.hash(key);
        if (origin, u64::from(hash)) < (self.at, self.cursor) {
            return;
        }
        let met = self.met.entry((origin, hash)).or_default();
        if !met.iter().any(|other| **other == *key) {
            met.push(key.into());
            self.aside.extend(table.get(key).map(|entry| (origin, entry.clone())));
        }
    }

    /// Takes over the table of a database that is being emptied.
    pub(super) fn empty(&mut self, index: u32, table: Table<Entry>) {
        if let Some(origin) = self.origins[index as usize].take()
            && origin >= self.at
        {
            self.emptied.push((origin, table));
        }
    }

    /// Records that two databases are swapped.
    pub(super) fn swap(&mut self, one: u32, other: u32) {
        self.origins.swap(one as usize, other as usize);
    }

    /// Continues in one table. Returns whether the end of the table was reached.
    fn go_on(&mut self, table: &Table<Entry>, most: usize, out: &mut Vec<u8>) -> bool {
        let mut last = None;
        for entry in table.iter_from(self.cursor as u32) {
            let hash = entry.hash();
            if out.len() >= most && last != Some(hash) {
                self.cursor = hash.into();
                return false;
            }
            last = Some(hash);
            let met = self.met.get(&(self.at, hash));
            if !met.is_some_and(|met| met.iter().any(|key| **key == *entry.key())) {
                image::put_entry(self.at, entry, out);
            }
        }
        (self.at, self.cursor) = (self.at + 1, 0);
        true
    }

    /// Forgets the skipped keys that the walk has passed.
    fn forget(&mut self) {
        while let Some(first) = self.met.first_entry()
            && (first.key().0, u64::from(first.key().1)) < (self.at, self.cursor)
        {
            first.remove();
        }
    }
}

impl Db {
    /// Begins a walk over this replica. A walk that is in progress ends. Returns the state that a database needs in
    /// addition to its entries ([`resume`](Self::resume)). Takes time in proportion to the number of watched keys and
    /// the bytes of libraries.
    pub fn begin_walk(&self) -> Vec<u8> {
        // The pattern names all fields: a new field of the database does not compile here until it is either stored or
        // excluded. Listeners are not stored, because they are clients, and a restarted server has none. Counting memory
        // begins again when the server applies its settings.
        let Self {
            hashing,
            spaces,
            watched,
            serial,
            effects: _,
            listeners: _,
            walker,
            meter: _,
            lfu: _,
            sparse,
            functions,
        } = self;
        let origins = (0..spaces.len() as u32).map(Some).collect();
        *walker.0.lock().expect("nothing panics while it is locked") =
            Some(Box::new(Walk { origins, ..Walk::default() }));
        let mut head = Vec::new();
        put_number(*serial, &mut head);
        put_number(watched.len() as u64, &mut head);
        for ((db, key), Watch { watchers, changed }) in watched {
            put_number(u64::from(*db), &mut head);
            put_bytes(key, &mut head);
            put_number(u64::from(*watchers), &mut head);
            put_number(*changed, &mut head);
        }
        put_number(*sparse as u64, &mut head);
        functions.put(&mut head);
        head.extend_from_slice(&hashing.seed().to_le_bytes());
        head
    }

    /// Returns the next portion of the walk: encoded entries of about `most` bytes, and all entries that changes have
    /// put aside. Changes wait while this function runs. Returns `None` if no walk is in progress.
    pub fn walk_on(&self, most: usize) -> Option<Portion> {
        let mut walker = self.walker.0.lock().expect("nothing panics while it is locked");
        let walk = walker.as_deref_mut()?;
        let mut portion = Portion { aside: core::mem::take(&mut walk.aside), ..Portion::default() };
        while (walk.at as usize) < self.spaces.len() && portion.bytes.len() < most {
            let emptied = walk.emptied.iter().position(|(origin, _)| *origin == walk.at);
            match emptied.map(|place| walk.emptied.swap_remove(place)) {
                Some((origin, table)) => match walk.go_on(&table, most, &mut portion.bytes) {
                    true => portion.gone.push((origin, table)),
                    false => walk.emptied.push((origin, table)),
                },
                None => {
                    let index = walk.origins.iter().position(|origin| *origin == Some(walk.at));
                    let index = index.expect("a table that was not walked over is emptied or is in its database");
                    walk.go_on(&self.spaces[index].keys, most, &mut portion.bytes);
                }
            }
        }
        walk.forget();
        portion.last = walk.at as usize == self.spaces.len();
        if portion.last {
            *walker = None;
        }
        Some(portion)
    }

    /// Ends the walk early.
    pub fn end_walk(&self) {
        *self.walker.0.lock().expect("nothing panics while it is locked") = None;
    }

    /// Restores the state that [`begin_walk`](Self::begin_walk) returned in an empty database. Returns `None` if the
    /// bytes are malformed.
    #[must_use]
    pub fn resume(&mut self, head: &[u8]) -> Option<()> {
        let mut input = Input(head);
        self.serial = input.number()?;
        let watch = |input: &mut Input<'_>| {
            let key = (input.small()?, input.bytes()?.to_vec());
            Some((key, Watch { watchers: input.small()?, changed: input.number()? }))
        };
        self.watched = input.many(watch)?.into_iter().collect();
        self.sparse = input.small()? as usize;
        self.functions = Functions::read(&mut input)?;
        self.rehash(Hashing::seeded(input.word()?));
        input.0.is_empty().then_some(())
    }

    /// Adds an entry that a walk has handed out. Returns `None` if the database's number is invalid or the key already
    /// exists.
    #[must_use]
    pub fn admit(&mut self, db: u32, entry: Entry) -> Option<()> {
        let space = self.spaces.get_mut(db as usize)?;
        let (hash, expires, earliest) = (entry.hash(), entry.expires(), entry.value.earliest());
        if space.keys.insert(entry).is_some() {
            return None;
        }
        space.note_expiry(hash, None, expires);
        space.note_fields(hash, None, earliest);
        Some(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::args::Args;
    use crate::command;
    use crate::db::Random;
    use crate::operation::{Call, Watched, Write};

    fn call(db: u32, line: &str, now: u64, seed: u64) -> Call {
        let args: Args = line.split(' ').collect();
        Call { command: command::find(&args[0]).unwrap(), args, db, now, seed, wishes: 0, rights: None, deadline: None }
    }

    /// Returns a random change. Changes are of all types and concern small and large values. Some of them concern whole
    /// databases.
    pub fn change(random: &mut Random, now: u64) -> Write {
        let db = random.below(3) as u32;
        let seed = random.draw();
        let kind = ["s", "l", "h", "S", "z", "x"][random.below(6)];
        let key = format!("{kind}{}", random.below(60));
        let other = format!("{kind}{}", random.below(60));
        let (number, long) = (random.below(1 << 20), "x".repeat(random.below(90)));
        let line = match random.below(300) {
            0 => "FLUSHDB".into(),
            1 | 2 => format!("SWAPDB {db} {}", random.below(3)),
            3 => format!("MOVE {key} {}", random.below(3)),
            4..=6 => format!("RENAME {key} {other}"),
            7..=9 => format!("COPY {key} {other} DB {}", random.below(3)),
            10..=13 => format!("DEL {key}"),
            14..=19 => format!("PEXPIRE {key} {}", random.below(4_000)),
            24 => format!(
                "FUNCTION|LOAD LOAD REPLACE #!lua\tname={key}\nredis.register_function('f{key}',redis.log)--{long}"
            ),
            25 => format!("FUNCTION|DELETE DELETE {key}"),
            26 if number % 4 == 0 => "FUNCTION|FLUSH FLUSH".into(),
            20 => format!("PERSIST {key}"),
            21 => return Write::Expire { now, most: 5 },
            22 => {
                return Write::Watch { db, keys: vec![key.into_bytes()], now };
            }
            23 => {
                let watched = vec![Watched { db, key: key.clone().into_bytes(), since: random.below(9_000) as u64 }];
                let watched = if number % 2 == 0 { watched } else { Vec::new() };
                let lines = [format!("TYPE {key}"), format!("DEL {key}"), format!("SWAPDB {db} {}", random.below(3))];
                let calls = lines.iter().map(|line| call(db, line, now, seed)).collect();
                return Write::Exec { calls, watched, now };
            }
            _ => match kind {
                "s" => match random.below(5) {
                    0 => format!("SET {key} {number}"),
                    1 => format!("INCRBY {key} {number}"),
                    2 => format!("APPEND {key} y{long}"),
                    3 => format!("SET {key} y{long} PX {}", 1 + random.below(4_000)),
                    _ => format!("SETRANGE {key} {} {number}", random.below(50)),
                },
                "l" => match random.below(4) {
                    0 => format!("LPOP {key}"),
                    1 => format!("LSET {key} 0 {long}z"),
                    2 => format!("RPUSH {key} {number} {long}z"),
                    _ => format!("LPUSH {key} {number} {long}z"),
                },
                "h" => match random.below(9) {
                    0 | 1 => format!("HDEL {key} {}", number % 200),
                    2 => format!("HPEXPIRE {key} {} FIELDS 2 {} {}", number % 4_000, number % 200, number % 170),
                    3 => format!("HPERSIST {key} FIELDS 1 {}", number % 200),
                    4 => format!("HSETEX {key} PX {} FIELDS 1 {} {long}z", 1 + number % 4_000, number % 200),
                    _ => format!("HSET {key} {} {long}z {} 1", number % 200, number % 170),
                },
                "x" => match random.below(11) {
                    // Later entries precede the deleted one.
                    9 => {
                        let last = now + number as u64 % 60;
                        let lines = [
                            format!("XADD {key} {last}-9 a {number}"),
                            format!("XDEL {key} {last}-9"),
                            format!("XSETID {key} {now}-0"),
                            format!("XADD {key} {now}-1 b {long}z"),
                        ];
                        let calls = lines.iter().map(|line| call(db, line, now, seed)).collect();
                        return Write::Exec { calls, watched: Vec::new(), now };
                    }
                    10 => format!("XTRIM {key} MINID = {}-0", now.saturating_sub(number as u64 % 900)),
                    0 => format!("XGROUP CREATE {key} g 0 MKSTREAM"),
                    1 => format!("XREADGROUP GROUP g c{} COUNT 3 STREAMS {key} >", number % 3),
                    2 => format!("XACK {key} g {now}-0"),
                    3 => format!("XDEL {key} {}-0", now.saturating_sub(number as u64 % 50)),
                    4 => format!("XTRIM {key} MAXLEN ~ 120"),
                    _ => format!("XADD {key} * a {number} b {long}z"),
                },
                "S" => match random.below(4) {
                    0 => format!("SPOP {key} {}", random.below(4)),
                    1 => format!("SADD {key} {number} {long}z"),
                    2 => format!("SUNIONSTORE {key} {key} {other}"),
                    _ => format!("SADD {key} {number} {}", number / 2),
                },
                _ => match random.below(3) {
                    0 => format!("ZPOPMIN {key} 2"),
                    1 => format!("ZINCRBY {key} 1.5 {}", number % 300),
                    _ => format!("ZADD {key} {number} {} -0 {long}z", number % 300),
                },
            },
        };
        Write::Call(call(db, &line, now, seed))
    }

    /// Returns the database that results from reading a walk's portions.
    fn rebuilt(head: &[u8], entries: &[u8]) -> Db {
        let mut db = Db::default();
        db.resume(head).unwrap();
        let mut input = Input(entries);
        while !input.0.is_empty() {
            let (index, entry) = image::entry(&mut input, db.hashing()).unwrap();
            db.admit(index, entry).unwrap();
        }
        db
    }

    #[test]
    fn what_a_walk_hands_out_is_the_database_as_it_was() {
        let mut all = 0;
        for seed in 0..30 {
            let mut random = Random(seed);
            let (mut db, mut now) = (Db::hashed(Hashing::seeded(seed / 2)), 1_000);
            for _ in 0..4_000 {
                now += random.below(3) as u64;
                db.write(&change(&mut random, now));
            }
            let mut before = db.clone();
            let head = db.begin_walk();
            let (mut entries, mut portions) = (Vec::new(), 0);
            // With even seeds few changes follow each portion. With odd seeds a portion is larger and many changes may
            // follow it.
            let (burst, most) = if seed % 2 == 0 { (3, 200) } else { (120, 1_500) };
            loop {
                let portion = db.walk_on(most).unwrap();
                entries.extend_from_slice(&portion.bytes);
                portion.aside.iter().for_each(|(db, entry)| image::put_entry(*db, entry, &mut entries));
                portions += 1;
                if portion.last {
                    break;
                }
                for _ in 0..random.below(burst) {
                    now += random.below(3) as u64;
                    db.write(&change(&mut random, now));
                }
            }
            assert!(db.walk_on(1).is_none() && portions > 2, "{portions}");
            all += portions;
            let mut after = rebuilt(&head, &entries);
            assert_eq!(after.digest(), before.digest(), "seed {seed}");
            // Both databases behave alike, although the layouts of their tables may differ.
            for _ in 0..3_000 {
                now += random.below(3) as u64;
                let change = change(&mut random, now);
                assert_eq!(after.write(&change), before.write(&change), "seed {seed}: {change:?}");
            }
            assert_eq!(after.digest(), before.digest(), "seed {seed}");
        }
        assert!(all > 1_000, "{all} portions are too few");
    }

    #[test]
    fn bytes_that_make_no_sense_are_refused() {
        let mut random = Random(1);
        let mut db = Db::default();
        (0..3_000).for_each(|now| drop(db.write(&change(&mut random, now))));
        let head = db.begin_walk();
        let entries = db.walk_on(usize::MAX).unwrap().bytes;
        for length in 0..head.len() {
            assert!(Db::default().resume(&head[..length]).is_none());
        }
        let mut whole = 0;
        for length in 0..entries.len().min(4_000) {
            let mut input = Input(&entries[..length]);
            while image::entry(&mut input, Hashing::default()).is_some() {}
            whole += usize::from(input.0.is_empty());
        }
        assert!(whole < 1_000, "{whole} prefixes are whole entries");
        for at in 0..4_000 {
            // Arbitrary bytes cause no panic and no allocation larger than the input justifies.
            let mut broken = entries.clone();
            let place = at % broken.len();
            broken[place] = random.draw() as u8;
            let mut input = Input(&broken);
            while !input.0.is_empty() && image::entry(&mut input, Hashing::default()).is_some() {}
        }
    }
}

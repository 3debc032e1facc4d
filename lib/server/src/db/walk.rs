//! A walk over all entries as they were at one moment, while changes go on.
//!
//! The walk goes through the databases in the order of their numbers and through a table in the order of hashes, some entries
//! at a time. A change that is about to touch a key that the walk has not come to yet puts the key's entry aside first
//! ([`Walk::keep`]), once; the walk hands these out and passes the key over. So no change waits for more than a
//! stretch of the walk, and beside the database there is only a copy of what was changed in front of the walk.
//!
//! # Invariant
//! An entry that was there at the beginning was handed out, is put aside, lies in an emptied table, or lies unchanged in its
//! table at or behind the walk's place: exactly one of them. Every path to an entry that can change it goes through
//! [`Change`](super::Change), which calls `keep` first; `FLUSHDB` hands the whole table over, and `SWAPDB` swaps the origins.

use std::collections::BTreeMap;

use archipelago_platform::sync::Mutex;

use super::functions::Functions;
use super::table::{Keyed, Table, hash};
use super::value::Entry;
use super::{Db, Watch, image};
use crate::operation::{Input, put_bytes, put_number};

/// A walk that is under way. See the module.
#[derive(Debug, Default)]
pub struct Walk {
    /// By the number that a database has now, the one that it had at the beginning; nothing, if it was emptied since.
    origins: Vec<Option<u32>>,
    /// The database and the hash that the walk goes on with.
    at: u32,
    cursor: u64,
    /// Keys in front of the walk that are not to be met in their tables: by database and hash.
    met: BTreeMap<(u32, u32), Vec<Box<[u8]>>>,
    /// What they were, if they were there.
    aside: Vec<(u32, Entry)>,
    /// Tables that were emptied in front of the walk.
    emptied: Vec<(u32, Table<Entry>)>,
}

/// A replica's walk, if there is one. A copy of the database has none.
#[derive(Debug, Default)]
pub(super) struct Walker(Mutex<Option<Box<Walk>>>);

impl Clone for Walker {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// What the walk hands out at a time.
#[derive(Debug, Default)]
pub struct Portion {
    /// Entries as [`image`] has them.
    pub bytes: Vec<u8>,
    /// Entries that changes have put aside, with their databases.
    pub aside: Vec<(u32, Entry)>,
    /// What is not needed any more: to be dropped where nothing waits for it.
    gone: Vec<(u32, Table<Entry>)>,
    /// Says that this was the last one.
    pub last: bool,
}

impl Walker {
    /// The walk, for a change. Costs no more than a look.
    pub(super) fn current(&mut self) -> Option<&mut Walk> {
        self.0.get_mut().expect("nothing panics while it is locked").as_deref_mut()
    }
}

impl Walk {
    /// Puts aside what a key of a database is, before it is changed.
    pub(super) fn keep(&mut self, index: u32, table: &Table<Entry>, key: &[u8]) {
        let Some(origin) = self.origins[index as usize] else { return };
        let hash = hash(key);
        if (origin, u64::from(hash)) < (self.at, self.cursor) {
            return;
        }
        let met = self.met.entry((origin, hash)).or_default();
        if !met.iter().any(|other| **other == *key) {
            met.push(key.into());
            self.aside.extend(table.get(key).map(|entry| (origin, entry.clone())));
        }
    }

    /// Takes over the table of a database that is emptied.
    pub(super) fn empty(&mut self, index: u32, table: Table<Entry>) {
        if let Some(origin) = self.origins[index as usize].take()
            && origin >= self.at
        {
            self.emptied.push((origin, table));
        }
    }

    /// Follows two databases that are swapped.
    pub(super) fn swap(&mut self, one: u32, other: u32) {
        self.origins.swap(one as usize, other as usize);
    }

    /// Goes on in one table. Returns whether its end was reached.
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

    /// Forgets the keys that the walk has passed.
    fn forget(&mut self) {
        while let Some(first) = self.met.first_entry()
            && (first.key().0, u64::from(first.key().1)) < (self.at, self.cursor)
        {
            first.remove();
        }
    }
}

impl Db {
    /// Begins a walk over this replica; another one that was under way ends. Returns what a database of these entries
    /// has to know besides ([`resume`](Self::resume)). Takes time in proportion to the number of watched keys and the bytes of
    /// libraries.
    pub fn begin_walk(&self) -> Vec<u8> {
        // All fields are named: what is added to the database belongs into its snapshots, or is said here not to. Listeners
        // are clients, of which a start has none; counting begins anew with the settings.
        let Self { spaces, watched, serial, effects: _, listeners: _, walker, meter: _, lfu: _, sparse, functions } =
            self;
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
        head
    }

    /// The next portion of the walk: entries until there are `most` bytes, and all that changes have put aside. Changes
    /// wait for as long as this takes. Returns nothing if there is no walk.
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

    /// Ends the walk before its end.
    pub fn end_walk(&self) {
        *self.walker.0.lock().expect("nothing panics while it is locked") = None;
    }

    /// Sets an empty database to what [`begin_walk`](Self::begin_walk) returned. Returns `None` if that makes no sense.
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
        input.0.is_empty().then_some(())
    }

    /// Adds an entry of a walk.
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

    /// A change by chance: of all types, on few keys and on large ones, of whole databases now and then.
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
                "x" => match random.below(9) {
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

    /// The database that is read from what a walk handed out.
    fn rebuilt(head: &[u8], entries: &[u8]) -> Db {
        let mut db = Db::default();
        db.resume(head).unwrap();
        let mut input = Input(entries);
        while !input.0.is_empty() {
            let (index, entry) = image::entry(&mut input).unwrap();
            db.admit(index, entry).unwrap();
        }
        db
    }

    #[test]
    fn what_a_walk_hands_out_is_the_database_as_it_was() {
        let mut all = 0;
        for seed in 0..30 {
            let mut random = Random(seed);
            let (mut db, mut now) = (Db::default(), 1_000);
            for _ in 0..4_000 {
                now += random.below(3) as u64;
                db.write(&change(&mut random, now));
            }
            let mut before = db.clone();
            let head = db.begin_walk();
            let (mut entries, mut portions) = (Vec::new(), 0);
            // With odd seeds most changes come at once, with even ones between all portions.
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
            // Both go on alike, whatever the layouts of their tables are.
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
            while image::entry(&mut input).is_some() {}
            whole += usize::from(input.0.is_empty());
        }
        assert!(whole < 1_000, "{whole} prefixes are whole entries");
        for at in 0..4_000 {
            // Any byte may be anything: no panic, and no room that was not there.
            let mut broken = entries.clone();
            let place = at % broken.len();
            broken[place] = random.draw() as u8;
            let mut input = Input(&broken);
            while !input.0.is_empty() && image::entry(&mut input).is_some() {}
        }
    }
}

//! The sequential database. Node replication runs one copy of [`Db`] on each replica and adds concurrency.
//!
//! The database does not know threads, sockets, clocks or sources of randomness. A [`Db`] has 16 numbered databases.
//! The function of a command gets one of these databases at the operation's time: as a [`View`] if the command reads,
//! as a [`Change`] if the command writes.
//!
//! # Invariants
//! - The same operations in the same order make equal databases. Nothing in this module depends on addresses, on a
//!   hasher's random keys or on the time of day.
//! - A list, hash, set or sorted set that is a key's value is never empty.
//! - A field of a hash is *due* when its expiry time has come. An expired key or a due field stays in memory until
//!   [`Write::Expire`] removes it, or until a write looks the key up. The write removes the key, or some of the due
//!   fields. No command's function sees an expired key or a due field.

pub mod dated;
mod effects;
pub mod evict;
pub mod expiry;
pub mod extended;
pub mod fields;
pub mod functions;
pub mod hash;
pub mod hexadecimal;
pub mod hyperloglog;
pub mod image;
pub mod list;
pub mod listpack;
pub mod meter;
pub mod pack;
mod seen;
pub mod set;
pub mod small;
pub mod stream;
pub mod stream_node;
pub mod table;
pub mod tree;
pub mod value;
pub mod walk;
pub mod zset;

#[cfg(test)]
mod hash_functions;

use core::slice;
use std::collections::BTreeMap;

use archipelago_platform::sync::Arc;
use archipelago_replicate::Sequential;

use crate::acl::user::User;
use crate::command::{Run, flag};
use crate::deadline::Deadline;
use crate::operation::{Call, Read, Watched, Write, wish};
use crate::reply::{Answer, Fault, Reply, fault};
pub use effects::{Effects, Event, Outcome};
use seen::{look, read, wrote};
use table::{Hashing, Keyed, Table, unseeded};
use value::{Container, Entry, Value};

/// How many databases `SELECT` can choose from.
pub const DATABASES: u32 = 16;

/// One of the numbered databases.
#[derive(Clone, Debug)]
pub struct Space {
    pub(crate) keys: Table<Entry>,
    /// How many keys have an expiry time.
    pub(crate) volatile: usize,
    due: expiry::Due,
    /// How many hashes have at least one field with an expiry time.
    pub(crate) dated: usize,
    /// For each hash that `dated` counts: the time at which its first field expires.
    fields: expiry::Due,
    /// Bytes of all values on the heap. 0 before memory is counted.
    heap: usize,
}

impl Space {
    fn new(hashing: Hashing) -> Self {
        let (due, fields) = (expiry::Due::default(), expiry::Due::default());
        Self { keys: Table::new(hashing), volatile: 0, due, dated: 0, fields, heap: 0 }
    }
}

/// The state of a key that at least one client watches (`WATCH`).
#[derive(Clone, Debug)]
struct Watch {
    /// How many clients watch the key.
    watchers: u32,
    /// The number of the last operation that changed the key.
    changed: u64,
}

/// All databases of one replica. See the module.
#[derive(Clone, Debug)]
pub struct Db {
    /// The hash function of all tables: those of keys, of fields and of members.
    pub(crate) hashing: Hashing,
    pub(crate) spaces: Vec<Space>,
    watched: BTreeMap<(u32, Vec<u8>), Watch>,
    /// How many changing operations were carried out.
    serial: u64,
    /// For each of the first three bits of [`wish`]: how many listeners want the effects of this kind.
    listeners: [u32; 3],
    effects: Effects,
    /// The walk over all entries for a snapshot, if a snapshot is being written.
    walker: walk::Walker,
    meter: meter::Meter,
    /// Whether entries record how often they are used (LFU). If not, entries record the time of the last use.
    pub(crate) lfu: bool,
    /// The most bytes of a HyperLogLog in the sparse encoding.
    pub(crate) sparse: usize,
    /// The libraries of functions. All databases share them.
    pub(crate) functions: functions::Functions,
}

impl Default for Db {
    fn default() -> Self {
        Self {
            hashing: Hashing::default(),
            spaces: (0..DATABASES).map(|_| Space::new(Hashing::default())).collect(),
            watched: BTreeMap::new(),
            serial: 0,
            listeners: [0; 3],
            effects: Effects::default(),
            walker: walk::Walker::default(),
            meter: meter::Meter::default(),
            lfu: false,
            sparse: hyperloglog::SPARSE,
            functions: functions::Functions::default(),
        }
    }
}

/// Read access to one of the databases at the time of an operation.
#[derive(Clone, Copy)]
pub struct View<'d> {
    /// All databases.
    pub db: &'d Db,
    /// The number of the database that is read.
    pub index: u32,
    /// The time of the operation, in milliseconds since 1970.
    pub now: u64,
    /// The seed of the operation's random numbers.
    pub seed: u64,
    /// The user whose rights limit the commands of a script. `None` permits every command.
    pub rights: Option<&'d User>,
    /// The deadline of a script. `None` means that the time of a script has no limit.
    pub deadline: Option<&'d Arc<Deadline>>,
}

/// Write access to one of the databases at the time of an operation.
pub struct Change<'d> {
    /// All databases.
    pub db: &'d mut Db,
    /// The number of the database that is changed.
    pub index: u32,
    /// The time of the operation, in milliseconds since 1970.
    pub now: u64,
    /// The operation's random numbers.
    pub random: Random,
    /// Bits of [`wish`]: the effects that are to be recorded.
    pub wishes: u8,
    /// The user whose rights limit the commands of a script. `None` permits every command.
    pub rights: Option<&'d User>,
    /// The deadline of a script. `None` means that the time of a script has no limit.
    pub deadline: Option<&'d Arc<Deadline>>,
}

/// Pseudo-random numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`. `end` is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.draw()) * end as u128) >> 64) as usize
    }
}

impl Db {
    /// Carries out an operation that may change the databases.
    pub fn write(&mut self, operation: &Write) -> Outcome {
        self.serial += 1;
        wrote(slice::from_ref(&self.serial));
        let reply = match operation {
            Write::Call(call) => self.call(call),
            Write::Exec { calls, watched, now } => self.exec(calls, watched, *now),
            Write::Watch { db, keys, now } => self.watch(*db, keys, *now),
            Write::Unwatch { watched } => {
                self.unwatch(watched);
                Reply::OK
            }
            Write::UnwatchAll => {
                self.watched.clear();
                self.listeners = [0; 3];
                self.sparse = hyperloglog::SPARSE;
                Reply::OK
            }
            Write::Listen { what, begins } => {
                for (_, count) in self.listeners.iter_mut().enumerate().filter(|(bit, _)| what >> bit & 1 == 1) {
                    *count = if *begins { *count + 1 } else { count.saturating_sub(1) };
                }
                Reply::OK
            }
            Write::Expire { now, most } => self.expire(*now, *most as usize),
            Write::Evict { now, keys } => self.evict(*now, keys),
            Write::Meter { lfu } => {
                self.lfu = *lfu;
                self.begin_to_count();
                Reply::OK
            }
            Write::Sparse { most } => {
                self.sparse = *most as usize;
                Reply::OK
            }
            Write::Seed { seed } => {
                if self.takes_a_seed() {
                    self.rehash(Hashing::seeded(*seed));
                }
                Reply::OK
            }
        };
        self.settle();
        let is_told = *look(&self.effects) != Effects::default();
        let effects = is_told.then(|| {
            wrote(slice::from_ref(&self.effects));
            Box::new(core::mem::take(&mut self.effects))
        });
        Outcome { reply, effects }
    }

    /// Carries out an operation that only reads.
    pub fn read(&self, operation: &Read) -> Outcome {
        let Read::Call(call) = operation;
        let Some(run) = self.reader(call) else {
            let effects = Effects { writes: true, ..Effects::default() };
            return Outcome { reply: Reply::Null, effects: Some(Box::new(effects)) };
        };
        if call.wishes & wish::SHORT != 0 && crate::family::cost::is_long(&self.view(call), call) {
            let effects = Effects { long: true, ..Effects::default() };
            return Outcome { reply: Reply::Null, effects: Some(Box::new(effects)) };
        }
        let reply: Reply = run(&self.view(call), &call.args).into();
        let mut effects = Effects::default();
        if !reply.is_error() {
            self.misses(call, &mut effects);
        }
        let effects = (!effects.events.is_empty()).then(|| Box::new(effects));
        Outcome { reply, effects }
    }

    /// Returns the function that carries out a call as a read. Returns `None` if the call may change something.
    ///
    /// For an `FCALL` only the database can decide this: the database knows the flags of the function that is called.
    fn reader(&self, call: &Call) -> Option<fn(&View<'_>, &crate::args::Args) -> Answer> {
        let command = match call.command.name {
            "fcall" if self.functions.only_reads(&call.args[1]) => crate::command::find(b"fcall_ro")?,
            _ => call.command,
        };
        if let Run::Read(run) = command.run { Some(run) } else { None }
    }

    /// Returns the bits of [`wish`] that have at least one listener.
    pub(crate) fn wished(&self) -> u8 {
        (0..3).filter(|bit| self.listeners[*bit] > 0).fold(0, |all, bit| all | 1 << bit)
    }

    /// Records a `keymiss` event for each missing key that a command reads. Records no event if nothing listens to
    /// misses.
    fn misses(&self, call: &Call, effects: &mut Effects) {
        if self.wished() & wish::MISSES == 0 {
            return;
        }
        let view = self.view(call);
        let sources = crate::operation::sources(call).into_iter().map(|place| &call.args[place]);
        let missed = sources.filter(|key| view.find(key).is_none());
        missed.for_each(|key| effects.happened(b'm', "keymiss", call.db, key));
    }

    fn view<'a>(&'a self, call: &'a Call) -> View<'a> {
        let &Call { db: index, now, seed, .. } = call;
        View { db: self, index, now, seed, rights: call.rights.as_deref(), deadline: call.deadline.as_ref() }
    }

    fn call(&mut self, call: &Call) -> Reply {
        let reply = self.carry_out(call);
        if let Some(deadline) = &call.deadline {
            deadline.finish();
        }
        reply
    }

    fn carry_out(&mut self, call: &Call) -> Reply {
        if call.db >= DATABASES {
            return Reply::Error(fault::DB_INDEX);
        }
        match call.command.run {
            Run::Read(run) => {
                let reply = run(&self.view(call), &call.args).into();
                if call.command.has(flag::BLOCKING) && reply == Reply::NullArray {
                    self.effects.again = crate::family::streams::again(&self.view(call), &call.args);
                }
                reply
            }
            Run::Write(run) => {
                let &Call { db: index, now, seed, wishes, .. } = call;
                let wishes = wishes | self.wished();
                if self.wished() & wish::MISSES != 0 {
                    let mut effects = core::mem::take(&mut self.effects);
                    self.misses(call, &mut effects);
                    self.effects = effects;
                }
                let (rights, deadline) = (call.rights.as_deref(), call.deadline.as_ref());
                let random = Random(seed);
                run(&mut Change { db: self, index, now, random, wishes, rights, deadline }, &call.args).into()
            }
            // A `SELECT` inside a transaction. The session has already set the database of each later call in the
            // transaction. Nothing is watched inside a transaction, so `UNWATCH` below has nothing to do.
            Run::Session if call.command.name == "select" => match crate::family::parse::integer(&call.args[1]) {
                Ok(db) if (0..i64::from(DATABASES)).contains(&db) => Reply::OK,
                Ok(_) => Reply::Error(fault::DB_INDEX),
                Err(fault) => Reply::Error(fault),
            },
            Run::Session if call.command.name == "unwatch" => Reply::OK,
            Run::Session => Reply::Error(Fault::new("ERR not a command of the database")),
        }
    }

    fn exec(&mut self, calls: &[Call], watched: &[Watched], now: u64) -> Reply {
        let changed = watched.iter().any(|watched| self.was_changed(watched, now));
        self.unwatch(watched);
        if changed {
            return Reply::NullArray;
        }
        Reply::Array(calls.iter().map(|call| self.call(call)).collect())
    }

    fn watch(&mut self, db: u32, keys: &[Vec<u8>], now: u64) -> Reply {
        for key in keys {
            // A key that has already expired is removed first. Its removal is then older than the watch and does not
            // fail the client's transaction.
            if db < DATABASES {
                let wishes = self.wished();
                Change { db: self, index: db, now, random: Random(0), wishes, rights: None, deadline: None }.bury(key);
            }
            let watch = self.watched.entry((db, key.clone())).or_insert(Watch { watchers: 0, changed: 0 });
            watch.watchers += 1;
        }
        Reply::Int(self.serial as i64)
    }

    fn unwatch(&mut self, watched: &[Watched]) {
        for Watched { db, key, .. } in watched {
            if let std::collections::btree_map::Entry::Occupied(mut watch) = self.watched.entry((*db, key.clone())) {
                watch.get_mut().watchers -= 1;
                if watch.get().watchers == 0 {
                    watch.remove();
                }
            }
        }
    }

    fn was_changed(&self, watched: &Watched, now: u64) -> bool {
        let Watched { db, key, since } = watched;
        let changed = self.watched.get(&(*db, key.clone())).is_none_or(|watch| watch.changed > *since);
        let space = self.spaces.get(*db as usize);
        let met = |entry: &Entry| entry.is_dead(now) || entry.value.due(now) > 0;
        changed || space.and_then(|space| space.keys.get(key)).is_some_and(met)
    }

    /// Removes expired keys and due fields, those with the earliest times first: from each database at most `most` keys
    /// and at most `most` fields.
    fn expire(&mut self, now: u64, most: usize) -> Reply {
        let mut removed = 0;
        for index in 0..DATABASES {
            let dead = self.spaces[index as usize].expired(now, most);
            removed += dead.len();
            let wishes = self.wished();
            let mut change = Change { db: self, index, now, random: Random(0), wishes, rights: None, deadline: None };
            dead.iter().for_each(|key| change.bury(key));
            let mut left = most;
            for key in change.space().keys_of_due_fields(now, most) {
                left -= change.bury_fields(&key, left);
            }
            removed += most - left;
        }
        Reply::count(removed)
    }

    /// Removes the keys that were chosen for eviction because memory was short.
    fn evict(&mut self, now: u64, keys: &[(u32, Vec<u8>)]) -> Reply {
        for (index, key) in keys.iter().filter(|(index, _)| *index < DATABASES) {
            let wishes = wish::EVENTS | wish::CHANGES;
            let mut change =
                Change { db: self, index: *index, now, random: Random(0), wishes, rights: None, deadline: None };
            if change.remove(key).is_some() {
                change.changed(key, b'e', "evicted");
                self.effects.evicted += 1;
            }
        }
        Reply::OK
    }

    /// Returns databases without keys whose tables have this hash function.
    pub fn hashed(hashing: Hashing) -> Self {
        let mut db = Self::default();
        db.rehash(hashing);
        db
    }

    /// Returns the hash function of the databases' tables.
    pub fn hashing(&self) -> Hashing {
        self.hashing
    }

    /// Returns whether the databases have neither keys nor a seed of their hash function.
    pub fn takes_a_seed(&self) -> bool {
        self.hashing == Hashing::default() && self.spaces.iter().all(|space| space.keys.is_empty())
    }

    /// Changes the hash function of databases without keys.
    fn rehash(&mut self, hashing: Hashing) {
        self.hashing = hashing;
        self.spaces.iter_mut().for_each(|space| space.keys = Table::new(hashing));
    }

    /// Returns the number of changing operations that were carried out.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns how many expired keys and due fields are still in memory. If more than about a thousand hashes of a
    /// database have due fields, the fields of the other hashes are not counted. O(log n) if no key has expired and no
    /// field is due.
    pub fn expired(&self, now: u64) -> usize {
        self.spaces.iter().map(|space| space.due.count(now) + space.fields_due(now)).sum()
    }

    /// Records a change of a key for the clients that watch the key.
    pub(crate) fn touch(&mut self, index: u32, key: &[u8]) {
        if !self.watched.is_empty()
            && let Some(watch) = self.watched.get_mut(&(index, key.to_vec()))
        {
            watch.changed = self.serial;
        }
    }

    /// Returns the keys of a database that clients watch.
    pub(crate) fn watched_in(&self, index: u32) -> Vec<Vec<u8>> {
        let all = self.watched.range((index, Vec::new())..(index + 1, Vec::new()));
        all.map(|((_, key), _)| key.clone()).collect()
    }

    /// Returns a digest of all keys with their values and expiry times, in the order of the tables, of the libraries of
    /// functions, and of the number of changing operations. Equal databases have equal digests.
    pub fn digest(&self) -> u64 {
        let mut digest = 0_u64;
        let mut add = |bytes: &[u8]| {
            digest = digest.rotate_left(9).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(unseeded(bytes))
        };
        for (index, space) in self.spaces.iter().enumerate().filter(|(_, space)| !space.keys.is_empty()) {
            add(&index.to_le_bytes());
            for entry in space.keys.iter() {
                add(entry.key());
                add(&entry.expires().unwrap_or(0).to_le_bytes());
                entry.value.digest(&mut add);
            }
        }
        self.functions.digest(&mut add);
        add(&self.serial.to_le_bytes());
        digest
    }
}

impl Sequential for Db {
    type Read = Read;
    type Write = Write;
    type Response = Outcome;

    fn read(&self, operation: &Read) -> Outcome {
        Db::read(self, operation)
    }

    fn write(&mut self, operation: &Write) -> Outcome {
        Db::write(self, operation)
    }
}

impl<'d> View<'d> {
    /// Returns the database that is read.
    pub fn space(&self) -> &'d Space {
        look(&look(&self.db.spaces)[self.index as usize])
    }

    /// Returns the entry of a key. Returns `None` if the key is missing or has expired.
    pub fn find(&self, key: &[u8]) -> Option<&'d Entry> {
        self.space().keys.get(key).filter(|entry| !entry.is_dead(self.now))
    }

    /// Returns the value of a key.
    pub fn value(&self, key: &[u8]) -> Option<&'d Value> {
        self.find(key).map(|entry| &entry.value)
    }

    /// Returns the value of a key and records a use of the key.
    pub fn use_of(&self, key: &[u8]) -> Option<&'d Value> {
        let entry = self.find(key)?;
        entry.note_use(self.now, self.db.lfu, self.seed);
        Some(&entry.value)
    }

    /// Returns the bytes of a key's string.
    ///
    /// # Errors
    /// Returns an error if the key's value is not a string.
    pub fn string(&self, key: &[u8]) -> Result<Option<std::borrow::Cow<'d, [u8]>>, Fault> {
        self.use_of(key).map(|value| value.bytes().ok_or(fault::WRONG_TYPE)).transpose()
    }

    /// Returns the value of a key as a `T`.
    ///
    /// # Errors
    /// Returns an error if the key's value has another type.
    pub fn get<T: Container>(&self, key: &[u8]) -> Result<Option<&'d T>, Fault> {
        self.use_of(key).map(|value| T::of(value).ok_or(fault::WRONG_TYPE)).transpose()
    }

    /// Returns the random numbers of this operation.
    pub fn random(&self) -> Random {
        Random(self.seed)
    }
}

impl Change<'_> {
    /// Returns read access to the same database.
    pub fn view(&self) -> View<'_> {
        let &Self { ref db, index, now, ref random, rights, deadline, .. } = self;
        View { db, index, now, seed: random.0, rights, deadline }
    }

    fn space(&mut self) -> &mut Space {
        look(&self.db.spaces);
        let space = &mut self.db.spaces[self.index as usize];
        look(space);
        space
    }

    /// Returns the database, in which the caller is about to change `key`. If a snapshot is being written, the snapshot
    /// keeps the entry as it is before the change.
    fn space_for(&mut self, key: &[u8]) -> &mut Space {
        self.db.open(self.index, key);
        let space = &mut self.db.spaces[self.index as usize];
        if let Some(walk) = self.db.walker.current() {
            walk.keep(self.index, &space.keys, key);
        }
        space
    }

    /// Removes all keys of the database. Records no effect.
    pub fn clear(&mut self) {
        self.db.settle();
        let fresh = Space::new(self.db.hashing);
        let space = core::mem::replace(self.space(), fresh);
        if let Some(walk) = self.db.walker.current() {
            walk.empty(self.index, space.keys);
        }
    }

    /// Swaps two databases. Records no effect.
    pub fn swap(&mut self, one: u32, other: u32) {
        self.db.settle();
        self.db.spaces.swap(one as usize, other as usize);
        if let Some(walk) = self.db.walker.current() {
            walk.swap(one, other);
        }
    }

    /// Removes the key if it has expired. If some fields of the key's hash are due, removes some of the due fields.
    pub fn bury(&mut self, key: &[u8]) {
        let now = self.now;
        let space = self.space();
        if space.volatile > 0 && space.keys.get(key).is_some_and(|entry| entry.has_expired(now)) {
            self.remove(key);
            self.changed(key, b'x', "expired");
        } else if space.dated > 0 {
            self.bury_met(key);
        }
    }

    /// Returns the entry of a key, and records a use of the key. Returns `None` if the key is missing or has expired.
    pub fn find(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.bury(key);
        let (now, lfu, seed) = (self.now, self.db.lfu, self.random.0);
        let entry = self.space_for(key).keys.get_mut(key)?;
        entry.note_use(now, lfu, seed);
        Some(entry)
    }

    /// Returns the value of a key.
    pub fn value(&mut self, key: &[u8]) -> Option<&mut Value> {
        self.find(key).map(|entry| &mut entry.value)
    }

    /// Returns the value of a key as a `T`.
    ///
    /// # Errors
    /// Returns an error if the key's value has another type.
    pub fn get<T: Container>(&mut self, key: &[u8]) -> Result<Option<&mut T>, Fault> {
        self.value(key).map(|value| T::of_mut(value).ok_or(fault::WRONG_TYPE)).transpose()
    }

    /// Returns the value of a key as a `T`. Creates an empty `T` first if the key is missing.
    ///
    /// # Errors
    /// Returns an error if the key's value has another type.
    pub fn make<T: Container>(&mut self, key: &[u8]) -> Result<&mut T, Fault> {
        Ok(self.make_if(key, true)?.expect("it was made").0)
    }

    /// Returns the value of a key as a `T`, and whether it is new. If the key is missing, creates an empty `T` first, or
    /// returns `None` if `makes` is false.
    ///
    /// # Errors
    /// Returns an error if the key's value has another type.
    pub fn make_if<T: Container>(&mut self, key: &[u8], makes: bool) -> Result<Option<(&mut T, bool)>, Fault> {
        let is_new = self.value(key).is_none();
        if is_new && !makes {
            return Ok(None);
        }
        if is_new {
            self.set(key, T::default().into_value());
        }
        Ok(self.get(key)?.map(|value| (value, is_new)))
    }

    /// Records that a container was changed, and removes the key if the container is now empty.
    pub fn changed_container<T: Container>(&mut self, key: &[u8], class: u8, event: &'static str) {
        self.changed(key, class, event);
        if self.get::<T>(key).ok().flatten().is_some_and(|value| value.is_nothing()) {
            self.remove(key);
            self.changed(key, b'g', "del");
        }
    }

    /// Sets a key to a container, or removes the key if the container is empty. Records the change in both cases.
    pub fn store<T: Container>(&mut self, key: &[u8], value: T, class: u8, event: &'static str) {
        if !value.is_nothing() {
            self.set(key, value.into_value());
            self.changed(key, class, event);
            self.ready(key);
        } else {
            crate::family::generic::delete(self, key);
        }
    }

    /// Sets a key to a value. The key then has no expiry time. Records no change of the key. Records the event `new`
    /// for a new key. If the key's old value is a stream with consumer groups, also records that blocked clients may
    /// continue: they get an error.
    pub fn set(&mut self, key: &[u8], value: Value) {
        let (now, lfu, seed) = (self.now, self.db.lfu, self.random.0);
        let after = value.earliest();
        let space = self.space_for(key);
        match space.keys.get_mut(key) {
            Some(entry) => {
                let (hash, before, earliest) = (entry.hash(), entry.expires(), entry.value.earliest());
                let has_groups = entry.value.has_groups();
                entry.value = value;
                entry.note_use(now, lfu, seed);
                entry.set_expires(None);
                space.note_expiry(hash, before, None);
                space.note_fields(hash, earliest, after);
                if has_groups {
                    self.ready(key);
                }
            }
            None => {
                let entry = Entry::new(key, value, space.keys.hashing());
                entry.set_access(evict::born(now, lfu));
                let hash = entry.hash();
                space.keys.insert(entry);
                space.note_fields(hash, None, after);
                self.event(key, b'n', "new");
            }
        }
    }

    /// Removes a key. Records no change of the key. If its value is a stream with consumer groups, records that blocked
    /// clients may continue: they get an error.
    pub fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        let space = self.space_for(key);
        let entry = space.keys.remove(key)?;
        space.note_expiry(entry.hash(), entry.expires(), None);
        space.note_fields(entry.hash(), entry.value.earliest(), None);
        if entry.value.has_groups() {
            self.ready(key);
        }
        Some(entry)
    }

    /// Sets the expiry time of a key, if the key exists. Records no effect.
    pub fn expire_at(&mut self, key: &[u8], at: Option<u64>) {
        let space = self.space_for(key);
        if let Some(entry) = space.keys.get_mut(key) {
            let (hash, before) = (entry.hash(), entry.expires());
            entry.set_expires(at);
            let after = entry.expires();
            space.note_expiry(hash, before, after);
        }
    }

    /// Records a change of a key for the clients that watch the key, cache the key or listen to events.
    pub fn changed(&mut self, key: &[u8], class: u8, event: &'static str) {
        self.touched(key);
        self.event(key, class, event);
    }

    /// Records a change of a key for the clients that watch or cache the key. Records no event.
    pub fn touched(&mut self, key: &[u8]) {
        self.db.touch(self.index, key);
        if self.wishes & wish::CHANGES != 0 {
            self.db.effects.changed(self.index, key);
        }
    }

    /// Records an event of a key. The event does not count as a change of the key.
    pub fn event(&mut self, key: &[u8], class: u8, name: &'static str) {
        if self.wishes & wish::EVENTS != 0 {
            self.db.effects.happened(class, name, self.index, key);
        }
    }

    /// Records for the clients that cache keys that whole databases were changed.
    pub fn flushed(&mut self) {
        self.db.effects.flushed |= self.wishes & wish::CHANGES != 0;
    }

    /// Records that clients blocked on a key may continue.
    pub fn ready(&mut self, key: &[u8]) {
        self.db.effects.readied(self.index, read(key));
    }

    /// Records that clients blocked on any key of this database may continue, because all keys were replaced.
    pub fn replaced(&mut self) {
        self.db.effects.replaced |= 1 << self.index;
    }

    /// Records the error that ends the client's wait, if this operation repeats the command of a blocked client. All other
    /// errors let the client wait on, because the key may get a value of the type that the client waits for.
    pub fn unblocks(&mut self, fault: Fault) {
        self.db.effects.unblocks = Some(fault);
    }

    /// Records for the monitors (`MONITOR`) that a script calls a command.
    pub fn called(&mut self, args: &crate::args::Args) {
        if self.wishes & wish::CALLS != 0 {
            self.db.effects.called(self.index, args);
        }
    }

    /// Records a script's `PUBLISH` or `SPUBLISH`. The server sends the message when it processes the operation's
    /// effects. The answer is 0, because replicas do not know how many clients receive the message.
    pub fn publish(&mut self, args: &crate::args::Args) -> Answer {
        match self.db.effects.published(args.is(0, "SPUBLISH"), &args[1], &args[2]) {
            true => Ok(Reply::Int(0)),
            false => Err(Fault::new("ERR too many messages of one script or transaction")),
        }
    }

    /// Carries out a command that a script calls, as a part of this operation.
    pub fn run(&mut self, run: Run, args: &crate::args::Args) -> Answer {
        match run {
            Run::Read(run) => run(&self.view(), args),
            Run::Write(run) => run(self, args),
            Run::Session => Err(Fault::new("ERR not a command of the database")),
        }
    }
}

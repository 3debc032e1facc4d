//! What the function of a command gets to write: one of the databases at the operation's time, with the effects that the
//! operation records.

use archipelago_platform::sync::Arc;

use super::seen::{look, read};
use super::table::Keyed;
use super::value::{Container, Entry, Value};
use super::{Db, Random, Space, View, evict};
use crate::acl::user::User;
use crate::args::Args;
use crate::command::Run;
use crate::deadline::Deadline;
use crate::operation::wish;
use crate::reply::{Answer, Fault, Reply, fault};

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

impl Change<'_> {
    /// Returns read access to the same database.
    pub fn view(&self) -> View<'_> {
        let &Self { ref db, index, now, ref random, rights, deadline, .. } = self;
        View { db, index, now, seed: random.0, rights, deadline }
    }

    pub(super) fn space(&mut self) -> &mut Space {
        look(&self.db.spaces);
        let space = &mut self.db.spaces[self.index as usize];
        look(space);
        space
    }

    /// Returns the database, in which the caller is about to change `key`. If a snapshot is being written, the snapshot
    /// keeps the entry as it is before the change.
    pub(super) fn space_for(&mut self, key: &[u8]) -> &mut Space {
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
    pub fn called(&mut self, args: &Args) {
        if self.wishes & wish::CALLS != 0 {
            self.db.effects.called(self.index, args);
        }
    }

    /// Records a script's `PUBLISH` or `SPUBLISH`. The server sends the message when it processes the operation's
    /// effects. The answer is 0, because replicas do not know how many clients receive the message.
    pub fn publish(&mut self, args: &Args) -> Answer {
        match self.db.effects.published(args.is(0, "SPUBLISH"), &args[1], &args[2]) {
            true => Ok(Reply::Int(0)),
            false => Err(Fault::new("ERR too many messages of one script or transaction")),
        }
    }

    /// Carries out a command that a script calls, as a part of this operation.
    pub fn run(&mut self, run: Run, args: &Args) -> Answer {
        match run {
            Run::Read(run) => run(&self.view(), args),
            Run::Write(run) => run(self, args),
            Run::Session => Err(Fault::new("ERR not a command of the database")),
        }
    }
}

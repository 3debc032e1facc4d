//! The hashes of a database whose fields can expire: which fields a command sees, and when expired fields are removed.
//!
//! A field is *due* when its expiry time is not later than the operation's time. Reads and writes see no due field, and
//! they see no hash whose fields are all due. Reads remove nothing. A write removes at most [`MET`] due fields of a
//! hash each time that it looks the hash up. [`Write::Expire`](crate::operation::Write::Expire) removes the other due
//! fields, beginning with the hash whose field expired first. One operation removes at most a fixed number of them, so
//! that even a million due fields delay a client only by one such operation.
//!
//! # Invariant
//! While no hash is being changed: `Space::fields` has an item (time, name hash) if and only if a key whose name has
//! this hash stores a hash whose first field expires at this time. `Space::dated` is the number of stored hashes with
//! at least one field that expires.

use super::hash::Hash;
use super::hashing::Hashing;
use super::table::Keyed;
use super::value::{Container, Entry, Value};
use super::{Change, Space, View};
use crate::reply::Fault;

/// The most due fields of a hash that a write removes each time that it looks the hash up. A command looks a hash up a
/// few times.
pub const MET: usize = 64;
/// The most hashes whose due fields are counted.
const COUNTED: usize = 1024;

/// Returns when a field expires, in milliseconds since 1970. The outer option is `None` if the field is missing or due.
/// The inner option is `None` if the field never expires.
fn deadline(hash: &Hash, name: &[u8], now: u64) -> Option<Option<u64>> {
    let (_, at) = hash.find(name)?;
    match at {
        0 => Some(None),
        _ => (at > now).then_some(Some(at)),
    }
}

/// Read access to the fields of a hash that are not due.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'h> {
    /// The hash.
    pub hash: &'h Hash,
    now: u64,
}

impl<'h> Fields<'h> {
    /// Returns the value of a field. Returns `None` if the field is missing or due.
    pub fn get(&self, name: &[u8]) -> Option<&'h [u8]> {
        self.hash.find(name).filter(|(_, at)| *at == 0 || *at > self.now).map(|(value, _)| value)
    }

    /// Returns the number of fields that are not due.
    pub fn len(&self) -> usize {
        self.hash.len() - self.hash.due(self.now)
    }

    /// Returns whether the hash has no field that is not due.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns name and value of the field with this index in the order of [`iter`](Self::iter).
    pub fn nth(&self, index: usize) -> Option<(&'h [u8], &'h [u8])> {
        match self.hash {
            Hash::Table(table) => table.nth(index).map(|field| (field.key(), field.value())),
            Hash::Many(many) if self.hash.due(self.now) == 0 => {
                many.table.nth(index).map(|field| (field.key(), field.value()))
            }
            _ => self.iter().nth(index),
        }
    }

    /// Returns names and values of the fields that are not due.
    pub fn iter(&self) -> impl Iterator<Item = (&'h [u8], &'h [u8])> + use<'h> {
        let now = self.now;
        self.hash.iter().filter(move |(.., at)| *at == 0 || *at > now).map(|(name, value, _)| (name, value))
    }

    /// Returns when a field expires, in milliseconds since 1970. The outer option is `None` if the field is missing or
    /// due. The inner option is `None` if the field never expires.
    pub fn deadline(&self, name: &[u8]) -> Option<Option<u64>> {
        deadline(self.hash, name, self.now)
    }
}

/// Write access to the fields of a hash that are not due.
#[derive(Debug)]
pub struct Live<'h> {
    hash: &'h mut Hash,
    hashing: Hashing,
    /// The time of the operation, in milliseconds since 1970.
    pub now: u64,
}

impl Live<'_> {
    /// Returns the value of a field. Returns `None` if the field is missing or due.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        Fields { hash: self.hash, now: self.now }.get(name)
    }

    /// Returns when a field expires, in milliseconds since 1970. The outer option is `None` if the field is missing or
    /// due. The inner option is `None` if the field never expires.
    pub fn deadline(&self, name: &[u8]) -> Option<Option<u64>> {
        deadline(self.hash, name, self.now)
    }

    /// Sets the value of a field. An existing field keeps its expiry time. Returns whether the field is new.
    pub fn keep(&mut self, name: &[u8], value: &[u8]) -> bool {
        // Most hashes have no expiry times.
        if self.hash.earliest().is_none() {
            return self.hash.set(name, value, self.hashing);
        }
        let new = self.deadline(name).is_none();
        self.hash.set(name, value, self.hashing);
        if new {
            self.hash.expire_at(name, None);
        }
        new
    }

    /// Sets the value of a field, which then never expires. Returns whether the field is new.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> bool {
        let new = self.keep(name, value);
        self.hash.expire_at(name, None);
        new
    }

    /// Removes a field. Returns whether the field existed and was not due.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let due = self.hash.earliest().is_some() && self.deadline(name).is_none();
        self.hash.remove(name) && !due
    }

    /// If the field exists, sets its expiry time in milliseconds since 1970. With `None` the field never expires.
    pub fn expire_at(&mut self, name: &[u8], at: Option<u64>) {
        self.hash.expire_at(name, at);
    }
}

impl<'d> View<'d> {
    /// Returns the fields of a key's hash.
    ///
    /// # Errors
    /// Returns an error if the key's value has another type.
    pub fn fields(&self, key: &[u8]) -> Result<Option<Fields<'d>>, Fault> {
        Ok(self.get::<Hash>(key)?.map(|hash| Fields { hash, now: self.now }))
    }

    /// Returns the fields of a value, if the value is a hash.
    pub fn fields_of(&self, value: &'d Value) -> Option<Fields<'d>> {
        if let Value::Hash(hash) = value { Some(Fields { hash, now: self.now }) } else { None }
    }
}

impl Change<'_> {
    /// Calls `work` with the fields of a key's hash, if the key exists. Records no effect. The caller removes the key
    /// if the hash has no fields afterwards.
    ///
    /// # Errors
    /// Returns an error if the key's value has another type.
    pub fn fields<R>(&mut self, key: &[u8], work: impl FnOnce(&mut Live<'_>) -> R) -> Result<Option<R>, Fault> {
        let (now, hashing) = (self.now, self.db.hashing);
        let Some(hash) = self.get::<Hash>(key)? else { return Ok(None) };
        let before = hash.earliest();
        let result = work(&mut Live { hash, hashing, now });
        let after = hash.earliest();
        self.note_fields(key, before, after);
        Ok(Some(result))
    }

    /// Calls `work` with the fields of a key's hash. Creates an empty hash first if the key is missing. Records no
    /// change of the key.
    ///
    /// # Errors
    /// Returns an error if the key's value has another type.
    pub fn make_fields<R>(&mut self, key: &[u8], work: impl FnOnce(&mut Live<'_>) -> R) -> Result<R, Fault> {
        if self.value(key).is_none() {
            self.set(key, Hash::default().into_value());
        }
        Ok(self.fields(key, work)?.expect("it was made"))
    }

    fn note_fields(&mut self, key: &[u8], before: Option<u64>, after: Option<u64>) {
        if before != after {
            let space = self.space();
            space.note_fields(space.keys.hash(key), before, after);
        }
    }

    /// Removes at most `most` due fields of a key's hash, and the key if no field is left. Returns how many fields were
    /// removed.
    pub(super) fn bury_fields(&mut self, key: &[u8], most: usize) -> usize {
        let now = self.now;
        let is_due = |entry: &Entry| entry.value.earliest().is_some_and(|at| at <= now);
        if most == 0 || !self.space().keys.get(key).is_some_and(is_due) {
            return 0;
        }
        let Some(entry) = self.space_for(key).keys.get_mut(key) else { return 0 };
        let Value::Hash(hash) = &mut entry.value else { return 0 };
        let before = hash.earliest();
        let removed = hash.take_due(now, most);
        let (after, is_empty) = (hash.earliest(), hash.is_empty());
        self.note_fields(key, before, after);
        self.changed(key, b'h', "hexpired");
        if is_empty {
            self.remove(key);
            self.changed(key, b'g', "del");
        }
        removed
    }

    /// Removes due fields of a key's hash because a write looks the key up. Removes the key if all fields are due.
    pub(super) fn bury_met(&mut self, key: &[u8]) {
        let now = self.now;
        let is_spent = self.space().keys.get(key).is_some_and(|entry| entry.is_dead(now));
        self.bury_fields(key, MET);
        if is_spent && self.remove(key).is_some() {
            self.changed(key, b'g', "del");
        }
    }
}

impl Space {
    /// Updates the index of expiry times for a key whose name has the hash `hash`. The first field of the key's value
    /// now expires at `after`. Before the change, it expired at `before`. The caller has already changed the value.
    pub(super) fn note_fields(&mut self, hash: u32, before: Option<u64>, after: Option<u64>) {
        if before == after {
            return;
        }
        if let Some(at) = before {
            self.dated -= 1;
            if !self.keys.with_hash(hash).any(|entry| entry.value.earliest() == Some(at)) {
                self.fields.remove(at, hash);
            }
        }
        if let Some(at) = after {
            self.dated += 1;
            self.fields.insert(at, hash);
        }
    }

    fn hashes_due(&self, now: u64, most: usize) -> Vec<&Entry> {
        let mut entries = Vec::new();
        self.fields.visit(now, most, |at, hash| {
            entries.extend(self.keys.with_hash(hash).filter(|entry| entry.value.earliest() == Some(at)));
        });
        entries
    }

    /// Returns the keys of hashes with due fields, beginning with the earliest expiry time. Looks at no more than
    /// `most` items of the index.
    pub(super) fn keys_of_due_fields(&self, now: u64, most: usize) -> Vec<Vec<u8>> {
        self.hashes_due(now, most).iter().map(|entry| entry.key().to_vec()).collect()
    }

    /// Returns how many fields are due. If more than a thousand hashes have due fields, only the fields of a thousand
    /// hashes count. O(log n) if no field is due.
    pub(super) fn fields_due(&self, now: u64) -> usize {
        self.hashes_due(now, COUNTED).iter().map(|entry| entry.value.due(now)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::tests::change;
    use super::super::{Db, Random};
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_is_noted_is_what_the_hashes_say() {
        let (mut db, mut random, mut most) = (Db::hashed(Hashing::seeded(5)), Random(11), 0);
        for now in 0..20_000 {
            db.write(&change(&mut random, now));
            if now % 20 == 0 {
                for space in &db.spaces {
                    let said = space.keys.iter().filter_map(|entry| Some((entry.value.earliest()?, entry.hash())));
                    let said: Vec<(u64, u32)> = said.collect();
                    assert_eq!(said.len(), space.dated);
                    let mut noted = BTreeSet::new();
                    space.fields.visit(u64::MAX, usize::MAX, |at, hash| _ = noted.insert((at, hash)));
                    assert_eq!(said.into_iter().collect::<BTreeSet<_>>(), noted);
                    most = most.max(noted.len());
                }
            }
        }
        assert!(most > 10, "{most}");
    }
}

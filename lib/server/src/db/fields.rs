//! Hashes of a database, whose fields may be due: what a command sees of one, and how those that are due go.
//!
//! A field that is due is invisible to reads and writes at once, as by the operation's time, and so is a hash of which all
//! fields are. Reads remove nothing. A write takes at most [`MET`] fields out that are due, each time that it looks the hash up;
//! [`Write::Expire`](crate::operation::Write::Expire) takes the others, those of the hashes first whose fields are due first,
//! at most a fixed number in one operation: a million due fields delay no client by more than that.
//!
//! # Invariant
//! While no hash is being changed, there is an item (time, hash) in `Space::fields` if and only if a key with this hash has a
//! hash whose first field expires at this time, and `Space::dated` is the number of hashes of which fields expire.

use super::hash::Hash;
use super::table::{Keyed, hash};
use super::value::{Entry, Kind, Value};
use super::{Change, Space, View};
use crate::reply::Fault;

/// The most fields that a write takes out of a hash since they are due, each time that it looks the hash up: a few times.
pub const MET: usize = 64;
/// The most hashes and fields that are counted as due.
const COUNTED: usize = 1024;

/// When a field expires: nothing, if the field is not there or is due; else, perhaps never.
fn deadline(hash: &Hash, name: &[u8], now: u64) -> Option<Option<u64>> {
    let (_, at) = hash.find(name)?;
    match at {
        0 => Some(None),
        _ => (at > now).then_some(Some(at)),
    }
}

/// The fields of a hash that are not due.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'h> {
    /// The hash.
    pub hash: &'h Hash,
    now: u64,
}

impl<'h> Fields<'h> {
    /// A field's value.
    pub fn get(&self, name: &[u8]) -> Option<&'h [u8]> {
        self.hash.find(name).filter(|(_, at)| *at == 0 || *at > self.now).map(|(value, _)| value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.hash.len() - self.hash.due(self.now)
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fields and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'h [u8], &'h [u8])> + use<'h> {
        let now = self.now;
        self.hash.iter().filter(move |(.., at)| *at == 0 || *at > now).map(|(name, value, _)| (name, value))
    }

    /// When a field expires, in milliseconds since 1970: nothing, if it is not there; else, perhaps never.
    pub fn deadline(&self, name: &[u8]) -> Option<Option<u64>> {
        deadline(self.hash, name, self.now)
    }
}

/// The fields of a hash that are not due, to be changed.
#[derive(Debug)]
pub struct Live<'h> {
    hash: &'h mut Hash,
    /// Milliseconds since 1970.
    pub now: u64,
}

impl Live<'_> {
    /// A field's value.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        Fields { hash: self.hash, now: self.now }.get(name)
    }

    /// When a field expires, in milliseconds since 1970: nothing, if it is not there; else, perhaps never.
    pub fn deadline(&self, name: &[u8]) -> Option<Option<u64>> {
        deadline(self.hash, name, self.now)
    }

    /// Sets a field, which expires as before if it is there. Returns whether it was not.
    pub fn keep(&mut self, name: &[u8], value: &[u8]) -> bool {
        // Most hashes have no times.
        if self.hash.earliest().is_none() {
            return self.hash.set(name, value);
        }
        let new = self.deadline(name).is_none();
        self.hash.set(name, value);
        if new {
            self.hash.expire_at(name, None);
        }
        new
    }

    /// Sets a field, which then never expires. Returns whether it was not there.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> bool {
        let new = self.keep(name, value);
        self.hash.expire_at(name, None);
        new
    }

    /// Takes a field out. Returns whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let due = self.hash.earliest().is_some() && self.deadline(name).is_none();
        self.hash.remove(name) && !due
    }

    /// Sets when a field expires, in milliseconds since 1970, if it is there.
    pub fn expire_at(&mut self, name: &[u8], at: Option<u64>) {
        self.hash.expire_at(name, at);
    }
}

impl<'d> View<'d> {
    /// The fields of a key's hash.
    ///
    /// # Errors
    /// If the key is of another type.
    pub fn fields(&self, key: &[u8]) -> Result<Option<Fields<'d>>, Fault> {
        Ok(self.get::<Hash>(key)?.map(|hash| Fields { hash, now: self.now }))
    }

    /// The fields of a value, if it is a hash.
    pub fn fields_of(&self, value: &'d Value) -> Option<Fields<'d>> {
        if let Value::Hash(hash) = value { Some(Fields { hash, now: self.now }) } else { None }
    }
}

impl Change<'_> {
    /// Changes the fields of a key's hash, if there is one. Tells nothing, and leaves a hash without fields to its caller.
    ///
    /// # Errors
    /// If the key is of another type.
    pub fn fields<R>(&mut self, key: &[u8], work: impl FnOnce(&mut Live<'_>) -> R) -> Result<Option<R>, Fault> {
        let now = self.now;
        let Some(hash) = self.get::<Hash>(key)? else { return Ok(None) };
        let before = hash.earliest();
        let result = work(&mut Live { hash, now });
        let after = hash.earliest();
        self.note_fields(key, before, after);
        Ok(Some(result))
    }

    /// Changes the fields of a key's hash: of a new one, if the key is not there. Tells nothing.
    ///
    /// # Errors
    /// If the key is of another type.
    pub fn make_fields<R>(&mut self, key: &[u8], work: impl FnOnce(&mut Live<'_>) -> R) -> Result<R, Fault> {
        if self.value(key).is_none() {
            self.set(key, Hash::default().into_value());
        }
        Ok(self.fields(key, work)?.expect("it was made"))
    }

    fn note_fields(&mut self, key: &[u8], before: Option<u64>, after: Option<u64>) {
        if before != after {
            self.space().note_fields(hash(key), before, after);
        }
    }

    /// Takes at most `most` fields of a key's hash out that are due, and the key if no field is left. Returns how many.
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

    /// Removes fields of a key's hash that are due, since a write meets it: the key, if all are.
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
    /// Notes that a key with this hash has a hash whose first field expires at `after`, and before at `before`: when its
    /// entry says so already.
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

    /// The keys of hashes of which fields are due, those whose fields are due first: of at most `most` times.
    pub(super) fn keys_of_due_fields(&self, now: u64, most: usize) -> Vec<Vec<u8>> {
        self.hashes_due(now, most).iter().map(|entry| entry.key().to_vec()).collect()
    }

    /// How many fields are due; of more than a thousand hashes, those of a thousand. O(log n) if there is none.
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
        let (mut db, mut random, mut most) = (Db::default(), Random(11), 0);
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

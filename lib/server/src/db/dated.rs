//! Hashes with fields that expire. A small hash is a pack with a list of expiry times. A large hash is a table, with
//! the expiry times in a second table and in a tree beside it.
//!
//! A hash has one of these forms while at least one of its fields has an expiry time. All other hashes use no memory
//! for expiry times. The change of form is O(1) for a table, because the table is moved and not copied. The first
//! expiry time in a large hash therefore delays no client.
//!
//! # Invariants
//! - `Few::at` has one expiry time for each field of the pack, in the order of the fields. 0 means that the field never
//!   expires.
//! - `Many::due` has exactly the pairs (time, name) of the entries in `Many::times`. Each of these names is a field of
//!   the table.

use super::hash::{Field, pairs, remove_packed, set_packed, spot, table_of};
use super::hashing::Hashing;
use super::pack::Pack;
use super::small::Small;
use super::table::{Keyed, Table};
use super::tree::Tree;

fn is_due(at: u64, now: u64) -> bool {
    at != 0 && at <= now
}

/// A small hash of which at least one field may expire.
#[derive(Clone, Debug)]
pub struct Few {
    pub(super) pack: Pack,
    at: Vec<u64>,
}

impl Few {
    /// Returns a hash with the fields of a pack, none of which expires.
    pub(super) fn new(pack: Pack) -> Self {
        let at = vec![0; pack.len() / 2];
        Self { pack, at }
    }

    /// Returns the number of fields.
    pub(super) fn len(&self) -> usize {
        self.at.len()
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<(&[u8], u64)> {
        spot(&self.pack, name).map(|spot| (self.pack.at(spot.value).0, self.at[spot.index]))
    }

    pub(super) fn set(&mut self, name: &[u8], value: &[u8]) -> Option<bool> {
        let new = set_packed(&mut self.pack, name, value)?;
        if new {
            self.at.reserve_exact(1);
            self.at.push(0);
        }
        Some(new)
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        remove_packed(&mut self.pack, name).map(|index| self.at.remove(index)).is_some()
    }

    pub(super) fn expire_at(&mut self, name: &[u8], at: u64) {
        if let Some(spot) = spot(&self.pack, name) {
            self.at[spot.index] = at;
        }
    }

    /// Returns names, values and expiry times. 0 means that the field never expires.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], u64)> {
        pairs(&self.pack).zip(&self.at).map(|((name, value), at)| (name, value, *at))
    }

    pub(super) fn earliest(&self) -> Option<u64> {
        self.at.iter().copied().filter(|at| *at != 0).min()
    }

    pub(super) fn due(&self, now: u64) -> usize {
        self.at.iter().filter(|at| is_due(**at, now)).count()
    }

    pub(super) fn names_due(&self, now: u64, most: usize) -> Vec<Small> {
        let due = self.iter().filter(|(.., at)| is_due(*at, now));
        due.take(most).map(|(name, ..)| name.into()).collect()
    }

    pub(super) fn estimate(&self) -> usize {
        size_of::<Self>() + self.pack.size() + self.at.len() * size_of::<u64>()
    }
}

/// The expiry time of a field.
#[derive(Clone, Debug)]
pub(super) struct Deadline {
    name: Small,
    at: u64,
    hash: u32,
}

impl Keyed for Deadline {
    fn key(&self) -> &[u8] {
        &self.name
    }

    fn hash(&self) -> u32 {
        self.hash
    }

    fn heap(&self) -> usize {
        self.name.heap()
    }
}

/// A large hash of which at least one field may expire.
#[derive(Clone, Debug)]
pub struct Many {
    pub(super) table: Table<Field>,
    times: Table<Deadline>,
    due: Tree<(u64, Small)>,
}

impl Many {
    /// Returns a hash with the fields of a table, none of which expires. O(1).
    pub(super) fn new(table: Table<Field>) -> Self {
        Self { times: Table::new(table.hashing()), table, due: Tree::default() }
    }

    /// Returns a large hash with the fields and expiry times of a small hash.
    pub(super) fn of(few: &Few, hashing: Hashing) -> Self {
        let mut many = Self::new(table_of(&few.pack, hashing));
        few.iter().filter(|(.., at)| *at != 0).for_each(|(name, _, at)| many.expire_at(name, at));
        many
    }

    /// Returns the table of fields and values.
    pub fn table(&self) -> &Table<Field> {
        &self.table
    }

    /// Returns the table of expiry times.
    #[cfg(test)]
    pub(super) fn times(&self) -> &Table<Deadline> {
        &self.times
    }

    fn at(&self, name: &[u8]) -> u64 {
        self.times.get(name).map_or(0, |deadline| deadline.at)
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<(&[u8], u64)> {
        self.table.get(name).map(|field| (field.value(), self.at(name)))
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> bool {
        self.forget(name);
        self.table.remove(name).is_some()
    }

    fn forget(&mut self, name: &[u8]) {
        if let Some(Deadline { name, at, .. }) = self.times.remove(name) {
            self.due.remove(&(at, name));
        }
    }

    pub(super) fn expire_at(&mut self, name: &[u8], at: u64) {
        self.forget(name);
        if at != 0 && self.table.contains(name) {
            self.times.insert(Deadline { name: name.into(), at, hash: self.times.hash(name) });
            self.due.insert((at, name.into()));
        }
    }

    /// Returns names, values and expiry times. 0 means that the field never expires. One pass is enough, because both
    /// tables are sorted by the hashes of the names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], u64)> {
        let mut times = self.times.iter().peekable();
        self.table.iter().map(move |field| {
            let at = times.next_if(|deadline| deadline.key() == field.key()).map_or(0, |deadline| deadline.at);
            (field.key(), field.value(), at)
        })
    }

    pub(super) fn earliest(&self) -> Option<u64> {
        let mut first = None;
        self.due.visit(0, 1, |(at, _)| first = Some(*at));
        first
    }

    pub(super) fn due(&self, now: u64) -> usize {
        self.due.rank(|(at, _)| *at <= now)
    }

    pub(super) fn names_due(&self, now: u64, most: usize) -> Vec<Small> {
        let mut names = Vec::new();
        self.due.visit(0, most.min(self.due(now)), |(_, name)| names.push(name.clone()));
        names
    }

    /// Returns the approximate size in bytes. A long name is counted three times, because it is stored three times.
    pub(super) fn estimate(&self) -> usize {
        self.table.estimate() + self.times.estimate() + self.times.heap() + self.due.estimate()
    }
}

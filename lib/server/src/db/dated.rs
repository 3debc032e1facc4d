//! Hashes of which fields expire: small ones in a pack with a list of times, large ones in a table with the times beside it.
//!
//! A hash has one of these forms as long as one of its fields has a time, and no longer: other hashes have no room for times. To
//! come and to go costs O(1) for a table, which moves, so that the first time in a large hash makes no client wait.
//!
//! # Invariants
//! - `Few::at` has one time for each field of the pack, in its order; 0: the field never expires.
//! - `Many::due` has (time, name) of each entry of `Many::times`, and no other; each of them is a field of the table.

use super::hash::{Field, pairs, remove_packed, set_packed, spot, table_of};
use super::pack::Pack;
use super::small::Small;
use super::table::{Keyed, Table, hash};
use super::tree::Tree;

fn is_due(at: u64, now: u64) -> bool {
    at != 0 && at <= now
}

/// A small hash of which fields expire.
#[derive(Clone, Debug)]
pub struct Few {
    pub(super) pack: Pack,
    at: Vec<u64>,
}

impl Few {
    /// Of a pack, of which no field expires yet.
    pub(super) fn new(pack: Pack) -> Self {
        let at = vec![0; pack.len() / 2];
        Self { pack, at }
    }

    /// How many fields there are.
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

    /// Fields, values and times; 0: never.
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

/// When a field expires.
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

/// A large hash of which fields expire.
#[derive(Clone, Debug)]
pub struct Many {
    pub(super) table: Table<Field>,
    times: Table<Deadline>,
    due: Tree<(u64, Small)>,
}

impl Many {
    /// Of a table, of which no field expires yet. O(1).
    pub(super) fn new(table: Table<Field>) -> Self {
        Self { table, times: Table::default(), due: Tree::default() }
    }

    /// Of a small one.
    pub(super) fn of(few: &Few) -> Self {
        let mut many = Self::new(table_of(&few.pack));
        few.iter().filter(|(.., at)| *at != 0).for_each(|(name, _, at)| many.expire_at(name, at));
        many
    }

    /// The fields and values.
    pub fn table(&self) -> &Table<Field> {
        &self.table
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
            self.times.insert(Deadline { name: name.into(), at, hash: hash(name) });
            self.due.insert((at, name.into()));
        }
    }

    /// Fields, values and times; 0: never. Both tables are in the same order.
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

    /// Long names are there three times.
    pub(super) fn estimate(&self) -> usize {
        self.table.estimate() + self.times.estimate() + self.times.heap() + self.due.estimate()
    }
}

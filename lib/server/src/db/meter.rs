//! Counts the memory that entries take, change by change, for `maxmemory`.
//!
//! The count follows from the entries alone: it adds their sizes and the average overhead of tables and trees for this
//! number of entries. It does not ask the allocator. All replicas, and a database that is read from a snapshot,
//! therefore have equal counts. Counting begins with [`Write::Meter`](crate::operation::Write::Meter), which first
//! counts everything once.
//!
//! # Invariant
//! While counting is on and no key is *open*, `Space::heap` is the sum of [`Value::heap`] over the entries of the
//! space. A key is opened before it is changed ([`Db::open`]): its current size is recorded. The key is settled when
//! the next key is opened, or at the end of the operation: the difference to the recorded size is counted.

use super::seen::look;
use super::set::Set;
use super::small::Small;
use super::table::Keyed;
use super::value::{Entry, Value};
use super::zset::Zset;
use super::{Db, Space};

/// Bytes of an entry in its table, including the table's empty slots.
const SLOT: usize = size_of::<Option<Entry>>() * 5 / 4;
/// Bytes of an expiry time in its tree.
const DUE: usize = 24;

/// Whether memory is counted, and the open key: its database, its name, and its size in bytes before the change.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    on: bool,
    open: Option<(u32, Small, usize)>,
}

impl Value {
    /// Returns the approximate number of bytes on the heap. O(1).
    pub fn heap(&self) -> usize {
        match self {
            Self::Int(_) => 0,
            Self::Str(bytes) => bytes.heap(),
            Self::Raw(bytes) => size_of::<Vec<u8>>() + bytes.len(),
            Self::List(list) => 80 + list.size(),
            Self::Hash(hash) => hash.estimate(),
            Self::Set(set) => match set {
                Set::Integers(integers) => integers.size(),
                Set::Table(table) => table.estimate(),
            },
            Self::Zset(zset) => match &**zset {
                Zset::Packed(pack) => size_of::<Zset>() + pack.size(),
                Zset::Large { table, tree } => table.estimate() + tree.estimate(),
            },
            Self::Stream(stream) => stream.estimate(),
        }
    }
}

impl Entry {
    /// Returns the approximate size of a key with its value in bytes. O(1).
    pub fn weight(&self) -> usize {
        let times = usize::from(self.expires().is_some()) + usize::from(self.value.earliest().is_some());
        SLOT + self.heap() + self.value.heap() + times * DUE
    }
}

impl Space {
    /// Returns the approximate size of all keys and values in bytes. O(keys). While memory is counted, [`Db::used`]
    /// includes this figure, without adding up the keys.
    pub fn weight(&self) -> usize {
        self.keys.iter().map(Entry::weight).sum()
    }

    /// Returns the approximate size of the keys and values in bytes, as counted so far.
    fn used(&self) -> usize {
        self.keys.len() * SLOT + self.keys.heap() + (self.volatile + self.dated) * DUE + self.heap
    }
}

impl Db {
    /// Returns the approximate size of all keys, values and libraries of one replica in bytes. Returns 0 before
    /// counting begins.
    pub fn used(&self) -> usize {
        if self.meter.on { self.spaces.iter().map(Space::used).sum::<usize>() + self.functions.bytes() } else { 0 }
    }

    /// Returns whether memory is counted.
    pub(crate) fn counts(&self) -> bool {
        self.meter.on
    }

    /// Begins to count, and counts all that exists. O(keys).
    pub(super) fn begin_to_count(&mut self) {
        self.meter = Meter { on: true, open: None };
        for space in &mut self.spaces {
            space.heap = space.keys.iter().map(|entry| entry.value.heap()).sum();
        }
    }

    fn heap_of(&self, index: u32, key: &[u8]) -> usize {
        self.spaces[index as usize].keys.get(key).map_or(0, |entry| entry.value.heap())
    }

    /// Records the size of a key that is about to be changed.
    pub(super) fn open(&mut self, index: u32, key: &[u8]) {
        if !look(&self.meter.on) || self.meter.open.as_ref().is_some_and(|(at, open, _)| (*at, &**open) == (index, key))
        {
            return;
        }
        self.settle();
        self.meter.open = Some((index, key.into(), self.heap_of(index, key)));
    }

    /// Counts the difference between the open key's size and the recorded size.
    pub(super) fn settle(&mut self) {
        if let Some((index, key, before)) = self.meter.open.take() {
            let after = self.heap_of(index, &key);
            let space = &mut self.spaces[index as usize];
            space.heap = space.heap + after - before;
        }
    }

    /// Asserts that the running count equals a fresh count of all entries.
    #[cfg(test)]
    pub(super) fn check_count(&self) {
        let mut counted = self.clone();
        counted.begin_to_count();
        assert_eq!(counted.used(), self.used());
    }
}

#[cfg(test)]
mod tests {
    use super::super::Random;
    use super::super::functions::Functions;
    use super::super::walk::tests::change;
    use super::*;
    use crate::db::image;
    use crate::operation::{Input, Write};

    #[test]
    fn what_is_counted_is_what_the_entries_take() {
        let (mut db, mut random) = (Db::default(), Random(2));
        for now in 0..12_000 {
            if now == 1_000 {
                assert_eq!(db.used(), 0);
                db.write(&Write::Meter { lfu: false });
            }
            let change = change(&mut random, now);
            db.write(&change);
            if now > 1_000 && now % 7 == 0 {
                db.check_count();
            }
        }
        assert!(db.used() > 0);
        for entry in db.spaces.iter().flat_map(|space| space.keys.iter()) {
            if let Value::Stream(stream) = &entry.value {
                stream.check_sums();
            }
            let mut bytes = Vec::new();
            image::put_entry(0, entry, &mut bytes);
            let (_, read) = image::entry(&mut Input(&bytes), db.hashing).unwrap();
            assert_eq!(read.weight(), entry.weight(), "{entry:?}");
        }
        assert_eq!(db.spaces.iter().map(Space::weight).sum::<usize>() + db.functions.bytes(), db.used());
        assert!(db.functions.bytes() > 0);
        db.functions = Functions::default();
        db.spaces.iter_mut().for_each(|space| *space = Space::new(Default::default()));
        assert_eq!(db.used(), 0);
    }
}

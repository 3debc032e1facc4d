//! What entries take of memory, counted change by change: for `maxmemory`.
//!
//! Counted is what follows from the entries (their sizes, and what tables and trees take for that many, on average), not what an
//! allocator has: so all replicas, and a database read from a snapshot, count alike. Nothing is counted until
//! [`Write::Meter`](crate::operation::Write::Meter) says so, which then counts all once.
//!
//! # Invariant
//! While counting is on and no key is open, `Space::heap` is the sum of [`Value::heap`] over the space's entries. A key is opened
//! before it is changed ([`Db::open`]), with what it took; it is settled when the next one is opened, or at the operation's end.

use super::seen::look;
use super::set::Set;
use super::small::Small;
use super::table::Keyed;
use super::value::{Entry, Value};
use super::zset::Zset;
use super::{Db, Space};

/// Bytes of an entry in its table, with what the table leaves empty.
const SLOT: usize = size_of::<Option<Entry>>() * 5 / 4;
/// Bytes of a time to expire at in its tree.
const DUE: usize = 24;

/// Whether memory is counted, and the key that is being changed: its database, and what it took before.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    on: bool,
    open: Option<(u32, Small, usize)>,
}

impl Value {
    /// Bytes on the heap, about. O(1).
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
    /// Bytes of a key with its value, about. O(1).
    pub fn weight(&self) -> usize {
        let times = usize::from(self.expires().is_some()) + usize::from(self.value.earliest().is_some());
        SLOT + self.heap() + self.value.heap() + times * DUE
    }
}

impl Space {
    /// Bytes of all keys and values, about. O(keys): [`Db::used`] knows them where they are counted.
    pub fn weight(&self) -> usize {
        self.keys.iter().map(Entry::weight).sum()
    }

    /// Bytes of the keys and values, about.
    fn used(&self) -> usize {
        self.keys.len() * SLOT + self.keys.heap() + (self.volatile + self.dated) * DUE + self.heap
    }
}

impl Db {
    /// Bytes of all keys and values, and of libraries, about: on one replica. 0 until they are counted.
    pub fn used(&self) -> usize {
        if self.meter.on { self.spaces.iter().map(Space::used).sum::<usize>() + self.functions.bytes() } else { 0 }
    }

    /// Returns whether memory is counted.
    pub(crate) fn counts(&self) -> bool {
        self.meter.on
    }

    /// Begins to count, with all that is there. O(keys).
    pub(super) fn begin_to_count(&mut self) {
        self.meter = Meter { on: true, open: None };
        for space in &mut self.spaces {
            space.heap = space.keys.iter().map(|entry| entry.value.heap()).sum();
        }
    }

    fn heap_of(&self, index: u32, key: &[u8]) -> usize {
        self.spaces[index as usize].keys.get(key).map_or(0, |entry| entry.value.heap())
    }

    /// Notes what a key takes that is about to be changed.
    pub(super) fn open(&mut self, index: u32, key: &[u8]) {
        if !look(&self.meter.on) || self.meter.open.as_ref().is_some_and(|(at, open, _)| (*at, &**open) == (index, key))
        {
            return;
        }
        self.settle();
        self.meter.open = Some((index, key.into(), self.heap_of(index, key)));
    }

    /// Counts what the open key takes more or less than before.
    pub(super) fn settle(&mut self) {
        if let Some((index, key, before)) = self.meter.open.take() {
            let after = self.heap_of(index, &key);
            let space = &mut self.spaces[index as usize];
            space.heap = space.heap + after - before;
        }
    }

    /// Compares what was counted with the entries.
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
    use crate::operation::Write;

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
        assert_eq!(db.spaces.iter().map(Space::weight).sum::<usize>() + db.functions.bytes(), db.used());
        assert!(db.functions.bytes() > 0);
        db.functions = Functions::default();
        db.spaces.iter_mut().for_each(|space| *space = Space::default());
        assert_eq!(db.used(), 0);
    }
}

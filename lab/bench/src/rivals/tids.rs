//! A radix tree whose memory is counted as that of the ARTs in HydraList's thesis (§4.5.3, memory).
//!
//! The slots of the thesis's trees have identifiers of tuples: in its program these are the addresses of the benchmark's
//! own keys, which all its indexes share. [`Art`] has a leaf for each key instead, with a copy of the key and its value.
//! This contender is `Art`, and tells how many bytes its leaves have. They stand for the tuples, which are no memory of
//! an index. A look-up reads a tuple in the thesis's program as it reads a leaf here, so look-ups and scans are those of
//! `Art`. Threads that insert or remove keys meet at the counter.

use archipelago_index::art::ArtSession;
use archipelago_index::{Art, Encode, Form, FormKind, OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::pad::CachePadded;

use crate::contender::BenchIndex;
use crate::keys::BenchKey;

/// A map from `K` to `u64`.
pub struct Tids<K: BenchKey> {
    tree: Art<K, u64>,
    /// The bytes of the tree's leaves.
    leaves: CachePadded<AtomicUsize>,
}

/// A thread's access to the map.
pub struct Session<'t, K: BenchKey> {
    tree: ArtSession<'t, K, u64>,
    leaves: &'t AtomicUsize,
}

/// Returns the bytes of a key's leaf in [`Art`].
fn leaf<K: BenchKey>(key: &K) -> usize {
    match <K as Encode>::Form::KIND {
        FormKind::Word => 16,
        FormKind::Bytes => 12 + key.with_raw(<[u8]>::len),
    }
}

impl<K: BenchKey> BenchIndex<K> for Tids<K> {
    fn empty() -> Self {
        Tids { tree: Art::new(), leaves: CachePadded::new(AtomicUsize::new(0)) }
    }

    fn tuples(&self) -> usize {
        self.leaves.load(Ordering::Relaxed)
    }
}

impl<K: BenchKey> OrderedIndex<K, u64> for Tids<K> {
    type Session<'a> = Session<'a, K>;

    fn pin(&self) -> Session<'_, K> {
        Session { tree: self.tree.pin(), leaves: &self.leaves }
    }

    fn quiesce(&self) {
        self.tree.quiesce();
    }
}

impl<K: BenchKey> OrderedSession<K, u64> for Session<'_, K> {
    fn get(&self, key: &K) -> Option<u64> {
        self.tree.get(key)
    }

    fn insert(&self, key: &K, value: u64) -> Option<u64> {
        let old = OrderedSession::insert(&self.tree, key, value);
        if old.is_none() {
            self.leaves.fetch_add(leaf(key), Ordering::Relaxed);
        }
        old
    }

    fn replace(&self, key: &K, value: u64) -> Option<u64> {
        self.tree.replace(key, value)
    }

    fn update(&self, key: &K, f: impl FnMut(&u64) -> u64) -> Option<u64> {
        self.tree.update(key, f)
    }

    fn remove(&self, key: &K) -> Option<u64> {
        let old = self.tree.remove(key);
        if old.is_some() {
            self.leaves.fetch_sub(leaf(key), Ordering::Relaxed);
        }
        old
    }

    fn scan(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &u64)) -> usize {
        self.tree.scan(from, limit, visit)
    }

    fn scan_rev(&self, from: &K, limit: usize, visit: impl FnMut(K::Ref<'_>, &u64)) -> Option<usize> {
        Some(self.tree.scan_rev(from, limit, visit))
    }

    fn get_many(&self, keys: &[K], found: &mut Vec<Option<u64>>) {
        OrderedSession::get_many(&self.tree, keys, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes keys that differ in their last byte, so that one node of the tree has them.
    fn words() -> Vec<u64> {
        (0..40).collect()
    }

    fn strings() -> Vec<Vec<u8>> {
        (0..40).map(|last| [&b"much longer than a word"[..], &[last]].concat()).collect()
    }

    fn tells_the_keys_that_are_there<K: BenchKey>(keys: &[K], bytes: usize) {
        let map = Tids::<K>::empty();
        let session = map.pin();
        keys.iter().for_each(|key| assert_eq!(session.insert(key, 1), None));
        keys.iter().for_each(|key| assert_eq!(session.insert(key, 2), Some(1)));
        assert_eq!(map.tuples(), keys.len() * bytes);
        keys.iter().skip(1).for_each(|key| assert_eq!(session.remove(key), Some(2)));
        keys.iter().skip(1).for_each(|key| assert_eq!(session.remove(key), None));
        assert_eq!(map.tuples(), bytes);
    }

    #[test]
    fn tuples_are_of_the_keys_that_are_there() {
        tells_the_keys_that_are_there(&words(), 16);
        tells_the_keys_that_are_there(&strings(), 12 + 24);
    }

    /// A node with a free slot gets a leaf, and nothing else.
    #[cfg(archipelago_sim)]
    fn grows_by_a_leaf<K: BenchKey>(keys: &[K]) {
        let map = Tids::<K>::empty();
        let session = map.pin();
        let (last, others) = keys.split_last().unwrap();
        others.iter().for_each(|key| _ = session.insert(key, 1));
        let held = || archipelago_sim::world::held_bytes().unwrap();
        let (before, tuples) = (held(), map.tuples());
        session.insert(last, 1);
        assert_eq!(held() - before, map.tuples() - tuples);
    }

    #[cfg(archipelago_sim)]
    #[test]
    fn tuples_have_the_bytes_of_leaves() {
        use archipelago_sim::{Config, Machine, Outcome, run};
        let machine = Machine::preset("xeon-8180-4s").unwrap();
        let report = run(&machine, &Config::default(), 1, |_| {
            grows_by_a_leaf(&words());
            grows_by_a_leaf(&strings());
        });
        assert!(report.outcome == Outcome::Done && report.own_heap, "{}", report.outcome);
    }
}

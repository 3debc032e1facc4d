//! Rivals' trees as indexes of tables, for papers that compare databases: DBX over the B+tree in hardware transactions,
//! and Silo over a tree like Masstree. Keys are `u64`. TPC-C's index of customers by name has longer keys and is never
//! changed; it is an `EunoBTree` in all databases that are compared.

use core::any::Any;

use archipelago_index::Word;
use archipelago_index::euno::Tree;
use archipelago_index::map::{End, Held, Limits, Put, When, Words};
use archipelago_sync::rcu::{Domain, Guard};
use archipelago_workloads::chosen::{Choice, Inner, Visit};

/// The operations of a tree of words that an index needs.
pub trait Points: Default + Send + Sync + 'static {
    /// Returns the word of a key.
    fn get(&self, key: u64, guard: &Guard<'_>) -> Option<u64>;

    /// Stores a word, if `when` permits for the old word. Returns the old word.
    fn put(&self, key: u64, word: u64, when: When, guard: &Guard<'_>) -> Option<u64>;

    /// Removes a key if its word is `expected`, or if `expected` is `None`. Returns the word that was present.
    fn take(&self, key: u64, expected: Option<u64>, guard: &Guard<'_>) -> Option<u64>;

    /// Appends at most `limit` entries to `to`, from a key on.
    fn ahead(&self, from: u64, limit: usize, guard: &Guard<'_>, to: &mut Vec<(u64, u64)>);

    /// Appends the entries of one page up to a key to `to`, descending. Returns the page's lower bound.
    fn behind(&self, key: u64, guard: &Guard<'_>, to: &mut Vec<(u64, u64)>) -> u64;
}

/// Returns whether `when` permits storing over the old word.
pub fn stores(when: When, old: Option<u64>) -> bool {
    match when {
        When::Always => true,
        When::Absent => old.is_none(),
        When::Present => old.is_some(),
        When::Holds(word) => old == Some(word),
    }
}

/// A tree with the data that every index needs beside it.
struct Rival<T> {
    tree: T,
    domain: Domain,
    limits: Limits,
}

/// Returns the choice of indexes over such a tree. Error messages use this name.
pub const fn choice<T: Points>(name: &'static str) -> Choice {
    let words =
        |limits| -> Box<dyn Inner<Word>> { Box::new(Rival { tree: T::default(), domain: Domain::new(), limits }) };
    Choice::of::<Tree>().with_words(name, words)
}

/// How many entries a walk requests first, and how many at most: the most is what the B+tree copies in one transaction.
const ENTRIES: (usize, usize) = (8, 128);

impl<T: Points> Rival<T> {
    fn all(&self, guard: &Guard<'_>, mut each: impl FnMut(u64, u64)) -> usize {
        self.scan(guard, 0, usize::MAX, Words::Shown, &mut |key, word| {
            each(key, word);
            true
        })
    }
}

// SAFETY: the tree returns the words that were stored in it, under the guard of the caller.
unsafe impl<T: Points> Inner<Word> for Rival<T> {
    fn domain(&self) -> &Domain {
        &self.domain
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn get(&self, guard: &Guard<'_>, key: u64) -> Option<u64> {
        self.tree.get(key, guard)
    }

    fn put(&self, guard: &Guard<'_>, key: u64, word: u64, when: When) -> Put {
        match self.tree.put(key, word, when, guard) {
            None if stores(when, None) => Put::Inserted,
            None => Put::Missing,
            Some(old) if stores(when, Some(old)) => Put::Replaced(old),
            Some(old) => Put::Kept(old),
        }
    }

    fn take(&self, guard: &Guard<'_>, key: u64, expected: Option<u64>) -> Option<u64> {
        self.tree.take(key, expected, guard).filter(|old| expected.is_none_or(|expected| expected == *old))
    }

    fn take_end(&self, guard: &Guard<'_>, end: End, found: &mut dyn FnMut(u64, u64)) {
        loop {
            let mut entry = None;
            let mut note = |key, word| {
                entry = Some((key, word));
                false
            };
            match end {
                End::First => self.scan(guard, 0, 1, Words::Shown, &mut note),
                End::Last => self.scan_back(guard, None, 1, Words::Shown, &mut note),
            };
            let Some((key, word)) = entry else { return };
            if self.take(guard, key, Some(word)).is_some() {
                return found(key, word);
            }
        }
    }

    fn scan(&self, guard: &Guard<'_>, from: u64, limit: usize, _: Words, visit: Visit<'_, Word>) -> usize {
        let (mut from, mut shown, mut wanted) = (from, 0, ENTRIES.0);
        let mut entries = Vec::new();
        while shown < limit {
            let asked = wanted.min(limit - shown);
            self.tree.ahead(from, asked, guard, &mut entries);
            let (fetched, last) = (entries.len(), entries.last().map(|entry| entry.0));
            for (key, word) in entries.drain(..) {
                shown += 1;
                if !visit(key, word) {
                    return shown;
                }
            }
            match last.and_then(|last| last.checked_add(1)) {
                Some(next) if fetched == asked => (from, wanted) = (next, ENTRIES.1.min(2 * wanted)),
                _ => break,
            }
        }
        shown
    }

    fn scan_back(
        &self,
        guard: &Guard<'_>,
        bound: Option<u64>,
        limit: usize,
        _: Words,
        visit: Visit<'_, Word>,
    ) -> usize {
        let (mut at, mut shown) = (bound.map_or(Some(u64::MAX), |bound| bound.checked_sub(1)), 0);
        let mut entries = Vec::new();
        while let Some(key) = at {
            let begin = self.tree.behind(key, guard, &mut entries);
            for (key, word) in entries.drain(..) {
                if shown == limit {
                    return shown;
                }
                shown += 1;
                if !visit(key, word) {
                    return shown;
                }
            }
            at = begin.checked_sub(1);
        }
        shown
    }

    fn split_points(&self, guard: &Guard<'_>, count: usize, show: &mut dyn FnMut(u64)) {
        let every = self.entries().div_ceil(count + 1).max(1);
        let mut at = 0;
        self.all(guard, |key, _| {
            at += 1;
            if at % every == 0 {
                show(key);
            }
        });
    }

    fn entries(&self) -> usize {
        self.all(&self.domain.pin(), |_, _| ())
    }

    fn held(&self) -> Held {
        Held::default()
    }

    fn outside(&self, _: u64) -> usize {
        0
    }

    fn spare(&self) -> usize {
        0
    }

    fn is_thin(&self) -> bool {
        false
    }

    fn note_garbage(&self) {}

    fn settle(&self) {}

    unsafe fn dismantle(&self, each: &mut dyn FnMut(u64)) -> Option<Box<dyn Any + Send>> {
        self.all(&self.domain.pin(), |_, word| each(word));
        None
    }

    fn check(&self) {
        let mut last = None;
        self.all(&self.domain.pin(), |key, _| assert!(last.replace(key) < Some(key), "keys ascend"));
    }
}

#[cfg(all(test, not(archipelago_sim)))]
mod tests {
    use super::*;
    use crate::rivals::htm_btree::HtmBTree;
    use crate::rivals::masstree::Masstree;
    use archipelago_index::Map;
    use archipelago_workloads::chosen::Chosen;
    use std::collections::BTreeMap;

    /// Makes the same changes and the same walks in a tree and in a model, and compares the results.
    fn agrees<T: Points>() {
        let (choice, mut model) = (choice::<T>("rival"), BTreeMap::new());
        let map = choice.within(|| Map::<Chosen, u64, usize>::builder().build());
        let map = map.pin();
        let mut random = 1_u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (key, word) = ((random >> 40) % 3_000, step);
            match (random >> 33) % 4 {
                0 | 1 => {
                    let new = map.insert_if_absent(key, word).is_ok();
                    assert_eq!(new, !model.contains_key(&key));
                    model.entry(key).or_insert(word);
                }
                2 => {
                    let even = |word: &usize| word.is_multiple_of(2);
                    let gone = map.remove_if::<u64>(&key, even).is_some();
                    assert_eq!(gone, model.get(&key).is_some_and(even));
                    model.retain(|at, word| *at != key || !even(word));
                }
                _ => {
                    let up = map.range(key..).take(40).collect::<Vec<_>>();
                    assert_eq!(up, model.range(key..).take(40).map(|(key, word)| (*key, *word)).collect::<Vec<_>>());
                    let down = map.range(..key).rev().take(40).collect::<Vec<_>>();
                    assert_eq!(
                        down,
                        model.range(..key).rev().take(40).map(|(k, word)| (*k, *word)).collect::<Vec<_>>()
                    );
                }
            }
        }
        assert_eq!(map.range(..).count(), model.len());
    }

    #[test]
    fn the_tree_in_transactions_is_an_ordered_map() {
        agrees::<HtmBTree>();
    }

    #[test]
    fn the_tree_of_layers_is_an_ordered_map() {
        agrees::<Masstree<u64>>();
    }
}

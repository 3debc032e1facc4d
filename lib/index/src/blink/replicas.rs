//! The trees of a map: one tree, or a replica on each NUMA node. An update changes all replicas before it returns, or
//! the replicas are fed from a log ([`logged`](super::logged)). The following describes replicas that are all changed
//! before an update returns.
//!
//! Replicas are separate trees with the same entries, which may be distributed differently over pages. Reads use the
//! replica of the reader's node. An update latches the key's leaf in *every* replica, in order, and only then changes
//! the first one.
//!
//! # Why this is linearizable
//! An update takes effect when the first of its leaves is changed. A read that sees the change, in any replica, ends
//! after this moment. A read that begins after this moment, in any other replica, does not see the previous state: the
//! leaf in that replica stays latched, and readers get no version of it, until it is changed, too. (A read that took
//! its version before the leaf was latched began before this moment, and may return the previous state.)
//!
//! # Why it does not deadlock
//! A thread that waits for a leaf of one replica holds only latches of leaves of earlier replicas. Splits and merges
//! latch upper levels. They run in one replica at a time, after the update has released all leaves. Until then a new
//! page is found through its left neighbour's link.
//!
//! Values are shared by the replicas: a word that is replaced is replaced in all of them, and then retired once.

use super::ends::are_still;
use super::locked::Locked;
use super::logged::{Feed, What};
use super::page::Page;
use super::policy::{Policy, Replicas};
use super::run::Run as _;
use super::slots::SlotForm;
use super::tree::Tree;
use crate::structure::{Put, When};
use archipelago_platform::atomic::Ordering::{Acquire, Release};
use archipelago_platform::topology::Topology;
use archipelago_sync::rcu::Guard;

/// The trees of a map.
pub(super) struct Trees<F: SlotForm, P: Policy> {
    all: Box<[Tree<F, P>]>,
    topology: Topology,
    /// The log, if the map has several trees and the policy feeds them from a log.
    feed: Option<Feed<F>>,
}

impl<F: SlotForm, P: Policy> Trees<F, P> {
    pub(super) fn new(topology: Topology) -> Self {
        let nodes = topology.nodes().len().max(1);
        let all: Box<[_]> = match P::REPLICAS {
            Replicas::None | Replicas::OfInnerPages => [Tree::new(topology.clone(), 0..nodes)].into(),
            Replicas::Together | Replicas::FromLog => {
                (0..nodes).map(|node| Tree::new(topology.clone(), node..node + 1)).collect()
            }
        };
        let is_fed = P::REPLICAS == Replicas::FromLog && nodes > 1;
        Trees { feed: is_fed.then(|| Feed::new(nodes, &topology)), all, topology }
    }

    /// Returns the log that feeds the trees.
    #[inline(always)]
    pub(super) fn feed(&self) -> Option<&Feed<F>> {
        if P::REPLICAS == Replicas::FromLog { self.feed.as_ref() } else { None }
    }

    /// Brings a tree up to date, if a log feeds it, before `key` is looked up in it.
    #[inline(always)]
    pub(super) fn freshen(&self, tree: &Tree<F, P>, key: F::Probe<'_>, guard: &Guard<'_>) {
        if let Some(feed) = self.feed() {
            feed.freshen(tree, key, guard);
        }
    }

    /// Brings a tree up to date, if a log feeds it, before a walk over it.
    #[inline(always)]
    pub(super) fn freshen_all(&self, tree: &Tree<F, P>, guard: &Guard<'_>) {
        if let Some(feed) = self.feed() {
            feed.freshen_all(tree, guard);
        }
    }

    /// Returns all trees.
    pub(super) fn all(&self) -> &[Tree<F, P>] {
        &self.all
    }

    /// Returns the tree that this thread reads.
    #[inline]
    pub(super) fn local(&self) -> &Tree<F, P> {
        if P::REPLICAS == Replicas::None || self.all.len() == 1 {
            return &self.all[0];
        }
        &self.all[self.topology.node_of_current().min(self.all.len() - 1)]
    }

    /// Stores in all replicas as [`Tree::put`] does.
    pub(super) fn put<'g>(
        &self,
        here: &Tree<F, P>,
        near: &mut Option<Page<'g, F, P>>,
        key: F::Probe<'_>,
        word: u64,
        when: When,
        guard: &'g Guard<'_>,
    ) -> Put {
        if let [tree] = &*self.all {
            return tree.put(near, key, word, when, guard);
        }
        if let Some(feed) = self.feed() {
            return feed.change((&self.all, here.number()), key, What::Put(word, when), guard);
        }
        let leaves = self.latch_to_put(key, guard);
        let first = leaves[0].page();
        let found = first.search(key);
        let there = found.hit.then(|| first.value(found.slot).load(Acquire));
        match (there, when) {
            (None, When::Present | When::Holds(_)) => return Put::Missing,
            (Some(there), When::Absent) => return Put::Kept(there),
            (Some(there), When::Holds(expected)) if there != expected => return Put::Kept(there),
            _ => {}
        }
        let mut splits = Vec::new();
        for (tree, leaf) in self.all.iter().zip(leaves) {
            let page = leaf.page();
            let found = page.search(key);
            debug_assert_eq!(found.hit, there.is_some(), "replicas have the same entries");
            if found.hit {
                // Readers see the old word or the new one, as if the latch were shared.
                page.value(found.slot).store(word, Release);
            } else if let Some(split) = tree.place(leaf, found.slot, key, word, guard) {
                splits.push((tree, split));
            }
        }
        for (tree, split) in splits {
            tree.tell(split, guard);
        }
        there.map_or(Put::Inserted, Put::Replaced)
    }

    /// Removes from all replicas as [`Tree::remove`] does.
    pub(super) fn remove(
        &self,
        here: &Tree<F, P>,
        key: F::Probe<'_>,
        expected: Option<u64>,
        guard: &Guard<'_>,
    ) -> Option<u64> {
        if let [tree] = &*self.all {
            return tree.remove(key, expected, guard);
        }
        if let Some(feed) = self.feed() {
            return match feed.change((&self.all, here.number()), key, What::Take(expected), guard) {
                Put::Replaced(word) => Some(word),
                _ => None,
            };
        }
        let leaves = self.latch(key, guard);
        let first = leaves[0].page();
        let found = first.search(key);
        if !found.hit {
            return None;
        }
        let word = first.value(found.slot).load(Acquire);
        if expected.is_some_and(|expected| expected != word) {
            return None;
        }
        self.take(leaves, key, guard);
        Some(word)
    }

    /// Removes from all replicas as [`Tree::pop`] does.
    pub(super) fn pop<const DOWN: bool>(&self, here: &Tree<F, P>, run: &mut F::Run, guard: &Guard<'_>) {
        let (first, rest) = self.all.split_first().expect("there is a tree");
        if rest.is_empty() {
            return first.pop::<DOWN>(run, guard);
        }
        if let Some(feed) = self.feed() {
            let outermost = |tree: &Tree<F, P>, run: &mut F::Run| {
                while !tree.find_end::<DOWN>(guard).read::<DOWN>(run) {
                    run.clear();
                }
            };
            return feed.take_chosen((&self.all, here.number()), run, outermost, guard);
        }
        loop {
            run.clear();
            let end = first.find_end::<DOWN>(guard);
            if !end.read::<DOWN>(run) {
                continue;
            }
            if run.len() == 0 {
                return;
            }
            let (outermost_leaf, passed) = end.release();
            let key = run.key(0);
            let leaves = self.latch(key, guard);
            let page = leaves[0].page();
            let found = page.search(key);
            let outermost = if DOWN { page.len().wrapping_sub(1) } else { 0 };
            if page == outermost_leaf && are_still(&passed) && found.hit && found.slot == outermost {
                let word = page.value(found.slot).load(Acquire);
                self.take(leaves, key, guard);
                if word != run.value(0) {
                    let mut taken = F::Run::default();
                    taken.push(key, word);
                    *run = taken;
                }
                return;
            }
        }
    }

    /// Latches a key's leaf in every replica.
    fn latch<'g>(&self, key: F::Probe<'_>, guard: &'g Guard<'_>) -> Vec<Locked<'g, F, P>> {
        self.all.iter().map(|tree| tree.latch_leaf(key, guard)).collect()
    }

    /// Latches the leaves as `latch` does, for a key that may be inserted. If a leaf is full, some of its entries are
    /// first moved to a neighbour, if the policy does so.
    fn latch_to_put<'g>(&self, key: F::Probe<'_>, guard: &'g Guard<'_>) -> Vec<Locked<'g, F, P>> {
        let leaves = self.latch(key, guard);
        let is_full = |page: Page<'g, F, P>| !page.has_room_for(key) && !page.search(key).hit;
        let full: Vec<_> = self.all.iter().zip(&leaves).filter(|(_, leaf)| P::DENSE && is_full(leaf.page())).collect();
        if full.is_empty() {
            return leaves;
        }
        let full: Vec<_> = full.into_iter().map(|(tree, _)| tree).collect();
        drop(leaves);
        full.into_iter().for_each(|tree| tree.relieve(key, guard));
        self.latch(key, guard)
    }

    /// Removes a key that is present from its latched leaves, one in each replica.
    fn take(&self, leaves: Vec<Locked<'_, F, P>>, key: F::Probe<'_>, guard: &Guard<'_>) {
        let mut underfull = Vec::new();
        for (tree, leaf) in self.all.iter().zip(leaves) {
            let found = leaf.page().search(key);
            debug_assert!(found.hit, "replicas have the same entries");
            if tree.cut_out(leaf, found.slot, guard) {
                underfull.push(tree);
            }
        }
        for tree in underfull {
            tree.shrink(key, guard);
        }
    }
}

//! The mapping table: from the id of a node to the head of the node's chain.

use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::OnceLock;
use archipelago_sync::lock::{Mutex, RawTtas};
use archipelago_sync::rcu::Guard;

use super::record::{Record, free, free_chain};
use crate::rivals::btree::InPlace;

/// Entries of the first part of the table. Each further part has twice as many.
const FIRST: u64 = if cfg!(test) { 8 } else { 4096 };
const PARTS: usize = 24;

type Part<K> = Box<[AtomicPtr<Record<K>>]>;

pub struct Table<K> {
    parts: [OnceLock<Part<K>>; PARTS],
    /// The least id that was never given.
    unused: CachePadded<AtomicU64>,
    /// How many ids were given back.
    spares: AtomicU64,
    spare: Mutex<RawTtas, Vec<u64>>,
}

/// Returns an id's part of the table, and its entry there.
#[inline]
fn place(id: u64) -> (usize, usize) {
    let number = id + FIRST;
    let part = number.ilog2() - FIRST.ilog2();
    (part as usize, (number - (FIRST << part)) as usize)
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Table {
            parts: [const { OnceLock::new() }; PARTS],
            unused: CachePadded::default(),
            spares: AtomicU64::new(0),
            spare: Mutex::new(Vec::new()),
        }
    }
}

impl<K> Table<K> {
    #[inline]
    fn entry(&self, id: u64) -> &AtomicPtr<Record<K>> {
        let (part, at) = place(id);
        &self.parts[part].get().expect("an id is used after its part was made")[at]
    }

    /// Gives an id to a new node.
    ///
    /// # Panics
    /// If the table is full: with 16 million times 4,096 nodes.
    pub fn add(&self, node: *mut Record<K>) -> u64 {
        let id = self.spare().unwrap_or_else(|| self.unused.fetch_add(1, Relaxed));
        let (part, _) = place(id);
        self.parts[part].get_or_init(|| (0..FIRST << part).map(|_| AtomicPtr::new(ptr::null_mut())).collect());
        // No thread knows the id yet: what publishes the id publishes the node, too.
        self.entry(id).store(node, Release);
        id
    }

    fn spare(&self) -> Option<u64> {
        if self.spares.load(Relaxed) == 0 {
            return None;
        }
        let id = self.spare.lock().pop();
        id.inspect(|_| _ = self.spares.fetch_sub(1, Relaxed))
    }

    /// Takes an id back, and frees its node. No other thread has ever known the id.
    pub fn take_back(&self, id: u64) {
        let node = self.entry(id).swap(ptr::null_mut(), Relaxed);
        // SAFETY: no other thread has known the id, so none uses the node.
        unsafe { free(node) };
        self.spare.lock().push(id);
        self.spares.fetch_add(1, Relaxed);
    }
}

impl<K: InPlace> Table<K> {
    /// Returns the head of a node's chain. Acquire pairs with the Release of the thread that published the head. All
    /// records behind the head were published before: their publications happened before, since each thread reads the
    /// head (Acquire) in front of which it publishes another (Release).
    #[inline]
    pub fn head<'g>(&self, id: u64, guard: &'g Guard<'_>) -> &'g Record<K> {
        // SAFETY: the address is read inside the guard, and no id in use has a null entry.
        unsafe { Record::at(self.entry(id).load(Acquire), guard) }
    }

    /// Replaces the head of a node's chain, if it is still `old`. An address cannot be that of another record
    /// meanwhile, since the caller's guard keeps `old` allocated, and a place in a block is published once.
    pub fn replace(&self, id: u64, old: &Record<K>, new: *mut Record<K>) -> bool {
        let old = ptr::from_ref(old).cast_mut();
        self.entry(id).compare_exchange(old, new, Release, Relaxed).is_ok()
    }

    /// Returns the number of nodes. No other thread uses the table.
    #[cfg(test)]
    pub fn nodes(&mut self) -> usize {
        let parts = self.parts.iter().filter_map(OnceLock::get);
        parts.flatten().filter(|entry| !entry.load(Relaxed).is_null()).count()
    }
}

impl<K> Drop for Table<K> {
    fn drop(&mut self) {
        for entry in self.parts.iter().filter_map(OnceLock::get).flatten() {
            let head = entry.load(Relaxed);
            if !head.is_null() {
                // SAFETY: no other thread uses the table, and each node has one entry and one block.
                unsafe { free_chain(head) };
            }
        }
    }
}

//! The entries that leave the cache in a change: the listener is told of them, and then they are retired.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};
use archipelago_platform::panics::FirstPanic;
use archipelago_platform::sync::Arc;
use archipelago_sync::rcu::Guard;

use crate::blocks::Blocks;
use crate::cause::Cause;
use crate::entry::{Entry, Resident, Shared};
use crate::inner::Inner;
use crate::shard::{Gone, Seen};
use crate::table::Table;

/// The entries that a change has removed, and the entry that it has refused. The change ends its RCU section before it
/// drops or [settles](Self::settle) this value. So a slow listener does not keep other threads' removed entries from
/// being freed.
pub(crate) struct Leaving<'a, K, V, P, S> {
    inner: &'a Inner<K, V, P, S>,
    /// This thread has removed these entries, and will retire them. Until then they are not freed, although the thread
    /// is in no section.
    pub gone: Gone<K, V>,
    /// The entry whose insertion was refused.
    pub refused: Option<Unplaced<K, V>>,
    /// The weight of entries of `gone` that is counted as waiting for readers before `gone` is retired.
    untold: Untold<'a>,
}

/// The weight of a call's removed entries that RCU does not count yet: before the call retires them, it removes others
/// or runs the listener. While this value exists, `all` includes `weight`.
struct Untold<'c> {
    all: &'c AtomicUsize,
    weight: usize,
}

/// An entry that is not in the table yet. It is freed if it is dropped, for example because a comparison panics.
pub(crate) struct Unplaced<K, V>(pub Shared<K, V>);

impl Untold<'_> {
    /// Raises the counted weight to `weight`, if the counted weight is lower.
    fn reach(&mut self, weight: usize) {
        if weight > self.weight {
            // Relaxed, as all accesses: the number publishes no data.
            self.all.fetch_add(weight - self.weight, Relaxed);
            self.weight = weight;
        }
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        if self.weight > 0 {
            self.all.fetch_sub(self.weight, Relaxed);
        }
    }
}

impl<'a, K, V, P, S> Leaving<'a, K, V, P, S> {
    pub fn new(inner: &'a Inner<K, V, P, S>) -> Self {
        Self { inner, gone: Gone::new(), refused: None, untold: Untold { all: &inner.untold, weight: 0 } }
    }

    /// Counts the entries of `gone` as waiting, except the first `counted`, which are counted already. Returns the
    /// number of entries of `gone`.
    pub fn count(&mut self, counted: usize) -> usize {
        // SAFETY: the entries are not freed while they are in `self`.
        let weights = self.gone.iter().skip(counted).map(|(entry, _)| unsafe { Resident::new(entry) }.weight());
        let (more, weight) = weights.fold((0, 0), |(count, sum), weight| (count + 1, sum + weight));
        self.untold.reach(self.untold.weight + weight);
        counted + more
    }

    /// # Safety
    /// This thread has removed the entry, and retires it only once.
    unsafe fn retire(&self, guard: &Guard<'_>, entry: Shared<K, V>) {
        let blocks = Arc::as_ptr(&self.inner.blocks).cast_mut().cast();
        // SAFETY: the caller's promise; the blocks live longer than the domain.
        unsafe {
            let weight = Resident::new(entry).weight();
            guard.retire_sized(entry.as_ptr().cast(), weight, blocks, reclaim::<K, V>);
        }
    }

    /// If the cache has a listener, calls it with each entry, in the order in which the entries left the cache.
    fn tell(&mut self, panics: &mut FirstPanic) {
        let Some(listener) = &self.inner.config.listener else { return };
        // SAFETY: the entries are not freed while they are in `self`.
        let weight = |entry| unsafe { Resident::new(entry) }.weight();
        // Not the first entry: most changes have only one, and should not write a common cache line.
        self.untold.reach(self.gone.iter().skip(1).map(|(entry, _)| weight(entry)).sum());
        let refused = self.refused.iter().map(|entry| (entry.0, Cause::Evicted));
        for (entry, cause) in self.gone.iter().chain(refused) {
            // SAFETY: as above.
            let entry = unsafe { entry.as_ref() };
            // If the listener panics, the other entries are reported nevertheless.
            panics.call(|| listener(entry.key(), entry.value(), cause));
        }
    }

    /// Calls the listener, and retires the entries that have left. `come` is the number of blocks that the change has
    /// taken for new entries, inserted or not. If more than `come` entries have left, the thread frees one of its kept
    /// blocks for each of the others. So its open bag and its kept blocks together are at most a bag.
    ///
    /// # Panics
    /// With the first panic of the listener or of a destructor, after all has been done.
    pub fn settle(mut self, come: usize) {
        let mut panics = FirstPanic::default();
        self.tell(&mut panics);
        let refused = self.refused.take();
        panics.call(|| drop(refused));
        let mut left = 0_usize;
        if !self.gone.is_empty() {
            let guard = self.inner.domain.pin();
            while let Some((entry, _)) = self.gone.pop() {
                // The destructor of an entry that was retired earlier may run here, and panic. At this point the
                // present entry has been handed over to the domain.
                // SAFETY: this thread removed the entry under a lock, and it is retired once.
                panics.call(|| unsafe { self.retire(&guard, entry) });
                left += 1;
            }
        }
        self.inner.blocks.free(left.saturating_sub(come));
        panics.resume();
    }
}

impl<K, V, P, S> Drop for Leaving<'_, K, V, P, S> {
    fn drop(&mut self) {
        // Entries are left here only after a panic.
        if self.gone.is_empty() {
            return;
        }
        let mut panics = FirstPanic::default();
        self.tell(&mut panics);
        let guard = self.inner.domain.pin();
        while let Some((entry, _)) = self.gone.pop() {
            // A destructor must not panic here, so reclamation is held back.
            // SAFETY: as in `settle`.
            guard.hold_back(|| unsafe { self.retire(&guard, entry) });
        }
        panics.resume();
    }
}

/// Drops an entry, and keeps its block.
///
/// # Safety
/// `object` is a [`Shared`] entry that no other thread frees or uses; `context` is the `Blocks` of the entry's cache.
unsafe fn reclaim<K, V>(object: *mut (), context: *mut ()) {
    // SAFETY: the caller's promise. The block is freed if a destructor panics.
    unsafe {
        let entry = Shared::new_unchecked(object.cast::<Entry<K, V>>());
        (*context.cast::<Blocks<K, V>>()).keep(Entry::emptied(entry));
    }
}

impl<K, V> Drop for Unplaced<K, V> {
    fn drop(&mut self) {
        // SAFETY: this thread has made the entry, and no other thread has seen it.
        drop(unsafe { Entry::emptied(self.0) });
    }
}

impl<K: Eq, V> Unplaced<K, V> {
    /// Returns the entries that have this hash, and the one of them that has this entry's key. Runs the user's `Eq`.
    pub fn seen(&self, table: &Table<K, V>, guard: &Guard<'_>, hash: u64) -> Seen<K, V> {
        let same_hash = table.alike(guard, hash);
        // SAFETY: `old` was found under the guard, and `self` is not in the table yet, so no other thread frees it.
        let same_key = same_hash.iter().find(|old| unsafe { old.as_ref().key() == self.0.as_ref().key() });
        Seen { same_hash, same_key }
    }
}

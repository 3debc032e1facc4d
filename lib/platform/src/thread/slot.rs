//! Thread slots: a small dense index for every live thread, so that per-thread state can be stored in an array.
//!
//! The index is the smallest one that no live thread has. A thread takes it when it first asks for its slot, and gives
//! it back at its end, as late as the platform permits (see `end.rs`). With glibc and on macOS, this is after the
//! destructors of all thread-locals; with musl, it is in the third round of destructors. So an object in a thread-local
//! (a session, a guard) keeps the slot with which it was made until it is dropped. Each further request is one
//! thread-local read: the slot is stored in a `const` thread-local without a destructor, which is readable until the
//! very end of the thread.
//!
//! *Late requests.* The slot may be requested after the index was given back: on platforms where this happens earlier,
//! and by code that runs even later (destructors of a C library's keys). Such a thread takes an index again. The index
//! is given back if code of this crate runs after that. Otherwise it is never reused, because to share per-thread state
//! wrongly would be worse than to lose an index. Objects that were made with the former slot call [`has_slot`] before
//! they use this slot's state.
//!
//! Under loom, an index is not reused within one execution. The slot of a simulated thread is assigned by the
//! simulator.

use core::cell::Cell;

/// Identifies the calling thread by a dense index, which is unique among live threads and reused after a thread ends.
/// Also contains the NUMA node on which the thread was last known to run. Correctness never depends on `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSlot {
    /// Dense index: the smallest one that no live thread had when this thread first requested its slot.
    pub index: usize,
    /// NUMA node index in [`Topology::current`](crate::topology::Topology::current), 0 on one-node machines. Updated by
    /// the first call of [`slot`], by [`pin_current`](super::pin_current), and, for this topology, by
    /// [`bind_current`](super::bind_current) and by
    /// [`Topology::node_of_current`](crate::topology::Topology::node_of_current).
    pub node: usize,
}

/// The index that means "no index yet".
const NONE: usize = usize::MAX;
const UNKNOWN: ThreadSlot = ThreadSlot { index: NONE, node: 0 };

#[cfg(not(loom))]
std::thread_local! {
    static SLOT: Cell<ThreadSlot> = const { Cell::new(UNKNOWN) };
}
#[cfg(loom)]
loom::thread_local! {
    static SLOT: Cell<ThreadSlot> = Cell::new(UNKNOWN);
}

/// Returns the calling thread's slot. One thread-local read after the first call of the thread.
///
/// # Panics
/// On the first call, if `ARCHIPELAGO_TOPOLOGY` has an invalid value.
#[inline]
pub fn slot() -> ThreadSlot {
    #[cfg(archipelago_sim)]
    if let Some(current) = archipelago_sim::world::current() {
        return ThreadSlot { index: current.slot, node: current.node };
    }
    let slot = SLOT.with(Cell::get);
    if slot.index != NONE { slot } else { first_call() }
}

/// Returns whether the calling thread has the slot with this index: a thread-local read and a comparison. The thread
/// that has a slot may change the slot's state without a read-modify-write; no other thread may.
#[inline(always)]
pub fn has_slot(index: usize) -> bool {
    #[cfg(archipelago_sim)]
    if let Some(current) = archipelago_sim::world::current() {
        return current.slot == index;
    }
    SLOT.with(|slot| slot.get().index == index)
}

/// Returns one more than the largest index ever assigned: the length of an array that is indexed by slots.
///
/// A thread that got its slot before this call (in happens-before order, or in the single order of sequentially
/// consistent operations) is counted.
pub fn slots_high_water() -> usize {
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() {
        return archipelago_sim::world::slots_high_water();
    }
    registry::high_water()
}

#[cold]
fn first_call() -> ThreadSlot {
    let index = registry::acquire();
    // The index is stored first, because finding the node may request the slot again.
    SLOT.with(|slot| slot.set(ThreadSlot { index, node: 0 }));
    #[cfg(not(loom))]
    note_node(crate::topology::Topology::current().node_of_current());
    SLOT.with(Cell::get)
}

/// Stores the node on which the calling thread runs.
pub(crate) fn note_node(node: usize) {
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() {
        return;
    }
    SLOT.with(|slot| slot.set(ThreadSlot { node, ..slot.get() }));
}

/// The assignment of indices in the native world.
#[cfg(not(loom))]
mod registry {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::sync::{Mutex, PoisonError};

    use super::{Cell, NONE, SLOT, UNKNOWN};
    use crate::fork::outside_forks;
    use crate::thread::end;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// Indices below `HIGH_WATER` that no live thread has.
    static FREE: Mutex<BinaryHeap<Reverse<usize>>> = Mutex::new(BinaryHeap::new());

    /// Sequentially consistent, for this protocol. A thread takes its slot, announces itself, fences, and then reads
    /// shared state. A scanner changes the shared state, fences, and then reads this counter. Either the scanner counts
    /// the thread, or the thread sees the change.
    static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

    /// Gives the index back when the thread's thread-locals are dropped, on platforms without a later moment.
    struct Return;

    impl Drop for Return {
        fn drop(&mut self) {
            let index = SLOT.with(Cell::get).index;
            if index != NONE {
                give_back(index);
            }
        }
    }

    std::thread_local! {
        static AT_EXIT: Return = const { Return };
        static AT_EXIT_LATE: Return = const { Return };
    }

    /// Called by the thread that has the index, at its end.
    fn give_back(index: usize) {
        // If the thread's memory was initialized again in the meantime, it no longer contains the slot, and nothing is
        // to be cleared.
        if SLOT.with(Cell::get).index == index {
            SLOT.with(|slot| slot.set(UNKNOWN));
        }
        // A fork waits for this push, since the threads of a child process take and return indices, too.
        outside_forks(|| FREE.lock().unwrap_or_else(PoisonError::into_inner).push(Reverse(index)));
    }

    pub(super) fn acquire() -> usize {
        if let Some(index) = end::kept() {
            return index;
        }
        let free = || FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let index =
            outside_forks(free).map_or_else(|| HIGH_WATER.fetch_add(1, Ordering::SeqCst), |Reverse(index)| index);
        if !end::keep(index, give_back) {
            // Accessing a thread-local registers its destructor. The access fails after the destructor has run.
            let _ = AT_EXIT.try_with(|_| ()).or_else(|_| AT_EXIT_LATE.try_with(|_| ()));
        }
        index
    }

    pub(super) fn high_water() -> usize {
        HIGH_WATER.load(Ordering::SeqCst)
    }

    // `SLOT` has no destructor because `Cell` has none. This assertion detects a change of this property.
    const _: () = assert!(!core::mem::needs_drop::<Cell<super::ThreadSlot>>());
}

/// The assignment of indices under loom. The counter is not loom's, so a request adds no branch to the model.
#[cfg(loom)]
mod registry {
    use std::sync::atomic::{AtomicUsize, Ordering};

    loom::lazy_static! {
        static ref HIGH_WATER: AtomicUsize = AtomicUsize::new(0);
    }

    pub(super) fn acquire() -> usize {
        HIGH_WATER.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn high_water() -> usize {
        HIGH_WATER.load(Ordering::SeqCst)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Tests that check which indices are free must not run in parallel with each other; threads of other tests may
    /// run.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of threads that some tests start one after another.
    const STARTED: usize = if cfg!(miri) { 300 } else { 1_000 };

    /// Checks that far fewer indices are in use than [`STARTED`].
    fn assert_most_are_reused() {
        // This thread, the 16 threads of another test, and the threads of the tests of other modules: several of each
        // test, and as many tests run at the same time as there are processors.
        let most = 150 + 8 * std::thread::available_parallelism().map_or(1, usize::from).min(64);
        assert!(slots_high_water() < most, "{}", slots_high_water());
    }

    #[test]
    fn live_threads_have_different_indices() {
        let _alone = alone();
        let threads = 16;
        let barrier = Arc::new(Barrier::new(threads));
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                let barrier = barrier.clone();
                std::thread::spawn(move || {
                    let mine = slot();
                    barrier.wait();
                    assert_eq!(slot().index, mine.index);
                    assert!(slots_high_water() > mine.index);
                    mine.index
                })
            })
            .collect();
        let indices: HashSet<usize> = handles.into_iter().map(|handle| handle.join().unwrap()).collect();
        assert_eq!(indices.len(), threads);
    }

    #[test]
    fn indices_are_reused() {
        let _alone = alone();
        for _ in 0..STARTED {
            std::thread::spawn(slot).join().unwrap();
        }
        assert_most_are_reused();
    }

    #[test]
    fn late_calls_get_an_index_that_nobody_else_has_and_return_it() {
        struct AsksLate(Arc<Mutex<Vec<usize>>>);
        impl Drop for AsksLate {
            fn drop(&mut self) {
                self.0.lock().unwrap().push(slot().index);
            }
        }
        std::thread_local! {
            static LATE: Cell<Option<AsksLate>> = const { Cell::new(None) };
        }
        let _alone = alone();
        let mine = slot().index;
        let seen = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..STARTED {
            let seen = seen.clone();
            // Registers `LATE` before the slot, so that it is dropped after it.
            let thread = std::thread::spawn(move || {
                LATE.with(|late| late.set(Some(AsksLate(seen))));
                slot();
            });
            thread.join().unwrap();
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), STARTED);
        assert!(!seen.contains(&mine));
        assert_most_are_reused();
    }
}

//! Thread slots: a small dense index for every live thread, so that per-thread state lives in an array.
//!
//! The index is the smallest that no live thread has, taken when a thread first asks and given back at the thread's end,
//! as late as the platform lets us (see `end.rs`): on Unix after the destructors of all thread-locals, so that what a
//! thread-local keeps (a session, a guard) has the slot it was made with to its last moment. Asking again is one
//! thread-local read: the slot sits in a `const` thread-local without a destructor, which stays readable to the very end
//! of the thread.
//!
//! *Late calls.* Where there is no such late moment, and for code that runs later still (destructors of a C library's
//! keys), the slot may be asked for after the index was given back. Such a thread takes an index again, which is
//! returned if anything of ours runs after that; otherwise it is never reused: a wrong sharing of per-thread state would
//! be worse than a lost number. What was made with the former slot asks [`has_slot`] before it uses state of that slot's.
//!
//! In the model world an index is not reused within one execution. A simulated thread's slot is the virtual machine's.

use core::cell::Cell;

/// Who the calling thread is: a dense index, unique among live threads and reused after a thread ends, and the NUMA
/// node it was last known to run on. Correctness never depends on `node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSlot {
    /// Dense index: the smallest that no live thread had when this one first asked.
    pub index: usize,
    /// NUMA node index (see [`topology`](crate::topology)), 0 on one-node machines. Known from the first call to
    /// [`slot`], from [`pin_current`](super::pin_current), and from the calls to
    /// [`Topology::node_of_current`](crate::topology::Topology::node_of_current) since.
    pub node: usize,
}

/// The index that means "none yet".
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

/// The calling thread's slot. One thread-local read after the first call of the thread.
///
/// # Panics
/// On the first call, if `ARCHIPELAGO_TOPOLOGY` has a value that is no topology.
#[inline]
pub fn slot() -> ThreadSlot {
    #[cfg(archipelago_sim)]
    if let Some(current) = archipelago_sim::world::current() {
        return ThreadSlot { index: current.slot, node: current.node };
    }
    let slot = SLOT.with(Cell::get);
    if slot.index != NONE { slot } else { first_call() }
}

/// Whether the calling thread has the slot with this index: a thread-local read and a comparison. State of a slot may be
/// changed without a read-modify-write by the thread that has it, and by no other.
#[inline(always)]
pub fn has_slot(index: usize) -> bool {
    #[cfg(archipelago_sim)]
    if let Some(current) = archipelago_sim::world::current() {
        return current.slot == index;
    }
    SLOT.with(|slot| slot.get().index == index)
}

/// One more than the largest index ever given out: the length that an array indexed by slots needs.
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
    // Finding the node may ask for the slot again, so that it must know the index by then.
    SLOT.with(|slot| slot.set(ThreadSlot { index, node: 0 }));
    #[cfg(not(loom))]
    note_node(crate::topology::Topology::current().node_of_current());
    SLOT.with(Cell::get)
}

/// Remembers where the calling thread runs.
pub(crate) fn note_node(node: usize) {
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() {
        return;
    }
    SLOT.with(|slot| slot.set(ThreadSlot { node, ..slot.get() }));
}

/// Who has which index: the native world.
#[cfg(not(loom))]
mod registry {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::sync::{Mutex, PoisonError};

    use super::{Cell, NONE, SLOT, UNKNOWN};
    use crate::thread::end;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// Indices below `HIGH_WATER` that no live thread has.
    static FREE: Mutex<BinaryHeap<Reverse<usize>>> = Mutex::new(BinaryHeap::new());

    /// Sequentially consistent, so that a thread which takes its slot, announces
    /// itself, fences and then reads shared state is either seen by a scanner that changed the state, fenced and then
    /// read this, or sees the change.
    static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

    /// Gives the index back when the thread's thread-locals are dropped: where there is no later moment.
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

    /// By the thread that has it, at its end.
    fn give_back(index: usize) {
        // Not if the thread's memory has been made anew meanwhile, and knows of no slot.
        if SLOT.with(Cell::get).index == index {
            SLOT.with(|slot| slot.set(UNKNOWN));
        }
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(Reverse(index));
    }

    pub(super) fn acquire() -> usize {
        if let Some(index) = end::kept() {
            return index;
        }
        let free = || FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let index = free().map_or_else(|| HIGH_WATER.fetch_add(1, Ordering::SeqCst), |Reverse(index)| index);
        if !end::keep(index, give_back) {
            // Touching a thread-local registers its destructor; it fails once the destructor has run.
            let _ = AT_EXIT.try_with(|_| ()).or_else(|_| AT_EXIT_LATE.try_with(|_| ()));
        }
        index
    }

    pub(super) fn high_water() -> usize {
        HIGH_WATER.load(Ordering::SeqCst)
    }

    // `Cell` is what makes `SLOT` free of a destructor; naming it here keeps that from being changed unawares.
    const _: () = assert!(!core::mem::needs_drop::<Cell<super::ThreadSlot>>());
}

/// Who has which index: the model world. The counter is not loom's own, so that asking adds no branch to the model.
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

    /// Tests that look at which indices are free must not run beside each other; threads of other tests may.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
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
        for _ in 0..300 {
            std::thread::spawn(slot).join().unwrap();
        }
        // This thread, the 16 of the other test, and whatever the other modules' tests start meanwhile.
        assert!(slots_high_water() < 150, "{}", slots_high_water());
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
        for _ in 0..300 {
            let seen = seen.clone();
            // Registers `LATE` before the slot, so that it is dropped after it.
            let thread = std::thread::spawn(move || {
                LATE.with(|late| late.set(Some(AsksLate(seen))));
                slot();
            });
            thread.join().unwrap();
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 300);
        assert!(!seen.contains(&mine));
        assert!(slots_high_water() < 150, "{}", slots_high_water());
    }
}

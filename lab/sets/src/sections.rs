//! Read-side sections with a slot for each session, and waits for these sections: for all of them, or only for those of
//! some keys.
//!
//! Waits for some keys are predicate RCU (Arbel and Morrison, PPoPP 2015), in its form EER-PRCU: a section publishes
//! its value, and a waiting thread evaluates its predicate for each section. Here a section's value is a key, or all
//! keys; a predicate is a range of keys. In the paper a section also publishes a time, and a waiting thread waits for
//! sections that began before the wait. Here a section publishes a number, and a waiting thread waits until the number
//! changes.
//!
//! # Why no section is overlooked
//! A section stores key and state, executes a `SeqCst` fence, and reads the structure. A waiting thread changes the
//! structure, executes a `SeqCst` fence, and reads state and key. If the section's fence is first, the waiting thread
//! reads this section's state and key, or later ones. If not, the section sees the change, and need not be waited for.
//!
//! The waiting thread reads the state, and then the key, both with Acquire. The key was stored before the state, so it
//! belongs to the section of that state or to a later section of the session. If it belongs to a later one, the section
//! of that state has ended: the key is stored with Release, after the section's reads. The later section sees the
//! change, since the waiting thread, after its fence, read a state from before that section. So neither is waited for,
//! or one of them needlessly.

use core::ops::RangeInclusive;

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Mutex;
use archipelago_sync::backoff::Backoff;

/// The most sessions at a time.
const SESSIONS: usize = if cfg!(loom) { 3 } else { 1024 };

/// In a state: the session is in a section.
const OPEN: u64 = 1;
/// In a state: the section has all keys.
const ALL_KEYS: u64 = 2;
/// A state grows by this much from before a section to after it.
const SECTION: u64 = 4;

/// The slot of a session.
#[derive(Default)]
struct Slot {
    /// The number of sections that have ended, times [`SECTION`], and what the present section is.
    state: AtomicU64,
    /// The key of the section.
    key: AtomicU64,
}

/// The sections of all sessions.
pub(crate) struct Sections {
    /// This field is on a cache line whose data does not change, since each section reads the address of the slots.
    slots: CachePadded<Box<[CachePadded<Slot>]>>,
    /// The number of slots that were ever used.
    used: AtomicUsize,
    /// Slots of sessions that have ended.
    free: Mutex<Vec<usize>>,
}

impl Default for Sections {
    fn default() -> Self {
        let slots = (0..SESSIONS).map(|_| CachePadded::new(Slot::default())).collect();
        Self { slots: CachePadded::new(slots), used: AtomicUsize::new(0), free: Mutex::default() }
    }
}

/// An open section.
#[doc(hidden)]
pub struct Section<'s>(&'s Slot);

impl Drop for Section<'_> {
    /// Release: the section's reads precede what a wait permits to its caller.
    #[inline]
    fn drop(&mut self) {
        let state = &self.0.state;
        state.store((state.load(Ordering::Relaxed) & !(OPEN | ALL_KEYS)) + SECTION, Ordering::Release);
    }
}

/// A session's access to its slot.
#[doc(hidden)]
pub struct Place<'s> {
    sections: &'s Sections,
    slot: usize,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.sections.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(self.slot);
    }
}

impl Place<'_> {
    /// Enters a section with all keys. The session has no other section.
    #[inline]
    pub(crate) fn enter(&self) -> Section<'_> {
        self.open(&self.sections.slots[self.slot], OPEN | ALL_KEYS)
    }

    /// Enters a section with one key. The session has no other section.
    #[inline]
    pub(crate) fn enter_for(&self, key: u64) -> Section<'_> {
        let slot = &self.sections.slots[self.slot];
        slot.key.store(key, Ordering::Release);
        self.open(slot, OPEN)
    }

    /// Opens a section. The fence orders the stores to the slot before the section's reads. It pairs with the fence of
    /// [`Sections::wait`].
    #[inline]
    fn open<'s>(&self, slot: &'s Slot, kind: u64) -> Section<'s> {
        slot.state.store(slot.state.load(Ordering::Relaxed) + kind, Ordering::Release);
        fence(Ordering::SeqCst);
        Section(slot)
    }
}

impl Sections {
    /// Returns a slot for a session.
    ///
    /// # Panics
    /// If there are [`SESSIONS`] sessions already.
    pub(crate) fn place(&self) -> Place<'_> {
        let ended = self.free.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        let slot = ended.unwrap_or_else(|| {
            let new = self.used.fetch_add(1, Ordering::Relaxed);
            assert!(new < SESSIONS, "no more than {SESSIONS} sessions at a time");
            new
        });
        Place { sections: self, slot }
    }

    /// Waits until all sections that are open now have ended. The caller has none open.
    pub(crate) fn wait(&self) {
        self.wait_if(|_| true);
    }

    /// Waits until the sections that are open now and have one of `keys`, or all keys, have ended. The caller has no
    /// such section open.
    pub(crate) fn wait_for(&self, keys: &RangeInclusive<u64>) {
        self.wait_if(|slot| keys.contains(&slot.key.load(Ordering::Acquire)));
    }

    /// Waits for the sections that have all keys, and for those for which `concerns` returns true. A session whose slot
    /// is not counted by `used` yet takes its slot later. Its first section's fence comes later, too, so the section
    /// sees what was changed.
    fn wait_if(&self, concerns: impl Fn(&Slot) -> bool) {
        fence(Ordering::SeqCst);
        for slot in &self.slots[..self.used.load(Ordering::Relaxed).min(SESSIONS)] {
            let seen = slot.state.load(Ordering::Acquire);
            if seen & OPEN == 0 || seen & ALL_KEYS == 0 && !concerns(slot) {
                continue;
            }
            let backoff = Backoff::new();
            while slot.state.load(Ordering::Acquire) == seen {
                backoff.wait();
            }
        }
        fence(Ordering::Acquire);
    }
}

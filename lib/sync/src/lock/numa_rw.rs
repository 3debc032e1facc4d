//! NUMA-aware reader-writer locks: C-RW-NP, C-RW-RP and C-RW-WP (Calciu et al. 2013).
//!
//! Writers queue in a [cohort lock](super::cohort), so the lock stays on a node for several of them. Readers increment
//! and decrement a count in their own node's cache line, so they do not disturb other nodes. The three locks differ in
//! the side that is preferred when readers and writers compete:
//!
//! | lock | a reader | a writer | may starve |
//! |---|---|---|---|
//! | NP, neutral | takes the cohort lock to increment the count | holds the cohort lock and waits until the counts are zero | no thread |
//! | RP, reader preference | increments the count at once, then waits for an active writer | raises its flag, and lowers it again as long as it finds readers inside | writers |
//! | WP, writer preference | increments the count only when no writer's flag is raised | raises its flag, then waits for the readers inside | readers |
//!
//! Differences from the paper: a count is one word per node instead of a pair for arrivals and departures, because a
//! reader departs at the node at which it arrived (see [`home`](super::home)). Writers announce themselves by a
//! separate flag, which a writer may leave raised for the next writer. There is no patience mechanism: the preferred
//! side may starve the other.
//!
//! The module [`readers`](super::readers) proves that readers and writers never miss each other; under NP the cohort
//! lock itself orders them. Under WP, a writer may find the flag already raised. A previous writer raised it while it
//! held the cohort lock, so that store comes before this writer's reads of the counts, as the proof requires.

use core::marker::PhantomData;

use archipelago_platform::atomic::{AtomicBool, Ordering};
use lock_api::{GuardNoSend, RawMutex, RawRwLock};

use super::cohort::{Part, RawCohort};
use super::home::{enter_node, leave_node};
use super::nodes;
use super::readers::Readers;
use super::wait::{locked_in_region, wait_until};

/// The side that is preferred. Sealed: implemented only by the three types of this module.
pub trait Preference: sealed::Sealed {
    /// The preferred side.
    const SIDE: Side;
}

/// The side that a reader-writer lock prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Side {
    /// Neither side: readers and writers queue together.
    Neither,
    /// Readers may enter while a writer waits.
    Readers,
    /// Readers wait while a writer waits.
    Writers,
}

mod sealed {
    pub trait Sealed {}
}

/// [`Side::Neither`] as a type.
#[derive(Debug)]
pub enum Neutral {}
/// [`Side::Readers`] as a type.
#[derive(Debug)]
pub enum PreferReaders {}
/// [`Side::Writers`] as a type.
#[derive(Debug)]
pub enum PreferWriters {}

impl sealed::Sealed for Neutral {}
impl sealed::Sealed for PreferReaders {}
impl sealed::Sealed for PreferWriters {}
impl Preference for Neutral {
    const SIDE: Side = Side::Neither;
}
impl Preference for PreferReaders {
    const SIDE: Side = Side::Readers;
}
impl Preference for PreferWriters {
    const SIDE: Side = Side::Writers;
}

/// C-RW-NP: readers and writers are served in the order of their arrival (by node). A reader takes the cohort lock for
/// a moment, so reading does not scale. For long critical sections where no thread may starve.
///
/// A thread that holds a read lock and takes the same lock for reading again may deadlock, if a writer arrives in
/// between. `try_read` fails also while another reader enters.
///
/// ```
/// use archipelago::sync::lock::{RawCrwNp, RwLock};
///
/// let words: RwLock<RawCrwNp, Vec<&str>> = RwLock::new(vec!["read"]);
/// {
///     let (one, other) = (words.read(), words.read());
///     assert_eq!(one.len(), other.len());
/// }
/// words.write().push("written");
/// assert_eq!(words.read().len(), 2);
/// ```
pub type RawCrwNp = CohortRw<Neutral>;
/// C-RW-RP: readers first. Writers may starve while readers keep overlapping.
///
/// ```
/// use archipelago::sync::lock::{RawCrwRp, RwLock};
///
/// let words: RwLock<RawCrwRp, Vec<&str>> = RwLock::new(vec!["read"]);
/// {
///     let (one, other) = (words.read(), words.read());
///     assert_eq!(one.len(), other.len());
/// }
/// words.write().push("written");
/// assert_eq!(words.read().len(), 2);
/// ```
pub type RawCrwRp = CohortRw<PreferReaders>;
/// C-RW-WP: writers go first. Readers may starve while writers keep arriving. For many readers per node, with memory
/// that grows with the number of nodes, not of threads.
///
/// A thread that holds a read lock and takes the same lock for reading again may deadlock, if a writer arrives in
/// between.
///
/// ```
/// use archipelago::sync::lock::{RawCrwWp, RwLock};
///
/// let words: RwLock<RawCrwWp, Vec<&str>> = RwLock::new(vec!["read"]);
/// {
///     let (one, other) = (words.read(), words.read());
///     assert_eq!(one.len(), other.len());
/// }
/// words.write().push("written");
/// assert_eq!(words.read().len(), 2);
/// ```
pub type RawCrwWp = CohortRw<PreferWriters>;

/// A reader-writer cohort lock. See [`RawCrwNp`], [`RawCrwRp`], [`RawCrwWp`].
#[derive(Debug)]
pub struct CohortRw<P> {
    writers: RawCohort,
    readers: Readers,
    /// Whether a writer waits for the readers to leave, or is inside. (With reader preference, a writer lowers the flag
    /// while it waits for readers.) Changed only by the holder of `writers`.
    flag: AtomicBool,
    preference: PhantomData<P>,
}

impl<P: Preference> CohortRw<P> {
    /// Makes an unlocked lock.
    ///
    /// ```
    /// use archipelago::sync::lock::{RawCrwNp, RwLock};
    ///
    /// static LOCK: RwLock<RawCrwNp, u64> = RwLock::from_raw(RawCrwNp::new(), 7);
    /// assert_eq!(*LOCK.read(), 7);
    /// ```
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            writers: RawCohort::new(),
            readers: Readers::new(),
            flag: AtomicBool::new(false),
            preference: PhantomData,
        }
    }

    /// Makes an unlocked lock.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            writers: RawCohort::new(),
            readers: Readers::new(),
            flag: AtomicBool::new(false),
            preference: PhantomData,
        }
    }

    fn arrive(&self) {
        self.readers.arrive(enter_node(), nodes::count);
    }

    fn depart(&self) {
        self.readers.depart(leave_node(), nodes::count);
    }

    /// Returns whether the flag is raised. `SeqCst`, like every change of the flag, as the proof in `readers` requires.
    /// As an Acquire, it pairs with the store in `lower_flag`.
    fn flag_is_up(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }

    /// Raises the flag. The caller holds `writers`.
    fn raise_flag(&self) {
        // Relaxed: a raised flag was left raised by the previous writer.
        if !self.flag.load(Ordering::Relaxed) {
            self.flag.store(true, Ordering::SeqCst);
        }
    }

    fn lower_flag(&self) {
        self.flag.store(false, Ordering::SeqCst);
    }

    /// Counts the reader in, if the flag is not raised. Returns whether the reader entered.
    fn try_arrive(&self) -> bool {
        if self.flag_is_up() {
            return false;
        }
        self.arrive();
        let entered = !self.flag_is_up();
        if !entered {
            self.depart();
        }
        entered
    }

    /// For reader preference: waits until the flag is raised at a moment without readers.
    fn wait_for_a_moment_without_readers(&self) {
        loop {
            self.raise_flag();
            if self.readers.are_gone(nodes::count) {
                return;
            }
            self.lower_flag();
            wait_until(|| self.readers.are_gone(nodes::count));
        }
    }

    /// Unlocks `writers`. Lowers the flag before, if readers may enter.
    unsafe fn unlock_writers(&self) {
        // With writer preference, a writer leaves the flag raised for the next one.
        if P::SIDE != Side::Writers || !self.writers.has_waiters() {
            self.lower_flag();
        }
        // SAFETY: the caller holds `writers`.
        unsafe { self.writers.unlock() };
    }
}

impl<P: Preference> Default for CohortRw<P> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: a writer holds `writers` and has seen that all readers have departed. New readers are turned away or wait
// because of the flag (RP, WP; see `readers`) or because of `writers` itself (NP). Guards stay on their thread, and
// `home` returns the same slot for a thread's departure as for its arrival.
unsafe impl<P: Preference> RawRwLock for CohortRw<P> {
    const INIT: Self = initial!();
    type GuardMarker = GuardNoSend;

    fn lock_shared(&self) {
        match P::SIDE {
            Side::Neither => {
                self.writers.lock();
                self.arrive();
                // SAFETY: locked above.
                unsafe { self.writers.unlock() };
            }
            Side::Readers if locked_in_region(|| self.try_lock_shared()) => {}
            Side::Readers => {
                self.arrive();
                wait_until(|| !self.flag_is_up());
            }
            Side::Writers => wait_until(|| self.try_arrive()),
        }
    }

    fn try_lock_shared(&self) -> bool {
        if P::SIDE != Side::Neither {
            return self.try_arrive();
        }
        let locked = self.writers.try_lock();
        if locked {
            self.arrive();
            // SAFETY: locked above.
            unsafe { self.writers.unlock() };
        }
        locked
    }

    unsafe fn unlock_shared(&self) {
        self.depart();
    }

    fn lock_exclusive(&self) {
        if locked_in_region(|| self.try_lock_exclusive()) {
            return;
        }
        self.writers.lock();
        if P::SIDE == Side::Readers {
            self.wait_for_a_moment_without_readers();
        } else {
            self.raise_flag();
            self.readers.wait_gone(nodes::count);
        }
    }

    fn try_lock_exclusive(&self) -> bool {
        if !self.writers.try_lock() {
            return false;
        }
        self.raise_flag();
        let alone = self.readers.are_gone(nodes::count);
        if !alone {
            // SAFETY: locked above.
            unsafe { self.unlock_writers() };
        }
        alone
    }

    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.unlock_writers() };
    }

    fn is_locked(&self) -> bool {
        self.is_locked_exclusive() || !self.readers.are_gone(nodes::count)
    }

    fn is_locked_exclusive(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

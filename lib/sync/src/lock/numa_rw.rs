//! NUMA-aware reader-writer locks: C-RW-NP, C-RW-RP and C-RW-WP (Calciu et al. 2013).
//!
//! Writers queue up in a [cohort lock](super::cohort), so that the lock stays on a node for several of them. Readers
//! count themselves in and out on their node's line, so that they do not disturb other nodes. The three differ in who
//! goes first when both sides want in:
//!
//! | | reader | writer | starves |
//! |---|---|---|---|
//! | NP, neutral | takes the cohort lock to count itself in | holds it, waits for the count to be zero | no thread |
//! | RP, readers | counts itself in at once, then waits for an active writer | claims only at a moment without readers | writers |
//! | WP, writers | counts itself in only when no writer is there | announces itself, then waits for the readers inside | readers |
//!
//! What differs from the paper: a count is one word per node rather than a pair for coming and going, because a reader
//! leaves where it entered (see [`home`](super::home)); writers are announced by a flag of their own, which one writer
//! leaves raised for the next; and there is no patience: the preferred side may starve the other.
//!
//! Why readers and writers never miss each other is argued at [`readers`](super::readers); under NP the cohort lock
//! itself orders them. Under WP a flag that a writer finds raised was raised by a predecessor under the cohort lock: that
//! store comes before this writer's look at the counts, which is all the argument needs.
//!
//! A thread that holds a read lock and takes another one of the same lock may deadlock under NP and WP with a writer
//! between.

use core::marker::PhantomData;

use archipelago_platform::atomic::{AtomicBool, Ordering};
use lock_api::{GuardNoSend, RawMutex, RawRwLock};

use super::cohort::{Part, RawCohort};
use super::home::{enter_node, leave_node};
use super::nodes;
use super::readers::Readers;
use super::wait::wait_until;

/// Who goes first. Sealed: the three of this module.
pub trait Preference: sealed::Sealed {
    /// Which of the three it is.
    const SIDE: Side;
}

/// Whom a reader-writer lock prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Side {
    /// No thread: readers and writers queue up together.
    Neither,
    /// Readers come in while a writer waits.
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

/// C-RW-NP: readers and writers are served in their order of arrival (by node). Reading takes the cohort lock for a
/// moment, so it does not scale; for long critical sections where no thread may starve.
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
/// C-RW-WP: writers first. Readers may starve while writers keep coming. For many readers per node, and memory that
/// grows with nodes rather than threads.
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
    /// A writer wants the readers gone. Changed only by who holds `writers`.
    flag: AtomicBool,
    preference: PhantomData<P>,
}

impl<P: Preference> CohortRw<P> {
    /// An unlocked lock.
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

    /// An unlocked lock.
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

    /// Whether a writer wants the readers gone. `SeqCst`, like every change of the flag, for the argument at `readers`; as
    /// an Acquire it pairs with the store in `lower_flag`.
    fn flag_is_up(&self) -> bool {
        self.flag.load(Ordering::SeqCst)
    }

    /// By who holds `writers`.
    fn raise_flag(&self) {
        // Relaxed: a flag that is up was left so by the writer before.
        if !self.flag.load(Ordering::Relaxed) {
            self.flag.store(true, Ordering::SeqCst);
        }
    }

    fn lower_flag(&self) {
        self.flag.store(false, Ordering::SeqCst);
    }

    /// Counts the reader in if no writer wants the readers gone.
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

    /// Under reader preference: the flag is up only at moments without readers.
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

    /// Lets go of `writers`, after the flag was lowered if readers are to come in.
    unsafe fn unlock_writers(&self) {
        // Writers that are preferred pass the raised flag on.
        if P::SIDE != Side::Writers || !self.writers.has_waiters() {
            self.lower_flag();
        }
        // SAFETY: the caller holds it.
        unsafe { self.writers.unlock() };
    }
}

impl<P: Preference> Default for CohortRw<P> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: a writer holds `writers`, and has seen every reader gone that was not turned away or held up: by the flag (RP,
// WP; see `readers`), or by `writers` itself (NP). Guards stay on their thread, and `home` gives it the same slot again.
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

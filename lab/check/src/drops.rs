//! Values that know how many of them are alive: was every value dropped exactly once?
//!
//! [`Counted`] values are made, cloned and dropped by the structure under test; the test's [`DropCounter`] counts. A
//! value also notices when it is dropped a second time or used after its drop, as far as its memory still tells: each
//! carries a mark that its drop overwrites. Such errors are noted, printed and raised by
//! [`DropCounter::assert_all_dropped`], not by a panic in the middle of the structure.
//!
//! Counters are never freed (there is one per test), so that a value can report even after it should have been gone.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::sync::Mutex;
use core::fmt;
use core::hash::{Hash, Hasher};

/// Keeps the counters of all tests reachable, so that leak checkers do not report them.
static COUNTERS: Mutex<Vec<&'static Counts>> = Mutex::new(Vec::new());

#[derive(Debug, Default)]
struct Counts {
    made: AtomicU64,
    dropped: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    #[cold]
    fn error(&self, what: &str, tag: u64) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        eprintln!("value {tag}: {what}");
    }
}

/// The count of one test's values.
#[derive(Clone, Copy, Debug)]
pub struct DropCounter {
    counts: &'static Counts,
}

impl Default for DropCounter {
    fn default() -> Self {
        Self::new()
    }
}

impl DropCounter {
    /// A counter at zero.
    pub fn new() -> Self {
        let counts = Box::leak(Box::default());
        COUNTERS.lock().expect("nothing panics under this lock").push(counts);
        DropCounter { counts }
    }

    /// Makes a value.
    pub fn value(self, tag: u64) -> Counted {
        // Relaxed, as all of these counts: they are compared after the threads that count were joined.
        self.counts.made.fetch_add(1, Ordering::Relaxed);
        Counted { tag, echo: !tag, mark: AtomicU64::new(ALIVE), counts: self.counts }
    }

    /// Values made and cloned so far.
    pub fn made(self) -> u64 {
        self.counts.made.load(Ordering::Relaxed)
    }

    /// Values alive: exact when no other thread makes or drops any meanwhile. Negative after double drops.
    pub fn alive(self) -> i64 {
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        self.made().wrapping_sub(dropped) as i64
    }

    /// Double drops and uses after a drop noticed so far.
    pub fn errors(self) -> u64 {
        self.counts.errors.load(Ordering::Relaxed)
    }

    /// # Panics
    /// When values are still alive, or an error was noticed.
    #[track_caller]
    pub fn assert_all_dropped(self) {
        assert_eq!(self.errors(), 0, "values were dropped twice or used after their drop (printed above)");
        assert_eq!(self.alive(), 0, "of {} values, this many were never dropped", self.made());
    }
}

const ALIVE: u64 = 0xA11E_DA7A_0F1E_55ED;
const DROPPED: u64 = 0xDEAD_DA7A_0F1E_55ED;

/// A counted value; two are equal when their tags are.
///
/// It owns no memory: a bitwise copy that is dropped too is noticed, not undefined behaviour.
pub struct Counted {
    tag: u64,
    /// The tag's complement: shows a value whose bytes are torn.
    echo: u64,
    mark: AtomicU64,
    counts: &'static Counts,
}

impl Counted {
    /// What the value was made with; notes an error when the value is no longer alive.
    pub fn tag(&self) -> u64 {
        if self.mark.load(Ordering::Relaxed) != ALIVE {
            self.counts.error("used after its drop", self.tag);
        } else if self.echo != !self.tag {
            self.counts.error("torn", self.tag);
        }
        self.tag
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        DropCounter { counts: self.counts }.value(self.tag())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A swap, so that the compiler must leave the mark behind for the thread that looks too late.
        if self.mark.swap(DROPPED, Ordering::Relaxed) != ALIVE {
            self.counts.error("dropped twice", self.tag);
        }
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.tag() == other.tag()
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tag().hash(state);
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counted({})", self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::ManuallyDrop;

    #[test]
    fn clones_count_too() {
        let counter = DropCounter::new();
        let one = counter.value(1);
        let two = one.clone();
        assert_eq!((one == two, counter.made(), counter.alive()), (true, 2, 2));
        drop(one);
        assert_eq!((two.tag(), counter.alive()), (1, 1));
        drop(two);
        counter.assert_all_dropped();
    }

    #[test]
    #[should_panic(expected = "never dropped")]
    fn a_leak_is_caught() {
        let counter = DropCounter::new();
        let _leaked = ManuallyDrop::new(counter.value(1));
        counter.assert_all_dropped();
    }

    #[test]
    #[should_panic(expected = "dropped twice")]
    fn a_double_drop_is_caught() {
        let counter = DropCounter::new();
        let mut value = ManuallyDrop::new(counter.value(1));
        for _ in 0..2 {
            // SAFETY: `Counted` owns nothing, and its memory stays here: dropping it again only notes the error.
            unsafe { ManuallyDrop::drop(&mut value) };
        }
        assert_eq!(counter.errors(), 1);
        counter.assert_all_dropped();
    }

    #[test]
    fn a_use_after_drop_is_caught() {
        let counter = DropCounter::new();
        let mut value = ManuallyDrop::new(counter.value(7));
        // SAFETY: as above.
        unsafe { ManuallyDrop::drop(&mut value) };
        assert_eq!((value.tag(), counter.errors()), (7, 1));
    }
}

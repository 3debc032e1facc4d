//! Values that count how many of them are alive, so that a test can check that every value was dropped exactly once.
//!
//! The structure under test makes, clones and drops [`Counted`] values; the test's [`DropCounter`] counts them. Each
//! value carries a mark that its drop overwrites. By the mark, a value also notices a second drop or a use after its
//! drop, as long as its memory is not reused. Such an error is recorded and printed at once.
//! [`DropCounter::assert_all_dropped`] panics for it later, so that no panic happens inside the structure.
//!
//! Counters are never freed (there is one per test), so that a value can report an error even when it should not exist
//! any more.

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
    /// Makes a counter at zero.
    pub fn new() -> Self {
        let counts = Box::leak(Box::default());
        COUNTERS.lock().expect("nothing panics under this lock").push(counts);
        DropCounter { counts }
    }

    /// Makes a value.
    pub fn value(self, tag: u64) -> Counted {
        // Relaxed, like all accesses to these counts: the counts are compared after the counting threads were joined.
        self.counts.made.fetch_add(1, Ordering::Relaxed);
        Counted { tag, echo: !tag, mark: AtomicU64::new(ALIVE), counts: self.counts }
    }

    /// Returns the number of values made or cloned so far.
    pub fn made(self) -> u64 {
        self.counts.made.load(Ordering::Relaxed)
    }

    /// Returns the number of values that are alive. It is exact if no other thread makes or drops values meanwhile, and
    /// negative after double drops.
    pub fn alive(self) -> i64 {
        let dropped = self.counts.dropped.load(Ordering::Relaxed);
        self.made().wrapping_sub(dropped) as i64
    }

    /// Returns the number of double drops, uses after a drop and torn values that were noticed so far.
    pub fn errors(self) -> u64 {
        self.counts.errors.load(Ordering::Relaxed)
    }

    /// Checks that all values were dropped exactly once.
    ///
    /// # Panics
    /// If values are still alive, or an error was noticed.
    #[track_caller]
    pub fn assert_all_dropped(self) {
        assert_eq!(self.errors(), 0, "values were dropped twice or used after their drop (printed above)");
        assert_eq!(self.alive(), 0, "of {} values, this many were never dropped", self.made());
    }
}

const ALIVE: u64 = 0xA11E_DA7A_0F1E_55ED;
const DROPPED: u64 = 0xDEAD_DA7A_0F1E_55ED;

/// A counted value. Two values are equal if their tags are equal.
///
/// A value owns no memory. So dropping a bitwise copy of it is noticed as an error, and is not undefined behaviour.
pub struct Counted {
    tag: u64,
    /// The tag's complement, which reveals a value whose bytes are torn.
    echo: u64,
    mark: AtomicU64,
    counts: &'static Counts,
}

impl Counted {
    /// Returns the tag with which the value was made. Records an error if the value is not alive any more, or torn.
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
        // The mark is swapped, so that the compiler must store it; a later use of the value reads the mark.
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
            // SAFETY: `Counted` owns nothing, and its memory stays allocated: dropping it again only records the error.
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

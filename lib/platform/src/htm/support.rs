//! Whether transactions work on this machine, and the reason if not.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::OsStr;
use std::sync::OnceLock;

use super::{Abort, imp};

/// The environment variable that can disable hardware transactions.
const VARIABLE: &str = "ARCHIPELAGO_HTM";

/// Whether this process can use hardware transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// A transaction was tried and committed.
    Works,
    /// Disabled by `ARCHIPELAGO_HTM=off`.
    Off,
    /// The processor reports no transactions, or a hypervisor or the kernel hides them. Or transactions of this vendor
    /// or kind are not used here.
    Absent,
    /// The processor has transactions, but its microcode makes all of them abort.
    AlwaysAbort,
    /// The processor reports transactions, but none of those that were tried has committed: a hypervisor or the kernel
    /// has disabled them. Contains the last abort.
    NeverCommit(Abort),
}

impl Support {
    /// Returns whether transactions can commit.
    pub fn works(self) -> bool {
        self == Support::Works
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Support::Works => f.write_str("work"),
            Support::Off => write!(f, "switched off by {VARIABLE}"),
            Support::Absent => f.write_str("none: the processor, the kernel or a hypervisor offers no RTM"),
            Support::AlwaysAbort => f.write_str("none: the processor's microcode makes every one abort"),
            Support::NeverCommit(why) => write!(f, "none: offered, but none commits ({why})"),
        }
    }
}

/// Returns whether `ARCHIPELAGO_HTM` allows transactions: `auto`, which is the default, or `off`.
///
/// # Errors
/// If the variable has another value. A program should check this first, since [`support`] can only panic.
pub fn from_env() -> Result<bool, String> {
    allowed(std::env::var_os(VARIABLE).as_deref())
}

fn allowed(value: Option<&OsStr>) -> Result<bool, String> {
    match value.map(OsStr::to_string_lossy).as_deref() {
        None | Some("" | "auto") => Ok(true),
        Some("off") => Ok(false),
        Some(other) => Err(format!("{VARIABLE}={other} is neither auto nor off")),
    }
}

/// Returns whether transactions work. The first call tries some. In the simulated world, the answer depends on the
/// machine of the run.
///
/// # Panics
/// If `ARCHIPELAGO_HTM` has an invalid value.
#[inline]
pub fn support() -> Support {
    #[cfg(archipelago_sim)]
    return if *ALLOWED.get_or_init(read_allowed) { imp::support() } else { Support::Off };
    #[cfg(not(archipelago_sim))]
    *FOUND.get_or_init(find)
}

/// `true` if a structure or a retry loop has asked for transactions, and this machine has none.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Notes that there are no transactions for the caller, which goes on without them.
#[cold]
pub(super) fn note_wanted() {
    // Most calls only read the flag: it would be one line that all threads write.
    if !WANTED.load(Ordering::Relaxed) {
        WANTED.store(true, Ordering::Relaxed);
    }
}

/// Returns why there are no transactions, if this process has wanted some: by [`Htm::get`](super::Htm::get),
/// [`transaction`](fn@super::transaction) or [`elide`](super::elide). So a report can say that what it measured ran
/// without transactions. Always `None` in the simulated world.
pub fn missed() -> Option<Support> {
    // Relaxed: the flag says nothing about other memory.
    (!crate::SIMULATED && WANTED.load(Ordering::Relaxed)).then(support)
}

#[cfg(archipelago_sim)]
static ALLOWED: OnceLock<bool> = OnceLock::new();
#[cfg(not(archipelago_sim))]
static FOUND: OnceLock<Support> = OnceLock::new();

#[cfg(not(archipelago_sim))]
#[cold]
fn find() -> Support {
    if read_allowed() { imp::support() } else { Support::Off }
}

fn read_allowed() -> bool {
    from_env().unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read() {
        for (value, expected) in [("auto", Ok(true)), ("", Ok(true)), ("off", Ok(false))] {
            assert_eq!(allowed(Some(OsStr::new(value))), expected);
        }
        assert_eq!(allowed(None), Ok(true));
        assert!(allowed(Some(OsStr::new("on"))).unwrap_err().contains("auto"));
    }

    #[test]
    fn reasons_are_told() {
        let reasons = [Support::Off, Support::Absent, Support::AlwaysAbort, Support::NeverCommit(Abort(0))];
        assert!(Support::Works.works() && reasons.iter().all(|reason| !reason.works()));
        let mut texts: Vec<String> = reasons.iter().map(Support::to_string).collect();
        texts.dedup();
        assert_eq!(texts.len(), reasons.len());
        assert_eq!(support().works(), super::super::available());
    }
}

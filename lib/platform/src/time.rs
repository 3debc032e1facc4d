//! Wall-clock time for reports, progress and sleeping. Algorithms order events by the ordered clock ([`crate::clock`])
//! instead.

pub use core::time::Duration;

#[cfg(archipelago_sim)]
pub use crate::simulated::time::{Instant, monotonic, unix_time};
#[cfg(not(archipelago_sim))]
pub use std::time::Instant;

/// Returns the time since an instant that is the same for the whole process. Never decreases. For times that are kept
/// in an atomic; others are [`Instant`]s. Inside a run of the simulator, the time is virtual, and the instant is the
/// run's start. Under loom no time passes.
#[cfg(not(any(archipelago_sim, loom)))]
#[inline]
pub fn monotonic() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Returns zero, see the other variant.
#[cfg(loom)]
pub fn monotonic() -> Duration {
    Duration::ZERO
}

/// Returns the time since the beginning of 1970 (UTC) by the system's clock, and zero while that clock shows an earlier
/// time. The system's clock may be set, so a later call may return less. Inside a run of the simulator, a run begins
/// with 1970, and the time is virtual.
#[cfg(not(archipelago_sim))]
pub fn unix_time() -> Duration {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Returns the processor time that the calling thread has used so far, or `None` where the system does not tell it: on
/// other systems than Unix, and in models, whose threads wait for no processor.
#[cfg(all(unix, not(any(archipelago_sim, loom, miri))))]
pub fn thread_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Returns `None`, see the other variant.
#[cfg(not(all(unix, not(any(archipelago_sim, loom, miri)))))]
pub fn thread_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    #[cfg(all(unix, not(any(archipelago_sim, loom, miri))))]
    fn a_threads_time_passes_while_it_works_and_not_while_it_sleeps() {
        let start = thread_time().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let slept = thread_time().unwrap() - start;
        assert!(slept < Duration::from_millis(40), "{slept:?}");
        while thread_time().unwrap() == start + slept {
            black_box((0..1_000).sum::<u64>());
        }
    }

    #[test]
    fn the_system_is_not_from_before_2020() {
        assert!(unix_time() > Duration::from_secs(50 * 365 * 86_400));
    }
}

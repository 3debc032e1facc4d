//! What the process uses of the machine.
//!
//! CPU time is asked for here, and not behind the door, because only reports want it.

pub use archipelago_platform::memory::{available_bytes, resident_bytes};
use archipelago_platform::time::Duration;

/// CPU time of all threads of the process, those that ended included; `None` where the system does not tell.
#[cfg(unix)]
pub fn cpu_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec to the address, which is this variable's.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// CPU time of all threads of the process, those that ended included; `None` where the system does not tell.
#[cfg(not(unix))]
pub fn cpu_time() -> Option<Duration> {
    None
}

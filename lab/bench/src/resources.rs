//! The CPU time and memory that the process uses.
//!
//! CPU time is read here and not in the platform crate, since only reports need it.

use archipelago_platform::memory::available_bytes;
pub use archipelago_platform::memory::resident_bytes;
use archipelago_platform::time::Duration;

use crate::failure::Failure;

/// Returns the CPU time of all threads of the process, including ended threads; `None` if the system does not report
/// it.
#[cfg(unix)]
pub fn cpu_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec to the address, which is this variable's.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Returns `None`: CPU time is not read on this system.
#[cfg(not(unix))]
pub fn cpu_time() -> Option<Duration> {
    None
}

/// Returns whether the address space has room for this many more bytes. A limit may be set on it (`ulimit -v`).
#[cfg(unix)]
pub fn has_room(bytes: usize) -> bool {
    let (access, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANON);
    // SAFETY: the system chooses the address of the mapping, and the mapping is neither read nor written.
    let room = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if room == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping belongs to this function.
    unsafe { libc::munmap(room, bytes) };
    true
}

/// Returns true: the free address space is not known on this system.
#[cfg(not(unix))]
pub fn has_room(_: usize) -> bool {
    true
}

/// Writes to `bytes` bytes of fresh memory, and frees them, so that the next `bytes` bytes that the process maps cost
/// what they cost on a real machine.
///
/// The host of a virtual machine may provide memory when the guest first writes to it, and take it away when the guest
/// has left it free for some seconds. Then the first write to two megabytes takes milliseconds instead of a fifth of
/// one. The contender that happens to write first would pay for all.
#[cfg(unix)]
pub fn warm_memory(bytes: usize) {
    /// Every page of the kernel is at least as long.
    const PAGE: usize = 4096;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
    // SAFETY: the system chooses the address of the mapping.
    let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the mapping belongs to this function, and every write is within it.
    unsafe {
        #[cfg(target_os = "linux")]
        libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        (0..bytes).step_by(PAGE).for_each(|at| start.cast::<u8>().add(at).write_volatile(1));
        libc::munmap(start, bytes);
    }
}

/// Does nothing on this system.
#[cfg(not(unix))]
pub fn warm_memory(_: usize) {}

/// The resident memory before some data is made.
pub struct Held {
    before: Option<u64>,
    release_memory: fn(),
}

impl Held {
    /// Takes the present resident memory. `release_memory` makes the allocator return free memory to the system.
    pub fn now(release_memory: fn()) -> Held {
        release_memory();
        Held { before: resident_bytes(), release_memory }
    }

    /// Returns the bytes of resident memory added since then, per key.
    pub fn since(&self, keys: usize) -> Option<f64> {
        (self.release_memory)();
        let (before, after) = self.before.zip(resident_bytes())?;
        Some((after as f64 - before as f64) / keys as f64)
    }
}

/// Checks that memory has room for `count` items of about `each` bytes, and for `more` bytes beside them.
///
/// # Errors
/// As [`check_memory`].
pub fn check_items(count: usize, each: u64, more: u64) -> Result<(), Failure> {
    let needed = (count as u64).saturating_mul(each).saturating_add(more);
    check_memory(needed, &format!("{count} items"), "a smaller --count (or --buckets, --replicas)")
}

/// Checks that `what` fits into the available memory. `try_this` tells the user what to change if it does not.
///
/// # Errors
/// If it does not fit.
pub fn check_memory(needed: u64, what: &str, try_this: &str) -> Result<(), Failure> {
    let Some(available) = available_bytes().filter(|available| needed > *available) else { return Ok(()) };
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(Failure::new(format!(
        "{what} need about {:.1} GiB of memory, {:.1} GiB are available; try {try_this}",
        gib(needed),
        gib(available)
    )))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn warmed_memory_is_given_back() {
        const BYTES: usize = 96 << 20;
        let before = resident_bytes().unwrap();
        warm_memory(BYTES);
        let kept = resident_bytes().unwrap().saturating_sub(before);
        // Other tests of the process allocate, too.
        assert!(kept < BYTES as u64 / 2, "{kept} bytes");
    }
}

//! What the process uses: CPU time and memory.

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

/// Resident memory of the process in bytes; `None` where the system does not tell.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

/// Memory that can be had without swapping, in bytes; `None` where the system does not tell.
pub fn available_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(unix)]
fn page_bytes() -> u64 {
    // SAFETY: sysconf only returns a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

#[cfg(not(unix))]
fn page_bytes() -> u64 {
    4096
}

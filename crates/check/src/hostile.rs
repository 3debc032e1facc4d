//! What hostile tests measure: memory, the longest operation, and a control to judge it by.
//!
//! On a machine with fewer cores than threads any operation may last as long as the scheduler keeps its thread waiting.
//! So an operation's longest time says something only beside the longest gap that as many threads see which do nothing
//! but read the clock, in the same run: [`longest_gap`].
//!
//! Memory is counted twice: what was asked of the allocator, by a test binary that makes [`Counting`] its global
//! allocator, and what the operating system holds for the process, by [`resident_bytes`].

use archipelago_platform::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use std::alloc::{GlobalAlloc, Layout, System};

/// The environment variable that makes hostile tests run long: seconds for each.
pub const SECONDS: &str = "ARCHIPELAGO_HOSTILE_SECONDS";

/// How long each hostile test works its structure: [`SECONDS`] if set, otherwise one second.
///
/// # Panics
/// If the variable is no number of seconds.
pub fn duration() -> Duration {
    let seconds = std::env::var(SECONDS).map_or(1.0, |text| text.parse().expect("seconds, as a number"));
    Duration::from_secs_f64(seconds)
}

/// The system's allocator, counting. Declare it in a test binary: `#[global_allocator] static HEAP: Counting = Counting::new();`
#[derive(Debug)]
pub struct Counting {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Counting {
    /// An allocator that has given nothing out.
    #[expect(clippy::new_without_default, reason = "it is a static, made by a constant expression")]
    pub const fn new() -> Self {
        Self { now: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    /// Bytes that are allocated now.
    pub fn bytes(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// The most bytes that were allocated at a time since [`reset_peak`](Self::reset_peak).
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Forgets the peak before now.
    pub fn reset_peak(&self) {
        self.peak.store(self.bytes(), Ordering::Relaxed);
    }

    fn grown(&self, bytes: usize) {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Most allocations set no record: those write one shared word, not two.
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn shrunk(&self, bytes: usize) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            self.grown(layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.shrunk(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Bytes that the operating system holds for this process; `None` where it does not tell.
pub fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

/// The longest of many times, kept by many threads.
#[derive(Debug, Default)]
pub struct Longest(AtomicU64);

impl Longest {
    /// Runs `operation` and counts its time.
    #[inline]
    pub fn time<R>(&self, operation: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = operation();
        self.note(start.elapsed());
        result
    }

    /// Counts a time.
    pub fn note(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if nanos > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// The longest so far.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Runs `work(thread number)` again and again in `threads` threads for `duration`, and says how long the longest took
/// and how many there were.
pub fn press(threads: usize, duration: Duration, work: impl Fn(usize) + Sync) -> (Duration, u64) {
    let (longest, count, over) = (Longest::default(), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..threads {
            let (longest, count, over, work) = (&longest, &count, &over, &work);
            scope.spawn(move || {
                let mut mine = 0;
                while !over.load(Ordering::Relaxed) {
                    longest.time(|| work(thread));
                    mine += 1;
                }
                count.fetch_add(mine, Ordering::Relaxed);
            });
        }
        thread::sleep(duration);
        over.store(true, Ordering::Relaxed);
    });
    (longest.get(), count.load(Ordering::Relaxed))
}

/// The control: the longest gap between two readings of the clock that any of `threads` threads sees in `duration`,
/// when all of them do nothing else.
pub fn longest_gap(threads: usize, duration: Duration) -> Duration {
    press(threads, duration, |_| ()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted() {
        let heap = Counting::new();
        let layout = Layout::new::<[u64; 100]>();
        // SAFETY: the layout has a size, and the block is given back with it once.
        unsafe {
            let block = heap.alloc(layout);
            assert_eq!(heap.bytes(), 800);
            heap.dealloc(block, layout);
        }
        assert_eq!((heap.bytes(), heap.peak()), (0, 800));
        heap.reset_peak();
        assert_eq!(heap.peak(), 0);
    }

    #[test]
    fn the_longest_is_kept() {
        let longest = Longest::default();
        for millis in [1, 7, 3] {
            longest.note(Duration::from_millis(millis));
        }
        assert_eq!(longest.get(), Duration::from_millis(7));
    }

    #[test]
    fn every_thread_works() {
        let seen = [const { AtomicBool::new(false) }; 3];
        let (_, count) = press(3, Duration::from_millis(30), |thread| {
            seen[thread].store(true, Ordering::Relaxed);
            thread::yield_now();
        });
        assert!(count >= 3 && seen.iter().all(|seen| seen.load(Ordering::Relaxed)));
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn linux_tells_what_it_holds() {
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 16));
    }
}

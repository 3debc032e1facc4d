//! Measurements for hostile tests, in which threads far outnumber the processors: crowds of threads, memory, the
//! longest operation, and a control with which to compare it.
//!
//! On a machine with fewer cores than threads, any operation can take as long as the scheduler keeps its thread
//! waiting. So an operation's longest time is meaningful only if it is compared with a control: the [`longest_gap`]
//! between two readings of the clock, in as many threads that do nothing else. The control runs before and after the
//! measurement ([`in_turns`]). Other load on the machine can still affect only one of them. Therefore a judgement has
//! [several tries](some_try); a real fault fails all of them.
//!
//! Memory is counted in two ways. A test binary that makes [`Counting`] its global allocator counts the bytes that were
//! requested from the allocator. [`resident_bytes`] returns the memory that the operating system has given to the
//! process. Both numbers are the whole process's. So a test that reads them, or measures times, runs [`alone`].
//! ([`Counting::allocations_here`] counts the allocations of one thread, which no other thread disturbs.)

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering};
pub use archipelago_platform::memory::resident_bytes;
use archipelago_platform::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::PoisonError;

/// The environment variable that makes hostile tests run longer: the seconds for each load.
pub const SECONDS: &str = "ARCHIPELAGO_HOSTILE_SECONDS";

/// Returns how long a load lasts: [`SECONDS`] if it is set, otherwise one second.
///
/// # Panics
/// If the variable is not a number of seconds.
pub fn duration() -> Duration {
    duration_or(Duration::from_secs(1))
}

/// Returns how long a load lasts: [`SECONDS`] if it is set, otherwise `usual`.
///
/// # Panics
/// If the variable is not a number of seconds.
pub fn duration_or(usual: Duration) -> Duration {
    chosen(std::env::var(SECONDS).ok().as_deref(), usual)
}

fn chosen(seconds: Option<&str>, usual: Duration) -> Duration {
    seconds.map_or(usual, |text| Duration::from_secs_f64(text.parse().expect("seconds, as a number")))
}

/// Returns the time limit of a test of up to a hundred loads, for the [watchdog](crate::watchdog::watchdog).
pub fn limit() -> Duration {
    Duration::from_secs(3_600) + 100 * duration()
}

static TESTS: RwLock<()> = RwLock::new(());

/// Returns a guard for a test that reads the whole process's memory or measures times. While the guard lives, no other
/// test of this process that calls `alone` or [`beside`] runs.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    TESTS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a guard for a test that may run beside others, except beside a test that is [`alone`].
pub fn beside() -> RwLockReadGuard<'static, ()> {
    TESTS.read().unwrap_or_else(PoisonError::into_inner)
}

thread::thread_local! {
    /// The number of the thread's allocations so far.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// The bytes of these allocations.
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator with counts. A test binary declares it by
/// `#[global_allocator] static HEAP: Counting = Counting::new();`.
#[derive(Debug)]
pub struct Counting {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Counting {
    /// Makes an allocator that has allocated nothing.
    #[expect(clippy::new_without_default, reason = "it is a static, made by a constant expression")]
    pub const fn new() -> Self {
        Self { now: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    /// Returns the number of bytes that are allocated now.
    pub fn bytes(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns the most bytes that were allocated at any time since the last [`reset_peak`](Self::reset_peak), or since
    /// the beginning if there was none.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Sets the peak to the bytes that are allocated now.
    pub fn reset_peak(&self) {
        self.peak.store(self.bytes(), Ordering::Relaxed);
    }

    /// Runs `work`. Returns the most bytes that were allocated at any time meanwhile, beyond those allocated before,
    /// and the result.
    pub fn most<R>(&self, work: impl FnOnce() -> R) -> (usize, R) {
        self.reset_peak();
        let before = self.bytes();
        let result = work();
        (self.peak().saturating_sub(before), result)
    }

    /// Runs `work`. Returns by how many bytes the allocated memory grew; the number is negative if it shrank.
    pub fn growth(&self, work: impl FnOnce()) -> isize {
        let before = self.bytes();
        work();
        self.bytes().wrapping_sub(before) as isize
    }

    /// Runs `work`. Returns the number of allocations that the calling thread made meanwhile. (A reallocation counts as
    /// one.)
    pub fn allocations_here(&self, work: impl FnOnce()) -> u64 {
        let before = ALLOCATIONS.get();
        work();
        ALLOCATIONS.get() - before
    }

    /// Runs `work`. Returns the number of bytes that the calling thread allocated meanwhile, including those that it freed
    /// again. (A reallocation counts with its new size.)
    pub fn allocated_here(&self, work: impl FnOnce()) -> usize {
        let before = ALLOCATED.get();
        work();
        ALLOCATED.get() - before
    }

    /// Asserts that `work` allocates nothing, by [several tries](some_try): the test harness allocates memory when
    /// another test ends.
    ///
    /// # Panics
    /// If memory is allocated during each of ten calls.
    #[track_caller]
    pub fn allocates_nothing(&self, work: impl Fn()) {
        some_try(10, || match self.most(&work).0 {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes allocated")),
        });
    }

    fn grown(&self, bytes: usize) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        ALLOCATED.set(ALLOCATED.get().wrapping_add(bytes));
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Most allocations do not raise the peak. They write one shared word instead of two.
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
    }

    fn shrunk(&self, bytes: usize) {
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: all calls are forwarded to the system's allocator.
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

/// The maximum of many times, which many threads record.
#[derive(Debug, Default)]
pub struct Longest(AtomicU64);

impl Longest {
    /// Records a time.
    pub fn note(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if nanos > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(nanos, Ordering::Relaxed);
        }
    }

    /// Returns the longest time so far.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Runs `work(thread, end)` in `threads` threads, numbered from 0. Each is to work until `end`, which is `time` from
/// now. Returns the threads' results in order.
///
/// # Panics
/// If a thread panics.
pub fn crowd<R: Send>(threads: usize, time: Duration, work: impl Fn(usize, Instant) -> R + Sync) -> Vec<R> {
    let end = Instant::now() + time;
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread, end))).collect();
        running.into_iter().map(|thread| thread.join().expect("no thread of the crowd panics")).collect()
    })
}

/// Calls `work(thread, turn)` repeatedly in `threads` threads for `time`, at least once in each. Returns the longest
/// time of a call, and the number of calls.
pub fn press(threads: usize, time: Duration, work: impl Fn(usize, u64) + Sync) -> (Duration, u64) {
    let each = crowd(threads, time, |thread, end| {
        let (mut longest, mut turns, mut last) = (Duration::ZERO, 0, Instant::now());
        loop {
            work(thread, turns);
            let now = Instant::now();
            longest = longest.max(now - last);
            (turns, last) = (turns + 1, now);
            if now >= end {
                return (longest, turns);
            }
        }
    });
    each.into_iter().fold((Duration::ZERO, 0), |(longest, all), (mine, turns)| (longest.max(mine), all + turns))
}

/// Measures the control: the longest gap between two readings of the clock that any of `threads` threads sees in
/// `time`, while all of them do nothing else.
pub fn longest_gap(threads: usize, time: Duration) -> Duration {
    press(threads, time, |_, _| ()).0
}

/// Returns the average length of a thread's turn on a processor, for two groups: `threads` threads that run
/// `work(thread, end)`, and equally many threads that only spin. Both groups run together, since all threads compete
/// for turns. Returns `None` if the system does not count turns.
pub fn turns(threads: usize, time: Duration, work: impl Fn(usize, Instant) + Sync) -> Option<(Duration, Duration)> {
    let each = crowd(2 * threads, time, |thread, end| {
        if thread < threads {
            work(thread, end);
        } else {
            while Instant::now() < end {}
        }
        turns_so_far()
    });
    let mean = |turns: &[Option<(Duration, u32)>]| {
        let turns: Vec<(Duration, u32)> = turns.iter().copied().collect::<Option<_>>()?;
        let (time, count) = turns.into_iter().fold((Duration::ZERO, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        Some(time / count.max(1))
    };
    Some((mean(&each[..threads])?, mean(&each[threads..])?))
}

/// Returns the processor time of the calling thread so far, and its number of turns, which Linux counts.
fn turns_so_far() -> Option<(Duration, u32)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let (ran, _waited, turns) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    (ran > 0).then(|| (Duration::from_nanos(ran), u32::try_from(turns).unwrap_or(u32::MAX)))
}

/// Judges the [`turns`] of threads that should yield the processor long before the scheduler preempts them; for
/// [`some_try`]. Accepts `None`, that is, a system that does not count turns.
///
/// # Errors
/// If their turns are longer than a fifth of the turns of threads that only spin. (Threads that wait for each other
/// occasionally have turns of a third, on two processors beside other load.)
pub fn ended_early(name: &str, turns: Option<(Duration, Duration)>) -> Result<(), String> {
    let Some((ours, others)) = turns else { return Ok(()) };
    let said = format!("{name}: turns of {ours:?}, beside {others:?} of threads that spin");
    println!("{said}");
    if 5 * ours <= others { Ok(()) } else { Err(said) }
}

/// Runs the control before and after the measurement, since the machine's other load changes. Returns the measurement,
/// and the longer one of the controls.
pub fn in_turns<R>(control: impl Fn() -> Duration, measured: impl FnOnce() -> R) -> (R, Duration) {
    let before = control();
    let measured = measured();
    (measured, before.max(control()))
}

/// Prints a measurement, and judges it for [`some_try`].
///
/// # Errors
/// If `longest` is at least `times` times as long as `control`.
pub fn within(name: &str, times: u32, longest: Duration, control: Duration) -> Result<(), String> {
    let said = format!("{name}: {longest:?} at the longest, beside {control:?} of the control");
    println!("{said}");
    if longest < times * control { Ok(()) } else { Err(format!("{said}, of which {times} times is allowed")) }
}

/// Repeats a judgement until a try succeeds, and returns its result. Other load on the machine can make a try fail; a
/// real fault makes all tries fail. Conditions that must hold in every try are asserted by `judge` itself.
///
/// # Panics
/// With the last error, if `tries` tries in a row fail.
#[track_caller]
pub fn some_try<R>(tries: usize, mut judge: impl FnMut() -> Result<R, String>) -> R {
    let mut last = String::new();
    for number in 1..=tries {
        match judge() {
            Ok(result) => return result,
            Err(error) if error == last => (),
            Err(error) => {
                println!("try {number} of {tries}: {error}");
                last = error;
            }
        }
    }
    panic!("none of {tries} tries succeeded, lastly: {last}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_platform::sync::Mutex;

    #[test]
    fn allocations_are_counted() {
        let heap = Counting::new();
        let layout = Layout::new::<[u64; 100]>();
        // SAFETY: the layout has a size, and the block is freed with the layout once.
        unsafe {
            let block = heap.alloc(layout);
            assert_eq!(heap.bytes(), 800);
            heap.dealloc(block, layout);
        }
        assert_eq!((heap.bytes(), heap.peak()), (0, 800));
        heap.reset_peak();
        assert_eq!(heap.peak(), 0);
        // Other threads' allocations do not count as this thread's.
        let allocate = || heap.grown(1);
        assert_eq!(heap.allocations_here(|| thread::scope(|scope| drop(scope.spawn(allocate).join()))), 0);
        assert_eq!(heap.allocations_here(allocate), 1);
        assert_eq!(heap.allocated_here(|| (0..3).for_each(|_| allocate())), 3);
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
        assert_eq!(crowd(3, Duration::ZERO, |thread, _| thread), [0, 1, 2]);
        let seen = Mutex::new(Vec::new());
        let (longest, count) = press(3, Duration::from_millis(20), |thread, turn| {
            thread::sleep(Duration::from_millis(if (thread, turn) == (1, 0) { 10 } else { 1 }));
            seen.lock().unwrap().push((thread, turn));
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len() as u64, count, "each turn is another");
        assert!((0..3).all(|thread| seen.contains(&(thread, 0))) && longest >= Duration::from_millis(10));
    }

    #[test]
    fn growth_and_the_most_are_counted_from_before() {
        let heap = Counting::new();
        heap.grown(100);
        let (most, growth) = heap.most(|| {
            heap.growth(|| {
                heap.grown(50);
                heap.shrunk(80);
            })
        });
        assert_eq!((most, growth, heap.bytes()), (50, -30, 70));
    }

    #[test]
    fn what_allocates_each_time_is_told_from_what_does_once() {
        let (heap, first) = (Counting::new(), AtomicU64::new(1));
        heap.allocates_nothing(|| heap.grown(first.swap(0, Ordering::Relaxed) as usize));
        let each = std::panic::catch_unwind(|| heap.allocates_nothing(|| heap.grown(1)));
        assert!(each.is_err());
    }

    #[test]
    fn seconds_come_before_the_usual() {
        let usual = Duration::from_millis(200);
        assert_eq!((chosen(None, usual), chosen(Some("0.5"), usual)), (usual, Duration::from_millis(500)));
    }

    #[test]
    fn the_longer_control_counts() {
        let turns = AtomicU64::new(0);
        let turn = || turns.fetch_add(1, Ordering::Relaxed);
        let (measured, control) = in_turns(|| Duration::from_secs(turn()), turn);
        assert_eq!((measured, control), (1, Duration::from_secs(2)));
        let judged = |millis| within("this", 3, Duration::from_millis(millis), Duration::from_millis(10));
        assert!(judged(29).is_ok() && judged(30).is_err());
    }

    #[test]
    fn one_try_of_some_suffices() {
        let mut tries = 0;
        let third = some_try(5, || {
            tries += 1;
            if tries == 3 { Ok(tries) } else { Err("not yet".to_owned()) }
        });
        assert_eq!((third, tries), (3, 3));
    }

    #[test]
    fn a_fault_fails_all_tries() {
        let tries = AtomicU64::new(0);
        let failing = || Err(format!("fault {}", tries.fetch_add(1, Ordering::Relaxed)));
        let panic = std::panic::catch_unwind(|| some_try::<()>(5, failing)).unwrap_err();
        let text = panic.downcast::<String>().unwrap();
        assert!(text.contains("fault 4") && tries.load(Ordering::Relaxed) == 5, "{text}");
    }

    #[test]
    fn a_test_is_alone_or_beside_others() {
        let beside_this = beside();
        drop(beside());
        drop(beside_this);
        let alone = alone();
        thread::scope(|scope| {
            let other = scope.spawn(|| drop(beside()));
            thread::sleep(Duration::from_millis(5));
            assert!(!other.is_finished(), "beside a test that is alone");
            drop(alone);
        });
    }
}

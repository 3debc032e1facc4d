//! What hostile tests measure with: threads that far outnumber the processors, memory, the longest operation, and a control
//! to judge it by.
//!
//! On a machine with fewer cores than threads any operation may last as long as the scheduler keeps its thread waiting.
//! So an operation's longest time says something only beside the longest gap that as many threads see which do nothing
//! but read the clock, in the same run: [`longest_gap`], before and behind it: [`in_turns`]. What else the machine does may
//! come between them all the same, so such a judgement gets [some tries](some_try); a fault fails all of them.
//!
//! Memory is counted twice: what was asked of the allocator, by a test binary that makes [`Counting`] its global
//! allocator, and what the operating system holds for the process, by [`resident_bytes`]. Both are the whole process's, so
//! a test that looks at them, or at times, is [`alone`].

use archipelago_platform::atomic::{AtomicU64, AtomicUsize, Ordering};
pub use archipelago_platform::memory::resident_bytes;
use archipelago_platform::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::PoisonError;

/// The environment variable that makes hostile tests run long: seconds for each load.
pub const SECONDS: &str = "ARCHIPELAGO_HOSTILE_SECONDS";

/// How long a load lasts: [`SECONDS`] if set, otherwise one second.
///
/// # Panics
/// If the variable is no number of seconds.
pub fn duration() -> Duration {
    duration_or(Duration::from_secs(1))
}

/// How long a load lasts: [`SECONDS`] if set, otherwise `usual`.
///
/// # Panics
/// If the variable is no number of seconds.
pub fn duration_or(usual: Duration) -> Duration {
    chosen(std::env::var(SECONDS).ok().as_deref(), usual)
}

fn chosen(seconds: Option<&str>, usual: Duration) -> Duration {
    seconds.map_or(usual, |text| Duration::from_secs_f64(text.parse().expect("seconds, as a number")))
}

/// When a test of up to a hundred loads hangs, for the [watchdog](crate::watchdog::watchdog).
pub fn limit() -> Duration {
    Duration::from_secs(3_600) + 100 * duration()
}

static TESTS: RwLock<()> = RwLock::new(());

/// For a test that looks at the whole process's memory, or at times: none of this process that is [`alone`] or [`beside`]
/// others runs meanwhile.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    TESTS.write().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that may run beside others, but not beside one that is [`alone`].
pub fn beside() -> RwLockReadGuard<'static, ()> {
    TESTS.read().unwrap_or_else(PoisonError::into_inner)
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

    /// The most bytes that were allocated at a time while `work` ran, beyond what was before.
    pub fn most<R>(&self, work: impl FnOnce() -> R) -> (usize, R) {
        self.reset_peak();
        let before = self.bytes();
        let result = work();
        (self.peak().saturating_sub(before), result)
    }

    /// By how many bytes what is allocated grows during `work`; less than zero if it shrinks.
    pub fn growth(&self, work: impl FnOnce()) -> isize {
        let before = self.bytes();
        work();
        self.bytes().wrapping_sub(before) as isize
    }

    /// Asserts that `work` allocates nothing, by [some tries](some_try): the test harness allocates when another test ends.
    ///
    /// # Panics
    /// If bytes are allocated during each of ten calls.
    #[track_caller]
    pub fn allocates_nothing(&self, work: impl Fn()) {
        some_try(10, || match self.most(&work).0 {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes allocated")),
        });
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

/// The longest of many times, kept by many threads.
#[derive(Debug, Default)]
pub struct Longest(AtomicU64);

impl Longest {
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

/// Runs `work(thread, end)` in `threads` threads, numbered from 0: each is to work until `end`, which is `time` from now.
/// What each returns, in their order.
///
/// # Panics
/// If one of them does.
pub fn crowd<R: Send>(threads: usize, time: Duration, work: impl Fn(usize, Instant) -> R + Sync) -> Vec<R> {
    let end = Instant::now() + time;
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread, end))).collect();
        running.into_iter().map(|thread| thread.join().expect("no thread of the crowd panics")).collect()
    })
}

/// Runs `work(thread, turn)` again and again in `threads` threads for `time`, in each at least once, and says how long the
/// longest took and how many there were.
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

/// The control: the longest gap between two readings of the clock that any of `threads` threads sees in `time`, when all
/// of them do nothing else.
pub fn longest_gap(threads: usize, time: Duration) -> Duration {
    press(threads, time, |_, _| ()).0
}

/// How long a turn at a processor lasts, on average: of `threads` threads that `work(thread, end)`, and of as many beside them
/// that only spin, since all of them compete for turns with each other. `None` where the system does not count turns.
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

/// What the calling thread has had of a processor, and in how many turns: Linux counts that.
fn turns_so_far() -> Option<(Duration, u32)> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let (ran, _waited, turns) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    (ran > 0).then(|| (Duration::from_nanos(ran), u32::try_from(turns).unwrap_or(u32::MAX)))
}

/// Judges, for [`some_try`], [`turns`] of threads that are to end them themselves, long before the scheduler does.
///
/// # Errors
/// If their turns are more than a fifth as long as those of threads that only spin. (Threads that wait for each other now and
/// then have turns of a third, on two processors beside other load.)
pub fn ended_early(name: &str, turns: Option<(Duration, Duration)>) -> Result<(), String> {
    let Some((ours, others)) = turns else { return Ok(()) };
    let said = format!("{name}: turns of {ours:?}, beside {others:?} of threads that spin");
    println!("{said}");
    if 5 * ours <= others { Ok(()) } else { Err(said) }
}

/// Measures between two controls, since what else the machine does comes and goes: what was measured, and the longer one
/// of the controls.
pub fn in_turns<R>(control: impl Fn() -> Duration, measured: impl FnOnce() -> R) -> (R, Duration) {
    let before = control();
    let measured = measured();
    (measured, before.max(control()))
}

/// Says what was measured, and judges it for [`some_try`].
///
/// # Errors
/// If `longest` is not below `times` as long as `control`.
pub fn within(name: &str, times: u32, longest: Duration, control: Duration) -> Result<(), String> {
    let said = format!("{name}: {longest:?} at the longest, beside {control:?} of the control");
    println!("{said}");
    if longest < times * control { Ok(()) } else { Err(format!("{said}, of which {times} times is allowed")) }
}

/// Repeats a judgement that other load on the machine can spoil and a fault cannot, until a try succeeds: its result. What
/// must hold in every try, `judge` asserts.
///
/// # Panics
/// With the last error, after `tries` in a row.
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

//! How long threads are kept waiting, and what to compare it with.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// When a hostile test hangs.
pub const LIMIT: Duration = Duration::from_secs(3_600);

/// As long as asked for, times `ARCHIPELAGO_HOSTILE`.
pub fn scaled(time: Duration) -> Duration {
    let times = std::env::var("ARCHIPELAGO_HOSTILE").map_or(1.0, |text| text.parse().expect("a number"));
    time.mul_f64(times)
}

/// Runs `once` again and again in so many threads; the longest time that it says it took, of all.
pub fn while_time(threads: usize, time: Duration, once: impl Fn(u64) -> Duration + Sync) -> Duration {
    let stop = AtomicBool::new(false);
    let run = |first: u64| {
        let (mut number, mut longest) = (first, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            longest = longest.max(once(number));
            number += 1;
        }
        longest
    };
    let run = &run;
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread as u64))).collect();
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        running.into_iter().map(|thread| thread.join().expect("no panic")).max().unwrap_or_default()
    })
}

/// The longest time between two looks at the clock, of so many threads that do nothing else.
pub fn gaps_of_the_clock(threads: usize, time: Duration) -> Duration {
    while_time(threads, time, |_| {
        let before = Instant::now();
        before.elapsed()
    })
}

/// Measures between two controls: what was measured, and the longer one of the controls.
pub fn in_turns(control: impl Fn() -> Duration, measured: impl FnOnce() -> Duration) -> (Duration, Duration) {
    let before = control();
    let measured = measured();
    (measured, before.max(control()))
}

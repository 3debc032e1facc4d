//! Runs a test in the *model world*, that is, under loom.
//!
//! loom chooses its schedules by the last access to each word, and so misses some of them, in the worst case all but
//! one (see `atomic/model.rs`). The atomics of this crate correct this, at the cost of many more schedules. Therefore a
//! model is run several times. A *preemption* is a switch to another thread at a point where the current one could go
//! on. The first run has the schedules that loom chooses, with the full number of preemptions. The next runs have the
//! correction, with one preemption, two preemptions, and so on up to the full number. A run that reaches the limit of
//! schedules is the last one.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod stacks;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest number of points in one schedule at which loom chooses (which thread goes on, or what a load returns). A
/// longer schedule is considered endless.
const MAX_BRANCHES: usize = 20_000;

/// The number of schedules at which the complete search gives up, unless `ARCHIPELAGO_SCHEDULES` is set. It takes some
/// seconds.
const MAX_SCHEDULES: usize = 8_000;

/// The interval, in schedules, at which loom checks this limit.
const STRIDE: usize = 500;

thread_local! {
    /// Whether the complete search runs. A thread-local suffices: loom runs all threads of a model in the thread that
    /// started it.
    static COMPLETE: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether loads are to be distinguished by their order.
pub(crate) fn is_complete() -> bool {
    COMPLETE.get()
}

/// Runs `test` in all schedules with at most this many preemptions, and with all values that its loads may return. One
/// restriction: the schedules that loom does not choose by itself are tried up to a limit for each number of
/// preemptions, the value of `ARCHIPELAGO_SCHEDULES`.
///
/// # Panics
/// If a schedule fails, or if there is only one schedule: a model without any alternatives tests nothing.
pub fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let test = Arc::new(test);
    let most = std::env::var("ARCHIPELAGO_SCHEDULES").ok().and_then(|most| most.parse().ok()).unwrap_or(MAX_SCHEDULES);
    let planned = schedules(preemptions, None, false, &test);
    println!("{preemptions} preemptions: {planned} schedules by loom's plan");
    let mut all = 0;
    for preemptions in 1..=preemptions {
        all = schedules(preemptions, Some(most), true, &test);
        println!("{preemptions} preemptions: {all} of all schedules");
        // loom stops one schedule before the limit.
        if all + 1 >= most {
            break;
        }
    }
    assert!(planned.max(all) > 1, "the model has one schedule only");
}

/// Runs a test in its schedules and returns their number.
fn schedules(
    preemptions: usize,
    most: Option<usize>,
    is_complete: bool,
    test: &Arc<impl Fn() + Sync + Send + 'static>,
) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = MAX_BRANCHES;
    (builder.max_permutations, builder.checkpoint_interval) = (most, STRIDE);
    // This is not an atomic of loom's, which would be part of the model.
    let count = Arc::new(AtomicUsize::new(0));
    let (test, counts) = (test.clone(), count.clone());
    COMPLETE.set(is_complete);
    builder.check(move || {
        counts.fetch_add(1, Ordering::Relaxed);
        test();
    });
    COMPLETE.set(false);
    count.load(Ordering::Relaxed)
}

//! The model world's way to run a test.
//!
//! Which schedules loom tries it plans by the last access to each word, and so it misses some, at worst all but one: see
//! `atomic/model.rs`, which makes up for that at the cost of many more schedules. So a model runs several times: as loom
//! plans, with all the preemptions asked for; then with what loom misses, with one preemption, two, and so on, as far as it gets.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most points at which one schedule may go different ways; a schedule that meets more is taken for one without an end.
const MAX_BRANCHES: usize = 20_000;

/// Where the complete search gives up, in schedules, unless `ARCHIPELAGO_SCHEDULES` says otherwise: some seconds.
const MAX_SCHEDULES: usize = 8_000;

/// How often loom compares the number of schedules with the most.
const STRIDE: usize = 500;

thread_local! {
    /// Loom runs all threads of a model in the thread that asked for it.
    static COMPLETE: Cell<bool> = const { Cell::new(false) };
}

/// Whether loads are to be told apart by their order.
pub(crate) fn is_complete() -> bool {
    COMPLETE.get()
}

/// Runs `test` in the schedules with at most this many preemptions, and with all values that its loads may find. Not quite in
/// all: what loom does not plan for is tried in up to `ARCHIPELAGO_SCHEDULES` schedules for each number of preemptions.
///
/// # Panics
/// If a schedule fails, or if there is only one: a model in which no step can be anywhere else asks nothing.
pub fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let test = Arc::new(test);
    let most = std::env::var("ARCHIPELAGO_SCHEDULES").ok().and_then(|most| most.parse().ok()).unwrap_or(MAX_SCHEDULES);
    let planned = schedules(preemptions, None, false, &test);
    println!("{preemptions} preemptions: {planned} schedules by loom's plan");
    let mut all = 0;
    for preemptions in 1..=preemptions {
        all = schedules(preemptions, Some(most), true, &test);
        println!("{preemptions} preemptions: {all} of all schedules");
        // Loom stops before the last.
        if all + 1 >= most {
            break;
        }
    }
    assert!(planned.max(all) > 1, "the model has one schedule only");
}

/// Runs a test, and says how often.
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
    // Not loom's, which would be part of the model.
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

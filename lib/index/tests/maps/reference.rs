//! The conformance suite is tested itself: a correct map passes it, and it finds every planted bug.

use crate::common::conformance;
use crate::common::reference::{Bug, Reference};
use crate::common::tested::Tested;
use crate::common::{histories, model, threads, values};
use std::panic::{AssertUnwindSafe, catch_unwind};

conformance!(words, u64, Reference::new());

/// Returns the name of a test, a bug, and whether the test finds the bug in one of five runs with keys that are words.
/// Several runs are needed, since threads meet by chance.
macro_rules! finds {
    ($test:path, $bug:expr) => {{
        let run = || $test(&|| Tested::<u64, _>::new(Reference::with($bug)));
        (stringify!($test), $bug, (0..5).any(|_| catch_unwind(AssertUnwindSafe(run)).is_err()))
    }};
}

// Runs that are reduced for Miri are too short to find every bug.
#[cfg(not(miri))]
#[test]
fn every_planted_bug_is_found() {
    let found = [
        finds!(threads::overwritten_keys_never_hide, Bug::OverwriteHides),
        finds!(histories::few_keys, Bug::OverwriteHides),
        finds!(histories::many_keys_at_once, Bug::OverwriteHides),
        finds!(values::long_values, Bug::OverwriteHides),
        finds!(histories::few_keys, Bug::UpdateLosesWrites),
        finds!(model::many_keys, Bug::RemoveForgets),
        finds!(threads::churn, Bug::RemoveForgets),
        finds!(threads::own_writes, Bug::RemoveForgets),
        finds!(threads::more_threads_than_cores, Bug::RemoveForgets),
        finds!(threads::threads_come_and_go, Bug::RemoveForgets),
        finds!(model::any_sequence, Bug::WrongOldValue),
        finds!(histories::many_keys_at_once, Bug::WrongOldValue),
        finds!(histories::many_keys_at_once, Bug::ScanByPosition),
        finds!(threads::overwritten_keys_never_hide, Bug::ScanByPosition),
        finds!(model::any_sequence, Bug::ScanStopsShort),
        finds!(model::bounds, Bug::ScanStopsShort),
        finds!(model::bounds, Bug::ScanSkipsFirst),
        finds!(threads::own_writes, Bug::ScanSkipsFirst),
        finds!(model::any_sequence, Bug::GetManySwaps),
        finds!(histories::few_keys, Bug::GetManySwaps),
        finds!(values::drops, Bug::Leaks),
    ];
    let missed: Vec<_> = found.iter().filter(|(_, _, found)| !found).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

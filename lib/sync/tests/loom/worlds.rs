//! What all models here rely on: that loom tries enough schedules, and that it keeps its stacks.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

/// loom does not try these two schedules by itself (see `archipelago_platform::atomic`): one thread's load comes before
/// the other thread's change, or after it. The test checks that both are tried.
#[test]
fn a_thread_that_loads_and_changes_is_tried_before_a_load() {
    let met = std::sync::Arc::new([const { std::sync::atomic::AtomicBool::new(false) }; 2]);
    let meets = met.clone();
    model(1, move || {
        let word = Arc::new(AtomicU64::new(0));
        let other = {
            let word = word.clone();
            thread::spawn(move || word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed))
        };
        meets[word.load(Ordering::Relaxed) as usize].store(true, std::sync::atomic::Ordering::Relaxed);
        other.join().unwrap();
    });
    assert!(met.iter().all(|met| met.load(std::sync::atomic::Ordering::Relaxed)));
}

/// The stacks of a schedule's threads are those of the next one's: see the module. A linker that preferred the system's
/// functions would only make the models slower.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[test]
fn stacks_are_kept() {
    let word = || {
        let word = Arc::new(AtomicU64::new(0));
        let other = {
            let word = word.clone();
            thread::spawn(move || word.store(1, Ordering::Relaxed))
        };
        word.load(Ordering::Relaxed);
        other.join().unwrap();
    };
    model(1, word);
    assert!(archipelago_platform::model::stacks::kept() > 0);
}

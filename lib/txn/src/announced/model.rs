//! A loom model of the announcements: when an epoch has ended, the log has all of its commits.

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

use super::Announced;
use crate::epochs::{Epochs, Keeps};

/// A scheme, multi-version or not.
struct Any<const MANY: bool>;

impl<const MANY: bool> Keeps for Any<MANY> {
    const MANY: bool = MANY;
    type Kept = ();
}

/// The state that the threads share.
struct World<S: Keeps> {
    epochs: Epochs<S>,
    announced: Announced,
    /// Becomes `true` when the commit is logged. Relaxed: only the announcement orders the store.
    logged: AtomicBool,
}

impl<S: Keeps> World<S> {
    /// Commits in the epoch that `enter` returns, and returns the epoch.
    fn commit(&self, enter: fn(&Epochs<S>) -> u64) -> u64 {
        let committing = self.announced.step_up(&self.epochs);
        let epoch = enter(&self.epochs);
        self.logged.store(true, Ordering::Relaxed);
        drop(committing);
        epoch
    }
}

fn an_end_beside_a_commit<const MANY: bool>(enter: fn(&Epochs<Any<MANY>>) -> u64) {
    model(3, move || {
        let epochs = Epochs::<Any<MANY>>::new();
        let world = Arc::new(World { epochs, announced: Announced::new(), logged: AtomicBool::new(false) });
        let commit = {
            let world = world.clone();
            thread::spawn(move || world.commit(enter))
        };
        let sealed = world.announced.seal(&world.epochs);
        let logged = world.logged.load(Ordering::Relaxed);
        let epoch = commit.join().expect("no panic");
        assert!(logged || epoch > sealed, "an epoch has ended before its commit was logged");
    });
}

#[test]
fn an_ended_epoch_has_all_its_commits() {
    an_end_beside_a_commit::<false>(Epochs::enter);
}

/// The commit's epoch is a stamp.
#[test]
fn an_ended_epoch_has_all_its_stamps() {
    an_end_beside_a_commit::<true>(Epochs::enter);
}

/// A commit of MV-RLU draws its stamp without fences.
#[test]
fn an_ended_epoch_has_all_its_sets() {
    an_end_beside_a_commit::<true>(Epochs::draw);
}

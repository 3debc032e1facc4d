//! A loom model of the announcements: when an epoch has ended, the log has all of its commits.

use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;

use super::Announced;
use crate::epochs::{Epochs, Keeps};

struct Single;

impl Keeps for Single {
    const MANY: bool = false;
    type Kept = ();
}

/// The state that the threads share.
struct World {
    epochs: Epochs<Single>,
    announced: Announced,
    /// Whether the log has the commit's record. Relaxed: only the announcement orders it.
    logged: AtomicBool,
}

impl World {
    /// Commits, and returns the epoch.
    fn commit(&self) -> u64 {
        let committing = self.announced.step_up(&self.epochs);
        let epoch = self.epochs.enter();
        self.logged.store(true, Ordering::Relaxed);
        drop(committing);
        epoch
    }
}

#[test]
fn an_ended_epoch_has_all_its_commits() {
    model(3, || {
        let world =
            Arc::new(World { epochs: Epochs::new(), announced: Announced::new(), logged: AtomicBool::new(false) });
        let commit = {
            let world = world.clone();
            thread::spawn(move || world.commit())
        };
        let sealed = world.announced.seal(&world.epochs);
        let logged = world.logged.load(Ordering::Relaxed);
        let epoch = commit.join().expect("no panic");
        assert!(logged || epoch > sealed, "an epoch has ended before its commit was logged");
    });
}

//! A stay in a read-side section that another thread ends.

use archipelago_platform::sync::{Condvar, Mutex, MutexGuard};

/// A stay in a section that threads share: one thread [lingers](crate::SetSession::linger) in a section; others see
/// that it does, and end its stay.
///
/// ```
/// use archipelago_platform::thread;
/// use archipelago_sets::{HarrisList, Set, SetSession, Visit};
///
/// let (list, visit) = (HarrisList::default(), Visit::default());
/// thread::scope(|scope| {
///     scope.spawn(|| list.session().linger(&visit));
///     visit.wait_inside();
///     assert!(list.session().insert(7, 70));
///     visit.end();
/// });
/// ```
#[derive(Debug, Default)]
pub struct Visit {
    stage: Mutex<Stage>,
    changed: Condvar,
}

/// The stage of a visit, which only advances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    Before,
    Inside,
    Over,
}

impl Visit {
    /// Waits until a thread is inside a section, or the visit is over.
    pub fn wait_inside(&self) {
        self.wait_for(Stage::Inside);
    }

    /// Ends the visit for good: a thread that lingers leaves its section, and a thread that comes later does not stay.
    pub fn end(&self) {
        self.rise_to(Stage::Over);
    }

    /// Stays until the visit is over. Called in a section.
    pub(crate) fn stay(&self) {
        self.rise_to(Stage::Inside);
        self.wait_for(Stage::Over);
    }

    fn rise_to(&self, stage: Stage) {
        let mut now = self.stage();
        *now = stage.max(*now);
        self.changed.notify_all();
    }

    fn wait_for(&self, stage: Stage) {
        let mut now = self.stage();
        while *now < stage {
            now = self.changed.wait(now).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

//! The state of a map's maintenance, which updates the search layers in *rounds*. [`maintain`](super::maintain) has the
//! operations on it.

use super::HydraForm;
use super::crew::Background;
use super::oplog::{MergedLog, PagePtr};
use crate::thin::Thin;
use archipelago_platform::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};
use std::collections::VecDeque;

/// The state of a map's maintenance.
pub(crate) struct Maintenance<F: HydraForm> {
    /// The number of structure changes since the last round. If a change is drained before it is counted, the number is
    /// negative for a moment.
    pub(super) pending: CachePadded<AtomicIsize>,
    /// The number of pending changes at which a round is due.
    pub(super) due_at: AtomicUsize,
    pub(super) combiner: Mutex<Combiner<F>>,
    pub(super) updaters: Box<[Updater]>,
    pub(super) background: Background,
    /// Held by the thread that compacts. The value is the number of pages in closed chunks after its last walk.
    pub(super) compacting: Mutex<usize>,
    /// The result of the last walk that merged pages.
    pub(super) thin: Thin,
    /// The number of pages moved so far.
    pub(super) moved: AtomicU64,
    /// A test hook: while it is set, changes of the list start no round.
    pub(super) paused: AtomicBool,
}

pub(super) struct Combiner<F: HydraForm> {
    /// The number of the last round.
    pub(super) round: u64,
    /// The number of the list's pages whose `Insert` has been drained, and whose `Remove` is in no round yet. (A
    /// `Remove` is in the round after it was drained, and its page's `Insert` has been drained by then.)
    pub(super) anchors: usize,
    /// Removes that were drained in the last round, and will be applied in the next one.
    pub(super) delayed: Vec<PagePtr<F>>,
    /// Merged logs that at least one replica has not applied yet.
    pub(super) logs: VecDeque<Arc<MergedLog<F>>>,
    /// The number of the last round in which a generation of shortcuts was replaced.
    pub(super) turned: u64,
    /// Removed pages that wait to be retired, with the number of the round that removed them.
    pub(super) removed: VecDeque<(u64, Vec<PagePtr<F>>)>,
}

/// The updater of a replica.
pub(super) struct Updater {
    /// The number of the last round that was applied.
    pub(super) applied: AtomicU64,
    /// The lock that is held while a round is applied.
    pub(super) busy: Mutex<()>,
}

/// Takes a lock, even if it is poisoned, see `maintain.rs`.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<F: HydraForm> Maintenance<F> {
    /// Prevents compaction while the result is held.
    pub(super) fn hold_still(&self) -> MutexGuard<'_, usize> {
        lock(&self.compacting)
    }

    pub(super) fn new(nodes: usize) -> Self {
        let combiner = Combiner {
            round: 0,
            anchors: 1,
            delayed: Vec::new(),
            logs: VecDeque::new(),
            turned: 0,
            removed: VecDeque::new(),
        };
        Self {
            pending: CachePadded::new(AtomicIsize::new(0)),
            due_at: AtomicUsize::new(1),
            combiner: Mutex::new(combiner),
            updaters: (0..nodes).map(|_| Updater { applied: AtomicU64::new(0), busy: Mutex::new(()) }).collect(),
            background: Background::new(),
            compacting: Mutex::new(0),
            thin: Thin::default(),
            moved: AtomicU64::new(0),
            paused: AtomicBool::new(false),
        }
    }
}

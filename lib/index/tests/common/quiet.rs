//! Waiting for a map's idle state. The process's thread for idle maps looks at a map some milliseconds after the first
//! garbage. During a look the thread counts as a reader, and objects that it has taken from a bag are not freed yet. If
//! the thread is preempted, the look takes as long as the preemption. So a test must not expect a state at once, not
//! even after `sync`.

use archipelago_check::hostile::some_try;
use archipelago_index::Key;
use archipelago_index::map::{Kind, Map, Stats};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;

/// How often the state is looked at, with a pause of two milliseconds after each look. A fault costs five seconds.
pub const LOOKS: usize = 2_500;

/// Repeats `look` until it returns `Ok`, and returns the result.
#[track_caller]
pub fn soon<R>(mut look: impl FnMut() -> Result<R, String>) -> R {
    some_try(LOOKS, || look().inspect_err(|_| thread::sleep(Duration::from_millis(2))))
}

/// Waits until the statistics are as expected, and returns them. Nothing is done for the map meanwhile.
#[track_caller]
pub fn soon_shows<S: Kind, K: Key, V: Send + Sync + 'static>(
    map: &Map<S, K, V>,
    expected: impl Fn(&Stats) -> bool,
) -> Stats {
    soon(|| {
        let stats = map.stats();
        if expected(&stats) { Ok(stats) } else { Err(format!("{}: {stats:?}", S::NAME)) }
    })
}

/// Calls `sync` until the statistics are as expected, and returns them.
#[track_caller]
pub fn soon_syncs<S: Kind, K: Key, V: Send + Sync + 'static>(
    map: &Map<S, K, V>,
    expected: impl Fn(&Stats) -> bool,
) -> Stats {
    soon(|| {
        map.sync();
        let stats = map.stats();
        if expected(&stats) { Ok(stats) } else { Err(format!("{}: {stats:?}", S::NAME)) }
    })
}

/// Returns whether no object waits to be freed.
pub fn has_no_garbage(stats: &Stats) -> bool {
    stats.garbage.objects == 0
}

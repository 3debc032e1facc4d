//! Which maker waits for which other one: finds makers that would wait for each other for ever.

use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::thread::ThreadId;

/// The waits of threads for makers that are threads. A thread waits for at most one maker at a time, so the waits that
/// begin with a thread form one chain.
///
/// A wait is added and removed under the lock of the shard that has its key: it is present exactly while the maker has
/// the permit for which the thread waits. A thread gets its permits before it waits. So the wait of a circle that is
/// added last finds all others, and is refused. So the waits that are present form no circle, and a refused wait would
/// never have ended.
#[derive(Default)]
pub(crate) struct Waits {
    waits: Mutex<Vec<Wait>>,
}

struct Wait {
    thread: ThreadId,
    maker: ThreadId,
    /// The hash of the key that the maker makes. It identifies the permit.
    hash: u64,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, Vec<Wait>> {
        self.waits.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Adds the wait of `thread` for `maker`. Returns whether the wait can end. If `maker` waits for `thread`, directly
    /// or through others, the wait is not added. O(waits of the cache) for each maker of the chain.
    pub fn add(&self, thread: ThreadId, maker: ThreadId, hash: u64) -> bool {
        let mut waits = self.lock();
        let mut last = maker;
        while last != thread
            && let Some(wait) = waits.iter().find(|wait| wait.thread == last)
        {
            last = wait.maker;
        }
        let ends = last != thread;
        if ends {
            waits.push(Wait { thread, maker, hash });
        }
        ends
    }

    /// Removes the waits for the permit of the key of `hash`, before the permit ends.
    pub fn remove(&self, hash: u64) {
        self.lock().retain(|wait| wait.hash != hash);
    }
}

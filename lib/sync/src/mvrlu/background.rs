//! The thread that looks for grace periods where a domain has one: asleep unless it is woken, gone with the domain.

use archipelago_platform::sync::{Arc, Condvar, Mutex, MutexGuard};
use archipelago_platform::thread::{self, Crew};

#[derive(Default)]
struct Cue {
    work: bool,
    stop: bool,
}

#[derive(Default)]
struct Bell {
    cue: Mutex<Cue>,
    rung: Condvar,
}

impl Bell {
    fn cue(&self) -> MutexGuard<'_, Cue> {
        self.cue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn ring(&self, change: impl FnOnce(&mut Cue)) {
        change(&mut self.cue());
        self.rung.notify_one();
    }

    /// Sleeps until there is work; whether there is, or the thread is to end.
    fn next(&self) -> bool {
        let mut cue = self.cue();
        while !cue.work && !cue.stop {
            cue = self.rung.wait(cue).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        cue.work = false;
        !cue.stop
    }
}

/// A domain's collecting thread.
pub(super) struct Background {
    bell: Arc<Bell>,
    thread: Crew,
}

impl Background {
    /// A thread that runs `collect` each time it is woken, until that says that the domain is gone.
    ///
    /// # Panics
    /// If the system refuses a thread.
    pub(super) fn start(collect: impl Fn() -> bool + Send + 'static) -> Self {
        let (bell, mut crew) = (Arc::new(Bell::default()), Crew::default());
        let thread = {
            let bell = bell.clone();
            thread::Builder::new().name("mvrlu-collect".into()).spawn(move || while bell.next() && collect() {})
        };
        crew.push(thread.expect("a thread for the domain's collection"));
        Self { bell, thread: crew }
    }

    pub(super) fn wake(&self) {
        self.tell(|cue| cue.work = true);
    }

    /// In a child of the process nothing: the thread is not there, and may hold the bell for ever.
    fn tell(&self, change: impl FnOnce(&mut Cue)) {
        if self.thread.is_here() {
            self.bell.ring(change);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.tell(|cue| cue.stop = true);
        // It panics only where collecting does, and that was printed.
        let _ = self.thread.join();
    }
}

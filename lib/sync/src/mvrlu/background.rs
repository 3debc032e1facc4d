//! A domain's collecting thread, if it has one: it sleeps until it is woken, and ends with the domain.

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

    /// Sleeps until the thread is woken. Returns `true` if it has work, and `false` if it is to end.
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
    /// Starts a thread that runs `collect` each time it is woken, until `collect` says that the domain has been
    /// dropped.
    ///
    /// # Panics
    /// If the operating system refuses to start a thread.
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

    /// Does nothing in a child process, which does not have the thread, and in which the thread's lock may be held
    /// forever.
    fn tell(&self, change: impl FnOnce(&mut Cue)) {
        if self.thread.is_here() {
            self.bell.ring(change);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.tell(|cue| cue.stop = true);
        // The thread panics only if collecting does, and the panic hook has reported it.
        let _ = self.thread.join();
    }
}

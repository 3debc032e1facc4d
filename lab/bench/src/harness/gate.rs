//! A gate at which the threads of a run wait until all of them have arrived.
//!
//! The thread that starts the others opens the gate. It learns when the first of them passed the gate. The starting
//! thread may itself wake up late. A time measured from its wake-up would be too short for the work that the others
//! have done by then. A thread that will never arrive closes the gate for good, so that no thread waits for it.

use archipelago_platform::sync::{Condvar, Mutex, MutexGuard};
use archipelago_platform::time::Instant;

/// The gate of one run.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    /// Workers wait for this: the gate is open, or closed.
    decided: Condvar,
    /// The starting thread waits for this: a worker has arrived or passed, or the gate is closed.
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that have arrived.
    come: usize,
    /// `None` until the gate is opened (true) or closed (false); set once.
    open: Option<bool>,
    /// When the first thread passed the gate.
    begun: Option<Instant>,
}

/// Closes the gate when it is dropped, unless the gate is open by then. Each worker holds such a guard for its whole
/// life.
pub struct Closing<'a>(&'a Gate);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Gate {
    /// Called by a worker on arrival; waits. Returns false if the gate is closed, so the worker has nothing to do.
    pub fn come(&self) -> bool {
        let mut state = self.state();
        state.come += 1;
        self.news.notify_all();
        state = wait_while(&self.decided, state, |state| state.open.is_none());
        if state.open == Some(true) && state.begun.is_none() {
            state.begun = Some(Instant::now());
            self.news.notify_all();
        }
        state.open == Some(true)
    }

    /// Waits until this many workers have arrived. Returns false if the gate is closed.
    pub fn gather(&self, workers: usize) -> bool {
        let state = wait_while(&self.news, self.state(), |state| state.open.is_none() && state.come < workers);
        state.open != Some(false)
    }

    /// Lets the workers pass. Returns when the first of them passed; at least one worker must have arrived. A closed
    /// gate stays closed, and the result is `None`.
    pub fn open(&self) -> Option<Instant> {
        let mut state = self.state();
        let open = *state.open.get_or_insert(true);
        self.decided.notify_all();
        if open { wait_while(&self.news, state, |state| state.begun.is_none()).begun } else { None }
    }

    /// Closes the gate: the workers that wait at it, and those that arrive later, return without work. An open gate
    /// stays open.
    pub fn close(&self) {
        self.state().open.get_or_insert(false);
        self.decided.notify_all();
        self.news.notify_all();
    }

    /// Returns a guard that closes the gate; see [`Closing`].
    pub fn closing(&self) -> Closing<'_> {
        Closing(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with the lock")
    }
}

fn wait_while<'a>(
    condition: &Condvar,
    mut state: MutexGuard<'a, State>,
    waits: impl Fn(&State) -> bool,
) -> MutexGuard<'a, State> {
    while waits(&state) {
        state = condition.wait(state).expect("nothing panics with the lock");
    }
    state
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_begins_with_the_first_worker_however_late_the_other_thread_is() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                assert!(gate.come());
                Instant::now()
            });
            assert!(gate.gather(1));
            let opener = scope.spawn(|| gate.open());
            let went = worker.join().unwrap();
            assert!(opener.join().unwrap().unwrap() <= went);
            std::thread::sleep(Duration::from_millis(5));
            assert!(gate.open().unwrap() <= went, "asked late, it is still the time at which the worker went");
        });
    }

    #[test]
    fn a_worker_that_panics_before_it_comes_sends_the_others_away() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..2).map(|_| scope.spawn(|| gate.come())).collect();
            let panicking = scope.spawn(|| {
                let _closing = gate.closing();
                std::panic::resume_unwind(Box::new("before it comes"));
            });
            assert!(panicking.join().is_err());
            assert!(waiting.into_iter().all(|worker| !worker.join().unwrap()));
            assert!(!gate.gather(3) && gate.open().is_none() && !gate.come());
        });
    }
}

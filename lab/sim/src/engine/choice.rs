//! The choice of the next thread, and the end of a run.

use super::Engine;
use super::thread::{Key, Reason, Role, Status, Thread, Unwinding};
use crate::memory::host_prefetch;
use crate::report::Outcome;

impl Engine {
    /// Makes a thread eligible to run, at its clock.
    pub(super) fn schedule(&mut self, id: usize) {
        if self.timed() {
            let clock = self.threads[id].clock;
            self.agenda.put(id, clock);
            self.horizon = self.horizon.min(clock);
        } else {
            self.agenda.remove(id);
            self.ready.push(id);
        }
    }

    /// Wakes a thread that waits: it continues at `at` or later.
    pub(super) fn wake(&mut self, id: usize, at: u64) {
        let thread = &mut self.threads[id];
        thread.clock = thread.clock.max(at);
        if !thread.working() {
            self.busy_on_core[thread.core] += 1;
        }
        thread.status = Status::Ready;
        self.schedule(id);
    }

    /// Records that a thread did something that may end another thread's wait. Unless the thread is a daemon, this is
    /// progress of the run ([`Config::stall_ns`](crate::Config::stall_ns)).
    #[inline]
    pub(crate) fn progress(&mut self, id: usize) {
        self.changes += 1;
        if self.threads[id].role != Role::Daemon {
            self.last_progress = self.last_progress.max(self.threads[id].clock);
        }
    }

    /// Chooses the thread that runs next. An `Err` is the outcome with which the run ends.
    pub(crate) fn next(&mut self) -> Result<usize, Outcome> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.threads[0].status == Status::Done {
            return Err(Outcome::Done);
        }
        if self.memory.stats.accesses >= self.config.limit_accesses {
            return Err(Outcome::Stalled);
        }
        let id = if self.timed() { self.next_in_time()? } else { self.next_explored()? };
        let clock = self.threads[id].clock;
        if clock >= self.deadline() {
            return Err(self.verdict());
        }
        self.current = id;
        self.forget_repeated();
        if self.timed() {
            let (earliest, other) = self.agenda.earliest_other(id);
            self.horizon = earliest.min(self.deadline());
            if let Some(other) = other {
                self.prepare(other);
            }
        }
        self.memory.stats.switches += 1;
        self.hash = (self.hash ^ (clock << 10 | id as u64)).wrapping_mul(0x0000_0100_0000_01b3);
        Ok(id)
    }

    /// Records that the running thread yielded. Unless it waits, it becomes eligible again.
    #[inline]
    pub(crate) fn gave_way(&mut self) {
        if !self.timed() {
            return;
        }
        let before = std::mem::replace(&mut self.gave_way, self.current);
        let thread = &self.threads[before];
        self.memory.prepare(thread.pending, thread.core, thread.socket);
        let thread = &self.threads[self.current];
        if thread.status == Status::Ready {
            self.agenda.put(self.current, thread.clock);
        } else {
            self.agenda.stop();
        }
    }

    pub(super) fn next_in_time(&mut self) -> Result<usize, Outcome> {
        loop {
            let Some((time, id)) = self.agenda.first() else { return Err(self.verdict()) };
            match self.threads[id].status {
                Status::Ready => {
                    self.agenda.start(id);
                    return Ok(id);
                }
                // A queued thread's clock tells since when the thread has waited.
                Status::Queued(line) => {
                    self.agenda.remove(id);
                    return Ok(self.grant(line, time));
                }
                Status::Spinning | Status::Blocked(_) => {
                    self.agenda.start(id);
                    self.threads[id].clock = self.threads[id].clock.max(time);
                    self.timer(id)?;
                    return Ok(id);
                }
                Status::Done => self.agenda.remove(id),
            }
        }
    }

    /// Prefetches, on the host, the memory of the thread that will most likely run next.
    #[inline]
    pub(super) fn prepare(&self, next: usize) {
        let thread = &self.threads[next];
        for offset in [0, 64, 128, 192] {
            host_prefetch((thread.stopped_at as *const u8).wrapping_add(offset));
        }
        host_prefetch(&raw const *thread);
    }

    /// Returns the time at which the run counts as stalled if it makes no progress until then, or at which it reaches
    /// its limit.
    #[inline]
    pub(super) fn deadline(&self) -> u64 {
        self.limit.min(self.last_progress + self.stall)
    }

    /// Returns the outcome of a run in which nothing more will happen.
    pub(super) fn verdict(&self) -> Outcome {
        let clients = self.threads.iter().filter(|thread| thread.role != Role::Daemon);
        let left: Vec<&Thread> = clients.filter(|thread| thread.status != Status::Done).collect();
        let blocked = |thread: &&&Thread| matches!(thread.status, Status::Spinning | Status::Blocked(_));
        if left.iter().filter(blocked).count() < left.len() {
            return Outcome::Stalled;
        }
        // The main thread is ignored, since it waits only for the clients.
        let waiting = |thread: &&&Thread| thread.status != Status::Blocked(Reason::Key(Key::Clients));
        Outcome::Deadlock { waiting: left.iter().filter(waiting).map(|thread| thread.slot).collect() }
    }

    /// Returns whether the running thread must unwind now.
    pub(super) fn must_unwind(&mut self) -> bool {
        let thread = self.me();
        let asked = thread.unwinding == Unwinding::Asked;
        if asked {
            thread.unwinding = Unwinding::Raised;
        }
        asked && !thread.panicking
    }
}

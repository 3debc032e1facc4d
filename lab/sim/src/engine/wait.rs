//! Waiting: spin loops, parking, sleeping, keys.

use super::thread::{Key, Reason, Status, WATCHED};
use super::{Engine, Outcome, Step};
use crate::memory::NONE;
use crate::rng;

/// A spinning thread's watch on a line: an element of the line's list. Watch `thread * WATCHED + k` is the thread's
/// k-th.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    line: u32,
    previous: u32,
    next: u32,
}

impl Default for Watch {
    fn default() -> Self {
        Watch { line: NONE, previous: NONE, next: NONE }
    }
}

/// The first interval, in picoseconds, after which a spinning thread makes another turn even if no line has changed,
/// since its loop may count turns or read a clock. The interval doubles each time, at most eight times.
const RECHECK: u64 = 20_000_000;

impl Engine {
    /// Makes one turn of a spin loop. If the turn only loaded (in schedules that look for bugs: if the turn changed no
    /// value), and accessed from one to [`WATCHED`] lines, the running thread waits until one of these lines changes,
    /// or until the next [recheck](RECHECK). Otherwise it yields.
    pub(crate) fn spin(&mut self) -> Step {
        if self.unwinding {
            return if self.must_unwind() { Step::Unwind } else { Step::Suspend };
        }
        if self.tx_forbids() {
            return Step::Doomed;
        }
        self.advance(self.costs.pause);
        let timed = self.timed();
        let thread = &mut self.threads[self.current];
        thread.recent = (NONE, 0);
        let count = std::mem::take(&mut thread.seen_count);
        let (locked, changed) = (std::mem::take(&mut thread.locked), std::mem::take(&mut thread.changed));
        // Locked accesses that fail cause traffic, which a performance run must model.
        let busy = if timed { locked } else { changed };
        let seen = thread.seen;
        if count == 0 || count > WATCHED || busy {
            self.yielded();
            return Step::Suspend;
        }
        if seen[..count].iter().any(|&(line, version)| self.memory.lines[line as usize].version != version) {
            return Step::Suspend;
        }
        for (k, &(line, _)) in seen[..count].iter().enumerate() {
            self.watch(line, k);
        }
        self.memory.stats.spin_waits += 1;
        let again = RECHECK << self.me().rechecks.min(8);
        self.stop(Status::Spinning, Some(again));
        Step::Suspend
    }

    fn watch(&mut self, line: u32, k: usize) {
        let id = (self.current * WATCHED + k) as u32;
        let head = std::mem::replace(&mut self.memory.lines[line as usize].watch, id);
        self.watches[id as usize] = Watch { line, previous: NONE, next: head };
        if head != NONE {
            self.watches[head as usize].previous = id;
        }
    }

    fn unwatch(&mut self, thread: usize) {
        for id in thread * WATCHED..(thread + 1) * WATCHED {
            let Watch { line, previous, next } = std::mem::take(&mut self.watches[id]);
            if line == NONE {
                continue;
            }
            if next != NONE {
                self.watches[next as usize].previous = previous;
            }
            if previous == NONE {
                self.memory.lines[line as usize].watch = next;
            } else {
                self.watches[previous as usize].next = next;
            }
        }
    }

    /// Wakes the threads that spin on a changed line. Each continues when the invalidation has reached it and the
    /// present turn of its spin loop has ended.
    pub(super) fn wake_watchers(&mut self, line: u32) {
        let me = &self.threads[self.current];
        let (at, drained, from) = (me.clock, me.stores_until, me.socket);
        loop {
            let head = self.memory.lines[line as usize].watch;
            if head == NONE {
                break;
            }
            let id = head as usize / WATCHED;
            self.unwatch(id);
            let thread = &mut self.threads[id];
            thread.rechecks = 0;
            let turn = rng::below(&mut thread.rng, self.costs.pause + self.config.jitter_ps + 1);
            let notice = self.memory.notice(from, thread.socket);
            // A store that is done has invalidated every copy.
            self.wake(id, (at + notice).max(drained) + turn);
        }
    }

    /// Stops the running thread, for at most `time`.
    fn stop(&mut self, status: Status, time: Option<u64>) {
        let me = self.current;
        let thread = &mut self.threads[me];
        thread.status = status;
        thread.timed_out = false;
        self.busy_on_core[thread.core] -= 1;
        if let Some(time) = time {
            let at = thread.clock.saturating_add(time);
            self.agenda.put(me, at);
        }
    }

    fn block(&mut self, reason: Reason, time: Option<u64>) {
        self.memory.stats.blocks += 1;
        self.stop(Status::Blocked(reason), time);
    }

    /// Continues a waiting thread whose time-out, wake-up time or recheck is due.
    pub(super) fn timer(&mut self, id: usize) -> Result<(), Outcome> {
        let epoch = self.changes;
        let thread = &mut self.threads[id];
        let status = std::mem::replace(&mut thread.status, Status::Ready);
        self.busy_on_core[thread.core] += 1;
        thread.timed_out = true;
        if status != Status::Spinning {
            self.waiters.retain(|&(_, waiter)| waiter != id);
            // Repeated wake-ups of a daemon by the clock do not count as progress.
            self.progress(id);
            return Ok(());
        }
        thread.rechecks = if thread.recheck_epoch == epoch { thread.rechecks + 1 } else { 1 };
        thread.recheck_epoch = epoch;
        self.unwatch(id);
        if self.nobody_moves(id) { Err(self.deadlock_of(id)) } else { Ok(()) }
    }

    /// Returns whether no thread can move any more: each thread has ended, waits without a time-out, or has made at
    /// least two turns of its spin loop since the last change.
    fn nobody_moves(&self, rechecking: usize) -> bool {
        let epoch = self.changes;
        self.threads.iter().enumerate().all(|(id, thread)| match thread.status {
            Status::Done => true,
            Status::Blocked(reason) => reason != Reason::Time && !self.agenda.contains(id),
            Status::Spinning => thread.recheck_epoch == epoch && thread.rechecks >= 2,
            _ => id == rechecking && thread.recheck_epoch == epoch && thread.rechecks >= 2,
        })
    }

    fn deadlock_of(&mut self, rechecking: usize) -> Outcome {
        self.threads[rechecking].status = Status::Spinning;
        self.busy_on_core[self.threads[rechecking].core] -= 1;
        self.verdict()
    }

    /// Makes the running thread sleep.
    pub(crate) fn sleep_until(&mut self, clock: u64) {
        let time = clock.saturating_sub(self.me().clock);
        self.block(Reason::Time, Some(time));
    }

    /// Makes the running thread wait for its token, unless it has the token. Returns true if it must suspend.
    pub(crate) fn park(&mut self, time: Option<u64>) -> bool {
        self.advance(self.costs.call);
        if std::mem::take(&mut self.me().token) {
            return false;
        }
        self.block(Reason::Token, time);
        true
    }

    /// Gives a thread its token, which ends its wait.
    pub(crate) fn unpark(&mut self, id: usize) {
        self.advance(self.costs.call);
        let Some(thread) = self.threads.get_mut(id) else { return };
        if thread.status == Status::Blocked(Reason::Token) {
            let at = self.me().clock + self.costs.wake;
            self.progress(self.current);
            self.wake(id, at);
        } else {
            thread.token = true;
        }
    }

    /// Makes the running thread wait for `key`.
    pub(crate) fn wait_for(&mut self, key: Key, time: Option<u64>) {
        self.advance(self.costs.call);
        self.waiters.push((key, self.current));
        self.block(Reason::Key(key), time);
    }

    /// Removes all waiters, at the end of the run.
    pub(crate) fn forget_waiters(&mut self) {
        self.waiters.clear();
    }

    /// Returns whether a thread waits for `key`.
    pub(crate) fn is_awaited(&self, key: Key) -> bool {
        self.waiters.iter().any(|waiter| waiter.0 == key)
    }

    /// Wakes up to `count` threads that wait for `key`, in the order of their arrival, at the time `at`. Returns how
    /// many it woke.
    pub(crate) fn wake_key(&mut self, key: Key, count: usize, at: u64) -> usize {
        let mut woken = 0;
        while woken < count {
            let Some(found) = self.waiters.iter().position(|waiter| waiter.0 == key) else { break };
            let (_, id) = self.waiters.remove(found);
            self.wake(id, at + self.costs.wake);
            woken += 1;
        }
        if woken > 0 {
            self.progress(self.current);
        }
        woken
    }
}

//! One access: when it happens, its cost, and the threads that it wakes.
//!
//! An access takes effect in the instant in which its thread is granted the line. If the line is still being
//! transferred for an earlier access, the thread joins the line's queue. The thread at the head of the queue is in the
//! scheduler's agenda, at the time at which the line becomes free. At that time the queue decides which thread gets the
//! line ([`Engine::grant`]). It is the first thread in the queue, with one exception: if a thread of the owner's own
//! socket is among the next [`SEARCHED`] threads, it gets the line first, a bounded number of times in a row.
//!
//! Destructors of a panicking thread make their accesses without yielding: the run is about to end with this panic, and
//! no other thread may observe the accesses.

use std::thread::panicking;

use super::thread::Status;
use super::tx::Cause;
use super::{Engine, Step};
use crate::config::{Fault, Point};
use crate::memory::{AccessKind, Cost, NONE};
use crate::rng;

/// If a load of a line follows an access to the line within the time of this many first-level hits, the load counts as
/// made together with the access: it needs no request of its own for the line. The time counts from that access, not
/// from the previous load. Otherwise a loop that repeatedly loads one word would keep the line forever.
const TOGETHER: u64 = 8;

/// How many entries of a line's queue are searched for the owner's neighbours.
const SEARCHED: usize = 32;

impl Engine {
    /// Tries to make an access of the running thread. After [`Step::Go`] the caller makes the real access at once.
    #[inline]
    pub(crate) fn access(&mut self, addr: usize, size: usize, kind: AccessKind) -> Step {
        let me = self.current;
        if self.unwinding {
            return match self.must_unwind() {
                true => Step::Unwind,
                false if self.lingers() => Step::Suspend,
                false => Step::Go(NONE),
            };
        }
        if self.threads[me].tx_depth > 0 && self.threads[me].tx.doomed.is_some() {
            return Step::Doomed;
        }
        if self.threads[me].untimed {
            return self.access_untimed(addr, size, kind);
        }
        if !self.threads[me].granted {
            if self.fault_due() {
                let stall = self.fault();
                self.stall(stall);
            }
            if kind == AccessKind::Rmw {
                // The thread's own stores come first. The thread queues for the time after them.
                self.drain_stores();
            }
            if !self.my_turn() && !panicking() {
                self.threads[me].pending = addr;
                self.memory.expect(addr);
                return Step::Suspend;
            }
        }
        if self.threads[me].tx_depth > 0 && self.threads[me].tx.doomed.is_some() {
            // The transaction was doomed by a stall just now.
            return Step::Doomed;
        }
        if self.threads[me].tx_depth > 0 && self.memory.unmapped(addr) {
            // The page fault is not handled, so the page stays without memory.
            self.tx_doom(me, Cause::Fault);
            return Step::Doomed;
        }
        let line = self.memory.line(addr, self.threads[me].socket);
        if kind == AccessKind::Load && self.made_together(line) {
            self.count(line, kind);
            self.advance(self.costs.issue() + self.threads[me].pace);
            return Step::Go(line);
        }
        if self.timed() && !self.threads[me].granted && !panicking() && self.must_queue(line, kind) {
            return Step::Suspend;
        }
        let queued = std::mem::take(&mut self.threads[me].granted);
        self.count(line, kind);
        self.tx_conflict(line, kind);
        if self.saved_stacks > 0 && kind.writes() {
            self.tx_wrote(addr, size);
        }
        if self.threads[me].tx_depth > 0 && !self.tx_track(line, addr, size, kind) {
            return Step::Doomed;
        }
        if self.timed() {
            self.charge(line, kind, queued, addr);
            if !self.memory.evicted.is_empty() {
                self.tx_evicted();
                if self.threads[me].tx.doomed.is_some() {
                    return Step::Doomed;
                }
            }
            self.threads[me].recent = (line, self.threads[me].clock + TOGETHER * self.costs.l1);
            self.advance(self.threads[me].pace);
        } else {
            self.threads[me].clock = self.now + self.costs.l1;
            self.now = self.threads[me].clock;
        }
        Step::Go(line)
    }

    /// In set-up and tear-down, accesses take no time and need no turn. But transactions work in set-up and tear-down,
    /// too, so these accesses conflict with other threads' transactions.
    fn access_untimed(&mut self, addr: usize, size: usize, kind: AccessKind) -> Step {
        let line = self.memory.line(addr, self.threads[self.current].socket);
        // Without transactions the line's record is not read, which the host would have to fetch.
        if !self.marks.are_none() {
            self.tx_conflict(line, kind);
        }
        if self.saved_stacks > 0 && kind.writes() {
            self.tx_wrote(addr, size);
        }
        if self.threads[self.current].tx_depth > 0 && !self.tx_track(line, addr, size, kind) {
            return Step::Doomed;
        }
        if self.is_plain(line) {
            self.repeated = Some((addr >> 6, line));
        }
        Step::Go(line)
    }

    /// Returns whether the model has nothing to do for an access of the running thread to a line that was accessed
    /// before.
    fn is_plain(&self, line: u32) -> bool {
        let thread = &self.threads[self.current];
        let has_no_transaction = thread.tx_depth == 0 && self.saved_stacks == 0;
        let has_no_mark = self.marks.are_none() || self.memory.lines[line as usize].tx == NONE;
        thread.untimed && !self.unwinding && has_no_transaction && has_no_mark
    }

    /// Returns the line of `addr` if the running thread's last access was to this line, and the model has nothing to do
    /// for another one. This stays so until a transaction begins, a thread takes over, time passes, or the run's threads
    /// unwind: there the line is forgotten. A set-up that moves many entries makes most of its accesses to the line of
    /// the access before.
    #[inline]
    pub(crate) fn repeats(&self, addr: usize) -> Option<u32> {
        let (_, line) = self.repeated.filter(|(line, _)| *line == addr >> 6)?;
        debug_assert!(self.is_plain(line), "a line was not forgotten");
        Some(line)
    }

    /// Called when an access may have to do more than before.
    #[inline]
    pub(crate) fn forget_repeated(&mut self) {
        self.repeated = None;
    }

    /// Returns whether a load of `line` follows the running thread's access to the same line at once. A real core has
    /// both accesses in progress when the line arrives, and serves both before it gives the line to another core.
    fn made_together(&self, line: u32) -> bool {
        let thread = &self.threads[self.current];
        let near = thread.recent.0 == line && thread.clock <= thread.recent.1;
        // A transaction that has the line by now must detect the conflict.
        near && thread.tx_depth == 0 && !thread.granted && self.memory.lines[line as usize].tx == NONE
    }

    /// Returns whether the running thread may take a step now.
    #[inline]
    pub(crate) fn my_turn(&mut self) -> bool {
        if self.timed() {
            return self.threads[self.current].clock <= self.horizon
                && self.memory.stats.accesses < self.config.limit_accesses;
        }
        self.explored_turn()
    }

    /// Does the same as [`my_turn`](Self::my_turn) for steps that are not accesses. The step uses up the scheduler's
    /// choice of this thread.
    pub(crate) fn step(&mut self) -> bool {
        let me = self.current;
        self.unwinding
            || std::mem::take(&mut self.threads[me].granted)
            || self.threads[me].untimed
            || self.my_turn()
            || panicking()
    }

    #[cold]
    fn stall(&mut self, time: u64) {
        let me = self.current;
        // An interrupt takes the processor away, and aborts the transaction.
        self.tx_doom(me, Cause::Interrupt);
        self.threads[me].clock += time;
        if !self.timed() {
            self.sleep_until(self.threads[me].clock);
        }
    }

    #[inline]
    fn count(&mut self, line: u32, kind: AccessKind) {
        let thread = &mut self.threads[self.current];
        thread.accesses += 1;
        self.memory.stats.accesses += 1;
        self.hash = (self.hash ^ (u64::from(line) << 2 | kind as u64)).wrapping_mul(0x0000_0100_0000_01b3);
        thread.locked |= kind.writes();
        // A loop that loads more lines than can be watched does not park; `seen_count` shows this.
        if let Some(seen) = thread.seen.get_mut(thread.seen_count) {
            *seen = (line, self.memory.lines[line as usize].version);
        }
        thread.seen_count += 1;
    }

    /// Joins the line's queue if the line is being transferred.
    #[inline]
    fn must_queue(&mut self, line: u32, kind: AccessKind) -> bool {
        let me = self.current;
        let (clock, core) = (self.threads[me].clock, self.threads[me].core);
        let record = &self.memory.lines[line as usize];
        if record.queue_head == NONE && record.busy <= clock || self.memory.private(core, line, kind) {
            return false;
        }
        self.queue_up(line);
        true
    }

    #[cold]
    fn queue_up(&mut self, line: u32) {
        let me = self.current;
        let record = &mut self.memory.lines[line as usize];
        self.threads[me].status = Status::Queued(line);
        self.threads[me].queue_next = NONE;
        if record.queue_head == NONE {
            record.queue_head = me as u32;
            record.queue_tail = me as u32;
            let free = record.busy;
            self.agenda.put(me, free);
        } else {
            let tail = std::mem::replace(&mut record.queue_tail, me as u32);
            self.threads[tail as usize].queue_next = me as u32;
        }
    }

    /// Called when the line is free at `time` and the head of its queue was popped from the agenda. Removes the winner
    /// from the queue.
    pub(super) fn grant(&mut self, line: u32, time: u64) -> usize {
        let head = self.memory.lines[line as usize].queue_head;
        let before = self.overtaker(line, head);
        let record = &mut self.memory.lines[line as usize];
        record.bypassed = if before.is_some() { record.bypassed + 1 } else { 0 };
        let winner = match before {
            Some(before) => {
                let winner = self.threads[before as usize].queue_next;
                let next = self.threads[winner as usize].queue_next;
                self.threads[before as usize].queue_next = next;
                if next == NONE {
                    record.queue_tail = before;
                }
                winner
            }
            None => {
                record.queue_head = self.threads[head as usize].queue_next;
                head
            }
        };
        if record.queue_head != NONE {
            // The access that follows at once sets the time at which the line is free again. Until then this entry
            // keeps the queue in the agenda.
            self.agenda.put(record.queue_head as usize, time);
        }
        let thread = &mut self.threads[winner as usize];
        let waited = time - thread.clock.min(time);
        self.memory.stats.line_wait_ps += waited;
        self.memory.lines[line as usize].waited += waited;
        thread.clock = time;
        thread.status = Status::Ready;
        thread.granted = true;
        winner as usize
    }

    /// Returns the predecessor, in the queue, of a thread that is served before the head, if there is such a thread.
    fn overtaker(&self, line: u32, head: u32) -> Option<u32> {
        let owner = self.memory.owner_socket(line)?;
        let record = &self.memory.lines[line as usize];
        if self.threads[head as usize].socket == owner || record.bypassed >= self.machine.occupancy.local_bypass {
            return None;
        }
        let mut before = head;
        for _ in 0..SEARCHED {
            let next = self.threads[before as usize].queue_next;
            if next == NONE {
                break;
            }
            if self.threads[next as usize].socket == owner {
                return Some(before);
            }
            before = next;
        }
        None
    }

    /// Advances the running thread's clock, and the line's, by the cost of the access. `queued` tells whether the
    /// access waited for the line.
    fn charge(&mut self, line: u32, kind: AccessKind, queued: bool, addr: usize) {
        let me = self.current;
        let core = self.threads[me].core;
        if self.memory.private(core, line, kind) {
            if let Some(arrival) = self.memory.arrival(core, line, self.threads[me].clock) {
                self.threads[me].clock = arrival;
            }
            let mut time = self.memory.hit(core, line, kind);
            match kind {
                AccessKind::Load => {}
                AccessKind::Store => {
                    // No thread waits for the result of this access.
                    time = time.min(self.costs.issue());
                    self.keep_order(line);
                }
                AccessKind::Rmw => time += self.costs.locked,
            }
            return self.advance(time);
        }
        let start = self.threads[me].clock;
        let cost = self.memory.miss(core, line, kind, start, !queued, addr);
        self.check_length(cost.latency);
        self.count_remote(&cost);
        let thread = &mut self.threads[me];
        let done = start + cost.latency + rng::below(&mut thread.rng, self.config.jitter_ps + 1);
        // A transaction's write leaves its core only after the line has arrived in the core. Until then no other core
        // gets the line.
        let kept = if thread.tx_depth > 0 && kind == AccessKind::Store { done + 1 } else { 0 };
        let record = &mut self.memory.lines[line as usize];
        record.busy = (start + cost.occupancy).max(kept);
        if kind == AccessKind::Store {
            self.keep_order(line);
        }
        let record = &self.memory.lines[line as usize];
        if record.queue_head != NONE {
            self.agenda.put(record.queue_head as usize, record.busy);
            self.horizon = self.agenda.earliest_other(self.current).0.min(self.deadline());
        }
        let thread = &mut self.threads[me];
        match kind {
            AccessKind::Load => thread.clock = done,
            AccessKind::Rmw => {
                thread.clock = done;
                self.advance(self.costs.locked);
            }
            AccessKind::Store => self.buffer_store(start, done),
        }
    }

    /// Checks that clocks are bounded: the time of an access is bounded by the requests that the machine's threads can
    /// have made before it.
    #[inline]
    fn check_length(&self, latency: u64) {
        debug_assert!(
            latency <= self.memory.longest_access(self.threads.len()),
            "an access of {latency} ps with {} threads",
            self.threads.len()
        );
    }

    #[inline]
    fn count_remote(&mut self, cost: &Cost) {
        let part = self.threads[self.current].part;
        self.memory.stats.remote_in[usize::from(part)] += u64::from(cost.remote);
    }

    /// Makes stores visible in order: no core gets the line before all draining stores are done.
    fn keep_order(&mut self, line: u32) {
        let until = self.threads[self.current].stores_until;
        let record = &mut self.memory.lines[line as usize];
        record.busy = record.busy.max(until);
    }

    /// Puts a store that misses into the store buffer, which drains in the background: the stores become visible in
    /// order, and their latencies overlap if the model lets misses overlap.
    fn buffer_store(&mut self, start: u64, done: u64) {
        let (overlaps, slack) = (self.memory.overlaps(), self.memory.store_slack());
        let thread = &mut self.threads[self.current];
        let serial = thread.stores_until.max(start) + (done - start);
        let overlapped = done.max(thread.stores_until + self.costs.l1);
        thread.stores_until = if overlaps { overlapped } else { serial };
        thread.clock = (start + self.costs.l1).max(thread.stores_until.saturating_sub(slack));
    }

    /// Starts fetching a line, unless the line is contended or in the core's caches already. Returns [`Step::Suspend`]
    /// if it is not the thread's turn, and [`Step::Go`] otherwise.
    pub(crate) fn prefetch(&mut self, addr: usize) -> Step {
        let me = self.current;
        if self.unwinding || self.threads[me].untimed || !self.timed() {
            return Step::Go(NONE);
        }
        if !self.my_turn() {
            return Step::Suspend;
        }
        let (core, socket, now) = (self.threads[me].core, self.threads[me].socket, self.threads[me].clock);
        let line = self.memory.line(addr, socket);
        self.memory.stats.accesses += 1;
        let record = &self.memory.lines[line as usize];
        // A contended line is not prefetched.
        if record.busy <= now && record.queue_head == NONE && !self.memory.private(core, line, AccessKind::Load) {
            self.tx_conflict(line, AccessKind::Load);
            if let Some(cost) = self.memory.prefetch(core, line, now, addr) {
                self.check_length(cost.latency);
                self.count_remote(&cost);
                self.tx_evicted();
            }
        }
        self.advance(self.costs.l1 / 2);
        Step::Go(line)
    }

    /// Records that the running thread's access changed the value of a word on `line`.
    #[inline]
    pub(crate) fn changed(&mut self, line: u32) {
        if line == NONE || self.threads[self.current].tx_depth > 0 {
            return;
        }
        self.threads[self.current].changed = true;
        self.value_changed(line);
    }

    #[inline]
    pub(super) fn value_changed(&mut self, line: u32) {
        self.progress(self.current);
        let record = &mut self.memory.lines[line as usize];
        record.version = record.version.wrapping_add(1);
        if record.watch != NONE {
            self.wake_watchers(line);
        }
    }

    /// Aborts the running thread's transaction, since the thread waits or enters the kernel, which no transaction can
    /// do. Returns whether the thread had a transaction.
    pub(crate) fn tx_forbids(&mut self) -> bool {
        let inside = self.threads[self.current].tx_depth > 0;
        if inside {
            self.tx_doom(self.current, Cause::Forbidden);
        }
        inside
    }

    /// Records that the running thread passes a named point. Returns for how many nanoseconds the thread stalls at the
    /// point, or `None` if it does not stall.
    pub(crate) fn passed(&mut self, name: &'static str) -> Option<u64> {
        if self.config.faults.is_empty() {
            return None;
        }
        let thread = &mut self.threads[self.current];
        let count = match thread.passages.iter_mut().find(|passage| passage.0 == name) {
            Some(passage) => {
                passage.1 += 1;
                passage.1
            }
            None => {
                thread.passages.push((name, 1));
                1
            }
        };
        let slot = thread.slot;
        self.config.faults.iter().find_map(|fault| match fault {
            Fault::Stall { thread, at: Point::Named { name: which, nth }, for_ns } => {
                (thread.is_none_or(|which| which == slot) && which == name && *nth == count).then_some(*for_ns)
            }
            _ => None,
        })
    }
}

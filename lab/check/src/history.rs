//! Records histories: what operation each thread called, what it returned, and when.
//!
//! Every operation carries two stamps from one shared counter: `invoked` is drawn before the operation starts, and
//! `returned` after it has ended. From `A.returned < B.invoked` a checker may conclude that A was over before B began.
//! It may draw no other conclusion from stamps.
//!
//! # Why a counter and not a clock
//! A checker must never conclude "A was over before B began" when it is not true. With clock readings, a checker could
//! conclude this wrongly: a processor may read its clock while the operation's last store still waits in the store
//! buffer. Then another core can read a later time and the older value, although both cores worked correctly.
//!
//! The counter is advanced by read-modify-writes with acquire and release ordering. If A's stamp precedes B's stamp,
//! then B's increment reads from the release sequence that contains A's increment. So everything that A's operation
//! did *happens before* everything that B's operation does.
//!
//! This has two costs. Each operation accesses one contended cache line twice. And the stamps order memory between
//! operations, so they can hide a fence that is missing *between* two operations. They cannot hide errors of
//! overlapping operations, with which linearizability is concerned. Missing fences are searched with loom and Miri
//! instead.
//!
//! On the virtual machine (a simulator), the machine's own stamps are used. They order events by virtual time, and cost
//! no virtual time. They are not steps at which a schedule could switch threads.
//!
//! All other data is private to a thread. Entries are stored in the thread's own [`Log`], and are moved to the
//! [`Recorder`] when the log is dropped.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::clock::event_stamp;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::{Mutex, MutexGuard};
use core::mem;
use std::sync::PoisonError;

/// One completed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<Op, Ret> {
    /// The number of the [`Log`] that recorded the operation. Each recording thread has one log; logs are numbered in
    /// the order of [`Recorder::log`].
    pub thread: usize,
    /// The stamp drawn before the operation started.
    pub invoked: u64,
    /// The stamp drawn after the operation had ended; greater than `invoked`.
    pub returned: u64,
    /// The operation with its arguments.
    pub op: Op,
    /// The result.
    pub ret: Ret,
}

/// Collects the logs of all threads of a test.
#[derive(Debug)]
pub struct Recorder<Op, Ret> {
    stamps: CachePadded<AtomicU64>,
    threads: AtomicU64,
    entries: Mutex<Vec<Entry<Op, Ret>>>,
}

impl<Op, Ret> Default for Recorder<Op, Ret> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Op, Ret> Recorder<Op, Ret> {
    /// Makes an empty recorder whose first stamp is 1 (on the virtual machine, the machine's next stamp).
    pub fn new() -> Self {
        Recorder {
            stamps: CachePadded::new(AtomicU64::new(1)),
            threads: AtomicU64::new(0),
            entries: Mutex::new(Vec::new()),
        }
    }

    /// Returns a log for the calling thread.
    pub fn log(&self) -> Log<'_, Op, Ret> {
        let thread = self.threads.fetch_add(1, Ordering::Relaxed) as usize;
        Log { recorder: self, thread, entries: Vec::new() }
    }

    /// Draws a stamp, which is greater than every stamp that any thread drew before.
    #[inline]
    pub fn stamp(&self) -> u64 {
        // AcqRel on both sides (see the module's text): this call pairs with every other call of this function.
        event_stamp().unwrap_or_else(|| self.stamps.fetch_add(1, Ordering::AcqRel))
    }

    /// Returns all operations that were recorded by the logs dropped so far.
    pub fn finish(self) -> History<Op, Ret> {
        let mut entries = mem::take(&mut *self.entries());
        entries.sort_by_key(|entry| entry.invoked);
        History { entries }
    }
}

impl<Op, Ret> Recorder<Op, Ret> {
    /// Locks the entries, poisoned or not. A thread that appends them does not panic. But the virtual machine's threads
    /// share one thread of the system: a log that is dropped while another thread unwinds poisons the lock.
    fn entries(&self) -> MutexGuard<'_, Vec<Entry<Op, Ret>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's part of a history.
#[derive(Debug)]
pub struct Log<'r, Op, Ret> {
    recorder: &'r Recorder<Op, Ret>,
    thread: usize,
    entries: Vec<Entry<Op, Ret>>,
}

impl<Op, Ret> Log<'_, Op, Ret> {
    /// Draws a stamp, runs `op` through `run`, draws another stamp, and records the operation.
    #[inline]
    pub fn record(&mut self, op: Op, run: impl FnOnce(&Op) -> Ret) -> &Ret {
        let invoked = self.recorder.stamp();
        let ret = run(&op);
        let returned = self.recorder.stamp();
        self.push(invoked, returned, op, ret)
    }

    /// Records like [`record`](Self::record), if the operation's arguments are known only afterwards; an example is the
    /// new value of an update.
    #[inline]
    pub fn record_late(&mut self, run: impl FnOnce() -> (Op, Ret)) -> &Ret {
        let invoked = self.recorder.stamp();
        let (op, ret) = run();
        let returned = self.recorder.stamp();
        self.push(invoked, returned, op, ret)
    }

    /// Runs a call that is several operations at once (a batched look-up). All of them are recorded with the call's two
    /// stamps.
    #[inline]
    pub fn record_many<I: IntoIterator<Item = (Op, Ret)>>(&mut self, run: impl FnOnce() -> I) {
        let invoked = self.recorder.stamp();
        let done = run();
        let returned = self.recorder.stamp();
        for (op, ret) in done {
            self.push(invoked, returned, op, ret);
        }
    }

    fn push(&mut self, invoked: u64, returned: u64, op: Op, ret: Ret) -> &Ret {
        self.entries.push(Entry { thread: self.thread, invoked, returned, op, ret });
        &self.entries[self.entries.len() - 1].ret
    }

    /// Returns this log's thread number.
    pub fn thread(&self) -> usize {
        self.thread
    }
}

impl<Op, Ret> Drop for Log<'_, Op, Ret> {
    fn drop(&mut self) {
        self.recorder.entries().append(&mut self.entries);
    }
}

/// A complete history, in the order of invocation.
#[derive(Clone, Debug)]
pub struct History<Op, Ret> {
    entries: Vec<Entry<Op, Ret>>,
}

impl<Op, Ret> History<Op, Ret> {
    /// Makes a history from entries that were written by hand.
    ///
    /// # Panics
    /// If an entry's `returned` is not greater than its `invoked`.
    pub fn from_entries(mut entries: Vec<Entry<Op, Ret>>) -> Self {
        assert!(entries.iter().all(|e| e.invoked < e.returned), "an operation must return after its invocation");
        entries.sort_by_key(|entry| entry.invoked);
        History { entries }
    }

    /// Returns the operations, by ascending invocation stamp.
    pub fn entries(&self) -> &[Entry<Op, Ret>] {
        &self.entries
    }

    /// Returns the operations, by ascending invocation stamp.
    pub fn into_entries(self) -> Vec<Entry<Op, Ret>> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_platform::sync::Mutex;
    use archipelago_platform::thread;

    #[test]
    fn stamps_tell_the_truth_about_a_locked_counter() {
        const THREADS: usize = 3;
        let rounds = if cfg!(miri) { 20 } else { 2000 };
        let recorder = Recorder::new();
        let counter = Mutex::new(0u64);
        thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    let mut log = recorder.log();
                    for _ in 0..rounds {
                        log.record((), |()| {
                            let mut count = counter.lock().unwrap();
                            *count += 1;
                            *count
                        });
                    }
                });
            }
        });
        let entries = recorder.finish().into_entries();
        assert_eq!(entries.len(), THREADS * rounds);
        // An operation that was over before another began must have drawn the smaller number. One sweep over the
        // operations by their returns checks this: `latest` is the greatest number of the operations that were over
        // before `entry` began.
        let mut by_return: Vec<_> = entries.iter().collect();
        by_return.sort_by_key(|e| e.returned);
        let (mut over, mut latest) = (by_return.iter().peekable(), 0);
        for entry in &entries {
            while over.peek().is_some_and(|e| e.returned < entry.invoked) {
                latest = latest.max(over.next().unwrap().ret);
            }
            assert!(latest < entry.ret, "{latest} was drawn before {} began", entry.ret);
        }
    }

    #[test]
    fn late_and_batched_operations_share_the_log() {
        let recorder = Recorder::new();
        {
            let mut log = recorder.log();
            assert_eq!(*log.record("a", |_| 1), 1);
            assert_eq!(*log.record_late(|| ("b", 2)), 2);
            log.record_many(|| [("c", 3), ("d", 4)]);
            assert_eq!(log.thread(), 0);
        }
        assert_eq!(recorder.log().thread(), 1);
        let entries = recorder.finish().into_entries();
        assert_eq!(entries.iter().map(|e| e.op).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!((entries[2].invoked, entries[2].returned), (entries[3].invoked, entries[3].returned));
        assert!(entries[0].returned < entries[1].invoked);
    }

    #[test]
    #[should_panic(expected = "return after its invocation")]
    fn a_history_that_runs_backwards_is_refused() {
        History::from_entries(vec![Entry { thread: 0, invoked: 2, returned: 1, op: (), ret: () }]);
    }
}

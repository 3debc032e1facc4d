//! Recorded histories: what each thread asked, what it was answered, and when.
//!
//! Every operation carries two stamps from one shared counter: `invoked` is drawn before the operation starts and
//! `returned` after it has ended. A checker may conclude "A was over before B began" from `A.returned < B.invoked`,
//! and from nothing else.
//!
//! # Why a counter and not a clock
//! That conclusion must never be drawn when it is not true. With clock readings it can be: a processor may read its
//! clock while the operation's last store still waits in the store buffer, so that another core reads a later time
//! and the older value, although both did their work right. The counter is advanced by read-modify-writes that
//! acquire and release: if A's stamp precedes B's, then A's increment is in the release sequence that B's reads, so
//! everything A's operation did *happens before* everything B's operation does. The price is one contended cache line
//! drawn twice per operation, and that the stamps order memory between operations: a fence missing *between* two
//! operations can hide behind them. What goes wrong while operations overlap, which is what linearizability is about,
//! does not hide. Missing fences are hunted with loom and Miri instead.
//!
//! On the virtual machine stamps are its own: they order events as virtual time does, cost none of it, and are no steps
//! between which a schedule could change threads.
//!
//! Everything else is private to a thread: entries go into the thread's own [`Log`], and reach the [`Recorder`] when
//! the log is dropped.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::clock::event_stamp;
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Mutex;
use core::mem;

/// One completed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<Op, Ret> {
    /// The number of the [`Log`] it was recorded in: one per recording thread, in the order of [`Recorder::log`].
    pub thread: usize,
    /// Drawn before the operation started.
    pub invoked: u64,
    /// Drawn after it had ended; greater than `invoked`.
    pub returned: u64,
    /// What was asked.
    pub op: Op,
    /// What was answered.
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
    /// An empty recorder whose first stamp is 1.
    pub fn new() -> Self {
        Recorder {
            stamps: CachePadded::new(AtomicU64::new(1)),
            threads: AtomicU64::new(0),
            entries: Mutex::new(Vec::new()),
        }
    }

    /// A log for the calling thread.
    pub fn log(&self) -> Log<'_, Op, Ret> {
        let thread = self.threads.fetch_add(1, Ordering::Relaxed) as usize;
        Log { recorder: self, thread, entries: Vec::new() }
    }

    /// Draws a stamp: greater than every stamp drawn before it, by any thread.
    #[inline]
    pub fn stamp(&self) -> u64 {
        // AcqRel on both sides: see the module's text. The partner is every other call of this function.
        event_stamp().unwrap_or_else(|| self.stamps.fetch_add(1, Ordering::AcqRel))
    }

    /// Everything recorded by the logs dropped so far.
    ///
    /// # Panics
    /// When a thread panicked while it handed in its log.
    pub fn finish(self) -> History<Op, Ret> {
        let mut entries = mem::take(&mut *self.entries.lock().expect("no log panics while it is handed in"));
        entries.sort_by_key(|entry| entry.invoked);
        History { entries }
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
    /// Runs `op` through `run` between two stamps and records it.
    #[inline]
    pub fn record(&mut self, op: Op, run: impl FnOnce(&Op) -> Ret) -> &Ret {
        let invoked = self.recorder.stamp();
        let ret = run(&op);
        let returned = self.recorder.stamp();
        self.push(invoked, returned, op, ret)
    }

    /// As [`record`](Self::record) when what was asked is known only afterwards: an update's new value, say.
    #[inline]
    pub fn record_late(&mut self, run: impl FnOnce() -> (Op, Ret)) -> &Ret {
        let invoked = self.recorder.stamp();
        let (op, ret) = run();
        let returned = self.recorder.stamp();
        self.push(invoked, returned, op, ret)
    }

    /// Runs a call that is several operations at once (a batched look-up): all get its two stamps.
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

    /// This log's thread number.
    pub fn thread(&self) -> usize {
        self.thread
    }
}

impl<Op, Ret> Drop for Log<'_, Op, Ret> {
    fn drop(&mut self) {
        if let Ok(mut entries) = self.recorder.entries.lock() {
            entries.append(&mut self.entries);
        }
    }
}

/// A complete history, in the order of invocation.
#[derive(Clone, Debug)]
pub struct History<Op, Ret> {
    entries: Vec<Entry<Op, Ret>>,
}

impl<Op, Ret> History<Op, Ret> {
    /// A history made by hand.
    ///
    /// # Panics
    /// When an entry returns before it was invoked.
    pub fn from_entries(mut entries: Vec<Entry<Op, Ret>>) -> Self {
        assert!(entries.iter().all(|e| e.invoked < e.returned), "an operation must return after its invocation");
        entries.sort_by_key(|entry| entry.invoked);
        History { entries }
    }

    /// The operations, by ascending invocation stamp.
    pub fn entries(&self) -> &[Entry<Op, Ret>] {
        &self.entries
    }

    /// The operations, by ascending invocation stamp.
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
        // A thread that was over before another began must have drawn the smaller number: with `latest` the greatest
        // number among operations over by then, checked in one sweep over returns.
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

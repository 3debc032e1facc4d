//! The report of a simulation: its outcome, its costs, and a hash by which runs can be compared.

use core::fmt;
use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::watch::Unannounced;

/// How a simulation ended. Thread numbers are dense indices ([`world::Current::slot`](crate::world::Current::slot)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every client thread returned, and so did the tear-down.
    Done,
    /// Every client thread waits, and no thread can wake one of them, or the run has reached its limit of time without
    /// progress ([`Config::stall_ns`](crate::Config::stall_ns)) or its limit of time.
    Deadlock {
        /// The waiting client threads.
        waiting: Vec<usize>,
    },
    /// Threads run, but no client has changed a value for [`Config::stall_ns`](crate::Config::stall_ns), or one of the
    /// run's limits has been reached.
    Stalled,
    /// A thread panicked.
    Panicked {
        /// The thread's dense index.
        thread: usize,
        /// The time of the panic, in virtual nanoseconds.
        at_ns: u64,
        /// The panic's message.
        message: String,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => write!(f, "done"),
            Outcome::Deadlock { waiting } => write!(f, "deadlock: threads {waiting:?} wait for ever"),
            Outcome::Stalled => write!(f, "stalled: threads run but nothing changes"),
            Outcome::Panicked { thread, at_ns, message } => {
                write!(f, "thread {thread} panicked at {at_ns} ns: {message}")
            }
        }
    }
}

/// The number of parts of the program that [`Stats`] distinguishes, including the part without a name.
pub const PARTS: usize = 8;

/// Counters of the modelled machine. Times are virtual picoseconds; all other counters count events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Accesses of any kind: the simulation's events.
    pub accesses: u64,
    /// Plain accesses that counted as steps ([`Config::plain_points`](crate::Config::plain_points)); they are not in
    /// `accesses`.
    pub plain_points: u64,
    /// Accesses served by the core's first-level cache.
    pub l1_hits: u64,
    /// Accesses served by the core's second-level cache.
    pub l2_hits: u64,
    /// Accesses served by the socket's shared cache, or by a shared copy in another core of the socket.
    pub l3_hits: u64,
    /// Transfers from another core of the same socket that had the line exclusively.
    pub owned_local: u64,
    /// Transfers of a changed line from another socket.
    pub dirty_remote: u64,
    /// Transfers of an unchanged line from another socket's caches.
    pub clean_remote: u64,
    /// Accesses served by the socket's own memory.
    pub memory_local: u64,
    /// Accesses served by another socket's memory.
    pub memory_remote: u64,
    /// Writes to a line of which the core had only a readable copy.
    pub upgrades: u64,
    /// Messages that made another socket invalidate its copy.
    pub invalidations: u64,
    /// Changed lines written to memory.
    pub write_backs: u64,
    /// Time that accesses waited for a line that was being transferred to other cores.
    pub line_wait_ps: u64,
    /// Time that transfers waited for a busy link or memory controller.
    pub link_wait_ps: u64,
    /// Lines fetched by [`world::prefetch`](crate::world::prefetch).
    pub prefetches: u64,
    /// Prefetches by [`world::prefetch`](crate::world::prefetch) that were dropped, since no miss buffer was free.
    pub prefetches_dropped: u64,
    /// Read-modify-writes that changed nothing: compare-and-exchanges that failed, mostly.
    pub unchanged: u64,
    /// Waits in a spin loop for the change of a line.
    pub spin_waits: u64,
    /// Times that a thread blocked: parked, slept, or waited for a wake-up.
    pub blocks: u64,
    /// Times that the scheduler chose the thread that runs next; it may choose the same thread again.
    pub switches: u64,
    /// Accesses that left the socket, by the part of the program that made them ([`world::part`](crate::world::part)).
    /// The first number counts the accesses outside of all parts.
    pub remote_in: [u64; PARTS],
    /// Transactions begun.
    pub tx_begun: u64,
    /// Transactions committed.
    pub tx_committed: u64,
    /// Transactions aborted because another thread accessed their lines.
    pub tx_conflicts: u64,
    /// Transactions aborted because their lines did not fit.
    pub tx_capacity: u64,
    /// Transactions aborted by the program.
    pub tx_explicit: u64,
    /// Transactions aborted by the CPU's timer, or by a stall, which is an interrupt as well.
    pub tx_interrupts: u64,
    /// Transactions aborted because they accessed a page that had no memory yet.
    pub tx_faults: u64,
    /// Transactions aborted because they waited or entered the kernel, or were nested too deep.
    pub tx_forbidden: u64,
    /// Transactions aborted for no visible reason.
    pub tx_spurious: u64,
    /// Time from the beginnings of aborted transactions to their ends.
    pub tx_wasted_ps: u64,
}

/// The outcomes of the transactions that begin at one place. Each transaction that has ended is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxCounts {
    /// As [`Stats::tx_begun`]. The other fields likewise correspond to those of `Stats`.
    pub begun: u64,
    #[allow(missing_docs)]
    pub committed: u64,
    #[allow(missing_docs)]
    pub conflicts: u64,
    #[allow(missing_docs)]
    pub capacity: u64,
    #[allow(missing_docs)]
    pub explicit: u64,
    #[allow(missing_docs)]
    pub interrupts: u64,
    #[allow(missing_docs)]
    pub faults: u64,
    #[allow(missing_docs)]
    pub forbidden: u64,
    #[allow(missing_docs)]
    pub spurious: u64,
    /// As [`Stats::tx_wasted_ps`].
    pub wasted_ps: u64,
}

impl TxCounts {
    /// Returns the number of aborted transactions, whatever the reason.
    pub fn aborts(&self) -> u64 {
        let seen = self.conflicts + self.capacity + self.explicit;
        seen + self.interrupts + self.faults + self.forbidden + self.spurious
    }
}

/// A point of a run under [`Schedule::Chosen`](crate::Schedule::Chosen) at which more than one thread could continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The number of these threads.
    pub options: u16,
    /// The number of the thread that continued.
    pub taken: u16,
    /// Whether the first of the threads was running and could continue. If so, the choice of any other is a preemption.
    pub preempts: bool,
}

impl Choice {
    /// Returns the number of preemptions in this choice: 1 or 0.
    pub fn cost(self) -> u32 {
        u32::from(self.preempts && self.taken > 0)
    }
}

/// A place in the program where transactions begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxSite {
    /// The source file.
    pub file: Cow<'static, str>,
    /// The line in the source file.
    pub line: u32,
    /// The transactions' outcomes.
    pub counts: TxCounts,
    /// The program's own reasons for aborts, ascending, with the number of aborts for each.
    pub codes: Vec<(u8, u64)>,
}

/// A line for which transactions conflicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxLine {
    /// Its name from [`world::label`](crate::world::label); empty if it has none.
    pub label: &'static str,
    /// Its address.
    pub addr: usize,
    /// The number of transactions that aborted because of it.
    pub aborts: u64,
}

impl Stats {
    /// Returns the counts since `earlier`, an earlier reading of the same run.
    pub fn since(&self, earlier: &Stats) -> Stats {
        Stats {
            accesses: self.accesses - earlier.accesses,
            plain_points: self.plain_points - earlier.plain_points,
            l1_hits: self.l1_hits - earlier.l1_hits,
            l2_hits: self.l2_hits - earlier.l2_hits,
            l3_hits: self.l3_hits - earlier.l3_hits,
            owned_local: self.owned_local - earlier.owned_local,
            dirty_remote: self.dirty_remote - earlier.dirty_remote,
            clean_remote: self.clean_remote - earlier.clean_remote,
            memory_local: self.memory_local - earlier.memory_local,
            memory_remote: self.memory_remote - earlier.memory_remote,
            upgrades: self.upgrades - earlier.upgrades,
            invalidations: self.invalidations - earlier.invalidations,
            write_backs: self.write_backs - earlier.write_backs,
            line_wait_ps: self.line_wait_ps - earlier.line_wait_ps,
            link_wait_ps: self.link_wait_ps - earlier.link_wait_ps,
            prefetches: self.prefetches - earlier.prefetches,
            prefetches_dropped: self.prefetches_dropped - earlier.prefetches_dropped,
            unchanged: self.unchanged - earlier.unchanged,
            spin_waits: self.spin_waits - earlier.spin_waits,
            blocks: self.blocks - earlier.blocks,
            switches: self.switches - earlier.switches,
            remote_in: std::array::from_fn(|part| self.remote_in[part] - earlier.remote_in[part]),
            tx_begun: self.tx_begun - earlier.tx_begun,
            tx_committed: self.tx_committed - earlier.tx_committed,
            tx_conflicts: self.tx_conflicts - earlier.tx_conflicts,
            tx_capacity: self.tx_capacity - earlier.tx_capacity,
            tx_explicit: self.tx_explicit - earlier.tx_explicit,
            tx_interrupts: self.tx_interrupts - earlier.tx_interrupts,
            tx_faults: self.tx_faults - earlier.tx_faults,
            tx_forbidden: self.tx_forbidden - earlier.tx_forbidden,
            tx_spurious: self.tx_spurious - earlier.tx_spurious,
            tx_wasted_ps: self.tx_wasted_ps - earlier.tx_wasted_ps,
        }
    }

    /// Returns the number of aborted transactions, whatever the reason.
    pub fn tx_aborts(&self) -> u64 {
        let seen = self.tx_conflicts + self.tx_capacity + self.tx_explicit;
        seen + self.tx_interrupts + self.tx_faults + self.tx_forbidden + self.tx_spurious
    }

    /// Returns the number of accesses that left the socket.
    pub fn remote(&self) -> u64 {
        self.dirty_remote + self.clean_remote + self.memory_remote
    }
}

/// A line for which threads waited because other cores had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotLine {
    /// Its name from [`world::label`](crate::world::label); empty if it has none.
    pub label: Cow<'static, str>,
    /// Its address.
    pub addr: usize,
    /// The time that all threads together waited for it, in virtual picoseconds.
    pub waited_ps: u64,
}

/// The result of [`run`](crate::run).
#[derive(Clone, Debug)]
pub struct Report {
    /// How the run ended.
    pub outcome: Outcome,
    /// The seed of the run.
    pub seed: u64,
    /// When the last client thread ended, in virtual nanoseconds.
    pub end_ns: u64,
    /// Counters of the machine.
    pub stats: Stats,
    /// The lines for which threads waited longest: at most ten, the longest first.
    pub hot_lines: Vec<HotLine>,
    /// The outcomes of transactions, by the place where they begin.
    pub tx_sites: Vec<TxSite>,
    /// The lines with the most conflicts of transactions, at most ten.
    pub tx_lines: Vec<TxLine>,
    /// Under [`Schedule::Chosen`](crate::Schedule::Chosen): the choices that were made.
    pub trace: Vec<Choice>,
    /// The names of the parts that [`Stats::remote_in`] counts, from the second part on.
    pub parts: Vec<&'static str>,
    /// A hash over every step. It is equal for equal runs, and almost certainly different for different ones.
    pub hash: u64,
    /// The time that the simulation took on the host, including set-up and tear-down.
    pub wall: std::time::Duration,
    /// Bytes of the model that grow with the memory that the program accesses.
    pub model_bytes: usize,
    /// The number of cache lines that the program accessed.
    pub lines: usize,
    /// The number of threads that were abandoned: they did not end even when they were unwound (a destructor may wait
    /// forever, for example); or the run failed, and [`Config::unwind`](crate::Config::unwind) is off. Their stacks,
    /// and what they own, are leaked.
    pub abandoned: usize,
    /// With [`Config::watch`](crate::Config::watch): plain accesses to shared memory that were not announced, the most
    /// frequent first.
    pub unannounced: Vec<Unannounced>,
    /// `true` if the run had a heap of its own ([`SimAlloc`](crate::SimAlloc)). The address space has room for 80 such
    /// heaps, and a heap stays in use while any block in it is live, even after its run. A run without a heap of its
    /// own allocates from the process's heap, whose layout depends on earlier runs. Then two runs with equal seeds may
    /// differ.
    pub own_heap: bool,
}

impl Report {
    /// Returns the report of a run that is [`Outcome::Done`].
    ///
    /// # Panics
    /// If the run ended otherwise; the message says how, and how to run it again.
    #[track_caller]
    pub fn assert_done(self) -> Report {
        let (outcome, seed) = (&self.outcome, self.seed);
        assert!(*outcome == Outcome::Done, "{outcome} (again with ARCHIPELAGO_SIM_SEED={seed})");
        self
    }
}

//! The report of a simulation: its outcome, its costs, and a hash to compare runs.

use core::fmt;

use crate::watch::Unannounced;

/// How a simulation ended. Thread numbers are dense indices ([`world::Current::slot`](crate::world::Current::slot)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every client thread returned, and the tear-down too.
    Done,
    /// Every client thread waits for something that no thread will do.
    Deadlock {
        /// The waiting client threads.
        waiting: Vec<usize>,
    },
    /// Threads run, but no client has changed a value for [`Config::stall_ns`](crate::Config::stall_ns), or one of the
    /// run's limits is reached.
    Stalled,
    /// A thread panicked.
    Panicked {
        /// Which one.
        thread: usize,
        /// When, in virtual nanoseconds.
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

/// Named parts of the program that [`Stats`] can tell apart, those without a name included.
pub const PARTS: usize = 8;

/// Counters of the modelled machine. Times are virtual picoseconds, everything else counts events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Accesses of any kind: the simulation's events.
    pub accesses: u64,
    /// Plain accesses that counted as steps, beside those: [`Config::plain_points`](crate::Config::plain_points).
    pub plain_points: u64,
    /// Accesses served by the core's first-level cache.
    pub l1_hits: u64,
    /// Accesses served by the core's second-level cache.
    pub l2_hits: u64,
    /// Accesses served by the socket's shared cache.
    pub l3_hits: u64,
    /// Transfers from another core of the same socket that had the line for itself.
    pub owned_local: u64,
    /// Transfers of a changed line from another socket.
    pub dirty_remote: u64,
    /// Transfers of an unchanged line from another socket's caches.
    pub clean_remote: u64,
    /// Accesses served by the socket's own memory.
    pub memory_local: u64,
    /// Accesses served by another socket's memory.
    pub memory_remote: u64,
    /// Writes to a line that the core had for reading only.
    pub upgrades: u64,
    /// Messages that made another socket give up its copy.
    pub invalidations: u64,
    /// Changed lines written to memory.
    pub write_backs: u64,
    /// Time that accesses waited for a line that was being transferred to others.
    pub line_wait_ps: u64,
    /// Time that transfers waited for a busy link or memory controller.
    pub link_wait_ps: u64,
    /// Lines fetched by [`world::prefetch`](crate::world::prefetch).
    pub prefetches: u64,
    /// Lines that [`world::prefetch`](crate::world::prefetch) didn't fetch, since every miss buffer was taken.
    pub prefetches_dropped: u64,
    /// Waits in a spin loop until a line changed.
    pub spin_waits: u64,
    /// Times a thread blocked: parked, slept, or waited for a wake-up.
    pub blocks: u64,
    /// Changes of the running thread.
    pub switches: u64,
    /// Accesses that left the socket, by the part of the program that made them ([`world::part`](crate::world::part));
    /// the first are those of no part.
    pub remote_in: [u64; PARTS],
    /// Transactions begun.
    pub tx_begun: u64,
    /// Transactions committed.
    pub tx_committed: u64,
    /// Transactions aborted because another thread touched their lines.
    pub tx_conflicts: u64,
    /// Transactions aborted because their lines didn't fit.
    pub tx_capacity: u64,
    /// Transactions aborted by the program.
    pub tx_explicit: u64,
    /// Transactions aborted by the CPU's timer, or by a stall: what takes a processor away interrupts.
    pub tx_interrupts: u64,
    /// Transactions aborted because they touched a page that had no memory yet.
    pub tx_faults: u64,
    /// Transactions aborted because they waited or entered the kernel, or were nested too deep.
    pub tx_forbidden: u64,
    /// Transactions aborted for no visible reason.
    pub tx_spurious: u64,
    /// Time from the beginnings of aborted transactions to their ends.
    pub tx_wasted_ps: u64,
}

/// What became of the transactions that begin at one place. Each that is over is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounts {
    /// As [`Stats::tx_begun`], and so on.
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
    /// Transactions that aborted, for whatever reason.
    pub fn aborts(&self) -> u64 {
        let seen = self.conflicts + self.capacity + self.explicit;
        seen + self.interrupts + self.faults + self.forbidden + self.spurious
    }
}

/// A point of a run under [`Schedule::Chosen`](crate::Schedule::Chosen) at which more than one thread could go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// How many.
    pub options: u16,
    /// Which one did.
    pub taken: u16,
    /// Whether the first of them was running and able to go on: any other is a preemption.
    pub preempts: bool,
}

impl Choice {
    /// What this choice costs: a preemption, or nothing.
    pub fn cost(self) -> u32 {
        u32::from(self.preempts && self.taken > 0)
    }
}

/// A place in the program where transactions begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxSite {
    /// Its source file.
    pub file: &'static str,
    /// Its line there.
    pub line: u32,
    /// What became of them.
    pub counts: TxCounts,
    /// The program's own reasons for aborts, with how many had each, ascending.
    pub codes: Vec<(u8, u64)>,
}

/// A line that transactions conflicted about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxLine {
    /// What [`world::label`](crate::world::label) called it, or nothing.
    pub label: &'static str,
    /// Its address.
    pub addr: usize,
    /// How many transactions aborted because of it.
    pub aborts: u64,
}

impl Stats {
    /// What was counted since `earlier`, a reading of the same run.
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

    /// Transactions that aborted, for whatever reason.
    pub fn tx_aborts(&self) -> u64 {
        let seen = self.tx_conflicts + self.tx_capacity + self.tx_explicit;
        seen + self.tx_interrupts + self.tx_faults + self.tx_forbidden + self.tx_spurious
    }

    /// Accesses that left the socket.
    pub fn remote(&self) -> u64 {
        self.dirty_remote + self.clean_remote + self.memory_remote
    }
}

/// A line for which threads waited since other cores had it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotLine {
    /// What [`world::label`](crate::world::label) called it; empty if nothing did.
    pub label: &'static str,
    /// Its address.
    pub addr: usize,
    /// How long all threads together waited for it, in virtual picoseconds.
    pub waited_ps: u64,
}

/// What [`run`](crate::run) returns.
#[derive(Clone, Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// The seed it ran with.
    pub seed: u64,
    /// When the last client thread ended, in virtual nanoseconds.
    pub end_ns: u64,
    /// Counters of the machine.
    pub stats: Stats,
    /// The lines that were waited for longest, at most ten, the hottest first.
    pub hot_lines: Vec<HotLine>,
    /// What became of transactions, by the place where they begin.
    pub tx_sites: Vec<TxSite>,
    /// The lines that most conflicts of transactions were about, at most ten.
    pub tx_lines: Vec<TxLine>,
    /// Under [`Schedule::Chosen`](crate::Schedule::Chosen): the choices that were made.
    pub trace: Vec<Choice>,
    /// The names of the parts that [`Stats::remote_in`] counts, from the second on.
    pub parts: Vec<&'static str>,
    /// A hash over every step: equal for equal runs, and practically only for them.
    pub hash: u64,
    /// Time the simulation took on the host, set-up and tear-down included.
    pub wall: std::time::Duration,
    /// Memory of the model that grows with what the program touches, in bytes.
    pub model_bytes: usize,
    /// Cache lines the program touched.
    pub lines: usize,
    /// Threads that did not end even when they were unwound, because a destructor waited forever: their stacks, and
    /// what they own, are leaked.
    pub abandoned: usize,
    /// With [`Config::watch`](crate::Config::watch): plain accesses to shared memory that nothing announced, the most
    /// frequent first.
    pub unannounced: Vec<Unannounced>,
    /// Whether the run had address space of its own for what its threads allocate ([`SimAlloc`](crate::SimAlloc)). There is
    /// some for 80 runs, and blocks that outlive a run keep its part. A run without takes memory from the process's heap, where what lies
    /// beside what hangs on earlier runs: equal seeds then give runs that may differ.
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

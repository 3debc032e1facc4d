//! How one simulation is run: seed, schedule, placement of threads, faults, limits.

use crate::machine::Machine;

/// Bytes of the smallest stack: a panic that unwinds needs some thousands.
const LEAST_STACK: usize = 32 << 10;

/// The order in which the simulated threads take their steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The thread with the smallest virtual clock takes the next step, as on the modelled machine. This schedule is
    /// for measuring performance.
    VirtualTime,
    /// Before every access the next thread is drawn uniformly from those that can run. This schedule is for finding
    /// bugs. (Here and below, accesses are all atomic accesses, all announced plain accesses, and the fraction of other
    /// plain accesses that [`Config::plain_points`] sets.)
    Random,
    /// Probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010). Threads have random priorities, and the
    /// thread with the highest priority runs. At `depth - 1` random steps, the running thread's priority drops below
    /// all others. Any bug of this depth is found with a guaranteed probability.
    Pct {
        /// The number of ordering constraints of the sought bug, at least 1.
        depth: u32,
    },
    /// The running thread continues until it waits or ends, except at the choices in [`Config::choices`], which
    /// [`search`](crate::search) enumerates. This schedule is not random.
    Chosen,
}

/// The hardware threads on which client threads start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One socket after the other. Within a socket, the first hardware threads of all cores come before the second
    /// ones.
    Fill,
    /// The first hardware threads of all cores, one socket after the other, then the second ones.
    Cores,
    /// Distributed over the sockets in rotation, on each socket in the order of `Fill`.
    Spread,
    /// Client `i` on hardware thread `cpus[i % cpus.len()]`.
    Cpus(Vec<usize>),
}

/// When a fault happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Point {
    /// At the thread's first step at or after this virtual time, in nanoseconds. Never if the thread begins later
    /// (clients begin within the first 50 ns).
    Time(u64),
    /// Before the thread's access of this number, counted from 1.
    Access(u64),
    /// Before accesses that are chosen at random, on average before one in this many.
    OneIn(u64),
    /// When the thread passes [`world::point`](crate::world::point) with this name for the `nth` time, from 1.
    Named {
        /// The name of the point.
        name: String,
        /// The number of the stalled thread's passage, from 1.
        nth: u64,
    },
}

/// A fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A thread loses its processor for a while.
    Stall {
        /// The thread's dense index ([`world::Current::slot`](crate::world::Current::slot)); `None` for every thread.
        thread: Option<usize>,
        /// When the thread is stalled.
        at: Point,
        /// For how long, in virtual nanoseconds.
        for_ns: u64,
    },
    /// A node admits no thread for a while: each thread on the node is stalled, at its first step at or after a time. A
    /// thread that begins later is not stalled.
    StallNode {
        /// Which node.
        node: usize,
        /// The virtual time at which this begins, in nanoseconds.
        at_ns: u64,
        /// For how long, in virtual nanoseconds.
        for_ns: u64,
    },
    /// Every hardware transaction aborts with this probability, for no reason that is visible to the program. These
    /// aborts replace the machine's own timer interrupts and spurious aborts.
    AbortTransactions {
        /// The probability, from 0 to 1.
        probability: f64,
    },
    /// Hardware transactions hold no more lines than this.
    TransactionCapacity {
        /// Lines read.
        read_lines: usize,
        /// Lines written.
        write_lines: usize,
    },
}

/// The parameters of one simulation. [`Config::default`] is suitable for a performance run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The seed, which decides every random choice. The default is the environment variable `ARCHIPELAGO_SIM_SEED` if
    /// it is a number, else 1.
    pub seed: u64,
    /// The order in which threads take steps.
    pub schedule: Schedule,
    /// Where client threads start.
    pub placement: Placement,
    /// The faults that happen.
    pub faults: Vec<Fault>,
    /// The virtual time, in nanoseconds, at which [`Client::running`](crate::Client::running) becomes false; `None` for
    /// never.
    pub until_ns: Option<u64>,
    /// The longest time, in virtual nanoseconds, without a client that changes a value or is woken by a timer. After it
    /// the run counts as stalled, or as deadlocked if every client waits.
    pub stall_ns: u64,
    /// The run counts as stalled at this virtual time, in nanoseconds, or as deadlocked if every client waits; 281
    /// seconds at most.
    pub limit_ns: u64,
    /// The run counts as stalled after this many accesses.
    pub limit_accesses: u64,
    /// The most picoseconds of random delay that are added to an access that leaves the core. The delay breaks
    /// lock-step.
    pub jitter_ps: u64,
    /// The constant error of each socket's clock in nanoseconds (0 for missing sockets), as
    /// [`world::clock_ps`](crate::world::clock_ps) shows it.
    pub clock_skew_ns: Vec<i64>,
    /// If `true`, the threads of a failed run are unwound, so that their destructors run. A destructor that then panics
    /// ends the process. If `false`, the threads run no more code, and what they own is leaked
    /// ([`Report::abandoned`](crate::Report::abandoned)). Background threads of a completed run are unwound in any
    /// case.
    pub unwind: bool,
    /// Bytes of a simulated thread's stack, at least 32 KiB. A thread that needs more ends the process; on Linux with a
    /// message, as `std`'s threads do.
    pub stack_bytes: usize,
    /// Whether to find plain accesses to shared memory that are not announced ([`Report::unannounced`]). Every plain
    /// access to the run's heap then takes some microseconds. Works only on Linux on x86-64, with
    /// [`SimAlloc`](crate::SimAlloc) installed.
    ///
    /// [`Report::unannounced`]: crate::Report::unannounced
    pub watch: bool,
    /// In schedules that look for bugs: one in this number of unannounced plain accesses to the run's memory, chosen at
    /// random, counts as a step. Before it the schedule chooses the next thread, as before an announced access. The
    /// default, 0, means none. With any other number, every plain access to the run's memory takes some microseconds.
    /// Works only on Linux on x86-64, with [`SimAlloc`](crate::SimAlloc) installed; else no such access is a step.
    pub plain_points: u64,
    /// The approximate number of accesses of the run, over which [`Schedule::Pct`] distributes its change points. 0,
    /// the default, means unknown: each point is then drawn below a random power of two, at most 2^23.
    /// [`hunt`](crate::hunt), and with this schedule [`find`](crate::find) and [`explore`](crate::explore), measure the
    /// number in a first run.
    pub expected_accesses: u64,
    /// For [`Schedule::Chosen`]: the threads that continue at the points at which more than one can, in order. 0 is the
    /// running thread, if it can continue. At all points after the end of the list the choice is 0.
    pub choices: Vec<u16>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: replay_seed().unwrap_or(1),
            schedule: Schedule::VirtualTime,
            placement: Placement::Fill,
            faults: Vec::new(),
            until_ns: None,
            stall_ns: 20_000_000,
            limit_ns: 60_000_000_000,
            limit_accesses: u64::MAX,
            jitter_ps: 2_000,
            clock_skew_ns: Vec::new(),
            unwind: true,
            stack_bytes: 256 << 10,
            watch: false,
            plain_points: 0,
            expected_accesses: 0,
            choices: Vec::new(),
        }
    }
}

impl Config {
    /// Panics with a message if the configuration contains something that the machine does not have.
    pub(crate) fn check(&self, machine: &Machine) {
        if let Placement::Cpus(cpus) = &self.placement {
            let foreign = |cpu: &&usize| **cpu >= machine.cpus();
            assert!(!cpus.is_empty(), "`placement` names no CPU");
            let wrong = cpus.iter().find(foreign);
            assert!(wrong.is_none(), "`placement` names CPU {}; there are {}", wrong.unwrap_or(&0), machine.cpus());
        }
        for fault in &self.faults {
            if let Fault::AbortTransactions { probability } = fault {
                assert!((0.0..=1.0).contains(probability), "`probability` is {probability}; it must be from 0 to 1");
            }
        }
        assert!(self.stack_bytes >= LEAST_STACK, "`stack_bytes` is {}; the least is {LEAST_STACK}", self.stack_bytes);
    }

    /// Returns the default configuration with another seed.
    pub fn seeded(seed: u64) -> Self {
        Config { seed, ..Config::default() }
    }
}

/// Returns the seed in the environment variable `ARCHIPELAGO_SIM_SEED`, if it is a number.
pub fn replay_seed() -> Option<u64> {
    std::env::var("ARCHIPELAGO_SIM_SEED").ok()?.trim().parse().ok()
}

//! How one simulation is run: seed, schedule, placement of threads, faults, limits.

use crate::machine::Machine;

/// Bytes of the smallest stack: an unwinding panic needs some thousands.
const LEAST_STACK: usize = 32 << 10;

/// In which order the simulated threads take their steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The thread with the smallest virtual clock goes first: what the modelled machine would do. For performance.
    VirtualTime,
    /// Before every access a thread is drawn uniformly among those that can run. For finding bugs. (Here and below,
    /// accesses are all atomic ones, all announced plain ones, and the fraction of other plain ones that
    /// [`Config::plain_points`] sets.)
    Random,
    /// Probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010): random priorities, the highest runs, and at
    /// `depth - 1` random steps the running thread drops below all others. Finds any bug of that depth with a
    /// guaranteed probability.
    Pct {
        /// How many ordering constraints the sought bug has, at least 1.
        depth: u32,
    },
    /// The running thread continues until it waits or ends, except at the choices in [`Config::choices`], which
    /// [`search`](crate::search) enumerates. The schedule is not random.
    Chosen,
}

/// On which hardware threads client threads start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Socket after socket; within one, every core's first hardware thread before any second.
    Fill,
    /// Distributed over the sockets in rotation.
    Spread,
    /// Client `i` on hardware thread `cpus[i % cpus.len()]`.
    Cpus(Vec<usize>),
}

/// When a fault strikes.
#[derive(Clone, Debug, PartialEq)]
pub enum Point {
    /// At the thread's first step at or after this virtual time, in nanoseconds; never, if the thread begins later (clients begin
    /// within the first 50 ns).
    Time(u64),
    /// Before the thread's access of this number, counted from 1.
    Access(u64),
    /// Before each access, with probability one in this many.
    OneIn(u64),
    /// When the thread passes [`world::point`](crate::world::point) with this name for the `nth` time, from 1.
    Named {
        /// The name of the point.
        name: String,
        /// Which passage of the stalled thread.
        nth: u64,
    },
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A thread loses its processor for a while.
    Stall {
        /// Dense index of the thread ([`world::Current::slot`](crate::world::Current::slot)), `None` for any.
        thread: Option<usize>,
        /// At which point.
        at: Point,
        /// For how long, in virtual nanoseconds.
        for_ns: u64,
    },
    /// A node admits no thread for a while: those that run there wait.
    StallNode {
        /// Which node.
        node: usize,
        /// From this virtual time on, in nanoseconds.
        at_ns: u64,
        /// For how long, in virtual nanoseconds.
        for_ns: u64,
    },
    /// Every hardware transaction aborts with this probability (0 to 1), for no reason that is visible to the program.
    AbortTransactions {
        /// From 0 to 1.
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
    /// Decides every random choice. The default is the environment variable `ARCHIPELAGO_SIM_SEED` if it is a number,
    /// else 1.
    pub seed: u64,
    /// In which order threads take steps.
    pub schedule: Schedule,
    /// Where client threads start.
    pub placement: Placement,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// When [`Client::running`](crate::Client::running) turns false, in virtual nanoseconds; `None`: never.
    pub until_ns: Option<u64>,
    /// After this time, in virtual nanoseconds, in which no client has changed a value or woken by a timer, the run
    /// counts as stalled, or as deadlocked if every client waits.
    pub stall_ns: u64,
    /// The run counts as stalled at this virtual time, in nanoseconds; 281 seconds at most.
    pub limit_ns: u64,
    /// The run counts as stalled after this many accesses.
    pub limit_accesses: u64,
    /// Random delay added to an access that leaves the core, at most this many picoseconds: breaks lock-step.
    pub jitter_ps: u64,
    /// How many independent misses of one stream overlap: 1 for none.
    pub overlap: u32,
    /// Constant error of each socket's clock in nanoseconds (missing sockets: 0), as
    /// [`world::clock_ps`](crate::world::clock_ps) shows it.
    pub clock_skew_ns: Vec<i64>,
    /// If `true`, the threads of a failed run are unwound, so that their destructors run. A destructor that then panics
    /// ends the process. Without unwinding the threads run no more code, and what they own is leaked
    /// ([`Report::abandoned`](crate::Report::abandoned)). Background threads of a run that is done are unwound in any
    /// case.
    pub unwind: bool,
    /// Stack of a simulated thread in bytes, 32 KiB at least. A thread that needs more ends the process, on Linux with
    /// a message, as `std`'s threads do.
    pub stack_bytes: usize,
    /// Whether to find plain accesses to shared memory that nothing announces: [`Report::unannounced`]. Some
    /// microseconds for every plain access; on Linux on x86-64 only, with [`SimAlloc`](crate::SimAlloc) installed.
    ///
    /// [`Report::unannounced`]: crate::Report::unannounced
    pub watch: bool,
    /// In schedules that look for bugs: before one in this number of unannounced plain accesses to the run's memory,
    /// chosen at random, the schedule chooses the next thread, as before an announced access. The default, 0, means
    /// none. Some microseconds for every plain access; on Linux on x86-64 only, with [`SimAlloc`](crate::SimAlloc)
    /// installed, else none.
    pub plain_points: u64,
    /// About how many accesses the run makes: [`Schedule::Pct`] spreads its change points over them. 0, the default,
    /// for unknown: each point then lies at a random power of two. [`find`](crate::find), [`explore`](crate::explore)
    /// and [`hunt`](crate::hunt) measure it in a first run.
    pub expected_accesses: u64,
    /// For [`Schedule::Chosen`]: for each point at which more than one thread can continue, in order, which of them
    /// does. 0, which also holds for all points behind the list, is the running thread, if it can continue.
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
            overlap: 3,
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
    /// Panics with a message if the configuration names something that the machine does not have.
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

    /// The default with another seed.
    pub fn seeded(seed: u64) -> Self {
        Config { seed, ..Config::default() }
    }
}

/// The seed that the environment variable `ARCHIPELAGO_SIM_SEED` asks for, if it is a number.
pub fn replay_seed() -> Option<u64> {
    std::env::var("ARCHIPELAGO_SIM_SEED").ok()?.trim().parse().ok()
}

//! The modelled machine as plain data: sockets, cores, caches, latencies, occupancies, transactions.
//!
//! All times are in nanoseconds. The latency of an access is the time from its beginning until its result can be used,
//! if no other access competes. A machine comes from a preset ([`Machine::preset`]) or a TOML file
//! ([`Machine::from_toml`]). Every number of a preset has a source in [`Machine::sources`]; the source "estimate" means
//! that no measurement is known. The beginning of a source tells the number's [`Origin`].

mod check;
mod file;
mod origin;
mod presets;
mod shrink;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use check::{MachineError, Number};
pub use origin::Origin;
pub use presets::PRESETS;

/// A cache of one core or of one socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Number of sets.
    pub sets: usize,
    /// Lines per set.
    pub ways: usize,
}

impl Cache {
    /// Returns the size in bytes.
    pub fn bytes(self) -> usize {
        self.sets * self.ways * 64
    }
}

/// The caches of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// First level, per core.
    pub l1: Cache,
    /// Second level, per core.
    pub l2: Cache,
    /// Third level, per socket.
    pub l3: Cache,
    /// Whether the third level holds all lines that the socket's cores hold; otherwise it holds the lines that they
    /// evict.
    pub l3_inclusive: bool,
}

/// Uncontended times of single accesses, in nanoseconds. Lists are indexed by the number of hops, from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// First-level hit.
    pub l1: f64,
    /// Second-level hit.
    pub l2: f64,
    /// Hit in the socket's third level.
    pub l3: f64,
    /// From the private cache of another core of the socket.
    pub core_to_core: f64,
    /// From a cache of another socket that has changed the line, by hops; the first number is not used.
    pub dirty_remote: Vec<f64>,
    /// From a cache of another socket that has the line unchanged, by hops; the first number is not used.
    pub clean_remote: Vec<f64>,
    /// From memory, by hops to its home.
    pub memory: Vec<f64>,
    /// The time that a locked instruction adds.
    pub locked: f64,
    /// A full fence, without the stores for which it waits.
    pub fence: f64,
    /// One turn of a spin loop.
    pub pause: f64,
    /// Reading the clock.
    pub clock: f64,
}

/// How long an access keeps others from the same resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Occupancy {
    /// The part of a transfer's latency during which the line cannot be given to the next core.
    pub transfer: f64,
    /// Nanoseconds beyond the transfer for which a core keeps a line while other cores wait for it.
    pub hold: f64,
    /// Nanoseconds between two reads of one line that several cores share.
    pub shared_read: f64,
    /// Nanoseconds between two lines from one socket's memory.
    pub memory: f64,
    /// Nanoseconds between two lines over one link.
    pub link: f64,
    /// How many requests from the owner's own socket may overtake a remote request for the same line.
    pub local_bypass: u8,
    /// The number of outstanding misses that a core can have.
    pub miss_buffers: usize,
}

/// Hardware transactions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transactions {
    /// Nanoseconds to begin.
    pub begin: f64,
    /// Nanoseconds to commit.
    pub commit: f64,
    /// Nanoseconds to abort.
    pub abort: f64,
    /// The maximum number of lines that a transaction can read, whichever caches hold them. Read lines must also stay
    /// in the second-level cache, or in the third if it is inclusive; written lines must stay in the first.
    pub read_lines: usize,
    /// Nanoseconds between a CPU's timer interrupts, each of which aborts a transaction; 0 for none.
    pub timer: f64,
    /// The nanoseconds of transaction per abort for no visible reason: a transaction of length t aborts so with
    /// probability t / `spurious`. 0 means never.
    pub spurious: f64,
}

/// The operating system's costs of blocking, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Os {
    /// A system call that does little: yielding, waking another thread.
    pub call: f64,
    /// From the wake-up call to the first instruction of the woken thread.
    pub wake: f64,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// NUMA nodes with processors.
    pub sockets: usize,
    /// Physical cores of a socket.
    pub cores_per_socket: usize,
    /// Hardware threads of a core.
    pub threads_per_core: usize,
    /// The number of links between two sockets; 0 from a socket to itself.
    pub hops: Vec<Vec<u8>>,
    /// The factor by which a core's own work takes longer while its other hardware thread works too.
    pub smt_slowdown: f64,
    /// How many misses of one stream a core overlaps: from the third miss on, each costs its latency divided by this
    /// number. 1 is a core that makes one miss after the other, and one store after the other. A file without the
    /// number means 10.
    #[serde(default = "some_overlap")]
    pub overlap: f64,
    /// The caches.
    pub caches: Caches,
    /// Times of accesses.
    pub latency: Latency,
    /// How long resources stay busy.
    pub occupancy: Occupancy,
    /// Hardware transactions, if the machine has them.
    pub transactions: Option<Transactions>,
    /// Costs of blocking.
    pub os: Os,
    /// The source of each number, by the name of its field (`latency.l3`).
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// The presets' [`Machine::overlap`].
fn some_overlap() -> f64 {
    10.0
}

impl Machine {
    /// The text of a TOML file to start from.
    pub const EXAMPLE: &str = include_str!("machine/example.toml");

    /// Returns the number of physical cores.
    pub fn cores(&self) -> usize {
        self.sockets * self.cores_per_socket
    }

    /// Returns the number of hardware threads ("CPUs").
    pub fn cpus(&self) -> usize {
        self.cores() * self.threads_per_core
    }

    /// Returns the physical core of a CPU. CPUs are numbered as in Linux: first every core's first hardware thread,
    /// socket by socket, then every core's second one.
    pub fn core_of(&self, cpu: usize) -> usize {
        cpu % self.cores()
    }

    /// Returns the socket of a CPU.
    pub fn socket_of(&self, cpu: usize) -> usize {
        self.core_of(cpu) / self.cores_per_socket
    }

    /// Returns the CPUs of a socket: every core's first hardware thread, then every core's second one.
    pub fn cpus_of(&self, socket: usize) -> impl Iterator<Item = usize> + use<> {
        let (cores, per_socket) = (self.cores(), self.cores_per_socket);
        (0..self.threads_per_core)
            .flat_map(move |rank| (0..per_socket).map(move |c| rank * cores + socket * per_socket + c))
    }

    /// Returns all CPUs, socket after socket, each as in [`cpus_of`](Self::cpus_of).
    pub fn fill_order(&self) -> Vec<usize> {
        (0..self.sockets).flat_map(|socket| self.cpus_of(socket)).collect()
    }

    /// Returns all CPUs: every core's first hardware thread, socket after socket, then every core's second one.
    pub fn cores_order(&self) -> Vec<usize> {
        // So CPUs are numbered, see `cpus_of`.
        (0..self.cpus()).collect()
    }

    /// Returns all CPUs, distributed over the sockets in rotation.
    pub fn spread_order(&self) -> Vec<usize> {
        let per_socket: Vec<Vec<usize>> = (0..self.sockets).map(|socket| self.cpus_of(socket).collect()).collect();
        (0..self.cpus() / self.sockets).flat_map(|rank| per_socket.iter().map(move |cpus| cpus[rank])).collect()
    }
}

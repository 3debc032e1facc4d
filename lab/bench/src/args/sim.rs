//! The arguments of the experiments on the virtual machine.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::{Blink, Cache, Euno, Locks, NrWork, Pin, Ranges, SetsWork, Show, Txn};
use super::parse::{Warm, count, micros, operations, per_cycle, warm};

/// The experiments on the virtual machine.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// The machines that can be simulated: all, or every number of one and where it comes from
    Machines {
        /// A preset or a TOML file.
        name: Option<PathBuf>,
        /// Print a TOML file to start from
        #[arg(long)]
        example: bool,
    },
    /// Four small programs, natively in the ordinary build and simulated in the other: how far to trust the model
    Host,
    /// Short critical sections under spin locks, queue locks, hierarchical locks and reader-writer locks
    Locks(Locks<SimCommon>),
    /// The B-link tree under each technique of the NUMA B-tree thesis
    Blink(Blink<SimCommon>),
    /// Eunomia, one of its means after the other, and its rivals, where many threads write to few places
    Euno(Euno<SimCommon>),
    /// Transactions: TPC-C, YCSB, SmallBank, by every scheme over every map, beside one lock
    Txn(Txn<SimCommon>),
    /// Records in caches, ours by policy and one after Kyoto Cabinet's
    Cache(Cache<SimCommon>),
    /// Page faults beside mapping and unmapping, in address spaces
    Ranges(Ranges<SimCommon>),
    /// Indexes under YCSB's workloads
    Ycsb(SimYcsb),
    /// List, hash table and search tree over RCU, RLU and MV-RLU
    Sets(SimSets),
    /// Node replication beside locks and combining
    Nr(SimNr),
    /// The papers' figures beside ours: a table in Markdown, with a verdict on every ordering that a paper states
    Papers(SimPapers),
}

/// What all experiments on the virtual machine have.
#[derive(Clone, Debug, Args)]
pub struct SimCommon {
    /// A preset (see `sim machines`) or a TOML file [default: xeon-8180-4s; with --paper the paper's]
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<PathBuf>,
    /// Thread counts, comma-separated [default: from 1 to all CPUs, every socket boundary among them]
    #[arg(long, value_parser = count, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Virtual microseconds that are measured; doubled until --min-ops operations have ended within them
    #[arg(long, value_parser = micros, default_value = "200")]
    pub micros: u64,
    /// Virtual microseconds before those, or `auto`: until the throughput is steady (its last two quarters agree within 5 %)
    #[arg(long, value_parser = warm, default_value = "auto", value_name = "MICROS|auto")]
    pub warm: Warm,
    /// Operations that must count; 0 for however few
    #[arg(long, value_parser = operations, default_value = "1000")]
    pub min_ops: u64,
    /// The longest that warming up by itself, and measuring for --min-ops, may take: virtual microseconds each. Then the
    /// row has a warning
    #[arg(long, value_parser = micros, default_value = "50_000")]
    pub patience: u64,
    /// The first seed: equal seeds give equal runs
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs, with one seed each; the median is reported
    #[arg(long, value_parser = count, default_value = "5")]
    pub runs: usize,
    /// Also vary the model (24 variations, each with all seeds) and report the range
    #[arg(long)]
    pub sweep: bool,
    /// Instead of measuring, find shared memory that the program uses plainly without announcing it (slow)
    #[arg(long, conflicts_with_all = ["sweep", "format", "report", "compare", "fail_on_slower", "out"])]
    pub watch: bool,
    /// euno, workload ycsb: also charge the instructions between accesses to shared memory, as many per cycle; of contenders whose
    /// instructions were counted [default: they cost nothing]
    #[arg(long, value_parser = per_cycle, value_name = "PER_CYCLE")]
    pub instructions: Option<f64>,
    /// How threads are laid over the machine
    #[arg(long, value_enum, default_value_t = Pin::Fill)]
    pub pin: Pin,
    /// The machine and the sizes of the system's paper, where --machine and --count do not say otherwise
    #[arg(long)]
    pub paper: bool,
    /// What is shown of it.
    #[command(flatten)]
    pub show: Show,
    /// Append every row to FILE when it is complete (JSON lines); rows that an earlier run of the same program with the
    /// same arguments has left there are taken from it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `sim ycsb`
#[derive(Clone, Debug, Args)]
pub struct SimYcsb {
    /// Indexes, comma-separated: hydralist, hydralist-one-layer (a single search layer for all nodes), hydralist-radix-layer (the
    /// thesis's layer, a radix tree changed in place), art and art-olc
    /// (read-optimized write exclusion, optimistic lock coupling), euno-btree, euno-skiplist, btree-olc (a B+tree with the latter), masstree-like (a
    /// trie of B+trees), rwlock-btree (one lock; words only), or all
    #[arg(long, default_value = "hydralist,hydralist-one-layer,art,btree-olc")]
    pub index: String,
    /// Workloads, comma-separated: load, a, b, c, d, e, f, or all
    #[arg(long, default_value = "c")]
    pub workload: String,
    /// int, clustered, sequential (a run in order), or email: byte strings
    #[arg(long, default_value = "int", value_name = "KIND")]
    pub keys: String,
    /// Keys loaded before the measurement, also that of the load phase [default: 100k; with --paper 10M]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// Which keys are popular: zipf:S, uniform, latest
    #[arg(long, default_value = "zipf:0.99")]
    pub distribution: String,
    /// Stop something: updater (all background threads, for the whole measurement; needs --threads), or lock-holder
    /// (thread 0 with a page locked, for half of it)
    #[arg(long, value_name = "WHAT")]
    pub stall: Option<String>,
    /// What all experiments have.
    #[command(flatten)]
    pub common: SimCommon,
}

/// `sim sets`
#[derive(Clone, Debug, Args)]
pub struct SimSets {
    /// Structures, comma-separated: list, hash, tree, or all
    #[arg(long, default_value = "hash")]
    pub structure: String,
    /// Mechanisms, comma-separated, as in `bench sets`, or all
    #[arg(long, default_value = "rcu,rlu,mvrlu")]
    pub mechanism: String,
    /// What threads do to a set.
    #[command(flatten)]
    pub work: SetsWork,
    /// What all experiments have.
    #[command(flatten)]
    pub common: SimCommon,
}

/// `sim nr`
#[derive(Clone, Debug, Args)]
pub struct SimNr {
    /// Workloads, comma-separated: pqueue, dictionary, sorted-set, server (a sorted set in the server's database), or all
    #[arg(long, default_value = "dictionary")]
    pub workload: String,
    /// Methods, comma-separated: sl, rwl, fc, fc+, nr; lf (a lock-free skip list that frees nothing) and lf-freeing; tas
    /// and shfl (sl with other locks); or all
    #[arg(long, default_value = "sl,rwl,fc,fc+,nr")]
    pub method: String,
    /// What methods do.
    #[command(flatten)]
    pub work: NrWork,
    /// What all experiments have.
    #[command(flatten)]
    pub common: SimCommon,
}

/// `sim papers`
#[derive(Clone, Debug, Args)]
pub struct SimPapers {
    /// Papers, comma-separated: the names of the files without .toml [default: all]
    #[arg(long, value_name = "NAMES")]
    pub only: Option<String>,
    /// Of these papers only the figures whose name has this in it
    #[arg(long, value_name = "TEXT")]
    pub figure: Option<String>,
    /// Where the papers' files are
    #[arg(long, value_name = "FOLDER", default_value = "papers")]
    pub folder: PathBuf,
    /// Vary the model, for all figures or for those whose paper and name have one of these texts in them, separated by `;`;
    /// without it no verdict is more than `unresolved`
    #[arg(long, value_name = "TEXTS", num_args = 0..=1, default_missing_value = "")]
    pub sweep: Option<String>,
    /// The papers' sizes, instead of small ones
    #[arg(long)]
    pub paper: bool,
    /// Runs, with one seed each
    #[arg(long, value_parser = count, default_value = "3")]
    pub runs: usize,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// As that of the experiments: complete rows go to FILE, and those of an earlier run are taken from it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the tables to FILE instead of standard output; a table of the same paper there is replaced, the others stay
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

impl SimYcsb {
    /// Keys loaded.
    pub fn count(&self) -> usize {
        self.count.unwrap_or(if self.common.paper { 10_000_000 } else { 100_000 })
    }
}

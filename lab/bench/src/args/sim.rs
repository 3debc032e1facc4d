//! The arguments of the experiments on the virtual machine (a simulator).

use core::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};

use super::common::{Blink, Cache, Euno, Locks, NrWork, Pin, Ranges, SetsWork, Show, Txn};
use super::parse::{Warm, count, micros, operations, per_cycle, times, warm};

/// The experiments on the virtual machine.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// The machines that can be simulated: a list of all, or every number of one machine and the number's source
    Machines {
        /// A preset or a TOML file.
        name: Option<PathBuf>,
        /// Print a TOML file to start from
        #[arg(long)]
        example: bool,
    },
    /// Four small programs, run natively by the ordinary build and simulated by the other: they show how far to trust
    /// the model
    Host,
    /// Short critical sections under spin locks, queue locks, hierarchical locks and reader-writer locks
    Locks(Locks<SimCommon>),
    /// The B-link tree under each technique of the NUMA B-tree thesis
    Blink(Blink<SimCommon>),
    /// Eunomia with its techniques switched on one by one, and Eunomia's rivals, where many threads write to few keys
    Euno(Euno<SimCommon>),
    /// Transactions: TPC-C, YCSB and SmallBank under every scheme over every map, beside a store with one lock
    Txn(Txn<SimCommon>),
    /// Records in caches: this library's eviction policies, and a cache after Kyoto Cabinet's
    Cache(Cache<SimCommon>),
    /// Page faults that run beside mapping and unmapping, in address spaces
    Ranges(Ranges<SimCommon>),
    /// Indexes under YCSB's workloads
    Ycsb(SimYcsb),
    /// List, hash table and search tree over RCU, RLU and MV-RLU
    Sets(SimSets),
    /// Node replication beside locks and flat combining
    Nr(SimNr),
    /// The papers' figures beside ours: a table in Markdown, with a verdict on every ordering that a paper states
    Papers(SimPapers),
}

/// The options of all experiments on the virtual machine.
#[derive(Clone, Debug, Args)]
pub struct SimCommon {
    /// A preset (see `sim machines`) or a TOML file [default: xeon-8180-4s; with --paper the paper's machine]
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<PathBuf>,
    /// Divide the sets of the machine's second-level and third-level caches by N, for an experiment whose sizes are
    /// reduced by about N. The second level stays as large as the first at least
    #[arg(long, value_parser = count, value_name = "N")]
    pub caches: Option<usize>,
    /// Thread counts, comma-separated [default: from 1 to all CPUs, with every socket boundary]
    #[arg(long, value_parser = count, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Measured time in virtual microseconds; doubled until --min-ops operations have ended within it
    #[arg(long, value_parser = micros, default_value = "200")]
    pub micros: u64,
    /// Warm-up time in virtual microseconds, or `auto`: until the throughput is steady
    #[arg(long, value_parser = warm, default_value = "auto", value_name = "MICROS|auto")]
    pub warm: Warm,
    /// The fewest operations that the measured time must contain; 0 for any number
    #[arg(long, value_parser = operations, default_value = "1000")]
    pub min_ops: u64,
    /// The longest time, in virtual microseconds, for warming up by `auto`, and again for measuring until --min-ops. If
    /// a run reaches this time, its row has a warning
    #[arg(long, value_parser = micros, default_value = "50_000")]
    pub patience: u64,
    /// The first seed: equal seeds give equal runs
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs, with one seed each; the median is reported
    #[arg(long, value_parser = count, default_value = "5")]
    pub runs: usize,
    /// Also vary the model (19 variations, 21 with --instructions, each with all seeds) and report the range of results
    #[arg(long)]
    pub sweep: bool,
    /// Instead of measuring, find plain accesses to shared memory that the program does not announce to the virtual
    /// machine (slow)
    #[arg(long, conflicts_with_all = ["sweep", "format", "report", "compare", "fail_on_slower", "out"])]
    pub watch: bool,
    /// euno, workload ycsb; ycsb, keys int or email; nr, a workload at a time: also charge the instructions between
    /// accesses to shared memory, at this many per cycle; only for contenders whose instructions were counted [default:
    /// they cost nothing]
    #[arg(long, value_parser = per_cycle, value_name = "PER_CYCLE")]
    pub instructions: Option<f64>,
    /// How threads are placed on the machine
    #[arg(long, value_enum, default_value_t = Pin::Fill)]
    pub pin: Pin,
    /// The machine and the sizes of the system's paper, unless --machine or --count give others
    #[arg(long)]
    pub paper: bool,
    /// What is reported, and where.
    #[command(flatten)]
    pub show: Show,
    /// Append every row to FILE when the row is complete (JSON lines). Rows that FILE has already, from the same
    /// program with the same arguments, are not measured again
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The arguments of `sim ycsb`.
#[derive(Clone, Debug, Args)]
pub struct SimYcsb {
    /// Indexes, comma-separated: hydralist, hydralist-one-layer (a single search layer for all nodes),
    /// hydralist-radix-layer (the thesis's search layer, a radix tree changed in place), hydralist-without-tags,
    /// hydralist-scalar-tags (without vector instructions, which differs if instructions are charged),
    /// hydralist-without-backoff, hydralist-locked-updates (an update of a present key takes its page's lock),
    /// hydralist-locked-updates-without-backoff, hydralist-synchronous (that layer, changed by each split before the
    /// operation ends), art (with ROWEX, read-optimized write exclusion), art-olc (with optimistic lock coupling),
    /// art-tids (art, whose memory is counted without its leaves, since they stand for tuples), art-slotted (a radix
    /// tree over leaves with 64 sorted slots), art-slotted-tags (over leaves whose slots are in no order and have tags
    /// of one byte), euno-btree, euno-skiplist, btree-olc (a B+tree with optimistic lock coupling, which contains byte
    /// strings in its nodes), masstree-like (a trie of B+trees), wormhole-like (a hash table of prefixes over leaves
    /// with readers-writer locks), bw-tree-like (a lock-free B-link tree of delta chains), cuckoo-like (a hash table
    /// with spin locks, left out of the workload e: it has no scans), rwlock-btree (one lock; integer keys only), or
    /// all
    #[arg(long, default_value = "hydralist,hydralist-one-layer,art,btree-olc")]
    pub index: String,
    /// Workloads, comma-separated: load, a, b, c, d, e, f, grow (as load, but keys that were held back), or all
    #[arg(long, default_value = "c")]
    pub workload: String,
    /// int, clustered, sequential (consecutive keys in order), or email: byte strings
    #[arg(long, default_value = "int", value_name = "KIND")]
    pub keys: String,
    /// Numbers of keys loaded before the measurement, comma-separated; the workload load inserts as many [default: 100k;
    /// with --paper 10M]
    #[arg(long, value_parser = count, value_delimiter = ',')]
    pub count: Vec<usize>,
    /// Which keys are popular: zipf:S, ycsb (as YCSB's `zipfian`), uniform, latest, as in `bench ycsb`
    #[arg(long, default_value = "zipf:0.99")]
    pub distribution: String,
    /// Stop threads: updater (all background threads, for the whole measurement; needs --threads), or lock-holder
    /// (thread 0 while it holds a page's lock, for half of the measurement)
    #[arg(long, value_name = "WHAT")]
    pub stall: Option<String>,
    /// The options of all experiments.
    #[command(flatten)]
    pub common: SimCommon,
}

/// The arguments of `sim sets`.
#[derive(Clone, Debug, Args)]
pub struct SimSets {
    /// Structures, comma-separated: list, hash, tree, or all
    #[arg(long, default_value = "hash")]
    pub structure: String,
    /// Mechanisms, comma-separated, as in `bench sets`, or all
    #[arg(long, default_value = "rcu,rlu,mvrlu")]
    pub mechanism: String,
    /// What the threads do to a set.
    #[command(flatten)]
    pub work: SetsWork,
    /// The options of all experiments.
    #[command(flatten)]
    pub common: SimCommon,
}

/// The arguments of `sim nr`.
#[derive(Clone, Debug, Args)]
pub struct SimNr {
    /// Workloads, comma-separated: pqueue, dictionary, sorted-set, server (a sorted set in the server's database), or all
    #[arg(long, default_value = "dictionary")]
    pub workload: String,
    /// Methods, comma-separated: sl, rwl, fc, fc+, nr, as in the paper; rwl-queued (its writers queue), combined-flat and
    /// combined (this library's flat combining); fc-two-walks (a combiner walks twice); lf (the lock-free skip list of
    /// flat combining's benchmark: keys repeat, nothing is freed), lf-book (as in the book) and lf-freeing (which frees);
    /// tas and shfl (sl with other locks); or all
    #[arg(long, default_value = "sl,rwl,fc,fc+,nr")]
    pub method: String,
    /// What the threads do to the structure.
    #[command(flatten)]
    pub work: NrWork,
    /// The options of all experiments.
    #[command(flatten)]
    pub common: SimCommon,
}

/// The arguments of `sim papers`.
#[derive(Clone, Debug, Args)]
pub struct SimPapers {
    /// Papers, comma-separated: the names of the files without .toml [default: all]
    #[arg(long, value_name = "NAMES")]
    pub only: Option<String>,
    /// Run only those figures of the chosen papers whose name contains this text. With --write, FILE may have no section
    /// of all figures of these papers, which this would replace
    #[arg(long, value_name = "TEXT")]
    pub figure: Option<String>,
    /// The folder of the papers' files
    #[arg(long, value_name = "FOLDER", default_value = "papers")]
    pub folder: PathBuf,
    /// Vary the model for all figures, or for the figures whose paper and name contain one of these texts, separated by
    /// `;`. Each text must be in one. Without this option every verdict is `unresolved`
    #[arg(long, value_name = "TEXTS", num_args = 0..=1, default_missing_value = "")]
    pub sweep: Option<String>,
    /// The papers' sizes instead of small ones
    #[arg(long)]
    pub paper: bool,
    /// Runs, with one seed each
    #[arg(long, value_parser = count, default_value = "3")]
    pub runs: usize,
    /// Runs of the contenders of an ordering that is unresolved with --runs. It is judged by these runs then
    #[arg(long, value_name = "RUNS", value_parser = count)]
    pub more_runs: Option<usize>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Append every complete row to FILE, and take rows of an earlier run from it, as the experiments do
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Measure in N processes at a time, each with a row of its own; the rows go to --out. A process needs up to 4 GB
    #[arg(long, value_name = "N", value_parser = count, requires = "out")]
    pub jobs: Option<usize>,
    /// The program to which the rows of --out belong: a file, whose bytes are compared, or a text without folders, such
    /// as a commit. With a text, a program that was built again from the same source goes on with the rows [default:
    /// this program's file]
    #[arg(long, value_name = "FILE|TEXT", requires = "out")]
    pub program: Option<String>,
    /// Programs, as in --program, comma-separated, whose rows of --out are taken over instead of measured: each row
    /// whose first run (the first seed on the machine as it is) this program repeats, with equal counts and times
    #[arg(long, value_name = "FILES|TEXTS", value_delimiter = ',', requires = "program", conflicts_with = "judge")]
    pub from: Vec<String>,
    /// Measure nothing: judge the rows of --out that belong to --program. A claim without rows is not judged, and a paper
    /// with such a claim is not written to --write. Any build of this command can do this
    #[arg(long, requires = "program", conflicts_with = "jobs")]
    pub judge: bool,
    /// Measure again, once each, with warm-ups N times as long, and print which figures change by more than a tenth, and
    /// which orderings change, beside the rows of --out without this option. The other options are those of these rows
    #[arg(long, value_name = "N", value_parser = times, requires = "out", conflicts_with_all = ["write", "from"])]
    pub later: Option<usize>,
    /// Measure again, once each, at the papers' sizes, the figures whose sizes here are small, and print what changes, as
    /// --later does. Both may be given
    #[arg(long, requires = "out", conflicts_with_all = ["write", "from", "paper"])]
    pub sizes: bool,
    /// Measure only these sides of figures, which share a set-up, and write no table
    #[arg(long, value_name = "FIGURE:SIDE", value_delimiter = ',', hide = true, requires = "out", conflicts_with_all = ["jobs", "judge", "write"])]
    pub cell: Vec<Cell>,
    /// Write the tables to FILE instead of standard output. FILE's tables of the same papers are replaced; its other
    /// tables stay
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// One measurement: a side of the claims of a paper's figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The figure's place among the figures that the arguments choose.
    pub figure: usize,
    /// The side's place among the figure's sides.
    pub side: usize,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.figure, self.side)
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Cell, String> {
        let parsed = || {
            let (figure, side) = text.split_once(':')?;
            Some(Cell { figure: figure.parse().ok()?, side: side.parse().ok()? })
        };
        parsed().ok_or_else(|| format!("{text} is not FIGURE:SIDE"))
    }
}

impl SimYcsb {
    /// Returns the numbers of keys loaded.
    pub fn counts(&self) -> Vec<usize> {
        match self.count.is_empty() {
            true => vec![if self.common.paper { 10_000_000 } else { 100_000 }],
            false => self.count.clone(),
        }
    }
}

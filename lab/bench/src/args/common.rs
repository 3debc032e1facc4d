//! What several commands have.

use std::path::PathBuf;

use archipelago_platform::thread::{Pinning, available_parallelism};
use clap::{Args, ValueEnum};

use super::parse::{below_one, count, exponent, lines, percent, width};

/// What every measurement on this machine has.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Thread counts, comma-separated [default: 1 and the number of CPUs]
    #[arg(long, value_parser = count, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Of keys and operations: the same seed gives the same work
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs; the median is reported [default: 3; nr: 5]
    #[arg(long, value_parser = count)]
    pub runs: Option<usize>,
    /// Also measure the latency of every operation, in YCSB of every 8th (makes the rest slower)
    #[arg(long)]
    pub latency: bool,
    /// What ratios are to [default: ycsb: the fastest peer of each column; nr: sl; sets: rcu; locks: parking-lot]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Where threads run
    #[arg(long, value_enum, default_value_t = Pin::None)]
    pub pin: Pin,
    /// What is shown of it.
    #[command(flatten)]
    pub show: Show,
}

impl Common {
    /// With one number of threads, and nothing else that one could ask for.
    pub fn plain(threads: usize) -> Common {
        let show = Show { format: Format::Table, report: None, compare: None, fail_on_slower: false };
        let (threads, pin) = (vec![threads], Pin::None);
        Common { threads, seed: 1, runs: None, latency: false, baseline: None, pin, show }
    }

    /// The thread counts asked for, else one and the number of CPUs.
    pub fn threads(&self) -> Vec<usize> {
        let mut threads = self.threads.clone();
        if threads.is_empty() {
            threads = vec![1, available_parallelism().map_or(1, usize::from)];
            threads.dedup();
        }
        threads
    }
}

/// What is shown of any measurement.
#[derive(Clone, Debug, Args)]
pub struct Show {
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also write a self-contained HTML report with charts
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Say what is slower than in FILE (JSON of an earlier run), beyond the noise of both
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// With --compare: exit with 1 if anything is slower, or nothing could be compared
    #[arg(long, requires = "compare")]
    pub fail_on_slower: bool,
}

/// What measurements have that take a time.
#[derive(Clone, Debug, Args)]
pub struct Timed {
    /// How long each measurement takes, in milliseconds
    #[arg(long, value_parser = count, default_value = "200")]
    pub millis: usize,
    /// What all measurements have.
    #[command(flatten)]
    pub common: Common,
}

/// `bench locks` and `sim locks`
#[derive(Clone, Debug, Args)]
pub struct Locks<C: Args> {
    /// Locks, comma-separated: tas, ttas, ticket, mcs, hmcs, cohort, cna, shfl; reader-writer locks: distributed, c-rw-np,
    /// c-rw-rp, c-rw-wp (cohorts: neutral, readers first, writers first), bravo (over c-rw-np); on this machine also
    /// parking-lot and std, as both; or all [default: all; simulated: tas,ttas,ticket,mcs,hmcs,cohort]
    #[arg(long)]
    pub lock: Option<String>,
    /// Under reader-writer locks, percentages of sections that write, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "0,1,10")]
    pub write_percent: Vec<u32>,
    /// What all experiments have.
    #[command(flatten)]
    pub common: C,
}

/// `bench blink` and `sim blink`
#[derive(Clone, Debug, Args)]
pub struct Blink<C: Args> {
    /// Techniques, comma-separated: standard (readers and writers take a standard latch), cohort (a cohort latch),
    /// free-reads, free-reads+cohort (readers take none), default (version locks), replicas, replicas+cohort,
    /// replicas+free-reads, replicas+granular-root, replicas+default (a tree on each node), granular (no latches in leaves),
    /// granular-root (one latch in all), log-fed (a tree on each node, fed from a log), inner-replicas,
    /// inner-replicas+cohort (inner pages on each node), pages-1k, pages-64k, pages-128k (version locks, other pages), standard-64k,
    /// free-reads-64k, standard-128k, cohort-128k, free-reads-128k, free-reads+cohort-128k (these latches, pages of that size; the
    /// thesis's have 128 KiB); or all
    #[arg(long, default_value = "all")]
    pub technique: String,
    /// Percentages of operations that are updates, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "0,25,50")]
    pub update_percent: Vec<u32>,
    /// Half of the updates remove a key
    #[arg(long)]
    pub removes: bool,
    /// Keys in the tree [default: 1M; simulated: 100k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// What all experiments have.
    #[command(flatten)]
    pub common: C,
}

/// `bench euno` and `sim euno`
#[derive(Clone, Debug, Args)]
pub struct Euno<C: Args> {
    /// Indexes, comma-separated: euno-btree and euno-skiplist; euno-btree-locks (no transactions), euno-btree-walks (walks
    /// are transactions too); what they are without some of their means: btree+split (two phases), btree+partition (and
    /// parts of every chunk), btree+control (and doors), the same with skiplist; htm-btree and htm-skiplist (each
    /// operation one transaction); pugh (locks), fraser (lock-free); btree-olc, masstree-like, hydralist, art; with -16 (as in
    /// euno-btree-16, btree+split-16, skiplist+split-16, htm-btree-16) what has 16 entries in a leaf, as in the paper; or all
    #[arg(long, default_value = "all")]
    pub index: String,
    /// Workloads, comma-separated: ycsb, rising (one counter's next number), orders (warehouse, district, next number),
    /// stamps (the time), or all
    #[arg(long, default_value = "ycsb")]
    pub workload: String,
    /// ycsb: Zipf's exponents, comma-separated; 0: all keys alike
    #[arg(long, value_parser = exponent, value_delimiter = ',', default_value = "0,0.2,0.5,0.6,0.7,0.8,0.9,0.99")]
    pub theta: Vec<f64>,
    /// ycsb: which keys are the popular ones
    #[arg(long, value_enum, default_value_t = Ranks::PerThread)]
    pub ranks: Ranks,
    /// Percentages of operations that are updates, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "50")]
    pub update_percent: Vec<u32>,
    /// ycsb: half of the updates remove the key
    #[arg(long)]
    pub removes: bool,
    /// orders: warehouses, of ten districts each
    #[arg(long, value_parser = count, default_value = "1")]
    pub warehouses: usize,
    /// Keys in the index when the run begins [default: 1M; simulated: 100k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// What all experiments have.
    #[command(flatten)]
    pub common: C,
}

/// `bench cache` and `sim cache`
#[derive(Clone, Debug, Args)]
pub struct Cache<C: Args> {
    /// Caches, comma-separated: s3-fifo, sieve, sampled-lru (they lend), s3-fifo-copied (what is found is copied, as by the next),
    /// kyoto (a readers-writer lock over slots' locks over trees), kyoto-rcu, kyoto-rlu, kyoto-mvrlu, kyoto-rcx (its trees without
    /// these locks), kyoto-rcu-slots, kyoto-rcx-slots (with one of RCX's kind for each slot), with the feature 'peers' on this machine also moka, quick-cache, foyer; or all
    #[arg(long, default_value = "all")]
    pub cache: String,
    /// Workloads, comma-separated: zipf; hit ratios beside the best possible of trace-zipf, trace-loop, trace-scan, trace-file
    #[arg(long, default_value = "zipf")]
    pub workload: String,
    /// A trace, for trace-file: a line for each request, of which the first word is the key
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Zipf's exponents, comma-separated; 0: all records alike
    #[arg(long, value_parser = exponent, value_delimiter = ',', default_value = "0.99")]
    pub theta: Vec<f64>,
    /// zipf: percentages of requests that store, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "2,20")]
    pub update_percent: Vec<u32>,
    /// How many of a hundred records the cache has room for
    #[arg(long, value_parser = percent, default_value = "100")]
    pub capacity_percent: u32,
    /// Records of 1,000 bytes [default: 100k; simulated: 2k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// What all experiments have.
    #[command(flatten)]
    pub common: C,
}

/// `bench ranges` and `sim ranges`
#[derive(Clone, Debug, Args)]
pub struct Ranges<C: Args> {
    /// Address spaces, comma-separated: ranges (ours), rwlock (one readers-writer lock), spf (look-ups without a lock, one lock for
    /// changes), rcxvm (RCX's locks for changes), with the feature 'peers' on this machine also rangemap and iset (behind a readers-writer lock each); or all
    #[arg(long, default_value = "all")]
    pub space: String,
    /// Workloads, comma-separated: metis, metis-small, ebizzy, psearchy, or all
    #[arg(long, default_value = "all")]
    pub workload: String,
    /// What all experiments have.
    #[command(flatten)]
    pub common: C,
}

/// `bench txn` and `sim txn`
#[derive(Clone, Debug, Args)]
pub struct Txn<C: Args> {
    /// Stores, comma-separated: silo, tictoc, no-wait, wait-die, hekaton, mvrlu (serializable) or silo-snapshot (snapshot
    /// isolation) over hydralist, art, blink, euno-btree or euno-skiplist, as in mvrlu-art; silo-htm-btree and silo-masstree-like
    /// (over rivals' trees); mvrlu-ordered-hydralist and hekaton-ordered-hydralist (by the processors' clocks);
    /// silo-logged-hydralist (with a log on the disk of temporary files); lock (one lock over trees); with the cargo feature 'peers' surrealmx, redb, sqlite; or silo
    /// (over all maps), schemes (over hydralist), all
    #[arg(long, default_value = "silo-hydralist,tictoc-hydralist,mvrlu-hydralist,silo-snapshot-hydralist,lock")]
    pub store: String,
    /// Workloads, comma-separated: ycsb (16 requests, rows of 100 bytes), ycsb-10 (of ten times as many), reports (ycsb, and one in
    /// a thousand reads the whole table), reports-by-views (in a snapshot), smallbank, tpcc, tpcc-pair (New-Order and Payment
    /// alone), or all
    #[arg(long, default_value = "ycsb,smallbank,tpcc")]
    pub workload: String,
    /// ycsb, reports: Zipf's exponents below 1, comma-separated; 0: all rows alike
    #[arg(long, value_parser = below_one, value_delimiter = ',', default_value = "0.7")]
    pub theta: Vec<f64>,
    /// ycsb, reports: percentages of requests that are updates, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "2,20,80")]
    pub update_percent: Vec<u32>,
    /// tpcc: warehouses [default: one for each thread]
    #[arg(long, value_parser = count)]
    pub warehouses: Option<usize>,
    /// tpcc: a hundredth of the specification's items and customers [the default when simulated]
    #[arg(long, conflicts_with = "whole")]
    pub small: bool,
    /// tpcc: the specification's items and customers [the default on this machine]
    #[arg(long)]
    pub whole: bool,
    /// Rows, or customers of smallbank [default: 100k; simulated: 10k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// What all experiments have.
    #[command(flatten)]
    pub common: C,
}

/// Which keys the most popular ones are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ranks {
    /// Any, the same for all threads
    Scrambled,
    /// The least, the same for all threads
    Ordered,
    /// The least, dealt out to the threads: each has popular keys of its own, which lie beside those of the others
    PerThread,
}

impl Ranks {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Ranks::Scrambled => "scrambled",
            Ranks::Ordered => "ordered",
            Ranks::PerThread => "per-thread",
        }
    }
}

/// What is done to node replication and its rivals.
#[derive(Clone, Debug, Args)]
pub struct NrWork {
    /// Percentages of operations that change the structure, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "0,10,100")]
    pub update_percent: Vec<u32>,
    /// Which keys are popular, comma-separated: uniform, zipf:S
    #[arg(long, default_value = "uniform")]
    pub distribution: String,
    /// Random words (simulated: lines) written between two operations, comma-separated
    #[arg(long, value_parser = lines, value_delimiter = ',', default_value = "0")]
    pub external_work: Vec<usize>,
    /// Items in the structure [default: 200k; sorted-set and server: 10k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
}

impl NrWork {
    /// Items in the workload's structure: as many as the paper has.
    pub fn items(&self, workload: &str) -> usize {
        self.count.unwrap_or(if ["sorted-set", "server"].contains(&workload) { 10_000 } else { 200_000 })
    }

    /// Items in the largest structure.
    pub fn most_items(&self) -> usize {
        self.items("dictionary")
    }
}

/// What is done to a set.
#[derive(Clone, Debug, Args)]
pub struct SetsWork {
    /// Operations that insert or remove, half each, in percent; comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "2,20,80")]
    pub update_percent: Vec<u32>,
    /// Which keys are popular: uniform, zipf:S
    #[arg(long, default_value = "uniform")]
    pub distribution: String,
    /// Keys in the structure; keys are drawn from twice as many
    #[arg(long, value_parser = count, default_value = "10k")]
    pub count: usize,
    /// Buckets of the hash table [default: a tenth of the keys]
    #[arg(long, value_parser = count)]
    pub buckets: Option<usize>,
    /// List and tree: ranges of this width, in keys, instead of look-ups
    #[arg(long, value_parser = width, default_value = "0")]
    pub scan: u64,
}

/// Formats of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// One object per line
    Json,
    /// With a header line
    Csv,
}

/// Thread placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pin {
    /// Wherever the system likes
    None,
    /// Fill one NUMA node after the other
    Fill,
    /// Deal threads out to the NUMA nodes in turn
    Spread,
}

impl Pin {
    /// The driver's word for it.
    pub fn pinning(self) -> Pinning {
        match self {
            Pin::None => Pinning::None,
            Pin::Fill => Pinning::FillNodeFirst,
            Pin::Spread => Pinning::Spread,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Pin::None => "none",
            Pin::Fill => "fill",
            Pin::Spread => "spread",
        }
    }
}

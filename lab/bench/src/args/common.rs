//! Arguments that several commands share.

use std::path::PathBuf;

use archipelago_platform::thread::{Pinning, available_parallelism};
use clap::{Args, ValueEnum};

use super::parse::{below_one, count, exponent, lines, percent, warehouses, width};

/// The options of every measurement on this machine.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Thread counts, comma-separated [default: 1 and the number of CPUs]
    #[arg(long, value_parser = count, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// The seed of keys and operations: the same seed gives the same work
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs; the median is reported [default: 3; nr: 5]
    #[arg(long, value_parser = count)]
    pub runs: Option<usize>,
    /// Also measure latencies: of every operation, in YCSB of every 8th operation. This slows the run down
    #[arg(long)]
    pub latency: bool,
    /// The contender to which ratios are computed [default: ycsb: the fastest peer of each column; nr: sl; sets: rcu;
    /// locks: parking-lot; blink: standard; euno: btree-olc; txn: lock; cache: kyoto; ranges: rwlock]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,
    /// Where threads run
    #[arg(long, value_enum, default_value_t = Pin::None)]
    pub pin: Pin,
    /// What is reported, and where.
    #[command(flatten)]
    pub show: Show,
}

impl Common {
    /// Returns options with one number of threads and the default of every other option.
    pub fn plain(threads: usize) -> Common {
        let show = Show { format: Format::Table, report: None, compare: None, fail_on_slower: false };
        let (threads, pin) = (vec![threads], Pin::None);
        Common { threads, seed: 1, runs: None, latency: false, baseline: None, pin, show }
    }

    /// Returns the thread counts of `--threads`, or 1 and the number of CPUs if the option is missing.
    pub fn threads(&self) -> Vec<usize> {
        let mut threads = self.threads.clone();
        if threads.is_empty() {
            threads = vec![1, available_parallelism().map_or(1, usize::from)];
            threads.dedup();
        }
        threads
    }
}

/// What any measurement reports, and where.
#[derive(Clone, Debug, Args)]
pub struct Show {
    /// The format of the results on standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also write a self-contained HTML report with charts
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Name the results that are slower than in FILE (JSON of an earlier run), beyond the noise of both runs
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// With --compare: exit with 1 if anything is slower, or nothing could be compared
    #[arg(long, requires = "compare")]
    pub fail_on_slower: bool,
}

/// The options of measurements that last a given time.
#[derive(Clone, Debug, Args)]
pub struct Timed {
    /// How long each measurement takes, in milliseconds
    #[arg(long, value_parser = count, default_value = "200")]
    pub millis: usize,
    /// The options of all measurements.
    #[command(flatten)]
    pub common: Common,
}

/// The arguments of `bench locks` and `sim locks`.
#[derive(Clone, Debug, Args)]
pub struct Locks<C: Args> {
    /// Locks, comma-separated: tas, ttas, ticket, mcs, hmcs, cohort, c-bo-mcs (as published), cna, cna-65536
    /// (the paper's bound), shfl; reader-writer
    /// locks: distributed, c-rw-np, c-rw-rp, c-rw-wp (cohort locks: neutral, readers first, writers first), bravo (over
    /// c-rw-np), shfl-rw (a count and ShflLock's queue), bravo-shfl-rw (over shfl-rw); on this machine also parking-lot
    /// and std, each as exclusive and as reader-writer lock; or all [default: all; simulated:
    /// tas,ttas,ticket,mcs,hmcs,cohort]
    #[arg(long)]
    pub lock: Option<String>,
    /// Under reader-writer locks, percentages of sections that write, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "0,1,10")]
    pub write_percent: Vec<u32>,
    /// The options of all experiments.
    #[command(flatten)]
    pub common: C,
}

/// The arguments of `bench blink` and `sim blink`.
#[derive(Clone, Debug, Args)]
pub struct Blink<C: Args> {
    /// Techniques, comma-separated: standard (readers and writers take a standard latch), cohort (both take a cohort
    /// latch), free-reads, free-reads+cohort (readers take no latch), default (version locks), replicas,
    /// replicas+cohort, replicas+free-reads, replicas+granular-root, replicas+default (one tree per node), granular (no
    /// latches in leaves), granular-root (one latch in the whole tree), log-fed (one tree per node, fed from a log),
    /// inner-replicas, inner-replicas+cohort (inner pages on each node), pages-1k, pages-64k, pages-128k (version locks,
    /// other page sizes), standard-64k, free-reads-64k, standard-128k, cohort-128k, free-reads-128k,
    /// free-reads+cohort-128k, granular-root-128k, replicas-128k, replicas+cohort-128k, replicas+free-reads-128k,
    /// replicas+granular-root-128k (these latches with pages of that size; the thesis's pages have 128 KiB),
    /// standard-latch-set, cohort-latch-set, free-reads-latch-set, free-reads+cohort-latch-set, replicas-latch-set (each
    /// page has the thesis's latches, of this kind); or all
    #[arg(long, default_value = "all")]
    pub technique: String,
    /// Percentages of operations that are updates, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "0,25,50")]
    pub update_percent: Vec<u32>,
    /// Half of the updates remove a key
    #[arg(long)]
    pub removes: bool,
    /// No update adds a key: each replaces a value
    #[arg(long, conflicts_with = "removes")]
    pub replaces: bool,
    /// Keys in the tree [default: 1M; simulated: 100k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// The options of all experiments.
    #[command(flatten)]
    pub common: C,
}

/// The arguments of `bench euno` and `sim euno`.
#[derive(Clone, Debug, Args)]
pub struct Euno<C: Args> {
    /// Indexes, comma-separated: euno-btree and euno-skiplist; euno-btree-locks (no transactions), euno-btree-walks
    /// (walks are transactions too); the same indexes with only some of their techniques: btree+split (an operation has
    /// two phases), btree+partition (also partitions every chunk), btree+control (also has doors: bits that serialize
    /// threads at contended chunks), and the same with skiplist; htm-btree, htm-skiplist and htm-masstree
    /// (operations are hardware transactions); pugh (locks), fraser (lock-free); btree-olc, masstree-like, hydralist,
    /// art; a suffix -16 (euno-btree-16, btree+split-16, skiplist+split-16, htm-btree-16) means 16 entries in a leaf, as
    /// in the paper; or all
    #[arg(long, default_value = "all")]
    pub index: String,
    /// Workloads, comma-separated: ycsb, batches (the next 20 neighbouring keys of one of 20 regions by each thread's
    /// own count, as in Eunomia's published program), shared-batches (the same by a count that the threads share),
    /// rising (one counter's next number), orders (warehouse, district, next number), stamps (the time), or all
    #[arg(long, default_value = "ycsb")]
    pub workload: String,
    /// ycsb: Zipf's exponents, comma-separated; 0: all keys are equally popular. With `--ranks region`: the probability
    /// that a key of the region is drawn. batches, shared-batches: exponents for the regions
    #[arg(long, value_parser = exponent, value_delimiter = ',', default_value = "0,0.2,0.5,0.6,0.7,0.8,0.9,0.99")]
    pub theta: Vec<f64>,
    /// ycsb: which keys are popular
    #[arg(long, value_enum, default_value_t = Ranks::PerThread)]
    pub ranks: Ranks,
    /// With `--ranks region`: the number of its keys
    #[arg(long, value_parser = count, default_value = "256")]
    pub region: usize,
    /// Percentages of operations that are updates, comma-separated. batches, shared-batches: percentages of draws that
    /// are batches
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "50")]
    pub update_percent: Vec<u32>,
    /// ycsb: half of the updates remove the key
    #[arg(long)]
    pub removes: bool,
    /// orders: warehouses, of ten districts each
    #[arg(long, value_parser = warehouses, default_value = "1")]
    pub warehouses: usize,
    /// Keys in the index when the run begins [default: 1M; simulated: 100k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// The options of all experiments.
    #[command(flatten)]
    pub common: C,
}

/// The arguments of `bench cache` and `sim cache`.
#[derive(Clone, Debug, Args)]
pub struct Cache<C: Args> {
    /// Caches, comma-separated: s3-fifo, sieve, sampled-lru (a look-up returns a reference), s3-fifo-copied (a look-up
    /// copies the record, as in the following caches), kyoto (a readers-writer lock over locks of slots over trees),
    /// kyoto-rcu, kyoto-rlu, kyoto-mvrlu, kyoto-rcx (trees of these mechanisms instead of those locks),
    /// kyoto-rcu-slots, kyoto-rcx-slots (also one lock for each slot), with the feature 'peers' on this machine also
    /// moka, quick-cache, foyer; or all
    #[arg(long, default_value = "all")]
    pub cache: String,
    /// Workloads, comma-separated: zipf; trace-zipf, trace-loop, trace-scan, trace-file (these also report the hit
    /// ratio beside the best possible one)
    #[arg(long, default_value = "zipf")]
    pub workload: String,
    /// The trace of trace-file: one line per request, whose first word is the key
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Zipf's exponents, comma-separated; 0: all records are equally popular
    #[arg(long, value_parser = exponent, value_delimiter = ',', default_value = "0.99")]
    pub theta: Vec<f64>,
    /// zipf: percentages of requests that store, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "2,20")]
    pub update_percent: Vec<u32>,
    /// Percentage of the records that fit in the cache
    #[arg(long, value_parser = percent, default_value = "100")]
    pub capacity_percent: u32,
    /// Records of 1,000 bytes [default: 100k; simulated: 2k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// The options of all experiments.
    #[command(flatten)]
    pub common: C,
}

/// The arguments of `bench ranges` and `sim ranges`.
#[derive(Clone, Debug, Args)]
pub struct Ranges<C: Args> {
    /// Address spaces, comma-separated: ranges (ours), rwlock (one readers-writer lock), spf (look-ups without a lock,
    /// one lock for changes), rcxvm (RCX's locks for changes), with the feature 'peers' on this machine also rangemap
    /// and iset (each behind a readers-writer lock); or all
    #[arg(long, default_value = "all")]
    pub space: String,
    /// Workloads, comma-separated: metis, metis-small, ebizzy, psearchy, metis-interrupts, ebizzy-interrupts, or all
    #[arg(long, default_value = "all")]
    pub workload: String,
    /// The options of all experiments.
    #[command(flatten)]
    pub common: C,
}

/// The arguments of `bench txn` and `sim txn`.
#[derive(Clone, Debug, Args)]
pub struct Txn<C: Args> {
    /// Stores, comma-separated: a scheme over a map, as in mvrlu-art. Schemes: silo, tictoc, no-wait, wait-die,
    /// hekaton, mvrlu (serializable), silo-snapshot (snapshot isolation). Maps: hydralist, art, blink, euno-btree,
    /// euno-skiplist. Further stores: silo-htm-btree and silo-masstree-like (over rivals' trees);
    /// mvrlu-ordered-hydralist and hekaton-ordered-hydralist (timestamps of the processors' clocks),
    /// mvrlu-ordered-snapshot-hydralist (also with snapshot isolation);
    /// silo-logged-hydralist (with a log on the disk of temporary files); lock (one lock over trees); with the cargo
    /// feature 'peers' surrealmx, redb, sqlite; or silo (over all maps), schemes (over hydralist), all
    #[arg(long, default_value = "silo-hydralist,tictoc-hydralist,mvrlu-hydralist,silo-snapshot-hydralist,lock")]
    pub store: String,
    /// Workloads, comma-separated: ycsb (16 requests, rows of 100 bytes), ycsb-10 (the same with rows of ten such
    /// columns), ycsb-words (as DBx1000: a request reads one word, popular rows are neighbours), ycsb-words-together
    /// (the same; a transaction asks for its rows together), reports (ycsb; one transaction in a thousand reads the
    /// whole table), reports-by-views (the same, reading in a snapshot), smallbank, tpcc, tpcc-pair (only New-Order and
    /// Payment), or all
    #[arg(long, default_value = "ycsb,smallbank,tpcc")]
    pub workload: String,
    /// ycsb, reports: Zipf's exponents below 1, comma-separated; 0: all rows are equally popular
    #[arg(long, value_parser = below_one, value_delimiter = ',', default_value = "0.7")]
    pub theta: Vec<f64>,
    /// ycsb, reports: percentages of requests that are updates, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "2,20,80")]
    pub update_percent: Vec<u32>,
    /// tpcc: numbers of warehouses, comma-separated [default: one for each thread]
    #[arg(long, value_parser = warehouses, value_delimiter = ',')]
    pub warehouses: Vec<usize>,
    /// tpcc: a hundredth of the specification's items and customers [the default when simulated]
    #[arg(long, conflicts_with = "whole")]
    pub small: bool,
    /// tpcc: the specification's items and customers [the default on this machine]
    #[arg(long)]
    pub whole: bool,
    /// Rows, or customers of smallbank [default: 100k; simulated: 10k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// The options of all experiments.
    #[command(flatten)]
    pub common: C,
}

/// Which keys are the most popular ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Ranks {
    /// Scattered keys, the same for all threads
    Scrambled,
    /// The smallest keys, the same for all threads
    Ordered,
    /// The smallest keys, dealt out to the threads: each thread has popular keys of its own, beside those of the other
    /// threads
    PerThread,
    /// A region of neighbouring keys in the middle, the same for all threads and all equally popular
    Region,
}

impl Ranks {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Ranks::Scrambled => "scrambled",
            Ranks::Ordered => "ordered",
            Ranks::PerThread => "per-thread",
            Ranks::Region => "region's",
        }
    }
}

/// What threads do to node replication and its rivals.
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
    /// Returns the number of items in the workload's structure: by default as many as in the paper.
    pub fn items(&self, workload: &str) -> usize {
        self.count.unwrap_or(if ["sorted-set", "server"].contains(&workload) { 10_000 } else { 200_000 })
    }

    /// Returns the number of items in the largest structure.
    pub fn most_items(&self) -> usize {
        self.items("dictionary")
    }
}

/// What threads do to a set.
#[derive(Clone, Debug, Args)]
pub struct SetsWork {
    /// Percentages of operations that are updates, comma-separated; half of the updates insert, half remove
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "2,20,80")]
    pub update_percent: Vec<u32>,
    /// Which keys are popular, comma-separated: uniform, zipf:S
    #[arg(long, default_value = "uniform")]
    pub distribution: String,
    /// Keys in the structure; operations draw from twice as many keys
    #[arg(long, value_parser = count, default_value = "10k")]
    pub count: usize,
    /// Buckets of the hash table [default: a tenth of the keys]
    #[arg(long, value_parser = count)]
    pub buckets: Option<usize>,
    /// List and tree: scan ranges of this width, in keys, instead of looking keys up; 0: look up
    #[arg(long, value_parser = width, default_value = "0")]
    pub scan: u64,
}

/// Formats of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    Table,
    /// JSON: one object per line
    Json,
    /// CSV with a header line
    Csv,
}

/// Thread placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pin {
    /// Wherever the operating system puts them
    None,
    /// Fill one NUMA node after the other
    Fill,
    /// Fill one NUMA node's cores after the other's; second hardware threads of cores come last
    Cores,
    /// Deal threads out to the NUMA nodes in turn
    Spread,
}

impl Pin {
    /// Returns the driver's value for this placement.
    pub fn pinning(self) -> Pinning {
        match self {
            Pin::None => Pinning::None,
            Pin::Fill => Pinning::FillNodeFirst,
            Pin::Cores => Pinning::FillCoresFirst,
            Pin::Spread => Pinning::Spread,
        }
    }

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Pin::None => "none",
            Pin::Fill => "fill",
            Pin::Cores => "cores",
            Pin::Spread => "spread",
        }
    }
}

//! The command line: the commands and benchmarks, and the arguments of `bench ycsb`, `nr`, `sets` and `verify`.

mod common;
mod parse;
pub mod serve;
mod sim;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use parse::{batch, count, seconds};

pub use common::{Blink, Cache, Common, Euno, Format, Locks, NrWork, Pin, Ranges, Ranks, SetsWork, Show, Timed, Txn};
pub use parse::Warm;
pub use serve::Serve;
pub use sim::{Cell, Sim, SimCommon, SimNr, SimPapers, SimSets, SimYcsb};

/// Archipelago: in-memory data structures that scale on many-core NUMA servers.
#[derive(Debug, Parser)]
#[command(name = "archipelago", version, after_help = "Without a command: a short tour (under a minute).")]
pub struct Cli {
    /// The command; `None` for the tour.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure this library's indexes beside their peers
    Bench {
        /// What to measure.
        #[command(subcommand)]
        what: Bench,
    },
    /// Print the machine as the library sees it
    Machine,
    /// Measure this machine and write it as a file for `cargo sim … --machine FILE`: the costs of transfers between
    /// cores, of caches and of memory. This takes between a second and a few minutes, depending on the number of cores.
    /// Meanwhile nothing else should run
    Calibrate(Calibrate),
    /// Serve clients of Redis's protocol, with one replica of the database per NUMA node
    Serve(Box<Serve>),
    /// Run experiments on the virtual machine, a simulator of machines that you do not have (built by `cargo sim`)
    Sim {
        /// What to do.
        #[command(subcommand)]
        what: Box<Sim>,
    },
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// YCSB: load, then the workloads A to F, or insertions into the full index
    Ycsb(Box<Ycsb>),
    /// Node replication beside locks, flat combining and a lock-free structure, on its paper's workloads
    Nr(Box<Nr>),
    /// List, hash table and search tree over RCU, RLU and MV-RLU
    Sets(Box<Sets>),
    /// Short critical sections under this library's locks and under others
    Locks(Box<Locks<Timed>>),
    /// The B-link tree under each technique of the NUMA B-tree thesis
    Blink(Box<Blink<Timed>>),
    /// Eunomia with its techniques switched on one by one, and Eunomia's rivals, where many threads write to few keys
    Euno(Box<Euno<Timed>>),
    /// Transactions: TPC-C, YCSB and SmallBank under every scheme over every map, beside a store with one lock
    Txn(Box<Txn<Timed>>),
    /// Records in caches: this library's eviction policies, and a cache after Kyoto Cabinet's
    Cache(Box<Cache<Timed>>),
    /// Page faults that run beside mapping and unmapping, in address spaces
    Ranges(Box<Ranges<Timed>>),
    /// The correctness exam: each index is compared with a model; threads check their own writes and overwritten keys
    Verify(Verify),
}

/// The arguments of `bench ycsb`.
#[derive(Clone, Debug, Args)]
pub struct Ycsb {
    /// Indexes, comma-separated; also all, ours, peers
    #[arg(long, default_value = "all")]
    pub index: String,
    /// Workloads, comma-separated: load, a, b, c, d, e, f, grow (the threads together insert a fifth of --count further
    /// keys), or all. They run in the order load, a, b, c, f, d, e, grow
    #[arg(long, default_value = "load,a,b,c,d,e,f")]
    pub workload: String,
    /// int, clustered, sequential, email, a file with one key per line, or - for standard input
    #[arg(long, default_value = "int", value_name = "KIND|FILE|-")]
    pub keys: PathBuf,
    /// Keys to load (10M, 5k, 1e9, 1_000). By default 10M; of a file, all keys except those that D, E and grow
    /// insert
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// Operations per workload and run, all threads together (E: an eighth of them; grow: one for each key)
    #[arg(long, value_parser = count, default_value = "2M")]
    pub ops: usize,
    /// Which keys are popular: zipf:S (among the loaded keys), ycsb (as YCSB's `zipfian`: among 10^10 items, which are
    /// hashed onto the loaded keys), uniform, latest (D always reads the latest)
    #[arg(long, default_value = "zipf:0.99")]
    pub distribution: String,
    /// In C, look up this many keys at a time
    #[arg(long, value_parser = batch, value_name = "N")]
    pub batch: Option<usize>,
    /// The options of all measurements.
    #[command(flatten)]
    pub common: Common,
}

/// The arguments of `bench nr`.
#[derive(Clone, Debug, Args)]
pub struct Nr {
    /// Workloads, comma-separated: pqueue, dictionary, sorted-set, or all
    #[arg(long, default_value = "all")]
    pub workload: String,
    /// Methods, comma-separated: sl (one lock), rwl (one readers-writer lock), rwl-queued (this library's), fc and fc+
    /// (flat combining as published; fc+ has a lock for readers), combined-flat and combined (this library's), nr (node
    /// replication), nr+ (first reads whether there is something to change), lf (lock-free, that of flat combining's
    /// benchmark: keys repeat, nothing is freed), lf-book, lf-freeing, lf-crossbeam (crossbeam's skip list), or all
    #[arg(long, default_value = "sl,rwl,fc,fc+,nr")]
    pub method: String,
    /// Replicas of node replication [default: one per NUMA node]
    #[arg(long, value_parser = count)]
    pub replicas: Option<usize>,
    /// How long each measurement takes, in milliseconds
    #[arg(long, value_parser = count, default_value = "300")]
    pub millis: usize,
    /// What the threads do to the structure.
    #[command(flatten)]
    pub work: NrWork,
    /// The options of all measurements.
    #[command(flatten)]
    pub common: Common,
}

/// The arguments of `bench sets`.
#[derive(Clone, Debug, Args)]
pub struct Sets {
    /// Structures, comma-separated: list, hash, tree, or all
    #[arg(long, default_value = "all")]
    pub structure: String,
    /// Mechanisms, comma-separated: rcu, rlu, mvrlu, versioned, rcx, rcu-htm, fglock, variants of them (an unknown name
    /// lists all), harris, harris-hp (as published), michael-hp, citrus, citrus-predicate,
    /// citrus-predicate-eer, or all
    #[arg(long, default_value = "rcu,rlu,mvrlu,harris,citrus")]
    pub mechanism: String,
    /// Add one reader that stays in its critical section for the whole run; the table shows by how much memory grows
    #[arg(long)]
    pub stuck_reader: bool,
    /// How long a run takes
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub seconds: f64,
    /// What the threads do to a set.
    #[command(flatten)]
    pub work: SetsWork,
    /// The options of all measurements.
    #[command(flatten)]
    pub common: Common,
}

/// The arguments of `calibrate`.
#[derive(Clone, Debug, Args)]
pub struct Calibrate {
    /// Write the file here [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Take a few seconds only, to see whether calibration works here. The numbers are unreliable
    #[arg(long)]
    pub quick: bool,
}

/// The arguments of `bench verify`.
#[derive(Clone, Debug, Args)]
pub struct Verify {
    /// Indexes, comma-separated; also all, ours, peers
    #[arg(long, default_value = "all")]
    pub index: String,
    /// About how long each part of the exam may take, per index and kind of keys
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// The seed of keys and operations
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_updates_more_than_all() {
        for command in ["bench nr", "bench sets", "sim nr", "sim sets"] {
            let line = |percent: &str| format!("archipelago {command} --update-percent {percent}");
            let parsed = |percent| Cli::try_parse_from(line(percent).split(' ')).is_ok();
            assert!(parsed("2,100") && !parsed("2,101") && !parsed("-1"), "{command}");
        }
    }

    #[test]
    fn thread_counts_are_a_list() {
        let cli = Cli::try_parse_from(["archipelago", "bench", "ycsb", "--threads", "1,2,16"]).unwrap();
        let Some(Command::Bench { what: Bench::Ycsb(ycsb) }) = cli.command else { panic!("not parsed as bench ycsb") };
        assert_eq!(ycsb.common.threads, [1, 2, 16]);
        assert_eq!(ycsb.ops, 2_000_000);
    }
}

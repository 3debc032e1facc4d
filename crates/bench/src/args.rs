//! The command line.

use std::path::PathBuf;

use archipelago_platform::thread::Pinning;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Archipelago: in-memory data structures that scale on many-core NUMA servers.
#[derive(Debug, Parser)]
#[command(name = "archipelago", version, after_help = "Without a command: a short tour (under a minute).")]
pub struct Cli {
    /// What to do; nothing for the tour.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure indexes, ours beside their peers
    Bench {
        /// What to measure.
        #[command(subcommand)]
        what: Bench,
    },
    /// Print the machine as the library sees it
    Machine,
    /// Experiments on the virtual machine (built by `cargo sim`): how it would run on machines one doesn't have
    Sim {
        /// What to do.
        #[command(subcommand)]
        what: Box<Sim>,
    },
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// YCSB: load, then the workloads A to F
    Ycsb(Box<Ycsb>),
    /// Node replication beside locks, combining and a lock-free structure, on its paper's workloads
    Nr(Box<Nr>),
    /// List, hash table and search tree over RCU, RLU and MV-RLU
    Sets(Box<Sets>),
    /// The correctness exam: a model, own writes, overwritten keys
    Verify(Verify),
}

/// `bench ycsb`
#[derive(Clone, Debug, Args)]
pub struct Ycsb {
    /// Indexes, comma-separated; also all, ours, peers
    #[arg(long, default_value = "all")]
    pub index: String,
    /// Workloads, comma-separated: load, a, b, c, d, e, f, or all. They run in the order load, a, b, c, f, d, e
    #[arg(long, default_value = "load,a,b,c,d,e,f")]
    pub workload: String,
    /// int, clustered, sequential, email, a file with one key per line, or - for standard input
    #[arg(long, default_value = "int", value_name = "KIND|FILE|-")]
    pub keys: String,
    /// Keys to load (10M, 5k, 1_000); for a file all of it, unless said [default: 10M]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// Operations per workload and run, all threads together (E: an eighth)
    #[arg(long, value_parser = count, default_value = "2M")]
    pub ops: usize,
    /// Thread counts, comma-separated [default: 1 and the number of CPUs]
    #[arg(long, value_parser = count, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Which keys are popular: zipf:S, uniform, latest (D always reads the latest)
    #[arg(long, default_value = "zipf:0.99")]
    pub distribution: String,
    /// Of keys and operations: the same seed gives the same work
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs; the median is reported
    #[arg(long, value_parser = count, default_value = "3")]
    pub runs: usize,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also write a self-contained HTML report with charts
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Also measure the latency of every 8th operation (makes the rest slower)
    #[arg(long)]
    pub latency: bool,
    /// The index that ratios are to [default: the fastest peer of each column]
    #[arg(long, value_name = "INDEX")]
    pub baseline: Option<String>,
    /// In C, look up so many keys at a time
    #[arg(long, value_parser = count, value_name = "N")]
    pub batch: Option<usize>,
    /// Where threads run
    #[arg(long, value_enum, default_value_t = Pin::None)]
    pub pin: Pin,
}

/// `bench nr`
#[derive(Clone, Debug, Args)]
pub struct Nr {
    /// Workloads, comma-separated: pqueue, dictionary, sorted-set, or all
    #[arg(long, default_value = "all")]
    pub workload: String,
    /// Methods, comma-separated: sl (one lock), rwl (one readers-writer lock), fc and fc+ (flat combining, the latter
    /// with a lock for readers), nr (node replication), nr+ (reading before a change that may be none), lf (lock-free,
    /// freeing nothing), lf-freeing, lf-crossbeam (crossbeam's skip list), or all
    #[arg(long, default_value = "sl,rwl,fc,fc+,nr")]
    pub method: String,
    /// Percentages of operations that change the structure, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "0,10,100")]
    pub update_percent: Vec<u32>,
    /// Which keys are popular, comma-separated: uniform, zipf:S
    #[arg(long, default_value = "uniform")]
    pub distribution: String,
    /// Random words written between two operations, comma-separated
    #[arg(long, value_parser = lines, value_delimiter = ',', default_value = "0")]
    pub external_work: Vec<usize>,
    /// Thread counts, comma-separated [default: 1 and the number of CPUs]
    #[arg(long, value_parser = count, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Items in the structure [default: 200k; sorted-set: 10k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// Replicas of node replication [default: one per NUMA node]
    #[arg(long, value_parser = count)]
    pub replicas: Option<usize>,
    /// How long each measurement takes, in milliseconds
    #[arg(long, value_parser = count, default_value = "300")]
    pub millis: usize,
    /// Of keys and operations: the same seed gives the same work
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs; the median is reported
    #[arg(long, value_parser = count, default_value = "5")]
    pub runs: usize,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also write a self-contained HTML report with charts
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Also measure the latency of every operation (makes the rest slower)
    #[arg(long)]
    pub latency: bool,
    /// The method that ratios are to
    #[arg(long, value_name = "METHOD", default_value = "sl")]
    pub baseline: String,
    /// Where threads run
    #[arg(long, value_enum, default_value_t = Pin::None)]
    pub pin: Pin,
}

/// `bench sets`
#[derive(Clone, Debug, Args)]
pub struct Sets {
    /// Structures, comma-separated: list, hash, tree, or all
    #[arg(long, default_value = "all")]
    pub structure: String,
    /// Mechanisms, comma-separated: rcu, rlu, mvrlu, rcx, rcu-htm, fglock, variants of them (an unknown name lists all),
    /// harris, harris-hp, citrus, or all
    #[arg(long, default_value = "rcu,rlu,mvrlu,harris,citrus")]
    pub mechanism: String,
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
    /// List and tree: ranges of so many keys' width instead of look-ups
    #[arg(long, value_parser = width, default_value = "0")]
    pub scan: u64,
    /// One reader more, which stays in its section for the whole run; the table shows what memory grows by
    #[arg(long)]
    pub stuck_reader: bool,
    /// Thread counts, comma-separated [default: 1 and the number of CPUs]
    #[arg(long, value_parser = count, value_delimiter = ',')]
    pub threads: Vec<usize>,
    /// Runs; the median is reported
    #[arg(long, value_parser = count, default_value = "3")]
    pub runs: usize,
    /// How long a run takes
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub seconds: f64,
    /// Of keys and operations; each run has one more
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The mechanism that ratios are to
    #[arg(long, default_value = "rcu", value_name = "MECHANISM")]
    pub baseline: String,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// `bench verify`
#[derive(Clone, Debug, Args)]
pub struct Verify {
    /// Indexes, comma-separated; also all, ours, peers
    #[arg(long, default_value = "all")]
    pub index: String,
    /// About how long each part of the exam may take, per index and kind of keys
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Of keys and operations
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The experiments on the virtual machine.
#[derive(Debug, Subcommand)]
pub enum Sim {
    /// The machines that can be simulated: all, or every number of one and where it comes from
    Machines {
        /// A preset or a TOML file.
        name: Option<String>,
        /// Print a TOML file to start from
        #[arg(long)]
        example: bool,
    },
    /// Four small programs, natively in the ordinary build and simulated in the other: how far to trust the model
    Host,
    /// Short critical sections under spin locks, queue locks, hierarchical locks and reader-writer locks
    Locks(SimLocks),
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
    pub machine: Option<String>,
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
    #[arg(long)]
    pub watch: bool,
    /// How threads are laid over the machine
    #[arg(long, value_enum, default_value_t = Pin::Fill)]
    pub pin: Pin,
    /// The machine and the sizes of the system's paper, where --machine and --count do not say otherwise
    #[arg(long)]
    pub paper: bool,
    /// What goes to standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also write a self-contained HTML report with charts
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Append every row to FILE when it is complete (JSON lines); rows that an earlier run of the same program with the
    /// same arguments has left there are taken from it
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// How long to warm up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warm {
    /// Until the throughput is steady.
    Auto,
    /// A number of virtual microseconds.
    Micros(u64),
}

/// `sim locks`
#[derive(Clone, Debug, Args)]
pub struct SimLocks {
    /// Locks, comma-separated: tas, ttas, ticket, mcs, hmcs, cohort, cna, shfl; reader-writer locks: distributed, c-rw-np,
    /// c-rw-rp, c-rw-wp (cohorts: neutral, readers first, writers first), bravo (over c-rw-np); or all
    #[arg(long, default_value = "tas,ttas,ticket,mcs,hmcs,cohort")]
    pub lock: String,
    /// Under reader-writer locks, percentages of sections that write, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "0,1,10")]
    pub write_percent: Vec<u32>,
    /// What all experiments have.
    #[command(flatten)]
    pub common: SimCommon,
}

/// `sim ycsb`
#[derive(Clone, Debug, Args)]
pub struct SimYcsb {
    /// Indexes, comma-separated: hydralist, hydralist-one-layer (a single search layer for all nodes), art and art-olc
    /// (read-optimized write exclusion, optimistic lock coupling), btree-olc (a B+tree with the latter), rwlock-btree
    /// (one lock; words only), or all
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
    /// Percentages of operations that insert or remove, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "2,20,80")]
    pub update_percent: Vec<u32>,
    /// Items in the set [default: 10k, as in the paper]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
    /// Buckets of the hash table [default: a tenth of the items]
    #[arg(long, value_parser = count)]
    pub buckets: Option<usize>,
    /// List and tree: ranges of so many keys' width instead of look-ups
    #[arg(long, value_parser = width, default_value = "0")]
    pub scan: u64,
    /// Which keys are popular: uniform, zipf:S
    #[arg(long, default_value = "uniform")]
    pub distribution: String,
    /// What all experiments have.
    #[command(flatten)]
    pub common: SimCommon,
}

/// `sim nr`
#[derive(Clone, Debug, Args)]
pub struct SimNr {
    /// Workloads, comma-separated: pqueue, dictionary, sorted-set, or all
    #[arg(long, default_value = "dictionary")]
    pub workload: String,
    /// Methods, comma-separated: sl, rwl, fc, fc+, nr; lf (a lock-free skip list that frees nothing) and lf-freeing; tas
    /// and shfl (sl with other locks); or all
    #[arg(long, default_value = "sl,rwl,fc,fc+,nr")]
    pub method: String,
    /// Percentages of operations that change the structure, comma-separated
    #[arg(long, value_parser = percent, value_delimiter = ',', default_value = "0,10,100")]
    pub update_percent: Vec<u32>,
    /// Which keys are popular, comma-separated: uniform, zipf:S
    #[arg(long, default_value = "uniform")]
    pub distribution: String,
    /// Random lines written between two operations, comma-separated
    #[arg(long, value_parser = lines, value_delimiter = ',', default_value = "0")]
    pub external_work: Vec<usize>,
    /// Items in the structure [default: 200k; sorted-set: 10k]
    #[arg(long, value_parser = count)]
    pub count: Option<usize>,
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
    /// Vary the model; without it no verdict is more than `unresolved`
    #[arg(long)]
    pub sweep: bool,
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
    /// Write the table to FILE instead of standard output
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

impl SimYcsb {
    /// Keys loaded.
    pub fn count(&self) -> usize {
        self.count.unwrap_or(if self.common.paper { 10_000_000 } else { 100_000 })
    }
}

impl SimSets {
    /// Items in the set.
    pub fn count(&self) -> usize {
        self.count.unwrap_or(10_000)
    }
}

impl SimNr {
    /// Items in the workload's structure: as many as the paper has.
    pub fn items(&self, workload: &str) -> usize {
        self.count.unwrap_or(if workload == "sorted-set" { 10_000 } else { 200_000 })
    }

    /// Items in the largest structure.
    pub fn most_items(&self) -> usize {
        self.items("dictionary")
    }
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

/// A positive number, with underscores and `k`, `M` or `G` (thousands) as one likes.
fn count(text: &str) -> Result<usize, String> {
    let wrong = || format!("'{text}' is not a positive number (as in 1000, 1_000, 5k, 10M)");
    let plain = text.replace('_', "");
    let (digits, unit) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1_000),
        Some((at, 'm' | 'M')) => (&plain[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&plain[..at], 1_000_000_000),
        _ => (plain.as_str(), 1),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: usize = digits.parse().map_err(|_| wrong())?;
    match number.checked_mul(unit) {
        None | Some(0) => Err(wrong()),
        Some(number) => Ok(number),
    }
}

/// From 0 to 100.
fn percent(text: &str) -> Result<u32, String> {
    let percent = text.parse().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| format!("'{text}' is not a percentage (0 to 100)"))
}

/// Virtual microseconds: less than the machine's limit of a minute, for all phases together.
fn micros(text: &str) -> Result<u64, String> {
    let micros = count(text).ok().filter(|micros| *micros <= 10_000_000);
    micros.map(|micros| micros as u64).ok_or_else(|| format!("'{text}' is not 1 to 10_000_000 microseconds"))
}

fn warm(text: &str) -> Result<Warm, String> {
    match text {
        "auto" => Ok(Warm::Auto),
        "0" => Ok(Warm::Micros(0)),
        _ => micros(text).map(Warm::Micros).map_err(|wrong| format!("{wrong}, 0 or auto")),
    }
}

/// As [`count`], or 0.
fn operations(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { count(text).map(|count| count as u64) }
}

/// Lines of external work.
fn lines(text: &str) -> Result<usize, String> {
    let lines = operations(text).ok().filter(|lines| *lines <= 1_000_000);
    lines.map(|lines| lines as usize).ok_or_else(|| format!("'{text}' is not 0 to 1_000_000 words"))
}

/// The width of ranges.
fn width(text: &str) -> Result<u64, String> {
    operations(text).ok().filter(|width| *width <= 1 << 32).ok_or_else(|| format!("'{text}' is not a width up to 2^32"))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err(format!("'{text}' is not a number of seconds (above 0, at most a day)")),
    }
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
    fn numbers_take_suffixes_and_underscores() {
        assert_eq!(count("7"), Ok(7));
        assert_eq!(count("1_000"), Ok(1000));
        assert_eq!(count("5k"), Ok(5000));
        assert_eq!(count("10M"), Ok(10_000_000));
        assert_eq!(count("2G"), Ok(2_000_000_000));
        for wrong in ["", "k", "0", "-1", "+1", "1.5M", "ten", "10MM", "99999999999G", "é"] {
            assert!(count(wrong).is_err(), "{wrong} was taken for a number");
        }
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
    fn limits_have_two_sides() {
        assert_eq!((percent("0"), percent("100")), (Ok(0), Ok(100)));
        assert_eq!((micros("1"), micros("10M")), (Ok(1), Ok(10_000_000)));
        assert_eq!(
            (warm("0"), warm("auto"), warm("1k")),
            (Ok(Warm::Micros(0)), Ok(Warm::Auto), Ok(Warm::Micros(1000)))
        );
        assert_eq!((operations("0"), lines("1M"), width("4_294_967_296")), (Ok(0), Ok(1_000_000), Ok(1 << 32)));
        assert!(percent("101").is_err() && percent("-1").is_err() && percent("4294967396").is_err());
        assert!(micros("0").is_err() && micros("10_000_001").is_err() && warm("20M").is_err() && warm("cold").is_err());
        assert!(operations("-1").is_err() && lines("2M").is_err() && width("4_294_967_297").is_err());
    }

    #[test]
    fn thread_counts_are_a_list() {
        let cli = Cli::try_parse_from(["archipelago", "bench", "ycsb", "--threads", "1,2,16"]).unwrap();
        let Some(Command::Bench { what: Bench::Ycsb(ycsb) }) = cli.command else { panic!("not parsed as bench ycsb") };
        assert_eq!(ycsb.threads, [1, 2, 16]);
        assert_eq!(ycsb.ops, 2_000_000);
    }

    #[test]
    fn a_tiny_exam_is_allowed_and_an_endless_one_is_not() {
        assert_eq!(seconds("0.1"), Ok(0.1));
        assert!(seconds("0").is_err());
        assert!(seconds("inf").is_err());
        assert!(seconds("nan").is_err());
    }
}

//! One program on the virtual machine: set up, warmed up, measured for a span of virtual time, over seeds and over
//! variations of the model.

use core::cell::Cell;
use std::time::Duration;

use archipelago_sim::{
    Client, Config, HotLine, Machine, Outcome, Placement, Stats, TxSite, Unannounced, Variation, run_with, world,
};

use crate::failure::Failure;

/// What all measurements of an experiment share.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where it runs.
    pub machine: Machine,
    /// How threads are placed.
    pub placement: Placement,
    /// Virtual nanoseconds before anything counts.
    pub warm_ns: u64,
    /// Virtual nanoseconds that count.
    pub measured_ns: u64,
    /// The first seed.
    pub seed: u64,
    /// How many seeds.
    pub seeds: u64,
    /// Whether the model is varied.
    pub sweep: bool,
    /// What goes wrong.
    pub faults: Vec<archipelago_sim::Fault>,
}

impl Setting {
    /// What every run of the experiment is configured with.
    pub fn config(&self) -> Config {
        Config {
            seed: self.seed,
            placement: self.placement.clone(),
            until_ns: Some(self.warm_ns + self.measured_ns),
            faults: self.faults.clone(),
            // A run that ends badly is told in one sentence; destructors that meet half-done work could only hide it.
            unwind: false,
            ..Config::default()
        }
    }
}

/// A program as the experiments see it: runs once, with so many threads.
pub type Program = Box<dyn Fn(&Machine, &Config, &Setting, usize) -> Result<Run, Failure>>;

/// What one run showed.
#[derive(Clone, Debug)]
pub struct Run {
    /// Operations that counted.
    pub ops: u64,
    /// Million operations per virtual second.
    pub mops: f64,
    /// What the machine counted meanwhile.
    pub stats: Stats,
    /// Steps of the whole run.
    pub events: u64,
    /// Of all steps.
    pub hash: u64,
    /// What threads waited for.
    pub hot_lines: Vec<HotLine>,
    /// What became of the whole run's transactions, by the place where they begin.
    pub tx_sites: Vec<TxSite>,
    /// Names of the parts that `stats.remote_in` counts, from the second on.
    pub parts: Vec<&'static str>,
    /// Time on the host.
    pub wall: Duration,
    /// Bytes of the model per cache line.
    pub bytes_per_line: f64,
    /// The operations that counted, if the program tells updates from reads.
    pub kinds: Option<[Kind; 2]>,
    /// With [`Config::watch`]: shared memory that the program used plainly without announcing it.
    pub unannounced: Vec<Unannounced>,
}

/// Reads, or updates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kind {
    /// How many counted.
    pub ops: u64,
    /// Virtual nanoseconds of the measured span that threads spent in them, and in those that did not end within it.
    pub ns: u64,
}

/// A thread's loop: the condition of a `while` around its operation.
pub struct Turns<'a> {
    client: Client,
    warm_ns: u64,
    until_ns: u64,
    counts: &'a Counts,
    /// When the operation under way began.
    begun: Option<u64>,
    done: u64,
    /// Whether it is an update, if the program tells.
    updates: Option<bool>,
    kinds: [Kind; 2],
}

/// What the threads of a run add up.
#[derive(Default)]
struct Counts {
    ops: Cell<u64>,
    kinds: Cell<Option<[Kind; 2]>>,
    /// The machine's counters when the first thread was warm.
    at_start: Cell<Option<Stats>>,
    /// The machine's counters when the first thread was through.
    at_end: Cell<Option<Stats>>,
}

impl Turns<'_> {
    /// Whether to run another operation; the one before has ended, and counts if it did so within the measured span.
    pub fn next(&mut self) -> bool {
        let Some(now) = self.client.time() else {
            // What is under way does not count, but the time that it took does.
            if let Some(begun) = self.begun {
                self.kind().ns += self.until_ns.saturating_sub(begun.max(self.warm_ns));
            }
            if self.counts.at_end.get().is_none() {
                self.counts.at_end.set(world::stats());
            }
            return false;
        };
        let begun = self.begun.replace(now);
        if now >= self.warm_ns {
            if let Some(begun) = begun {
                self.done += 1;
                self.kind().ops += 1;
                self.kind().ns += now - begun.max(self.warm_ns);
            }
            if self.counts.at_start.get().is_none() {
                self.counts.at_start.set(world::stats());
            }
        }
        true
    }

    fn kind(&mut self) -> &mut Kind {
        &mut self.kinds[usize::from(self.updates == Some(true))]
    }

    /// Says of the operation that begins whether it is an update.
    pub fn updates(&mut self, whether: bool) {
        self.updates = Some(whether);
    }

    /// The thread.
    pub fn client(&self) -> Client {
        self.client
    }
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        self.counts.ops.set(self.counts.ops.get() + self.done);
        if self.updates.is_some() {
            let mut all = self.counts.kinds.get().unwrap_or_default();
            for (all, own) in all.iter_mut().zip(self.kinds) {
                *all = Kind { ops: all.ops + own.ops, ns: all.ns + own.ns };
            }
            self.counts.kinds.set(Some(all));
        }
    }
}

/// Runs a program once: `setup` in no time, then `body` in every thread.
///
/// # Errors
/// If the run does not end well.
pub fn run<S>(
    machine: &Machine,
    config: &Config,
    setting: &Setting,
    threads: usize,
    setup: impl FnOnce() -> S,
    body: impl Fn(&S, &mut Turns<'_>),
) -> Result<Run, Failure> {
    let counts = Counts::default();
    let body = |shared: &S, client: Client| {
        let (begun, updates, kinds) = Default::default();
        let (warm_ns, until_ns) = (setting.warm_ns, setting.warm_ns + setting.measured_ns);
        let mut turns = Turns { client, warm_ns, until_ns, counts: &counts, begun, done: 0, updates, kinds };
        body(shared, &mut turns);
    };
    let (report, _) = run_with(machine, config, threads, setup, body, drop);
    if report.outcome != Outcome::Done {
        let (name, seed) = (&machine.name, report.seed);
        return Err(Failure::new(format!(
            "the simulation with {threads} threads on {name} ended badly: {} (again with --seed {seed} --runs 1)",
            report.outcome
        )));
    }
    let ops = counts.ops.get();
    Ok(Run {
        ops,
        mops: ops as f64 * 1e3 / setting.measured_ns as f64,
        stats: counts.at_end.get().unwrap_or(report.stats).since(&counts.at_start.get().unwrap_or_default()),
        events: report.stats.accesses,
        hash: report.hash,
        bytes_per_line: report.model_bytes as f64 / report.lines.max(1) as f64,
        hot_lines: report.hot_lines,
        tx_sites: report.tx_sites,
        parts: report.parts,
        wall: report.wall,
        kinds: counts.kinds.get(),
        unannounced: report.unannounced,
    })
}

/// The figures of one program with so many threads.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The machine as it is, with the first seed.
    pub first: Run,
    /// The machine as it is, with every seed.
    pub mops: Vec<f64>,
    /// Variation by variation and seed by seed; empty without a sweep.
    pub sweep: Vec<f64>,
}

/// Measures with every seed, and with every variation if the setting says so.
///
/// # Errors
/// If a run does not end well.
pub fn figures(program: &Program, setting: &Setting, threads: usize) -> Result<Figures, Failure> {
    let config = setting.config();
    let seeds = setting.seed..setting.seed + setting.seeds;
    let mut runs = Vec::new();
    for seed in seeds.clone() {
        runs.push(program(&setting.machine, &Config { seed, ..config.clone() }, setting, threads)?);
    }
    let mops: Vec<f64> = runs.iter().map(|run| run.mops).collect();
    let first = runs.swap_remove(0);
    let mut sweep = Vec::new();
    for variation in Variation::all().filter(|_| setting.sweep) {
        let machine = variation.of(&setting.machine);
        // The variation that changes nothing has been measured.
        if machine == setting.machine && variation.overlap == config.overlap {
            sweep.extend(&mops);
            continue;
        }
        for seed in seeds.clone() {
            let config = Config { seed, overlap: variation.overlap, ..config.clone() };
            sweep.push(program(&machine, &config, setting, threads)?.mops);
        }
    }
    Ok(Figures { first, mops, sweep })
}

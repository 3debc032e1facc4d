//! Runs one program on the virtual machine: set up, warmed up, measured for a span of virtual time, over seeds and over
//! variations of the model.

use core::cell::Cell;
use std::time::Duration;

use archipelago_platform::SIMULATED;
use archipelago_sim::{
    Client, Config, HotLine, Machine, Outcome, Placement, Stats, TxSite, Unannounced, Variation, run_with, world,
};

use super::instructions::Charge;
use super::program::{self, Done};
use super::steady::{Course, Phase, Wish};
use crate::failure::Failure;
use crate::interrupt;
use crate::report::row;

/// What all measurements of an experiment share.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where it runs.
    pub machine: Machine,
    /// How threads are placed.
    pub placement: Placement,
    /// How long it warms up and is measured.
    pub wish: Wish,
    /// The first seed.
    pub seed: u64,
    /// How many seeds.
    pub seeds: u64,
    /// Whether the model is varied.
    pub sweep: bool,
    /// What goes wrong.
    pub faults: Vec<archipelago_sim::Fault>,
    /// Instructions per cycle, if those between accesses to shared memory are charged.
    pub per_cycle: Option<f64>,
    /// What these take of a contender's operation: [`figures`] knows whose.
    pub charge: Charge,
}

impl Setting {
    /// What every run of the experiment is configured with. When it ends is decided on its way ([`Course`]).
    pub fn config(&self) -> Config {
        Config {
            seed: self.seed,
            placement: self.placement.clone(),
            faults: self.faults.clone(),
            // A run that ends badly is told in one sentence; destructors that meet half-done work could only hide it.
            unwind: false,
            ..Config::default()
        }
    }
}

/// A program as the experiments see it: runs once, with this many threads.
pub type Simulation = Box<dyn Fn(&Machine, &Config, &Setting, usize) -> Result<Run, Failure>>;

/// One of the things compared.
pub struct Contender {
    /// Its name in reports: the index, the lock, the method.
    pub name: String,
    /// What it does.
    pub cell: row::Cell,
    /// How.
    pub program: Simulation,
}

/// A program for either machine, on the virtual one.
pub fn program<P: program::Program + 'static>(program: P) -> Simulation {
    Box::new(move |machine, config, setting, threads| {
        let before = Cell::new(0);
        let setup = || {
            let shared = program.setup(threads, config.seed);
            before.set(program.retries(&shared).unwrap_or(0));
            shared
        };
        let body = |shared: &P::Shared, turns: &mut Turns<'_>| {
            program.body(shared, turns);
            // The thread that ends last has the last word.
            let percent =
                |retries| 100.0 * (retries - before.get()) as f64 / f64::from(turns.counts.turns.get().max(1));
            turns.counts.retry_percent.set(program.retries(shared).map(percent));
        };
        run(machine, config, setting, threads, setup, body, |shared| program.wrong(shared))
    })
}

/// What one run showed.
#[derive(Clone, Debug)]
pub struct Run {
    /// Operations that counted.
    pub ops: u64,
    /// Million operations per virtual second.
    pub mops: f64,
    /// Virtual nanoseconds before the measurement.
    pub warm_ns: u64,
    /// Virtual nanoseconds measured.
    pub measured_ns: u64,
    /// Virtual nanoseconds that `stats` counts: from the first thread's pass into the measured span to the first one's
    /// behind it, which operations under way can make later than its end.
    pub counted_ns: u64,
    /// Whether the throughput was seen steady before, or the time to warm up was given.
    pub steady: bool,
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
    /// How often reading was begun anew, in percent of the operations of the whole run, if the program counts that.
    pub retry_percent: Option<f64>,
    /// Attempts at updates that were repeated, in percent of all attempts of the whole run, if the program counts that.
    pub abort_percent: Option<f64>,
    /// With [`Config::watch`]: shared memory that the program used plainly without announcing it.
    pub unannounced: Vec<Unannounced>,
    /// Whether an equal run is equal to the last event: [`Report::own_heap`](archipelago_sim::Report::own_heap).
    pub repeats: bool,
}

/// Reads, or updates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kind {
    /// How many counted.
    pub ops: u64,
    /// Virtual nanoseconds of the measured span that threads spent in them, and in those that did not end within it.
    pub ns: u64,
}

/// A thread of the virtual machine.
pub struct Turns<'a> {
    client: Client,
    counts: &'a Counts,
    /// When the operation under way began.
    begun: Option<u64>,
    /// Whether it is an update, if the program tells.
    updates: Option<bool>,
    kinds: [Kind; 2],
    charge: Charge,
}

/// What the threads of a run add up.
struct Counts {
    course: Course,
    /// Operations begun.
    turns: Cell<u32>,
    kinds: Cell<Option<[Kind; 2]>>,
    retry_percent: Cell<Option<f64>>,
    /// Updates, and how often one was repeated.
    attempts: Cell<Option<(u64, u64)>>,
    /// When the first thread was warm, and the machine's counters then.
    at_start: Cell<Option<(u64, Stats)>>,
    /// When the first thread was through, and the machine's counters then.
    at_end: Cell<Option<(u64, Stats)>>,
}

/// Operations, of all threads, between two looks at whether Ctrl-C was pressed.
const LOOK: u32 = 64;

impl Turns<'_> {
    /// Whether to run another operation; the one before has ended, and counts if it did so within the measured span.
    fn next(&mut self) -> bool {
        let now = self.client.time().expect("no end of time is configured");
        let turns = self.counts.turns.get().wrapping_add(1);
        self.counts.turns.set(turns);
        if turns.is_multiple_of(LOOK) && interrupt::requested() {
            self.counts.course.stop();
        }
        let begun = self.begun.replace(now);
        let course = &self.counts.course;
        if begun.is_none() {
            course.arrive(now);
        }
        match course.pass(now, begun.is_some()) {
            Phase::Warming => {}
            Phase::Measured => {
                let from = course.from();
                if let Some(begun) = begun {
                    self.kind().ops += 1;
                    self.kind().ns += now - begun.max(from);
                }
                if self.counts.at_start.get().is_none() {
                    self.counts.at_start.set(world::stats().map(|stats| (now, stats)));
                }
            }
            Phase::Over => {
                // What is under way does not count, but the time that it took does.
                if let Some(begun) = begun {
                    let (from, until) = (course.from(), course.until());
                    self.kind().ns += until.saturating_sub(begun.max(from));
                }
                if self.counts.at_end.get().is_none() {
                    self.counts.at_end.set(world::stats().map(|stats| (now, stats)));
                }
                return false;
            }
        }
        true
    }

    fn kind(&mut self) -> &mut Kind {
        &mut self.kinds[usize::from(self.updates == Some(true))]
    }
}

impl program::Turns for Turns<'_> {
    fn thread(&self) -> usize {
        self.client.index
    }

    fn go(&mut self, limit: usize, mut op: impl FnMut(usize) -> Done, mut between: impl FnMut()) {
        for i in 0..limit {
            if !self.next() {
                break;
            }
            let done = op(i);
            match done {
                Done::Read => self.updates = Some(false),
                Done::Updated => self.updates = Some(true),
                Done::Found | Done::Missed => {}
            }
            let ns = self.charge.ns(done == Done::Updated);
            if ns > 0 {
                world::work(ns);
            }
            between();
        }
    }

    fn attempts(&mut self, updates: u64, repeated: u64) {
        let (all, again) = self.counts.attempts.get().unwrap_or_default();
        self.counts.attempts.set(Some((all + updates, again + repeated)));
    }
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        if self.updates.is_some() {
            let mut all = self.counts.kinds.get().unwrap_or_default();
            for (all, own) in all.iter_mut().zip(self.kinds) {
                *all = Kind { ops: all.ops + own.ops, ns: all.ns + own.ns };
            }
            self.counts.kinds.set(Some(all));
        }
    }
}

/// Returns whether what this program measures on the real machine is to be believed.
///
/// # Errors
/// If it was built for the virtual machine: every access to shared memory asks then where it runs.
pub fn only_native() -> Result<(), Failure> {
    if !SIMULATED {
        return Ok(());
    }
    Err(Failure::new(
        "this program was built for the virtual machine, and measures nothing else; `cargo archipelago bench …` builds and runs \
         the same command for this machine",
    ))
}

/// Whether this program can run anything here.
///
/// # Errors
/// If it was built for the real machine.
pub fn only_simulated() -> Result<(), Failure> {
    if SIMULATED {
        return Ok(());
    }
    Err(Failure::new(
        "this program was built for the real machine; `cargo sim …` builds and runs the same command for the virtual \
         one (what it needs is RUSTFLAGS=\"--cfg archipelago_sim\")",
    ))
}

/// Runs a program once: `setup` in no time, which leaves its lines in their nodes' caches, then `body` in every thread; at last it asks
/// what is `wrong` with what they left.
///
/// # Errors
/// If the run does not end well, or this program was built for the real machine.
pub fn run<S>(
    machine: &Machine,
    config: &Config,
    setting: &Setting,
    threads: usize,
    setup: impl FnOnce() -> S,
    body: impl Fn(&S, &mut Turns<'_>),
    wrong: impl FnOnce(&S) -> Option<String>,
) -> Result<Run, Failure> {
    // Decided by the compiler, which so makes no simulated twin of every contender for the real machine.
    if !SIMULATED {
        return Err(only_simulated().expect_err("it was not built for the virtual machine"));
    }
    let (turns, at_start, at_end, kinds, retry_percent, attempts) = Default::default();
    let counts =
        Counts { course: Course::new(setting.wish, threads), turns, kinds, retry_percent, attempts, at_start, at_end };
    let body = |shared: &S, client: Client| {
        let (begun, updates, kinds) = Default::default();
        let mut turns = Turns { client, counts: &counts, begun, updates, kinds, charge: setting.charge };
        body(shared, &mut turns);
    };
    // Filling takes no time, but leaves behind in the caches what it would.
    let setup = || {
        let shared = setup();
        world::warm_homes();
        shared
    };
    let (report, wrong) = run_with(machine, config, threads, setup, body, |shared| wrong(&shared));
    if report.outcome != Outcome::Done {
        let (name, seed) = (&machine.name, report.seed);
        return Err(Failure::new(format!(
            "the simulation with {threads} threads on {name} ended badly: {} (again with --seed {seed} --runs 1)",
            report.outcome
        )));
    }
    if let Some(wrong) = wrong.flatten() {
        return Err(Failure::new(format!(
            "the run has left what is wrong: {wrong} (again with --seed {})",
            report.seed
        )));
    }
    let course = &counts.course;
    let (ops, measured_ns) = (course.ops(), course.measured_ns());
    let (began, at_start) = counts.at_start.get().unwrap_or_default();
    let (ended, at_end) = counts.at_end.get().unwrap_or((report.end_ns, report.stats));
    Ok(Run {
        ops,
        mops: ops as f64 * 1e3 / measured_ns.max(1) as f64,
        warm_ns: course.from(),
        measured_ns,
        counted_ns: ended - began,
        steady: course.steady(),
        stats: at_end.since(&at_start),
        events: report.stats.accesses,
        hash: report.hash,
        bytes_per_line: report.model_bytes as f64 / report.lines.max(1) as f64,
        hot_lines: report.hot_lines,
        tx_sites: report.tx_sites,
        parts: report.parts,
        wall: report.wall,
        kinds: counts.kinds.get(),
        retry_percent: counts.retry_percent.get(),
        abort_percent: counts.attempts.get().map(|(all, again)| 100.0 * again as f64 / (all + again).max(1) as f64),
        unannounced: report.unannounced,
        repeats: report.own_heap,
    })
}

/// The figures of one program with this many threads.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Variation by variation and seed by seed, the machine as it is first.
    pub runs: Vec<Run>,
    /// How many of them are of the machine as it is.
    pub seeds: usize,
}

impl Figures {
    /// The machine as it is, with the first seed.
    pub fn first(&self) -> &Run {
        &self.runs[0]
    }

    /// Million operations per virtual second, as in `runs`.
    pub fn mops(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.mops).collect()
    }
}

/// Measures with every seed, and with every variation if the setting says so; `None` if it is interrupted.
///
/// # Errors
/// If a run does not end well, or instructions are to be charged that were not counted.
pub fn figures(contender: &Contender, setting: &Setting, threads: usize) -> Result<Option<Figures>, Failure> {
    let config = setting.config();
    let charge = setting.per_cycle.map(|per_cycle| Charge::of(&contender.name, &setting.machine, per_cycle));
    let setting = &Setting { charge: charge.transpose()?.unwrap_or_default(), ..setting.clone() };
    let mut all = Vec::new();
    // The first variation is the machine as it is.
    let varied = Variation::all().filter(|variation| setting.sweep && !is_none(variation, setting, &config));
    let machines = [(setting.machine.clone(), config.overlap)].into_iter();
    for (machine, overlap) in machines.chain(varied.map(|it| (it.of(&setting.machine), it.overlap))) {
        for seed in (0..setting.seeds).map(|run| setting.seed.wrapping_add(run)) {
            // Before, since what is loaded first takes time; and after, since a run that was stopped counts for nothing.
            if interrupt::requested() {
                return Ok(None);
            }
            let config = Config { seed, overlap, ..config.clone() };
            let run = (contender.program)(&machine, &config, setting, threads)?;
            if interrupt::requested() {
                return Ok(None);
            }
            all.push(run);
        }
    }
    Ok(Some(Figures { runs: all, seeds: setting.seeds as usize }))
}

/// Whether a variation changes nothing: the machine as it is has been measured.
fn is_none(variation: &Variation, setting: &Setting, config: &Config) -> bool {
    variation.of(&setting.machine) == setting.machine && variation.overlap == config.overlap
}

//! Runs one program on the virtual machine, a simulator: sets it up, warms it up, and measures it for a span of virtual
//! time. A measurement repeats this over seeds and over variations of the model.

use core::any::Any;
use core::cell::{Cell, OnceCell};
use std::borrow::Cow;
use std::time::Duration;

use archipelago_platform::SIMULATED;
use archipelago_sim::{
    Client, Config, HotLine, Machine, Outcome, Placement, Report, Stats, TxSite, Unannounced, Variation, run_with,
    world,
};
use serde::{Deserialize, Serialize};

use super::branches::{Branches, can_branch};
use super::instructions::{Charge, Instructions};
use super::program::{self, Done};
use super::steady::{Course, Phase, Wish};
use crate::failure::Failure;
use crate::interrupt;
use crate::report::row;

/// What all measurements of an experiment share.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The machine that is simulated.
    pub machine: Machine,
    /// How threads are placed.
    pub placement: Placement,
    /// How long a run warms up and is measured.
    pub wish: Wish,
    /// The first seed.
    pub seed: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// True if the run also varies the model.
    pub sweep: bool,
    /// Faults that the simulation injects.
    pub faults: Vec<archipelago_sim::Fault>,
    /// The name of these faults in the arguments.
    pub stall: Option<String>,
    /// The instructions between accesses to shared memory, if they are charged.
    pub instructions: Option<Instructions>,
    /// The time that is charged for an operation's instructions, for a contender of which nothing else is known.
    pub charge: Charge,
}

impl Setting {
    /// Returns the configuration of every run of the experiment. It sets no end of time: [`Course`] decides during the
    /// run when the run ends.
    pub fn config(&self) -> Config {
        Config {
            seed: self.seed,
            placement: self.placement.clone(),
            faults: self.faults.clone(),
            // A run that ends badly is reported in one sentence. Destructors that run on half-done work could only hide
            // the cause.
            unwind: false,
            ..Config::default()
        }
    }

    /// Returns whether nothing but the runs' lengths differs.
    pub fn shares_setup(&self, other: &Setting) -> bool {
        format!("{:?}", Setting { wish: other.wish, ..self.clone() }) == format!("{other:?}")
    }
}

/// What may differ between runs of one set-up: a variation of a setting.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The machine that is simulated. The machines of one set-up differ only in their times.
    pub machine: Machine,
    /// The time that is charged for an operation's instructions.
    pub charge: Charge,
    /// How long the run warms up and is measured.
    pub wish: Wish,
}

/// One of the runs that a set-up is for.
pub struct Branch<'a> {
    /// What runs. Its set-up is that of the first branch's program ([`Simulate::shares_setup`]).
    pub program: &'a dyn Simulate,
    /// How it runs.
    pub variant: Variant,
}

/// A program as experiments use it.
pub trait Simulate: Any {
    /// Sets up for this program, and runs each branch once, with this many threads. Returns the runs in the order of the
    /// branches.
    fn runs(&self, branches: &[Branch<'_>], config: &Config, threads: usize) -> Vec<Result<Run, Failure>>;

    /// Returns whether this program and another begin with the same set-up if they have the same seed and as many
    /// threads.
    fn shares_setup(&self, other: &dyn Simulate) -> bool;
}

/// A program of any type.
pub type Simulation = Box<dyn Simulate>;

/// One of the contenders that an experiment compares.
pub struct Contender {
    /// Its name in reports: the name of the index, the lock or the method.
    pub name: String,
    /// The workload and its parameters.
    pub cell: row::Cell,
    /// The program that runs the workload.
    pub program: Simulation,
}

impl Contender {
    /// Returns whether both begin with the same set-up, in equal settings and with as many threads.
    pub fn shares_setup(&self, other: &Contender) -> bool {
        self.name == other.name && self.program.shares_setup(&*other.program)
    }
}

/// Makes a simulation of a program that can run on the real machine and on the virtual machine.
pub fn program<P: program::Program + 'static>(program: P) -> Simulation {
    Box::new(Simulated(program))
}

struct Simulated<P>(P);

/// Returns a program's own type, if it is of this type.
fn of<P: 'static>(program: &dyn Simulate) -> Option<&P> {
    (program as &dyn Any).downcast_ref().map(|Simulated(program)| program)
}

impl<P: program::Program + 'static> Simulate for Simulated<P> {
    fn runs(&self, branches: &[Branch<'_>], config: &Config, threads: usize) -> Vec<Result<Run, Failure>> {
        // A process that cannot branch sets up once for each run.
        let together = if can_branch() { branches.len() } else { 1 };
        let mut runs = Vec::new();
        for branches in branches.chunks(together.max(1)) {
            runs.extend(self.branched(branches, config, threads));
        }
        runs
    }

    fn shares_setup(&self, other: &dyn Simulate) -> bool {
        of(other).is_some_and(|other| self.0.shares_setup(other))
    }
}

impl<P: program::Program + 'static> Simulated<P> {
    fn branched(&self, branches: &[Branch<'_>], config: &Config, threads: usize) -> Vec<Result<Run, Failure>> {
        let programs: Vec<&P> =
            branches.iter().map(|branch| of(branch.program).expect("programs of one set-up have one type")).collect();
        let variants: Vec<Variant> = branches.iter().map(|branch| branch.variant.clone()).collect();
        let before = Cell::new(0);
        let setup = || {
            let shared = self.0.setup(threads, config.seed);
            before.set(self.0.retries(&shared).unwrap_or(0));
            shared
        };
        let body = |at: usize, shared: &P::Shared, turns: &mut Turns<'_>| {
            let program = programs[at];
            program.body(shared, turns);
            // Every thread sets the figure when it ends, and the thread that ends last sets the final one.
            let percent =
                |retries| 100.0 * (retries - before.get()) as f64 / f64::from(turns.counts.turns.get().max(1));
            turns.counts.retry_percent.set(program.retries(shared).map(percent));
            turns.counts.tuples.set(program.tuples(shared));
        };
        let check = |at: usize, shared: &P::Shared| match programs[at].wrong(shared) {
            Some(wrong) => Err(wrong),
            None => Ok(programs[at].skews(shared)),
        };
        let runs = run(&variants, config, threads, setup, body, check).into_iter().zip(&programs);
        runs.map(|(run, program)| Ok(Run { isolation: program.isolation(), ..run? })).collect()
    }
}

/// The results of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The number of operations that ended within the measured span.
    pub ops: u64,
    /// Million operations per virtual second.
    pub mops: f64,
    /// Virtual nanoseconds before the measurement.
    pub warm_ns: u64,
    /// Virtual nanoseconds measured.
    pub measured_ns: u64,
    /// Virtual nanoseconds that `stats` covers. They begin when the first thread enters the measured span, and end when
    /// the first thread notices the span's end. A thread notices it between two operations, so this moment may be later
    /// than the span's end.
    pub counted_ns: u64,
    /// `true` if all threads began in time, and the warm-up ended with a steady throughput or had a given length.
    pub steady: bool,
    /// The machine's counters over `counted_ns`.
    pub stats: Stats,
    /// The number of accesses in the whole run.
    pub events: u64,
    /// A hash of all events of the run; equal runs have equal hashes.
    pub hash: u64,
    /// The cache lines for which threads waited most.
    pub hot_lines: Vec<HotLine>,
    /// The outcomes of the whole run's transactions, by the place in the program where they begin.
    pub tx_sites: Vec<TxSite>,
    /// The names of the program's parts whose accesses `stats.remote_in` counts, from its second number on. The first
    /// number is for accesses outside of all parts.
    pub parts: Vec<Cow<'static, str>>,
    /// The run's time on the host, set-up included.
    pub wall: Duration,
    /// The simulator's own memory for its model, in bytes per cache line that the program accessed.
    pub bytes_per_line: f64,
    /// The reads and the updates that ended within the measured span, if the program distinguishes them.
    pub kinds: Option<[OpTotals; 2]>,
    /// Restarted reads or transactions ([`program::Program::retries`]), in percent of the operations of the whole run,
    /// if the program counts them.
    pub retry_percent: Option<f64>,
    /// Repeated attempts at updates, in percent of all attempts of the whole run, if the program counts them.
    pub abort_percent: Option<f64>,
    /// Bytes of the heap that the program held at the end of the measured span ([`world::held_bytes`]), set-up included,
    /// less [`program::Program::tuples`] at the end of the run; `None` if the run had no heap of its own.
    pub held_bytes: Option<usize>,
    /// The isolation that the contender's transactions promise, if it has transactions.
    #[serde(skip)]
    pub isolation: Option<&'static str>,
    /// Write skews of the whole run, if the isolation permits them and the program counts them.
    pub skews: Option<u64>,
    /// With [`Config::watch`]: shared memory that the program accessed plainly, without announcing the access to the
    /// machine.
    #[serde(skip)]
    pub unannounced: Vec<Unannounced>,
    /// `true` if a second run with the same seed repeats this one exactly, up to its final event:
    /// [`Report::own_heap`](archipelago_sim::Report::own_heap).
    pub repeats: bool,
}

/// The operations of one kind: reads, or updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpTotals {
    /// How many operations ended within the measured span.
    pub ops: u64,
    /// Virtual nanoseconds of the measured span that threads spent in these operations, including operations that did
    /// not end within the span.
    pub ns: u64,
}

/// A thread of the virtual machine.
pub struct Turns<'a> {
    client: Client,
    seed: u64,
    counts: &'a Counts,
    /// When the operation in progress began.
    begun: Option<u64>,
    /// `true` if the latest operation was an update; `None` if the program does not distinguish updates from reads.
    updates: Option<bool>,
    kinds: [OpTotals; 2],
    charge: Charge,
}

/// Counts of all threads of a run.
struct Counts {
    /// The course, from the end of the set-up on.
    course: OnceCell<Course>,
    /// Operations begun.
    turns: Cell<u32>,
    /// Operations of the whole run that did not find a key that is present.
    misses: Cell<u64>,
    kinds: Cell<Option<[OpTotals; 2]>>,
    retry_percent: Cell<Option<f64>>,
    /// The number of updates, and how many attempts were repeated.
    attempts: Cell<Option<(u64, u64)>>,
    /// When the first thread entered the measured span, and the machine's counters at that time.
    at_start: Cell<Option<(u64, Stats)>>,
    /// When the first thread passed the end of the measured span, and the machine's counters at that time.
    at_end: Cell<Option<(u64, Stats)>>,
    /// The bytes that the program held at that time.
    held_bytes: Cell<Option<usize>>,
    /// How many of the bytes do not count.
    tuples: Cell<usize>,
}

impl Counts {
    fn course(&self) -> &Course {
        self.course.get().expect("the set-up has ended")
    }
}

/// Operations, of all threads together, between two checks for Ctrl-C.
const LOOK: u32 = 64;
/// How long a thread that waits for the others works between two looks, in virtual nanoseconds.
const POLL_NS: u64 = 1_000;

impl Turns<'_> {
    /// Returns whether to run another operation. The previous operation has ended; it counts if it ended within the
    /// measured span.
    fn next(&mut self) -> bool {
        if self.begun.is_none() {
            self.wait_for_all();
        }
        let now = self.now();
        let turns = self.counts.turns.get().wrapping_add(1);
        self.counts.turns.set(turns);
        if turns.is_multiple_of(LOOK) && interrupt::requested() {
            self.counts.course().stop();
        }
        let begun = self.begun.replace(now);
        let course = self.counts.course();
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
                // The operation in progress does not count, but its time within the span does.
                if let Some(begun) = begun {
                    let (from, until) = (course.from(), course.until());
                    self.kind().ns += until.saturating_sub(begun.max(from));
                }
                if self.counts.at_end.get().is_none() {
                    self.counts.at_end.set(world::stats().map(|stats| (now, stats)));
                    self.counts.held_bytes.set(world::held_bytes());
                }
                return false;
            }
        }
        true
    }

    /// Waits until all threads are here. A thread that ran operations meanwhile would make the others' sessions later,
    /// and would not be measured.
    fn wait_for_all(&self) {
        let course = self.counts.course();
        course.arrive(self.now());
        while course.is_gathering(self.now()) {
            if interrupt::requested() {
                course.stop();
            }
            world::work(POLL_NS);
        }
    }

    fn now(&self) -> u64 {
        self.client.time().expect("no end of time is configured")
    }

    fn kind(&mut self) -> &mut OpTotals {
        &mut self.kinds[usize::from(self.updates == Some(true))]
    }
}

impl program::Turns for Turns<'_> {
    fn thread(&self) -> usize {
        self.client.index
    }

    fn seed(&self) -> u64 {
        self.seed
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
                Done::Found => {}
                Done::Missed => self.counts.misses.set(self.counts.misses.get() + 1),
            }
            between();
        }
    }

    fn charge(&self) -> Charge {
        self.charge
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
                *all = OpTotals { ops: all.ops + own.ops, ns: all.ns + own.ns };
            }
            self.counts.kinds.set(Some(all));
        }
    }
}

/// Checks that this program can measure the real machine.
///
/// # Errors
/// If the program was built for the virtual machine. In such a build every access to shared memory checks whether it is
/// simulated, which takes time.
pub fn only_native() -> Result<(), Failure> {
    if !SIMULATED {
        return Ok(());
    }
    Err(Failure::new(
        "this program was built for the virtual machine, and measures nothing else; `cargo archipelago bench …` builds and runs \
         the same command for this machine",
    ))
}

/// Checks that this program can run on the virtual machine.
///
/// # Errors
/// If this program was built for the real machine.
pub fn only_simulated() -> Result<(), Failure> {
    if SIMULATED {
        return Ok(());
    }
    Err(Failure::new(
        "this program was built for the real machine; `cargo sim …` builds and runs the same command for the virtual \
         one (what it needs is RUSTFLAGS=\"--cfg archipelago_sim\")",
    ))
}

/// Runs a program once for each variant. First runs `setup`, which takes no virtual time and leaves its cache lines in
/// the third-level caches of their home nodes. All variants have one set-up, and continue from its end ([`Branches`]).
/// Then runs `body` in every thread, with the variant's number. At last calls `check` with this number. `check` returns
/// the write skews if the program counts them, or what is wrong with the state that the threads have left.
///
/// A run fails if it does not end well or leaves an error, if an operation missed a key that is present, or if this
/// program was built for the real machine. (A contender that loses keys would be credited with short operations.)
pub fn run<S>(
    variants: &[Variant],
    config: &Config,
    threads: usize,
    setup: impl FnOnce() -> S,
    body: impl Fn(usize, &S, &mut Turns<'_>),
    check: impl FnOnce(usize, &S) -> Result<Option<u64>, String>,
) -> Vec<Result<Run, Failure>> {
    // The compiler knows the constant. So it makes no simulated versions of the contenders in the build for the real
    // machine.
    if !SIMULATED {
        return variants.iter().map(|_| Err(only_simulated().expect_err("it was not built for it"))).collect();
    }
    let branches = Branches::new(variants.len());
    let variant = || &variants[branches.at()];
    let (course, turns, misses, at_start, at_end, held_bytes, tuples, kinds, retry_percent, attempts) =
        Default::default();
    let counts = Counts { course, turns, misses, kinds, retry_percent, attempts, at_start, at_end, held_bytes, tuples };
    let body = |shared: &S, client: Client| {
        let (begun, updates, kinds) = Default::default();
        let (seed, charge) = (config.seed, variant().charge);
        let mut turns = Turns { client, seed, counts: &counts, begun, updates, kinds, charge };
        body(branches.at(), shared, &mut turns);
    };
    // Setting up takes no virtual time, but leaves its cache lines in the caches.
    let setup = || {
        let shared = setup();
        world::warm_homes();
        world::outside(|| branches.split());
        if branches.at() > 0 {
            world::retime(&variant().machine);
        }
        counts.course.set(Course::new(variant().wish, threads)).expect("one course");
        shared
    };
    let check = |shared| {
        let checked = check(branches.at(), &shared);
        // The process of a branch ends with the run.
        if branches.at() > 0 {
            world::abandon(shared);
        }
        checked
    };
    let (report, checked) = run_with(&variants[0].machine, config, threads, setup, body, check);
    let run = result(report, checked, &counts, (&variant().machine.name, threads));
    let run = run.map(|run| Run { wall: run.wall.saturating_sub(branches.waited()), ..run });
    branches.join(run)
}

/// Returns the results of a run that has ended.
fn result(
    report: Report,
    checked: Option<Result<Option<u64>, String>>,
    counts: &Counts,
    (machine, threads): (&str, usize),
) -> Result<Run, Failure> {
    if report.outcome != Outcome::Done {
        return Err(Failure::new(format!(
            "the simulation with {threads} threads on {machine} ended badly: {} (again with --seed {} --runs 1)",
            report.outcome, report.seed
        )));
    }
    let misses = counts.misses.get();
    let missed = (misses > 0).then(|| format!("{misses} operations missed a key that is present"));
    let skews = checked.unwrap_or(Ok(None)).and_then(|skews| missed.map_or(Ok(skews), Err));
    let skews = skews.map_err(|wrong| {
        Failure::new(format!("the run has left what is wrong: {wrong} (again with --seed {})", report.seed))
    })?;
    let course = counts.course();
    let (ops, measured_ns) = (course.ops(), course.measured_ns());
    // Tuples are counted when the last thread ends, a little later than what is held.
    let untold = || Failure::new("the contender has told of more tuples than it holds");
    let held_bytes = counts.held_bytes.get().map(|bytes| bytes.checked_sub(counts.tuples.get()).ok_or_else(untold));
    let held_bytes = held_bytes.transpose()?;
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
        parts: report.parts.into_iter().map(Cow::Borrowed).collect(),
        wall: report.wall,
        kinds: counts.kinds.get(),
        retry_percent: counts.retry_percent.get(),
        abort_percent: counts.attempts.get().map(|(all, again)| 100.0 * again as f64 / (all + again).max(1) as f64),
        held_bytes,
        isolation: None,
        skews,
        unannounced: report.unannounced,
        repeats: report.own_heap,
    })
}

/// The results of one program with this many threads.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The runs, variation by variation and seed by seed. The runs of the unvaried machine come first.
    pub runs: Vec<Run>,
    /// How many of the runs are of the unvaried machine.
    pub seeds: usize,
}

impl Figures {
    /// Returns the run of the unvaried machine with the first seed.
    pub fn first(&self) -> &Run {
        &self.runs[0]
    }

    /// Returns million operations per virtual second, in the order of `runs`.
    pub fn mops(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.mops).collect()
    }
}

/// Measures with every seed, and with every variation if the setting asks for variations. Returns `None` if the
/// measurement is interrupted.
///
/// # Errors
/// If a run does not end well, or if instructions are to be charged that were not counted for this contender.
pub fn figures(contender: &Contender, setting: &Setting, threads: usize) -> Result<Option<Figures>, Failure> {
    let all = figures_of_all(&[(contender, setting)], threads)?;
    all.map(|all| all.into_iter().next().expect("a contender")).transpose()
}

/// Does what [`figures`] does for several contenders that share a set-up ([`Contender::shares_setup`]), in settings that
/// differ in nothing but [`Setting::wish`] ([`Setting::shares_setup`]). They are set up once for each seed. Returns
/// their figures in order, or `None` if the measurement is interrupted.
///
/// # Errors
/// If instructions are to be charged that were not counted for one of them.
pub fn figures_of_all(
    all: &[(&Contender, &Setting)],
    threads: usize,
) -> Result<Option<Vec<Result<Figures, Failure>>>, Failure> {
    let (first, setting) = all[0];
    let mut branches = Vec::new();
    for (contender, setting) in all {
        for variation in variations(setting) {
            let variant = variant(contender, setting, &variation)?;
            branches.push(Branch { program: &*contender.program, variant });
        }
    }
    let mut by_seed = Vec::new();
    for seed in (0..setting.seeds).map(|run| setting.seed.wrapping_add(run)) {
        // An interrupt is checked for before the runs, since loading takes time, and after them, since a stopped run
        // does not count.
        if interrupt::requested() {
            return Ok(None);
        }
        let runs = first.program.runs(&branches, &Config { seed, ..setting.config() }, threads);
        if interrupt::requested() {
            return Ok(None);
        }
        by_seed.push(runs.into_iter());
    }
    let variants = branches.len() / all.len();
    let figures = |_: &(&Contender, &Setting)| {
        let of_variant =
            |_| by_seed.iter_mut().map(|runs| runs.next().expect("a run of each branch")).collect::<Vec<_>>();
        // Each contender's runs are taken, also after one that failed.
        let runs: Vec<_> = (0..variants).flat_map(of_variant).collect();
        Ok(Figures { runs: runs.into_iter().collect::<Result<_, _>>()?, seeds: setting.seeds as usize })
    };
    Ok(Some(all.iter().map(figures).collect()))
}

/// Returns a variation of the setting for a contender.
///
/// # Errors
/// If instructions are to be charged that were not counted for this contender.
pub fn variant(contender: &Contender, setting: &Setting, variation: &Variation) -> Result<Variant, Failure> {
    let machine = variation.of(&setting.machine);
    let charge = setting.instructions.map(|instructions| {
        let per_cycle = instructions.per_cycle * variation.of_instructions();
        Charge::of(&contender.name, &machine, Instructions { per_cycle, ..instructions })
    });
    Ok(Variant { machine, charge: charge.transpose()?.unwrap_or_default(), wish: setting.wish })
}

/// Returns how many figures a row has: one for each variation that is measured and each seed.
pub fn cells(setting: &Setting) -> usize {
    setting.seeds as usize * variations(setting).len()
}

/// Returns the variations of the model that are measured, in this order. The first one changes nothing, and without a
/// sweep there is no other.
pub fn variations(setting: &Setting) -> Vec<Variation> {
    let is_none = |it: &Variation| it.instructions == 0.0 && it.of(&setting.machine) == setting.machine;
    let charged = Variation::of_charges().filter(|_| setting.instructions.is_some());
    let (same, varied): (Vec<Variation>, Vec<Variation>) = Variation::all().chain(charged).partition(is_none);
    same.into_iter().take(1).chain(varied.into_iter().filter(|_| setting.sweep)).collect()
}

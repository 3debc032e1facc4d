//! `sim papers`: compares what papers state with the results of the virtual machine (a simulator).
//!
//! A paper is a file of data (`papers/*.toml`). It contains the paper's figures, each with an experiment of this
//! command, and the orderings that the paper (or this project) states about the figure, with their section. None of
//! this is in the program. So a reader can check the file against the paper, and the table against the file.

mod cells;
mod compare;
mod count;
mod data;
mod done;
mod file;
mod jobs;
mod repeat;
mod split;
mod table;
mod verdict;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use super::experiment::{check_threads, common, contenders, setting};
use super::limits;
use super::row::row;
use super::sink::{Out, Stamps};
use crate::args::{Cli, Command, Sim, SimPapers};
use crate::failure::Failure;
use crate::harness::simulated::{self, Contender, Setting, only_simulated};
use crate::interrupt;
use crate::output::{emit, tell};
use crate::report::row::Row;
use crate::report::try_to_write;
use data::{Claim, Figure, Paper, Side};
use done::{Done, Rows};
use repeat::{MEASURED_BY, Others};

/// Runs the experiments and writes the table.
///
/// # Errors
/// If a file is not valid, or a simulation ends badly. The tables of the other papers are written all the same, and the
/// table of this one if `--write` has none of it yet.
pub fn execute(args: &SimPapers) -> Result<ExitCode, Failure> {
    let papers = data::read(&args.folder, args.only.as_deref())?;
    if !args.judge {
        only_simulated()?;
    }
    if let Some(path) = &args.write {
        check_file(path, &papers, args)?;
    }
    check(&papers, args)?;
    let open = if args.judge { Out::open_to_read } else { Out::open };
    let mut out = args.out.as_deref().map(open).transpose()?;
    let programs = Programs::of(args)?;
    interrupt::install();
    if let Some(out) = out.as_mut().filter(|_| !args.cell.is_empty()) {
        return cells::measure(&papers, args, &programs, out);
    }
    if let Some(out) = out.as_mut().filter(|_| args.later.is_some() || args.sizes) {
        compare::compare(&papers, args, &programs, out)?;
        return Ok(if interrupt::requested() { interrupt::exit_code() } else { ExitCode::SUCCESS });
    }
    out.as_ref().map(|out| tell_of_unknown(&papers, args, out)).transpose()?;
    if let Some((out, jobs)) = out.as_mut().zip(args.jobs) {
        jobs::measure(&papers, args, jobs, &programs.own, out)?;
    }
    let Tables { sections, failures, not_run } = tables(&papers, args, &programs, &mut out)?;
    if let Some(out) = out.as_ref().filter(|_| args.judge && !not_run.is_empty()) {
        tell_or_refuse(&not_run, args, out)?;
    }
    match &args.write {
        Some(path) if !sections.is_empty() => file::update(path, &sections)?,
        Some(_) => {}
        None => {
            let text = file::with("", &sections).expect("a new file");
            emit(|mut out| std::io::Write::write_all(&mut out, text.as_bytes()))?;
        }
    }
    match failures.first() {
        Some(first) => Err(Failure::new(first.clone())),
        None if interrupt::requested() => Ok(interrupt::exit_code()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The tables of some papers.
#[derive(Default)]
struct Tables {
    sections: Vec<String>,
    /// Messages about runs that failed, and claims that cannot be judged.
    failures: Vec<String>,
    /// For each paper of whose claims some have no rows: how many, in words.
    not_run: Vec<String>,
}

/// Measures what is missing, and makes the papers' tables. For `--write` an incomplete table is left out if it would
/// replace another one, or if the run was interrupted.
fn tables(papers: &[Paper], args: &SimPapers, programs: &Programs, out: &mut Option<Out>) -> Result<Tables, Failure> {
    let page = args.write.as_deref().map_or(Ok(String::new()), file::read)?;
    let mut tables = Tables::default();
    for paper in papers {
        let mut done = Vec::new();
        for figure in chosen(paper, args) {
            tell(format!("{}, {}: {}", paper.key, figure.name, figure.what));
            done.push(judged(paper, figure, args, programs, out)?);
        }
        let (not_run, uncounted) = (claims_not_run(paper, &done), uncounted(paper, &done));
        let has_gaps = not_run.is_some() || !uncounted.is_empty();
        let is_kept = has_gaps && file::has(&page, &paper.key);
        if let Some(path) = args.write.as_ref().filter(|_| is_kept && !args.judge) {
            tell(format!("{}: its section in {} stays as it is", paper.key, path.display()));
        }
        tables.failures.extend(done.iter().flat_map(|done| done.failures.clone()).chain(uncounted));
        tables.not_run.extend(not_run);
        if !done.is_empty() && (args.write.is_none() || !is_kept && !interrupt::requested()) {
            tables.sections.push(table::paper(paper, &done, args));
        }
    }
    Ok(tables)
}

/// Reports that the file of `--write` cannot be written, or that some figures would replace a section of all.
fn check_file(path: &Path, papers: &[Paper], args: &SimPapers) -> Result<(), Failure> {
    let text = file::read(path)?;
    try_to_write(path)?;
    let mut written = papers.iter().filter(|paper| chosen(paper, args).next().is_some());
    match written.find(|paper| args.figure.is_some() && file::has_whole(&text, &paper.key)) {
        None => Ok(()),
        Some(paper) => Err(Failure::new(format!(
            "--figure: its tables would replace the section in {} of all figures of {}; give --write another file",
            path.display(),
            paper.key
        ))),
    }
}

/// Reports invalid arguments and data before anything runs.
fn check(papers: &[Paper], args: &SimPapers) -> Result<(), Failure> {
    let figures = || papers.iter().flat_map(|paper| chosen(paper, args).map(move |figure| (paper, figure)));
    if figures().next().is_none() {
        return Err(nothing_chosen(args));
    }
    if let Some(more) = args.more_runs.filter(|more| *more <= args.runs) {
        return Err(Failure::new(format!("--more-runs {more}: --runs {} are not fewer", args.runs)));
    }
    // The process of one measurement knows one paper, and the texts may be for others.
    let mut texts = args.sweep.iter().filter(|_| args.cell.is_empty()).flat_map(|texts| texts.split(';'));
    if let Some(text) = texts.find(|text| !papers.iter().any(|paper| sweeps_some(text, paper))) {
        return Err(Failure::new(format!(
            "--sweep {}: no figure of these papers has that in its paper and name",
            text.trim()
        )));
    }
    // The process of one measurement plans its own figures. What the others need is not its concern: their memory may
    // be in use by the processes beside this one.
    if !args.cell.is_empty() {
        return Ok(());
    }
    figures().try_for_each(|(paper, figure)| plan(paper, figure, args).map(|_| ()))
}

/// Returns how many of a paper's claims have no rows, in words, if some have none.
fn claims_not_run(paper: &Paper, done: &[Done<'_>]) -> Option<String> {
    let claims = || done.iter().flat_map(|done| done.figure.claim.iter().map(move |claim| (done, claim)));
    let missing = claims().filter(|(done, claim)| !done.has_rows(claim)).count();
    (missing > 0).then(|| format!("{missing} of {} claims of {}", claims().count(), paper.key))
}

/// Returns a message for each claim whose rows lack the count by which it compares.
fn uncounted(paper: &Paper, done: &[Done<'_>]) -> Vec<String> {
    let claims = done.iter().flat_map(|done| done.figure.claim.iter().map(move |claim| (done, claim)));
    let uncounted = claims.filter(|(done, claim)| done.has_rows(claim) && done.finding(claim).is_none());
    let message = |(done, claim): (&Done<'_>, &Claim)| {
        let (figure, count) = (&done.figure.name, claim.by.name());
        format!(
            "{}, {figure}: {} ahead of {}: rows of this experiment do not count `{count}`",
            paper.key, claim.ahead, claim.behind
        )
    };
    uncounted.map(message).collect()
}

/// Tells which programs of `--from` have no rows. Whatever they should have measured will be measured again.
fn tell_of_unknown(papers: &[Paper], args: &SimPapers, out: &Out) -> Result<(), Failure> {
    for name in &args.from {
        let stamps = stamps_of("--from", name)?;
        let mut plans =
            papers.iter().flat_map(|paper| chosen(paper, args).map(move |figure| plan(paper, figure, args)));
        if !plans.any(|plan| plan.is_ok_and(|plan| !plan.found(&stamps, out).is_empty())) {
            tell(format!("--from {name}: --out has no rows of this program for these figures and options"));
        }
    }
    Ok(())
}

/// Tells that `--judge` has no rows for some claims. A table that does not judge them must not replace one that does.
fn tell_or_refuse(not_run: &[String], args: &SimPapers, out: &Out) -> Result<(), Failure> {
    let path = args.out.as_deref().unwrap_or(Path::new("")).display();
    let by = table::by_program(out.rows().filter_map(|fields| fields.get(MEASURED_BY)?.as_str()));
    let by = if by.is_empty() { "none of them taken over".to_owned() } else { format!("some taken over: {by}") };
    let said = format!(
        "--judge: no rows of the program {} for {}; --out {path} has {} rows ({by}); a row counts with the --program, \
         --sweep, --runs, --seed and --paper with which it was measured or taken over",
        args.program.as_deref().unwrap_or_default(),
        not_run.join(", "),
        out.rows().count()
    );
    match &args.write {
        Some(path) => Err(Failure::new(format!(
            "{said}; {} stays as it is, and without --write the table is printed",
            path.display()
        ))),
        None => {
            tell(said);
            Ok(())
        }
    }
}

/// The programs that the arguments name.
struct Programs {
    /// The program to which new rows belong.
    own: Stamps,
    others: Others,
}

impl Programs {
    fn of(args: &SimPapers) -> Result<Self, Failure> {
        let own = args.program.as_ref().map_or_else(|| Ok(Stamps::own()), |name| stamps_of("--program", name))?;
        Ok(Programs { own, others: Others::named(&args.from)? })
    }
}

/// Returns the stamps of the program that an option names.
fn stamps_of(option: &str, program: &str) -> Result<Stamps, Failure> {
    Stamps::of_program(program).map_err(|error| Failure::new(format!("{option} {program}: {error}")))
}

/// Returns the figures that the arguments choose. With `--sizes` these have one size in the paper and another here.
fn chosen<'a>(paper: &'a Paper, args: &'a SimPapers) -> impl Iterator<Item = &'a Figure> {
    let is_named = |figure: &&Figure| args.figure.as_ref().is_none_or(|part| figure.name.contains(part));
    let has_sizes = |figure: &&Figure| !args.sizes || figure.paper != figure.small;
    paper.figure.iter().filter(is_named).filter(has_sizes)
}

fn nothing_chosen(args: &SimPapers) -> Failure {
    Failure::new(match (&args.figure, args.sizes) {
        (Some(part), false) => format!("--figure {part}: no figure of these papers has that in its name"),
        (Some(part), true) => {
            format!("--sizes: no figure with `{part}` in its name has another size here than in its paper")
        }
        (None, true) => "--sizes: no figure of these papers has another size here than in its paper".to_owned(),
        (None, false) => "these papers have no figures".to_owned(),
    })
}

/// The measurements that a figure's claims need.
struct Plan {
    command: String,
    setting: Setting,
    contenders: Vec<Contender>,
    /// The sides that claims compare, each with the position of its contender in the list.
    sides: Vec<(Side, usize)>,
}

impl Plan {
    /// Returns the rows of `out` that the program with these stamps has measured.
    fn found(&self, stamps: &Stamps, out: &Out) -> Rows {
        let stamp = stamps.of(&self.setting);
        let row =
            |(side, place): &(Side, usize)| out.done(&stamp, &self.contenders[*place], side.threads, &self.setting);
        self.sides.iter().filter_map(|side| Some((side.0.clone(), row(side)?))).collect()
    }
}

fn plan(paper: &Paper, figure: &Figure, args: &SimPapers) -> Result<Plan, Failure> {
    let command = command(paper, figure, args);
    let failed = |what: String| Failure::new(format!("{}, {}: {what}", paper.key, figure.name));
    let planned = || -> Result<Plan, Failure> {
        let what = parse(&command)?;
        let mut setting = setting(common(&what)?, &what)?;
        let times = args.later.map_or(1, |times| times as u64);
        setting.wish.warm_ns = setting.wish.warm_ns.map(|ns| ns.saturating_mul(times));
        let threads = sides(figure).iter().map(|side| side.threads).max().unwrap_or(1);
        if !args.judge {
            limits::check(&what, &setting.machine, threads)?;
        }
        let contenders = contenders(&what)?;
        let mut planned = Vec::new();
        for side in sides(figure) {
            check_threads(side.threads, &setting.machine)?;
            let mut found = (0..contenders.len()).filter(|&at| side.is(&contenders[at]));
            let first = found.next().ok_or_else(|| Failure::new(format!("no contender {}", side.title())))?;
            if found.next().is_some() {
                return Err(Failure::new(format!("several contenders are {}: `at` says which one", side.title())));
            }
            planned.push((side, first));
        }
        Ok(Plan { command: command.clone(), setting, contenders, sides: planned })
    };
    planned().map_err(|failure| failed(failure.to_string()))
}

/// Measures what a figure's claims need and `out` lacks, or nothing with `--judge`. Returns all of the figure's rows.
fn judged<'a>(
    paper: &Paper,
    figure: &'a Figure,
    args: &SimPapers,
    programs: &Programs,
    out: &mut Option<Out>,
) -> Result<Done<'a>, Failure> {
    let mut rows = |plan: &Plan| match &mut *out {
        Some(out) if args.judge => Ok((plan.found(&programs.own, out), Vec::new())),
        _ => run(plan, programs, out),
    };
    let plan = self::plan(paper, figure, args)?;
    let (first, failures) = rows(&plan)?;
    let mut done = Done::of(figure, &plan, first);
    done.failures = failures;
    if let Some(again) = again(args) {
        let mut plan = self::plan(paper, figure, &again)?;
        let open = done.open_sides();
        plan.sides.retain(|(side, _)| open.contains(side));
        let (more, failures) = rows(&plan)?;
        done.more = more;
        done.failures.extend(failures);
    }
    Ok(done)
}

/// Returns the arguments by which unresolved orderings are measured again, if `--more-runs` asks for it.
fn again(args: &SimPapers) -> Option<SimPapers> {
    args.more_runs.map(|runs| SimPapers { runs, more_runs: None, ..args.clone() })
}

/// Runs measurements. Returns their rows, and messages about those that failed.
fn run(plan: &Plan, programs: &Programs, out: &mut Option<Out>) -> Result<(Rows, Vec<String>), Failure> {
    let stamp = programs.own.of(&plan.setting);
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (side, place) in &plan.sides {
        let contender = &plan.contenders[*place];
        if let Some(row) = out.as_ref().and_then(|out| out.done(&stamp, contender, side.threads, &plan.setting)) {
            rows.push((side.clone(), row));
            continue;
        }
        match repeated_or_measured(contender, side.threads, &plan.setting, &programs.others, out.as_ref()) {
            Ok(None) => break,
            Ok(Some(row)) => {
                out.as_mut().map(|out| out.append(&row, &stamp)).transpose()?;
                rows.push((side.clone(), row));
            }
            Err(failure) => failures.push(failure.to_string()),
        }
    }
    Ok((rows, failures))
}

/// Returns a row of another program that this program repeats, or measures one.
fn repeated_or_measured(
    contender: &Contender,
    threads: usize,
    setting: &Setting,
    others: &Others,
    out: Option<&Out>,
) -> Result<Option<Row>, Failure> {
    let theirs = out.map_or(Vec::new(), |out| others.rows(contender, threads, setting, out));
    if !theirs.is_empty() {
        let Some(again) = measured(contender, threads, &repeat::once(setting))? else { return Ok(None) };
        if let Some(row) = repeat::repeated(theirs, &again) {
            return Ok(Some(row));
        }
    }
    measured(contender, threads, setting)
}

fn measured(contender: &Contender, threads: usize, setting: &Setting) -> Result<Option<Row>, Failure> {
    let figures = simulated::figures(contender, setting, threads)?;
    Ok(figures.map(|figures| row(contender, threads, &figures, setting)))
}

/// Returns the sides to measure, each once.
fn sides(figure: &Figure) -> Vec<Side> {
    let mut sides: Vec<Side> = Vec::new();
    for side in figure.claim.iter().flat_map(|claim| claim.needed(figure)) {
        if !sides.contains(&side) {
            sides.push(side);
        }
    }
    sides
}

/// Returns the experiment's command line.
fn command(paper: &Paper, figure: &Figure, args: &SimPapers) -> String {
    let mut names: Vec<String> = Vec::new();
    for side in sides(figure) {
        if !names.contains(&side.name) {
            names.push(side.name);
        }
    }
    let option = match figure.run.split_whitespace().next() {
        Some("nr") => "--method",
        Some("ycsb" | "euno") => "--index",
        Some("sets") => "--mechanism",
        Some("txn") => "--store",
        Some("cache") => "--cache",
        Some("ranges") => "--space",
        Some("blink") => "--technique",
        _ => "--lock",
    };
    let mut command = format!("{} {option} {} --machine {}", figure.run, names.join(","), figure.machine(paper));
    let sizes = if args.paper || args.sizes { &figure.paper } else { &figure.small };
    for (name, value) in
        [("", sizes.as_str()), ("--seed ", &args.seed.to_string()), ("--runs ", &args.runs.to_string())]
    {
        if !value.is_empty() {
            command += &format!(" {name}{value}");
        }
    }
    if is_swept(paper, figure, args) { command + " --sweep" } else { command }
}

/// Returns whether the model is varied for a figure.
fn is_swept(paper: &Paper, figure: &Figure, args: &SimPapers) -> bool {
    args.sweep.as_ref().is_some_and(|texts| texts.split(';').any(|text| sweeps(text, paper, figure)))
}

/// Returns whether a text of `--sweep` names a figure.
fn sweeps(text: &str, paper: &Paper, figure: &Figure) -> bool {
    format!("{}, {}", paper.key, figure.name).contains(text.trim())
}

/// Returns whether a text of `--sweep` names a figure of a paper.
fn sweeps_some(text: &str, paper: &Paper) -> bool {
    paper.figure.iter().any(|figure| sweeps(text, paper, figure))
}

/// Parses the arguments of an experiment.
fn parse(command: &str) -> Result<Sim, Failure> {
    let words = ["archipelago", "sim"].into_iter().chain(command.split_whitespace());
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Some(Command::Sim { what }) }) => Ok(*what),
        Ok(_) => Err(Failure::new(format!("`sim {command}` is no experiment"))),
        Err(error) => {
            let why = error.to_string();
            Err(Failure::new(format!("`sim {command}`: {}", why.lines().next().unwrap_or_default())))
        }
    }
}

#[cfg(test)]
mod tests;

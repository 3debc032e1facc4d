//! `--cell`: measures rows that share a set-up, for the process that `--jobs` has started for them.

use std::process::ExitCode;

use super::data::Paper;
use super::{Plan, Programs, chosen, plan, repeat};
use crate::args::{Cell, SimPapers};
use crate::failure::Failure;
use crate::harness::simulated::{self, Contender, Figures, Setting};
use crate::interrupt;
use crate::sim::row::row;
use crate::sim::sink::Out;

/// A row to measure: a plan with one side, and its threads.
type One = (Plan, usize);

/// Measures the sides of figures' claims that `--cell` names, which share a set-up, and leaves their rows in `out`.
pub fn measure(papers: &[Paper], args: &SimPapers, programs: &Programs, out: &mut Out) -> Result<ExitCode, Failure> {
    let no_cell = |cell: &Cell| Failure::new(format!("--cell {cell}: no such side of a figure"));
    let mut plans: Vec<One> = Vec::new();
    for cell in &args.cell {
        let found = papers.first().and_then(|paper| Some((paper, chosen(paper, args).nth(cell.figure)?)));
        let (paper, figure) = found.ok_or_else(|| no_cell(cell))?;
        let mut plan = plan(paper, figure, args)?;
        plan.sides = plan.sides.into_iter().skip(cell.side).take(1).collect();
        let threads = plan.sides.first().ok_or_else(|| no_cell(cell))?.0.threads;
        // A row that this program has measured in the meantime is not measured again.
        if plan.found(&programs.own, out).is_empty() {
            plans.push((plan, threads));
        }
    }
    if plans.iter().skip(1).any(|plan| !share_setup(begin(&plans[0]), begin(plan))) {
        return Err(Failure::new("--cell: these do not share a set-up"));
    }
    let Some(plans) = take_over(plans, programs, out)? else { return Ok(interrupt::exit_code()) };
    let Some(figures) = figures_of(&plans, Setting::clone)? else { return Ok(interrupt::exit_code()) };
    let mut failed = None;
    for ((plan, threads), figures) in plans.iter().zip(figures) {
        match figures {
            Ok(figures) => {
                let row = row(one(plan), *threads, &figures, &plan.setting);
                out.append(&row, &programs.own.of(&plan.setting))?;
            }
            Err(failure) => failed = failed.or(Some(failure)),
        }
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Returns the contender of a plan's only side.
fn one(plan: &Plan) -> &Contender {
    &plan.contenders[plan.sides[0].1]
}

/// What a measurement begins with: a contender, its setting, and its threads.
pub type Begin<'a> = (&'a Contender, &'a Setting, usize);

/// Returns whether two measurements begin with the same set-up.
pub fn share_setup((first, its, its_threads): Begin<'_>, (second, setting, threads): Begin<'_>) -> bool {
    its_threads == threads && first.shares_setup(second) && its.shares_setup(setting)
}

fn begin((plan, threads): &One) -> Begin<'_> {
    (one(plan), &plan.setting, *threads)
}

/// Measures rows with one set-up, each in what `setting` makes of its setting. Returns `None` after an interrupt.
fn figures_of(
    plans: &[One],
    setting: impl Fn(&Setting) -> Setting,
) -> Result<Option<Vec<Result<Figures, Failure>>>, Failure> {
    let Some((_, threads)) = plans.first() else { return Ok(Some(Vec::new())) };
    let settings: Vec<Setting> = plans.iter().map(|(plan, _)| setting(&plan.setting)).collect();
    let all: Vec<_> = plans.iter().zip(&settings).map(|((plan, _), setting)| (one(plan), setting)).collect();
    simulated::figures_of_all(&all, *threads)
}

/// Takes over the rows of other programs that this program repeats, with one set-up for all of them. Returns what is left
/// to measure, or `None` after an interrupt.
fn take_over(plans: Vec<One>, programs: &Programs, out: &mut Out) -> Result<Option<Vec<One>>, Failure> {
    let theirs = |(plan, threads): &One| programs.others.rows(one(plan), *threads, &plan.setting, out);
    let (mut left, mut known, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for plan in plans {
        match theirs(&plan) {
            none if none.is_empty() => left.push(plan),
            some => {
                known.push(plan);
                rows.push(some);
            }
        }
    }
    let Some(figures) = figures_of(&known, repeat::once)? else { return Ok(None) };
    for ((plan, rows), figures) in known.into_iter().zip(rows).zip(figures) {
        let setting = &plan.0.setting;
        // A run that fails repeats nothing. The measurement will report the failure, and the other rows are not lost.
        let again = figures.ok().map(|figures| row(one(&plan.0), plan.1, &figures, &repeat::once(setting)));
        match again.and_then(|again| repeat::repeated(rows, &again)) {
            Some(row) => out.append(&row, &programs.own.of(setting))?,
            None => left.push(plan),
        }
    }
    Ok(Some(left))
}

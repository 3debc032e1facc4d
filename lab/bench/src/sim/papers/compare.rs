//! `--later` and `--sizes`: measure the papers' rows again, with warm-ups that are longer by a factor or at the papers'
//! sizes, and report what changes.
//!
//! A run that is measured before its steady state compares other things than the paper does: pools that grow, caches and
//! logs that fill, queues of locks that have not formed. A figure that a longer warm-up changes asks for a longer
//! warm-up in the paper's file, unless the workload itself changes with time, as one that only inserts does. In the same
//! way, a figure that the paper's size changes says what the small size does not show.

use super::data::{Claim, Figure, Paper, Side};
use super::done::{Rows, first};
use super::verdict::judge;
use super::{Programs, chosen, jobs, plan};
use crate::args::SimPapers;
use crate::failure::Failure;
use crate::output::print;
use crate::report::digits;
use crate::report::table::grid;
use crate::sim::measure::Measure;
use crate::sim::sink::Out;

/// By how much of itself a figure may change without being reported.
const CHANGED: f64 = 0.1;

/// Measures, for the first seed on the machine as it is, what `out` lacks of the other rows; with `--judge` nothing.
/// Prints the figures that differ from those of the usual rows, which the same arguments without `--later` and `--sizes`
/// measured, and the orderings that are so in only one of the two.
///
/// # Errors
/// If `out` has no rows to compare with or cannot be read, or a process cannot be started.
pub fn compare(papers: &[Paper], args: &SimPapers, programs: &Programs, out: &mut Out) -> Result<(), Failure> {
    let usual = SimPapers { later: None, sizes: false, ..args.clone() };
    let other = SimPapers { sweep: None, runs: 1, more_runs: None, ..args.clone() };
    let figures = || papers.iter().flat_map(|paper| chosen(paper, args).map(move |figure| (paper, figure)));
    let rows =
        |(paper, figure), args, out: &Out| Ok::<_, Failure>(plan(paper, figure, args)?.found(&programs.own, out));
    let there: Vec<Rows> = figures().map(|figure| rows(figure, &usual, out)).collect::<Result<_, _>>()?;
    if there.iter().all(Vec::is_empty) {
        return Err(Failure::new(
            "--later, --sizes: --out has none of the rows to compare with; measure them first, with the same --program, \
             --sweep, --runs and --seed",
        ));
    }
    if !args.judge {
        jobs::measure(papers, &other, args.jobs.unwrap_or(1), &programs.own, out)?;
    }
    let mut changes = Changes::default();
    for (figure, usual) in figures().zip(&there) {
        changes.add(figure.0, figure.1, usual, &rows(figure, &other, out)?);
    }
    print(changes.text(&otherwise(args)))?;
    Ok(())
}

/// Returns how the other rows are measured.
fn otherwise(args: &SimPapers) -> String {
    let parts = [
        args.later.map(|times| format!("warm-ups {times} times as long")),
        args.sizes.then(|| "the papers' sizes".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What differs between the usual rows and the others.
#[derive(Default)]
struct Changes {
    figures: Compared<Vec<String>>,
    orderings: Compared<String>,
}

/// Things that both kinds of rows have, or lack.
#[derive(Default)]
struct Compared<T> {
    /// How many both kinds of rows have.
    both: usize,
    /// How many are in only one kind or in none.
    missing: usize,
    /// Those that differ.
    changed: Vec<T>,
}

impl Changes {
    fn add(&mut self, paper: &Paper, figure: &Figure, usual: &Rows, other: &Rows) {
        let mut seen: Vec<(Side, Measure)> = Vec::new();
        for claim in &figure.claim {
            for side in claim.needed(figure) {
                if !seen.contains(&(side.clone(), claim.by)) {
                    self.add_figure(paper, figure, &side, claim.by, [usual, other]);
                    seen.push((side, claim.by));
                }
            }
            self.add_ordering(paper, figure, claim, [usual, other]);
        }
    }

    fn add_figure(&mut self, paper: &Paper, figure: &Figure, side: &Side, by: Measure, rows: [&Rows; 2]) {
        let [Some(usual), Some(other)] = rows.map(|rows| value(rows, side, by)) else {
            self.figures.missing += 1;
            return;
        };
        self.figures.both += 1;
        if (other - usual).abs() > CHANGED * usual.abs() {
            let names = [format!("{}, {}", paper.key, figure.name), side.title(), side.threads.to_string()];
            let figures = [digits(usual), digits(other), format!("{:.2}", other / usual)];
            self.figures.changed.push(names.into_iter().chain([by.title().to_owned()]).chain(figures).collect());
        }
    }

    fn add_ordering(&mut self, paper: &Paper, figure: &Figure, claim: &Claim, rows: [&Rows; 2]) {
        let is_so = |rows: &Rows| {
            let [ahead, behind] = claim.figures(figure, |side| Some(vec![value(rows, side, claim.by)?]))?;
            Some(judge(claim, &ahead, &behind, false).so == 1)
        };
        let [Some(usual), Some(other)] = rows.map(is_so) else {
            self.orderings.missing += 1;
            return;
        };
        self.orderings.both += 1;
        if usual != other {
            let [ahead, behind] =
                claim.sides(figure).map(|side| format!("{} with {} threads", side.title(), side.threads));
            let says = if other { "so only in the second" } else { "so only in the first" };
            let (by, since) = (claim.by.title(), claim.since_title());
            let line = format!("{says}: {}, {}: {ahead} ÷ {behind}, {by}{since}", paper.key, figure.name);
            self.orderings.changed.push(line);
        }
    }

    fn text(&self, otherwise: &str) -> String {
        let head = ["figure", "contender", "threads", "", "first", "second", "ratio"].map(str::to_owned).to_vec();
        let mut text = String::new();
        let Changes { figures, orderings } = self;
        if !figures.changed.is_empty() {
            text = format!("{}\n", grid(head, figures.changed.clone()));
        }
        orderings.changed.iter().for_each(|line| text += &format!("{line}\n"));
        text + &format!(
            "First the rows without these options, second: {otherwise}; one seed, the machine as it is. {} of {} figures differ by \
             more than {} %, {} of {} orderings are so in only one of the two. Without both rows: {} figures, {} orderings.",
            figures.changed.len(),
            figures.both,
            100.0 * CHANGED,
            orderings.changed.len(),
            orderings.both,
            figures.missing,
            orderings.missing,
        )
    }
}

/// Returns a side's figure on the machine as it is, with the first seed.
fn value(rows: &Rows, side: &Side, by: Measure) -> Option<f64> {
    first(&rows.iter().find(|(of, _)| of == side)?.1, by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::row::{Cell, Row};
    use crate::sim::SIMULATED;
    use crate::sim::papers::tests::{TINY, args, one};
    use crate::sim::papers::{data, execute};

    fn rows(figure: &Figure, mops: [f64; 4]) -> Rows {
        let row = |(side, mops): (Side, f64)| {
            let mut row = Row::new(&side.name, side.threads, &Cell::of("sections"), Vec::new());
            row.seeds = vec![mops];
            row.counts.insert("remote".to_owned(), vec![1.0]);
            (side, row)
        };
        crate::sim::papers::sides(figure).into_iter().zip(mops).map(row).collect()
    }

    /// What changes by a tenth at most is not reported, and an ordering is reported in which direction it changes.
    #[test]
    fn what_changes_is_reported() {
        let folder = one("changes", TINY);
        let paper = &data::read(&folder, None).unwrap()[0];
        let figure = &paper.figure[0];
        let changes = |usual, other| {
            let mut changes = Changes::default();
            changes.add(paper, figure, &rows(figure, usual), &rows(figure, other));
            changes.text("other rows")
        };
        let text = changes([10.0, 5.0, 8.0, 4.0], [10.9, 5.0, 7.3, 4.0]);
        assert!(text.contains("second: other rows; ") && text.contains(". 0 of 6 figures differ"), "{text}");
        assert!(text.contains("0 of 3 orderings"), "{text}");
        let text = changes([10.0, 5.0, 8.0, 4.0], [4.0, 5.0, 3.0, 4.0]);
        assert!(text.contains(". 2 of 6 figures differ") && text.contains("0.40") && text.contains("0.38"), "{text}");
        assert!(
            text.contains("so only in the first: tiny, Figure 1: `ttas` with 1 threads ÷ `ttas` with 2 threads, "),
            "{text}"
        );
        assert!(changes([4.0, 5.0, 8.0, 4.0], [6.0, 5.0, 8.0, 4.0]).contains("so only in the second: "));
        let mut changes = Changes::default();
        changes.add(paper, figure, &rows(figure, [1.0; 4]), &Vec::new());
        assert!(changes.text("").contains("Without both rows: 6 figures, 3 orderings."));
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Rows with longer warm-ups, or at the papers' sizes, are measured beside the usual ones, and only once.
    #[test]
    fn other_rows_are_rows_of_their_own() {
        if !SIMULATED {
            return;
        }
        let sized = "--warm 10\"\npaper = \"--min-ops 7\"\nsmall = \"--min-ops 5\"";
        let folder = one("other-rows", &TINY.replace("--warm 0 --min-ops 0\"", sized));
        let out = folder.join("rows");
        let usual = SimPapers { out: Some(out.clone()), program: Some("p".to_owned()), ..args(&folder) };
        execute(&usual).unwrap();
        let later = SimPapers { later: Some(3), ..usual.clone() };
        let sizes = SimPapers { sizes: true, ..usual.clone() };
        for other in [later, sizes] {
            let of_no_rows = SimPapers { program: Some("q".to_owned()), ..other.clone() };
            assert!(execute(&of_no_rows).unwrap_err().to_string().contains("--out has none of the rows"));
            for side in 0..4 {
                let cell = vec![crate::args::Cell { figure: 0, side }];
                execute(&SimPapers { cell, ..other.clone() }).unwrap();
            }
            execute(&SimPapers { judge: true, ..other }).unwrap();
        }
        let text = std::fs::read_to_string(&out).unwrap();
        let with = |field: &str| text.lines().filter(|line| line.contains(&format!("\"{field},"))).count();
        let counts = [with("warm\":10"), with("warm\":30"), with("least_ops\":5"), with("least_ops\":7")];
        assert_eq!((text.lines().count(), counts), (12, [8, 4, 8, 4]), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Only the figures with two sizes are measured at the papers' sizes.
    #[test]
    fn figures_without_sizes_are_not_chosen() {
        let folder = one("no-sizes", TINY);
        let all = SimPapers { sizes: true, out: Some(folder.join("rows")), judge: true, ..args(&folder) };
        let some = SimPapers { figure: Some("Figure 1".to_owned()), ..all.clone() };
        for (args, says) in [(all, "--sizes: no figure of these papers"), (some, "--sizes: no figure with `Figure 1`")]
        {
            let failure = execute(&args).unwrap_err().to_string();
            assert!(failure.contains(says), "{failure}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}

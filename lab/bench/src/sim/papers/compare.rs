//! `--later`: measures the papers' rows again, with warm-ups that are longer by a factor, and reports what changes.
//!
//! A run that is measured before its steady state compares other things than the paper does: pools that grow, caches and
//! logs that fill, queues of locks that have not formed. A figure that a longer warm-up changes asks for a longer
//! warm-up in the paper's file, unless the workload itself changes with time, as one that only inserts does.

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

/// Measures, for the first seed on the machine as it is, what `out` lacks of the later rows; with `--judge` nothing.
/// Prints the figures that differ from those of the rows without `--later`, and the orderings that are so in only one of
/// the two.
///
/// # Errors
/// If `out` has no rows to compare with or cannot be read, or a process cannot be started.
pub fn compare(papers: &[Paper], args: &SimPapers, programs: &Programs, out: &mut Out) -> Result<(), Failure> {
    let usual = SimPapers { later: None, ..args.clone() };
    let later = SimPapers { sweep: None, runs: 1, more_runs: None, ..args.clone() };
    let figures = || papers.iter().flat_map(|paper| chosen(paper, args).map(move |figure| (paper, figure)));
    let rows =
        |(paper, figure), args, out: &Out| Ok::<_, Failure>(plan(paper, figure, args)?.found(&programs.own, out));
    let there: Vec<Rows> = figures().map(|figure| rows(figure, &usual, out)).collect::<Result<_, _>>()?;
    if there.iter().all(Vec::is_empty) {
        return Err(Failure::new(
            "--later: --out has none of the rows to compare with; measure them first, with the same --program, --sweep, --runs \
             and --seed",
        ));
    }
    if !args.judge {
        jobs::measure(papers, &later, args.jobs.unwrap_or(1), &programs.own, out)?;
    }
    let mut changes = Changes::default();
    for (figure, usual) in figures().zip(&there) {
        changes.add(figure.0, figure.1, usual, &rows(figure, &later, out)?);
    }
    print(changes.text(args.later.unwrap_or(1)))?;
    Ok(())
}

/// What differs between rows and later rows.
#[derive(Default)]
struct Changes {
    figures: Vec<Vec<String>>,
    orderings: Vec<String>,
    /// How many figures and orderings both kinds of rows have, and how many are in only one kind or in none.
    compared: [usize; 2],
    missing: [usize; 2],
}

impl Changes {
    fn add(&mut self, paper: &Paper, figure: &Figure, usual: &Rows, later: &Rows) {
        let mut seen: Vec<(Side, Measure)> = Vec::new();
        for claim in &figure.claim {
            for side in claim.sides(figure) {
                if !seen.contains(&(side.clone(), claim.by)) {
                    self.add_figure(paper, figure, &side, claim.by, [usual, later]);
                    seen.push((side, claim.by));
                }
            }
            self.add_ordering(paper, figure, claim, [usual, later]);
        }
    }

    fn add_figure(&mut self, paper: &Paper, figure: &Figure, side: &Side, by: Measure, rows: [&Rows; 2]) {
        let [Some(usual), Some(later)] = rows.map(|rows| value(rows, side, by)) else {
            self.missing[0] += 1;
            return;
        };
        self.compared[0] += 1;
        if (later - usual).abs() > CHANGED * usual.abs() {
            let names = [format!("{}, {}", paper.key, figure.name), side.title(), side.threads.to_string()];
            let figures = [digits(usual), digits(later), format!("{:.2}", later / usual)];
            self.figures.push(names.into_iter().chain([by.title().to_owned()]).chain(figures).collect());
        }
    }

    fn add_ordering(&mut self, paper: &Paper, figure: &Figure, claim: &Claim, rows: [&Rows; 2]) {
        let sides = claim.sides(figure);
        let is_so = |rows: &Rows| {
            let [ahead, behind] = [value(rows, &sides[0], claim.by)?, value(rows, &sides[1], claim.by)?];
            Some(judge(claim, &[ahead], &[behind], false).so == 1)
        };
        let [Some(usual), Some(later)] = rows.map(is_so) else {
            self.missing[1] += 1;
            return;
        };
        self.compared[1] += 1;
        if usual != later {
            let [ahead, behind] = sides.map(|side| format!("{} with {} threads", side.title(), side.threads));
            let says = if later { "so only later" } else { "no longer so" };
            let by = claim.by.title();
            self.orderings.push(format!("{says}: {}, {}: {ahead} ÷ {behind}, {by}", paper.key, figure.name));
        }
    }

    fn text(&self, times: usize) -> String {
        let head = ["figure", "contender", "threads", "", "usual", "later", "ratio"].map(str::to_owned).to_vec();
        let mut text = String::new();
        if !self.figures.is_empty() {
            text = format!("{}\n", grid(head, self.figures.clone()));
        }
        self.orderings.iter().for_each(|line| text += &format!("{line}\n"));
        let ([figures, orderings], [no_figures, no_orderings]) = (self.compared, self.missing);
        text + &format!(
            "Warm-ups {times} times as long, one seed, the machine as it is: {} of {figures} figures differ by more than {} %, {} of \
             {orderings} orderings are so in only one of the two. Without both rows: {no_figures} figures, {no_orderings} orderings.",
            self.figures.len(),
            100.0 * CHANGED,
            self.orderings.len(),
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
        let folder = one("later-changes", TINY);
        let paper = &data::read(&folder, None).unwrap()[0];
        let figure = &paper.figure[0];
        let changes = |usual, later| {
            let mut changes = Changes::default();
            changes.add(paper, figure, &rows(figure, usual), &rows(figure, later));
            changes.text(10)
        };
        let text = changes([10.0, 5.0, 8.0, 4.0], [10.9, 5.0, 7.3, 4.0]);
        assert!(text.starts_with("Warm-ups 10 times as long") && text.contains(": 0 of 6 figures differ"), "{text}");
        assert!(text.contains("0 of 3 orderings"), "{text}");
        let text = changes([10.0, 5.0, 8.0, 4.0], [4.0, 5.0, 3.0, 4.0]);
        assert!(text.contains(": 2 of 6 figures differ") && text.contains("0.40") && text.contains("0.38"), "{text}");
        assert!(
            text.contains("no longer so: tiny, Figure 1: `ttas` with 1 threads ÷ `ttas` with 2 threads, "),
            "{text}"
        );
        assert!(changes([4.0, 5.0, 8.0, 4.0], [6.0, 5.0, 8.0, 4.0]).contains("so only later: "));
        let mut changes = Changes::default();
        changes.add(paper, figure, &rows(figure, [1.0; 4]), &Vec::new());
        assert!(changes.text(2).contains("Without both rows: 6 figures, 3 orderings."));
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// The later rows are measured with longer warm-ups, beside the usual ones, and only once.
    #[test]
    fn later_rows_are_rows_of_their_own() {
        if !SIMULATED {
            return;
        }
        let folder = one("later-rows", &TINY.replace("--warm 0", "--warm 10"));
        let out = folder.join("rows");
        let usual = SimPapers { out: Some(out.clone()), program: Some("p".to_owned()), ..args(&folder) };
        execute(&usual).unwrap();
        let later = SimPapers { later: Some(3), ..usual.clone() };
        let other = SimPapers { program: Some("q".to_owned()), ..later.clone() };
        assert!(execute(&other).unwrap_err().to_string().contains("--out has none of the rows"));
        for side in 0..4 {
            let cell = Some(crate::args::Cell { figure: 0, side });
            execute(&SimPapers { cell, ..later.clone() }).unwrap();
        }
        execute(&SimPapers { judge: true, ..later }).unwrap();
        let text = std::fs::read_to_string(&out).unwrap();
        let with = |warm: &str| text.lines().filter(|line| line.contains(&format!("\"warm\":{warm},"))).count();
        assert_eq!((text.lines().count(), with("10"), with("30")), (8, 4, 4), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

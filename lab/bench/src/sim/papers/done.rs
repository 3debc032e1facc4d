//! A figure that was measured, and what its rows say of its claims.

use archipelago_sim::Variation;

use super::data::{Claim, Figure, Side};
use super::verdict::{Finding, Verdict, judge};
use super::{Plan, sides};
use crate::harness::simulated::variations;
use crate::report::row::Row;
use crate::sim::measure::Measure;

/// Rows, each with its side.
pub type Rows = Vec<(Side, Row)>;

/// A figure with the rows that its claims need, and the failures of the runs that have no row.
pub struct Done<'a> {
    /// The figure.
    pub figure: &'a Figure,
    /// The experiment as it was run.
    pub command: String,
    /// The variations of the model, in the order of a swept row's cells.
    pub variations: Vec<Variation>,
    /// The measured rows.
    pub rows: Rows,
    /// The rows with more seeds, of the sides of claims that `rows` do not resolve.
    pub more: Rows,
    /// Messages about failed runs.
    pub failures: Vec<String>,
}

impl<'a> Done<'a> {
    /// Returns a figure with the rows of its plan.
    pub fn of(figure: &'a Figure, plan: &Plan, rows: Rows) -> Self {
        let (command, variations) = (plan.command.clone(), variations(&plan.setting));
        Done { figure, command, variations, rows, more: Vec::new(), failures: Vec::new() }
    }

    /// Judges a claim of the figure by the figure's rows, and by those with more seeds if it is unresolved without them.
    /// Returns `None` if a row is missing, or lacks the figure by which the claim compares.
    pub fn finding(&self, claim: &Claim) -> Option<Finding> {
        let first = self.found(claim, &self.rows)?;
        let more = Some(&first).filter(|first| is_open(first)).and_then(|_| self.found(claim, &self.more));
        Some(more.unwrap_or(first))
    }

    /// Returns whether there is a row for each side that a claim needs.
    pub fn has_rows(&self, claim: &Claim) -> bool {
        claim.needed(self.figure).iter().all(|side| self.rows.iter().any(|(of, _)| of == side))
    }

    /// Returns whether the rows with more seeds judge a claim.
    pub fn needed_more(&self) -> bool {
        let open = |claim: &Claim| self.found(claim, &self.rows).as_ref().is_some_and(is_open);
        self.figure.claim.iter().any(|claim| open(claim) && self.found(claim, &self.more).is_some())
    }

    /// Returns the sides of the claims that the figure's rows do not resolve, each once.
    pub fn open_sides(&self) -> Vec<Side> {
        let open = |claim: &&Claim| self.found(claim, &self.rows).as_ref().is_some_and(is_open);
        let open: Vec<Side> =
            self.figure.claim.iter().filter(open).flat_map(|claim| claim.needed(self.figure)).collect();
        sides(self.figure).into_iter().filter(|side| open.contains(side)).collect()
    }

    fn found(&self, claim: &Claim, rows: &Rows) -> Option<Finding> {
        let row = |side: &Side| rows.iter().find(|(of, _)| of == side).map(|(_, row)| row);
        let needed: Vec<&Row> = claim.needed(self.figure).iter().map(row).collect::<Option<_>>()?;
        let swept = needed.iter().all(|row| !row.sweep.is_empty());
        let [ahead, behind] = claim.figures(self.figure, |side| figures(row(side)?, claim.by, swept))?;
        Some(judge(claim, &ahead, &behind, swept))
    }
}

fn is_open(found: &Finding) -> bool {
    found.swept && found.verdict == Verdict::Unresolved
}

/// Returns a row's figures, by cells of the sweep or by seeds, if it has them.
fn figures(row: &Row, by: Measure, swept: bool) -> Option<Vec<f64>> {
    match by {
        Measure::Throughput => Some(if swept { row.sweep.clone() } else { row.seeds.clone() }),
        count => row.counts.get(count.name()).cloned(),
    }
}

/// Returns a row's figure on the machine as it is, with the first seed.
pub fn first(row: &Row, by: Measure) -> Option<f64> {
    let cells = match by {
        Measure::Throughput => [&row.sweep, &row.seeds].into_iter().find(|cells| !cells.is_empty()),
        count => row.counts.get(count.name()),
    };
    cells?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{TINY, args, one};
    use super::super::{again, data, execute, jobs, plan};
    use super::*;
    use crate::args::SimPapers;
    use crate::harness::simulated::cells;
    use crate::sim::sink::{Out, Stamps};

    /// Writes rows with these figures for the sides of TINY's figure, which are `ttas` with one thread and with two,
    /// `tas`, and `mcs`.
    fn write(out: &mut Out, plan: &Plan, stamps: &Stamps, figures: [[f64; 2]; 4]) {
        let (seeds, cells) = (plan.setting.seeds as usize, cells(&plan.setting));
        for ((side, place), figures) in plan.sides.iter().zip(figures) {
            let contender = &plan.contenders[*place];
            let fields = [("structure", contender.name.clone().into()), ("threads", side.threads.into())];
            let fields = fields.into_iter().chain(contender.cell.facts());
            let mut row = Row::new(&contender.name, side.threads, &contender.cell, fields);
            row.sweep = figures.into_iter().cycle().take(cells).collect();
            row.seeds = row.sweep[..seeds].to_vec();
            row.counts.insert("remote".to_owned(), vec![1.0; cells]);
            out.append(&row, &stamps.of(&plan.setting)).unwrap();
        }
    }

    /// A row with other numbers of cells than the model has variations is none, and does not hide a whole one.
    #[test]
    fn a_part_of_a_row_is_none() {
        let folder = one("part-of-a-row", TINY);
        let rows = folder.join("rows");
        let all = SimPapers { sweep: Some(String::new()), ..args(&folder) };
        let papers = data::read(&folder, None).unwrap();
        let plan = plan(&papers[0], &papers[0].figure[0], &all).unwrap();
        let stamps = Stamps::of_program("p").unwrap();
        let found = || plan.found(&stamps, &Out::open(&rows).unwrap()).len();
        write(&mut Out::open(&rows).unwrap(), &plan, &stamps, [[2.0; 2]; 4]);
        assert_eq!(found(), 4);
        let whole = std::fs::read_to_string(&rows).unwrap();
        let cells = [2.0; 19].map(|cell: f64| format!("{cell:?}")).join(",");
        for (list, part) in [
            (format!("\"sweep\":[{cells}]"), "\"sweep\":[2.0,2.0,2.0]"),
            ("\"seeds\":[2.0]".to_owned(), "\"seeds\":[]"),
            (format!("\"remote\":[{}]", cells.replace('2', "1")), "\"remote\":[1.0]"),
        ] {
            assert_ne!(whole.replacen(&list, part, 1), whole, "{list}");
            std::fs::write(&rows, whole.replacen(&list, part, 1)).unwrap();
            assert_eq!(found(), 3, "{part}");
            std::fs::write(&rows, whole.replacen(&list, part, 1) + &whole).unwrap();
            assert_eq!(found(), 4, "{part}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// An ordering that is unresolved is measured again, and judged by the runs that were added; others are not.
    #[test]
    fn more_runs_are_for_what_is_unresolved() {
        let folder = one("more", TINY);
        let (rows, page) = (folder.join("rows"), folder.join("page.md"));
        let all = SimPapers {
            sweep: Some(String::new()),
            more_runs: Some(3),
            out: Some(rows.clone()),
            program: Some("p".to_owned()),
            judge: true,
            write: Some(page.clone()),
            ..args(&folder)
        };
        let again = again(&all).unwrap();
        let papers = data::read(&folder, None).unwrap();
        let (mut out, stamps) = (Out::open(&rows).unwrap(), Stamps::of_program("p").unwrap());
        let planned = |args: &SimPapers| plan(&papers[0], &papers[0].figure[0], args).unwrap();
        let judged = || {
            execute(&all).unwrap();
            std::fs::read_to_string(&page).unwrap()
        };
        write(&mut out, &planned(&all), &stamps, [[2.0, 2.0], [1.0, 1.0], [0.5, 2.0], [1.0, 1.0]]);
        out.read().unwrap();
        assert_eq!(jobs::missing(&papers, &again, Some(&all), &stamps, &out).unwrap().len(), 2, "`tas` and `mcs`");
        let text = judged();
        assert!(text.contains("19 of 19 cells") && text.contains("9 of 19 cells"), "{text}");
        assert!(text.contains("; 1 hold, 0 are contradicted, 1 unresolved."), "{text}");
        assert!(text.contains("one seed each.\n"), "{text}");
        // The table stays as it is if the rows are those of other arguments.
        let failure = execute(&SimPapers { runs: 2, ..all.clone() }).unwrap_err().to_string();
        assert!(
            failure.contains(" p for 3 of 3 claims of tiny; ") && failure.contains(" has 4 rows (none "),
            "{failure}"
        );
        assert_eq!(std::fs::read_to_string(&page).unwrap(), text);
        // The ordering that is resolved is judged by its first runs only.
        write(&mut out, &planned(&again), &stamps, [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]);
        out.read().unwrap();
        assert!(jobs::missing(&papers, &again, Some(&all), &stamps, &out).unwrap().is_empty());
        let (plan, figure) = (planned(&all), &papers[0].figure[0]);
        let more = planned(&again).found(&stamps, &out);
        let done = Done { more, ..Done::of(figure, &plan, plan.found(&stamps, &out)) };
        let verdicts = [0, 1].map(|claim| done.finding(&figure.claim[claim]).unwrap().verdict);
        assert_eq!(verdicts, [Verdict::Holds; 2]);
        let text = judged();
        assert!(text.contains("19 of 19 cells") && text.contains("57 of 57 cells"), "{text}");
        assert!(text.contains("; 2 hold, 0 are contradicted, 0 unresolved."), "{text}");
        assert!(text.contains("one seed each (3 where an ordering is unresolved with that)"), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

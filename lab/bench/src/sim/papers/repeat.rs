//! `--from`: takes over the rows of other programs whose runs this program repeats.
//!
//! If the first run of a row has the same numbers of events, accesses and operations, and takes the same times, with
//! this program, then whatever differs between the two programs was not on its way, and the other cells of the sweep
//! are not run again. A change that only a variation of the model reaches goes unnoticed.
//!
//! The run's hash is not compared. It covers addresses, and each build has other addresses for its statics. (Of 37 rows
//! of node replication with equal figures and other hashes, 34 had equal figures in all 21 cells, too, when they were
//! measured again; seven cells of the others differed, by at most 23 %. 2026-11-30.)

use super::stamps_of;
use crate::failure::Failure;
use crate::harness::simulated::{Contender, Setting};
use crate::report::row::Row;
use crate::sim::sink::{Out, Stamps};

/// The name of the program that measured a row which was taken over: a field of the row.
pub const MEASURED_BY: &str = "measured_by";

/// Fields that are equal if two programs make the same steps.
const STEPS: [&str; 10] = [
    "events",
    "ops",
    "held_bytes",
    "accesses_per_op",
    "remote_per_op",
    "dirty_remote_per_op",
    "line_wait_percent",
    "ns_per_op",
    "ns_per_read",
    "ns_per_update",
];

/// Programs whose rows may be taken over.
pub struct Others(Vec<(String, Stamps)>);

impl Others {
    /// Returns the programs with these names, which are as those of `--program`.
    ///
    /// # Errors
    /// If one is a file that cannot be read.
    pub fn named(names: &[String]) -> Result<Self, Failure> {
        names.iter().map(|name| Ok((name.clone(), stamps_of("--from", name)?))).collect::<Result<_, _>>().map(Others)
    }

    /// Returns the other programs' rows of a measurement.
    pub fn rows(&self, contender: &Contender, threads: usize, setting: &Setting, out: &Out) -> Vec<Row> {
        let row = |(name, stamps): &(String, Stamps)| {
            let mut row = out.done(&stamps.of(setting), contender, threads, setting)?;
            // A row that was taken over before keeps the name of the program that measured it.
            if row.fields.get(MEASURED_BY).is_none() {
                row.fields.0.push((MEASURED_BY.to_owned(), name.as_str().into()));
            }
            Some(row)
        };
        self.0.iter().filter_map(row).collect()
    }
}

/// Returns the setting of a row's first run.
pub fn once(setting: &Setting) -> Setting {
    Setting { seeds: 1, sweep: false, ..setting.clone() }
}

/// Returns the first of these rows whose first run is as in the row `again`.
pub fn repeated(rows: Vec<Row>, again: &Row) -> Option<Row> {
    // A row's first seed, and the first figure of each count, are of its first run.
    let same = |row: &Row| {
        STEPS.iter().all(|field| row.fields.get(field) == again.fields.get(field))
            && row.seeds.first() == again.seeds.first()
            && again
                .counts
                .iter()
                .all(|(name, count)| row.counts.get(name).and_then(|row| row.first()) == count.first())
    };
    rows.into_iter().find(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::SimPapers;
    use crate::sim::SIMULATED;
    use crate::sim::papers::data::{self, Side};
    use crate::sim::papers::tests::{TINY, args, one};
    use crate::sim::papers::{execute, plan};

    /// A row is taken over if its first run is repeated, and is measured anew if the other program went another way.
    #[test]
    fn only_what_is_repeated_is_taken_over() {
        if !SIMULATED {
            return;
        }
        let folder = one("from", TINY);
        let (rows, page) = (folder.join("rows"), folder.join("page.md"));
        let with = |program: &str, from: &[&str]| SimPapers {
            sweep: Some(String::new()),
            out: Some(rows.clone()),
            program: Some(program.to_owned()),
            from: from.iter().map(|&name| name.to_owned()).collect(),
            write: Some(page.clone()),
            ..args(&folder)
        };
        assert!(execute(&with("new", &["no/such file"])).unwrap_err().to_string().contains("--from no/such file: "));
        execute(&with("old", &[])).unwrap();
        let text = std::fs::read_to_string(&rows).unwrap();
        assert_eq!(text.lines().count(), 4);
        // The first row is as if the other program had made one step more. In the second a measure has another meaning,
        // and in the third statics have other addresses.
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (line, field) in lines.iter_mut().zip(["\"events\":", "\"misses\":[", "\"hash\":\""]) {
            assert!(line.contains(field), "{line}");
            *line = line.replacen(field, &format!("{field}1"), 1);
        }
        std::fs::write(&rows, lines.join("\n") + "\n").unwrap();
        execute(&with("new", &["older", "old"])).unwrap();
        execute(&with("newest", &["new"])).unwrap();
        let papers = data::read(&folder, None).unwrap();
        let plan = plan(&papers[0], &papers[0].figure[0], &with("new", &[])).unwrap();
        let out = Out::open(&rows).unwrap();
        let by = |program: &str| -> Vec<String> {
            let stamp = Stamps::of_program(program).unwrap().of(&plan.setting);
            let row = |(side, place): &(Side, usize)| {
                out.done(&stamp, &plan.contenders[*place], side.threads, &plan.setting).unwrap()
            };
            plan.sides.iter().map(|side| row(side).text(MEASURED_BY).to_owned()).collect()
        };
        assert_eq!(by("new"), ["", "", "old", "old"]);
        assert_eq!(by("newest"), ["new", "new", "old", "old"]);
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.contains("Of its 4 rows, other programs measured some: 2 by new, 2 by old. "), "{text}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

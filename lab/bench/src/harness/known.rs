//! Contenders that are the same program on this machine and on the virtual machine (a simulator).

use archipelago_platform::time::Duration;

use super::experiment::{Entry, Experiment, Format};
use super::program::Program;
use super::simulated::{self, Contender};
use crate::args::Common;
use crate::failure::Failure;
use crate::report::row::{Cell, Facts};

/// The fields of experiments that define no fields of their own. `isolation`: the isolation that the contender's
/// transactions promise. `write_skews`: the run's write skews (the median of the runs), if the isolation permits them
/// and the program counts them.
const PLAIN: Format = Format {
    name: "structure",
    keys: "structure workload threads machine seed runs mops mops_min mops_max ns_per_op cpu_ns_per_op update_percent \
           distribution external_work count details ratio baseline ops pin misses partial p50_ns p90_ns p99_ns p999_ns max_ns \
           retry_percent paired_ratio seconds latency isolation write_skews",
};

/// A contender for either machine. Its program is made from a value of type `A`.
pub struct Known<A> {
    /// Its name.
    pub name: &'static str,
    /// Makes its program for this machine from its name, the number of its cell (a workload with its parameters) and an
    /// `A`.
    pub native: fn(&'static str, usize, A) -> Entry<'static>,
    /// Makes its program for the virtual machine.
    pub simulate: fn(&'static str, A) -> simulated::Simulation,
}

/// Each cell with the value from which its contenders' programs are made, and the contenders.
pub type Cells<A> = Vec<(Cell, A, Vec<&'static Known<A>>)>;

impl<A> Known<A> {
    /// Makes the contender whose program is `P`.
    pub const fn of<P: Program + From<A> + Sync + 'static>(name: &'static str) -> Known<A> {
        let native = |name, cell, of| Entry::of(name, cell, P::from(of));
        Known { name, native, simulate: |_, of| simulated::program(P::from(of)) }
    }

    /// Makes the contender whose program `P` is made from the contender's name and an `A`.
    pub const fn named<P: Program + From<(&'static str, A)> + Sync + 'static>(name: &'static str) -> Known<A> {
        let native = |name, cell, of| Entry::of(name, cell, P::from((name, of)));
        Known { name, native, simulate: |name, of| simulated::program(P::from((name, of))) }
    }
}

/// Returns contenders with these names, whose programs are all of one type. They are kept until the program ends.
pub fn named<P: Program + From<(&'static str, A)> + Sync + 'static, A>(
    names: &[&'static str],
) -> Vec<&'static Known<A>> {
    let known: Vec<_> = names.iter().map(|name| Known::named::<P>(name)).collect();
    known.leak().iter().collect()
}

impl Experiment<'static> {
    /// Makes an experiment of a given time, whose contenders are set up anew for each measurement.
    ///
    /// # Errors
    /// If the arguments name a baseline that is not in `cells`.
    pub fn of<A: Copy>(
        title: &'static str,
        args: &Common,
        baseline: &str,
        time: Duration,
        cells: Cells<A>,
    ) -> Result<Self, Failure> {
        let entries = |(at, (cell, of, known)): (usize, (Cell, A, Vec<&'static Known<A>>))| {
            (cell, known.iter().map(|known| (known.native)(known.name, at, of)).collect())
        };
        Self::in_cells(title, args, baseline, time, cells.into_iter().enumerate().map(entries).collect())
    }

    /// Works as [`of`](Self::of), with contenders that exist already. Each of them was made with the index of its cell
    /// in this list.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn in_cells(
        title: &'static str,
        args: &Common,
        baseline: &str,
        time: Duration,
        cells: Vec<(Cell, Vec<Entry<'static>>)>,
    ) -> Result<Self, Failure> {
        let names: Vec<&str> = cells.iter().flat_map(|(_, entries)| entries.iter().map(|entry| entry.name)).collect();
        let mut experiment = Self::new(title, &PLAIN, args, 3, Some(baseline), &names)?;
        (experiment.time, experiment.steps) = (Some(time), names.len());
        for (cell, entries) in cells {
            experiment.cell(cell, Facts::new());
            experiment.groups.push(entries);
        }
        Ok(experiment)
    }
}

/// Returns the contenders of all cells, on the virtual machine.
pub fn simulated<A: Copy>(cells: Cells<A>) -> Vec<Contender> {
    let mut contenders = Vec::new();
    for (cell, of, known) in cells {
        let contender = |known: &&Known<A>| {
            let (name, cell) = (known.name.to_owned(), cell.clone());
            Contender { name, cell, program: (known.simulate)(known.name, of) }
        };
        contenders.extend(known.iter().map(contender));
    }
    contenders
}

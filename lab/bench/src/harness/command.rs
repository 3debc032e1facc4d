//! A command that measures, from its arguments to its reports.

use std::process::ExitCode;

use archipelago_platform::htm;

use super::experiment::Experiment;
use super::progress::Progress;
use super::threads;
use crate::args::Common;
use crate::failure::Failure;
use crate::interrupt;
use crate::report::compare::Comparison;
use crate::report::{self, Look};

/// A command that measures.
pub struct Command<'a> {
    common: &'a Common,
    comparison: Comparison,
    /// Shows the user what is being measured.
    pub progress: Progress,
}

impl<'a> Command<'a> {
    /// Checks the files and the numbers of threads that the arguments name, before anything is measured.
    ///
    /// # Errors
    /// If a file cannot be written or read, if the threads would be far more than the CPUs, or if they cannot all be
    /// started.
    pub fn start(common: &'a Common) -> Result<Command<'a>, Failure> {
        common.show.report.as_deref().map(report::try_to_write).transpose()?;
        let comparison = Comparison::of(&common.show)?;
        let threads = common.threads();
        threads::check(&threads)?;
        threads::try_to_start(threads.into_iter().max().unwrap_or(1))?;
        Ok(Command { common, comparison, progress: Progress::new() })
    }

    /// Measures and reports.
    ///
    /// # Errors
    /// If a run fails (the complete runs are reported before), or if a report cannot be written.
    pub fn run(mut self, experiment: &Experiment<'_>) -> Result<ExitCode, Failure> {
        // The signal handlers are installed only now, since a command that is interrupted earlier has nothing to
        // report.
        interrupt::install();
        self.progress.steps(experiment.steps * experiment.threads.len() * experiment.runs);
        let results = experiment.measure(&self.progress);
        self.progress.end();
        let rows = experiment.rows(&results);
        if let Some(failure) = results.failure {
            if !rows.is_empty() {
                report::show(&rows, &self.common.show, &Look::of(experiment.title, Vec::new(), true))?;
            }
            return Err(failure);
        }
        let mut notes = self.comparison.verdicts(&rows);
        notes.extend(results.notes);
        notes.extend(
            htm::missed().map(|why| format!("no hardware transaction ran ({why}): what would use them fell back")),
        );
        notes.extend(htm::sites().into_iter().map(|(name, counts)| format!("transactions aborted, {name}: {counts}")));
        report::show(&rows, &self.common.show, &Look::of(experiment.title, notes, results.partial))?;
        Ok(if results.partial { interrupt::exit_code() } else { self.comparison.exit_code() })
    }
}

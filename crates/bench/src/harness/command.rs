//! A command that measures, from its arguments to its reports.

use std::process::ExitCode;

use archipelago_platform::htm;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::experiment::Experiment;
use crate::args::Show;
use crate::failure::Failure;
use crate::interrupt;
use crate::report::compare::Earlier;
use crate::report::{self, Look};

/// A bar on standard error with this many steps.
pub fn progress_bar(steps: usize) -> ProgressBar {
    // Standard error, and hidden if that is no terminal. No steady tick: it would take CPU time from what is measured.
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (left {eta}) {wide_msg}");
    bar.with_style(style.expect("the template is correct"))
}

/// A command that measures, from its start on: files are tried, and Ctrl-C is heard.
pub struct Command<'a> {
    show: &'a Show,
    earlier: Option<Earlier>,
}

impl<'a> Command<'a> {
    /// Tries the files that the arguments name, before anything is measured.
    ///
    /// # Errors
    /// If one of them cannot be written, or read.
    pub fn start(show: &'a Show) -> Result<Command<'a>, Failure> {
        show.report.as_deref().map(report::try_to_write).transpose()?;
        let earlier = show.compare.as_deref().map(Earlier::read).transpose()?;
        interrupt::install();
        Ok(Command { show, earlier })
    }

    /// Measures and reports.
    ///
    /// # Errors
    /// If a report cannot be written.
    pub fn run(self, experiment: &Experiment<'_>) -> Result<ExitCode, Failure> {
        let progress = progress_bar(experiment.steps * experiment.threads.len() * experiment.runs);
        let results = experiment.measure(&progress);
        progress.finish_and_clear();
        let rows = experiment.rows(&results);
        let mut notes = self.earlier.as_ref().map_or(Vec::new(), |earlier| earlier.verdicts(&rows));
        notes.extend(htm::sites().into_iter().map(|(name, counts)| format!("transactions aborted, {name}: {counts}")));
        let look = Look { title: experiment.title, notes, partial: results.partial };
        report::show(&rows, self.show, &look)?;
        Ok(if results.partial { ExitCode::from(crate::INTERRUPTED) } else { ExitCode::SUCCESS })
    }
}

//! Shows the progress of a command on standard error: a bar on a terminal, else a line now and then.

use core::cell::RefCell;
use std::io::{self, IsTerminal, Write};

use archipelago_platform::time::{Duration, Instant};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Without a terminal: the time after which the first line is written, and the least time between two lines. A command
/// that is over sooner writes no line.
const FIRST: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(10);

/// The number of steps, how many are done, and the present step.
pub struct Progress {
    /// Draws on a terminal only. It has no steady tick, since a tick would take CPU time from the measurement.
    bar: ProgressBar,
    lines: Option<RefCell<Lines>>,
}

/// The state of the lines that are written without a terminal.
struct Lines {
    out: Box<dyn Write>,
    begun: Instant,
    /// When the next line is due, counted from the beginning.
    due: Duration,
}

impl Progress {
    /// Begins with a number of steps that is not known yet.
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let bar = bar.with_style(style("{elapsed} {wide_msg}"));
        let lines = (!io::stderr().is_terminal()).then(|| RefCell::new(Lines::to(Box::new(io::stderr()), FIRST)));
        Progress { bar, lines }
    }

    /// Begins without showing anything.
    #[cfg(test)]
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden(), lines: None }
    }

    /// Sets the number of steps.
    pub fn steps(&self, steps: usize) {
        self.bar.set_style(style("{bar:30} {pos}/{len} {elapsed} (left {eta}) {wide_msg}"));
        self.bar.set_length(steps as u64);
        self.bar.reset_eta();
    }

    /// Shows the present step.
    pub fn say(&self, what: String) {
        if let Some(lines) = &self.lines {
            let steps = self.bar.length().map(|steps| format!("{} of {steps}, ", self.bar.position()));
            lines.borrow_mut().say(&steps.unwrap_or_default(), &what);
        }
        self.bar.set_message(what);
    }

    /// Counts a step as done.
    pub fn step(&self) {
        self.bar.inc(1);
    }

    /// Ends, and clears the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is correct")
}

impl Lines {
    fn to(out: Box<dyn Write>, first: Duration) -> Lines {
        Lines { out, begun: Instant::now(), due: first }
    }

    fn say(&mut self, steps: &str, what: &str) {
        let elapsed = self.begun.elapsed();
        if elapsed >= self.due {
            self.due = elapsed + EVERY;
            let _ = writeln!(self.out, "{steps}{} s: {what}", elapsed.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A writer that sends the written bytes to a channel.
    struct Sent(mpsc::Sender<Vec<u8>>);

    impl Write for Sent {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn said(first: Duration, steps: usize) -> String {
        let (sender, receiver) = mpsc::channel();
        let lines = Some(RefCell::new(Lines::to(Box::new(Sent(sender)), first)));
        let progress = Progress { bar: ProgressBar::hidden(), lines };
        if steps > 0 {
            progress.steps(steps);
            progress.step();
        }
        progress.say("load".to_owned());
        progress.say("too soon after the other".to_owned());
        progress.end();
        drop(progress);
        String::from_utf8(receiver.iter().flatten().collect()).unwrap()
    }

    #[test]
    fn off_a_terminal_it_says_a_line_now_and_then() {
        assert_eq!(said(Duration::MAX, 3), "", "what is short says nothing");
        assert_eq!(said(Duration::ZERO, 3), "1 of 3, 0 s: load\n");
        assert_eq!(said(Duration::ZERO, 0), "0 s: load\n", "the number of steps is not known, and not 0 of 0");
    }
}

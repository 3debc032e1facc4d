//! Ends a hanging test and reports where it hangs.
//!
//! A deadlocked thread cannot be stopped from outside, so the watchdog has to end the process. Before it does, it
//! prints what it knows: the test's name, its duration, the test's last notes, and (on Linux) what every thread of the
//! process is doing.

use archipelago_platform::sync::{Arc, Condvar, Mutex};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use core::fmt::Write;

/// The usual limit: far longer than any test takes on a busy machine, or under an interpreter (Miri).
pub const USUAL: Duration = Duration::from_secs(if cfg!(miri) { 7200 } else { 120 });

/// Runs `test` and returns its result. Ends the process with a report if the test takes longer than `limit`. The test
/// may record notes about its progress, the last of which are part of the report.
pub fn watchdog<R>(limit: Duration, test: impl FnOnce(&Notes) -> R) -> R {
    watch(
        limit,
        |report| {
            eprintln!("{report}");
            std::process::abort();
        },
        test,
    )
}

/// Where a test records its progress. Clones record to the same list.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    lines: Arc<Mutex<Vec<String>>>,
}

/// The number of notes in a report.
const SHOWN: usize = 16;

impl Notes {
    /// Records a step.
    pub fn note(&self, step: impl Into<String>) {
        if let Ok(mut lines) = self.lines.lock() {
            if lines.len() == SHOWN {
                lines.remove(0);
            }
            lines.push(step.into());
        }
    }
}

/// Tells the watching thread that the test is over, even if the test panicked.
struct Over<'a>(&'a (Mutex<bool>, Condvar));

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if let Ok(mut over) = self.0.0.lock() {
            *over = true;
        }
        self.0.1.notify_all();
    }
}

fn watch<R>(limit: Duration, late: impl FnOnce(String) + Send, test: impl FnOnce(&Notes) -> R) -> R {
    let (mut test, mut outcome) = (Some(test), None);
    watch_over(limit, Box::new(late), &mut |notes| outcome = test.take().map(|test| test(notes)));
    outcome.expect("the test is run once")
}

/// This function is not generic, so that it is compiled once for all tests.
fn watch_over(limit: Duration, late: Box<dyn FnOnce(String) + Send + '_>, test: &mut dyn FnMut(&Notes)) {
    let notes = Notes::default();
    let over = (Mutex::new(false), Condvar::new());
    let name = thread::current().name().unwrap_or("unnamed").to_owned();
    let start = Instant::now();
    thread::scope(|s| {
        s.spawn(|| {
            let guard = over.0.lock().expect("nothing panics under this lock");
            let (guard, wait) =
                over.1.wait_timeout_while(guard, limit, |over| !*over).expect("nothing panics under this lock");
            drop(guard);
            if wait.timed_out() {
                late(report(&name, start.elapsed(), &notes));
            }
        });
        let _over = Over(&over);
        test(&notes);
    });
}

fn report(name: &str, elapsed: Duration, notes: &Notes) -> String {
    let mut text = format!("\nwatchdog: `{name}` hangs: not over after {:.1} s\nlast notes:\n", elapsed.as_secs_f64());
    if let Ok(lines) = notes.lines.try_lock() {
        for line in lines.iter() {
            let _ = writeln!(text, "  {line}");
        }
    }
    let _ = write!(text, "threads (id, name, state, user and system time in ticks, waiting in):\n{}", threads());
    text
}

/// Returns what the operating system reports about each thread of this process, or an empty text if it reports nothing.
fn threads() -> String {
    let mut text = String::new();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return text };
    for task in tasks.flatten() {
        let file = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = file("stat");
        // The numbers of the fields follow the name in parentheses: the state is field 3, user and system time are
        // fields 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or("?");
        let (id, name) = (task.file_name().to_string_lossy().into_owned(), file("comm"));
        let (state, user, system) = (field(3), field(14), field(15));
        let _ = writeln!(text, "  {id:>8} {:<16} {state} {user:>6} {system:>6} {}", name.trim(), file("wchan"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_in_time_is_left_alone() {
        assert_eq!(watchdog(USUAL, |_| 7), 7);
    }

    #[test]
    fn a_panic_passes_through() {
        let caught = std::panic::catch_unwind(|| watchdog(USUAL, |_| panic!("as planned")));
        assert!(caught.is_err());
    }

    // The report reads the operating system's list of threads, which Miri does not have.
    #[cfg(not(miri))]
    #[test]
    fn a_hang_is_reported_with_its_notes() {
        let said = Mutex::new(None);
        watch(
            Duration::from_secs(2),
            |report| *said.lock().unwrap() = Some(report),
            |notes| {
                for round in 0..100 {
                    notes.note(format!("round {round}"));
                }
                while said.lock().unwrap().is_none() {
                    thread::yield_now();
                }
            },
        );
        let report = said.into_inner().unwrap().unwrap();
        assert!(report.contains("a_hang_is_reported_with_its_notes"), "{report}");
        assert!(report.contains("round 99") && !report.contains("round 9\n"), "{report}");
    }
}

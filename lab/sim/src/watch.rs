//! Finds shared memory that a program reads or writes plainly without announcing it.
//!
//! The model charges atomics, and plain accesses that are announced by [`world::touch`](crate::world::touch) and
//! [`world::touch_mut`](crate::world::touch_mut). Unannounced accesses cost nothing, so the figures of code that makes
//! such accesses are wrong. With [`Config::watch`](crate::Config::watch) the run's arena
//! ([`SimAlloc`](crate::SimAlloc), the heap of the run) is closed to measured threads: each of their plain accesses
//! faults, is recorded here, and is then executed as a single instruction ([`fault`]). A recorded access takes some
//! microseconds, so a watched run is a check and measures nothing. The arena has a second mapping, which stays open.
//! Atomics, whose accesses have been charged, and the allocator access memory by this mapping.
//!
//! # What counts as announced
//! A thread announces a cache line by any access that the model charges. The charged access comes before the plain one,
//! or is among the thread's next [few](SOON) charged accesses. The announcement covers the thread's plain reads of the
//! line until another thread announces a write to the line or writes it plainly. It also covers the plain reads before
//! the thread's next few charged accesses, whatever other threads write: other threads run while a thread announces
//! several lines. If the announcing access was a write,
//! the announcement also covers plain writes. This resembles a cache: a core that has a line reads it at no cost until
//! another core takes it. (Evictions for lack of room are not modelled here; code that reads much memory announces its
//! reads.)
//!
//! # What is reported
//! Plain accesses without an announcement are reported by their place in the program, if a second thread uses the same
//! line after the clients (the measured threads) have begun. Memory that one thread uses needs no announcement. Not
//! watched are stacks, statics, memory that was allocated outside of the run, and threads without virtual time (set-up
//! and tear-down). Threads that set-up starts are watched only after the clients have begun.

use std::backtrace::Backtrace;
use std::collections::{HashMap, HashSet};

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod fault;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use fault::{close, open};

/// On other platforms no memory can be closed.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod fault {
    pub(crate) const AVAILABLE: bool = false;
}
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn close(_watch: *mut Watch, _span: core::ops::Range<usize>) {}
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn open() {}

/// Plain accesses to shared cache lines that one place in the program made without announcing them.
#[derive(Clone, Debug)]
pub struct Unannounced {
    /// The innermost functions, with file and line where they are known.
    pub place: String,
    /// `true` for writes, `false` for reads.
    pub writes: bool,
    /// `true` if any of the lines was written after the clients had begun.
    pub changing: bool,
    /// The number of accesses.
    pub accesses: u64,
    /// The number of different lines.
    pub lines: usize,
}

/// The uses of one cache line.
#[derive(Default)]
struct Line {
    /// The number of writes to the line, announced or plain.
    writes: u64,
    /// The number of writes before the clients began.
    settled: u64,
    /// The first thread that used the line after the clients had begun. `shared` tells whether a second thread used it.
    user: Option<usize>,
    shared: bool,
}

/// The unannounced plain accesses of one instruction.
struct Place {
    trace: Backtrace,
    writes: bool,
    /// For each line, the number of accesses.
    lines: HashMap<usize, u64>,
}

/// The thread's charged access with this number after a plain access is the last that can announce the plain access.
/// Late announcements are allowed for two reasons. Code often reads the memory beside an atomic just before it reads
/// the atomic. And the address of an item in a growing list is known only after the item has been written.
const SOON: u8 = 4;

/// A plain access without an announcement so far.
struct Pending {
    code: usize,
    line: usize,
    writes: bool,
    /// The number of the line's writes at that time.
    seen: u64,
    /// The number of charged accesses after which the plain access counts as unannounced.
    left: u8,
}

/// A thread's last announcement of a line.
#[derive(Clone, Copy, Default)]
struct Announcement {
    /// The number of the line's writes at that time.
    seen: u64,
    /// The number of the thread's charged accesses at that time.
    charged: u64,
    /// `true` once the thread has announced a write.
    written: bool,
}

/// The plain accesses of one run.
#[derive(Default)]
pub(crate) struct Watch {
    /// The plain accesses that may still be announced, by thread.
    pending: HashMap<usize, Vec<Pending>>,
    lines: HashMap<usize, Line>,
    /// The number of charged accesses, by thread.
    charged: HashMap<usize, u64>,
    /// The last announcements, by thread and line.
    announced: HashMap<(usize, usize), Announcement>,
    places: HashMap<usize, Place>,
}

const LINE: usize = 64;

impl Watch {
    /// Makes a watch, if this platform can close memory.
    pub(crate) fn new() -> Option<Box<Self>> {
        fault::AVAILABLE.then(Box::default)
    }

    /// Called when the clients begin. Accesses of set-up do not count as uses of shared memory.
    pub(crate) fn begin(&mut self) {
        let begun = |line: &mut Line| *line = Line { writes: line.writes, settled: line.writes, ..Line::default() };
        self.lines.values_mut().for_each(begun);
        self.pending.clear();
        self.places.clear();
    }

    /// Called when the model has charged `thread` (a client or a background thread) with an access to the line of
    /// `addr`.
    pub(crate) fn announce(&mut self, thread: usize, addr: usize, writes: bool) {
        let line = addr / LINE;
        self.settle(thread, line, writes);
        let seen = self.used(thread, line, writes);
        let charged = self.charged.entry(thread).or_default();
        *charged += 1;
        let entry = self.announced.entry((thread, line)).or_default();
        // A thread that has announced a write to a line, and now announces a read, may still write the line plainly.
        *entry = Announcement { seen, charged: *charged, written: entry.written || writes };
    }

    /// Updates the pending plain accesses of `thread`. An access whose line is announced now is removed if no other
    /// thread has written the line since (an announced read removes no plain write). An access that has waited too long
    /// is counted.
    fn settle(&mut self, thread: usize, line: usize, writes: bool) {
        let Some(pending) = self.pending.get_mut(&thread) else { return };
        let written = self.lines.get(&line).map_or(0, |line| line.writes);
        let mut late = Vec::new();
        pending.retain_mut(|access| {
            if access.line == line && access.seen == written && (writes || !access.writes) {
                return false;
            }
            access.left -= 1;
            if access.left == 0 {
                late.push((access.code, access.line));
            }
            access.left > 0
        });
        late.into_iter().for_each(|(code, line)| self.count(code, line));
    }

    fn count(&mut self, code: usize, line: usize) {
        let place = self.places.get_mut(&code).expect("noted with the access");
        *place.lines.entry(line).or_default() += 1;
    }

    fn used(&mut self, thread: usize, line: usize, writes: bool) -> u64 {
        let known = self.lines.entry(line).or_default();
        known.shared |= known.user.is_some_and(|user| user != thread);
        known.user.get_or_insert(thread);
        known.writes += u64::from(writes);
        known.writes
    }

    /// Called when `thread` makes a plain access to `addr` by the instruction at `code`.
    pub(crate) fn plain(&mut self, thread: usize, addr: usize, writes: bool, code: usize) {
        let line = addr / LINE;
        let before = self.lines.get(&line).map_or(0, |line| line.writes);
        let now = self.used(thread, line, writes);
        let charged = self.charged.get(&thread).map_or(0, |charged| *charged);
        if let Some(last) = self.announced.get_mut(&(thread, line))
            && (last.seen == before || charged - last.charged < SOON.into())
            && (last.written || !writes)
        {
            last.seen = now;
            return;
        }
        let place = self.places.entry(code).or_insert_with(|| Place {
            trace: Backtrace::force_capture(),
            writes,
            lines: HashMap::new(),
        });
        place.writes |= writes;
        let pending = self.pending.entry(thread).or_default();
        // A thread's own write does not invalidate its earlier reads of the line.
        pending.iter_mut().filter(|access| access.line == line && access.seen == before).for_each(|it| it.seen = now);
        pending.push(Pending { code, line, writes, seen: now, left: SOON });
    }

    /// Returns the unannounced accesses to shared lines, the places with the most accesses first.
    pub(crate) fn report(&mut self) -> Vec<Unannounced> {
        let pending: Vec<_> = self.pending.drain().flat_map(|(_, accesses)| accesses).collect();
        pending.into_iter().for_each(|access| self.count(access.code, access.line));
        let mut by_place: HashMap<(String, bool, bool), (u64, HashSet<usize>)> = HashMap::new();
        for place in self.places.values() {
            let shared: Vec<_> = place.lines.iter().filter(|(line, _)| self.lines[line].shared).collect();
            if shared.is_empty() {
                continue;
            }
            let changing = shared.iter().any(|(line, _)| self.lines[line].writes > self.lines[line].settled);
            let entry = by_place.entry((innermost(&place.trace), place.writes, changing)).or_default();
            entry.0 += shared.iter().map(|(_, count)| **count).sum::<u64>();
            entry.1.extend(shared.iter().map(|(line, _)| **line));
        }
        let report = by_place.into_iter().map(|((place, writes, changing), (accesses, lines))| Unannounced {
            place,
            writes,
            changing,
            accesses,
            lines: lines.len(),
        });
        let mut report: Vec<_> = report.collect();
        report.sort_by(|a, b| (b.accesses, &a.place).cmp(&(a.accesses, &b.place)));
        report
    }
}

/// How many functions of a trace are shown.
const SHOWN: usize = 3;

/// Returns the innermost functions of a trace, beginning with the function that made the access. Functions of the
/// standard library are left out.
fn innermost(trace: &Backtrace) -> String {
    let text = trace.to_string();
    // The functions of the trace, each with its file; the file is empty if it is not known.
    let mut frames: Vec<(&str, &str)> = Vec::new();
    for line in text.lines().map(str::trim) {
        match (line.strip_prefix("at "), line.split_once(": "), frames.last_mut()) {
            (Some(file), _, Some(frame)) => frame.1 = file,
            (None, Some((_, function)), _) => frames.push((function, "")),
            _ => {}
        }
    }
    // The trace begins with the frames of the signal handler, and the frame by which the kernel calls it.
    let handler = frames.iter().position(|(function, _)| function.contains("on_fault")).map_or(0, |at| at + 2);
    let own = frames.iter().skip(handler).filter(|(_, file)| !file.is_empty() && !file.starts_with("/rustc/"));
    let shown = own.take(SHOWN).map(|(function, file)| {
        let function = function.split('<').next().unwrap_or(function);
        format!("{function} ({})", file.rsplit('/').next().unwrap_or(file))
    });
    shown.collect::<Vec<_>>().join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_lasts_until_another_writes() {
        let mut watch = Watch::default();
        watch.announce(0, 640, false);
        watch.plain(0, 648, false, 1);
        assert!(watch.places.is_empty());
        watch.announce(1, 640, true);
        watch.plain(1, 640, true, 2);
        (1..SOON.into()).for_each(|other| watch.announce(0, 6400 + 64 * other, false));
        watch.plain(0, 648, false, 3);
        assert!(watch.places.is_empty(), "the announcement was among the last few");
        watch.announce(1, 640, true);
        watch.announce(0, 6400, false);
        watch.plain(0, 648, false, 3);
        let report = watch.report();
        assert_eq!(report.len(), 1);
        assert!(report[0].changing && !report[0].writes && report[0].lines == 1);
    }

    #[test]
    fn an_announcement_may_come_soon_after() {
        for (others, writer, found) in [(3, None, 0), (4, None, 1), (3, Some(1), 1)] {
            let mut watch = Watch::default();
            watch.announce(1, 640, true);
            watch.plain(0, 648, true, 1);
            (0..others).for_each(|other| watch.announce(0, 6400 + 64 * other, false));
            writer.into_iter().for_each(|thread| watch.announce(thread, 650, true));
            watch.announce(0, 656, true);
            assert_eq!(watch.report().len(), found, "after {others} others");
        }
    }

    #[test]
    fn what_set_up_writes_does_not_change() {
        for (writer_later, changing) in [(false, false), (true, true)] {
            let mut watch = Watch::default();
            watch.plain(9, 640, true, 1);
            watch.begin();
            watch.plain(0, 640, false, 2);
            watch.plain(1, 648, false, 2);
            if writer_later {
                watch.announce(9, 640, true);
            }
            let report = watch.report();
            assert_eq!(
                report.iter().map(|place| (place.changing, place.accesses)).collect::<Vec<_>>(),
                [(changing, 2)]
            );
        }
    }

    #[test]
    fn a_read_announces_no_write() {
        let mut watch = Watch::default();
        watch.announce(0, 0, false);
        watch.plain(0, 0, true, 1);
        assert!(watch.report().is_empty(), "one thread's own");
        watch.plain(1, 8, false, 2);
        assert_eq!(watch.report().iter().map(|place| place.accesses).sum::<u64>(), 2);
    }
}

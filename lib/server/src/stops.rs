//! A journal of decisions about scripts that ran long. It is stored in the folder `stopped` of the log's directory.
//!
//! A replica stops a script by a clock. A recovery cannot repeat this decision by a clock, so it needs the point at which
//! the script was stopped ([`deadline`](crate::deadline) explains points). The log's record of the script is written before
//! the decision. Therefore the decisions, the *entries*, go to this second journal. Each entry is synced before any effect
//! of the script is visible. Most servers never have an entry: the folder is created for the first one.
//!
//! # What a recovery does with a script
//! - *The outcome is known.* The script stops at the recorded point, or runs to its own end.
//! - *The script is known to have run long, and its outcome is unknown.* The process ended while the script ran. No replica
//!   had finished the script, because its outcome would have been synced first. So no client has seen the script's effects,
//!   or any later change of the log. The recovery stops the script at its first point. Scripts after it in the log are
//!   limited by time like new scripts. Both write entries of their own.
//! - *Nothing is known.* The script ended soon, or the process ended within the script's first moments. The recovery runs
//!   the script without a time limit: a clock of the recovery says nothing about the first run, since the recovery may run
//!   on another machine.
//!
//! # Positions
//! An entry identifies a record by the position of the record's end in the log. A power failure may remove the log's last
//! records although they have entries, and the log then gives their positions to other changes. So each start drops the
//! entries after the log's end before it accepts changes. It also drops the entries that the snapshot has made superfluous.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use archipelago_journal::{Disk, Error, Journal, Options};
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};

/// Identifies a call in the log: the end of its record, and its number in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId {
    /// The position of the record's end in the log.
    pub record: u64,
    /// The call's number in the record.
    pub number: u32,
}

/// What is known about a script that ran long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The script has run for a while.
    Running,
    /// All replicas stop the script at this point.
    Stopped(u64),
    /// All replicas run the script to its own end.
    Finished,
}

/// What a recovery does with a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// This entry is known about the script.
    Known(Entry),
    /// No entry is known, and no client has seen the script's effects.
    Unseen,
    /// No entry is known. The script runs without a time limit.
    Old,
}

/// The entries of a directory.
pub struct Stops {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The position of the first script that was running when the previous process ended, if there is one.
    unseen: Option<u64>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// The journal of the entries. It is created with the first entry.
    journal: Option<Journal>,
    entries: BTreeMap<CallId, Entry>,
    failed: Option<Error>,
}

/// The first word of a record: whether its entries are added to the earlier entries, or replace them.
const ADD: u64 = 0;
const REPLACE: u64 = 1;

impl Entry {
    fn word(self) -> u64 {
        match self {
            Self::Running => 0,
            Self::Stopped(point) => point,
            Self::Finished => u64::MAX,
        }
    }

    fn of(word: u64) -> Self {
        match word {
            0 => Self::Running,
            u64::MAX => Self::Finished,
            point => Self::Stopped(point),
        }
    }
}

fn encoded<'e>(what: u64, entries: impl Iterator<Item = (&'e CallId, &'e Entry)>) -> Vec<u8> {
    let words = entries.flat_map(|(place, entry)| [place.record, place.number.into(), entry.word()]);
    [what].into_iter().chain(words).flat_map(u64::to_le_bytes).collect()
}

fn take_in(bytes: &[u8], entries: &mut BTreeMap<CallId, Entry>) -> Option<()> {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (what, triples) = words.split_first()?;
    let (triples, over) = triples.as_chunks::<3>();
    if !rest.is_empty() || !over.is_empty() || *what > REPLACE {
        return None;
    }
    if *what == REPLACE {
        entries.clear();
    }
    for &[record, number, word] in triples {
        entries.insert(CallId { record, number: number.try_into().ok()? }, Entry::of(word));
    }
    Some(())
}

/// Opens the journal, or creates it. A torn tail is cut: its entries were not synced, so no effect of their scripts was
/// visible.
fn open(disk: &Arc<dyn Disk>, path: &Path, mut each: impl FnMut(&[u8]) + Send) -> Result<Journal, Error> {
    let options = Options { background: false, segment: 64 << 10, ..Options::default() };
    let each = Mutex::new(&mut each);
    let each =
        |record: archipelago_journal::Record<'_>| each.lock().expect("the one before did not panic")(record.bytes);
    Ok(Journal::open(disk.clone(), path, options, each)?.0)
}

impl Stops {
    /// Opens the entries beside the log in `directory`.
    ///
    /// # Errors
    /// The errors of the journal, and a sentence if an entry is malformed.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path) -> Result<Self, String> {
        let path = directory.join("stopped");
        let (mut entries, mut sound) = (BTreeMap::new(), true);
        let is_there = disk.list(directory).is_ok_and(|names| names.iter().any(|name| name == "stopped"));
        let take = |bytes: &[u8]| sound &= take_in(bytes, &mut entries).is_some();
        let journal = is_there.then(|| open(&disk, &path, take)).transpose().map_err(|error| error.to_string())?;
        if !sound {
            return Err(format!("{}: an entry makes no sense: start the version that wrote it", path.display()));
        }
        let unseen = entries.iter().find(|(_, entry)| **entry == Entry::Running).map(|(place, _)| place.record);
        Ok(Self { disk, path, unseen, inner: Mutex::new(Inner { journal, entries, failed: None }) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nothing panics while it is locked")
    }

    /// Returns what a recovery does with a script.
    pub fn recall(&self, place: CallId) -> Recalled {
        match self.lock().entries.get(&place) {
            Some(entry) => Recalled::Known(*entry),
            None if self.unseen.is_some_and(|first| place.record >= first) => Recalled::Unseen,
            None => Recalled::Old,
        }
    }

    /// Adds an entry and syncs it. If this fails, the script still continues or stops as decided, because the other replicas
    /// do. From then on [`sound`](Self::sound) returns an error.
    pub fn note(&self, place: CallId, entry: Entry) {
        let inner = &mut *self.lock();
        inner.entries.insert(place, entry);
        inner.write(&self.disk, &self.path, &encoded(ADD, [(&place, &entry)].into_iter()));
    }

    /// Drops the entries of records at or before `from`, and of records after `to`.
    ///
    /// # Errors
    /// The errors of the journal.
    pub fn keep(&self, from: u64, to: u64) -> Result<(), Error> {
        let inner = &mut *self.lock();
        let before = inner.entries.len();
        inner.entries.retain(|place, _| from < place.record && place.record <= to);
        if inner.entries.len() < before && inner.failed.is_none() {
            let end = inner.journal.as_ref().map(|journal| journal.end(0));
            inner.write(&self.disk, &self.path, &encoded(REPLACE, inner.entries.iter()));
            if let (Some(end), Some(journal), None) = (end, &inner.journal, &inner.failed) {
                journal.retire_before(end)?;
            }
        }
        inner.failed.clone().map_or(Ok(()), Err)
    }

    /// Checks that all entries are durable.
    ///
    /// # Errors
    /// The first error of the journal. No later entry can be relied on.
    pub fn sound(&self) -> Result<(), Error> {
        self.lock().failed.clone().map_or(Ok(()), Err)
    }
}

impl Inner {
    fn write(&mut self, disk: &Arc<dyn Disk>, path: &Path, record: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        let mut written = || {
            let journal = match &mut self.journal {
                Some(journal) => journal,
                none => none.insert(open(disk, path, |_| ())?),
            };
            journal.wait(journal.append(0, 0, record)?)
        };
        self.failed = written().err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_journal::{Call, Fault, Simulated};

    fn opened(disk: &Simulated) -> Stops {
        Stops::open(Arc::new(disk.clone()), Path::new("/")).unwrap()
    }

    fn at(record: u64) -> CallId {
        CallId { record, number: 0 }
    }

    #[test]
    fn a_recovery_knows_outcomes_and_what_nobody_saw() {
        let disk = Simulated::new();
        let stops = opened(&disk);
        assert_eq!(disk.list(Path::new("/")).unwrap().len(), 0, "nothing is made before the first entry");
        stops.note(at(10), Entry::Running);
        stops.note(at(10), Entry::Stopped(7));
        stops.note(CallId { record: 20, number: 2 }, Entry::Finished);
        stops.note(at(30), Entry::Running);
        stops.note(at(50), Entry::Stopped(3));
        drop(stops);
        let stops = opened(&disk.power_loss(0));
        assert_eq!(stops.recall(at(10)), Recalled::Known(Entry::Stopped(7)));
        assert_eq!(stops.recall(at(20)), Recalled::Old);
        assert_eq!(stops.recall(CallId { record: 20, number: 2 }), Recalled::Known(Entry::Finished));
        assert_eq!(stops.recall(at(30)), Recalled::Known(Entry::Running));
        assert_eq!(stops.recall(at(40)), Recalled::Unseen);
        assert_eq!(stops.recall(at(50)), Recalled::Known(Entry::Stopped(3)));
    }

    #[test]
    fn entries_that_no_record_has_are_dropped_for_good() {
        let disk = Simulated::new();
        let stops = opened(&disk);
        [10, 20, 30].into_iter().for_each(|record| stops.note(at(record), Entry::Stopped(1)));
        stops.keep(10, 20).unwrap();
        drop(stops);
        let stops = opened(&disk.power_loss(0));
        for (record, known) in [(10, false), (20, true), (30, false)] {
            assert_eq!(stops.recall(at(record)) == Recalled::Known(Entry::Stopped(1)), known, "{record}");
        }
    }

    #[test]
    fn a_torn_tail_is_cut_and_a_failure_is_for_good() {
        let disk = Simulated::new();
        let stops = opened(&disk);
        stops.note(at(10), Entry::Stopped(1));
        disk.fail_next(Call::Sync, Fault::Io);
        stops.note(at(20), Entry::Stopped(2));
        assert!(stops.sound().is_err());
        stops.note(at(30), Entry::Stopped(3));
        assert!(stops.sound().is_err() && stops.keep(0, 100).is_err());
        for seed in 0..20 {
            let stops = opened(&disk.power_loss(seed));
            assert_eq!(stops.recall(at(10)), Recalled::Known(Entry::Stopped(1)));
            assert_eq!(stops.recall(at(20)), Recalled::Old);
        }
    }
}

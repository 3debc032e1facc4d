//! What became of scripts that ran long, beside the log: in the folder `stopped` of its directory.
//!
//! A replica stops a script by time, and a recovery has no such clock: it needs to know at which point the script was stopped. The log's
//! record is older than the decision, so entries go to a journal of their own, each synced before anything that the script did
//! can be seen. Most servers never have one: the folder is made for the first entry.
//!
//! # What a recovery does with a script
//! - *An outcome is known.* The script stops at its point, or runs to its end.
//! - *It is known to have run long, and no outcome is known.* The process ended meanwhile. No replica had carried the script out: an
//!   outcome would have been synced before. So nobody has seen it or any change behind it in the log. It is stopped at its first
//!   point, and scripts behind it are limited by time as new ones are; both with entries of their own.
//! - *Nothing is known.* It ended soon (or the process did, within the first moments of the script): it runs without a limit of
//!   time, which is no evidence here, on another machine perhaps.
//!
//! # Places
//! An entry names a record by where it ends in the log. What a power failure takes from the log's end may have entries, and its
//! places are given to other changes then. So each start drops the entries behind the log's end before it takes changes; with
//! them go those that the snapshot has made superfluous.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use archipelago_journal::{Disk, Error, Journal, Options};
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};

/// Which call of the log: where its record ends, and its number in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Where the record ends.
    pub record: u64,
    /// The call's number in it.
    pub number: u32,
}

/// What is known of a script that ran long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It has run for a while.
    Running,
    /// All replicas stop it at this point.
    Stopped(u64),
    /// All replicas run it to its end.
    Finished,
}

/// What a recovery is to do with a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recalled {
    /// So much is known of it.
    Known(Entry),
    /// Nothing is, and nobody has seen what it did.
    Unseen,
    /// It runs without a limit of time.
    Old,
}

/// The entries of a directory.
pub struct Stops {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Of the first script that ran when the process before ended.
    unseen: Option<u64>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Where entries go; none is there before the first.
    journal: Option<Journal>,
    entries: BTreeMap<Place, Entry>,
    failed: Option<Error>,
}

/// What a record does with the entries before it.
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

fn encoded<'e>(what: u64, entries: impl Iterator<Item = (&'e Place, &'e Entry)>) -> Vec<u8> {
    let words = entries.flat_map(|(place, entry)| [place.record, place.number.into(), entry.word()]);
    [what].into_iter().chain(words).flat_map(u64::to_le_bytes).collect()
}

fn take_in(bytes: &[u8], entries: &mut BTreeMap<Place, Entry>) -> Option<()> {
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
        entries.insert(Place { record, number: number.try_into().ok()? }, Entry::of(word));
    }
    Some(())
}

/// Opens the journal, which is made if it is not there. A torn tail is cut: what was not synced was not seen.
fn open(disk: &Arc<dyn Disk>, path: &Path, mut each: impl FnMut(&[u8]) + Send) -> Result<Journal, Error> {
    let options = Options { background: false, segment: 64 << 10, ..Options::default() };
    let each = Mutex::new(&mut each);
    let each =
        |record: archipelago_journal::Record<'_>| each.lock().expect("the one before did not panic")(record.bytes);
    Ok(Journal::open(disk.clone(), path, options, each)?.0)
}

impl Stops {
    /// Those beside the log in `directory`.
    ///
    /// # Errors
    /// Those of the journal, and a sentence if an entry makes no sense.
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

    /// What a recovery is to do with a script.
    pub fn recall(&self, place: Place) -> Recalled {
        match self.lock().entries.get(&place) {
            Some(entry) => Recalled::Known(*entry),
            None if self.unseen.is_some_and(|first| place.record >= first) => Recalled::Unseen,
            None => Recalled::Old,
        }
    }

    /// Notes what is known of a script, and syncs it. Should that fail, [`sound`](Self::sound) says so for good: the script goes
    /// on or stops all the same, since other replicas do.
    pub fn note(&self, place: Place, entry: Entry) {
        let inner = &mut *self.lock();
        inner.entries.insert(place, entry);
        inner.write(&self.disk, &self.path, &encoded(ADD, [(&place, &entry)].into_iter()));
    }

    /// Drops entries of records at or before `from`, and of those behind `to`.
    ///
    /// # Errors
    /// Those of the journal.
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

    /// Returns whether all that was noted is durable.
    ///
    /// # Errors
    /// Why something is not: nothing that comes later can be relied on.
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

    fn at(record: u64) -> Place {
        Place { record, number: 0 }
    }

    #[test]
    fn a_recovery_knows_outcomes_and_what_nobody_saw() {
        let disk = Simulated::new();
        let stops = opened(&disk);
        assert_eq!(disk.list(Path::new("/")).unwrap().len(), 0, "nothing is made before the first entry");
        stops.note(at(10), Entry::Running);
        stops.note(at(10), Entry::Stopped(7));
        stops.note(Place { record: 20, number: 2 }, Entry::Finished);
        stops.note(at(30), Entry::Running);
        stops.note(at(50), Entry::Stopped(3));
        drop(stops);
        let stops = opened(&disk.power_loss(0));
        assert_eq!(stops.recall(at(10)), Recalled::Known(Entry::Stopped(7)));
        assert_eq!(stops.recall(at(20)), Recalled::Old);
        assert_eq!(stops.recall(Place { record: 20, number: 2 }), Recalled::Known(Entry::Finished));
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

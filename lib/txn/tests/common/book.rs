//! Transactions that record all their reads and writes, for the checker of anomalies.
//!
//! Rows of `Item` are inserted and removed. The table `Log` has a row for each key. This row lists all versions of the
//! key, removals included, in order, because the checker needs the order.

use std::collections::BTreeMap;

use archipelago_check::adya::{Action, History, Txn};
use archipelago_check::history::Recorder;
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::sync::Mutex;
use archipelago_txn::{ClockKind, Database, Error, Index, Isolation, Row, Scheme, Table, Tx, on};

/// The number of keys of a book.
pub const KEYS: u64 = 6;

pub struct Item<M> {
    key: u64,
    version: u64,
    map: std::marker::PhantomData<M>,
}

impl<M> Clone for Item<M> {
    fn clone(&self) -> Self {
        Self { key: self.key, version: self.version, map: self.map }
    }
}

impl<M: on::Kind> Row for Item<M> {
    type Key = u64;
    type Map = M;
    type Indexes = (ByHalf<M>, ByVersion<M>);
    fn key(&self) -> u64 {
        self.key
    }
}

/// An index whose key states whether the row's key is even or odd.
pub struct ByHalf<M>(std::marker::PhantomData<M>);

impl<M: on::Kind> Index for ByHalf<M> {
    type Row = Item<M>;
    type Key = u8;
    type Map = M;
    fn key(row: &Item<M>) -> u8 {
        (row.key % 2) as u8
    }
}

/// An index whose entry changes at each update.
pub struct ByVersion<M>(std::marker::PhantomData<M>);

impl<M: on::Kind> Index for ByVersion<M> {
    type Row = Item<M>;
    type Key = String;
    type Map = M;
    const UNIQUE: bool = true;
    fn key(row: &Item<M>) -> String {
        row.version.to_string()
    }
}

#[derive(Clone)]
struct Log {
    key: u64,
    versions: Vec<u64>,
}

impl Row for Log {
    type Key = u64;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.key
    }
}

pub struct Book<S: Scheme, M: on::Kind> {
    db: Database<S>,
    items: Table<Item<M>, S>,
    logs: Table<Log, S>,
    versions: AtomicU64,
    stamps: Recorder<(), ()>,
    done: Mutex<Vec<Txn<u64>>>,
}

/// The closure's own error.
enum Stop {
    Wanted,
    Engine(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

type Notes = Vec<Action<u64>>;

impl<S: Scheme, M: on::Kind> Book<S, M> {
    /// Creates an empty book, ordered by a clock of this kind.
    pub fn new(clock: ClockKind) -> Self {
        let db = Database::new().with_clock(clock);
        let (items, logs) = (db.table(), db.table());
        let versions = AtomicU64::new(1);
        Self { db, items, logs, versions, stamps: Recorder::new(), done: Mutex::new(Vec::new()) }
    }

    fn note(&self, committed: bool, begin: u64, actions: Notes) {
        let during = (begin, self.stamps.stamp());
        self.done.lock().unwrap().push(Txn { committed, during, actions });
    }

    /// Runs one transaction. `random` returns a random number below its argument.
    pub fn transact(&self, isolation: Isolation, random: impl Fn(u64) -> u64) {
        let begin = self.stamps.stamp();
        if random(8) == 0 {
            return self.report(begin, random);
        }
        let steps: Vec<(u64, u64, u64)> = (0..1 + random(4)).map(|_| (random(8), random(KEYS), random(KEYS))).collect();
        let fails = random(8) == 0;
        let mut notes = Notes::new();
        let result = self.db.transact_at(isolation, |tx| {
            notes.clear();
            for &(step, key, other) in &steps {
                self.step(tx, &mut notes, step, key, other)?;
            }
            if fails { Err(Stop::Wanted) } else { Ok(()) }
        });
        if let Err(Stop::Engine(error)) = &result {
            panic!("{error}");
        }
        self.note(result.is_ok(), begin, notes);
    }

    fn step(&self, tx: &mut Tx<'_, S>, notes: &mut Notes, step: u64, key: u64, other: u64) -> Result<(), Error> {
        match step {
            0 | 1 => {
                let found = tx.get(&self.items, &key)?.map(|item| item.version);
                notes.push(Action::Read(key, found));
            }
            2 => {
                let (from, to) = (key.min(other), key.max(other));
                let rows = if key < other {
                    tx.range(&self.items, from..=to).collect::<Result<Vec<_>, _>>()?
                } else {
                    let mut rows = tx.range_rev(&self.items, from..=to).collect::<Result<Vec<_>, _>>()?;
                    rows.reverse();
                    rows
                };
                notes.push(Action::Range(from, to, rows.iter().map(|row| (row.key, row.version)).collect()));
            }
            3 => {
                let half = (key % 2) as u8;
                let rows = tx.range_by::<ByHalf<M>>(&self.items, half..=half).collect::<Result<Vec<_>, _>>()?;
                let mut found: Vec<_> = rows.iter().map(|row| (row.key, row.version)).collect();
                // The order of rows with the same key of the index is unspecified.
                found.sort_unstable();
                notes.push(Action::Among((0..KEYS).filter(|key| key % 2 == u64::from(half)).collect(), found));
            }
            4 => {
                let before = tx.remove(&self.items, &key)?.map(|row| row.version);
                notes.push(Action::Read(key, before));
                if before.is_some() {
                    let version = self.versions.fetch_add(1, Ordering::Relaxed);
                    notes.push(Action::Write { key, version, there: false });
                    self.list(tx, key, version)?;
                }
            }
            5 => {
                // This savepoint is rolled back, so it has no effect.
                let taken_back = tx.savepoint(|tx| {
                    let version = self.versions.fetch_add(1, Ordering::Relaxed);
                    tx.upsert(&self.items, Item { key, version, map: Default::default() })?;
                    tx.remove(&self.items, &other)?;
                    Err::<(), _>(Stop::Wanted)
                });
                if let Err(Stop::Engine(error)) = taken_back {
                    return Err(error);
                }
            }
            _ => {
                let version = self.versions.fetch_add(1, Ordering::Relaxed);
                let row = Item { key, version, map: Default::default() };
                let before = tx.upsert(&self.items, row)?.map(|row| row.version);
                notes.push(Action::Read(key, before));
                notes.push(Action::Write { key, version, there: true });
                self.list(tx, key, version)?;
            }
        }
        Ok(())
    }

    /// Adds a version to the list of a key. If one transaction adds several versions of a key, `finish` keeps only the
    /// last of them.
    fn list(&self, tx: &mut Tx<'_, S>, key: u64, version: u64) -> Result<(), Error> {
        let mut versions = tx.get(&self.logs, &key)?.map_or(Vec::new(), |log| log.versions.clone());
        versions.push(version);
        tx.upsert(&self.logs, Log { key, versions }).map(drop)
    }

    /// Reads some rows of a snapshot by their keys, and all rows by an index and by a range. Records the reads.
    fn report(&self, begin: u64, random: impl Fn(u64) -> u64) {
        let snapshot = self.db.snapshot();
        let mut notes: Notes = (0..KEYS)
            .filter(|_| random(2) == 0)
            .map(|key| Action::Read(key, snapshot.get(&self.items, &key).map(|item| item.version)))
            .collect();
        let by_half = snapshot.range_by::<ByHalf<M>>(&self.items, ..);
        let mut rows: Vec<(u64, u64)> = by_half.map(|row| (row.key, row.version)).collect();
        rows.sort_unstable();
        assert_eq!(rows, snapshot.range(&self.items, ..).map(|row| (row.key, row.version)).collect::<Vec<_>>());
        notes.push(Action::Range(0, KEYS - 1, rows));
        drop(snapshot);
        self.note(true, begin, notes);
    }

    /// Returns the history. Checks that the indexes agree with the rows.
    pub fn finish(self) -> History<u64> {
        let snapshot = self.db.snapshot();
        let rows = snapshot.range(&self.items, ..).count();
        assert_eq!(snapshot.range_by::<ByVersion<M>>(&self.items, ..).count(), rows);
        assert_eq!(snapshot.range_by_rev::<ByHalf<M>>(&self.items, ..).count(), rows);
        let txns = std::mem::take(&mut *self.done.lock().unwrap());
        let mut last: BTreeMap<u64, bool> = BTreeMap::new();
        for txn in &txns {
            let mut writes = BTreeMap::new();
            for action in &txn.actions {
                if let Action::Write { key, version, .. } = action
                    && let Some(before) = writes.insert(key, *version)
                {
                    last.insert(before, false);
                }
            }
        }
        let is_last = |version: &u64| *last.get(version).unwrap_or(&true);
        let order = snapshot.range(&self.logs, ..);
        let order = order.map(|log| (log.key, log.versions.iter().copied().filter(is_last).collect())).collect();
        drop(snapshot);
        History { txns, order }
    }
}

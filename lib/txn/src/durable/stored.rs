//! A table's interface for logs and checkpoints.

use std::path::PathBuf;

use archipelago_journal as journal;
use archipelago_platform::sync::Arc;
use core::ops::Bound;

use super::Failure;
use super::persist::Persist;
use crate::codec::{HEAD, REMOVED};
use crate::scheme::Scheme;
use crate::sight::Link;
use crate::snapshot::Snapshot;
use crate::table::{Core, Row};
use crate::tree::{Home, Tree};

/// A table without the type of its rows.
pub(crate) trait Stored<S: Scheme>: Send + Sync {
    /// Sets the number under which the table is logged.
    fn number(&self, table: u32);

    /// Restores a row, or its removal, which a commit with this epoch and serial wrote. Several threads may call the
    /// method, in any order. Returns whether the bytes could be read.
    fn apply(&self, home: &Home<S>, stamp: (u64, u64), removed: bool, body: &[u8]) -> bool;

    /// Unlinks removed rows, and fills the secondary indexes. Returns the number of rows, or the name of a unique index
    /// in which two rows have the same key.
    fn finish(&self, home: &Home<S>) -> Result<u64, &'static str>;

    /// Calls `each` with the bytes of each row of a snapshot. Returns the number of rows.
    fn save(
        &self,
        snapshot: &Snapshot<'_, S>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), journal::Error>,
    ) -> Result<u64, journal::Error>;
}

/// The number of rows that are processed in one RCU section. Garbage can be freed only between sections.
const BATCH: usize = 256;

impl<R: Row + Persist, S: Scheme> Stored<S> for Core<R, S>
where
    R::Key: Persist,
{
    fn number(&self, table: u32) {
        self.rows.number(table);
    }

    fn apply(&self, home: &Home<S>, stamp: (u64, u64), removed: bool, body: &[u8]) -> bool {
        let _guard = home.domain.pin();
        if removed {
            let Some(key) = R::Key::load(body) else { return false };
            self.rows.restore(key, stamp, None);
        } else {
            let Some(row) = R::load(body) else { return false };
            self.rows.restore(row.key(), stamp, Some(row));
        }
        true
    }

    fn finish(&self, home: &Home<S>) -> Result<u64, &'static str> {
        let mut from = Bound::Unbounded;
        let mut rows = 0;
        loop {
            let guard = home.domain.pin();
            let (found, done) = self.rows.batch(&(from, Bound::Unbounded), BATCH, false);
            let Some(last) = found.last() else { return Ok(rows) };
            from = Bound::Excluded(last.key().clone());
            for keyed in found {
                // SAFETY: a version of this index, and no transaction runs.
                match unsafe { crate::sight::payload::<R, S>(keyed.record().head().version()) } {
                    Some(row) => {
                        let taken = self.indexes.iter().find(|index| !index.restore(row, Link(keyed)));
                        if let Some(index) = taken {
                            return Err(index.name());
                        }
                        rows += 1;
                    }
                    // SAFETY: found in this index, inside of the guard.
                    None => unsafe { self.rows.unlink(keyed.record(), &guard) },
                }
            }
            if done {
                return Ok(rows);
            }
        }
    }

    fn save(
        &self,
        snapshot: &Snapshot<'_, S>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), journal::Error>,
    ) -> Result<u64, journal::Error> {
        let mut bytes = Vec::new();
        let mut rows = 0;
        for row in snapshot.rows(self) {
            bytes.clear();
            row.save(&mut bytes);
            each(&bytes)?;
            rows += 1;
        }
        Ok(rows)
    }
}

/// The tables of a database, by number: the names of all, and the tables that are declared.
pub(crate) struct Catalogue<S: Scheme> {
    pub(crate) names: Vec<String>,
    pub(crate) tables: Vec<Option<Arc<dyn Stored<S>>>>,
    /// The path of the file of names, and how many names it had.
    path: PathBuf,
    known: usize,
}

impl<S: Scheme> Catalogue<S> {
    /// Makes a catalogue of these names, adds the names of declared tables that are new, and numbers the declared
    /// tables. Also returns how many names are new.
    pub(crate) fn new(path: PathBuf, names: Vec<String>, declared: &[(String, Arc<dyn Stored<S>>)]) -> (Self, usize) {
        let (tables, known) = (names.iter().map(|_| None).collect(), names.len());
        let mut this = Self { tables, names, path, known };
        for (name, table) in declared {
            let number = this.names.iter().position(|other| other == name).unwrap_or_else(|| {
                this.names.push(name.clone());
                this.tables.push(None);
                this.names.len() - 1
            });
            table.number(number as u32);
            this.tables[number] = Some(table.clone());
        }
        let new = this.names.len() - this.known;
        (this, new)
    }

    pub(crate) fn table(&self, number: u32) -> Result<&dyn Stored<S>, Failure> {
        if number as usize >= self.known {
            let what = format!("it lacks the name of table {number}, of which there are rows");
            return Err(journal::Error::Damaged { file: self.path.clone(), offset: 0, what }.into());
        }
        let table = self.tables[number as usize].as_deref();
        table.ok_or_else(|| Failure::Undeclared { table: self.name(number) })
    }

    pub(crate) fn name(&self, number: u32) -> String {
        self.names.get(number as usize).cloned().unwrap_or_else(|| format!("number {number}"))
    }

    /// Applies a transaction of an epoch.
    pub(crate) fn apply(&self, home: &Home<S>, epoch: u64, mut entries: &[u8]) -> Result<(), Failure> {
        while let Some((head, rest)) = entries.split_first_chunk::<HEAD>() {
            let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (table, length) = (word(0), word(12) as usize);
            let serial = u64::from(word(4)) | u64::from(word(8)) << 32;
            let number = table & !REMOVED;
            let unreadable = || Failure::Unreadable { table: self.name(number) };
            let body = rest.get(..length).ok_or_else(unreadable)?;
            if !self.table(number)?.apply(home, (epoch, serial), table & REMOVED != 0, body) {
                return Err(unreadable());
            }
            entries = &rest[length..];
        }
        if entries.is_empty() { Ok(()) } else { Err(Failure::Unreadable { table: "(an entry without an end)".into() }) }
    }
}

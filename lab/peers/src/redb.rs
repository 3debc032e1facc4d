//! redb: a copy-on-write B-tree. One writer at a time runs beside readers of snapshots, so no transaction is repeated.

use core::ops::Range;

use ::redb::backends::InMemoryBackend;
use ::redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition};
use archipelago_workloads::{Bytes, Error, Steps, Stop, Way};

/// `redb::Database` in memory.
pub struct Redb(Database);

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

/// Operations in memory do not fail.
const WORKS: &str = "memory has no failures";

impl Default for Redb {
    fn default() -> Self {
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).expect(WORKS);
        let first = database.begin_write().expect(WORKS);
        first.open_table(ROWS).expect(WORKS);
        first.commit().expect(WORKS);
        Redb(database)
    }
}

/// A transaction.
pub enum Access<'t> {
    /// A transaction that only reads.
    Reads(ReadOnlyTable<&'static [u8], &'static [u8]>),
    /// The writing transaction.
    Writes(Table<'t, &'static [u8], &'static [u8]>),
}

impl Bytes for Redb {
    type Steps<'t> = Access<'t>;

    fn attempt<T>(&self, writes: bool, body: impl FnOnce(&mut Access<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        if !writes {
            let transaction = self.0.begin_read().expect(WORKS);
            return body(&mut Access::Reads(transaction.open_table(ROWS).expect(WORKS)));
        }
        let transaction = self.0.begin_write().expect(WORKS);
        let made = body(&mut Access::Writes(transaction.open_table(ROWS).expect(WORKS)));
        if made.is_ok() {
            transaction.commit().expect(WORKS);
        } else {
            transaction.abort().expect(WORKS);
        }
        made
    }
}

impl<'t> Access<'t> {
    fn writer(&mut self) -> &mut Table<'t, &'static [u8], &'static [u8]> {
        match self {
            Access::Writes(table) => table,
            Access::Reads(_) => unreachable!("what was said to read writes nothing"),
        }
    }
}

/// Visits values until `visit` returns false.
fn show(
    table: &impl ReadableTable<&'static [u8], &'static [u8]>,
    range: Range<Vec<u8>>,
    way: Way,
    mut visit: impl FnMut(&[u8]) -> bool,
) {
    let mut rows = table.range(&*range.start..&*range.end).expect(WORKS);
    let next = || if way == Way::Up { rows.next() } else { rows.next_back() };
    core::iter::from_fn(next).all(|row| visit(row.expect(WORKS).1.value()));
}

impl Steps for Access<'_> {
    fn fetch<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        let found = match self {
            Access::Reads(table) => table.get(key),
            Access::Writes(table) => table.get(key),
        };
        Ok(found.expect(WORKS).map(|bytes| read(bytes.value())))
    }

    fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), Error> {
        self.writer().insert(key, bytes).expect(WORKS);
        Ok(())
    }

    fn erase(&mut self, key: &[u8]) -> Result<(), Error> {
        self.writer().remove(key).expect(WORKS);
        Ok(())
    }

    fn walk(&mut self, range: Range<Vec<u8>>, way: Way, visit: impl FnMut(&[u8]) -> bool) -> Result<(), Error> {
        match self {
            Access::Reads(table) => show(table, range, way, visit),
            Access::Writes(table) => show(table, range, way, visit),
        }
        Ok(())
    }
}

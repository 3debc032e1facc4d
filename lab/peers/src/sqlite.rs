//! SQLite in memory: one connection behind a lock, as in most Rust programs. No transaction is repeated.

use core::ops::Range;
use std::sync::Mutex;

use archipelago_workloads::{Bytes, Error, Steps, Stop, Way};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// A `rusqlite::Connection` to `:memory:`.
pub struct Sqlite(Mutex<Connection>);

/// Operations in memory do not fail.
const WORKS: &str = "memory has no failures";

impl Default for Sqlite {
    fn default() -> Self {
        let connection = Connection::open_in_memory().expect(WORKS);
        let table = "CREATE TABLE entries (key BLOB PRIMARY KEY, bytes BLOB NOT NULL) WITHOUT ROWID";
        connection.execute_batch(table).expect(WORKS);
        Sqlite(Mutex::new(connection))
    }
}

/// A transaction.
pub struct Access<'t>(Transaction<'t>);

impl Bytes for Sqlite {
    type Steps<'t> = Access<'t>;

    fn attempt<T>(&self, _: bool, body: impl FnOnce(&mut Access<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        let mut connection = self.0.lock().expect("no transaction panics");
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).expect(WORKS);
        let mut access = Access(transaction);
        let made = body(&mut access);
        if made.is_ok() {
            access.0.commit().expect(WORKS);
        } else {
            access.0.rollback().expect(WORKS);
        }
        made
    }
}

/// Runs a prepared statement that returns nothing.
fn execute(transaction: &Transaction<'_>, statement: &str, parameters: impl rusqlite::Params) {
    transaction.prepare_cached(statement).expect(WORKS).execute(parameters).expect(WORKS);
}

impl Steps for Access<'_> {
    fn fetch<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        let mut statement = self.0.prepare_cached("SELECT bytes FROM entries WHERE key = ?1").expect(WORKS);
        let found = statement.query_row([key], |row| Ok(read(row.get_ref(0)?.as_blob()?)));
        Ok(found.optional().expect(WORKS))
    }

    fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), Error> {
        execute(&self.0, "INSERT OR REPLACE INTO entries VALUES (?1, ?2)", [key, bytes]);
        Ok(())
    }

    fn erase(&mut self, key: &[u8]) -> Result<(), Error> {
        execute(&self.0, "DELETE FROM entries WHERE key = ?1", [key]);
        Ok(())
    }

    fn walk(&mut self, range: Range<Vec<u8>>, way: Way, mut visit: impl FnMut(&[u8]) -> bool) -> Result<(), Error> {
        let select = match way {
            Way::Up => "SELECT bytes FROM entries WHERE key >= ?1 AND key < ?2 ORDER BY key",
            Way::Down => "SELECT bytes FROM entries WHERE key >= ?1 AND key < ?2 ORDER BY key DESC",
        };
        let mut statement = self.0.prepare_cached(select).expect(WORKS);
        let mut rows = statement.query([&range.start, &range.end]).expect(WORKS);
        while let Some(row) = rows.next().expect(WORKS)
            && visit(row.get_ref(0).and_then(|bytes| Ok(bytes.as_blob()?)).expect(WORKS))
        {}
        Ok(())
    }
}

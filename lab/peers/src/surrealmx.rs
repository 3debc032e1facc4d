//! surrealmx: a multi-version store with many writers. A commit reports conflicts, and the transaction is repeated.

use core::ops::Range;

use ::surrealmx::{Database, Error as Failure, Transaction};
use archipelago_workloads::{Bytes, Error, Steps, Stop, Way};

/// `surrealmx::Database` with its defaults; its own threads collect garbage.
#[derive(Default)]
pub struct SurrealMx(Database);

/// A transaction.
pub struct Access(Transaction);

impl Bytes for SurrealMx {
    type Steps<'t> = Access;

    fn attempt<T>(&self, writes: bool, body: impl FnOnce(&mut Access) -> Result<T, Stop>) -> Result<T, Stop> {
        let mut access = Access(self.0.transaction(writes).with_serializable_snapshot_isolation());
        let made = body(&mut access);
        if made.is_ok() && writes {
            access.0.commit().map_err(failed)?;
        } else {
            access.0.cancel().map_err(failed)?;
        }
        made
    }
}

/// Returns the error of a conflict. Any other failure is a bug of the adapter.
fn failed(failure: Failure) -> Error {
    match failure {
        Failure::KeyReadConflict | Failure::KeyWriteConflict => Error::Conflict,
        other => panic!("surrealmx: {other}"),
    }
}

impl Steps for Access {
    fn fetch<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
        self.0.with_value(key, read).map_err(failed)
    }

    fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), Error> {
        self.0.set(key, bytes).map_err(failed)
    }

    fn erase(&mut self, key: &[u8]) -> Result<(), Error> {
        self.0.del(key).map_err(failed)
    }

    fn walk(&mut self, range: Range<Vec<u8>>, way: Way, mut visit: impl FnMut(&[u8]) -> bool) -> Result<(), Error> {
        match way {
            Way::Up => self.0.scan_with(range, None, None, |_, bytes| visit(bytes)).map(drop).map_err(failed),
            Way::Down => {
                self.0.scan_iter_reverse(range).map_err(failed)?.all(|(_, bytes)| visit(&bytes));
                Ok(())
            }
        }
    }
}

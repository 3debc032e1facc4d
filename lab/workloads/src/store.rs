//! The operations that a workload needs from a database.

use core::marker::PhantomData;
use core::ops::RangeBounds;

use archipelago_txn::Error;

use crate::record::Record;

/// Why a transaction did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The workload decided to roll the transaction back.
    Wanted,
    /// The store could not commit the transaction.
    Store(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Store(error)
    }
}

/// A database with tables of [`Record`]s.
pub trait Store: Send + Sync + Sized + 'static {
    /// A table; clones are handles of the same table.
    type Table<R: Record>: Clone + Send + Sync;

    /// A transaction.
    type Tx<'t>: Write<Self>;

    /// A consistent view of all tables at one moment.
    type View<'v>: Read<Self>;

    /// Makes an empty table.
    fn table<R: Record>(&self) -> Self::Table<R>;

    /// Runs a transaction until it commits; `body` may run several times.
    ///
    /// # Errors
    /// The error of `body`; the transaction then leaves no effects.
    fn transact<T>(&self, body: impl FnMut(&mut Self::Tx<'_>) -> Result<T, Stop>) -> Result<T, Stop>;

    /// Does the same as [`transact`](Self::transact) for a `body` that writes nothing. Some stores handle this case
    /// differently.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    fn transact_read<T>(&self, body: impl FnMut(&mut Self::Tx<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        self.transact(body)
    }

    /// Reads all tables as they are at one moment.
    fn view<T>(&self, body: impl FnOnce(&mut Self::View<'_>) -> T) -> T;
}

/// A table of a store that numbers its tables.
pub struct Numbered<R> {
    /// Its number, from 0.
    pub number: usize,
    rows: PhantomData<fn() -> R>,
}

impl<R> Numbered<R> {
    /// Makes the handle of the table with this number.
    pub fn new(number: usize) -> Self {
        Self { number, rows: PhantomData }
    }
}

impl<R> Clone for Numbered<R> {
    fn clone(&self) -> Self {
        Self::new(self.number)
    }
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the least key upwards.
    Up,
    /// From the greatest key downwards.
    Down,
}

/// Reads. Rows are passed to closures, since not every store can lend a row beyond the call.
pub trait Read<D: Store> {
    /// Returns the result of `read` for the row with this primary key, if the row exists.
    ///
    /// # Errors
    /// If another transaction conflicts with this one.
    fn get<R: Record, T>(
        &mut self,
        table: &D::Table<R>,
        key: &R::Key,
        read: impl FnOnce(&R) -> T,
    ) -> Result<Option<T>, Error>;

    /// Announces that the transaction will read or update the rows with these primary keys, so that the store can wait
    /// for several of them at a time. The default ignores the announcement.
    ///
    /// # Errors
    /// If another transaction conflicts with this one.
    fn will_use<R: Record>(&mut self, _table: &D::Table<R>, _keys: &[R::Key]) -> Result<(), Error> {
        Ok(())
    }

    /// Calls `visit` with the rows of a range of primary keys, until it returns false.
    ///
    /// # Errors
    /// If another transaction conflicts with this one.
    fn scan<R: Record>(
        &mut self,
        table: &D::Table<R>,
        range: impl RangeBounds<R::Key>,
        way: Way,
        visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error>;

    /// Scans as [`scan`](Self::scan) does, by the secondary index.
    ///
    /// # Errors
    /// If another transaction conflicts with this one.
    fn scan_second<R: Record>(
        &mut self,
        table: &D::Table<R>,
        range: impl RangeBounds<R::Second>,
        way: Way,
        visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error>;
}

/// Reads and writes.
pub trait Write<D: Store>: Read<D> {
    /// Inserts a row.
    ///
    /// # Errors
    /// If a row with this key exists, or another transaction conflicts with this one.
    fn insert<R: Record>(&mut self, table: &D::Table<R>, row: R) -> Result<(), Error>;

    /// Changes a row, if it exists. Returns the result of `change`.
    ///
    /// # Errors
    /// If another transaction conflicts with this one.
    fn update<R: Record, T>(
        &mut self,
        table: &D::Table<R>,
        key: &R::Key,
        change: impl FnOnce(&mut R) -> T,
    ) -> Result<Option<T>, Error>;

    /// Removes a row. Returns whether it existed.
    ///
    /// # Errors
    /// If another transaction conflicts with this one.
    fn remove<R: Record>(&mut self, table: &D::Table<R>, key: &R::Key) -> Result<bool, Error>;
}

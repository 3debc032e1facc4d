//! What a workload asks of a database.

use core::marker::PhantomData;
use core::ops::RangeBounds;

use archipelago_txn::Error;

use crate::record::Record;

/// Why a transaction came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The workload wanted it so: everything is rolled back.
    Wanted,
    /// The store wanted it so.
    Store(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Store(error)
    }
}

/// A database with tables of [`Record`]s.
pub trait Store: Send + Sync + Sized + 'static {
    /// A table; clones are the same table.
    type Table<R: Record>: Clone + Send + Sync;

    /// A transaction.
    type Tx<'t>: Write<Self>;

    /// All tables at one moment.
    type View<'v>: Read<Self>;

    /// Makes an empty table.
    fn table<R: Record>(&self) -> Self::Table<R>;

    /// Runs a transaction until it has been committed; `body` may run several times.
    ///
    /// # Errors
    /// With what `body` returned: nothing of it is left then.
    fn transact<T>(&self, body: impl FnMut(&mut Self::Tx<'_>) -> Result<T, Stop>) -> Result<T, Stop>;

    /// As [`transact`](Self::transact), of a `body` that writes nothing: some stores want to know.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    fn transact_read<T>(&self, body: impl FnMut(&mut Self::Tx<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        self.transact(body)
    }

    /// Looks at all tables at one moment.
    fn view<T>(&self, body: impl FnOnce(&mut Self::View<'_>) -> T) -> T;
}

/// A table of a store that numbers its tables.
pub struct Numbered<R> {
    /// Its number, from 0.
    pub number: usize,
    rows: PhantomData<fn() -> R>,
}

impl<R> Numbered<R> {
    /// The table with this number.
    pub fn new(number: usize) -> Self {
        Self { number, rows: PhantomData }
    }
}

impl<R> Clone for Numbered<R> {
    fn clone(&self) -> Self {
        Self::new(self.number)
    }
}

/// Which way a range is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the least key.
    Up,
    /// From the greatest.
    Down,
}

/// Reads. What a store does not lend beyond the call is looked at by a closure.
pub trait Read<D: Store> {
    /// What `read` makes of the row with this primary key.
    ///
    /// # Errors
    /// If another transaction is in the way.
    fn get<R: Record, T>(
        &mut self,
        table: &D::Table<R>,
        key: &R::Key,
        read: impl FnOnce(&R) -> T,
    ) -> Result<Option<T>, Error>;

    /// Shows the rows of a range of primary keys to `visit` until it returns false.
    ///
    /// # Errors
    /// If another transaction is in the way.
    fn scan<R: Record>(
        &mut self,
        table: &D::Table<R>,
        range: impl RangeBounds<R::Key>,
        way: Way,
        visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error>;

    /// As [`scan`](Self::scan), by the secondary index.
    ///
    /// # Errors
    /// If another transaction is in the way.
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
    /// If its key is there already, or another transaction is in the way.
    fn insert<R: Record>(&mut self, table: &D::Table<R>, row: R) -> Result<(), Error>;

    /// Changes a row, if it is there; returns what `change` made of it.
    ///
    /// # Errors
    /// If another transaction is in the way.
    fn update<R: Record, T>(
        &mut self,
        table: &D::Table<R>,
        key: &R::Key,
        change: impl FnOnce(&mut R) -> T,
    ) -> Result<Option<T>, Error>;

    /// Removes a row; returns whether it was there.
    ///
    /// # Errors
    /// If another transaction is in the way.
    fn remove<R: Record>(&mut self, table: &D::Table<R>, key: &R::Key) -> Result<bool, Error>;
}

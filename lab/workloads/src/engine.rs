//! This library's transactions as a [`Store`]: the scheme (kind of concurrency control) `S`, with all indexes on the
//! map `M`.

use core::marker::PhantomData;
use core::ops::RangeBounds;

use archipelago_platform::touch;
use archipelago_txn::on::Kind;
use archipelago_txn::{ClockKind, Database, Error, Isolation, Scheme, Snapshot, Table, Tx};

#[cfg(not(archipelago_sim))]
use crate::disk::Disk;
use crate::record::{At, BySecond, Record};
use crate::store::{Read, Stop, Store, Way, Write};

/// A database of this library.
pub struct Engine<S: Scheme, M> {
    home: Home<S>,
    isolation: Isolation,
    map: PhantomData<fn() -> M>,
}

/// Where the database is: in memory, or on disk with a log.
enum Home<S: Scheme> {
    Memory(Database<S>),
    #[cfg(not(archipelago_sim))]
    Disk(Box<Disk<S>>),
}

impl<S: Scheme, M> Engine<S, M> {
    /// Makes an empty database whose transactions are serializable.
    pub fn serializable() -> Self {
        Self::at(Isolation::Serializable)
    }

    /// Makes an empty database with this isolation.
    pub fn at(isolation: Isolation) -> Self {
        Self::of(Database::new(), isolation)
    }

    /// Makes an empty database whose timestamps come from the processors' clocks.
    pub fn ordered(isolation: Isolation) -> Self {
        Self::of(Database::new().with_clock(ClockKind::Hardware), isolation)
    }

    fn of(db: Database<S>, isolation: Isolation) -> Self {
        Self { home: Home::Memory(db), isolation, map: PhantomData }
    }

    /// Makes an empty serializable database with a log in a temporary directory; see [`Disk`].
    #[cfg(not(archipelago_sim))]
    pub fn logged() -> Self {
        Self { home: Home::Disk(Box::new(Disk::new())), isolation: Isolation::Serializable, map: PhantomData }
    }

    fn db(&self) -> &Database<S> {
        match &self.home {
            Home::Memory(db) => db,
            #[cfg(not(archipelago_sim))]
            Home::Disk(disk) => disk.db(),
        }
    }
}

impl<S: Scheme, M: Kind> Store for Engine<S, M> {
    type Table<R: Record> = Table<At<M, R>, S>;
    type Tx<'t> = Tx<'t, S>;
    type View<'v> = Snapshot<'v, S>;

    fn table<R: Record>(&self) -> Self::Table<R> {
        match &self.home {
            Home::Memory(db) => db.table(),
            #[cfg(not(archipelago_sim))]
            Home::Disk(disk) => disk.table(),
        }
    }

    fn transact<T>(&self, body: impl FnMut(&mut Tx<'_, S>) -> Result<T, Stop>) -> Result<T, Stop> {
        self.db().transact_at(self.isolation, body)
    }

    fn view<T>(&self, body: impl FnOnce(&mut Snapshot<'_, S>) -> T) -> T {
        body(&mut self.db().snapshot())
    }
}

/// Returns the row, after telling the simulator that all bytes of the row are read.
fn seen<M, R>(at: &At<M, R>) -> &R {
    touch(&raw const at.row, size_of::<R>());
    &at.row
}

impl<S: Scheme, M: Kind> Read<Engine<S, M>> for Tx<'_, S> {
    fn get<R: Record, T>(
        &mut self,
        table: &Table<At<M, R>, S>,
        key: &R::Key,
        read: impl FnOnce(&R) -> T,
    ) -> Result<Option<T>, Error> {
        Ok(Tx::get(self, table, key)?.map(|at| read(seen(at))))
    }

    fn will_use<R: Record>(&mut self, table: &Table<At<M, R>, S>, keys: &[R::Key]) -> Result<(), Error> {
        Tx::get_many(self, table, keys).map(drop)
    }

    fn scan<R: Record>(
        &mut self,
        table: &Table<At<M, R>, S>,
        range: impl RangeBounds<R::Key>,
        way: Way,
        visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error> {
        let rows = match way {
            Way::Up => self.range(table, range),
            Way::Down => self.range_rev(table, range),
        };
        show(rows, visit)
    }

    fn scan_second<R: Record>(
        &mut self,
        table: &Table<At<M, R>, S>,
        range: impl RangeBounds<R::Second>,
        way: Way,
        visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error> {
        let rows = match way {
            Way::Up => self.range_by::<BySecond<M, R>>(table, range),
            Way::Down => self.range_by_rev::<BySecond<M, R>>(table, range),
        };
        show(rows, visit)
    }
}

/// Shows rows until `visit` returns false.
fn show<'r, M: 'r, R: 'r>(
    rows: impl Iterator<Item = Result<&'r At<M, R>, Error>>,
    mut visit: impl FnMut(&R) -> bool,
) -> Result<(), Error> {
    for at in rows {
        if !visit(seen(at?)) {
            break;
        }
    }
    Ok(())
}

impl<S: Scheme, M: Kind> Write<Engine<S, M>> for Tx<'_, S> {
    fn insert<R: Record>(&mut self, table: &Table<At<M, R>, S>, row: R) -> Result<(), Error> {
        Tx::insert(self, table, At::new(row))
    }

    fn update<R: Record, T>(
        &mut self,
        table: &Table<At<M, R>, S>,
        key: &R::Key,
        change: impl FnOnce(&mut R) -> T,
    ) -> Result<Option<T>, Error> {
        let mut made = None;
        Tx::update(self, table, key, |at| {
            seen(at);
            made = Some(change(&mut at.row));
        })?;
        Ok(made)
    }

    fn remove<R: Record>(&mut self, table: &Table<At<M, R>, S>, key: &R::Key) -> Result<bool, Error> {
        Ok(Tx::remove(self, table, key)?.is_some())
    }
}

impl<S: Scheme, M: Kind> Read<Engine<S, M>> for Snapshot<'_, S> {
    fn get<R: Record, T>(
        &mut self,
        table: &Table<At<M, R>, S>,
        key: &R::Key,
        read: impl FnOnce(&R) -> T,
    ) -> Result<Option<T>, Error> {
        Ok(Snapshot::get(self, table, key).map(|at| read(seen(at))))
    }

    fn scan<R: Record>(
        &mut self,
        table: &Table<At<M, R>, S>,
        range: impl RangeBounds<R::Key>,
        way: Way,
        visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error> {
        let rows = match way {
            Way::Up => self.range(table, range),
            Way::Down => self.range_rev(table, range),
        };
        show(rows.map(Ok), visit)
    }

    fn scan_second<R: Record>(
        &mut self,
        table: &Table<At<M, R>, S>,
        range: impl RangeBounds<R::Second>,
        way: Way,
        visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error> {
        let rows = match way {
            Way::Up => self.range_by::<BySecond<M, R>>(table, range),
            Way::Down => self.range_by_rev::<BySecond<M, R>>(table, range),
        };
        show(rows.map(Ok), visit)
    }
}

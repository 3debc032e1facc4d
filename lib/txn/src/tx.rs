//! The interface of a transaction.

use core::ops::RangeBounds;
use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};
use std::vec;

use crate::error::Error;
use crate::gap::Point;
use crate::record::{Full, Version};
use crate::scheme::{Mode, Scheme, Silo};
use crate::sight::{self, Link, Walk, payload, place};
use crate::table::{Core, Index, LinkTo, Row, Slot, Table, claim, same};
use crate::work::{Look, Work};

/// A transaction: the argument of the closure of [`transact`](crate::Database::transact).
///
/// References that its methods return are valid until the closure ends, even if the transaction writes these rows: a
/// write makes a new version of the row. Each method fails with [`Error::Conflict`] if the transaction conflicts with
/// another one.
///
/// # Panics
/// All methods: if the table belongs to another database, or does not have the index; and if a row's own methods panic.
/// (A [`BLinkTree`](crate::on::BLinkTree) panics on keys longer than a quarter of a page.) A panic that leaves the
/// closure rolls the transaction back. If the closure catches the panic, the method that panicked has changed nothing,
/// and the transaction may continue.
pub struct Tx<'t, S: Scheme = Silo> {
    pub(crate) work: Work<'t, S>,
}

impl<S: Scheme> core::fmt::Debug for Tx<'_, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

/// A link to a row's record, the record with the version that the transaction sees, and the row, if it exists.
type Sought<'t, R, S> = (LinkTo<R, S>, Slot<S>, Option<&'t R>);

impl<'t, S: Scheme> Tx<'t, S> {
    /// Returns the row with this primary key. O(log n).
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub fn get<R: Row>(&mut self, table: &Table<R, S>, key: &R::Key) -> Result<Option<&'t R>, Error> {
        let core = table.core(self.work.shared());
        self.work.check()?;
        Ok(sight::get(&mut self.work, &core.rows, key)?)
    }

    /// Returns, for each key in `keys`, the row with this primary key, or `None`; in the order of `keys`. This is
    /// faster than single look-ups, since the cache misses of different keys overlap. O(keys · log n).
    ///
    /// ```
    /// # use archipelago_txn::{Database, Error, Row, on};
    /// # #[derive(Clone)]
    /// # struct Seat(u32);
    /// # impl Row for Seat {
    /// #     type Key = u32;
    /// #     type Map = on::HydraList;
    /// #     type Indexes = ();
    /// #     fn key(&self) -> u32 { self.0 }
    /// # }
    /// let db: Database = Database::new();
    /// let seats = db.table::<Seat>();
    /// db.transact(|tx| tx.insert(&seats, Seat(2)))?;
    /// let there = db.transact(|tx| {
    ///     let rows = tx.get_many(&seats, &[1, 2])?;
    ///     Ok::<_, Error>(rows.iter().map(Option::is_some).collect::<Vec<_>>())
    /// })?;
    /// assert_eq!(there, [false, true]);
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub fn get_many<R: Row>(&mut self, table: &Table<R, S>, keys: &[R::Key]) -> Result<Vec<Option<&'t R>>, Error> {
        let core = table.core(self.work.shared());
        self.work.check()?;
        Ok(sight::get_many(&mut self.work, &core.rows, keys)?)
    }

    /// Returns a row with this key of the index `I`. If several rows have the key, it is unspecified which one.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub fn get_by<I: Index>(&mut self, table: &Table<I::Row, S>, key: &I::Key) -> Result<Option<&'t I::Row>, Error> {
        self.range_by::<I>(table, key.clone()..=key.clone()).next().transpose()
    }

    /// Returns the rows whose primary keys are in a range, ascending. The iterator reads rows in batches: four rows at
    /// first, later up to 128.
    pub fn range<R: Row>(&mut self, table: &Table<R, S>, range: impl RangeBounds<R::Key>) -> Rows<'_, 't, R, S> {
        let walk = table.core(self.work.shared()).walk(&range, false);
        Rows::new(&mut self.work, walk)
    }

    /// Returns the rows whose primary keys are in a range, descending.
    pub fn range_rev<R: Row>(&mut self, table: &Table<R, S>, range: impl RangeBounds<R::Key>) -> Rows<'_, 't, R, S> {
        let walk = table.core(self.work.shared()).walk(&range, true);
        Rows::new(&mut self.work, walk)
    }

    /// Returns the rows whose keys of the index `I` are in a range, ascending. The order of rows with the same key is
    /// unspecified.
    pub fn range_by<I: Index>(
        &mut self,
        table: &Table<I::Row, S>,
        range: impl RangeBounds<I::Key>,
    ) -> Rows<'_, 't, I::Row, S> {
        let walk = table.core(self.work.shared()).walk_by::<I>(&range, false);
        Rows::new(&mut self.work, walk)
    }

    /// Returns the rows whose keys of the index `I` are in a range, descending.
    pub fn range_by_rev<I: Index>(
        &mut self,
        table: &Table<I::Row, S>,
        range: impl RangeBounds<I::Key>,
    ) -> Rows<'_, 't, I::Row, S> {
        let walk = table.core(self.work.shared()).walk_by::<I>(&range, true);
        Rows::new(&mut self.work, walk)
    }

    /// Inserts a row whose primary key is absent.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Duplicate`] if its primary key, or its key of a unique index, is taken;
    /// [`Error::Full`]. After an error nothing has changed.
    pub fn insert<R: Row>(&mut self, table: &Table<R, S>, row: R) -> Result<(), Error> {
        let core = table.core(self.work.shared());
        self.work.check_room()?;
        let (link, slot, old) = self.claim_row(core, &row.key())?;
        match old {
            Some(_) => Err(Error::Duplicate { index: "primary" }),
            None => self.write(core, (link, slot, None), Some(row)),
        }
    }

    /// Inserts a row, or replaces the row with its primary key. Returns the replaced row.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Duplicate`] if another row has its key of a unique index; [`Error::Full`]. After
    /// an error nothing has changed.
    pub fn upsert<R: Row>(&mut self, table: &Table<R, S>, row: R) -> Result<Option<&'t R>, Error> {
        let core = table.core(self.work.shared());
        self.work.check_room()?;
        let sought = self.claim_row(core, &row.key())?;
        let old = sought.2;
        self.write(core, sought, Some(row)).map(|()| old)
    }

    /// Changes a row: `change` gets a clone, which replaces the row. Returns whether the row existed.
    ///
    /// # Errors
    /// [`Error::Conflict`]; [`Error::Duplicate`] if another row has its new key of a unique index;
    /// [`Error::KeyChanged`]; [`Error::Full`]. After an error nothing has changed.
    pub fn update<R: Row>(
        &mut self,
        table: &Table<R, S>,
        key: &R::Key,
        change: impl FnOnce(&mut R),
    ) -> Result<bool, Error> {
        let core = table.core(self.work.shared());
        let Some(sought) = self.seek(core, key)? else { return Ok(false) };
        let Some(old) = sought.2 else { return Ok(false) };
        self.work.check_room()?;
        let mut row = old.clone();
        change(&mut row);
        if !same(&row.key(), key) {
            return Err(Error::KeyChanged);
        }
        self.write(core, sought, Some(row)).map(|()| true)
    }

    /// Removes a row and returns it.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub fn remove<R: Row>(&mut self, table: &Table<R, S>, key: &R::Key) -> Result<Option<&'t R>, Error> {
        let core = table.core(self.work.shared());
        let Some(sought) = self.seek(core, key)? else { return Ok(None) };
        let Some(old) = sought.2 else { return Ok(None) };
        self.write(core, sought, None).map(|()| Some(old))
    }

    /// Runs a part of the transaction that can be rolled back: if `part` fails or panics, its writes are undone. The
    /// transaction may then continue, except after a conflict. The commit still validates what `part` has read. A
    /// conflict cannot be rolled back: after [`Error::Conflict`] all later steps and the commit fail with this error,
    /// too.
    ///
    /// ```
    /// # use archipelago_txn::{Database, Error, Row, on};
    /// # #[derive(Clone)]
    /// # struct Seat(u32);
    /// # impl Row for Seat {
    /// #     type Key = u32;
    /// #     type Map = on::Art;
    /// #     type Indexes = ();
    /// #     fn key(&self) -> u32 { self.0 }
    /// # }
    /// let db: Database = Database::new();
    /// let seats = db.table::<Seat>();
    /// db.transact(|tx| {
    ///     tx.insert(&seats, Seat(2))?;
    ///     let both = tx.savepoint(|tx| {
    ///         tx.insert(&seats, Seat(1))?;
    ///         tx.insert(&seats, Seat(2))
    ///     });
    ///     assert_eq!(both, Err(Error::Duplicate { index: "primary" }));
    ///     assert!(tx.get(&seats, &1)?.is_none());
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// If `part` fails, with its error.
    ///
    /// # Panics
    /// If `part` panics.
    pub fn savepoint<T, E>(&mut self, part: impl FnOnce(&mut Self) -> Result<T, E>) -> Result<T, E> {
        let mark = self.work.mark();
        // The panic is caught here and resumed below, since the transaction's closure may catch it and continue. The
        // writes of `part` are undone before the panic is resumed.
        let result = catch_unwind(AssertUnwindSafe(|| part(self)));
        if !matches!(result, Ok(Ok(_))) {
            self.work.roll_back_to(mark);
        }
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Returns the record of a key that the transaction is to write. Links a new record if none exists.
    fn claim_row<R: Row>(&mut self, core: &Core<R, S>, key: &R::Key) -> Result<Sought<'t, R, S>, Error> {
        let (found, slot) = claim(&mut self.work, &core.rows, key)?;
        // SAFETY: a version of the primary index that the transaction sees.
        let old = unsafe { payload::<R, S>(slot.seen) };
        Ok((Link(found), slot, old))
    }

    /// Returns the record of a key that the transaction is to write, if the record exists.
    fn seek<R: Row>(&mut self, core: &Core<R, S>, key: &R::Key) -> Result<Option<Sought<'t, R, S>>, Error> {
        self.work.check()?;
        if let Some(found) = core.rows.find(key) {
            let place = place(&core.rows, found);
            if let Look::At(seen) = self.work.look(place, Mode::Exclude)? {
                // SAFETY: as in `claim_row`.
                let old = unsafe { payload::<R, S>(seen) };
                return Ok(Some((Link(found), Slot { place, seen }, old)));
            }
        }
        // A dead record proves that the key was absent, as in `sight::see`.
        self.work.note_gap(|| Box::new(Point { tree: &core.rows, key: key.clone() }));
        Ok(None)
    }

    /// Ends the transaction because a row has no entry for its key of an index.
    ///
    /// # Panics
    /// If the cause is not a conflict with another transaction, but an impure `Index::key`.
    #[cold]
    fn miss_entry(&mut self, index: &str) -> Error {
        assert!(!self.work.is_sound(), "a row's key of the index {index} has changed: `Index::key` must be pure");
        self.work.doom::<()>().expect_err("a conflict").into()
    }

    /// Writes a row or its removal, and the entries of all indexes. After an error nothing is written.
    fn write<R: Row>(
        &mut self,
        core: &Core<R, S>,
        (link, slot, old): Sought<'t, R, S>,
        new: Option<R>,
    ) -> Result<(), Error> {
        let mut entries = Vec::new();
        for index in &core.indexes {
            if let (Some(old), Some(new)) = (old, &new)
                && index.is_same(old, new)
            {
                continue;
            }
            if let Some(new) = &new {
                let (slot, taken) = index.claim(&mut self.work, new, link)?;
                if taken.is_some() {
                    return Err(Error::Duplicate { index: index.name() });
                }
                entries.push((index, slot, Some(link)));
            }
            if let Some(old) = old {
                let (slot, entry) = index.claim(&mut self.work, old, link)?;
                // Without this check, safe code could free a record to which an entry links: see `Link`.
                if entry.is_none_or(|entry| entry.0 != link.0) {
                    return Err(self.miss_entry(index.name()));
                }
                entries.push((index, slot, None));
            }
        }
        let pending: *mut Version<S> = Full::<R, S>::boxed(new, self.work.memory());
        self.work.stage(slot.place, slot.seen, pending);
        for (index, slot, link) in entries {
            index.stage(&mut self.work, slot, link);
        }
        Ok(())
    }
}

/// An iterator over rows, which reads them in batches.
pub struct Rows<'a, 't, R, S: Scheme> {
    work: &'a mut Work<'t, S>,
    walk: Option<Box<dyn Walk<'t, R, S>>>,
    ahead: vec::IntoIter<&'t R>,
}

impl<'a, 't, R, S: Scheme> Rows<'a, 't, R, S> {
    fn new(work: &'a mut Work<'t, S>, walk: Box<dyn Walk<'t, R, S>>) -> Self {
        Self { work, walk: Some(walk), ahead: Vec::new().into_iter() }
    }
}

impl<R, S: Scheme> core::fmt::Debug for Rows<'_, '_, R, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}

impl<'t, R, S: Scheme> Iterator for Rows<'_, 't, R, S> {
    /// The iterator ends after an error.
    type Item = Result<&'t R, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ahead.next() {
                return Some(Ok(row));
            }
            let walk = self.walk.as_mut()?;
            match self.work.check().and_then(|()| walk.rows(self.work)) {
                Ok(Some(rows)) => self.ahead = rows.into_iter(),
                Ok(None) => self.walk = None,
                Err(conflict) => {
                    self.walk = None;
                    return Some(Err(conflict.into()));
                }
            }
        }
    }
}

impl<R, S: Scheme> core::iter::FusedIterator for Rows<'_, '_, R, S> {}

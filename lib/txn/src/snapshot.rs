//! A read-only view of one moment.

use core::ops::RangeBounds;
use std::vec;

use crate::scheme::{Scheme, Silo};
use crate::shared::Shared;
use crate::sight::{self, View, Walk};
use crate::table::{Index, Row, Table};

/// All tables as they were at one moment: see [`Database::snapshot`](crate::Database::snapshot).
///
/// A snapshot never fails, never makes a transaction wait or retry, and waits only for short latches: of commits that
/// are being installed, and of threads that unlink old versions or records. References that it returns are valid as
/// long as it is open. A snapshot may be sent to other threads, and used by several threads at once.
///
/// # Panics
/// All methods: if the table belongs to another database, or does not have the index.
pub struct Snapshot<'d, S: Scheme = Silo> {
    shared: &'d Shared<S>,
    moment: u64,
}

impl<S: Scheme> core::fmt::Debug for Snapshot<'_, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Snapshot").field("moment", &self.moment).finish_non_exhaustive()
    }
}

/// A snapshot's reads meet no conflicts.
const CALM: &str = "a snapshot meets no conflicts";

impl<'d, S: Scheme> Snapshot<'d, S> {
    pub(crate) fn open(shared: &'d Shared<S>) -> Self {
        Self { shared, moment: shared.epochs().open() }
    }

    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn moment(&self) -> u64 {
        self.moment
    }

    /// Returns all rows of a table of the database.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn rows<R: Row>(&self, core: &crate::table::Core<R, S>) -> SnapshotRows<'_, R, S> {
        SnapshotRows::new(self.shared, self.moment, core.walk(&.., false))
    }

    /// Returns the row with this primary key.
    pub fn get<R: Row>(&self, table: &Table<R, S>, key: &R::Key) -> Option<&R> {
        let core = table.core(self.shared);
        let _guard = self.shared.home().domain.pin();
        sight::get(&mut View { moment: self.moment, epochs: self.shared.epochs() }, &core.rows, key).expect(CALM)
    }

    /// Returns the rows with these primary keys, in the order of the keys. This is faster than single look-ups, as
    /// [`Tx::get_many`](crate::Tx::get_many).
    pub fn get_many<R: Row>(&self, table: &Table<R, S>, keys: &[R::Key]) -> Vec<Option<&R>> {
        let core = table.core(self.shared);
        let _guard = self.shared.home().domain.pin();
        sight::get_many(&mut View { moment: self.moment, epochs: self.shared.epochs() }, &core.rows, keys).expect(CALM)
    }

    /// Returns a row with this key of the index `I`. If several rows have the key, it is unspecified which one.
    pub fn get_by<I: Index>(&self, table: &Table<I::Row, S>, key: &I::Key) -> Option<&I::Row> {
        self.range_by::<I>(table, key.clone()..=key.clone()).next()
    }

    /// Returns the rows whose primary keys are in a range, ascending.
    pub fn range<R: Row>(&self, table: &Table<R, S>, range: impl RangeBounds<R::Key>) -> SnapshotRows<'_, R, S> {
        SnapshotRows::new(self.shared, self.moment, table.core(self.shared).walk(&range, false))
    }

    /// Returns the rows whose primary keys are in a range, descending.
    pub fn range_rev<R: Row>(&self, table: &Table<R, S>, range: impl RangeBounds<R::Key>) -> SnapshotRows<'_, R, S> {
        SnapshotRows::new(self.shared, self.moment, table.core(self.shared).walk(&range, true))
    }

    /// Returns the rows whose keys of the index `I` are in a range, ascending. The order of rows with the same key is
    /// unspecified.
    pub fn range_by<I: Index>(
        &self,
        table: &Table<I::Row, S>,
        range: impl RangeBounds<I::Key>,
    ) -> SnapshotRows<'_, I::Row, S> {
        SnapshotRows::new(self.shared, self.moment, table.core(self.shared).walk_by::<I>(&range, false))
    }

    /// Returns the rows whose keys of the index `I` are in a range, descending.
    pub fn range_by_rev<I: Index>(
        &self,
        table: &Table<I::Row, S>,
        range: impl RangeBounds<I::Key>,
    ) -> SnapshotRows<'_, I::Row, S> {
        SnapshotRows::new(self.shared, self.moment, table.core(self.shared).walk_by::<I>(&range, true))
    }
}

impl<S: Scheme> Drop for Snapshot<'_, S> {
    fn drop(&mut self) {
        self.shared.close(self.moment);
    }
}

/// An iterator over the rows of a snapshot. Between its steps it is in no RCU section, so it delays no grace period.
pub struct SnapshotRows<'s, R, S: Scheme> {
    shared: &'s Shared<S>,
    moment: u64,
    walk: Option<Box<dyn Walk<'s, R, S>>>,
    ahead: vec::IntoIter<&'s R>,
}

impl<'s, R, S: Scheme> SnapshotRows<'s, R, S> {
    fn new(shared: &'s Shared<S>, moment: u64, walk: Box<dyn Walk<'s, R, S>>) -> Self {
        Self { shared, moment, walk: Some(walk), ahead: Vec::new().into_iter() }
    }
}

impl<R, S: Scheme> core::fmt::Debug for SnapshotRows<'_, R, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SnapshotRows").finish_non_exhaustive()
    }
}

impl<'s, R, S: Scheme> Iterator for SnapshotRows<'s, R, S> {
    type Item = &'s R;

    fn next(&mut self) -> Option<&'s R> {
        loop {
            if let Some(row) = self.ahead.next() {
                return Some(row);
            }
            // Versions that the snapshot sees stay alive after the section has ended.
            let _guard = self.shared.home().domain.pin();
            match self.walk.as_mut()?.rows(&mut View { moment: self.moment, epochs: self.shared.epochs() }).expect(CALM)
            {
                Some(rows) => self.ahead = rows.into_iter(),
                None => self.walk = None,
            }
        }
    }
}

impl<R, S: Scheme> core::iter::FusedIterator for SnapshotRows<'_, R, S> {}

//! Tables: rows by primary key, and their secondary indexes.

use core::any::{Any, TypeId, type_name};
use core::marker::PhantomData;
use core::ops::{Bound, RangeBounds};

use archipelago_index::map::Kind;
use archipelago_index::{Form as _, Key, KeyPart};
use archipelago_platform::sync::Arc;

use crate::codec::Codec;
use crate::memory::Payload;
use crate::record::{Full, Version};
use crate::scheme::{Conflict, Mode, Scheme, Silo};
use crate::shared::Shared;
use crate::sight::{Cursor, Link, Linked, Walk, payload, place};
use crate::tree::{Found, Home, Typed};
use crate::work::{Look, RecordRef, Work};

/// A type whose values are the rows of a table.
///
/// ```
/// use archipelago_txn::{Index, Row, on};
///
/// #[derive(Clone)]
/// struct Account {
///     number: u64,
///     owner: String,
///     cents: i64,
/// }
///
/// impl Row for Account {
///     type Key = u64;
///     type Map = on::HydraList;
///     type Indexes = (ByOwner,);
///     fn key(&self) -> u64 {
///         self.number
///     }
/// }
///
/// struct ByOwner;
///
/// impl Index for ByOwner {
///     type Row = Account;
///     type Key = String;
///     type Map = on::BLinkTree;
///     fn key(row: &Account) -> String {
///         row.owner.clone()
///     }
/// }
/// ```
pub trait Row: Clone + Send + Sync + 'static {
    /// The primary key: a number, a string, a tuple of these, and so on.
    type Key: KeyPart;

    /// The map of the primary index: one of [`on`](crate::on).
    type Map: Kind;

    /// The secondary indexes: `()`, or a tuple of up to six.
    type Indexes: Indexes<Self>;

    /// Returns the row's primary key. The method is pure: it always returns equal keys for equal rows.
    fn key(&self) -> Self::Key;

    /// Returns how many bytes the row owns on the heap (by strings and vectors). The default is 0. The method is pure;
    /// an estimate suffices. [`Database::limited`](crate::Database::limited) counts these bytes. And replaced rows are
    /// freed in batches of 16 KiB, in which these bytes count: with the default of 0, a thread delays the freeing of
    /// hundreds of small rows, however much they own.
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<R: Row> Payload for R {
    fn heap_bytes(&self) -> usize {
        Row::heap_bytes(self)
    }
}

/// A secondary index of a table.
pub trait Index: Sized + 'static {
    /// The table's rows.
    type Row: Row;

    /// The type of the index's keys.
    type Key: KeyPart;

    /// The map: one of [`on`](crate::on).
    type Map: Kind;

    /// Whether two rows must not have the same key.
    const UNIQUE: bool = false;

    /// Returns the row's key in this index. The method is pure: it always returns equal keys for equal rows. A write of
    /// a row whose key has changed since the row was stored panics.
    fn key(row: &Self::Row) -> Self::Key;
}

/// A tuple of [`Index`]es.
pub trait Indexes<R: Row>: sealed::Sealed {
    #[doc(hidden)]
    fn build<S: Scheme>(home: &Builder<'_, S>) -> Vec<Box<dyn Secondary<R, S>>>;
}

/// The data from which an index is built: the database's home, and whether the database has a log.
pub struct Builder<'h, S: Scheme>(pub(crate) &'h Home<S>, bool);

mod sealed {
    pub trait Sealed {}
}

macro_rules! tuples {
    ($(($($index:ident)*))*) => { $(
        impl<$($index: Index),*> sealed::Sealed for ($($index,)*) {}
        impl<R: Row $(, $index: Index<Row = R>)*> Indexes<R> for ($($index,)*) {
            fn build<S: Scheme>(home: &Builder<'_, S>) -> Vec<Box<dyn Secondary<R, S>>> {
                let _ = home;
                vec![$(secondary::<$index, S>(home)),*]
            }
        }
    )* };
}

tuples! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

fn secondary<I: Index, S: Scheme>(home: &Builder<'_, S>) -> Box<dyn Secondary<I::Row, S>> {
    if I::UNIQUE { Box::new(By::<I, One, S>::new(home)) } else { Box::new(By::<I, Each, S>::new(home)) }
}

/// A table of rows `R` in a [`Database`](crate::Database). Clones are the same table.
pub struct Table<R: Row, S: Scheme = Silo> {
    shared: Arc<Shared<S>>,
    core: Arc<Core<R, S>>,
}

impl<R: Row, S: Scheme> Clone for Table<R, S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), core: self.core.clone() }
    }
}

impl<R: Row, S: Scheme> core::fmt::Debug for Table<R, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table").field("rows", &type_name::<R>()).finish_non_exhaustive()
    }
}

impl<R: Row, S: Scheme> Table<R, S> {
    pub(crate) fn new(shared: &Arc<Shared<S>>, codec: Option<Codec<R::Key, R>>) -> Self {
        let home = shared.home();
        // Tables with a codec are declared before the log is started, all others afterwards.
        let logs = codec.is_some() || shared.log().is_some();
        let indexes = R::Indexes::build(&Builder(home, logs));
        let core = Arc::new(Core { rows: Typed::new(home, logs, codec), indexes });
        shared.keep(core.clone());
        Self { shared: shared.clone(), core }
    }

    /// Returns the table's indexes, as the log's interface to the table.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn shared_core(&self) -> Arc<Core<R, S>> {
        self.core.clone()
    }

    /// Returns the table's indexes.
    ///
    /// # Panics
    /// If the table belongs to another database.
    pub(crate) fn core(&self, shared: &Shared<S>) -> &Core<R, S> {
        assert!(core::ptr::eq(&raw const *self.shared, shared), "the table is of another database");
        &self.core
    }
}

pub(crate) type Rows<R, S> = Typed<<R as Row>::Map, <R as Row>::Key, R, S>;
pub type LinkTo<R, S> = Link<<R as Row>::Key, R, S>;

pub(crate) struct Core<R: Row, S: Scheme> {
    pub(crate) rows: Rows<R, S>,
    pub(crate) indexes: Vec<Box<dyn Secondary<R, S>>>,
}

/// Returns the bounds of a range, with references to its keys.
fn bounds<K>(range: &impl RangeBounds<K>) -> (Bound<&K>, Bound<&K>) {
    (range.start_bound(), range.end_bound())
}

impl<R: Row, S: Scheme> Core<R, S> {
    pub(crate) fn walk<'g>(&self, range: &impl RangeBounds<R::Key>, backwards: bool) -> Box<dyn Walk<'g, R, S>> {
        Box::new(Cursor::new(&self.rows, bounds::<R::Key>(range), backwards))
    }

    /// Begins a walk by the index `I`.
    ///
    /// # Panics
    /// If the table has no such index.
    pub(crate) fn walk_by<'g, I: Index<Row = R>>(
        &self,
        range: &impl RangeBounds<I::Key>,
        backwards: bool,
    ) -> Box<dyn Walk<'g, R, S>> {
        let index = self.indexes.iter().find(|index| index.index() == TypeId::of::<I>());
        let index = index.unwrap_or_else(|| panic!("{} is not among the table's indexes", type_name::<I>())).as_any();
        if let Some(one) = index.downcast_ref::<By<I, One, S>>() {
            let entries = Cursor::new(&one.tree, bounds::<I::Key>(range), backwards);
            return Box::new(Linked { entries, rows: &self.rows });
        }
        let each = index.downcast_ref::<By<I, Each, S>>().expect("an index is of one of two kinds");
        let (low, high) = bounds::<I::Key>(range);
        let (low, high) = (beyond(low, 0, u64::MAX), beyond(high, u64::MAX, 0));
        let entries = Cursor::new(&each.tree, (low.as_ref(), high.as_ref()), backwards);
        Box::new(Linked { entries, rows: &self.rows })
    }
}

/// Converts a bound of a range of keys to a bound of a range of entries. An entry of an index that is not unique is a
/// key with the number of the row's record. In an included bound the number is `with`, so that all entries of the key
/// are included; in an excluded bound it is `without`.
fn beyond<K: Clone>(bound: Bound<&K>, with: u64, without: u64) -> Bound<(K, u64)> {
    match bound {
        Bound::Included(key) => Bound::Included((key.clone(), with)),
        // No record has the number 0 or `u64::MAX`.
        Bound::Excluded(key) => Bound::Excluded((key.clone(), without)),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// A record to be written, and the version that the transaction sees.
pub struct Slot<S: Scheme> {
    pub(crate) place: RecordRef<S>,
    pub(crate) seen: *mut Version<S>,
}

/// A record that is to be written: with its types, and as a slot without them.
type Claimed<'t, K, P, S> = (Found<'t, K, P, S>, Slot<S>);

/// Looks up the record of a key that the transaction is to write. Links a new record if none exists.
pub(crate) fn claim<'t, M: Kind, K: KeyPart, P: Payload, S: Scheme>(
    work: &mut Work<'t, S>,
    tree: &Typed<M, K, P, S>,
    key: &K,
) -> Result<Claimed<'t, K, P, S>, Conflict> {
    loop {
        work.check()?;
        let (found, linked) = tree.find_or_link(key);
        let place = place(tree, found);
        if linked {
            work.note_held(place);
        }
        if let Look::At(seen) = work.look(place, Mode::Exclude)? {
            return Ok((found, Slot { place, seen }));
        }
    }
}

/// An entry of a secondary index that is to be written: its slot, and its link if it exists.
type Entry<R, S> = (Slot<S>, Option<LinkTo<R, S>>);

/// A secondary index, without the type of its key.
pub trait Secondary<R: Row, S: Scheme>: Send + Sync {
    #[doc(hidden)]
    fn index(&self) -> TypeId;
    #[doc(hidden)]
    fn name(&self) -> &'static str;
    #[doc(hidden)]
    fn as_any(&self) -> &dyn Any;
    /// Returns whether both rows have the same key.
    #[doc(hidden)]
    fn is_same(&self, one: &R, other: &R) -> bool;
    /// Looks up the entry of a row that the transaction is to write. Also returns the entry's link, if the entry
    /// exists.
    #[doc(hidden)]
    fn claim(&self, work: &mut Work<'_, S>, row: &R, link: LinkTo<R, S>) -> Result<Entry<R, S>, Conflict>;
    /// Writes an entry or its removal.
    #[doc(hidden)]
    fn stage(&self, work: &mut Work<'_, S>, slot: Slot<S>, link: Option<LinkTo<R, S>>);
    /// Adds the entry of a restored row. Returns whether its key was free. No transaction has begun yet.
    #[doc(hidden)]
    fn restore(&self, row: &R, link: LinkTo<R, S>) -> bool;
}

/// How an index distinguishes its entries.
trait Kept<K: KeyPart>: Send + Sync + 'static {
    type Entry: KeyPart;
    fn entry(key: K, record: u64) -> Self::Entry;
}

/// A unique index distinguishes its entries by their keys.
struct One;

impl<K: KeyPart> Kept<K> for One {
    type Entry = K;
    fn entry(key: K, _: u64) -> K {
        key
    }
}

/// An index that is not unique distinguishes its entries by key and row. A row's number is its record's address, which
/// is unique as long as any reader sees the row.
struct Each;

impl<K: KeyPart> Kept<K> for Each {
    type Entry = (K, u64);
    fn entry(key: K, record: u64) -> (K, u64) {
        (key, record)
    }
}

struct By<I: Index, E: Kept<I::Key>, S: Scheme> {
    tree: Typed<I::Map, E::Entry, LinkTo<I::Row, S>, S>,
    kind: PhantomData<fn() -> E>,
}

impl<I: Index, E: Kept<I::Key>, S: Scheme> By<I, E, S> {
    fn new(home: &Builder<'_, S>) -> Self {
        Self { tree: Typed::new(home.0, home.1, None), kind: PhantomData }
    }
}

/// Returns whether two keys are the same, by their encodings, as in the maps.
pub(crate) fn same<K: Key>(one: &K, other: &K) -> bool {
    one.encode(|one| other.encode(|other| K::Form::compare(one, other).is_eq()))
}

impl<I: Index, E: Kept<I::Key>, S: Scheme> Secondary<I::Row, S> for By<I, E, S> {
    fn index(&self) -> TypeId {
        TypeId::of::<I>()
    }

    fn name(&self) -> &'static str {
        type_name::<I>()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn is_same(&self, one: &I::Row, other: &I::Row) -> bool {
        same(&I::key(one), &I::key(other))
    }

    fn claim(
        &self,
        work: &mut Work<'_, S>,
        row: &I::Row,
        link: LinkTo<I::Row, S>,
    ) -> Result<Entry<I::Row, S>, Conflict> {
        let (_, slot) = claim(work, &self.tree, &E::entry(I::key(row), link.0.addr() as u64))?;
        // SAFETY: a version of this index that the transaction sees.
        let link = unsafe { payload::<LinkTo<I::Row, S>, S>(slot.seen) }.copied();
        Ok((slot, link))
    }

    fn stage(&self, work: &mut Work<'_, S>, slot: Slot<S>, link: Option<LinkTo<I::Row, S>>) {
        work.stage(slot.place, slot.seen, Full::boxed(link, work.memory()));
    }

    fn restore(&self, row: &I::Row, link: LinkTo<I::Row, S>) -> bool {
        // Every snapshot sees the first epoch.
        self.tree.restore(E::entry(I::key(row), link.0.addr() as u64), (1, 0), Some(link))
    }
}

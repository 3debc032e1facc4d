//! A [`Store`] of records over a key-value store whose keys and values are byte strings. Most embedded stores are of
//! this kind.
//!
//! A row is stored as the bytes that postcard makes of it. Its key is one byte, twice the table's number, followed by
//! the bytes of the primary key. The key of an entry of the secondary index begins with one byte, twice the table's
//! number plus one. The bytes of the secondary key and of the primary key follow. The entry's value is the primary key.

use core::ops::{Bound, Range, RangeBounds};

use archipelago_index::{Encode, Form, KeyPart};
use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_txn::Error;

use crate::record::Record;
use crate::store::{Numbered, Read, Stop, Store, Way, Write};

/// A store whose keys and values are byte strings.
pub trait Bytes: Send + Sync + 'static {
    /// A transaction.
    type Steps<'t>: Steps;

    /// Runs a transaction once. Commits if `body` returns `Ok`, and else rolls back. `writes` is false if `body` writes
    /// nothing.
    ///
    /// # Errors
    /// The error of `body`; [`Error::Conflict`] if another transaction conflicted with this one.
    fn attempt<T>(&self, writes: bool, body: impl FnOnce(&mut Self::Steps<'_>) -> Result<T, Stop>) -> Result<T, Stop>;
}

/// The operations of a transaction. Each fails with [`Error::Conflict`] if another transaction conflicts with this one.
#[allow(clippy::missing_errors_doc, reason = "said of all of them")]
pub trait Steps {
    /// Returns the result of `read` for the bytes under a key.
    fn fetch<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error>;

    /// Stores bytes under a key, whether the key is present or not.
    fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), Error>;

    /// Removes a key that is present.
    fn erase(&mut self, key: &[u8]) -> Result<(), Error>;

    /// Calls `visit` with the bytes under each key of a range, until it returns false.
    fn walk(&mut self, range: Range<Vec<u8>>, way: Way, visit: impl FnMut(&[u8]) -> bool) -> Result<(), Error>;
}

/// The store of records.
pub struct Flat<B> {
    bytes: B,
    tables: AtomicUsize,
}

impl<B> Flat<B> {
    /// Makes a store of records over an empty store of bytes.
    pub fn new(bytes: B) -> Self {
        Self { bytes, tables: AtomicUsize::new(0) }
    }
}

impl<B: Bytes> Flat<B> {
    fn run<T>(&self, writes: bool, mut body: impl FnMut(&mut B::Steps<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        loop {
            match self.bytes.attempt(writes, &mut body) {
                Err(Stop::Store(Error::Conflict)) => core::hint::spin_loop(),
                done => return done,
            }
        }
    }
}

impl<B: Bytes> Store for Flat<B> {
    type Table<R: Record> = Numbered<R>;
    type Tx<'t> = B::Steps<'t>;
    type View<'v> = B::Steps<'v>;

    fn table<R: Record>(&self) -> Numbered<R> {
        // Relaxed: the counter carries no data.
        Numbered::new(self.tables.fetch_add(1, Ordering::Relaxed))
    }

    fn transact<T>(&self, body: impl FnMut(&mut B::Steps<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        self.run(true, body)
    }

    fn transact_read<T>(&self, body: impl FnMut(&mut B::Steps<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        self.run(false, body)
    }

    fn view<T>(&self, body: impl FnOnce(&mut B::Steps<'_>) -> T) -> T {
        self.bytes.attempt(false, |steps| Ok(body(steps))).expect("what only reads meets no conflicts")
    }
}

/// Returns the first byte of a table's primary keys.
fn primary<R>(table: &Numbered<R>) -> u8 {
    u8::try_from(2 * table.number).expect("few tables")
}

/// Returns the first byte of the keys of a table's secondary index.
fn second<R>(table: &Numbered<R>) -> u8 {
    primary(table) + 1
}

fn append<K: KeyPart>(key: &K, to: &mut Vec<u8>) {
    key.encode(|probe| <K as Encode>::Form::with_bytes(probe, |key| to.extend_from_slice(key)));
}

/// Returns a key's bytes.
fn whole<K: KeyPart>(space: u8, key: &K) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    bytes.push(space);
    append(key, &mut bytes);
    bytes
}

/// Returns the key of a row's entry in the secondary index.
fn entry<R: Record>(table: &Numbered<R>, row: &R) -> Vec<u8> {
    let mut bytes = whole(second(table), &row.second());
    append(&row.key(), &mut bytes);
    bytes
}

/// Returns the least byte string above all byte strings with this prefix.
fn above(mut bytes: Vec<u8>) -> Vec<u8> {
    while bytes.pop_if(|last| *last == u8::MAX).is_some() {}
    *bytes.last_mut().expect("the byte of a space is less") += 1;
    bytes
}

/// Returns the range of all byte strings that begin with a key of `range`. No key's bytes are a prefix of another
/// key's.
fn bounds<K: KeyPart>(space: u8, range: &impl RangeBounds<K>) -> Range<Vec<u8>> {
    let from = match range.start_bound() {
        Bound::Included(key) => whole(space, key),
        Bound::Excluded(key) => above(whole(space, key)),
        Bound::Unbounded => vec![space],
    };
    let to = match range.end_bound() {
        Bound::Included(key) => above(whole(space, key)),
        Bound::Excluded(key) => whole(space, key),
        Bound::Unbounded => vec![space + 1],
    };
    from..to
}

fn row<R: Record>(bytes: &[u8]) -> R {
    postcard::from_bytes(bytes).expect("what is there was written from a row")
}

fn bytes<R: Record>(row: &R) -> Vec<u8> {
    postcard::to_allocvec(row).expect("a row can be written")
}

/// The number of entries that a scan of a secondary index walks over before it fetches their rows, and the factor by
/// which this number grows each time. A transaction cannot fetch while it walks. Many scans need only the first row: a
/// walk over the whole range would make them read, and in some stores conflict with, entries that they do not need.
const FIRST: usize = 4;
const GROWTH: usize = 8;

impl<B: Bytes, S: Steps> Read<Flat<B>> for S {
    fn get<R: Record, T>(
        &mut self,
        table: &Numbered<R>,
        key: &R::Key,
        read: impl FnOnce(&R) -> T,
    ) -> Result<Option<T>, Error> {
        self.fetch(&whole(primary(table), key), |bytes| read(&row(bytes)))
    }

    fn scan<R: Record>(
        &mut self,
        table: &Numbered<R>,
        range: impl RangeBounds<R::Key>,
        way: Way,
        mut visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error> {
        self.walk(bounds(primary(table), &range), way, |bytes| visit(&row(bytes)))
    }

    fn scan_second<R: Record>(
        &mut self,
        table: &Numbered<R>,
        range: impl RangeBounds<R::Second>,
        way: Way,
        mut visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error> {
        let (mut left, mut most, mut keys) = (bounds(second(table), &range), FIRST, Vec::new());
        loop {
            keys.clear();
            self.walk(left.clone(), way, |key| {
                keys.push(key.to_vec());
                keys.len() < most
            })?;
            let mut last = None;
            for key in &keys {
                let show = |bytes: &[u8]| {
                    let row = row(bytes);
                    last = Some(entry(table, &row));
                    visit(&row)
                };
                if !self.fetch(key, show)?.expect("every entry has its row") {
                    return Ok(());
                }
            }
            match last.filter(|_| keys.len() == most) {
                None => return Ok(()),
                // No byte string is between an entry and the entry with a zero after it.
                Some(last) if way == Way::Up => left.start = [&last[..], &[0]].concat(),
                Some(last) => left.end = last,
            }
            most *= GROWTH;
        }
    }
}

impl<B: Bytes, S: Steps> Write<Flat<B>> for S {
    fn insert<R: Record>(&mut self, table: &Numbered<R>, row: R) -> Result<(), Error> {
        let key = whole(primary(table), &row.key());
        if self.fetch(&key, |_| ())?.is_some() {
            return Err(Error::Duplicate { index: "primary" });
        }
        if R::INDEXED {
            self.put(&entry(table, &row), &key)?;
        }
        self.put(&key, &bytes(&row))
    }

    fn update<R: Record, T>(
        &mut self,
        table: &Numbered<R>,
        key: &R::Key,
        change: impl FnOnce(&mut R) -> T,
    ) -> Result<Option<T>, Error> {
        let key = whole(primary(table), key);
        let Some(mut row) = self.fetch(&key, row::<R>)? else { return Ok(None) };
        let second = row.second();
        let made = change(&mut row);
        assert!(!R::INDEXED || row.second() == second, "no workload changes the key of a secondary index");
        self.put(&key, &bytes(&row))?;
        Ok(Some(made))
    }

    fn remove<R: Record>(&mut self, table: &Numbered<R>, key: &R::Key) -> Result<bool, Error> {
        let key = whole(primary(table), key);
        let Some(row) = self.fetch(&key, row::<R>)? else { return Ok(false) };
        if R::INDEXED {
            self.erase(&entry(table, &row))?;
        }
        self.erase(&key)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use archipelago_platform::sync::Mutex;
    use archipelago_txn::on::Kind;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::catalog::{Workload, load};
    use crate::record::BySecond;
    use crate::tpcc::Scale;
    use crate::ycsb::{Load, Reports, Requests};

    type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A store behind one lock. A transaction first copies all entries, and rolls back by restoring the copy.
    #[derive(Default)]
    struct Plain(Mutex<Entries>);

    impl Bytes for Plain {
        type Steps<'t> = Entries;

        fn attempt<T>(&self, _: bool, body: impl FnOnce(&mut Entries) -> Result<T, Stop>) -> Result<T, Stop> {
            let mut entries = self.0.lock().unwrap();
            let before = entries.clone();
            body(&mut entries).inspect_err(|_| *entries = before)
        }
    }

    impl Steps for Entries {
        fn fetch<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
            Ok(BTreeMap::get(self, key).map(|bytes| read(bytes)))
        }

        fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), Error> {
            BTreeMap::insert(self, key.into(), bytes.into());
            Ok(())
        }

        fn erase(&mut self, key: &[u8]) -> Result<(), Error> {
            BTreeMap::remove(self, key).expect("it is there");
            Ok(())
        }

        fn walk(&mut self, range: Range<Vec<u8>>, way: Way, mut visit: impl FnMut(&[u8]) -> bool) -> Result<(), Error> {
            let mut entries = self.range(range);
            let next = || if way == Way::Up { entries.next() } else { entries.next_back() };
            core::iter::from_fn(next).all(|(_, bytes)| visit(bytes));
            Ok(())
        }
    }

    #[test]
    fn bytes_are_rows() {
        let ycsb = Load { rows: 100, theta: 0.9, updates: 50, reports: Reports::Views, requests: Requests::Columns };
        let tpcc = Workload::Tpcc { warehouses: 1, scale: Scale::TINY, pair: false };
        for workload in [Workload::Ycsb(ycsb), Workload::Ycsb10(ycsb), Workload::SmallBank(100), tpcc] {
            let arena = load(Flat::new(Plain::default()), workload, 1);
            let mut client = arena.client(0, 1);
            (0..300).for_each(|_| _ = client.turn());
            drop(client);
            assert_eq!(arena.check(), Ok(()));
        }
    }

    /// Entries, and how many of them were walked over.
    #[derive(Default)]
    struct Counted(Entries, usize);

    impl Steps for Counted {
        fn fetch<T>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, Error> {
            self.0.fetch(key, read)
        }

        fn put(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), Error> {
            self.0.put(key, bytes)
        }

        fn erase(&mut self, key: &[u8]) -> Result<(), Error> {
            self.0.erase(key)
        }

        fn walk(&mut self, range: Range<Vec<u8>>, way: Way, mut visit: impl FnMut(&[u8]) -> bool) -> Result<(), Error> {
            let Self(entries, walked) = self;
            entries.walk(range, way, |bytes| {
                *walked += 1;
                visit(bytes)
            })
        }
    }

    /// A row with a secondary index.
    #[derive(Clone, Serialize, Deserialize)]
    struct Numbers(u64, u16);

    impl Record for Numbers {
        type Key = u64;
        type Second = u16;
        type Indexes<M: Kind> = (BySecond<M, Self>,);
        const INDEXED: bool = true;

        fn key(&self) -> u64 {
            self.0
        }

        fn second(&self) -> u16 {
            self.1
        }
    }

    #[test]
    fn a_scan_that_stops_has_walked_little() {
        let (mut steps, table) = (Counted::default(), Numbered::<Numbers>::new(1));
        for key in 0..300 {
            Write::<Flat<Plain>>::insert(&mut steps, &table, Numbers(key, 7 + (key / 100) as u16)).unwrap();
        }
        let mut scan = |way, most| {
            let mut seen = Vec::new();
            let visit = |row: &Numbers| {
                seen.push(row.0);
                seen.len() < most
            };
            Read::<Flat<Plain>>::scan_second(&mut steps, &table, 7..=8, way, visit).unwrap();
            (seen, core::mem::take(&mut steps.1))
        };
        assert_eq!((scan(Way::Down, 1), scan(Way::Up, 1)), ((vec![199], FIRST), (vec![0], FIRST)));
        assert_eq!(scan(Way::Up, usize::MAX), ((0..200).collect(), 200));
        assert_eq!(scan(Way::Down, usize::MAX), ((0..200).rev().collect(), 200));
    }

    #[test]
    fn what_is_above_begins_otherwise() {
        assert_eq!(above(vec![4, 7, 8]), [4, 7, 9]);
        assert_eq!(above(vec![4, 255, 255]), [5]);
        assert_eq!(bounds(4, &(3_u64..=255)), vec![4, 0, 0, 0, 0, 0, 0, 0, 3]..vec![4, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(bounds::<u64>(4, &..), vec![4]..vec![5]);
    }
}

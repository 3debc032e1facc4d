//! A rival: one lock over everything, and a `BTreeMap` for each index. Its transactions never conflict. When a
//! transaction writes a row, the old row is kept, so that the write can be undone if the workload rolls the transaction
//! back.

use core::any::Any;
use core::ops::RangeBounds;
use std::collections::BTreeMap;

use archipelago_platform::sync::{Mutex, MutexGuard};
use archipelago_platform::{touch, touch_mut};
use archipelago_txn::Error;

use crate::record::Record;
use crate::store::{Numbered, Read, Stop, Store, Way, Write};

/// A database behind one lock.
#[derive(Default)]
pub struct Global {
    tables: Mutex<Vec<Box<dyn Held>>>,
}

/// A table behind a trait object.
trait Held: Any + Send {
    /// Undoes the writes of the present transaction.
    fn roll_back(&mut self);
    /// Keeps the writes of the present transaction.
    fn keep(&mut self);
}

/// A table's rows.
struct Rows<R: Record> {
    rows: BTreeMap<R::Key, R>,
    /// The primary keys of the rows, by their keys of the secondary index. Empty if the table has no secondary index.
    second: BTreeMap<R::Second, Vec<R::Key>>,
    /// The rows that the present transaction has replaced, the latest last.
    before: Vec<(R::Key, Option<R>)>,
}

impl<R: Record> Rows<R> {
    fn new() -> Self {
        Self { rows: BTreeMap::new(), second: BTreeMap::new(), before: Vec::new() }
    }

    /// Replaces a row and its entry of the secondary index. Returns the old row.
    fn put(&mut self, key: &R::Key, row: Option<R>) -> Option<R> {
        let new = row.as_ref().filter(|_| R::INDEXED).map(R::second);
        let old = match row {
            Some(row) => {
                let old = self.rows.insert(key.clone(), row);
                written(&self.rows[key]);
                old
            }
            None => self.rows.remove(key),
        };
        let gone = old.as_ref().filter(|_| R::INDEXED).map(R::second);
        if gone != new {
            if let Some(gone) = gone {
                let keys = self.second.get_mut(&gone).expect("every row has its entry");
                keys.retain(|it| it != key);
                if keys.is_empty() {
                    self.second.remove(&gone);
                }
            }
            if let Some(new) = new {
                self.second.entry(new).or_default().push(key.clone());
            }
        }
        old
    }
}

impl<R: Record> Held for Rows<R> {
    fn roll_back(&mut self) {
        while let Some((key, row)) = self.before.pop() {
            self.put(&key, row);
        }
    }

    fn keep(&mut self) {
        self.before.clear();
    }
}

/// A transaction or a view of a [`Global`]. It holds the lock.
pub struct Holding<'t> {
    tables: MutexGuard<'t, Vec<Box<dyn Held>>>,
    /// The numbers of the tables that were written.
    written: Vec<usize>,
}

impl Holding<'_> {
    fn rows<R: Record>(&mut self, table: &Numbered<R>) -> &mut Rows<R> {
        let held: &mut dyn Any = &mut *self.tables[table.number];
        held.downcast_mut().expect("a table's number is that of its rows")
    }

    fn write<R: Record>(&mut self, table: &Numbered<R>) -> &mut Rows<R> {
        if !self.written.contains(&table.number) {
            self.written.push(table.number);
        }
        self.rows(table)
    }
}

/// No transaction panics while it holds the lock.
const SOUND: &str = "no transaction panics";

impl Global {
    fn hold(&self) -> Holding<'_> {
        Holding { tables: self.tables.lock().expect(SOUND), written: Vec::new() }
    }
}

impl Store for Global {
    type Table<R: Record> = Numbered<R>;
    type Tx<'t> = Holding<'t>;
    type View<'v> = Holding<'v>;

    fn table<R: Record>(&self) -> Numbered<R> {
        let mut tables = self.tables.lock().expect(SOUND);
        tables.push(Box::new(Rows::<R>::new()));
        Numbered::new(tables.len() - 1)
    }

    fn transact<T>(&self, mut body: impl FnMut(&mut Holding<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        let mut holding = self.hold();
        let result = body(&mut holding);
        let Holding { tables, written } = &mut holding;
        for number in written.drain(..) {
            if result.is_ok() { tables[number].keep() } else { tables[number].roll_back() }
        }
        result
    }

    fn view<T>(&self, body: impl FnOnce(&mut Holding<'_>) -> T) -> T {
        body(&mut self.hold())
    }
}

/// Returns the row, after telling the simulator (the virtual machine) that all bytes of the row are read. The tree's
/// nodes are not announced, so walking the tree costs no virtual time.
fn seen<R>(row: &R) -> &R {
    touch(&raw const *row, size_of::<R>());
    row
}

/// Tells the simulator that all bytes of the row are written.
fn written<R>(row: &R) {
    touch_mut(&raw const *row, size_of::<R>());
}

impl Read<Global> for Holding<'_> {
    fn get<R: Record, T>(
        &mut self,
        table: &Numbered<R>,
        key: &R::Key,
        read: impl FnOnce(&R) -> T,
    ) -> Result<Option<T>, Error> {
        Ok(self.rows(table).rows.get(key).map(|row| read(seen(row))))
    }

    fn scan<R: Record>(
        &mut self,
        table: &Numbered<R>,
        range: impl RangeBounds<R::Key>,
        way: Way,
        mut visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error> {
        let mut rows = self.rows(table).rows.range(range);
        let next = || if way == Way::Up { rows.next() } else { rows.next_back() };
        core::iter::from_fn(next).all(|(_, row)| visit(seen(row)));
        Ok(())
    }

    fn scan_second<R: Record>(
        &mut self,
        table: &Numbered<R>,
        range: impl RangeBounds<R::Second>,
        way: Way,
        mut visit: impl FnMut(&R) -> bool,
    ) -> Result<(), Error> {
        let Rows { rows, second, .. } = self.rows(table);
        let mut keys = second.range(range);
        let next = || if way == Way::Up { keys.next() } else { keys.next_back() };
        core::iter::from_fn(next).flat_map(|(_, keys)| keys).all(|key| visit(seen(&rows[key])));
        Ok(())
    }
}

impl Write<Global> for Holding<'_> {
    fn insert<R: Record>(&mut self, table: &Numbered<R>, row: R) -> Result<(), Error> {
        let key = row.key();
        let rows = self.write(table);
        if rows.rows.contains_key(&key) {
            return Err(Error::Duplicate { index: "primary" });
        }
        rows.put(&key, Some(row));
        rows.before.push((key, None));
        Ok(())
    }

    fn update<R: Record, T>(
        &mut self,
        table: &Numbered<R>,
        key: &R::Key,
        change: impl FnOnce(&mut R) -> T,
    ) -> Result<Option<T>, Error> {
        let rows = self.write(table);
        let Some(row) = rows.rows.get_mut(key) else { return Ok(None) };
        let old = seen(row).clone();
        let second = old.second();
        let made = change(row);
        written(row);
        assert!(!R::INDEXED || row.second() == second, "no workload changes the key of a secondary index");
        rows.before.push((key.clone(), Some(old)));
        Ok(Some(made))
    }

    fn remove<R: Record>(&mut self, table: &Numbered<R>, key: &R::Key) -> Result<bool, Error> {
        let rows = self.write(table);
        let Some(old) = rows.put(key, None) else { return Ok(false) };
        rows.before.push((key.clone(), Some(old)));
        Ok(true)
    }
}

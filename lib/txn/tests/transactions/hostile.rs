//! Users' code that panics at each of its calls, and unusual uses of the public interface.

use std::cell::{Cell, RefCell};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_index::KeyAs;
use archipelago_txn::{Database, Error, Index, Row, Scheme, Silo, Table, Tx, on};

thread_local! {
    /// The number of calls of users' code until one panics; 0 if none panics.
    static FUSE: Cell<u32> = const { Cell::new(0) };
}

fn burn() {
    // A second panic during unwinding would abort the process.
    if thread::panicking() {
        return;
    }
    match FUSE.get() {
        0 => {}
        left => {
            FUSE.set(left - 1);
            assert!(left > 1, "planned");
        }
    }
}

/// A key whose methods are all users' code.
struct Mined(u64);

impl Clone for Mined {
    fn clone(&self) -> Self {
        burn();
        Self(self.0)
    }
}

impl KeyAs for Mined {
    type Key = u64;
    fn as_key(&self) -> u64 {
        burn();
        self.0
    }
    fn from_key(key: u64) -> Self {
        Self(key)
    }
}

struct Item {
    key: u64,
    group: u64,
}

impl Clone for Item {
    fn clone(&self) -> Self {
        burn();
        Self { ..*self }
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        burn();
    }
}

impl Row for Item {
    type Key = Mined;
    type Map = on::HydraList;
    type Indexes = (ByGroup,);
    fn key(&self) -> Mined {
        burn();
        Mined(self.key)
    }
    fn heap_bytes(&self) -> usize {
        burn();
        8
    }
}

struct ByGroup;

impl Index for ByGroup {
    type Row = Item;
    type Key = Mined;
    type Map = on::EunoBTree;
    const UNIQUE: bool = true;
    fn key(row: &Item) -> Mined {
        burn();
        Mined(row.group)
    }
}

super::by_every_scheme! {
    panics_leave_all_or_nothing: panics_everywhere;
    two_databases_in_one_closure: two_databases;
    unique_keys_within_a_transaction: unique_keys;
    ends_of_threads: late_transactions;
    panics_that_are_caught_inside: caught_inside;
    panics_that_are_caught_within_ranges: caught_within_ranges;
    keys_that_change: changing_keys;
    entries_that_change: changing_entries;
    insertions_that_panic: failed_insertions;
}

const ROWS: u64 = 8;

/// Makes all kinds of writes, look-ups and walks. Increments the group of each row.
fn all_kinds<S: Scheme>(tx: &mut Tx<'_, S>, items: &Table<Item, S>) -> Result<(), Error> {
    assert!(tx.get(items, &Mined(ROWS + 5))?.is_none());
    assert!(tx.get_by::<ByGroup>(items, &Mined(1_000_000))?.is_none());
    tx.insert(items, Item { key: ROWS, group: 1_000 })?;
    let taken = tx.savepoint(|tx| tx.insert(items, Item { key: ROWS + 1, group: 1_000 }));
    assert!(matches!(taken, Err(Error::Duplicate { .. } | Error::Conflict)));
    for key in (0..ROWS).rev() {
        tx.update(items, &Mined(key), |row| row.group += 1)?;
    }
    tx.range(items, (Bound::Excluded(Mined(2)), Bound::Unbounded)).try_for_each(|row| row.map(drop))?;
    tx.range_by_rev::<ByGroup>(items, ..Mined(5)).try_for_each(|row| row.map(drop))?;
    tx.remove(items, &Mined(ROWS)).map(drop)
}

/// Checks that the index agrees with the table. Returns the rows' groups. The fuse must be off.
fn groups<S: Scheme>(db: &Database<S>, items: &Table<Item, S>) -> Vec<u64> {
    let view = db.snapshot();
    let rows = view.range(items, ..).map(|row| (row.key, row.group)).collect::<Vec<_>>();
    let mut by_group = view.range_by::<ByGroup>(items, ..).map(|row| (row.key, row.group)).collect::<Vec<_>>();
    by_group.sort_unstable();
    assert_eq!(rows, by_group, "the index has what the table has");
    rows.into_iter().map(|(_, group)| group).collect()
}

/// Repeats a transaction. Users' code panics at its first call, then at its second call, and so on, until a run makes
/// fewer calls.
fn panics_everywhere<S: Scheme>() {
    watchdog(USUAL, |_| {
        let db = Database::<S>::limited(1 << 20);
        let items = db.table::<Item>();
        db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&items, Item { key, group: key + 1 }))).unwrap();
        let mut before = groups(&db, &items);
        for calls in 1.. {
            FUSE.set(calls);
            let ended = catch_unwind(AssertUnwindSafe(|| db.transact(|tx| all_kinds(tx, &items))));
            let (_, left) = (catch_unwind(AssertUnwindSafe(|| db.collect())), FUSE.take());
            let after = groups(&db, &items);
            let moved = before.iter().map(|group| group + 1).collect::<Vec<_>>();
            match ended {
                Ok(result) => assert_eq!((result, &after), (Ok(()), &moved), "call {calls}"),
                Err(_) => assert!(after == before || after == moved, "call {calls}: {before:?}, and then {after:?}"),
            }
            before = after;
            // No record has been left latched, locked or owned by the failed transaction, so another thread succeeds at
            // its first attempt.
            let other = || db.try_transact(|tx| all_kinds(tx, &items));
            assert_eq!(thread::scope(|scope| scope.spawn(other).join().expect("no panic")), Ok(()), "call {calls}");
            before.iter_mut().for_each(|group| *group += 1);
            if left > 0 {
                assert!(calls > 100, "{calls} calls of the user's code");
                break;
            }
        }
    });
}

/// The closure catches the panic of a savepoint and continues. No write of the savepoint remains, whichever call
/// panicked.
fn caught_inside<S: Scheme>() {
    let db = Database::<S>::new();
    let items = db.table::<Item>();
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&items, Item { key, group: key + 1 }))).unwrap();
    let mut before = groups(&db, &items);
    for calls in 1.. {
        let done = db.transact(|tx| {
            FUSE.set(calls);
            let part = catch_unwind(AssertUnwindSafe(|| tx.savepoint(|tx| all_kinds(tx, &items))));
            FUSE.set(0);
            tx.upsert(&items, Item { key: ROWS + 7, group: 2_000 + u64::from(calls) })?;
            part.map_or(Ok(false), |result| result.map(|()| true))
        });
        let done = done.expect("nothing is in the way");
        let mut after = groups(&db, &items);
        assert_eq!(after.pop(), Some(2_000 + u64::from(calls)), "what it did afterwards is committed");
        before.iter_mut().for_each(|group| *group += u64::from(done));
        assert_eq!(after, before, "at call {calls}");
        if done {
            assert!(calls > 50, "{calls} calls of the user's code");
            break;
        }
    }
}

/// Calls `next` to its end, also after its panics.
fn through<T>(mut next: impl FnMut() -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    loop {
        match catch_unwind(AssertUnwindSafe(&mut next)) {
            Ok(Some(row)) => found.push(row),
            Ok(None) => return found,
            Err(_) => {}
        }
    }
}

/// A step of an iterator that panics skips nothing, wherever it panicked.
fn caught_within_ranges<S: Scheme>() {
    let db = Database::<S>::new();
    let items = db.table::<Item>();
    db.transact(|tx| (0..30).try_for_each(|key| tx.insert(&items, Item { key, group: key }))).unwrap();
    for calls in 1.. {
        let view = db.snapshot();
        let mut rows = view.range_rev(&items, ..);
        FUSE.set(calls);
        let seen = through(|| rows.next().map(|row| row.key));
        FUSE.set(0);
        assert!(seen.into_iter().rev().eq(0..30), "at call {calls}");
        let seen = db.transact(|tx| {
            let mut rows = tx.range_by::<ByGroup>(&items, ..);
            FUSE.set(calls);
            let seen = through(|| rows.next().map(|row| row.map(|row| row.key)));
            Ok::<_, Error>((seen.into_iter().collect::<Result<Vec<_>, _>>()?, FUSE.take()))
        });
        let (seen, left) = seen.expect("nothing is in the way");
        assert!(seen.into_iter().eq(0..30), "at call {calls}");
        if left > 0 {
            assert!(calls > 10, "{calls} calls of the user's code");
            break;
        }
    }
}

/// A key whose clones differ from it.
struct Shifting(u64);

impl Clone for Shifting {
    fn clone(&self) -> Self {
        Self(self.0 + 1)
    }
}

impl KeyAs for Shifting {
    type Key = u64;
    fn as_key(&self) -> u64 {
        self.0
    }
    fn from_key(key: u64) -> Self {
        Self(key)
    }
}

#[derive(Clone)]
struct Shifted(u64);

impl Row for Shifted {
    type Key = Shifting;
    type Map = on::HydraList;
    type Indexes = ();
    fn key(&self) -> Shifting {
        Shifting(self.0)
    }
}

/// If a record is not found by its own key, it stays in its index.
fn changing_keys<S: Scheme>() {
    watchdog(USUAL, |_| {
        let db = Database::<S>::new();
        let rows = db.table::<Shifted>();
        for _ in 0..3 {
            let undone = db.transact(|tx| tx.insert(&rows, Shifted(1)).and(Err::<(), _>(Error::KeyChanged)));
            assert_eq!(undone, Err(Error::KeyChanged));
            db.transact(|tx| tx.insert(&rows, Shifted(1))).unwrap();
            assert_eq!(db.snapshot().range(&rows, ..).count(), 1);
            // The map stores the row under the first clone of its key.
            assert!(db.transact(|tx| tx.remove(&rows, &Shifting(2)).map(|row| row.is_some())).unwrap());
            (0..5).for_each(|_| db.collect());
            assert_eq!(db.snapshot().range(&rows, ..).count(), 0);
        }
    });
}

#[derive(Clone)]
struct Fickle {
    key: u64,
    group: Arc<AtomicU64>,
}

impl Row for Fickle {
    type Key = u64;
    type Map = on::Art;
    type Indexes = (ByMood,);
    fn key(&self) -> u64 {
        self.key
    }
}

struct ByMood;

impl Index for ByMood {
    type Row = Fickle;
    type Key = u64;
    type Map = on::BLinkTree;
    fn key(row: &Fickle) -> u64 {
        row.group.load(Ordering::Relaxed)
    }
}

/// A row whose key of an index has changed is not removed without its entry.
fn changing_entries<S: Scheme>() {
    let db = Database::<S>::new();
    let rows = db.table::<Fickle>();
    let group = Arc::new(AtomicU64::new(1));
    db.transact(|tx| tx.insert(&rows, Fickle { key: 7, group: group.clone() })).unwrap();
    group.store(2, Ordering::Relaxed);
    let other = Fickle { key: 7, group: Arc::new(AtomicU64::new(3)) };
    let removed = || db.transact(|tx| tx.remove(&rows, &7).map(|row| row.is_some()));
    catch_unwind(AssertUnwindSafe(removed)).expect_err("the entry is another one");
    let replaced = || db.transact(|tx| tx.upsert(&rows, other.clone()).map(drop));
    catch_unwind(AssertUnwindSafe(replaced)).expect_err("the entry is another one");
    (0..5).for_each(|_| db.collect());
    let found = || db.transact(|tx| tx.get_by::<ByMood>(&rows, &1).map(|row| row.map(|row| row.key)));
    assert_eq!((found(), db.snapshot().range_by::<ByMood>(&rows, ..).count()), (Ok(Some(7)), 1));
    group.store(1, Ordering::Relaxed);
    assert_eq!((removed(), found()), (Ok(true), Ok(None)));
}

#[derive(Clone)]
struct Named(String);

impl Row for Named {
    type Key = String;
    type Map = on::BLinkTree;
    type Indexes = ();
    fn key(&self) -> String {
        self.0.clone()
    }
}

/// An insertion that panics leaves no memory behind.
fn failed_insertions<S: Scheme>() {
    let db = Database::<S>::limited(64 << 20);
    let rows = db.table::<Named>();
    let insert = |length| db.transact(|tx| tx.insert(&rows, Named("x".repeat(length))));
    insert(10).unwrap();
    let used = || {
        (0..3).for_each(|_| db.collect());
        db.stats().counted_bytes
    };
    let before = used();
    catch_unwind(AssertUnwindSafe(|| insert(1 << 20))).expect_err("too long a key");
    assert_eq!(used(), before);
}

fn two_databases<S: Scheme>() {
    let (one, two) = (Database::<S>::new(), Database::<S>::new());
    let (ones, twos) = (one.table::<Item>(), two.table::<Item>());
    let result = one.transact(|outer| {
        outer.insert(&ones, Item { key: 1, group: 1 })?;
        two.transact(|inner| {
            inner.insert(&twos, Item { key: 2, group: 2 })?;
            outer.update(&ones, &Mined(1), |row| row.group = 3)
        })?;
        assert_eq!(two.snapshot().range(&twos, ..).count(), 1, "the inner one is over");
        Err::<(), _>(Error::KeyChanged)
    });
    assert_eq!(result, Err(Error::KeyChanged));
    assert_eq!((groups(&one, &ones), groups(&two, &twos)), (vec![], vec![2]), "each for itself");
}

fn unique_keys<S: Scheme>() {
    let db = Database::<S>::new();
    let items = db.table::<Item>();
    let taken = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Duplicate { .. })), "{result:?}");
    let insert = |tx: &mut Tx<'_, S>, key, group| tx.insert(&items, Item { key, group });
    db.transact(|tx| {
        insert(tx, 1, 10)?;
        taken(insert(tx, 2, 10));
        taken(insert(tx, 1, 11));
        // A key that a savepoint rolled back is free again. A key that the savepoint removed is taken again.
        let undone = tx.savepoint(|tx| {
            insert(tx, 2, 20)?;
            tx.remove(&items, &Mined(1))?;
            insert(tx, 3, 10)?;
            taken(insert(tx, 4, 20));
            Err::<(), _>(Error::KeyChanged)
        });
        assert_eq!(undone, Err(Error::KeyChanged));
        taken(insert(tx, 3, 10));
        insert(tx, 2, 20)?;
        // Two rows exchange their groups, by way of a third group.
        taken(tx.update(&items, &Mined(1), |row| row.group = 20).map(drop));
        tx.update(&items, &Mined(1), |row| row.group = 30)?;
        tx.update(&items, &Mined(2), |row| row.group = 10)?;
        tx.update(&items, &Mined(1), |row| row.group = 20)?;
        assert_eq!(tx.update(&items, &Mined(1), |row| row.key = 9), Err(Error::KeyChanged));
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(groups(&db, &items).len(), 2);
    assert_eq!(db.snapshot().get_by::<ByGroup>(&items, &Mined(20)).map(|row| row.key), Some(1));
    // A range whose start is above its end is empty.
    let (low, high) = (Bound::Included(Mined(5)), Bound::Excluded(Mined(1)));
    assert_eq!(db.snapshot().range(&items, (low, high)).count(), 0);
}

/// Runs a closure when the thread's local variables are dropped.
struct Late(RefCell<Option<Box<dyn FnOnce()>>>);

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

thread_local! {
    static LATE: Late = const { Late(RefCell::new(None)) };
}

fn late_transactions<S: Scheme>() {
    // `LATE`, whose destructor runs a transaction, is dropped before the database's thread-local state in one round and
    // after it in the other. The order follows from the order of first use.
    for is_first in [true, false] {
        let db = Arc::new(Database::<S>::new());
        let items = db.table::<Item>();
        let done = Arc::new(AtomicBool::new(false));
        let insert = |db: &Database<S>, items: &Table<Item, S>, key| {
            db.transact(|tx| tx.insert(items, Item { key, group: key })).expect("nothing is in the way");
        };
        let (theirs, table, told) = (db.clone(), items.clone(), done.clone());
        let (again, same) = (db.clone(), items.clone());
        let late = move || {
            insert(&theirs, &table, 1);
            told.store(true, Ordering::Relaxed);
        };
        let life = move || {
            if !is_first {
                insert(&again, &same, 2);
            }
            LATE.with(|cell| *cell.0.borrow_mut() = Some(Box::new(late)));
            if is_first {
                insert(&again, &same, 2);
            }
        };
        thread::spawn(life).join().expect("no panic");
        assert!(done.load(Ordering::Relaxed), "the thread's last transaction has ended");
        assert_eq!(groups(&db, &items), [1, 2]);
    }
}

/// Leaked snapshots and iterators cost memory, and have no other effect.
#[test]
fn what_is_leaked_keeps_nothing_from_its_end() {
    let db = Database::<Silo>::new();
    let items = db.table::<Item>();
    db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&items, Item { key, group: key }))).unwrap();
    let view = db.snapshot();
    let mut walk = view.range(&items, ..);
    assert!(walk.next().is_some());
    std::mem::forget(walk);
    std::mem::forget(view);
    let leaks = |tx: &mut Tx<'_, Silo>| {
        let mut rows = tx.range(&items, ..);
        assert!(rows.next().is_some_and(|row| row.is_ok()));
        std::mem::forget(rows);
        tx.update(&items, &Mined(0), |row| row.group += 100)
    };
    (0..100).for_each(|_| assert_eq!(db.transact(leaks), Ok(true)));
    assert_eq!(db.stats().snapshots, 1);
    assert_eq!(groups(&db, &items).iter().sum::<u64>(), ROWS * (ROWS - 1) / 2 + 10_000);
    drop((db, items));
}

/// A row whose destructor reads its own database and tries to write to it.
struct Homesick {
    key: u64,
    home: &'static OnceLock<(Database<Silo>, Table<Homesick, Silo>)>,
}

static DROPPED: AtomicU64 = AtomicU64::new(0);

impl Clone for Homesick {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl Row for Homesick {
    type Key = u64;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.key
    }
}

impl Drop for Homesick {
    fn drop(&mut self) {
        let Some((db, rows)) = self.home.get() else { return };
        DROPPED.fetch_add(1, Ordering::Relaxed);
        assert!(db.snapshot().range(rows, ..).count() <= 20);
        // During a transaction of this thread the call panics. The panic does not leave the destructor.
        let _ = catch_unwind(AssertUnwindSafe(|| db.transact(|tx| tx.remove(rows, &(self.key + 10)).map(drop))));
    }
}

#[test]
fn destructors_use_their_database() {
    watchdog(USUAL, |_| {
        static HOME: OnceLock<(Database<Silo>, Table<Homesick, Silo>)> = OnceLock::new();
        let db = Database::new();
        let rows = db.table();
        let (db, rows) = HOME.get_or_init(|| (db, rows));
        let row = |key| Homesick { key, home: &HOME };
        for _ in 0..50 {
            db.transact(|tx| (0..20).try_for_each(|key| tx.upsert(rows, row(key)).map(drop))).expect("only conflicts");
            db.transact(|tx| (0..5).try_for_each(|key| tx.remove(rows, &key).map(drop))).expect("only conflicts");
            db.collect();
        }
        assert!(DROPPED.load(Ordering::Relaxed) > 100);
    });
}

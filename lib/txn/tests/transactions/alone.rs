//! One thread: results of operations, errors, savepoints, snapshots.

use std::panic::{AssertUnwindSafe, catch_unwind};

use archipelago_txn::{Database, Error, Index, Isolation, Row, Scheme, Silo, on};

#[derive(Clone, Debug, PartialEq)]
struct Person {
    id: u64,
    name: String,
    city: String,
    mail: Option<String>,
}

impl Row for Person {
    type Key = u64;
    type Map = on::HydraList;
    type Indexes = (ByCity, ByMail, ByName);
    fn key(&self) -> u64 {
        self.id
    }
}

struct ByCity;

impl Index for ByCity {
    type Row = Person;
    type Key = String;
    type Map = on::BLinkTree;
    fn key(row: &Person) -> String {
        row.city.clone()
    }
}

struct ByMail;

impl Index for ByMail {
    type Row = Person;
    type Key = (bool, String);
    type Map = on::EunoBTree;
    const UNIQUE: bool = true;
    fn key(row: &Person) -> (bool, String) {
        (row.mail.is_some(), row.mail.clone().unwrap_or_else(|| row.id.to_string()))
    }
}

struct ByName;

impl Index for ByName {
    type Row = Person;
    type Key = String;
    type Map = on::EunoSkipList;
    fn key(row: &Person) -> String {
        row.name.clone()
    }
}

fn person(id: u64, name: &str, city: &str, mail: Option<&str>) -> Person {
    Person { id, name: name.into(), city: city.into(), mail: mail.map(Into::into) }
}

super::by_every_scheme! {
    every_operation: operations;
    savepoints: savepoints_take_back;
    snapshots: snapshots_stay;
    panics: panics_roll_back;
    write_skew: two_in_one_thread;
}

fn operations<S: Scheme>() {
    let db = Database::<S>::new();
    let people = db.table::<Person>();
    db.transact(|tx| {
        tx.insert(&people, person(1, "Ann", "Bern", Some("a")))?;
        tx.insert(&people, person(2, "Bob", "Bern", None))?;
        tx.insert(&people, person(3, "Cid", "Chur", Some("c")))?;
        assert_eq!(tx.range(&people, ..).count(), 3, "it sees its own");
        Ok::<_, Error>(())
    })
    .unwrap();
    let ids = |rows: Vec<&Person>| rows.iter().map(|row| row.id).collect::<Vec<_>>();
    db.transact(|tx| {
        let ann = tx.get(&people, &1)?.unwrap();
        assert_eq!(tx.get_by::<ByMail>(&people, &(true, "c".into()))?.unwrap().id, 3);
        assert!(tx.get_by::<ByMail>(&people, &(true, "z".into()))?.is_none());
        let mut bern =
            ids(tx.range_by::<ByCity>(&people, "Bern".to_string()..="Bern".to_string()).collect::<Result<_, _>>()?);
        bern.sort_unstable();
        assert_eq!(bern, [1, 2]);
        let below = ids(tx.range_by::<ByCity>(&people, .."Chur".to_string()).collect::<Result<_, _>>()?);
        assert_eq!(below.len(), 2);
        let down = ids(tx.range_by_rev::<ByName>(&people, ..).collect::<Result<_, _>>()?);
        assert_eq!(down, [3, 2, 1]);
        assert_eq!(ids(tx.range_rev(&people, 2..).collect::<Result<_, _>>()?), [3, 2]);
        // A reference that was returned earlier still shows the old row.
        assert!(tx.update(&people, &1, |row| row.city = "Chur".into())?);
        assert_eq!((ann.city.as_str(), tx.get(&people, &1)?.unwrap().city.as_str()), ("Bern", "Chur"));
        assert!(!tx.update(&people, &9, |_| panic!("it is not there"))?);
        assert_eq!(tx.range_by::<ByCity>(&people, "Chur".to_string()..).count(), 2);
        Ok::<_, Error>(())
    })
    .unwrap();
    db.transact(|tx| {
        let taken = tx.insert(&people, person(3, "Dan", "Biel", None));
        assert_eq!(taken, Err(Error::Duplicate { index: "primary" }));
        let Err(Error::Duplicate { index }) = tx.insert(&people, person(4, "Dan", "Biel", Some("c"))) else { panic!() };
        assert!(index.ends_with("ByMail"), "{index}");
        let Err(Error::Duplicate { .. }) = tx.update(&people, &1, |row| row.mail = Some("c".into())) else { panic!() };
        assert_eq!(tx.update(&people, &1, |row| row.id = 7), Err(Error::KeyChanged));
        assert!(tx.get(&people, &4)?.is_none());
        assert_eq!(tx.range_by::<ByCity>(&people, "Biel".to_string()..="Biel".to_string()).count(), 0);
        // A unique key that the transaction itself has freed can be used again.
        assert_eq!(tx.remove(&people, &3)?.unwrap().name, "Cid");
        assert!(tx.remove(&people, &3)?.is_none());
        tx.insert(&people, person(4, "Dan", "Biel", Some("c")))?;
        assert_eq!(tx.upsert(&people, person(4, "Eve", "Biel", Some("c")))?.unwrap().name, "Dan");
        assert!(tx.upsert(&people, person(5, "Flo", "Biel", None))?.is_none());
        Ok::<_, Error>(())
    })
    .unwrap();
    let view = db.snapshot();
    assert_eq!(view.range(&people, ..).map(|row| row.id).collect::<Vec<_>>(), [1, 2, 4, 5]);
    assert_eq!(view.get_by::<ByMail>(&people, &(true, "c".into())).unwrap().name, "Eve");
    assert_eq!(view.range_by::<ByName>(&people, ..).map(|row| row.id).collect::<Vec<_>>(), [1, 2, 4, 5]);
}

/// The closure's own error.
#[derive(Debug, PartialEq)]
enum Mine {
    No,
    Engine(Error),
}

impl From<Error> for Mine {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

fn savepoints_take_back<S: Scheme>() {
    let db = Database::<S>::new();
    let people = db.table::<Person>();
    db.transact(|tx| tx.insert(&people, person(1, "Ann", "Bern", Some("a")))).unwrap();
    db.transact(|tx| {
        tx.update(&people, &1, |row| row.city = "Biel".into())?;
        let failed = tx.savepoint(|tx| {
            tx.update(&people, &1, |row| row.city = "Chur".into())?;
            tx.insert(&people, person(2, "Bob", "Chur", Some("b")))?;
            let inner: Result<(), Mine> = tx.savepoint(|tx| {
                tx.remove(&people, &1)?;
                Err(Mine::No)
            });
            assert_eq!(inner, Err(Mine::No));
            assert_eq!(tx.range(&people, ..).count(), 2);
            Err::<(), _>(Mine::No)
        });
        assert_eq!(failed, Err(Mine::No));
        assert_eq!(tx.get(&people, &1)?.unwrap().city, "Biel");
        assert_eq!(tx.range_by::<ByCity>(&people, ..).count(), 1);
        assert!(tx.get_by::<ByMail>(&people, &(true, "b".into()))?.is_none());
        tx.savepoint(|tx| tx.insert(&people, person(3, "Cid", "Bern", Some("b"))))?;
        Ok::<_, Mine>(())
    })
    .unwrap();
    let whole = db.transact(|tx| {
        tx.remove(&people, &1)?;
        tx.insert(&people, person(9, "Zoe", "Bern", None))?;
        Err::<(), _>(Mine::No)
    });
    assert_eq!(whole, Err(Mine::No));
    let view = db.snapshot();
    assert_eq!(view.range(&people, ..).map(|row| row.id).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(view.range_by::<ByCity>(&people, ..).map(|row| row.city.as_str()).collect::<Vec<_>>(), ["Bern", "Biel"]);
    assert_eq!(view.range_by::<ByMail>(&people, ..).count(), 2);
}

fn snapshots_stay<S: Scheme>() {
    let db = Database::<S>::new();
    let people = db.table::<Person>();
    let before = db.snapshot();
    for id in 0..50 {
        db.transact(|tx| tx.insert(&people, person(id, "Ann", "Bern", None))).unwrap();
    }
    let view = db.snapshot();
    let lent = view.get(&people, &7).unwrap();
    for round in 0..20 {
        for id in 0..50 {
            db.transact(|tx| {
                if (id + round) % 3 == 0 {
                    tx.remove(&people, &id)?;
                } else {
                    tx.upsert(&people, person(id, "Bob", "Chur", Some(&format!("{id}"))))?;
                }
                Ok::<_, Error>(())
            })
            .unwrap();
        }
        db.collect();
        assert_eq!(before.range(&people, ..).count(), 0);
        assert_eq!(view.range(&people, ..).count(), 50);
        assert!(view.range_rev(&people, ..).all(|row| row.name == "Ann"));
        assert_eq!(view.range_by::<ByCity>(&people, "Bern".to_string()..="Bern".to_string()).count(), 50);
        assert_eq!(view.range_by::<ByCity>(&people, "C".to_string()..).count(), 0);
        assert_eq!(lent, &person(7, "Ann", "Bern", None));
    }
    let late = db.snapshot();
    let there = late.range(&people, ..).count();
    assert_eq!(late.range_by::<ByCity>(&people, "Chur".to_string()..).count(), there);
    drop((before, view));
    assert_eq!(late.range(&people, ..).count(), there);
    assert_eq!(db.stats().snapshots, 1);
}

fn panics_roll_back<S: Scheme>() {
    let db = Database::<S>::new();
    let people = db.table::<Person>();
    db.transact(|tx| tx.insert(&people, person(1, "Ann", "Bern", None))).unwrap();
    for place in 0..4 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            db.transact(|tx| {
                assert!(place != 0, "planned");
                tx.update(&people, &1, |row| {
                    row.city = "Chur".into();
                    assert!(place != 1, "planned");
                })?;
                tx.insert(&people, person(2, "Bob", "Bern", None))?;
                assert!(place != 2, "planned");
                tx.savepoint(|tx| {
                    tx.remove(&people, &1)?;
                    assert!(place != 3, "planned");
                    Ok::<_, Error>(())
                })
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(db.snapshot().range(&people, ..).collect::<Vec<_>>(), [&person(1, "Ann", "Bern", None)]);
        assert_eq!(db.snapshot().range_by::<ByCity>(&people, ..).count(), 1);
    }
    // No lock is left.
    db.transact(|tx| tx.remove(&people, &1).map(drop)).unwrap();
    let nested = || db.transact(|_| db.transact(|_| Ok::<_, Error>(())));
    let message = *catch_unwind(AssertUnwindSafe(nested)).unwrap_err().downcast::<&str>().unwrap();
    assert!(message.contains("savepoint"), "{message}");
    let other = Database::<S>::new();
    catch_unwind(AssertUnwindSafe(|| other.transact(|tx| tx.remove(&people, &1).map(drop)))).unwrap_err();
}

/// One thread cannot run two transactions at the same time. So the second transaction runs in another thread, between
/// two steps of the first.
fn two_in_one_thread<S: Scheme>() {
    let db = Database::<S>::new();
    let people = db.table::<Person>();
    db.transact(|tx| {
        tx.insert(&people, person(1, "Ann", "Bern", None))?;
        tx.insert(&people, person(2, "Bob", "Bern", None))
    })
    .unwrap();
    // Each transaction reads both rows. It moves one of them to another city, unless the other row has been moved.
    // Without isolation both rows would be moved.
    let leave = |id: u64, isolation, between: &dyn Fn()| {
        let mut first = true;
        db.transact_at(isolation, |tx| {
            let here = tx.range_by::<ByCity>(&people, "Bern".to_string()..="Bern".to_string()).count();
            if std::mem::take(&mut first) {
                between();
            }
            if here == 2 {
                tx.update(&people, &id, |row| row.city = "Chur".into())?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
    };
    let at_bern = || db.snapshot().range_by::<ByCity>(&people, ..="Bern".to_string()).count();
    if S::NAME == Silo::NAME {
        let between = || std::thread::scope(|scope| _ = scope.spawn(|| leave(2, Isolation::Serializable, &|| ())));
        leave(1, Isolation::Serializable, &between);
        assert_eq!(at_bern(), 1);
        db.transact(|tx| tx.update(&people, &2, |row| row.city = "Bern".into()).map(drop)).unwrap();
    }
    let between = || std::thread::scope(|scope| _ = scope.spawn(|| leave(2, Isolation::Snapshot, &|| ())));
    leave(1, Isolation::Snapshot, &between);
    assert_eq!(at_bern(), 0, "snapshot isolation lets write skew pass");
}

//! Opening: tables that are added, dropped and changed; openings that are refused.

use std::path::Path;
use std::sync::Arc;

use archipelago_journal::{Disk, Simulated};
use archipelago_txn::{Database, Error, Failure, Index, Opening, Row, Silo, Table, on};
use serde::{Deserialize, Serialize};

fn opening(disk: &Simulated) -> Opening<Silo> {
    Database::open("/db").disk(Arc::new(disk.clone())).in_order(100)
}

#[derive(Clone, Serialize, Deserialize)]
struct Item {
    key: String,
    value: u64,
}

impl Row for Item {
    type Key = String;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> String {
        self.key.clone()
    }
}

/// A row type with the same encoding as `Item`, and an index.
#[derive(Clone, Serialize, Deserialize)]
struct Indexed {
    key: String,
    value: u64,
}

impl Row for Indexed {
    type Key = String;
    type Map = on::BLinkTree;
    type Indexes = (ByValue,);
    fn key(&self) -> String {
        self.key.clone()
    }
}

struct ByValue;

impl Index for ByValue {
    type Row = Indexed;
    type Key = u64;
    type Map = on::HydraList;
    const UNIQUE: bool = true;
    fn key(row: &Indexed) -> u64 {
        row.value
    }
}

/// A row type with another encoding.
#[derive(Clone, Serialize, Deserialize)]
struct Other(String);

impl Row for Other {
    type Key = String;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> String {
        self.0.clone()
    }
}

fn put(db: &Database<Silo>, table: &Table<Item, Silo>, key: &str, value: u64) {
    db.transact(|tx| tx.upsert(table, Item { key: key.into(), value }).map(drop)).unwrap();
}

#[test]
fn tables_come_and_their_indexes_change() {
    let disk = Simulated::new();
    {
        let mut opening = opening(&disk);
        let items = opening.table::<Item>("items");
        let db = opening.start().unwrap();
        for number in 0..50 {
            put(&db, &items, &format!("{}", number % 20), number);
        }
        let aside = db.table::<Item>();
        put(&db, &aside, "aside", 1);
        db.transact(|tx| {
            tx.remove(&items, &"7".to_string())?;
            tx.remove(&aside, &"aside".to_string()).map(drop)
        })
        .unwrap();
        assert_eq!(db.checkpoint().unwrap(), 19);
        put(&db, &items, "8", 1_000);
    }
    for life in 0..3 {
        let mut opening = opening(&disk.restarted());
        let (more, items) = (opening.table::<Item>("more"), opening.table::<Indexed>("items"));
        let db = opening.start().unwrap();
        let view = db.snapshot();
        assert_eq!((view.range(&items, ..).count(), view.range_by::<ByValue>(&items, ..).count()), (19, 19));
        assert_eq!(view.get_by::<ByValue>(&items, &1_000).unwrap().key, "8");
        assert!(view.get(&items, &"7".to_string()).is_none());
        assert_eq!(db.recovered().unwrap().rows, 19);
        put(&db, &more, "more", life);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let disk = Simulated::new();
    {
        let mut opening = opening(&disk);
        let items = opening.table::<Item>("items");
        let db = opening.start().unwrap();
        put(&db, &items, "one", 1);
        put(&db, &items, "two", 1);
        // Another opening in the same process is refused.
        let Err(Failure::Log(archipelago_journal::Error::Locked { .. })) = self::opening(&disk).start() else {
            panic!()
        };
    }
    for checkpointed in [false, true] {
        if checkpointed {
            let mut opening = opening(&disk);
            let _items = opening.table::<Item>("items");
            opening.start().unwrap().checkpoint().unwrap();
        }
        let refused = opening(&disk).start().map(drop).unwrap_err();
        assert!(matches!(&refused, Failure::Undeclared { table } if table == "items"), "{refused}");
        let mut other = opening(&disk);
        let _other = other.table::<Other>("items");
        let refused = other.start().map(drop).unwrap_err();
        assert!(matches!(&refused, Failure::Unreadable { table } if table == "items"), "{refused}");
        let mut indexed = opening(&disk);
        let _indexed = indexed.table::<Indexed>("items");
        let refused = indexed.start().map(drop).unwrap_err();
        assert!(matches!(&refused, Failure::Taken { index, .. } if index.ends_with("ByValue")), "{refused}");
    }
    // The refused openings have changed nothing.
    let mut opening = opening(&disk);
    let items = opening.table::<Item>("items");
    let db = opening.start().unwrap();
    assert_eq!(db.snapshot().range(&items, ..).count(), 2);
}

/// The running database may replace its checkpoint while another opening reads the files.
#[test]
fn an_opening_beside_a_running_database_reads_no_files() {
    let disk = Simulated::new();
    let mut one = opening(&disk);
    let items = one.table::<Item>("items");
    let db = one.start().unwrap();
    put(&db, &items, "one", 1);
    db.checkpoint().unwrap();
    let names = disk.list(Path::new("/db")).unwrap();
    let part = names.iter().find(|name| name.starts_with("rows-")).unwrap();
    disk.remove(&Path::new("/db").join(part)).unwrap();
    let mut other = opening(&disk);
    let _items = other.table::<Item>("items");
    let refused = other.start().map(drop).unwrap_err();
    assert!(matches!(refused, Failure::Log(archipelago_journal::Error::Locked { .. })), "{refused}");
}

#[test]
fn a_database_in_memory_has_nothing_to_flush() {
    let db = Database::<Silo>::new();
    let items = db.table::<Item>();
    put(&db, &items, "one", 1);
    db.flush().unwrap();
    assert!(matches!(db.checkpoint(), Err(Failure::Volatile)));
    assert_eq!(db.recovered(), None);
    db.close().unwrap();
}

/// If a row's code panics while it encodes the row, or overwrites earlier bytes, the transaction is rolled back. Other
/// rows and the log are not damaged.
#[test]
fn users_code_that_fails_while_it_is_written_rolls_back() {
    type Damage = fn(&mut Vec<u8>);
    #[derive(Clone)]
    struct Vandal(u64, Option<Damage>);
    impl Row for Vandal {
        type Key = u64;
        type Map = on::Art;
        type Indexes = ();
        fn key(&self) -> u64 {
            self.0
        }
    }
    impl archipelago_txn::Persist for Vandal {
        fn save(&self, to: &mut Vec<u8>) {
            to.extend(self.0.to_le_bytes());
            self.1.iter().for_each(|damage| damage(to));
        }
        fn load(from: &[u8]) -> Option<Self> {
            Some(Self(u64::from_le_bytes(from.try_into().ok()?), None))
        }
    }
    let damages: [(&str, Damage); 5] = [
        ("planned", |_| panic!("planned")),
        ("only append", Vec::clear),
        ("only append", |to| *to = vec![0; 100]),
        ("only append", |to| to.insert(0, 0)),
        ("only append", |to| to.truncate(to.len() - 20)),
    ];
    let disk = Simulated::new();
    for life in 0..2 {
        let mut opening = opening(&disk);
        let table = opening.table::<Vandal>("vandals");
        let db = opening.start().unwrap();
        for (message, damage) in damages {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                db.transact(|tx| {
                    tx.upsert(&table, Vandal(1, None))?;
                    tx.upsert(&table, Vandal(2, Some(damage))).map(drop)
                })
            }));
            let panic = panicked.expect_err("it is refused");
            let told = panic.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(told.contains(message), "{told}");
        }
        assert_eq!(db.snapshot().range(&table, ..).count(), life);
        db.transact(|tx| tx.upsert(&table, Vandal(3, None)).map(drop)).unwrap();
        assert!(db.transact(|tx| Ok::<_, Error>(tx.get(&table, &1)?.is_none())).unwrap());
        db.close().unwrap();
    }
}

/// A recovery restores all rows even if they exceed the limit. Afterwards the limit applies.
#[test]
fn a_limit_refuses_no_recovery() {
    let disk = Simulated::new();
    let item = |key: u64| Item { key: format!("{key:04}"), value: key };
    {
        let mut opening = opening(&disk);
        let items = opening.table::<Item>("items");
        let db = opening.start().unwrap();
        db.transact(|tx| (0..500).try_for_each(|key| tx.insert(&items, item(key)))).unwrap();
    }
    let mut opening = opening(&disk).limit(20_000);
    let items = opening.table::<Item>("items");
    let db = opening.start().unwrap();
    assert_eq!(db.recovered().map(|recovered| recovered.rows), Some(500));
    assert!(db.stats().counted_bytes > Some(20_000));
    assert_eq!(db.transact(|tx| tx.insert(&items, item(500))), Err(Error::Full));
    db.transact(|tx| (0..480).try_for_each(|key| tx.remove(&items, &item(key).key).map(drop))).unwrap();
    db.transact(|tx| tx.insert(&items, item(500))).unwrap();
    assert_eq!(db.snapshot().range(&items, ..).count(), 21);
}

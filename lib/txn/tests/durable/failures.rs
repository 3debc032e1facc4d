//! Failed syncs, full disks, and damaged files.

use std::path::Path;
use std::sync::Arc;

use archipelago_journal::{Call, Disk, Fault, Simulated};
use archipelago_txn::{
    Acknowledge, Database, Error, Failure, Hekaton, Isolation, MvRlu, NoWait, Persist, Row, Scheme, Silo, Table,
    TicToc, Tx, on,
};

use crate::bank::{Account, Bank, ByCents};

const HERE: &str = "/bank";

fn try_open(disk: &Simulated) -> Result<(Database<Silo>, Bank<Silo>), Failure> {
    let mut opening = Database::open(HERE).disk(Arc::new(disk.clone())).lanes(2).queue(8 << 10).in_order(300);
    let bank = Bank::declare(&mut opening);
    Ok((opening.start()?, bank))
}

fn open(disk: &Simulated) -> (Database<Silo>, Bank<Silo>) {
    try_open(disk).unwrap_or_else(|failure| panic!("{failure}"))
}

fn moves(db: &Database<Silo>, bank: &Bank<Silo>, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| db.transact(|tx| bank.transfer(tx, 0, number, false)).unwrap());
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged() {
    let disk = Simulated::new();
    let (db, bank) = open(&disk);
    moves(&db, &bank, 0..5);
    disk.fail_next(Call::Sync, Fault::Io);
    let told = db.transact(|tx| bank.transfer(tx, 0, 5, false));
    assert_eq!(told, Err(Error::NotDurable));
    // From here on the disk reports success again, but the log still refuses records.
    for number in 6..9 {
        let told = db.transact(|tx| bank.transfer(tx, 0, number, false));
        assert_eq!(told, Err(Error::Refused));
    }
    // The row that was read may be lost in a crash, so even a transaction that only read it is not durable.
    let read = db.transact(|tx| Ok::<_, Error>(tx.get(&bank.moves, &(0, 5))?.is_some()));
    assert_eq!(read, Err(Error::NotDurable));
    let read = db.transact(|tx| Ok::<_, Error>(tx.get(&bank.moves, &(0, 1))?.is_some()));
    assert_eq!(read, Ok(true), "what was read is durable");
    let Err(Failure::Log(why)) = db.flush() else { panic!() };
    assert!(why.to_string().contains("nothing is acknowledged any more"), "{why}");
    assert!(db.checkpoint().is_err());
    assert!(db.close().is_err());
    drop(bank);
    let (db, bank) = open(&disk.power_loss(1));
    assert!(bank.audit(&db)[&0].len() >= 5);
}

#[test]
fn a_full_disk_is_waited_for() {
    let disk = Simulated::new();
    let (db, bank) = open(&disk);
    moves(&db, &bank, 0..5);
    disk.set_capacity(Some(disk.used()));
    let (mut committed, mut refused) = (vec![], 0);
    for number in 5..200 {
        match db.transact(|tx| bank.transfer(tx, 0, number, false)) {
            Err(Error::NotDurable) => committed.push(number),
            Err(Error::Refused) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(!committed.is_empty() && refused > 0, "{committed:?}, {refused}");
    let Err(Failure::Log(archipelago_journal::Error::NoSpace { .. })) = db.flush() else { panic!() };
    disk.set_capacity(None);
    db.flush().unwrap();
    assert_eq!(bank.audit(&db)[&0].len(), 5 + committed.len());
    db.transact(|tx| bank.transfer(tx, 0, 1_000, false)).unwrap();
    let (db, bank) = open(&disk.power_loss(3));
    let there = &bank.audit(&db)[&0];
    assert_eq!(there.len(), 6 + committed.len());
    assert!(committed.iter().all(|number| there.contains(number)));
}

#[test]
fn a_transaction_that_is_too_large_is_rolled_back() {
    let disk = Simulated::new();
    let (db, bank) = open(&disk);
    let told = db.transact(|tx| (0..900).try_for_each(|number| bank.transfer(tx, 0, number, false)));
    assert_eq!(told, Err(Error::TooLarge));
    moves(&db, &bank, 0..5);
    assert_eq!(bank.audit(&db)[&0].len(), 5);
}

#[test]
fn damage_is_refused_with_a_sentence() {
    let disk = Simulated::new();
    let (db, bank) = open(&disk);
    moves(&db, &bank, 0..40);
    db.checkpoint().unwrap();
    moves(&db, &bank, 40..60);
    db.close().unwrap();
    drop(bank);
    let names = disk.restarted().list(Path::new(HERE)).unwrap();
    let mut refused = 0;
    for name in names {
        let path = Path::new(HERE).join(&name);
        let length = disk.content(&path).map_or(0, |content| content.len());
        for at in (0..length).step_by(7) {
            let damaged = disk.restarted();
            damaged.damage(&path, |content| content[at] ^= 0x10);
            match try_open(&damaged) {
                Err(failure) => {
                    refused += 1;
                    let text = failure.to_string();
                    assert!(text.contains("damaged") || text.contains("declare"), "{name}: {text}");
                }
                // Damage to the last bytes of a log may count as a torn tail (a record that a crash has cut off).
                // Headers have unused bytes, where damage has no effect.
                Ok((db, bank)) => drop((bank.audit(&db), db)),
            }
        }
        let missing = disk.restarted();
        missing.remove(&path).unwrap();
        if name.starts_with("rows-") || name == "tables" {
            let Err(failure) = try_open(&missing) else { panic!("{name} was not missed") };
            assert!(failure.to_string().contains("damaged") || failure.to_string().contains("declare"), "{failure}");
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn a_reader_is_acknowledged_when_what_it_read_is_durable() {
    let disk = Simulated::new();
    let later = Acknowledge::Committed { every: std::time::Duration::from_secs(100_000) };
    let mut opening = Database::<Silo>::open(HERE).disk(Arc::new(disk.clone())).in_order(300).acknowledge(later);
    let bank = Bank::declare(&mut opening);
    let db = opening.start().unwrap();
    moves(&db, &bank, 0..5);
    assert_eq!(bank.audit(&db)[&0].len(), 5);
    // No bytes have been written yet.
    let (lost, lost_bank) = open_one(&disk.power_loss(0));
    assert!(lost_bank.audit(&lost).is_empty());
    db.flush().unwrap();
    let (kept, kept_bank) = open_one(&disk.power_loss(0));
    assert_eq!(kept_bank.audit(&kept)[&0].len(), 5);
    let calls = disk.calls().len();
    db.flush().unwrap();
    db.transact(|tx| Ok::<_, Error>(tx.get(&bank.moves, &(0, 1))?.is_some())).unwrap();
    assert_eq!(disk.calls().len(), calls, "nothing is left to write");
}

fn open_one(disk: &Simulated) -> (Database<Silo>, Bank<Silo>) {
    let mut opening = Database::open(HERE).disk(Arc::new(disk.clone())).in_order(300);
    let bank = Bank::declare(&mut opening);
    (opening.start().unwrap_or_else(|failure| panic!("{failure}")), bank)
}

/// A row is removed and inserted again in one epoch. The new row is a new record of the index, and its log entry is in
/// another log file (lane). Recovery must restore the last write.
#[test]
fn rows_that_come_back_within_an_epoch_are_the_last_ones() {
    let later = Acknowledge::Committed { every: std::time::Duration::from_secs(100_000) };
    let disk = Simulated::new();
    let mut opening =
        Database::<Silo>::open(HERE).disk(Arc::new(disk.clone())).lanes(3).in_order(300).acknowledge(later);
    let bank = Bank::declare(&mut opening);
    let db = opening.start().unwrap();
    let account = |moves| crate::bank::Account { id: 3, cents: 0, moves, note: String::new() };
    for round in 0..7 {
        // Each update raises the record's serial number, which orders a key's log entries within an epoch. So the
        // removal's serial number exceeds that of the new record's first write, and recovery must still prefer the new
        // row.
        for moves in 0..round {
            db.transact(|tx| tx.upsert(&bank.accounts, account(100 + moves)).map(drop)).unwrap();
        }
        db.transact(|tx| tx.remove(&bank.accounts, &3).map(drop)).unwrap();
        (0..3).for_each(|_| db.collect());
        db.transact(|tx| tx.upsert(&bank.accounts, account(round)).map(drop)).unwrap();
        db.flush().unwrap();
        let after = disk.power_loss(0);
        let mut opening = Database::<Silo>::open(HERE).disk(Arc::new(after)).lanes(3).in_order(300);
        let there = Bank::declare(&mut opening);
        let recovered = opening.start().unwrap();
        assert_eq!(recovered.snapshot().get(&there.accounts, &3).map(|row| row.moves), Some(round), "round {round}");
    }
}

/// Returns the names of the files with the rows of checkpoints (parts).
fn parts(disk: &Simulated) -> Vec<String> {
    let mut names = disk.restarted().list(Path::new(HERE)).unwrap();
    names.retain(|name| name.starts_with("rows-"));
    names.sort_unstable();
    names
}

#[test]
fn a_failed_checkpoint_leaves_no_parts() {
    let disk = Simulated::new();
    let (db, bank) = open(&disk);
    moves(&db, &bank, 0..40);
    db.checkpoint().unwrap();
    let before = parts(&disk);
    disk.set_capacity(Some(disk.used() + 1_500));
    let Err(Failure::Log(archipelago_journal::Error::NoSpace { .. })) = db.checkpoint() else { panic!() };
    assert_eq!(parts(&disk), before);
    disk.set_capacity(None);
    db.checkpoint().unwrap();
    assert_eq!(parts(&disk).len(), before.len());
    assert_ne!(parts(&disk), before);
}

/// A process that ends during a checkpoint leaves parts that fill the disk.
#[test]
fn parts_of_no_checkpoint_keep_no_database_closed() {
    let disk = Simulated::new();
    let (db, bank) = open(&disk);
    moves(&db, &bank, 0..40);
    db.checkpoint().unwrap();
    drop((db, bank));
    let (disk, before) = (disk.restarted(), parts(&disk));
    let path = Path::new(HERE).join("rows-0-00000000ffffffff-0");
    disk.create(&path).unwrap().write(0, &[7; 10_000]).unwrap();
    disk.set_capacity(Some(disk.used()));
    let (db, bank) = open(&disk);
    assert_eq!((bank.audit(&db)[&0].len(), parts(&disk)), (40, before));
}

/// If a transaction has seen a removal that may be lost, it is not acknowledged. This holds even if it saw the removal
/// by an index, after the removed record was unlinked, or when the key had a new record to which nothing was committed.
fn removals_that_are_not_durable<S: Scheme>() {
    let disk = Simulated::new();
    let mut opening = Database::<S>::open(HERE).disk(Arc::new(disk.clone())).in_order(300);
    let bank = Bank::declare(&mut opening);
    let db = opening.start().unwrap();
    let account = Account { id: 9, cents: 77, moves: 0, note: String::new() };
    db.transact(|tx| tx.insert(&bank.accounts, account.clone())).unwrap();
    disk.fail_next(Call::Sync, Fault::Io);
    let told = db.transact(|tx| tx.remove(&bank.accounts, &9).map(drop));
    assert_eq!(told, Err(Error::NotDurable));
    (0..5).for_each(|_| db.collect());
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let told = db.transact_at(isolation, |tx| tx.get(&bank.accounts, &9).map(drop));
        assert_eq!(told, Err(Error::NotDurable), "{}, {isolation:?}", S::NAME);
        let told = db.transact_at(isolation, |tx| tx.get_by::<ByCents>(&bank.accounts, &77).map(drop));
        assert_eq!(told, Err(Error::NotDurable), "{}, {isolation:?}, by an index", S::NAME);
    }
    type Look<S> = fn(&mut Tx<'_, S>, &Table<Account, S>) -> Result<bool, Error>;
    let looks: [Look<S>; 4] = [
        |tx, accounts| Ok(tx.get(accounts, &9)?.is_some()),
        |tx, accounts| Ok(tx.get_many(accounts, &[9])?[0].is_some()),
        |tx, accounts| tx.update(accounts, &9, |row| row.cents = 0),
        |tx, accounts| Ok(tx.remove(accounts, &9)?.is_some()),
    ];
    let memory = db.table::<Account>();
    for (number, look) in looks.into_iter().enumerate() {
        // This transaction's own record, of an insertion that it has rolled back.
        let told = db.transact(|tx| {
            link_and_roll_back(tx, &bank.accounts, &account)?;
            look(tx, &bank.accounts)
        });
        assert_eq!(told, Err(Error::NotDurable), "{}, look {number}", S::NAME);
        // What an unlogged transaction has written depends on what it has seen.
        let told = db.transact(|tx| {
            link_and_roll_back(tx, &bank.accounts, &account)?;
            let is = look(tx, &bank.accounts)?;
            tx.upsert(&memory, Account { id: number as u64, moves: is.into(), ..account.clone() }).map(drop)
        });
        assert_eq!(told, Err(Error::NotDurable), "{}, look {number}, noted in memory", S::NAME);
        let told = db.transact(|tx| Ok::<_, Error>(tx.get(&memory, &(number as u64))?.map(|row| row.moves)));
        assert_eq!(told, Err(Error::NotDurable), "{}, look {number}, by way of memory", S::NAME);
    }
    // Another transaction's record. With locking schemes the reader meets the other's lock.
    let told = db.try_transact(|tx| {
        tx.insert(&bank.accounts, account.clone())?;
        let look = || db.try_transact(|tx| Ok::<_, Error>(tx.get(&bank.accounts, &9)?.map(|row| row.moves)));
        let told = std::thread::scope(|scope| scope.spawn(look).join().unwrap());
        assert!(matches!(told, Err(Error::NotDurable | Error::Conflict)), "{}: {told:?}", S::NAME);
        Ok::<_, Error>(())
    });
    assert_eq!(told, Err(Error::Refused), "{}", S::NAME);
}

/// Leaves a record to which nothing was committed, until the transaction's end.
fn link_and_roll_back<S: Scheme>(
    tx: &mut Tx<'_, S>,
    table: &Table<Account, S>,
    account: &Account,
) -> Result<(), Error> {
    let part = tx.savepoint(|tx| {
        tx.insert(table, account.clone())?;
        Err::<(), _>(Error::KeyChanged)
    });
    assert_eq!(part, Err(Error::KeyChanged));
    Ok(())
}

#[test]
fn absence_is_acknowledged_when_the_removal_is_durable() {
    removals_that_are_not_durable::<Silo>();
    removals_that_are_not_durable::<TicToc>();
    removals_that_are_not_durable::<NoWait>();
    removals_that_are_not_durable::<Hekaton>();
    removals_that_are_not_durable::<MvRlu>();
}

/// A transaction that writes only to tables in memory depends only on what it has read, even by way of such tables.
fn memory_beside_a_failed_log<S: Scheme>() {
    let disk = Simulated::new();
    let mut opening = Database::<S>::open(HERE).disk(Arc::new(disk.clone())).in_order(300);
    let bank = Bank::declare(&mut opening);
    let db = opening.start().unwrap();
    let memory = db.table::<Account>();
    let account = |id, cents| Account { id, cents, moves: 0, note: String::new() };
    db.transact(|tx| [1, 3].into_iter().try_for_each(|id| tx.insert(&memory, account(id, 0)))).unwrap();
    disk.fail_next(Call::Sync, Fault::Io);
    let lost = db.transact(|tx| tx.upsert(&bank.accounts, account(9, 7)).map(drop));
    assert_eq!(lost, Err(Error::NotDurable));
    for cents in 0..3 {
        let told = db.transact(|tx| {
            let seen = tx.get(&memory, &1)?.map(|row| row.cents);
            tx.upsert(&memory, account(1, cents))?;
            Ok::<_, Error>(seen)
        });
        assert_eq!(told, Ok(Some((cents - 1).max(0))), "{}", S::NAME);
    }
    // The copy of a row that may be lost may be read only when the row is durable.
    let copy = db.transact(|tx| {
        let lost = tx.get(&bank.accounts, &9)?.map_or(0, |row| row.cents);
        tx.upsert(&memory, account(2, lost)).map(drop)
    });
    assert_eq!(copy, Err(Error::NotDurable), "{}", S::NAME);
    let read = |id| db.transact(|tx| Ok::<_, Error>(tx.get(&memory, &id)?.map(|row| row.cents)));
    assert_eq!((read(1), read(2)), (Ok(Some(2)), Err(Error::NotDurable)), "{}", S::NAME);
    assert_eq!(db.transact(|tx| tx.remove(&memory, &3).map(drop)), Ok(()), "{}", S::NAME);
    (0..5).for_each(|_| db.collect());
    assert_eq!(read(3), Ok(None), "{}, unlinked", S::NAME);
    // The same holds for a removal that such a row has caused, also after the removed record was unlinked.
    let told = db.transact(|tx| {
        let lost = tx.get(&bank.accounts, &9)?.map_or(0, |row| row.cents);
        if lost == 7 { tx.remove(&memory, &1).map(drop) } else { Ok(()) }
    });
    assert_eq!((told, read(1)), (Err(Error::NotDurable), Err(Error::NotDurable)), "{}", S::NAME);
    (0..5).for_each(|_| db.collect());
    assert_eq!(read(1), Err(Error::NotDurable), "{}, unlinked", S::NAME);
}

/// A removal from a table in memory by a transaction that also writes to the disk.
fn memory_of_a_lost_transaction<S: Scheme>() {
    let disk = Simulated::new();
    let mut opening = Database::<S>::open(HERE).disk(Arc::new(disk.clone())).in_order(300);
    let bank = Bank::declare(&mut opening);
    let db = opening.start().unwrap();
    let memory = db.table::<Account>();
    let account = |id| Account { id, cents: 0, moves: 0, note: String::new() };
    db.transact(|tx| tx.insert(&memory, account(1))).unwrap();
    disk.fail_next(Call::Sync, Fault::Io);
    let lost = db.transact(|tx| {
        tx.upsert(&bank.accounts, account(9))?;
        tx.remove(&memory, &1).map(drop)
    });
    let read = || db.transact(|tx| Ok::<_, Error>(tx.get(&memory, &1)?.map(|row| row.cents)));
    assert_eq!((lost, read()), (Err(Error::NotDurable), Err(Error::NotDurable)), "{}", S::NAME);
    (0..5).for_each(|_| db.collect());
    assert_eq!(read(), Err(Error::NotDurable), "{}, unlinked", S::NAME);
}

#[test]
fn memory_does_not_wait_for_the_log() {
    memory_beside_a_failed_log::<Silo>();
    memory_beside_a_failed_log::<TicToc>();
    memory_beside_a_failed_log::<NoWait>();
    memory_beside_a_failed_log::<Hekaton>();
    memory_beside_a_failed_log::<MvRlu>();
}

#[test]
fn memory_waits_for_what_it_tells_of_the_log() {
    memory_of_a_lost_transaction::<Silo>();
    memory_of_a_lost_transaction::<TicToc>();
    memory_of_a_lost_transaction::<NoWait>();
    memory_of_a_lost_transaction::<Hekaton>();
    memory_of_a_lost_transaction::<MvRlu>();
}

/// A row that can be saved only if its sum is zero.
#[derive(Clone)]
struct Balance {
    sum: i64,
}

impl Row for Balance {
    type Key = u64;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> u64 {
        0
    }
}

impl Persist for Balance {
    fn save(&self, to: &mut Vec<u8>) {
        assert_eq!(self.sum, 0, "planned");
        to.push(0);
    }
    fn load(_: &[u8]) -> Option<Self> {
        Some(Self { sum: 0 })
    }
}

/// A run whose reads are inconsistent is repeated, even if a row that it has computed cannot be saved.
#[test]
fn rows_of_inconsistent_runs_may_fail_to_be_saved() {
    let disk = Simulated::new();
    let mut opening = Database::<Silo>::open(HERE).disk(Arc::new(disk.clone())).in_order(300);
    let (bank, balances) = (Bank::declare(&mut opening), opening.table::<Balance>("balances"));
    let db = opening.start().unwrap();
    let account = |id, cents| Account { id, cents, moves: 0, note: String::new() };
    let set = |cents: i64| {
        db.transact(|tx| {
            tx.upsert(&bank.accounts, account(1, cents))?;
            tx.upsert(&bank.accounts, account(2, -cents)).map(drop)
        })
    };
    set(1).unwrap();
    let mut runs = 0;
    let told = db.transact(|tx| {
        runs += 1;
        let first = tx.get(&bank.accounts, &1)?.map_or(0, |row| row.cents);
        if runs == 1 {
            std::thread::scope(|scope| scope.spawn(|| set(5)).join().unwrap()).unwrap();
        }
        let second = tx.get(&bank.accounts, &2)?.map_or(0, |row| row.cents);
        tx.upsert(&balances, Balance { sum: first + second }).map(drop)
    });
    assert_eq!((told, runs), (Ok(()), 2));
    // The panic of a consistent run reaches the caller, and nothing is written.
    let unsound = || db.transact(|tx| tx.upsert(&balances, Balance { sum: 3 }).map(drop));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(unsound)).is_err());
    assert_eq!(db.snapshot().get(&balances, &0).map(|row| row.sum), Some(0));
}

/// A row that cannot be loaded if it is the twentieth.
#[derive(Clone)]
struct Unloadable(u64);

impl Row for Unloadable {
    type Key = u64;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.0
    }
}

impl Persist for Unloadable {
    fn save(&self, to: &mut Vec<u8>) {
        to.extend(self.0.to_le_bytes());
    }
    fn load(from: &[u8]) -> Option<Self> {
        let id = u64::from_le_bytes(from.try_into().ok()?);
        if id == 20 {
            std::panic::panic_any(7_u8)
        }
        Some(Self(id))
    }
}

/// The panic of a row reaches the caller of the opening, whichever thread has loaded the row.
#[test]
fn panics_of_loading_rows_are_handed_on() {
    let disk = Simulated::new();
    let mut opening = Database::<Silo>::open(HERE).disk(Arc::new(disk.clone())).in_order(1);
    let rows = opening.table::<Unloadable>("rows");
    let db = opening.start().unwrap();
    db.transact(|tx| (0..40).try_for_each(|id| tx.insert(&rows, Unloadable(id)))).unwrap();
    db.checkpoint().unwrap();
    drop((db, rows));
    for _ in 0..20 {
        let mut opening = Database::<Silo>::open(HERE).disk(Arc::new(disk.restarted())).in_order(1);
        let _rows = opening.table::<Unloadable>("rows");
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| opening.start().map(drop)));
        assert_eq!(told.unwrap_err().downcast_ref::<u8>(), Some(&7));
    }
}

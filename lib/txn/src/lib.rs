//! An in-memory database kernel: transactions over tables of plain Rust rows.
//!
//! A [`Database`] has [`Table`]s. A table's rows are values of a type that implements [`Row`]: any type that is
//! `Clone`, also with `String`s and `Vec`s in it. Rows are found by a primary key and by secondary [`Index`]es, which
//! may be unique. Each index is stored in the ordered map that its declaration names ([`on`]). A transaction may change
//! several tables. It takes effect at one moment or not at all.
//!
//! ```
//! use archipelago_txn::{Database, Error, Index, Row, on};
//!
//! #[derive(Clone)]
//! struct Account {
//!     number: u64,
//!     owner: String,
//!     cents: i64,
//! }
//!
//! impl Row for Account {
//!     type Key = u64;
//!     type Map = on::HydraList;
//!     type Indexes = (ByOwner,);
//!     fn key(&self) -> u64 {
//!         self.number
//!     }
//! }
//!
//! struct ByOwner;
//!
//! impl Index for ByOwner {
//!     type Row = Account;
//!     type Key = String;
//!     type Map = on::BLinkTree;
//!     fn key(row: &Account) -> String {
//!         row.owner.clone()
//!     }
//! }
//!
//! let db: Database = Database::new(); // by Silo
//! let accounts = db.table::<Account>();
//! db.transact(|tx| {
//!     tx.insert(&accounts, Account { number: 1, owner: "Ann".into(), cents: 500 })?;
//!     tx.insert(&accounts, Account { number: 2, owner: "Bob".into(), cents: 100 })
//! })?;
//!
//! // From any thread: read, decide, write. The closure runs again after a conflict.
//! db.transact(|tx| {
//!     let ann = tx.get_by::<ByOwner>(&accounts, &"Ann".to_string())?.expect("she has one");
//!     if ann.cents >= 200 {
//!         tx.update(&accounts, &ann.number, |row| row.cents -= 200)?;
//!         tx.update(&accounts, &2, |row| row.cents += 200)?;
//!     }
//!     Ok::<_, Error>(())
//! })?;
//!
//! // One moment, however long it is looked at.
//! let view = db.snapshot();
//! assert_eq!(view.range(&accounts, ..).map(|row| row.cents).sum::<i64>(), 600);
//! # Ok::<_, Error>(())
//! ```
//!
//! # Isolation
//!
//! | | [`Isolation::Serializable`] (default) | [`Isolation::Snapshot`] | [`Database::snapshot`] |
//! |---|---|---|---|
//! | dirty, torn and repeated reads | no | no | no |
//! | lost updates | no | no (the first to commit wins) | writes nothing |
//! | write skew | no | possible | writes nothing |
//! | phantoms: rows that appear at absent keys or in ranges that were read | no | possible, like write skew | no |
//! | may be retried | yes | if other transactions have written the same rows | never |
//! | makes others retry | yes | transactions that write, or have read, rows that it writes | never |
//!
//! Serializability is strict, except with [`TicToc`]: if a transaction begins after another one has ended, it follows
//! the other one in the serialization order. Transactions of both isolations may run concurrently. In this case, only
//! the serializable transactions are serializable with respect to each other.
//!
//! With the multi-version schemes [`MvRlu`] and [`Hekaton`], each transaction reads the rows as they were when it
//! began. So a transaction that writes nothing is serializable with either isolation, and is never retried.
//!
//! # Closures
//! The closure of [`transact`](Database::transact) may run several times. A run that will be repeated may see
//! inconsistent rows. The result, error or panic of a run is used only if the rows that it read are consistent. The
//! closure must have no effects outside the tables, and must not loop forever on inconsistent rows. An error or a panic
//! of the closure rolls back all its changes, indexes included.
//!
//! # Schemes
//!
//! | | reads | writers wait | suited for |
//! |---|---|---|---|
//! | [`Silo`] | write nothing; validated | for commits that are being installed | most workloads |
//! | [`TicToc`] | write a stamp per row at the commit; rows may have been replaced before the commit | as with `Silo` | rows that some transactions read and others write all the time |
//! | [`NoWait`] | lock each row until the end | for no lock: they retry when the lock is free | many conflicts, short transactions |
//! | [`WaitDie`] | as with `NoWait` | for locks of younger transactions; a lock of an older one makes them retry | rows that many write; long transactions beside short ones |
//! | [`Hekaton`] | as of the transaction's begin; validated if it writes; wait for commits that are being installed | never: the second transaction that writes a row retries | long reads beside writers |
//! | [`MvRlu`] | as with `Hekaton`, but wait only for a commit that writes to the log, or that readers have made draw its stamp anew several times | as with `Hekaton` | as with `Hekaton` |
//!
//! With optimistic schemes (all except `NoWait` and `WaitDie`), a long transaction may be retried forever if short ones
//! write the rows that it reads. (With `Hekaton` and `MvRlu` this holds only if the long transaction also writes.) A
//! [`Snapshot`] avoids this. With [`WaitDie`] a retried transaction keeps its age, so it gets its rows' locks in the
//! end. With all schemes the commit validates gaps (absent keys and ranges) if the transaction is serializable (with
//! `Hekaton` and `MvRlu`, also only if it writes). So such a transaction may be retried as long as others insert into
//! its gaps. With locking schemes, if a closure blocks, all transactions that need its rows wait or retry. If the
//! closure waits for another transaction, it may wait forever.
//!
//! # Costs
//! A look-up costs one look-up in the map, and an entry in the transaction's list of reads. A write costs a clone of
//! the row and an allocation; an insert or a removal also costs a record for each index. With locking schemes, a
//! transaction writes the record of each row that it accesses twice, even if it only reads the row. A commit latches
//! (briefly locks) the written rows and validates the read ones in O(rows read and written), and scans the read ranges
//! again.
//!
//! Commits of different rows write no common cache line, with these exceptions. `TicToc` stamps indexes in which keys
//! were absent. `WaitDie` numbers transactions. Commits that replace rows while snapshots are open share a lock.
//! `Hekaton` and `MvRlu` increment a counter that all transactions read when they begin. With [`Database::with_clock`],
//! which is for machines with many cores, they read the processors' clocks instead. `Hekaton` and `MvRlu` also visit
//! each replaced row once more after a grace period, to free its old versions. The end of a snapshot visits each row of
//! which the snapshot kept a version. If the next snapshot needs the version, it keeps the row instead, so to end n
//! snapshots of the same replaced rows, the oldest first, visits these rows n times.
//!
//! # Memory
//! A replaced version is freed when all transactions have ended that were running when it was replaced. So one long
//! transaction delays all reclamation. Each open snapshot keeps at most one version of each row (and index entry) that
//! is replaced or removed while it is open. These versions are freed when the snapshot ends. [`Database::stats`] counts
//! the memory that waits to be freed. [`Database::limited`] sets a limit on the memory of rows and of all these
//! versions.
//!
//! Threads free replaced rows in batches: while none of its transactions has begun long ago, a thread delays about
//! 64 KiB. Rows that own memory on the heap (strings, vectors) count with this memory if they implement
//! [`Row::heap_bytes`]. Without it, a thread delays hundreds of rows, however much they own. Only transactions that write
//! free rows: after the last of them, the rest waits for [`Database::collect`].
//!
//! Rows' destructors run in any thread that uses the database. Their panics are reported by the panic hook, and not
//! propagated. Destructors may use the database, since their thread is in no transaction and has no lock of a row.
//! There are two exceptions, which run within a transaction: destructors of rows that the closure or a failed step
//! drops, and destructors that the closure causes by a call of [`Database::collect`] or by the end of a snapshot.
//!
//! # Durability
//! `Database::open` (feature `durable`) makes a database in a directory. After a crash of the process or
//! the machine, opening the directory recovers its tables, with all acknowledged transactions, and with every other
//! transaction as a whole or not at all.
//!
//! | | the process ends (`kill -9`) | the power fails | a write or sync fails |
//! |---|---|---|---|
//! | `Acknowledge::Durable` (default) | nothing is lost | nothing is lost | nothing that was acknowledged is lost, nothing more is acknowledged |
//! | `Acknowledge::Committed` | the last transactions may be lost | the last transactions may be lost | as above; `Database::flush` returns the failure |
//!
//! Lost transactions are the last ones in the order of serialization: no transaction is recovered without the
//! transactions whose writes it has read. Threads that commit at the same time share a sync. `Database::checkpoint`
//! writes all rows while transactions run, and shortens the log.
//!
//! # When not to use it
//! - Single keys, no transactions: the maps alone, `archipelago::index`.
//! - A few objects without indexes: MV-RLU, `archipelago::sync::mvrlu`.
//! - Data beyond memory, SQL, many processes.
//!
//! # Inside
//! ```text
//! tx, snapshot      the interfaces            table     rows and indexes, their types
//! sight             look-ups and ranges of both             tree      an index: keys to records; absence
//! work, writes      what a transaction did; the commit      record    records and versions
//! scheme/, locks/   how reads are validated; locks' words   epochs    the clock of snapshots, what readers need
//! announced         running commits, for the log            kept      replaced versions that are needed
//! words/            the words in which transactions meet    memory    the limit
//! ```
//! The correctness arguments are in `tree.rs` (absence), `epochs.rs` (snapshots), `work.rs` (commits), and each scheme.

// Loom checks only the modules that depend on no index, since the maps do not build with loom's types.
#![cfg_attr(loom, allow(dead_code, reason = "most callers are not built"))]

#[cfg(any(test, not(loom)))]
mod announced;
#[cfg(not(loom))]
mod codec;
#[cfg(not(loom))]
mod database;
#[cfg(all(feature = "durable", not(any(archipelago_sim, loom))))]
mod durable;
#[cfg(not(any(all(feature = "durable", not(archipelago_sim)), loom)))]
#[path = "volatile.rs"]
mod durable;
#[cfg(any(test, not(loom)))]
mod epochs;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod gap;
#[cfg(not(loom))]
mod kept;
#[cfg(any(test, not(loom)))]
mod locks;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
mod scheme;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod sight;
#[cfg(not(loom))]
mod snapshot;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod tree;
#[cfg(not(loom))]
mod tx;
#[cfg(any(test, not(loom)))]
mod words;
#[cfg(not(loom))]
mod work;
#[cfg(not(loom))]
mod writes;

/// The maps that an index may use. The guide of `archipelago::index` compares them.
#[cfg(not(loom))]
pub mod on {
    pub use archipelago_index::art::Radix as Art;
    pub use archipelago_index::blink::BLink as BLinkTree;
    pub use archipelago_index::euno::{Skip as EunoSkipList, Tree as EunoBTree};
    pub use archipelago_index::hydra::Hydra as HydraList;
    pub use archipelago_index::map::Kind;
}

#[cfg(not(loom))]
pub use archipelago_sync::clock::ClockKind;
#[cfg(not(loom))]
pub use database::{Database, Isolation, Stats};
#[cfg(all(feature = "durable", not(any(archipelago_sim, loom))))]
pub use durable::{Acknowledge, Failure, Opening, Persist, Recovered};
#[cfg(not(loom))]
pub use error::Error;
#[cfg(not(loom))]
pub use scheme::{Hekaton, MvRlu, NoWait, Scheme, Silo, TicToc, WaitDie};
#[cfg(not(loom))]
pub use snapshot::{Snapshot, SnapshotRows};
#[cfg(not(loom))]
pub use table::{Index, Indexes, Row, Table};
#[cfg(not(loom))]
pub use tx::{Rows, Tx};

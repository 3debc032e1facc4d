//! An in-memory database kernel: transactions over tables of plain Rust rows.
//!
//! A [`Database`] has [`Table`]s. A table's rows are values of a type that is [`Row`]: anything that is `Clone`, with `String`s
//! and `Vec`s in it. Rows are found by a primary key and by secondary [`Index`]es, unique or not, each on the ordered map that
//! its declaration names ([`on`]). Threads change several tables in one transaction, which takes effect at one moment or not at
//! all.
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
//! // From any thread: read, decide, write. It runs again if another was in the way.
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
//! | phantoms: keys that were absent, ranges | no | as write skew | no |
//! | may begin anew | yes | if others have written the same rows | never |
//! | makes others begin anew | yes | those that write, or have read, what it writes | never |
//!
//! The order is that of time, too (a transaction that begins after another has ended comes after it), but for [`TicToc`].
//! Transactions of both kinds may run side by side; what serializable ones promise holds among themselves.
//!
//! With [`MvRlu`] and [`Hekaton`] each transaction reads the moment at which it began. One that writes nothing is serializable by
//! that, with either isolation, and never begins anew.
//!
//! # Closures
//! The closure of [`transact`](Database::transact) may run several times, and may see rows that do not go together before it is run again. Its results count only if what it has read goes together, also an error and a
//! panic. It must have no other effects, and not loop for ever over rows that do not go together. Errors of its own roll
//! everything back, indexes included; so do panics.
//!
//! # Schemes
//!
//! | | reads | writers wait | take it for |
//! |---|---|---|---|
//! | [`Silo`] | write nothing; validated | for commits that are being installed | most things |
//! | [`TicToc`] | a stamp per row at the commit; may be older than the commit | likewise | rows that are read by some and written by others all the time |
//! | [`NoWait`] | lock each row until the end | for no lock: they begin anew when it is free | many conflicts, short transactions |
//! | [`WaitDie`] | likewise | for locks of younger transactions; older ones make them begin anew | rows that many write; long transactions beside short ones |
//! | [`Hekaton`] | of the moment at which the transaction began; validated if it writes; wait for commits that are being installed | never: the second to write a row begins anew | long reads beside writers |
//! | [`MvRlu`] | likewise, but wait for nothing in a database in memory | likewise | likewise |
//!
//! With optimistic schemes a long transaction beside short ones that write what it reads may begin anew without end: read from
//! a [`Snapshot`]. With [`WaitDie`] a transaction that begins anew keeps its age, and its rows are its own in the end; with all schemes
//! what it has found absent (keys, ranges) is looked at again at the commit, and others may fill that again and again. With locking
//! schemes a closure that waits holds up all that come to its rows, and one that waits for another transaction may do so for ever.
//!
//! # Costs
//! A look-up costs one of the map's, and an entry in a list. A write costs a clone of the row and an allocation; an insert or a
//! removal a record for each index. With locking schemes a look at a row writes its record twice, also to read it. A commit latches and validates: O(rows read and written), and goes through the ranges again
//! that were read. Commits of different rows share no line that they write, except that `TicToc` stamps indexes in which keys were absent, `WaitDie` numbers transactions, and those that replace rows beside open
//! snapshots share a lock. `Hekaton` and `MvRlu` add one to a counter that all transactions read when they begin (on many cores
//! [`Database::with_clock`] has them read the processors' clocks), and look at each replaced row once more after a grace period.
//!
//! # Memory
//! What is replaced is freed when the transactions have ended that were there: a transaction that stays holds back all. An open
//! snapshot keeps one version of each row (and index entry) that is replaced or removed after it, and several open ones at most
//! one each; when it ends, it frees them. [`Database::stats`] shows what waits. Rows' destructors run in any thread that uses
//! the database; their panics are reported by the panic hook and go no further. [`Database::limited`] sets a limit to all of it.
//!
//! # Durability
//! `Database::open` (feature `durable`, on by default) makes a database in a directory: its tables are there again after the process
//! or the machine has ended, with all transactions that were acknowledged and none of the others in part.
//!
//! | | the process ends (`kill -9`) | the power fails | a write or sync fails |
//! |---|---|---|---|
//! | `Acknowledge::Durable` (default) | nothing is lost | nothing is lost | nothing that was acknowledged is lost, nothing more is acknowledged |
//! | `Acknowledge::Committed` | the last transactions | the last transactions | likewise, and `Database::flush` says so |
//!
//! What is lost is the end of the order of serialization: no transaction is there without those from which it has read. Threads that
//! commit at the same time share a sync. `Database::checkpoint` writes all rows beside transactions, and shortens the log.
//!
//! # When not to use it
//! - Single keys, no transactions: the maps alone, `archipelago::index`.
//! - A few objects without indexes: MV-RLU, `archipelago::sync::mvrlu`.
//! - Data beyond memory, SQL, many processes.
//!
//! # Inside
//! ```text
//! tx, snapshot      the faces                 table     rows and indexes, their types
//! sight             look-ups and ranges of both             tree      an index: keys to records; absence
//! work, writes      what a transaction did; the commit      record    records and versions
//! scheme/, locks/   how reads are judged; locks' words      epochs    the clock of snapshots, what readers need
//! memory            the limit
//! ```
//! Why it is right: `tree.rs` (absence), `epochs.rs` (snapshots), `work.rs` (commits), and each scheme.

// Loom knows the words of locks alone: the maps have no model.
#[cfg(not(loom))]
mod codec;
#[cfg(not(loom))]
mod database;
#[cfg(all(feature = "durable", not(any(archipelago_sim, loom))))]
mod durable;
#[cfg(not(any(all(feature = "durable", not(archipelago_sim)), loom)))]
#[path = "volatile.rs"]
mod durable;
#[cfg(not(loom))]
mod epochs;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod gap;
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
#[cfg(not(loom))]
mod work;
#[cfg(not(loom))]
mod writes;

/// The maps that an index may be on. What each is good for: `archipelago::index`'s guide.
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

//! The database: tables, and how transactions run.

use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};

use archipelago_platform::sync::Arc;
use archipelago_platform::{hint, thread};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::clock::ClockKind;

use crate::error::Error;
use crate::scheme::{Scheme, Silo, linger};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::table::{Row, Table};
use crate::tx::Tx;
use crate::work::Work;

/// What transactions may notice of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Nothing: it is as if they ran one after another. Keys that were absent and ranges are included.
    #[default]
    Serializable,
    /// Each reads all tables as they were when it began, and commits if no other has written the same rows since. Two that
    /// read what the other writes may both commit (*write skew*).
    Snapshot,
}

/// An in-memory database: tables, and transactions over them by the scheme `S`. Its own threads: none.
pub struct Database<S: Scheme = Silo> {
    pub(crate) shared: Arc<Shared<S>>,
}

impl<S: Scheme> Drop for Database<S> {
    /// Makes what was committed durable, if there is a log; tells no errors. See `Database::close`.
    fn drop(&mut self) {
        if let Some(log) = self.shared.log() {
            log.end(&self.shared);
        }
    }
}

impl<S: Scheme> core::fmt::Debug for Database<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Database").field("scheme", &S::NAME).finish_non_exhaustive()
    }
}

impl<S: Scheme> Default for Database<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// How an attempt ended.
enum End<T, E> {
    Done(Result<T, E>),
    Conflict,
    /// With an error, after it found no room.
    Full(E),
}

impl<S: Scheme> Database<S> {
    /// An empty database.
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared::new()) }
    }

    /// Makes an empty database with a limit of memory in bytes. The limit counts rows, what [`Row::heap_bytes`] says that they own, the
    /// records of their keys and index entries, and the old versions and removed rows that wait for readers or snapshots. It does not count
    /// what keys own, nor the maps (about 16 to 60 bytes a key, see `archipelago::index`). Each thread tells in steps
    /// of a thousandth of the limit, 64 KiB at most.
    ///
    /// When they take as much, inserts and updates fail with [`Error::Full`]; reads, removals (which take the memory of a row until
    /// it is freed) and commits of what was written go on. [`transact`](Self::transact) frees what it can, and runs the closure a second
    /// time, before it says so. Leave room for as much again as is live: what is replaced waits for the transactions beside.
    ///
    /// ```
    /// # use archipelago_txn::{Database, Error, Row, on};
    /// # #[derive(Clone)]
    /// # struct Seat(u32);
    /// # impl Row for Seat {
    /// #     type Key = u32;
    /// #     type Map = on::HydraList;
    /// #     type Indexes = ();
    /// #     fn key(&self) -> u32 { self.0 }
    /// # }
    /// let db: Database = Database::limited(100_000);
    /// let seats = db.table::<Seat>();
    /// let full = (0..).find_map(|number| db.transact(|tx| tx.insert(&seats, Seat(number))).err());
    /// assert_eq!(full, Some(Error::Full));
    /// assert!(db.snapshot().get(&seats, &0).is_some());
    /// ```
    pub fn limited(bytes: usize) -> Self {
        let db = Self::new();
        db.shared.home().memory.set_limit(bytes);
        db
    }

    /// Orders commits, transactions and snapshots by another clock, for [`MvRlu`](crate::MvRlu) and
    /// [`Hekaton`](crate::Hekaton). With [`ClockKind::Logical`], which it is otherwise, each transaction loads one word of the
    /// database, and each that has written adds one to it: on many cores they wait for its cache line. With
    /// [`ClockKind::Hardware`] they read the processors' clocks, and a commit waits for twice what these differ by: nothing or
    /// some tens of nanoseconds on one socket. Where the machine has no clock that could be used, and by the other schemes, whose commits
    /// share no word, the kind is taken as logical.
    ///
    /// A machine that runs the process may not change under it: see [`archipelago_platform::clock`].
    ///
    /// ```
    /// use archipelago_txn::{ClockKind, Database, MvRlu};
    /// let db = Database::<MvRlu>::new().with_clock(ClockKind::Hardware);
    /// println!("ordered by a clock of the kind {:?}", db.clock());
    /// ```
    ///
    /// # Panics
    /// If the database has a table, or was opened: epochs of a log are counted from one life of the database to the next.
    #[must_use]
    pub fn with_clock(mut self, kind: ClockKind) -> Self {
        let shared = Arc::get_mut(&mut self.shared).filter(|shared| shared.log().is_none());
        let epochs = shared.expect("the clock is chosen first, and not of a database that was opened").epochs_mut();
        if S::VERSIONS {
            epochs.set_clock(kind);
        }
        self
    }

    /// What orders commits, transactions and snapshots.
    pub fn clock(&self) -> ClockKind {
        self.shared.epochs().clock()
    }

    /// Makes an empty table, of the database as long as that is there. Two calls make two tables. It is in memory only, also in
    /// a database on a disk, whose other tables are declared when it is opened.
    pub fn table<R: Row>(&self) -> Table<R, S> {
        Table::new(&self.shared, None)
    }

    /// Runs a serializable transaction: `body` until it has been committed, or failed with an error of its own.
    ///
    /// `body` may run several times, and has no other effects than those on the tables that are taken back: let it compute a
    /// result, and act on that afterwards. It should be short: what is replaced meanwhile is freed after it.
    ///
    /// While `body` runs it may see rows that do not go together, since other transactions commit (not with the locking
    /// schemes). It is run again then, whatever it returned, also if it panicked; only a loop without end is its own to avoid.
    ///
    /// # Errors
    /// With what `body` returned, if what it had read goes together. Nothing it wrote is left then.
    ///
    /// # Panics
    /// With what `body` panicked with, likewise; and if this thread is in a transaction of the same database.
    pub fn transact<T, E: From<Error>>(&self, body: impl FnMut(&mut Tx<'_, S>) -> Result<T, E>) -> Result<T, E> {
        self.transact_at(Isolation::Serializable, body)
    }

    /// Runs a transaction with this isolation; otherwise as [`transact`](Self::transact).
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    ///
    /// # Panics
    /// As [`transact`](Self::transact).
    pub fn transact_at<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&mut Tx<'_, S>) -> Result<T, E>,
    ) -> Result<T, E> {
        // Kept over all attempts: with it the transaction becomes the oldest in time.
        let arrival = self.shared.arrive();
        let mut pause = Pause::new();
        let mut turn = None;
        let mut freed = false;
        loop {
            match self.attempt(isolation, arrival, &mut body) {
                End::Done(result) => return result,
                End::Conflict => pause.wait(),
                // Once: one that needs more than there is would begin anew for ever.
                End::Full(error) if freed || !self.make_room() => return Err(error),
                End::Full(_) => freed = true,
            }
            // Two that own what the other one wants may meet again and again.
            if !S::AGES && turn.is_none() && pause.has_been_often() {
                turn = self.shared.take_turn();
            }
        }
    }

    /// Runs a serializable transaction once.
    ///
    /// # Errors
    /// [`Error::Conflict`], turned into an `E`, if another transaction was in the way; otherwise as
    /// [`transact`](Self::transact).
    ///
    /// # Panics
    /// As [`transact`](Self::transact).
    pub fn try_transact<T, E: From<Error>>(&self, body: impl FnOnce(&mut Tx<'_, S>) -> Result<T, E>) -> Result<T, E> {
        match self.attempt(Isolation::Serializable, self.shared.arrive(), body) {
            End::Done(result) => result,
            End::Conflict => Err(Error::Conflict.into()),
            End::Full(error) => Err(error),
        }
    }

    /// Frees what can be freed now, or in a moment; returns whether there is room.
    fn make_room(&self) -> bool {
        linger(|| {
            self.collect();
            !self.shared.home().memory.is_full()
        })
    }

    /// All tables as they are now, with all that was committed before the call and nothing that is begun after it. While it is
    /// open, each row that is replaced or removed keeps one version for it.
    pub fn snapshot(&self) -> Snapshot<'_, S> {
        Snapshot::open(&self.shared)
    }

    /// Frees what was replaced and removed as far as no transaction is open that may see it. Never needed: transactions do it
    /// in passing.
    pub fn collect(&self) {
        self.shared.home().domain.collect();
    }

    /// What waits to be freed, and snapshots that are open.
    pub fn stats(&self) -> Stats {
        let garbage = self.shared.home().domain.stats();
        Stats {
            garbage: garbage.pending,
            garbage_bytes: garbage.pending_bytes,
            snapshots: self.shared.epochs().count(),
            counted_bytes: self.shared.home().memory.used(),
        }
    }

    /// Waits until an epoch is durable, if that is what was asked for.
    fn acknowledge(&self, epoch: u64) -> Result<(), Error> {
        self.shared.log().map_or(Ok(()), |log| log.acknowledge(&self.shared, epoch))
    }

    fn attempt<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        arrival: u64,
        body: impl FnOnce(&mut Tx<'_, S>) -> Result<T, E>,
    ) -> End<T, E> {
        let _inside = self.shared.step_inside();
        let mut tx = Tx { work: Work::begin(&self.shared, isolation == Isolation::Snapshot, arrival) };
        let ended = catch_unwind(AssertUnwindSafe(|| body(&mut tx)));
        match ended {
            Ok(Ok(value)) => match tx.work.commit().and_then(|epoch| self.acknowledge(epoch)) {
                Ok(()) => End::Done(Ok(value)),
                Err(Error::Conflict) => End::Conflict,
                Err(error) => End::Done(Err(error.into())),
            },
            Ok(Err(error)) if tx.work.is_sound() && tx.work.was_full() => End::Full(error),
            Ok(Err(error)) if tx.work.is_sound() => End::Done(Err(error)),
            Err(panic) if tx.work.is_sound() => {
                drop(tx);
                resume_unwind(panic)
            }
            Ok(Err(_)) | Err(_) => End::Conflict,
        }
    }
}

/// What a [`Database`] holds beside its rows; exact only while no thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Versions, records and removals that wait until transactions have ended that may see them.
    pub garbage: usize,
    /// Their memory in bytes, without what rows own.
    pub garbage_bytes: usize,
    /// Snapshots that are open, those of transactions included.
    pub snapshots: usize,
    /// Of a database with a limit, the bytes that count.
    pub counted_bytes: Option<usize>,
}

/// The longest pause before an attempt, as a power of two of pauses.
const LONGEST: u32 = 12;

/// From so many attempts on a transaction goes on when no other one is that has made so many.
const OFTEN: u32 = 8;

/// Pauses between attempts: random, twice as long at most each time, and bounded.
struct Pause {
    step: u32,
    random: u64,
}

impl Pause {
    fn new() -> Self {
        // Threads differ; that is all that is asked of it.
        Self { step: 0, random: (thread::slot().index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// Returns whether the attempts were many.
    fn has_been_often(&self) -> bool {
        self.step >= OFTEN
    }

    fn wait(&mut self) {
        self.step = (self.step + 1).min(LONGEST);
        // xorshift
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        hint::pause((self.random >> 32) as u32 % (1 << self.step));
        // One turn of a wait loop: a simulated thread goes on when something changes that the attempt has looked at.
        Backoff::new().wait();
        if self.step > 3 {
            thread::yield_now();
        }
    }
}

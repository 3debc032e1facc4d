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

/// How far transactions are isolated from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Transactions have the effect of a serial execution. This includes absent keys and ranges.
    #[default]
    Serializable,
    /// Each transaction reads all tables as they were when it began, and commits if no other transaction has written
    /// the same rows since. Two transactions may both commit although each has read what the other writes (*write
    /// skew*).
    Snapshot,
}

/// An in-memory database: tables, and transactions over them by the scheme `S`. A database in memory has no threads of
/// its own.
pub struct Database<S: Scheme = Silo> {
    pub(crate) shared: Arc<Shared<S>>,
}

impl<S: Scheme> Drop for Database<S> {
    /// Makes all commits durable, if the database has a log. Errors are not reported; `Database::close` reports them.
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

/// How an attempt at a transaction ended.
enum End<T, E> {
    Done(Result<T, E>),
    Conflict,
    /// The closure returned an error after a step had met the limit on memory.
    Full(E),
}

impl<S: Scheme> Database<S> {
    /// Makes an empty database.
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared::new()) }
    }

    /// Makes an empty database with a limit of memory in bytes. The limit counts rows, the memory that they own
    /// according to [`Row::heap_bytes`], the records of keys and index entries, and old versions and removed rows that
    /// are kept for readers or snapshots. The limit counts neither the memory that keys own nor the maps (about 16 to
    /// 60 bytes a key, see `archipelago::index`). Each thread adds to the count in steps of a thousandth of the limit,
    /// 64 KiB at most.
    ///
    /// When the limit is reached, inserts and updates fail with [`Error::Full`]. Reads, removals (which need memory
    /// until the row is freed) and commits still succeed. Before [`transact`](Self::transact) returns this error, it
    /// frees memory if possible. If the used memory is then below the limit, `transact` runs the closure once more. Set
    /// the limit to twice the live memory: replaced versions stay until concurrent transactions have ended.
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
    /// [`Hekaton`](crate::Hekaton). With the default, [`ClockKind::Logical`], each transaction loads one word of the
    /// database, and each transaction that writes increments the word. So on many cores transactions wait for the
    /// word's cache line. With [`ClockKind::Hardware`] transactions read the processors' clocks, and a commit waits for
    /// twice the clocks' greatest difference: zero to some tens of nanoseconds on one socket. The clock stays logical
    /// if the machine has no usable clock, and with the other schemes, whose commits share no word.
    ///
    /// The process must not be moved to another machine while it runs: see [`archipelago_platform::clock`].
    ///
    /// ```
    /// use archipelago_txn::{ClockKind, Database, MvRlu};
    /// let db = Database::<MvRlu>::new().with_clock(ClockKind::Hardware);
    /// println!("ordered by a clock of the kind {:?}", db.clock());
    /// ```
    ///
    /// # Panics
    /// If the database has a table, or was opened from a disk: the epochs of a log continue from one opening to the
    /// next, so they cannot come from another clock.
    #[must_use]
    pub fn with_clock(mut self, kind: ClockKind) -> Self {
        let shared = Arc::get_mut(&mut self.shared).filter(|shared| shared.log().is_none() && !shared.has_tables());
        let epochs = shared.expect("the clock is chosen first, and not of a database that was opened").epochs_mut();
        if S::VERSIONS {
            epochs.set_clock(kind);
        }
        self
    }

    /// Returns the kind of clock that orders commits, transactions and snapshots.
    pub fn clock(&self) -> ClockKind {
        self.shared.epochs().clock()
    }

    /// Makes an empty table, which lives as long as the database. Two calls make two tables. The table is in memory
    /// only, also in a database on a disk: tables on the disk are declared when the database is opened.
    pub fn table<R: Row>(&self) -> Table<R, S> {
        Table::new(&self.shared, None)
    }

    /// Runs a serializable transaction: repeats `body` until it commits or returns an error of its own.
    ///
    /// `body` may run several times. Only its effects on tables are rolled back, so it should have no other effects:
    /// let it compute a result, and act on the result afterwards. `body` should be short, since versions that are
    /// replaced while it runs are freed only after it has ended.
    ///
    /// While `body` runs, it may see inconsistent rows, since other transactions commit. (With the locking schemes,
    /// rows that `body` has seen do not change, but rows may appear where `body` has found none.) A run that saw
    /// inconsistent rows is repeated, whether it returned or panicked. But `body` must not loop forever on inconsistent
    /// rows.
    ///
    /// `body` may run a transaction of another database. Its commit remains if `body` is repeated. With schemes that
    /// lock or own rows before the commit (all but Silo and TicToc), threads that nest two databases in opposite orders
    /// may wait for each other forever.
    ///
    /// # Errors
    /// If `body` returns an error, and the rows that it read are consistent. Nothing that `body` wrote remains. In a
    /// database on a disk also [`Error::Refused`], [`Error::TooLarge`] and [`Error::NotDurable`], if the log cannot
    /// take the commit or make it durable.
    ///
    /// # Panics
    /// If `body` panics, and the rows that it read are consistent. If this thread is already in a transaction of the
    /// same database.
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
        // The arrival number stays the same over all attempts, so that the transaction at last becomes the oldest.
        let arrival = self.shared.arrive();
        let mut pause = Pause::new();
        let mut turn = None;
        let mut freed = false;
        loop {
            match self.attempt(isolation, arrival, &mut body) {
                End::Done(result) => return result,
                End::Conflict => pause.wait(),
                // Memory is freed for only one retry: a transaction that needs more than the limit would retry forever.
                End::Full(error) if freed || !self.make_room() => return Err(error),
                End::Full(_) => freed = true,
            }
            // Two transactions that each own a record that the other one wants may conflict again and again. So a
            // transaction that has been retried often tries to get the turn, which one transaction at a time has.
            if !S::AGES && turn.is_none() && pause.has_been_often() {
                turn = self.shared.take_turn();
            }
        }
    }

    /// Runs a serializable transaction once.
    ///
    /// # Errors
    /// [`Error::Conflict`], turned into an `E`, if it conflicted with another transaction;
    /// otherwise as [`transact`](Self::transact).
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

    /// Frees the garbage that can be freed at once or after a short wait. Returns whether the used memory is then below
    /// the limit.
    fn make_room(&self) -> bool {
        linger(|| {
            self.collect();
            !self.shared.home().memory.is_full()
        })
    }

    /// Opens a snapshot: all tables as they are now. It contains all commits before the call, and no transaction that
    /// begins after it. While the snapshot is open, each row that is replaced or removed keeps one version for it. In a
    /// database on a disk, the snapshot may contain commits that are not durable yet. A later call of `flush` makes
    /// them durable.
    pub fn snapshot(&self) -> Snapshot<'_, S> {
        Snapshot::open(&self.shared)
    }

    /// Frees replaced versions and removed rows that no open transaction may see. Transactions that write do this, too,
    /// so a call is needed only if no thread writes any more, and the last garbage is to be freed.
    pub fn collect(&self) {
        self.shared.home().domain.collect();
    }

    /// Returns how much garbage waits to be freed, and how many snapshots are open.
    pub fn stats(&self) -> Stats {
        let garbage = self.shared.home().domain.stats();
        Stats {
            garbage: garbage.pending,
            garbage_bytes: garbage.pending_bytes,
            snapshots: self.shared.epochs().count(),
            counted_bytes: self.shared.home().memory.used(),
        }
    }

    /// Waits until an epoch is durable, if the database acknowledges only durable commits.
    fn acknowledge(&self, epoch: u64) -> Result<(), Error> {
        self.shared.log().map_or(Ok(()), |log| log.acknowledge(&self.shared, epoch))
    }

    fn attempt<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        arrival: u64,
        body: impl FnOnce(&mut Tx<'_, S>) -> Result<T, E>,
    ) -> End<T, E> {
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

/// The garbage of a [`Database`] (memory that waits to be freed), its open snapshots, and its counted memory. The
/// numbers are exact only while no thread uses the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Versions, records and removals that are kept until the transactions that may see them have ended.
    pub garbage: usize,
    /// The garbage's memory in bytes, without the memory that rows own.
    pub garbage_bytes: usize,
    /// Snapshots that are open. In single-version schemes, transactions with [`Isolation::Snapshot`] count, too.
    pub snapshots: usize,
    /// The bytes that count towards the limit, if the database has one.
    pub counted_bytes: Option<usize>,
}

/// The longest pause before an attempt is 2 to the power of this number, in pause instructions.
const LONGEST: u32 = 12;

/// A transaction that has made this many attempts tries to get the *turn*, which one transaction at a time has. Before
/// each further attempt it waits for the turn, for a bounded time.
const OFTEN: u32 = 8;

/// Pauses between attempts. The length of a pause is random, below a bound that doubles with each attempt, up to a
/// limit.
struct Pause {
    step: u32,
    random: u64,
}

impl Pause {
    fn new() -> Self {
        // The seed only has to differ between threads.
        Self { step: 0, random: (thread::slot().index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// Returns whether there have been many attempts.
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
        // One turn of a wait loop: in a simulation, the thread continues when a word that the attempt has read changes.
        Backoff::new().wait();
        if self.step > 3 {
            thread::yield_now();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Hekaton, MvRlu, on};

    #[derive(Clone)]
    struct Cell(u64);

    impl Row for Cell {
        type Key = u64;
        type Map = on::Art;
        type Indexes = ();
        fn key(&self) -> u64 {
            0
        }
    }

    /// A transaction that has lost often has the turn until it has ended, and no other transaction gets the turn.
    fn losers_take_the_turn<S: Scheme>() {
        let db = Database::<S>::new();
        let table = db.table::<Cell>();
        let add = |tx: &mut Tx<'_, S>| tx.update(&table, &0, |cell| cell.0 += 1).map(drop);
        let is_free = || db.shared.take_turn().is_some();
        db.transact(|tx| tx.insert(&table, Cell(0))).expect("the table is empty");
        let mut attempts = 0;
        db.transact(|tx| {
            attempts += 1;
            let often = attempts > OFTEN;
            assert_eq!(is_free(), !often, "{}: attempt {attempts}", S::NAME);
            if often {
                return add(tx);
            }
            // The transaction reads the moment at which it began, and the row changes afterwards.
            thread::scope(|s| s.spawn(|| db.transact(add)).join()).expect("no panic")?;
            add(tx)?;
            unreachable!("{}: the row has changed", S::NAME)
        })
        .expect("only conflicts are in the way");
        assert_eq!(attempts, OFTEN + 1);
        assert!(is_free());
    }

    #[test]
    fn losers_take_turns() {
        losers_take_the_turn::<MvRlu>();
        losers_take_the_turn::<Hekaton>();
    }
}

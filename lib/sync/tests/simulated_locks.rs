//! Every lock in the simulator: mutual exclusion and progress under schedules that do not occur naturally, with holders
//! and waiters that stall. If a thread waits for ever, the run ends as deadlocked or stalled, and the test fails.
#![cfg(archipelago_sim)]

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::hint;
use archipelago_sim::{Client, Config, Fault, Machine, Outcome, Placement, Point, Schedule, SimAlloc, run_with, world};
use archipelago_sync::lock::{
    RawBravo, RawCboMcs, RawCna, RawCohort, RawCrwNp, RawCrwRp, RawCrwWp, RawDistributedRwLock, RawHmcs, RawMcs,
    RawShfl, RawShflRw, RawTas, RawTicket, RawTtas, RawUnqueuedRwLock,
};
use archipelago_sync::region::{Change, Changing, Region, Stale, Var, Versioned};
use archipelago_sync::version_lock::VersionLock;
use lock_api::{RawMutex, RawRwLock};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

const THREADS: usize = 5;
const ROUNDS: u64 = 6;
const SEEDS: u64 = 150;

/// The point that a thread passes while it holds the lock.
const HOLDER: &str = "a test holds the lock";

/// Two words that only holders change, and that are equal whenever no thread is changing them.
#[derive(Default)]
struct Words([AtomicU64; 2]);

impl Words {
    /// Adds one to both words, in separate steps between which other threads could run. The caller holds the lock.
    fn change(&self) {
        let [first, second] = &self.0;
        let before = first.load(Ordering::Relaxed);
        first.store(before + 1, Ordering::Relaxed);
        hint::point(HOLDER);
        assert_eq!(second.load(Ordering::Relaxed), before, "another thread changes them, too");
        second.store(before + 1, Ordering::Relaxed);
    }

    /// Checks, as one of several readers, that the words are equal.
    fn look(&self) {
        let before = self.0[1].load(Ordering::Relaxed);
        hint::point(HOLDER);
        assert_eq!(self.0[0].load(Ordering::Relaxed), before, "another thread changes them");
    }
}

/// The faults of the three kinds of runs: no fault; each thread is stalled once while it holds the lock; threads are
/// stalled at random accesses.
fn faults() -> [Vec<Fault>; 3] {
    let named = |thread, nth| Point::Named { name: HOLDER.to_owned(), nth: nth + thread };
    let holder = |thread: u64| Fault::Stall { thread: Some(thread as usize), at: named(thread, 1), for_ns: 300_000 };
    let waiter = |thread| Fault::Stall { thread: Some(thread), at: Point::OneIn(40), for_ns: 30_000 };
    [vec![], (0..3).map(holder).collect(), (0..3).map(waiter).collect()]
}

/// Runs `body` on a lock and its words under many schedules. All threads must end.
fn explore<L>(make: impl Fn() -> L, changes: u64, body: impl Fn(&L, &Words, u64)) {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    for (kind, faults) in faults().into_iter().enumerate() {
        for seed in 0..SEEDS {
            let schedule = match seed % 3 {
                0 => Schedule::Random,
                1 => Schedule::Pct { depth: 3 },
                _ => Schedule::VirtualTime,
            };
            let config = Config {
                schedule,
                placement: Placement::Spread,
                expected_accesses: 1_500,
                faults: faults.clone(),
                ..Config::seeded(seed)
            };
            let run = |(lock, words): &(L, Words), client: Client| {
                (0..ROUNDS).for_each(|round| body(lock, words, round + client.index as u64));
            };
            let end = |(_, words): (L, Words)| words.0.map(AtomicU64::into_inner);
            let (report, words) = run_with(&machine, &config, THREADS, || (make(), Words::default()), run, end);
            assert_eq!(report.outcome, Outcome::Done, "seed {seed}, faults of kind {kind}");
            assert_eq!(words, Some([changes; 2]), "seed {seed}, faults of kind {kind}");
        }
    }
}

/// Some rounds call `try_lock` first. If it fails, and in all other rounds, the thread calls `lock`.
fn mutex<R: RawMutex>() {
    let body = |lock: &R, words: &Words, round: u64| {
        if !round.is_multiple_of(4) || !lock.try_lock() {
            lock.lock();
        }
        words.change();
        // SAFETY: taken above.
        unsafe { lock.unlock() };
        world::work(world::random() % 200);
    };
    explore(|| R::INIT, THREADS as u64 * ROUNDS, body);
}

/// One round in three writes; the others read, some of them with `try_lock_shared`.
fn rwlock<R: RawRwLock>() {
    let body = |lock: &R, words: &Words, round: u64| {
        if round.is_multiple_of(3) {
            lock.lock_exclusive();
            words.change();
            // SAFETY: taken above.
            unsafe { lock.unlock_exclusive() };
        } else {
            if !round.is_multiple_of(4) || !lock.try_lock_shared() {
                lock.lock_shared();
            }
            words.look();
            // SAFETY: taken above.
            unsafe { lock.unlock_shared() };
        }
        world::work(world::random() % 200);
    };
    let writes = (0..THREADS as u64).flat_map(|client| client..client + ROUNDS).filter(|round| round.is_multiple_of(3));
    explore(|| R::INIT, writes.count() as u64, body);
}

macro_rules! suite {
    ($kind:ident: $($name:ident $lock:ty),* $(,)?) => {
        $(#[test]
        fn $name() {
            $kind::<$lock>();
        })*
    };
}

suite! { mutex:
    tas RawTas,
    ttas RawTtas,
    ticket RawTicket,
    mcs RawMcs,
    cna RawCna,
    hmcs RawHmcs,
    cohort RawCohort,
    c_bo_mcs RawCboMcs,
    shfl RawShfl,
}

suite! { rwlock:
    distributed RawDistributedRwLock,
    unqueued RawUnqueuedRwLock,
    crw_np RawCrwNp,
    crw_rp RawCrwRp,
    crw_wp RawCrwWp,
    bravo RawBravo<RawCrwNp>,
    shfl_rw RawShflRw,
    bravo_distributed RawBravo<RawDistributedRwLock>,
    bravo_shfl_rw RawBravo<RawShflRw>,
}

/// The suite detects a thread that waits for ever, whether the thread spins or is parked.
#[test]
fn waiting_for_ever_is_noticed() {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let run = |wait: fn(&RawTtas)| {
        let body = |lock: &RawTtas, _: Client| wait(lock);
        run_with(&machine, &Config::seeded(1), 2, || RawTtas::INIT, body, drop).0.outcome
    };
    let never_unlocked = run(|lock| lock.lock());
    assert!(matches!(never_unlocked, Outcome::Deadlock { .. } | Outcome::Stalled), "{never_unlocked}");
    let parked = run(|_| archipelago_platform::thread::park());
    assert_eq!(parked, Outcome::Deadlock { waiting: vec![0, 1] });
}

/// A page with two parts, each of which has a lock of its own.
struct Sheet {
    lock: VersionLock,
    parts: [Slice; 2],
}

struct Slice {
    lock: VersionLock,
    word: Var,
}

// SAFETY: the page's words and links are plain fields.
unsafe impl Versioned for Sheet {
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

// SAFETY: the page's words and links are plain fields.
unsafe impl Versioned for Slice {
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

#[derive(Clone, Copy)]
struct AddOne<'p>(&'p Var);

impl Change for AddOne<'_> {
    type Out = ();

    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        change.set(self.0, change.get(self.0) + 1);
        Ok(())
    }
}

/// Threads that change parts of a page hold its lock shared. However many they are, a thread that wants to lock the
/// whole page gets the lock.
#[test]
fn sharers_of_a_page_let_others_lock_it() {
    const CROWD: usize = 32;
    const CHANGES: u64 = 12;
    let machine = Machine::preset("xeon-e7-8870v3-4s").unwrap();
    let part = || Slice { lock: VersionLock::new(), word: Var::new(0) };
    for seed in 0..4 {
        // A hundred times the time that the test needs.
        let config = Config { placement: Placement::Spread, limit_ns: 20_000_000, ..Config::seeded(seed) };
        let setup = || Sheet { lock: VersionLock::new(), parts: [part(), part()] };
        let client = |sheet: &Sheet, client: Client| {
            let (region, part) = (Region::by_version_locks(), &sheet.parts[client.index % 2]);
            for round in 0..CHANGES {
                while sheet
                    .lock
                    .read_unlocked()
                    .is_none_or(|version| region.update_part(sheet, version, part, AddOne(&part.word)).is_err())
                {
                }
                if round % 4 == 3 {
                    assert!(sheet.lock.lock());
                    sheet.lock.unlock();
                }
            }
        };
        let end = |sheet: Sheet| {
            assert_eq!(sheet.parts.map(|part| part.word.load()), [CHANGES * CROWD as u64 / 2; 2]);
        };
        let (report, _) = run_with(&machine, &config, CROWD, setup, client, end);
        assert_eq!(report.outcome, Outcome::Done, "seed {seed}, after {} ns", report.end_ns);
    }
}

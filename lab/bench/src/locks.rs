//! `bench locks` and `sim locks`: short critical sections under locks, from simple spin locks to NUMA-aware ones.

use core::hint::black_box;
use core::marker::PhantomData;
use std::process::ExitCode;

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync;
use archipelago_platform::time::Duration;
use archipelago_sim::world;
use archipelago_sync::lock::*;

use crate::args::{Locks, SimCommon, Timed};
use crate::failure::Failure;
use crate::harness::program::{Dice, Done, Program, Turns, work};
use crate::harness::simulated::Contender;
use crate::harness::{Cells, Command, Experiment, Known, known};
use crate::report::row::Cell;

/// A lock that a thread enters alone, or together with other readers.
trait Lock: Default + Send + Sync + 'static {
    fn write(&self) -> impl Sized;
    fn read(&self) -> impl Sized;
}

macro_rules! lock {
    ([$($of:tt)*] $lock:ty, $write:ident, $read:ident $(, $sound:ident)?) => {
        impl<$($of)*> Lock for $lock {
            fn write(&self) -> impl Sized { self.$write()$(.$sound("no section panics"))? }
            fn read(&self) -> impl Sized { self.$read()$(.$sound("no section panics"))? }
        }
    };
}

lock!([R: lock_api::RawMutex + Send + Sync + 'static] lock_api::Mutex<R, ()>, lock, lock);
lock!([R: lock_api::RawRwLock + Send + Sync + 'static] lock_api::RwLock<R, ()>, write, read);
lock!([] sync::Mutex<()>, lock, lock, expect);
lock!([] sync::RwLock<()>, write, read, expect);

/// A lock, and the two cache lines that its critical section writes or reads.
struct Locked<L> {
    lock: CachePadded<L>,
    data: [CachePadded<AtomicU64>; 2],
}

/// The work inside a critical section beside its two accesses, in nanoseconds (virtual, or approximate on this
/// machine). The next constant is the least and the most work between two sections, in the same unit.
const INSIDE: u64 = 30;
const BETWEEN: (u64, u64) = (100, 200);

/// Critical sections under a lock. This percentage of them writes; `None` if the lock is exclusive.
struct Sections<L>(Option<u32>, PhantomData<fn() -> L>);

impl<L> From<Option<u32>> for Sections<L> {
    fn from(write_percent: Option<u32>) -> Self {
        Sections(write_percent, PhantomData)
    }
}

impl<L: Lock> Program for Sections<L> {
    type Shared = Box<Locked<L>>;

    fn setup(&self, _: usize, _: u64) -> Box<Locked<L>> {
        let data = Default::default();
        let locked = Box::new(Locked { lock: CachePadded::new(L::default()), data });
        world::label((&raw const locked.lock).cast(), size_of_val(&locked.lock), "the lock");
        locked
    }

    fn body(&self, locked: &Self::Shared, turns: &mut impl Turns) {
        let Locked { lock, data } = &**locked;
        let thread = turns.thread() as u64;
        let dice = Dice::of(turns);
        let section = |_| {
            let writes = self.0.is_none_or(|percent| dice.roll() % 100 < u64::from(percent));
            if writes {
                let _held = lock.write();
                data.iter().for_each(|word| word.store(thread, Ordering::Relaxed));
                work(INSIDE);
            } else {
                let _held = lock.read();
                data.iter().for_each(|word| _ = black_box(word.load(Ordering::Relaxed)));
                work(INSIDE);
            }
            self.0.map_or(Done::Found, |_| Done::updated(writes))
        };
        turns.go(usize::MAX, section, || work(BETWEEN.0 + dice.roll() % (BETWEEN.1 - BETWEEN.0)));
    }
}

/// The locks that admit one thread at a time. `SHARED` has the locks that admit several readers at a time.
const EXCLUSIVE: [Known<Option<u32>>; 12] = [
    Known::of::<Sections<Mutex<RawTas, ()>>>("tas"),
    Known::of::<Sections<Mutex<RawTtas, ()>>>("ttas"),
    Known::of::<Sections<Mutex<RawTicket, ()>>>("ticket"),
    Known::of::<Sections<Mutex<RawMcs, ()>>>("mcs"),
    Known::of::<Sections<Mutex<RawHmcs, ()>>>("hmcs"),
    Known::of::<Sections<Mutex<RawCohort, ()>>>("cohort"),
    Known::of::<Sections<Mutex<RawCboMcs, ()>>>("c-bo-mcs"),
    Known::of::<Sections<Mutex<RawCna, ()>>>("cna"),
    Known::of::<Sections<Mutex<RawBoundedCna<65_536>, ()>>>("cna-65536"),
    Known::of::<Sections<Mutex<RawShfl, ()>>>("shfl"),
    Known::of::<Sections<parking_lot::Mutex<()>>>("parking-lot"),
    Known::of::<Sections<sync::Mutex<()>>>("std"),
];

const SHARED: [Known<Option<u32>>; 9] = [
    Known::of::<Sections<RwLock<RawDistributedRwLock, ()>>>("distributed"),
    Known::of::<Sections<RwLock<RawCrwNp, ()>>>("c-rw-np"),
    Known::of::<Sections<RwLock<RawCrwRp, ()>>>("c-rw-rp"),
    Known::of::<Sections<RwLock<RawCrwWp, ()>>>("c-rw-wp"),
    Known::of::<Sections<RwLock<RawBravo<RawCrwNp>, ()>>>("bravo"),
    Known::of::<Sections<RwLock<RawShflRw, ()>>>("shfl-rw"),
    Known::of::<Sections<RwLock<RawBravo<RawShflRw>, ()>>>("bravo-shfl-rw"),
    Known::of::<Sections<parking_lot::RwLock<()>>>("parking-lot"),
    Known::of::<Sections<sync::RwLock<()>>>("std"),
];

/// Returns the locks that a list names, in their cells (workloads with their parameters): exclusive locks, and
/// reader-writer locks at each percentage of writes. Locks of other authors are not simulated.
fn cells(list: &str, percents: &[u32], simulated: bool) -> Result<Cells<Option<u32>>, Failure> {
    let is_known = |lock: &&'static Known<_>| !(simulated && ["parking-lot", "std"].contains(&lock.name));
    let names: Vec<&str> = EXCLUSIVE.iter().chain(&SHARED).filter(is_known).map(|lock| lock.name).collect();
    let named = crate::choose::names("lock", list, &names)?;
    let of = |locks: &'static [Known<_>]| {
        named.iter().filter_map(|name| locks.iter().find(|lock| lock.name == *name)).collect::<Vec<_>>()
    };
    let mut cells = vec![(Cell::of("sections"), None, of(&EXCLUSIVE))];
    let shared = |&percent: &u32| {
        (Cell { update_percent: Some(percent), ..Cell::of("reading sections") }, Some(percent), of(&SHARED))
    };
    cells.extend(percents.iter().map(shared));
    Ok(cells)
}

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, or the report cannot be written.
pub fn run(args: &Locks<Timed>) -> Result<ExitCode, Failure> {
    let (Timed { common, millis }, list) = (&args.common, args.lock.as_deref().unwrap_or("all"));
    let (cells, time) = (cells(list, &args.write_percent, false)?, Duration::from_millis(*millis as u64));
    Command::start(common)?.run(&Experiment::of("locks", common, "parking-lot", time, cells)?)
}

/// Returns the contenders on the virtual machine (a simulator).
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &Locks<SimCommon>) -> Result<Vec<Contender>, Failure> {
    let list = args.lock.as_deref().unwrap_or("tas,ttas,ticket,mcs,hmcs,cohort");
    Ok(known::simulated(cells(list, &args.write_percent, true)?))
}

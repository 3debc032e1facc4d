//! `sim locks`: short critical sections under locks of increasing care for the machine.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_sim::world;
use archipelago_sync::lock::{
    RawBravo, RawCna, RawCohort, RawCrwNp, RawCrwRp, RawCrwWp, RawDistributedRwLock, RawHmcs, RawMcs, RawShfl, RawTas,
    RawTicket, RawTtas,
};
use lock_api::{Mutex, RawMutex, RawRwLock, RwLock};

use super::measure::{Program, run};
use super::{Cell, Contender, choose};
use crate::args::SimLocks;
use crate::failure::Failure;

/// A lock, and the two lines that its critical section writes, or reads.
struct Locked<L> {
    lock: CachePadded<L>,
    data: [CachePadded<AtomicU64>; 2],
}

impl<L> Locked<L> {
    fn new(lock: L) -> Box<Self> {
        let data = [0; 2].map(|n| CachePadded::new(AtomicU64::new(n)));
        let locked = Box::new(Locked { lock: CachePadded::new(lock), data });
        world::label((&raw const locked.lock).cast(), size_of_val(&locked.lock), "the lock");
        locked
    }

    fn write(&self, value: usize) {
        self.data.iter().for_each(|word| word.store(value as u64, Ordering::Relaxed));
        world::work(INSIDE);
    }

    fn read(&self) {
        self.data.iter().for_each(|word| _ = word.load(Ordering::Relaxed));
        world::work(INSIDE);
    }
}

/// The work inside of a critical section beside its two accesses, and the least and the most between two sections, in
/// nanoseconds.
const INSIDE: u64 = 30;
const BETWEEN: (u64, u64) = (100, 200);

fn pause() {
    world::work(BETWEEN.0 + world::random() % (BETWEEN.1 - BETWEEN.0));
}

fn sections<R: RawMutex + 'static>(_: u32) -> Program {
    Box::new(|machine, config, setting, threads| {
        let setup = || Locked::new(Mutex::<R, ()>::new(()));
        run(machine, config, setting, threads, setup, |locked, turns| {
            while turns.next() {
                {
                    let _held = locked.lock.lock();
                    locked.write(turns.client().index);
                }
                pause();
            }
        })
    })
}

fn reading<R: RawRwLock + 'static>(write_percent: u32) -> Program {
    Box::new(move |machine, config, setting, threads| {
        let setup = || Locked::new(RwLock::<R, ()>::new(()));
        run(machine, config, setting, threads, setup, |locked, turns| {
            while turns.next() {
                let writes = world::random() % 100 < u64::from(write_percent);
                turns.updates(writes);
                if writes {
                    let _held = locked.lock.write();
                    locked.write(turns.client().index);
                } else {
                    let _held = locked.lock.read();
                    locked.read();
                }
                pause();
            }
        })
    })
}

/// Makes a lock's program, for so many percent of writes.
type Make = fn(u32) -> Program;

/// The locks that keep everybody else out.
const EXCLUSIVE: [(&str, Make); 8] = [
    ("tas", sections::<RawTas>),
    ("ttas", sections::<RawTtas>),
    ("ticket", sections::<RawTicket>),
    ("mcs", sections::<RawMcs>),
    ("hmcs", sections::<RawHmcs>),
    ("cohort", sections::<RawCohort>),
    ("cna", sections::<RawCna>),
    ("shfl", sections::<RawShfl>),
];

/// Those that let readers in together.
const SHARED: [(&str, Make); 5] = [
    ("distributed", reading::<RawDistributedRwLock>),
    ("c-rw-np", reading::<RawCrwNp>),
    ("c-rw-rp", reading::<RawCrwRp>),
    ("c-rw-wp", reading::<RawCrwWp>),
    ("bravo", reading::<RawBravo<RawCrwNp>>),
];

/// The locks that the arguments name: exclusive ones, and shared ones at each percentage of writes.
///
/// # Errors
/// If a name is not known.
pub fn contenders(args: &SimLocks) -> Result<Vec<Contender>, Failure> {
    let known: Vec<&str> = EXCLUSIVE.iter().chain(&SHARED).map(|(name, _)| *name).collect();
    let named = choose("--lock", &args.lock, &known)?;
    let find = |list: &[(&str, Make)], name: &str| list.iter().find(|(known, _)| *known == name).map(|it| it.1);
    let contender = |name: &str, workload: &str, update_percent, program| {
        let cell = Cell { update_percent, ..Cell::default() };
        Contender { name: name.to_owned(), workload: workload.to_owned(), cell, program }
    };
    let exclusive =
        named.iter().filter_map(|name| Some(contender(name, "sections", None, find(&EXCLUSIVE, name)?(100))));
    let mut contenders: Vec<Contender> = exclusive.collect();
    for &percent in &args.write_percent {
        let shared = named.iter().filter_map(|name| Some((name, find(&SHARED, name)?)));
        contenders.extend(shared.map(|(name, make)| contender(name, "reading sections", Some(percent), make(percent))));
    }
    Ok(contenders)
}

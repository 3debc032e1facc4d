//! `sim locks`: short critical sections under locks of increasing care for the machine.

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_sim::world;
use archipelago_sync::lock::{RawCna, RawCohort, RawHmcs, RawMcs, RawShfl, RawTas, RawTicket, RawTtas};
use lock_api::{Mutex, RawMutex};

use super::measure::{Program, run};
use super::{Cell, Contender, choose};
use crate::failure::Failure;

/// A lock, and the two lines that its critical section writes.
struct Locked<R> {
    lock: CachePadded<Mutex<R, ()>>,
    data: [CachePadded<AtomicU64>; 2],
}

impl<R: RawMutex> Locked<R> {
    fn new() -> Self {
        let locked = Locked {
            lock: CachePadded::new(Mutex::new(())),
            data: [0; 2].map(|n| CachePadded::new(AtomicU64::new(n))),
        };
        world::label((&raw const locked.lock).cast(), size_of_val(&locked.lock), "the lock");
        locked
    }
}

/// The work inside of a critical section beside its two writes, and the least and the most between two sections, in
/// nanoseconds.
const INSIDE: u64 = 30;
const BETWEEN: (u64, u64) = (100, 200);

fn sections<R: RawMutex + 'static>() -> Program {
    Box::new(|machine, config, setting, threads| {
        let setup = || Box::new(Locked::<R>::new());
        run(machine, config, setting, threads, setup, |locked, turns| {
            while turns.next() {
                {
                    let _held = locked.lock.lock();
                    locked.data.iter().for_each(|word| word.store(turns.client().index as u64, Ordering::Relaxed));
                    world::work(INSIDE);
                }
                world::work(BETWEEN.0 + world::random() % (BETWEEN.1 - BETWEEN.0));
            }
        })
    })
}

/// Makes a lock's program.
type Make = fn() -> Program;

/// The locks that `names` asks for.
///
/// # Errors
/// If a name is not known.
pub fn contenders(names: &str) -> Result<Vec<Contender>, Failure> {
    let known: [(&str, Make); 8] = [
        ("tas", sections::<RawTas>),
        ("ttas", sections::<RawTtas>),
        ("ticket", sections::<RawTicket>),
        ("mcs", sections::<RawMcs>),
        ("hmcs", sections::<RawHmcs>),
        ("cohort", sections::<RawCohort>),
        ("cna", sections::<RawCna>),
        ("shfl", sections::<RawShfl>),
    ];
    let named = choose("--lock", names, &known.map(|(name, _)| name))?;
    let of = |name: &str| known.iter().find(|(known, _)| *known == name).expect("it was chosen from these").1();
    Ok(named
        .into_iter()
        .map(|name| Contender {
            name: name.to_owned(),
            workload: "sections".to_owned(),
            cell: Cell::default(),
            program: of(name),
        })
        .collect())
}

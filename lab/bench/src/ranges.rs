//! `bench ranges` and `sim ranges`: what programs do to their address space, as RCX's slides have it.
//!
//! | workload | a thread, again and again | faults for a change |
//! |---|---|---|
//! | `metis` | maps a chunk of 8 MiB, touches each of its 2,048 pages, unmaps it | 1,024 |
//! | `metis-small` | the same with 64 KiB, 16 pages | 8 |
//! | `ebizzy` | maps 256 KiB, copies to its 64 pages, searches 64 in those of a chunk that stays, unmaps it | 64 |
//! | `psearchy` | as `metis-small`; an unmapping costs every other thread an interrupt, and itself the wait for all of them | 8 |
//!
//! An operation is a fault or a change. Chunks are the thread's own; what is shared is the map of them all.

use core::cell::Cell;
use std::process::ExitCode;

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::time::Duration;
use archipelago_workloads::spaces::{self, SPACES, Space};

use crate::args::{Ranges, SimCommon, Timed};
use crate::choose;
use crate::failure::Failure;
use crate::harness::program::{Done, Program, Turns, work};
use crate::harness::simulated::Contender;
use crate::harness::{Cells, Command, Experiment, known};
use crate::report::row::Cell as RowCell;
use crate::roster::Roster;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Where a thread's own chunks begin: so far from the next thread's.
const APART: u64 = 1 << 32;
/// What a page costs that is faulted in, beside the look-up: it is cleared. In nanoseconds, or about.
const CLEAR: u64 = 200;
/// What an interrupt costs the thread that it hits.
const INTERRUPT: u64 = 1_000;
/// What it costs the one that interrupts, for each thread that is to answer: measured with 16 cores on two sockets, 5.8 µs for all,
/// and with 120 on eight, 82 µs (Kumar et al., *LATR: Lazy Translation Coherence*, ASPLOS 2018).
const ANSWER: u64 = 400;

/// What threads do.
#[derive(Clone, Copy)]
struct Work {
    /// Pages of a chunk.
    pages: u64,
    /// Faults in another chunk, one that stays, for each chunk.
    elsewhere: u64,
    /// Whether an unmapping interrupts all.
    interrupts: bool,
    /// All spaces.
    spaces: &'static [spaces::Known],
}

/// An address space, and what interrupts its threads: how often each was, and how often it has noticed.
struct Shared {
    space: Box<dyn Space>,
    interrupts: Vec<CachePadded<AtomicU64>>,
}

/// Threads in a space.
struct Clients {
    work: Work,
    make: fn() -> Box<dyn Space>,
}

impl From<(&'static str, Work)> for Clients {
    fn from((name, work): (&'static str, Work)) -> Self {
        let make = work.spaces.iter().find(|space| space.name == name).expect("chosen of these").make;
        Clients { work, make }
    }
}

impl Program for Clients {
    type Shared = Shared;

    fn setup(&self, threads: usize, _: u64) -> Shared {
        let space = (self.make)();
        // The middle ones first, for trees that do not balance themselves.
        let mut order: Vec<u64> = (0..threads as u64).collect();
        order.sort_by_key(|thread| thread.reverse_bits());
        for thread in order {
            let from = thread * APART;
            space.map(from..from + self.work.pages * PAGE, thread + 1);
        }
        Shared { space, interrupts: (0..threads).map(|_| CachePadded::default()).collect() }
    }

    fn body(&self, shared: &Shared, turns: &mut impl Turns) {
        let Work { pages, elsewhere, interrupts, .. } = self.work;
        let (space, thread) = (&*shared.space, turns.thread());
        let stays = thread as u64 * APART;
        let chunk = stays + APART / 2..stays + APART / 2 + pages * PAGE;
        // Where it is: 0 before it is mapped, then the next page, then the pages elsewhere, then the end.
        let (at, noticed) = (Cell::new(0), Cell::new(0));
        let op = |_| {
            if interrupts {
                // Relaxed: a number that says how much time was lost.
                let told = shared.interrupts[thread].load(Ordering::Relaxed);
                work((told - noticed.replace(told)) * INTERRUPT);
            }
            let step = at.get();
            at.set(if step > pages + elsewhere { 0 } else { step + 1 });
            if step == 0 {
                space.map(chunk.clone(), thread as u64 + 1);
                Done::Updated
            } else if step <= pages + elsewhere {
                let page = if step <= pages {
                    chunk.start + (step - 1) * PAGE
                } else {
                    stays + (step - pages - 1) % pages * PAGE
                };
                let found = space.fault(page) == Some(thread as u64 + 1);
                work(if step <= pages { CLEAR } else { 0 });
                if found { Done::Read } else { Done::Missed }
            } else {
                space.unmap(chunk.clone());
                if interrupts {
                    flush(shared, thread);
                }
                Done::Updated
            }
        };
        turns.go(usize::MAX, op, || ());
    }
}

/// Interrupts all other threads, and waits until the last one has answered.
fn flush(shared: &Shared, thread: usize) {
    for (other, interrupts) in shared.interrupts.iter().enumerate() {
        if other != thread {
            // Relaxed: see where it is read.
            interrupts.fetch_add(1, Ordering::Relaxed);
        }
    }
    work(ANSWER * (shared.interrupts.len() as u64 - 1));
}

/// The chosen ones of `spaces`, in a cell for each workload.
fn cells<C: clap::Args>(args: &Ranges<C>, spaces: &'static [spaces::Known]) -> Result<Cells<Work>, Failure> {
    let names: Vec<&'static str> = spaces.iter().map(|space| space.name).collect();
    let chosen = known::named::<Clients, _>(&choose::names("space", &args.space, &names)?);
    let cell = |workload: &&'static str| {
        let (pages, elsewhere) = match *workload {
            "metis" => (2048, 0),
            "ebizzy" => (64, 64),
            _ => (16, 0),
        };
        let work = Work { pages, elsewhere, interrupts: *workload == "psearchy", spaces };
        let details = format!("{} faults for a change", (pages + elsewhere) / 2);
        (RowCell { details, ..RowCell::of(workload) }, work, chosen.clone())
    };
    let workloads = choose::names("workload", &args.workload, &["metis", "metis-small", "ebizzy", "psearchy"])?;
    Ok(workloads.iter().map(cell).collect())
}

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, or the report cannot be written.
pub fn run<R: Roster>(args: &Ranges<Timed>) -> Result<ExitCode, Failure> {
    let Timed { common, millis } = &args.common;
    let (cells, time) = (cells(args, [SPACES, R::SPACES].concat().leak())?, Duration::from_millis(*millis as u64));
    Command::start(common)?.run(&Experiment::of("ranges", common, "rwlock", time, cells)?)
}

/// The contenders on the virtual machine.
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &Ranges<SimCommon>) -> Result<Vec<Contender>, Failure> {
    Ok(known::simulated(cells(args, SPACES)?))
}

//! `bench ranges` and `sim ranges`: what programs do to their address space, as in the slides on RCX.
//!
//! | workload | a thread repeats this | faults per change |
//! |---|---|---|
//! | `metis` | maps a chunk of 8 MiB, touches each of its 2,048 pages, unmaps the chunk | 1,024 |
//! | `metis-small` | the same with 64 KiB, 16 pages | 8 |
//! | `ebizzy` | maps 256 KiB, copies to its 64 pages, searches 64 pages of another chunk that stays mapped, unmaps the first chunk | 64 |
//! | `psearchy` | as `metis-small`; an unmapping costs every other thread an interrupt, and the unmapping thread the wait for all of them | 8 |
//! | `metis-interrupts`, `ebizzy-interrupts` | as `metis` and `ebizzy`, with the interrupts of `psearchy` | 1,024; 64 |
//!
//! An operation is a page fault or a change. Each thread has chunks of its own; all threads share the map of the
//! chunks.

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

const WORKLOADS: [&str; 6] = ["metis", "metis-small", "ebizzy", "psearchy", "metis-interrupts", "ebizzy-interrupts"];

/// Bytes of a page.
const PAGE: u64 = 4096;
/// The distance in bytes between the beginnings of two threads' chunks.
const APART: u64 = 1 << 32;
/// Nanoseconds (approximate on this machine) that a page fault takes beside the look-up: the page is cleared.
const CLEAR: u64 = 200;
/// Nanoseconds that an interrupt costs the interrupted thread.
const INTERRUPT: u64 = 1_000;
/// Nanoseconds that an interrupt costs the interrupting thread, for each thread that has to answer. The published
/// measurements are 5.8 µs for all of 16 cores on two sockets, and 82 µs for 120 cores on eight sockets (Kumar et
/// al., *LATR: Lazy Translation Coherence*, ASPLOS 2018).
const ANSWER: u64 = 400;

/// The parameters of a workload.
#[derive(Clone, Copy)]
struct Work {
    /// Pages of a chunk.
    pages: u64,
    /// Faults in another chunk, which stays mapped, for each chunk that is mapped and unmapped.
    elsewhere: u64,
    /// Whether an unmapping interrupts all other threads.
    interrupts: bool,
    /// All address spaces.
    spaces: &'static [spaces::Known],
}

/// An address space, and for each thread the number of interrupts that it was sent.
struct Shared {
    space: Box<dyn Space>,
    interrupts: Vec<CachePadded<AtomicU64>>,
}

/// Threads that share an address space.
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
        // The chunks are mapped in bit-reversed order, so that trees that do not balance themselves are about balanced.
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
        // The first number is the step that the thread has reached: 0 maps the chunk; the following steps touch each
        // page of the chunk, then the pages of the chunk that stays mapped; the last step unmaps the chunk. The second
        // is the number of interrupts whose time has been charged.
        let (at, noticed) = (Cell::new(0), Cell::new(0));
        let op = |_| {
            if interrupts {
                // Relaxed: the count only says how much time to charge.
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

/// Interrupts all other threads, and waits as long as the last answer takes.
fn flush(shared: &Shared, thread: usize) {
    for (other, interrupts) in shared.interrupts.iter().enumerate() {
        if other != thread {
            // Relaxed: the reader uses it as a count only.
            interrupts.fetch_add(1, Ordering::Relaxed);
        }
    }
    work(ANSWER * (shared.interrupts.len() as u64 - 1));
}

/// Returns the spaces of `spaces` that the arguments name, in one cell (a workload with its parameters) for each
/// workload.
fn cells<C: clap::Args>(args: &Ranges<C>, spaces: &'static [spaces::Known]) -> Result<Cells<Work>, Failure> {
    let names: Vec<&'static str> = spaces.iter().map(|space| space.name).collect();
    let chosen = known::named::<Clients, _>(&choose::names("space", &args.space, &names)?);
    let cell = |workload: &&'static str| {
        let (pages, elsewhere) = match *workload {
            "metis" | "metis-interrupts" => (2048, 0),
            "ebizzy" | "ebizzy-interrupts" => (64, 64),
            _ => (16, 0),
        };
        let interrupts = *workload == "psearchy" || workload.ends_with("-interrupts");
        let work = Work { pages, elsewhere, interrupts, spaces };
        let details = format!("{} faults for a change", (pages + elsewhere) / 2);
        (RowCell { details, ..RowCell::of(workload) }, work, chosen.clone())
    };
    let workloads = choose::names("workload", &args.workload, &WORKLOADS)?;
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

/// Returns the contenders on the virtual machine (a simulator).
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &Ranges<SimCommon>) -> Result<Vec<Contender>, Failure> {
    Ok(known::simulated(cells(args, SPACES)?))
}

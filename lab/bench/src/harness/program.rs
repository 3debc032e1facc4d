//! The program of a contender in one cell (a workload with its parameters), written once for this machine and for the
//! virtual machine (a simulator).

use core::cell::Cell;
use core::hint::black_box;

use archipelago_platform::SIMULATED;
use archipelago_platform::topology::Topology;
use archipelago_sim::world;

use super::instructions::Charge;

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The operation found what it must find; whether it was a read or an update is not reported.
    Found,
    /// The operation did not find a key that is present: the contender is wrong.
    Missed,
    /// The operation read.
    Read,
    /// The operation changed something, or tried to.
    Updated,
}

impl Done {
    /// Returns the result of a look-up that must find its key.
    #[inline]
    pub fn found(found: bool) -> Done {
        if found { Done::Found } else { Done::Missed }
    }

    /// Returns the result of an update or a read.
    #[inline]
    pub fn updated(updated: bool) -> Done {
        if updated { Done::Updated } else { Done::Read }
    }
}

/// A thread of a run, on either machine.
pub trait Turns {
    /// Returns the thread's number, from 0.
    fn thread(&self) -> usize;

    /// Returns the run's seed.
    fn seed(&self) -> u64;

    /// Waits for the other threads (on this machine). Then calls `op` with 0, 1, 2 and so on below `limit`, until the
    /// run is over: its time is up, or it is interrupted. Calls `between` after each operation; no latency includes the
    /// time of `between`.
    fn go(&mut self, limit: usize, op: impl FnMut(usize) -> Done, between: impl FnMut());

    /// Returns what `--instructions` charges on the virtual machine. A program whose instructions were counted says
    /// which kind of operation begins ([`Charge::begins`]).
    fn charge(&self) -> Charge {
        Charge::default()
    }

    /// Called after [`go`](Self::go) if one call of `op` did several operations: `correct` computes two results, the
    /// operations and the misses, from the number of calls. On the virtual machine each call counts as one operation.
    fn correct(&mut self, _correct: impl FnOnce(usize) -> (usize, usize)) {}

    /// Called after [`go`](Self::go) with the number of updates and how many attempts were repeated.
    fn attempts(&mut self, _updates: u64, _repeated: u64) {}
}

/// The program of a contender.
pub trait Program {
    /// The data that the threads share.
    type Shared: Sync;

    /// Makes the shared data for this many threads; on the virtual machine this takes no time.
    fn setup(&self, threads: usize, seed: u64) -> Self::Shared;

    /// Returns whether both programs make the same shared data for the same seed and as many threads.
    fn shares_setup(&self, _: &Self) -> bool {
        false
    }

    /// Runs one thread, which calls [`Turns::go`] once.
    fn body(&self, shared: &Self::Shared, turns: &mut impl Turns);

    /// Returns how often reads (or transactions, if the program runs transactions) have been restarted so far because
    /// of concurrent changes, if the program counts restarts.
    fn retries(&self, _: &Self::Shared) -> Option<u64> {
        None
    }

    /// Returns how many of the bytes that the program holds are not counted as memory of the index.
    fn tuples(&self, _: &Self::Shared) -> usize {
        0
    }

    /// Returns an error in the state that a run left, if the program checks it.
    fn wrong(&self, _: &Self::Shared) -> Option<String> {
        None
    }

    /// Returns which isolation the contender's transactions promise, if it has transactions.
    fn isolation(&self) -> Option<&'static str> {
        None
    }

    /// Called after [`wrong`](Self::wrong). Returns how many write skews the run had, if the contender's isolation
    /// permits write skews and the program counts them.
    fn skews(&self, _: &Self::Shared) -> Option<u64> {
        None
    }

    /// Returns further observations on a run, a line each.
    fn notes(&self, _: &Self::Shared) -> Vec<String> {
        Vec::new()
    }

    /// Returns the work of an additional thread, which runs from before the other threads begin until
    /// [`stop`](Self::stop). It is used only on this machine, in runs of a given time.
    fn beside<'a>(&'a self, _: &'a Self::Shared) -> Option<Box<dyn FnOnce() + Send + 'a>> {
        None
    }

    /// Called on this machine when the time is up, or if the run cannot begin, before the threads are waited for.
    fn stop(&self, _: &Self::Shared) {}

    /// Called on this machine when the threads have ended. Waits for work that was postponed.
    fn settle(&self, _: &Self::Shared) {}
}

/// Calls `fill` with each number below `parts`, from every node in turn, so that its allocations are spread over all
/// nodes.
pub fn from_every_node(parts: usize, mut fill: impl FnMut(usize)) {
    let nodes = Topology::current().nodes().len();
    for part in 0..parts {
        world::bind(part % nodes);
        fill(part);
    }
    world::bind(0);
}

/// Runs for this many nanoseconds (on this machine, roughly) and touches no memory.
pub fn work(ns: u64) {
    if SIMULATED { world::work(ns) } else { (0..ns).for_each(|step| _ = black_box(step)) }
}

/// A thread's random numbers.
pub struct Dice(Cell<u64>);

impl Dice {
    /// Returns a thread's generator, which the run's seed determines. On the virtual machine, the numbers come from the
    /// generator of the calling thread.
    pub fn of(turns: &impl Turns) -> Dice {
        Dice(Cell::new(turns.seed().wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (turns.thread() as u64) << 32))
    }

    /// Returns the next number, of at least 31 random bits.
    #[inline]
    pub fn roll(&self) -> u64 {
        let Dice(last) = self;
        last.set(last.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        if SIMULATED { world::random() } else { last.get() >> 33 }
    }
}

/// The only thread of a test, outside of any run: does this many operations.
#[cfg(test)]
pub struct Alone {
    pub ops: usize,
    pub seed: u64,
}

#[cfg(test)]
impl Turns for Alone {
    fn thread(&self) -> usize {
        0
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn go(&mut self, limit: usize, mut op: impl FnMut(usize) -> Done, mut between: impl FnMut()) {
        for i in 0..limit.min(self.ops) {
            op(i);
            between();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Equal seeds give equal numbers, and other seeds give others. The virtual machine has a generator of its own.
    #[test]
    fn the_seed_decides_what_is_rolled() {
        let rolls = |seed| {
            let dice = Dice::of(&Alone { ops: 0, seed });
            [(); 4].map(|()| dice.roll())
        };
        assert_eq!(rolls(1), rolls(1));
        assert!(SIMULATED || rolls(1) != rolls(2));
    }
}

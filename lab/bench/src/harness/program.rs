//! What a contender does in one cell, written once for this machine and for the virtual one.

use core::cell::Cell;
use core::hint::black_box;

use archipelago_platform::SIMULATED;
use archipelago_platform::topology::Topology;
use archipelago_sim::world;

/// What an operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It found what it must, and nothing else is told of it.
    Found,
    /// It did not find what is there: the contender is wrong.
    Missed,
    /// It read.
    Read,
    /// It changed something, or tried to.
    Updated,
}

impl Done {
    /// Of whether it found what it must.
    #[inline]
    pub fn found(found: bool) -> Done {
        if found { Done::Found } else { Done::Missed }
    }

    /// Of whether it is an update.
    #[inline]
    pub fn updated(updated: bool) -> Done {
        if updated { Done::Updated } else { Done::Read }
    }
}

/// A thread of a run, on either machine.
pub trait Turns {
    /// Its number, from 0.
    fn thread(&self) -> usize;

    /// Waits for the other threads; then calls `op` with 0, 1, 2 and so on until the run is over, or below `limit`. After
    /// each it calls `between`, whose time belongs to no operation.
    fn go(&mut self, limit: usize, op: impl FnMut(usize) -> Done, between: impl FnMut());

    /// After that, where an operation was several: what they come to, as `correct` makes them of the number of those. On the
    /// virtual machine each operation is one.
    fn correct(&mut self, _correct: impl FnOnce(usize) -> (usize, usize)) {}

    /// After that: how many updates there were, and how often one was repeated.
    fn attempts(&mut self, _updates: u64, _repeated: u64) {}
}

/// What a contender does.
pub trait Program {
    /// What the threads share.
    type Shared: Sync;

    /// Makes it, for this many threads; on the virtual machine in no time.
    fn setup(&self, threads: usize, seed: u64) -> Self::Shared;

    /// A thread's part, which calls [`Turns::go`] once.
    fn body(&self, shared: &Self::Shared, turns: &mut impl Turns);

    /// How often threads have begun to read anew so far as something had changed under them, if the program counts that.
    fn retries(&self, _: &Self::Shared) -> Option<u64> {
        None
    }

    /// What is wrong with what a run left, if the program knows.
    fn wrong(&self, _: &Self::Shared) -> Option<String> {
        None
    }

    /// What else a run showed, a line each.
    fn notes(&self, _: &Self::Shared) -> Vec<String> {
        Vec::new()
    }

    /// What one thread more does, from before the threads begin until [`stop`](Self::stop); in runs of a time, on this machine only.
    fn beside<'a>(&'a self, _: &'a Self::Shared) -> Option<Box<dyn FnOnce() + Send + 'a>> {
        None
    }

    /// Called when the time is up, before the threads are waited for; on this machine only.
    fn stop(&self, _: &Self::Shared) {}

    /// Called when the threads have ended: waits for work that was put off; on this machine only.
    fn settle(&self, _: &Self::Shared) {}
}

/// Calls `fill` with each number below `parts`, from every node in turn, so that what it makes is spread over all memory.
pub fn from_every_node(parts: usize, mut fill: impl FnMut(usize)) {
    let nodes = Topology::current().nodes().len();
    for part in 0..parts {
        world::bind(part % nodes);
        fill(part);
    }
    world::bind(0);
}

/// Takes this many nanoseconds (on this machine about) and touches nothing.
pub fn work(ns: u64) {
    if SIMULATED { world::work(ns) } else { (0..ns).for_each(|step| _ = black_box(step)) }
}

/// Random numbers of a thread.
pub struct Dice(Cell<u64>);

impl Dice {
    /// Those of a thread by number; on the virtual machine of the one that calls.
    pub fn of(thread: usize) -> Dice {
        Dice(Cell::new(thread as u64))
    }

    /// The next one, of 31 bits at least.
    #[inline]
    pub fn roll(&self) -> u64 {
        let Dice(last) = self;
        last.set(last.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        if SIMULATED { world::random() } else { last.get() >> 33 }
    }
}

//! Counters of a structure's contents. Each thread has its own counters: no two threads write the same cache line, and
//! no update is a locked instruction.

use archipelago_platform::atomic::{AtomicIsize, Ordering::Relaxed};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::thread;
use core::ops::AddAssign;

/// The change of a structure's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) entries: isize,
    pub(crate) nodes: isize,
    pub(crate) bytes: isize,
}

impl Growth {
    /// Returns the growth by an entry whose leaf takes `bytes`.
    pub(crate) fn entry(bytes: usize) -> Self {
        Self { entries: 1, nodes: 0, bytes: bytes as isize }
    }

    /// Adds a new node of `bytes`.
    pub(crate) fn node(self, bytes: usize) -> Self {
        Self { nodes: self.nodes + 1, bytes: self.bytes + bytes as isize, ..self }
    }

    /// Adds the removal of a node of `bytes`.
    pub(crate) fn node_gone(self, bytes: usize) -> Self {
        Self { nodes: self.nodes - 1, bytes: self.bytes - bytes as isize, ..self }
    }

    /// Adds the removal of an entry whose leaf took `bytes`.
    pub(crate) fn entry_gone(self, bytes: usize) -> Self {
        Self { entries: self.entries - 1, bytes: self.bytes - bytes as isize, ..self }
    }
}

impl AddAssign for Growth {
    fn add_assign(&mut self, other: Self) {
        self.entries += other.entries;
        self.nodes += other.nodes;
        self.bytes += other.bytes;
    }
}

/// The counters of one thread.
#[derive(Default)]
struct Cell {
    entries: AtomicIsize,
    nodes: AtomicIsize,
    bytes: AtomicIsize,
}

/// The counters of all threads.
pub(crate) struct Tally {
    cells: PerThread<CachePadded<Cell>>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self { cells: PerThread::new() }
    }

    /// Adds to the calling thread's counters. Only the thread that holds the cell's slot writes the cell, so no
    /// read-modify-write is needed.
    #[inline]
    pub(crate) fn add(&self, growth: Growth) {
        let cell = self.cells.get_or(thread::slot().index, || CachePadded::new(Cell::default()));
        let add = |to: &AtomicIsize, change| to.store(to.load(Relaxed) + change, Relaxed);
        add(&cell.bytes, growth.bytes);
        if growth.entries != 0 {
            add(&cell.entries, growth.entries);
        }
        if growth.nodes != 0 {
            add(&cell.nodes, growth.nodes);
        }
    }

    /// Returns the number of entries. It is exact while no thread changes the structure. (Otherwise the sum may include
    /// the removal of an entry and not its insertion, which another thread counts.)
    pub(crate) fn entries(&self) -> usize {
        usize::try_from(self.sum().entries).unwrap_or(0)
    }

    /// Returns the sum of all counters. It is exact while no thread changes the structure.
    pub(crate) fn sum(&self) -> Growth {
        let mut sum = Growth::default();
        for cell in self.cells.iter() {
            let (entries, nodes) = (cell.entries.load(Relaxed), cell.nodes.load(Relaxed));
            sum += Growth { entries, nodes, bytes: cell.bytes.load(Relaxed) };
        }
        sum
    }
}

//! What a structure holds, counted by each thread for itself: no two threads write a line, and no counter is a locked
//! instruction.

use archipelago_platform::atomic::{AtomicIsize, Ordering::Relaxed};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::per_thread::PerThread;
use archipelago_platform::thread;
use core::ops::AddAssign;

/// By how much a structure has grown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) entries: isize,
    pub(crate) nodes: isize,
    pub(crate) bytes: isize,
}

impl Growth {
    /// By an entry whose leaf takes `bytes`.
    pub(crate) fn entry(bytes: usize) -> Self {
        Self { entries: 1, nodes: 0, bytes: bytes as isize }
    }

    /// And by a node.
    pub(crate) fn node(self, bytes: usize) -> Self {
        Self { nodes: self.nodes + 1, bytes: self.bytes + bytes as isize, ..self }
    }

    /// And by a node less.
    pub(crate) fn node_gone(self, bytes: usize) -> Self {
        Self { nodes: self.nodes - 1, bytes: self.bytes - bytes as isize, ..self }
    }

    /// And by an entry less, whose leaf took `bytes`.
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

/// One thread's share.
#[derive(Default)]
struct Cell {
    entries: AtomicIsize,
    nodes: AtomicIsize,
    bytes: AtomicIsize,
}

/// Everything.
pub(crate) struct Tally {
    cells: PerThread<CachePadded<Cell>>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self { cells: PerThread::new() }
    }

    /// Only the thread that has the cell's slot writes it, so no read-modify-write is needed.
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

    /// How many entries: exact while no thread changes it. (Otherwise it may come upon a removal before its insertion.)
    pub(crate) fn entries(&self) -> usize {
        usize::try_from(self.sum().entries).unwrap_or(0)
    }

    /// Everything: exact while no thread changes it.
    pub(crate) fn sum(&self) -> Growth {
        let mut sum = Growth::default();
        for cell in self.cells.iter() {
            let (entries, nodes) = (cell.entries.load(Relaxed), cell.nodes.load(Relaxed));
            sum += Growth { entries, nodes, bytes: cell.bytes.load(Relaxed) };
        }
        sum
    }
}

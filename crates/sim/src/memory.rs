//! The modelled memory system: which cache has which line in what state, and what an access costs.

use std::collections::HashMap;

use crate::machine::Machine;
use crate::report::Stats;

/// No line, no thread, no core.
pub(crate) const NONE: u32 = u32::MAX;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Load,
    /// Writes without waiting: the store buffer hides the latency. A sequentially consistent store is an
    /// [`Rmw`](Kind::Rmw).
    Store,
    /// Reads and writes in one step, and waits for both: locked instructions, sequentially consistent stores.
    Rmw,
}

impl Kind {
    pub(crate) fn writes(self) -> bool {
        self != Kind::Load
    }
}

/// Nanoseconds of the machine's description to the picoseconds of the model.
pub(crate) fn ps(ns: f64) -> u64 {
    (ns * 1000.0).round() as u64
}

pub(crate) struct Line {
    pub(crate) busy: u64,
    pub(crate) version: u32,
    pub(crate) watch: u32,
    pub(crate) queue_head: u32,
    pub(crate) queue_tail: u32,
    pub(crate) tx: u32,
    owner: u32,
    home: u8,
}

pub(crate) struct Memory {
    pub(crate) lines: Vec<Line>,
    table: HashMap<usize, u32>,
    homes: HashMap<usize, u8>,
    l1: u64,
    transfer: u64,
    pub(crate) stats: Stats,
}

/// What an access will take.
pub(crate) struct Cost {
    pub(crate) latency: u64,
    pub(crate) occupancy: u64,
}

impl Memory {
    pub(crate) fn new(machine: &Machine) -> Self {
        Memory {
            lines: Vec::new(),
            table: HashMap::new(),
            homes: HashMap::new(),
            l1: ps(machine.latency.l1),
            transfer: ps(machine.latency.core_to_core),
            stats: Stats::default(),
        }
    }

    /// The line that holds `addr`; a new one has its home on `socket` unless its page has another.
    pub(crate) fn line(&mut self, addr: usize, socket: usize) -> u32 {
        let fresh = self.lines.len() as u32;
        let line = *self.table.entry(addr >> 6).or_insert(fresh);
        if line == fresh {
            let home = *self.homes.entry(addr >> 12).or_insert(socket as u8);
            self.lines.push(Line {
                busy: 0,
                version: 0,
                watch: NONE,
                queue_head: NONE,
                queue_tail: NONE,
                tx: NONE,
                owner: NONE,
                home,
            });
        }
        line
    }

    /// Whether the core needs nobody's help for the access.
    pub(crate) fn private(&mut self, core: usize, line: u32) -> bool {
        self.lines[line as usize].owner == core as u32
    }

    pub(crate) fn access(&mut self, core: usize, line: u32, _kind: Kind) -> Cost {
        if self.private(core, line) {
            self.stats.l1_hits += 1;
            return Cost { latency: self.l1, occupancy: 0 };
        }
        self.lines[line as usize].owner = core as u32;
        self.stats.owned_local += 1;
        Cost { latency: self.transfer, occupancy: self.transfer * 7 / 10 }
    }

    pub(crate) fn set_home(&mut self, addr: usize, len: usize, node: usize) {
        for page in (addr >> 12)..=((addr + len.max(1) - 1) >> 12) {
            self.homes.insert(page, node as u8);
        }
    }

    pub(crate) fn forget(&mut self, addr: usize, len: usize) {
        for page in (addr >> 12)..((addr + len) >> 12) {
            self.homes.remove(&page);
        }
    }

    pub(crate) fn home(&self, line: u32) -> usize {
        usize::from(self.lines[line as usize].home)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + self.table.capacity() * 16
    }
}

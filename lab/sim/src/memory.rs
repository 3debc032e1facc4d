//! The modelled memory system: the caches that have each line, the line's state in them, and the cost of an access.
//!
//! Every line has one record. The record contains the core that has the line exclusively (modified or exclusive), the
//! cores with a valid copy, the sockets whose third-level cache can serve the line, and the line's home (the node whose
//! memory contains the line). Tags ([`tags`]) only model the capacity of caches; whether a copy is valid is in the
//! record. The states are those of MESI, with a clean forwarder per socket.
//!
//! An access happens in one step when its core is granted the line. Its cost depends on the source of the data, on the
//! copies that must be invalidated, and on the waits at links and memory controllers ([`traffic`]).

mod line;
mod stream;
mod table;
mod tags;
mod times;
mod traffic;

use crate::machine::{Cache, Machine};
use crate::report::Stats;
use line::{Cores, NOBODY, any};
pub(crate) use line::{Line, MAX_CORES, NONE};
use stream::Misses;
use table::Table;
use tags::{Tags, Used};
use times::Times;
pub(crate) use times::{Cost, ps};
use traffic::Traffic;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    /// Reads.
    Load,
    /// Writes without waiting: the store buffer hides the latency.
    Store,
    /// Reads and writes in one step, and waits for the result.
    Rmw,
}

impl AccessKind {
    pub(crate) fn writes(self) -> bool {
        self != AccessKind::Load
    }
}

pub(crate) struct Memory {
    pub(crate) lines: Vec<Line>,
    table: Table,
    l1: Tags,
    l2: Tags,
    l3: Tags,
    traffic: Traffic,
    misses: Vec<Misses>,
    times: Times,
    hops: Vec<u8>,
    /// The cores of each socket.
    members: Vec<Cores>,
    sockets: usize,
    per_socket: usize,
    inclusive: bool,
    buffers: usize,
    /// [`Machine::overlap`] in units of 1/256.
    overlap: u64,
    /// The number of lines that transactions have marked. `evicted` has the marked lines that caches evicted since the
    /// engine last emptied the list.
    pub(crate) marked: usize,
    pub(crate) evicted: Vec<Evicted>,
    pub(crate) stats: Stats,
}

/// A line that was marked by a transaction when a cache evicted it. The cache is a core's first level (`socket` is
/// `None`), a core's second level (both are given), or a socket's third level (`core` is `None`).
pub(crate) struct Evicted {
    pub(crate) line: u32,
    pub(crate) core: Option<usize>,
    pub(crate) socket: Option<usize>,
}

/// Returns the machine's overlap in units of 1/256.
fn overlap(machine: &Machine) -> u64 {
    (machine.overlap * 256.0) as u64
}

impl Memory {
    /// Makes the memory of `machine`. `timed` tells whether the costs of accesses will be needed.
    pub(crate) fn new(machine: &Machine, timed: bool) -> Self {
        let (sockets, per_socket) = (machine.sockets, machine.cores_per_socket);
        let members = |socket: usize| {
            let mut cores = [0; MAX_CORES / 64];
            (socket * per_socket..(socket + 1) * per_socket).for_each(|core| cores[core / 64] |= 1 << (core % 64));
            cores
        };
        // In schedules without time no cache is looked up, so the caches are as small as possible.
        let size = |cache: Cache| if timed { cache } else { Cache { sets: 1, ways: 1 } };
        Memory {
            lines: Vec::new(),
            table: Table::new(),
            l1: Tags::new(machine.cores(), size(machine.caches.l1), false),
            l2: Tags::new(machine.cores(), size(machine.caches.l2), false),
            l3: Tags::new(sockets, size(machine.caches.l3), true),
            traffic: Traffic::new(machine),
            misses: vec![Misses::default(); machine.cores()],
            times: Times::of(machine),
            hops: machine.hops.iter().flatten().copied().collect(),
            members: (0..sockets).map(members).collect(),
            sockets,
            per_socket,
            inclusive: machine.caches.l3_inclusive,
            buffers: machine.occupancy.miss_buffers,
            overlap: overlap(machine),
            marked: 0,
            evicted: Vec::new(),
            stats: Stats::default(),
        }
    }

    /// Changes the costs of further accesses to those of `machine`.
    pub(crate) fn retime(&mut self, machine: &Machine) {
        self.times = Times::of(machine);
        self.traffic.retime(machine);
        self.buffers = machine.occupancy.miss_buffers;
        self.overlap = overlap(machine);
    }

    /// Returns the line of `addr`. A new line has its home on `socket`, unless its page has another home.
    #[inline]
    pub(crate) fn line(&mut self, addr: usize, socket: usize) -> u32 {
        let found = self.table.line(addr, socket);
        if let Some(home) = found.fresh {
            self.add(Line::new(found.colour, home));
        }
        found.line
    }

    #[cold]
    fn add(&mut self, line: Line) {
        if self.lines.len() == self.lines.capacity() {
            self.lines.reserve(self.lines.len().max(64));
            let room = self.lines.spare_capacity_mut();
            use_huge_pages(room);
        }
        self.lines.push(line);
    }

    /// Called when an access to `addr` is expected at some later time. Brings the data for finding the line into the
    /// host's cache.
    #[inline]
    pub(crate) fn expect(&self, addr: usize) {
        self.table.prepare(addr);
    }

    /// Called when an access to `addr` is expected very soon. Brings the line's record and sets into the host's cache.
    #[inline]
    pub(crate) fn prepare(&self, addr: usize, core: usize, socket: usize) {
        let Some(found) = self.table.peek(addr) else { return };
        let record = &raw const self.lines[found.line as usize];
        host_prefetch(record);
        host_prefetch(record.cast::<u8>().wrapping_add(64));
        self.l1.prepare(core, found.colour);
        self.l2.prepare(core, found.colour);
        self.l3.prepare(socket, found.colour);
        // The word of the program itself is prefetched, too.
        host_prefetch(addr as *const u8);
    }

    /// Returns whether the core can make an access of this kind without another core or memory.
    #[inline]
    pub(crate) fn private(&self, core: usize, line: u32, kind: AccessKind) -> bool {
        let line = &self.lines[line as usize];
        if kind.writes() { line.owner == core as u16 } else { line.has(core) }
    }

    /// Makes an access that is [`private`](Self::private). Returns its latency.
    #[inline]
    pub(crate) fn hit(&mut self, core: usize, line: u32, kind: AccessKind) -> u64 {
        let record = &mut self.lines[line as usize];
        record.unsaved |= kind.writes();
        let colour = record.colour;
        if self.touch_first(core, line, colour) == Used::Hit {
            self.stats.l1_hits += 1;
            return self.times.l1;
        }
        self.stats.l2_hits += 1;
        self.l2.touch(core, line, colour);
        self.times.l2
    }

    /// Records that the core's first-level cache has the line from now on.
    #[inline]
    fn touch_first(&mut self, core: usize, line: u32, colour: u32) -> Used {
        if self.marked == 0 { self.l1.touch(core, line, colour) } else { self.touch_marked(core, line, colour) }
    }

    /// Does the same while transactions have marked lines. Then the order of evictions matters, so copies that are no
    /// longer valid are evicted first.
    #[cold]
    fn touch_marked(&mut self, core: usize, line: u32, colour: u32) -> Used {
        let (lines, used) = (&self.lines, &mut self.l1);
        let used = used.touch_around(core, line, colour, |way| lines[way as usize].has(core));
        if let Used::Pushed(old) = used {
            self.lost(old, Some(core), None);
        }
        used
    }

    /// Records that a cache lost a line.
    #[inline]
    fn lost(&mut self, line: u32, core: Option<usize>, socket: Option<usize>) {
        if self.marked > 0 && self.lines[line as usize].tx != NONE {
            self.evicted.push(Evicted { line, core, socket });
        }
    }

    /// Returns when this core's prefetch of the line arrives, if it has not arrived by `now`.
    #[inline]
    pub(crate) fn arrival(&mut self, core: usize, line: u32, now: u64) -> Option<u64> {
        let misses = &mut self.misses[core];
        if misses.in_flight() { misses.arrival(line, now) } else { None }
    }

    /// Makes an access that is not private, granted at `now`. `quiet` tells that the access did not wait in the line's
    /// queue, so that it may overlap with others of a stream. `addr` is the address of the access.
    pub(crate) fn miss(
        &mut self,
        core: usize,
        line: u32,
        kind: AccessKind,
        now: u64,
        quiet: bool,
        addr: usize,
    ) -> Cost {
        let socket = core / self.per_socket;
        self.traffic.at(now);
        let mut cost = self.fetch(core, socket, line, kind);
        if kind.writes() {
            self.take(core, socket, line, &mut cost);
        } else {
            self.share(core, socket, line);
        }
        self.fill(core, socket, line);
        let streams = self.overlaps() && kind != AccessKind::Rmw && self.misses[core].follow((addr >> 6) as u64);
        if streams && quiet {
            cost.latency = (cost.latency * 256 / self.overlap).max(self.times.l2);
        }
        cost
    }

    /// Finds the source of the data, and returns the cost of fetching from it.
    fn fetch(&mut self, core: usize, socket: usize, line: u32, kind: AccessKind) -> Cost {
        let record = &self.lines[line as usize];
        let (owner, shared, home, changed) = (record.owner, record.shared, usize::from(record.home), record.unsaved);
        let (part, hold) = (self.times.transfer, self.times.hold);
        let transfer = |latency: u64, remote| Cost { latency, occupancy: latency * part / 256 + hold, remote };
        if owner != NOBODY && usize::from(owner) != core {
            let from = usize::from(owner) / self.per_socket;
            if from == socket {
                self.stats.owned_local += 1;
                return transfer(self.times.core_to_core, false);
            }
            let time = self.take_from_cache(self.hops(socket, from), changed);
            return transfer(time + self.send(from, socket), true);
        }
        if record.has(core) {
            debug_assert!(kind.writes());
            self.stats.upgrades += 1;
            return transfer(self.times.l3, false);
        }
        let read = Cost { latency: self.times.l3, occupancy: self.times.shared_read, remote: false };
        if shared >> socket & 1 != 0 {
            self.stats.l3_hits += 1;
            return read;
        }
        if record.copied >> socket & 1 != 0 {
            self.stats.l3_hits += 1;
            return Cost { latency: self.times.core_to_core, ..read };
        }
        let nearest = record.holders().map(|from| (self.hops(socket, from), from)).min();
        // Only caches have the value of a changed line.
        let nearer = |hops: usize| self.times.clean_remote[hops] <= self.times.memory[self.hops(socket, home)];
        if let Some((hops, from)) = nearest.filter(|&(hops, _)| changed || nearer(hops)) {
            let latency = self.take_from_cache(hops, changed) + self.send(from, socket);
            if !kind.writes() {
                // Sockets share only data that memory has.
                self.write_back(from, line);
            }
            return Cost { latency, remote: true, ..read };
        }
        let (hops, waited) = (self.hops(socket, home), self.traffic.fetch(home, socket));
        if hops == 0 {
            self.stats.memory_local += 1;
        } else {
            self.stats.memory_remote += 1;
        }
        self.stats.link_wait_ps += waited;
        Cost { latency: self.times.memory[hops] + waited, remote: hops > 0, ..read }
    }

    /// Counts a fetch from another socket's cache, this many hops away. Returns its latency.
    fn take_from_cache(&mut self, hops: usize, changed: bool) -> u64 {
        if changed {
            self.stats.dirty_remote += 1;
            self.times.dirty_remote[hops]
        } else {
            self.stats.clean_remote += 1;
            self.times.clean_remote[hops]
        }
    }

    /// Gives the line to a writer: invalidates all other copies, which may take longer than fetching the data.
    fn take(&mut self, core: usize, socket: usize, line: u32, cost: &mut Cost) {
        let record = &self.lines[line as usize];
        let (mut last, source) = (0, record.owner);
        for holder in record.holders() {
            if holder != socket {
                let mut time = self.times.clean_remote[self.hops(socket, holder)];
                // The core that sent the data has given up its copy.
                if source == NOBODY || usize::from(source) / self.per_socket != holder {
                    time += self.traffic.invalidate(socket, holder);
                    self.stats.invalidations += 1;
                }
                last = last.max(time);
            } else if record.copied >> socket & 1 != 0 {
                let mut others = record.copies;
                others[core / 64] &= !(1 << (core % 64));
                if any(&others, &self.members[socket]) {
                    last = last.max(self.times.core_to_core);
                }
            }
        }
        if last > 0 {
            cost.latency = cost.latency.max(last);
            cost.occupancy = cost.occupancy.max(last * self.times.transfer / 256 + self.times.hold);
        }
        let record = &mut self.lines[line as usize];
        (record.copies, record.copied) = ([0; MAX_CORES / 64], 0);
        record.add(core, socket);
        (record.owner, record.shared, record.unsaved) = (core as u16, 0, true);
    }

    /// Gives a reader a copy. The copy is exclusive if no other core and no other socket's third level has one, and no
    /// transaction must notice later writes.
    fn share(&mut self, core: usize, socket: usize, line: u32) {
        let record = &mut self.lines[line as usize];
        if record.owner != NOBODY {
            let from = usize::from(record.owner) / self.per_socket;
            record.owner = NOBODY;
            record.shared |= 1 << from | 1 << socket;
            let colour = record.colour;
            if from != socket {
                // Sockets share only data that memory has.
                self.write_back(from, line);
            }
            self.keep(from, line, colour);
        } else if record.copied == 0 && record.shared & !(1 << socket) == 0 && record.tx == NONE {
            record.owner = core as u16;
        }
        self.lines[line as usize].add(core, socket);
    }

    /// Puts the line into the core's caches.
    fn fill(&mut self, core: usize, socket: usize, line: u32) {
        let colour = self.lines[line as usize].colour;
        self.touch_first(core, line, colour);
        if let Used::Pushed(old) = self.l2.touch(core, line, colour) {
            self.pushed_out(core, socket, old);
        }
        let record = &mut self.lines[line as usize];
        if self.inclusive || record.owner == NOBODY {
            if record.owner == NOBODY {
                record.shared |= 1 << socket;
            }
            self.keep(socket, line, colour);
        }
    }

    /// Records that a core's second-level cache evicted a line. The third level gets the line.
    fn pushed_out(&mut self, core: usize, socket: usize, line: u32) {
        if !self.inclusive {
            self.lost(line, Some(core), Some(socket));
        }
        let record = &mut self.lines[line as usize];
        if !record.has(core) {
            return;
        }
        record.remove(core, socket, &self.members[socket]);
        if record.owner == core as u16 {
            record.owner = NOBODY;
        }
        record.shared |= 1 << socket;
        let colour = record.colour;
        self.keep(socket, line, colour);
    }

    /// Adds the line to the socket's third-level cache, which evicts another line if necessary.
    fn keep(&mut self, socket: usize, line: u32, colour: u32) {
        let Used::Pushed(old) = self.l3.touch(socket, line, colour) else { return };
        if self.inclusive {
            self.lost(old, None, Some(socket));
        }
        let record = &mut self.lines[old as usize];
        record.shared &= !(1 << socket);
        if self.inclusive {
            for (copies, members) in record.copies.iter_mut().zip(&self.members[socket]) {
                *copies &= !members;
            }
            record.copied &= !(1 << socket);
            if record.owner != NOBODY && usize::from(record.owner) / self.per_socket == socket {
                record.owner = NOBODY;
            }
        }
        if record.shared | record.copied == 0 {
            self.write_back(socket, old);
        }
    }

    /// Writes a socket's copy of a line to memory, if the copy is newer.
    fn write_back(&mut self, socket: usize, line: u32) {
        let record = &mut self.lines[line as usize];
        if std::mem::take(&mut record.unsaved) {
            self.traffic.write_back(socket, usize::from(record.home));
            self.stats.write_backs += 1;
        }
    }

    #[inline]
    fn hops(&self, a: usize, b: usize) -> usize {
        usize::from(self.hops[a * self.sockets + b])
    }

    fn send(&mut self, from: usize, to: usize) -> u64 {
        let waited = self.traffic.send(from, to);
        self.stats.link_wait_ps += waited;
        waited
    }

    /// Starts fetching a line that is not private, at `now`, and returns the cost. Drops the prefetch if none of the
    /// core's miss buffers is free.
    pub(crate) fn prefetch(&mut self, core: usize, line: u32, now: u64, addr: usize) -> Option<Cost> {
        if !self.misses[core].room(self.buffers, now) {
            self.stats.prefetches_dropped += 1;
            return None;
        }
        let cost = self.miss(core, line, AccessKind::Load, now, false, addr);
        self.lines[line as usize].busy = now + cost.occupancy;
        self.misses[core].depart(line, now + cost.latency);
        self.stats.prefetches += 1;
        Some(cost)
    }

    /// Returns the socket of the core that has the line exclusively.
    pub(crate) fn owner_socket(&self, line: u32) -> Option<usize> {
        let owner = self.lines[line as usize].owner;
        (owner != NOBODY).then(|| usize::from(owner) / self.per_socket)
    }

    /// Returns how long the notice of a change takes from one socket to another: half of a transfer.
    pub(crate) fn notice(&self, from: usize, to: usize) -> u64 {
        let hops = self.hops(from, to);
        if hops == 0 { self.times.core_to_core / 2 } else { self.times.clean_remote[hops] / 2 }
    }

    /// Returns the greatest total latency of the stores that a core can have outstanding.
    pub(crate) fn store_slack(&self) -> u64 {
        self.buffers as u64 * self.times.memory[0]
    }

    /// Returns the longest time that an access of one of `threads` threads can take: the slowest latency, after all
    /// unfinished requests of these threads. Each thread has at most as many outstanding misses as it has buffers, and
    /// stores that fit into the store buffer. Each of these requests sends at most three more lines: a copy of the
    /// answer to memory, and evictions from two caches.
    pub(crate) fn longest_access(&self, threads: usize) -> u64 {
        let buffered = self.store_slack() + (self.buffers as u64 + 1) * self.traffic.longest_service();
        self.times.slowest() + 4 * threads as u64 * buffered
    }

    /// Returns whether misses overlap.
    pub(crate) fn overlaps(&self) -> bool {
        self.overlap > 256
    }

    /// Sets the home of a memory range. If `home` is `None`, removes the home of the pages; lines that were accessed
    /// keep their home.
    pub(crate) fn place(&mut self, addr: usize, len: usize, home: Option<usize>) {
        let lines = &mut self.lines;
        self.table.place(addr, len, home, |line| {
            if let Some(home) = home {
                lines[line as usize].home = home as u8;
            }
        });
    }

    /// Records that the pages of a range have no memory, except pages that were accessed before.
    pub(crate) fn unmap(&mut self, addr: usize, len: usize) {
        self.table.unmap(addr, len);
    }

    /// Returns whether the page of `addr` has no memory until it is accessed outside of a transaction.
    pub(crate) fn unmapped(&self, addr: usize) -> bool {
        self.table.unmapped(addr)
    }

    /// Returns the number that determines the line's set in a cache.
    pub(crate) fn colour(&self, line: u32) -> u32 {
        self.lines[line as usize].colour
    }

    /// Returns the addresses of these lines.
    pub(crate) fn addresses(&self, lines: &[u32]) -> Vec<usize> {
        self.table.addresses(lines)
    }

    /// Returns the home node of an address, if its page has one.
    pub(crate) fn home_of(&self, addr: usize) -> Option<usize> {
        self.table.home_of(addr)
    }

    /// Puts the lines of a range into a socket's third-level cache, as clean lines, as after a long warm-up.
    pub(crate) fn warm(&mut self, addr: usize, len: usize, socket: usize) {
        for addr in (addr & !63..addr + len.max(1)).step_by(64) {
            let line = self.line(addr, socket);
            let record = &mut self.lines[line as usize];
            record.shared |= 1 << socket;
            let colour = record.colour;
            self.keep(socket, line, colour);
        }
    }

    /// Does the same as [`warm`](Self::warm) for all lines that exist so far.
    pub(crate) fn warm_all(&mut self, socket: usize) {
        for line in 0..self.lines.len() as u32 {
            let record = &mut self.lines[line as usize];
            record.shared |= 1 << socket;
            let colour = record.colour;
            self.keep(socket, line, colour);
        }
    }

    /// Puts every line that exists so far into the third-level cache of its home, as if a thread of that node had
    /// accessed it.
    pub(crate) fn warm_homes(&mut self) {
        for line in 0..self.lines.len() as u32 {
            let record = &mut self.lines[line as usize];
            let (colour, home) = (record.colour, usize::from(record.home));
            record.shared |= 1 << home;
            self.keep(home, line, colour);
        }
    }

    /// Returns the `count` lines for which threads waited longest: the address and the time.
    pub(crate) fn hottest(&self, count: usize) -> Vec<(usize, u64)> {
        let waited = |line: u32| self.lines[line as usize].waited;
        let mut lines: Vec<u32> = (0..self.lines.len() as u32).filter(|&line| waited(line) > 0).collect();
        lines.sort_by_key(|&line| (std::cmp::Reverse(waited(line)), line));
        lines.truncate(count);
        self.table.addresses(&lines).into_iter().zip(lines.iter().map(|&line| waited(line))).collect()
    }

    /// Returns the bytes of the model that grow with the memory that the program accesses.
    pub(crate) fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + self.table.bytes()
    }
}

/// Brings a line into the real machine's cache, on x86-64.
#[inline]
pub(crate) fn host_prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and changes nothing that a program can see.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks the operating system for huge pages for a large array, which the model accesses at random.
pub(crate) fn use_huge_pages<T>(array: &[T]) {
    let bytes = size_of_val(array);
    #[cfg(target_os = "linux")]
    if bytes >= 4 << 20 {
        let start = array.as_ptr().addr().next_multiple_of(4096);
        // SAFETY: the range is whole pages inside the array; the advice changes no contents.
        unsafe { libc::madvise(start as *mut libc::c_void, bytes - 4096, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
}

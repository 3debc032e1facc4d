//! Hardware transactions of the modelled machine: they have read and write sets of lines, the requester wins a
//! conflict, and they are strongly atomic.
//!
//! Writes are made to memory at once, and the old bytes are stored in an undo log. If another thread accesses a line of
//! the write set, or writes a line of the read set, it first *dooms* the transaction, which can then only abort. The
//! log is played back at once, so no thread ever sees an uncommitted value. The doomed thread notices at its next
//! access.
//!
//! # Invariants
//! - A line is marked while it is in a set of an open transaction that is not doomed. Before a thread loads or writes a
//!   marked line, it checks for conflicts ([`Engine::tx_conflict`]).
//! - A line that a transaction wrote is in its core's first-level cache. A line that a transaction read is in a cache
//!   that is notified of other cores' writes: the third level if it is inclusive, otherwise the second. These caches
//!   also serve plain accesses, and accesses of the core's other hardware threads. The eviction of such a line dooms
//!   the transaction ([`Engine::tx_evicted`]). Schedules without time model no caches; in these schedules the number of
//!   written lines must fit the first level's sets.
//! - Each transaction that began has committed, is counted in exactly one of the counts of aborts, or is open.

use core::panic::Location;
use std::collections::BTreeMap;

use super::Engine;
use crate::memory::{AccessKind, Evicted, NONE};
use crate::report::{TxCounts, TxLine, TxSite};
use crate::rng;

/// The greatest nesting depth of transactions (`MAX_RTM_NEST_COUNT`). Measured on a Sapphire Rapids guest: the eighth
/// level aborts, and the status says only that the transaction was nested.
const NESTED: u32 = 7;

/// Why a transaction aborted: the status word of Intel's RTM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort(pub u32);

impl Abort {
    /// The program aborted the transaction with [`code`](Abort::code).
    pub const EXPLICIT: u32 = 1;
    /// A new attempt may succeed.
    pub const RETRY: u32 = 1 << 1;
    /// Another thread accessed the transaction's lines.
    pub const CONFLICT: u32 = 1 << 2;
    /// The transaction's lines did not fit.
    pub const CAPACITY: u32 = 1 << 3;
    /// The abort happened inside a nested transaction.
    pub const NESTED: u32 = 1 << 5;

    /// Returns the program's own reason, if the program aborted the transaction.
    pub fn code(self) -> Option<u8> {
        (self.0 & Abort::EXPLICIT != 0).then_some((self.0 >> 24) as u8)
    }

    /// Returns whether another thread accessed the transaction's lines.
    pub fn is_conflict(self) -> bool {
        self.0 & Abort::CONFLICT != 0
    }

    /// Returns whether the transaction's lines did not fit.
    pub fn is_capacity(self) -> bool {
        self.0 & Abort::CAPACITY != 0
    }

    /// Returns whether a new attempt may succeed.
    pub fn may_retry(self) -> bool {
        self.0 & Abort::RETRY != 0
    }

    pub(crate) fn explicit(code: u8) -> Abort {
        Abort(Abort::EXPLICIT | u32::from(code) << 24)
    }
}

/// Bytes that a transaction has overwritten.
#[derive(Clone, Copy)]
pub(crate) struct Old {
    pub(crate) addr: usize,
    size: usize,
    bytes: [u8; 16],
}

impl Old {
    /// Saves `size` bytes at `addr`, at most 16.
    ///
    /// # Safety
    /// The `size` bytes at `addr` are readable, and no other OS thread writes them.
    pub(crate) unsafe fn save(addr: usize, size: usize) -> Old {
        let mut old = Old { addr, size: size.min(16), bytes: [0; 16] };
        // SAFETY: the caller's promise; at most 16 bytes.
        unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, old.bytes.as_mut_ptr(), old.size) };
        old
    }

    /// Writes the saved bytes back.
    ///
    /// # Safety
    /// The bytes are still writable memory of the same atomic, and no other OS thread accesses them.
    pub(crate) unsafe fn restore(&self) {
        // SAFETY: the caller's promise; at most 16 bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), self.addr as *mut u8, self.size) };
    }
}

/// Saves the present bytes of a range, in pieces.
///
/// # Safety
/// As [`Old::save`].
pub(crate) unsafe fn save_range(log: &mut Vec<Old>, addr: usize, len: usize) {
    let pieces = (addr..addr + len).step_by(16);
    // SAFETY: the caller's promise.
    log.extend(pieces.map(|at| unsafe { Old::save(at, (addr + len - at).min(16)) }));
}

/// The cause that dooms a transaction.
#[derive(Clone, Copy)]
pub(crate) enum Cause {
    /// Another thread accessed this line.
    Conflict(u32),
    /// A line did not fit.
    Capacity,
    /// The program aborted the transaction, with this code.
    Explicit(u8),
    /// An interrupt of the CPU's timer, or a stall.
    Interrupt,
    /// The first access to a page.
    Fault,
    /// The transaction waited or entered the kernel.
    Forbidden,
    /// A cause that is not visible to the program.
    Spurious,
}

impl Cause {
    fn status(self) -> u32 {
        match self {
            Cause::Conflict(_) => Abort::CONFLICT | Abort::RETRY,
            Cause::Capacity => Abort::CAPACITY,
            Cause::Explicit(code) => Abort::explicit(code).0,
            Cause::Interrupt | Cause::Fault | Cause::Forbidden | Cause::Spurious => 0,
        }
    }
}

/// A thread's transaction.
#[derive(Default)]
pub(crate) struct Tx {
    pub(crate) doomed: Option<Abort>,
    /// Whether a doomed transaction leaves its body by unwinding.
    pub(crate) unwinds: bool,
    reads: Vec<u32>,
    writes: Vec<u32>,
    /// In schedules without time: the number of lines written in each set of the first-level cache.
    sets: Vec<u8>,
    undo: Vec<Old>,
    /// The old bytes of memory that the doomed body overwrites with announced plain writes. They are restored before
    /// another thread runs.
    stray: Vec<Old>,
    /// The number of accesses until an abort that a fault has planned. If the transaction ends earlier, it aborts at
    /// its end.
    fuse: Option<u64>,
    /// The time of the transaction's begin. Below, `tick` is the time of the next timer interrupt, and `bolt` is the
    /// time of the next spurious abort.
    begun: u64,
    /// A copy of the stack above the caller of the outermost transaction, and the copy's address on the stack, until
    /// the transaction ends.
    stack: Vec<u8>,
    stack_from: usize,
    /// Addresses and lengths of other threads' later writes to this part of the stack.
    foreign: Vec<(usize, usize)>,
    /// Whether the thread was panicking when the transaction began, that is, whether a destructor began it.
    pub(crate) panicking: bool,
    /// `true` if the thread called [`begin`](crate::world::htm::begin); `false` if it passed a closure.
    pub(crate) by_hand: bool,
    tick: u64,
    bolt: u64,
    site: usize,
    /// The number of accesses in the turn of a spin loop before the transaction.
    seen_before: usize,
}

/// The transactions that have a line in a set.
pub(crate) struct Mark {
    writer: u32,
    readers: Vec<u32>,
}

/// All marks. The field `tx` of a line is an index here.
#[derive(Default)]
pub(crate) struct Marks {
    marks: Vec<Mark>,
    free: Vec<u32>,
}

impl Marks {
    /// Returns whether no line is in the sets of a transaction.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.marks.len() == self.free.len()
    }
}

/// Counts of transactions by the place at which they begin.
#[derive(Default)]
pub(crate) struct Sites {
    sites: Vec<Site>,
    /// Aborts by conflicts, by line.
    lines: BTreeMap<u32, u64>,
}

struct Site {
    place: &'static Location<'static>,
    counts: TxCounts,
    codes: BTreeMap<u8, u64>,
}

impl Sites {
    fn of(&mut self, place: &'static Location<'static>) -> usize {
        self.sites.iter().position(|site| site.place == place).unwrap_or_else(|| {
            self.sites.push(Site { place, counts: TxCounts::default(), codes: BTreeMap::new() });
            self.sites.len() - 1
        })
    }
}

impl Engine {
    /// Begins a transaction of the running thread.
    pub(crate) fn tx_begin(&mut self, unwinds: bool, place: &'static Location<'static>) {
        let (fault, period, mean) = (self.costs.tx_fault, self.costs.tx_timer, self.costs.tx_spurious);
        self.threads[self.current].tx_depth = 1;
        self.forget_repeated();
        self.drain_stores();
        let (site, timed) = (self.sites.of(place), self.timed());
        self.sites.sites[site].counts.begun += 1;
        self.memory.stats.tx_begun += 1;
        let thread = &mut self.threads[self.current];
        let (tx, now) = (&mut thread.tx, thread.clock);
        (tx.unwinds, tx.doomed, tx.site, tx.begun) = (unwinds, None, site, now);
        (tx.by_hand, tx.panicking) = (!unwinds, std::thread::panicking());
        tx.seen_before = thread.seen_count;
        tx.sets.clear();
        tx.sets.resize(if timed { 0 } else { self.costs.l1_sets }, 0);
        let planned = rng::chance(&mut thread.rng, fault);
        tx.fuse = planned.then(|| rng::below(&mut thread.rng, 8));
        // The timer of every CPU has a phase of its own.
        let phase = (thread.cpu as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) % period.max(1);
        tx.tick = (now + phase).checked_div(period).map_or(u64::MAX, |ticks| (ticks + 1) * period - phase);
        // A transaction of length t is aborted with probability t / mean.
        tx.bolt = if mean == 0 { u64::MAX } else { now + rng::below(&mut thread.rng, mean) };
        if !timed {
            (tx.tick, tx.bolt) = (u64::MAX, u64::MAX);
        }
        self.advance(self.costs.tx_begin);
    }

    /// Nests a transaction. If the nesting is too deep, all levels are doomed. Returns whether the unwinding of a
    /// doomed transaction stops at this level. It stops here if this level's body leaves by unwinding, the outermost
    /// transaction was begun explicitly and is not doomed yet, and no enclosing level stops the unwinding.
    pub(crate) fn tx_nest(&mut self, unwinds: bool) -> bool {
        let thread = &mut self.threads[self.current];
        thread.tx_depth += 1;
        let first = unwinds && thread.tx.by_hand && !thread.tx.unwinds && thread.tx.doomed.is_none();
        thread.tx.unwinds |= first;
        if thread.tx_depth > NESTED {
            self.tx_doom(self.current, Cause::Forbidden);
        }
        first
    }

    /// Called before the running thread's outermost transaction commits. Waits for the transaction's stores, while the
    /// lines are still in its sets. A commit has the memory order of a locked instruction (Intel SDM, volume 1, "RTM
    /// Memory Ordering").
    pub(crate) fn tx_drain(&mut self) {
        let thread = &self.threads[self.current];
        if thread.tx_depth == 1 && thread.tx.doomed.is_none() {
            self.drain_stores();
        }
    }

    /// Ends the running thread's innermost transaction. If it is also the outermost, it commits, or the call returns
    /// why it did not.
    pub(crate) fn tx_end(&mut self) -> Result<(), Abort> {
        let me = self.current;
        if self.threads[me].tx_depth > 1 {
            self.threads[me].tx_depth -= 1;
            return Ok(());
        }
        self.tx_strike();
        if self.threads[me].tx.fuse.take().is_some() {
            self.tx_doom(me, Cause::Spurious);
        }
        self.tx_sweep();
        // A spin loop does not wait for changes of the lines that the transaction loaded. It may wait for lines that
        // were loaded before the transaction, and must not miss a change of these lines.
        let before = self.threads[me].tx.seen_before;
        (self.threads[me].tx_depth, self.threads[me].seen_count) = (0, before);
        if let Some(why) = self.threads[me].tx.doomed.take() {
            self.advance(self.costs.tx_abort);
            let thread = &self.threads[me];
            let wasted = thread.clock.saturating_sub(thread.tx.begun);
            self.memory.stats.tx_wasted_ps += wasted;
            self.sites.sites[thread.tx.site].counts.wasted_ps += wasted;
            return Err(why);
        }
        self.tx_forget_stack();
        self.memory.stats.tx_committed += 1;
        self.sites.sites[self.threads[me].tx.site].counts.committed += 1;
        self.tx_clear(me);
        let undo = std::mem::take(&mut self.threads[me].tx.undo);
        for old in &undo {
            let line = self.memory.line(old.addr, 0);
            self.value_changed(line);
        }
        self.threads[me].tx.undo = undo;
        self.threads[me].tx.undo.clear();
        self.advance(self.costs.tx_commit);
        Ok(())
    }

    /// Aborts a thread's transaction. When this returns, the transaction's writes are undone.
    pub(crate) fn tx_doom(&mut self, victim: usize, why: Cause) {
        let depth = self.threads[victim].tx_depth;
        let tx = &mut self.threads[victim].tx;
        if depth == 0 || tx.doomed.is_some() {
            return;
        }
        let nested = if depth > 1 { Abort::NESTED } else { 0 };
        tx.doomed = Some(Abort(why.status() | nested));
        for old in tx.undo.drain(..).rev() {
            // SAFETY: the transaction wrote this memory through `world`, all simulated threads share this OS thread,
            // and by the contract of `world`, memory that an open transaction wrote is not freed.
            unsafe { old.restore() };
        }
        let site = tx.site;
        self.tx_clear(victim);
        self.tx_count(site, why);
    }

    fn tx_count(&mut self, site: usize, why: Cause) {
        let (stats, site) = (&mut self.memory.stats, &mut self.sites.sites[site]);
        let counts = &mut site.counts;
        let (all, here) = match why {
            Cause::Conflict(line) => {
                *self.sites.lines.entry(line).or_default() += 1;
                (&mut stats.tx_conflicts, &mut counts.conflicts)
            }
            Cause::Capacity => (&mut stats.tx_capacity, &mut counts.capacity),
            Cause::Explicit(code) => {
                *site.codes.entry(code).or_default() += 1;
                (&mut stats.tx_explicit, &mut counts.explicit)
            }
            Cause::Interrupt => (&mut stats.tx_interrupts, &mut counts.interrupts),
            Cause::Fault => (&mut stats.tx_faults, &mut counts.faults),
            Cause::Forbidden => (&mut stats.tx_forbidden, &mut counts.forbidden),
            Cause::Spurious => (&mut stats.tx_spurious, &mut counts.spurious),
        };
        *all += 1;
        *here += 1;
    }

    /// Dooms the running thread's transaction if a timer interrupt or a spurious abort has happened since the
    /// transaction began.
    #[inline]
    fn tx_strike(&mut self) {
        let thread = &self.threads[self.current];
        let (now, tick, bolt) = (thread.clock, thread.tx.tick, thread.tx.bolt);
        if now >= tick.min(bolt) {
            self.tx_doom(self.current, if tick <= bolt { Cause::Interrupt } else { Cause::Spurious });
        }
    }

    /// Dooms the transactions of other threads with which an access to `line` conflicts.
    #[inline]
    pub(crate) fn tx_conflict(&mut self, line: u32, kind: AccessKind) {
        let mark = self.memory.lines[line as usize].tx;
        if mark != NONE {
            self.tx_doom_others(line, mark, kind);
        }
    }

    #[cold]
    fn tx_doom_others(&mut self, line: u32, mark: u32, kind: AccessKind) {
        let mark = &self.marks.marks[mark as usize];
        let (me, writer) = (self.current as u32, mark.writer);
        let readers = if kind.writes() { mark.readers.clone() } else { Vec::new() };
        for victim in readers.into_iter().chain([writer]) {
            if victim != NONE && victim != me {
                self.tx_doom(victim as usize, Cause::Conflict(line));
            }
        }
    }

    /// Adds an access of the running thread's transaction to its sets. Returns false if the transaction is doomed now.
    pub(crate) fn tx_track(&mut self, line: u32, addr: usize, size: usize, kind: AccessKind) -> bool {
        let me = self.current;
        self.tx_strike();
        match &mut self.threads[me].tx.fuse {
            Some(0) => {
                self.threads[me].tx.fuse = None;
                self.tx_doom(me, Cause::Spurious);
            }
            Some(fuse) => *fuse -= 1,
            None => {}
        }
        if self.threads[me].tx.doomed.is_some() {
            return false;
        }
        let fits = if kind.writes() { self.tx_writes(line, addr, size) } else { self.tx_reads(line) };
        if !fits {
            self.tx_doom(me, Cause::Capacity);
        }
        fits
    }

    /// Adds a written line. Returns whether it fits.
    fn tx_writes(&mut self, line: u32, addr: usize, size: usize) -> bool {
        let (me, mark) = (self.current, self.mark_of(line) as usize);
        let mark = &mut self.marks.marks[mark];
        let tx = &mut self.threads[me].tx;
        // SAFETY: the caller of `world` is about to access this memory, and all simulated threads share this OS
        // thread.
        unsafe { save_range(&mut tx.undo, addr, size) };
        if mark.writer == me as u32 {
            return true;
        }
        mark.writer = me as u32;
        tx.writes.push(line);
        let mut fits = tx.writes.len() <= self.costs.tx_write_lines;
        if !tx.sets.is_empty() {
            let set = self.memory.colour(line) as usize % tx.sets.len();
            tx.sets[set] += 1;
            fits &= usize::from(tx.sets[set]) <= self.costs.l1_ways;
        }
        // Threads that spin on the line have lost their copies, and load the line again.
        if self.memory.lines[line as usize].watch != NONE {
            self.wake_watchers(line);
        }
        fits
    }

    /// Adds a read line. Returns whether it fits.
    fn tx_reads(&mut self, line: u32) -> bool {
        let (me, mark) = (self.current, self.mark_of(line) as usize);
        let (mark, tx) = (&mut self.marks.marks[mark], &mut self.threads[me].tx);
        if mark.readers.contains(&(me as u32)) {
            return true;
        }
        mark.readers.push(me as u32);
        tx.reads.push(line);
        tx.reads.len() <= self.costs.tx_read_lines
    }

    /// Dooms the transactions whose lines were evicted, by the running thread's access, from the caches that track
    /// them.
    #[cold]
    pub(super) fn tx_evicted(&mut self) {
        while let Some(Evicted { line, core, socket }) = self.memory.evicted.pop() {
            let mark = self.memory.lines[line as usize].tx;
            if mark == NONE {
                continue;
            }
            let mark = &self.marks.marks[mark as usize];
            // Written lines are lost with the first level, read lines with a later level.
            let victims = match core {
                Some(core) if socket.is_none() => vec![(mark.writer, Some(core))],
                _ => mark.readers.iter().map(|&reader| (reader, core)).collect(),
            };
            for (victim, core) in victims.into_iter().filter(|victim| victim.0 != NONE) {
                let thread = &self.threads[victim as usize];
                if core.is_none_or(|core| thread.core == core) && socket.is_none_or(|socket| thread.socket == socket) {
                    self.tx_doom(victim as usize, Cause::Capacity);
                }
            }
        }
    }

    /// Called before another thread runs. Undoes what the running thread's doomed transaction has written since it was
    /// doomed.
    #[inline]
    pub(crate) fn tx_sweep(&mut self) {
        if self.threads[self.current].tx_depth == 0 {
            return;
        }
        for old in self.threads[self.current].tx.stray.drain(..).rev() {
            // SAFETY: the program announced that it writes this memory, as in `tx_doom`.
            unsafe { old.restore() };
        }
    }

    /// Called before the running thread's doomed transaction writes to this memory. Saves the old bytes.
    pub(crate) fn tx_stray(&mut self, addr: usize, len: usize) {
        // SAFETY: the program announces that it writes this memory; all simulated threads share this OS thread.
        unsafe { save_range(&mut self.threads[self.current].tx.stray, addr, len) };
    }

    /// Copies the running thread's stack from `frame` on, which contains the frames of its callers, if the transaction
    /// is the outermost.
    pub(crate) fn tx_save_stack(&mut self, frame: usize) {
        let thread = &mut self.threads[self.current];
        if thread.tx_depth == 1 && frame < thread.stack_base {
            // SAFETY: the range contains the frames of suspended callers, up to the beginning of the running thread's
            // stack.
            let above = unsafe { core::slice::from_raw_parts(frame as *const u8, thread.stack_base - frame) };
            thread.tx.stack.clear();
            thread.tx.stack.extend_from_slice(above);
            thread.tx.stack_from = frame;
            self.saved_stacks += 1;
        }
    }

    /// Undoes what an aborted transaction wrote on the stack: its captured locals. Other threads' writes to the stack
    /// are kept. Words that the transaction itself wrote as shared memory have been undone already.
    pub(crate) fn tx_restore_stack(&mut self, frame: usize) {
        let thread = &mut self.threads[self.current];
        if thread.tx_depth > 0 || thread.tx.stack_from != frame {
            return;
        }
        let tx = &mut thread.tx;
        for &(at, len) in &tx.foreign {
            let (from, to) = (at.max(frame) - frame, (at + len).min(frame + tx.stack.len()) - frame);
            // SAFETY: the range is within the frames of suspended callers, as in `tx_save_stack`.
            let now = unsafe { core::slice::from_raw_parts((frame + from) as *const u8, to - from) };
            tx.stack[from..to].copy_from_slice(now);
        }
        // SAFETY: as in `tx_save_stack`. The callers' frames are as large as they were then; only the transaction's
        // body has run in them between the transaction's begin and end.
        unsafe { core::ptr::copy_nonoverlapping(tx.stack.as_ptr(), frame as *mut u8, tx.stack.len()) };
        self.tx_forget_stack();
    }

    fn tx_forget_stack(&mut self) {
        let tx = &mut self.threads[self.current].tx;
        if core::mem::take(&mut tx.stack_from) != 0 {
            tx.foreign.clear();
            self.saved_stacks -= 1;
        }
    }

    /// Called when the running thread writes to an address while copies of stacks exist: the address may be on another
    /// thread's stack.
    #[cold]
    pub(super) fn tx_wrote(&mut self, addr: usize, size: usize) {
        if self.arena.as_ref().is_some_and(|arena| arena.span().contains(&addr)) {
            return;
        }
        for (id, thread) in self.threads.iter_mut().enumerate() {
            let (from, to) = (thread.tx.stack_from, thread.tx.stack_from + thread.tx.stack.len());
            if id != self.current && from != 0 && addr < to && addr + size > from {
                thread.tx.foreign.push((addr, size));
            }
        }
    }

    fn mark_of(&mut self, line: u32) -> u32 {
        let slot = &mut self.memory.lines[line as usize].tx;
        if *slot == NONE {
            self.memory.marked += 1;
            *slot = self.marks.free.pop().unwrap_or_else(|| {
                self.marks.marks.push(Mark { writer: NONE, readers: Vec::new() });
                self.marks.marks.len() as u32 - 1
            });
        }
        *slot
    }

    /// Removes a thread's marks from all lines.
    fn tx_clear(&mut self, thread: usize) {
        let tx = &mut self.threads[thread].tx;
        for line in tx.reads.drain(..).chain(tx.writes.drain(..)) {
            let slot = &mut self.memory.lines[line as usize].tx;
            if *slot == NONE {
                continue;
            }
            let mark = &mut self.marks.marks[*slot as usize];
            mark.readers.retain(|&reader| reader != thread as u32);
            if mark.writer == thread as u32 {
                mark.writer = NONE;
            }
            if mark.writer == NONE && mark.readers.is_empty() {
                self.memory.marked -= 1;
                self.marks.free.push(std::mem::replace(slot, NONE));
            }
        }
    }

    /// Returns the outcomes of the transactions, by the place where they begin.
    pub(crate) fn tx_sites(&self) -> Vec<TxSite> {
        let site = |site: &Site| TxSite {
            file: site.place.file().into(),
            line: site.place.line(),
            counts: site.counts,
            codes: site.codes.iter().map(|(&code, &count)| (code, count)).collect(),
        };
        let mut sites: Vec<TxSite> = self.sites.sites.iter().map(site).collect();
        sites.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        sites
    }

    /// Returns the `count` lines with the most conflicts.
    pub(crate) fn tx_lines(&self, count: usize) -> Vec<TxLine> {
        let mut lines: Vec<(u32, u64)> = self.sites.lines.iter().map(|(&line, &aborts)| (line, aborts)).collect();
        lines.sort_by_key(|&(line, aborts)| (std::cmp::Reverse(aborts), line));
        lines.truncate(count);
        let numbers: Vec<u32> = lines.iter().map(|line| line.0).collect();
        let addrs = self.memory.addresses(&numbers).into_iter();
        let line = |(addr, (_, aborts)): (usize, (u32, u64))| TxLine { label: self.label_of(addr), addr, aborts };
        addrs.zip(lines).map(line).collect()
    }
}

//! Hardware transactions of the modelled machine: read and write sets by line, requester wins, strong atomicity.
//!
//! Writes go to memory at once, and their old bytes into an undo log. Whatever touches a line of the write set, or
//! writes a line of the read set, first dooms the transaction: the log is played back in that instant, so nobody ever
//! sees an uncommitted value. The victim notices at its next access. A transaction dooms itself by writing more lines
//! of one set than the first-level cache has ways, by reading more than the machine can track, by waiting, or by
//! chance.

use super::Engine;
use crate::memory::{Kind, NONE};
use crate::rng;

/// Why a transaction aborted: the status word of Intel's RTM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort(pub u32);

impl Abort {
    /// The program aborted it; [`code`](Abort::code) is what it said.
    pub const EXPLICIT: u32 = 1;
    /// Trying again may succeed.
    pub const RETRY: u32 = 1 << 1;
    /// Another thread touched its lines.
    pub const CONFLICT: u32 = 1 << 2;
    /// Its lines didn't fit.
    pub const CAPACITY: u32 = 1 << 3;
    /// It happened inside a nested transaction.
    pub const NESTED: u32 = 1 << 5;

    /// The program's own reason, if it aborted the transaction itself.
    pub fn code(self) -> Option<u8> {
        (self.0 & Abort::EXPLICIT != 0).then_some((self.0 >> 24) as u8)
    }

    /// Whether another thread touched its lines.
    pub fn is_conflict(self) -> bool {
        self.0 & Abort::CONFLICT != 0
    }

    /// Whether its lines didn't fit.
    pub fn is_capacity(self) -> bool {
        self.0 & Abort::CAPACITY != 0
    }

    /// Whether trying again may succeed.
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
    /// # Safety
    /// The `size` bytes at `addr` are readable, and no other OS thread writes them.
    pub(crate) unsafe fn save(addr: usize, size: usize) -> Old {
        let mut old = Old { addr, size: size.min(16), bytes: [0; 16] };
        // SAFETY: the caller's promise; at most 16 bytes.
        unsafe { std::ptr::copy_nonoverlapping(addr as *const u8, old.bytes.as_mut_ptr(), old.size) };
        old
    }

    /// # Safety
    /// The bytes are still writable memory of the same atomic, and no other OS thread touches them.
    pub(crate) unsafe fn restore(&self) {
        // SAFETY: the caller's promise; at most 16 bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes.as_ptr(), self.addr as *mut u8, self.size) };
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
    /// Lines written per set of the first-level cache.
    sets: Vec<u8>,
    undo: Vec<Old>,
    /// Accesses until a planned abort; it comes at the end at the latest.
    fuse: Option<u64>,
}

/// Which transactions have a line.
pub(crate) struct Mark {
    writer: u32,
    readers: Vec<u32>,
}

/// All marks; a line's `tx` is an index here.
#[derive(Default)]
pub(crate) struct Marks {
    marks: Vec<Mark>,
    free: Vec<u32>,
}

impl Engine {
    /// Begins a transaction of the running thread, or nests one.
    pub(crate) fn tx_begin(&mut self, unwinds: bool) {
        let spurious = self.costs.tx_spurious;
        let thread = &mut self.threads[self.current];
        thread.tx_depth += 1;
        if thread.tx_depth > 1 {
            return;
        }
        thread.tx.unwinds = unwinds;
        thread.tx.doomed = None;
        thread.tx.sets.clear();
        thread.tx.sets.resize(self.costs.l1_sets, 0);
        let planned = rng::chance(&mut thread.rng, spurious);
        thread.tx.fuse = planned.then(|| rng::below(&mut thread.rng, 8));
        self.memory.stats.tx_begun += 1;
        let begin = self.costs.tx_begin;
        self.drain_stores();
        self.advance(begin);
    }

    /// Ends the running thread's innermost transaction. The outermost one commits, or tells why it didn't.
    pub(crate) fn tx_end(&mut self) -> Result<(), Abort> {
        let thread = &mut self.threads[self.current];
        if thread.tx_depth > 1 {
            thread.tx_depth -= 1;
            return Ok(());
        }
        if thread.tx.fuse.is_some() {
            self.tx_doom(self.current, Abort(0));
        }
        let thread = &mut self.threads[self.current];
        thread.tx_depth = 0;
        if let Some(why) = thread.tx.doomed.take() {
            self.advance(self.costs.tx_abort);
            return Err(why);
        }
        self.memory.stats.tx_committed += 1;
        self.tx_clear(self.current);
        let undo = std::mem::take(&mut self.threads[self.current].tx.undo);
        for old in &undo {
            let line = self.memory.line(old.addr, 0);
            self.value_changed(line);
        }
        self.threads[self.current].tx.undo = undo;
        self.threads[self.current].tx.undo.clear();
        self.advance(self.costs.tx_commit);
        Ok(())
    }

    /// Aborts a thread's transaction: its writes are gone when this returns.
    pub(crate) fn tx_doom(&mut self, victim: usize, why: Abort) {
        let depth = self.threads[victim].tx_depth;
        let tx = &mut self.threads[victim].tx;
        if depth == 0 || tx.doomed.is_some() {
            return;
        }
        let nested = if depth > 1 { Abort::NESTED } else { 0 };
        tx.doomed = Some(Abort(why.0 | nested));
        for old in tx.undo.drain(..).rev() {
            // SAFETY: the transaction wrote this memory through the door, all simulated threads share this OS thread,
            // and the contract of `world` says that memory written by an open transaction is not freed.
            unsafe { old.restore() };
        }
        self.tx_clear(victim);
        let stats = &mut self.memory.stats;
        *match why {
            _ if why.is_conflict() => &mut stats.tx_conflicts,
            _ if why.is_capacity() => &mut stats.tx_capacity,
            _ if why.code().is_some() => &mut stats.tx_explicit,
            _ => &mut stats.tx_spurious,
        } += 1;
    }

    /// Dooms the transactions of others that an access to `line` conflicts with.
    #[inline]
    pub(crate) fn tx_conflict(&mut self, line: u32, kind: Kind) {
        let mark = self.memory.lines[line as usize].tx;
        if mark != NONE {
            self.tx_doom_others(mark, kind);
        }
    }

    #[cold]
    fn tx_doom_others(&mut self, mark: u32, kind: Kind) {
        let mark = &self.marks.marks[mark as usize];
        let me = self.current as u32;
        let readers = if kind.writes() { mark.readers.clone() } else { Vec::new() };
        for victim in readers.into_iter().chain([mark.writer]) {
            if victim != NONE && victim != me {
                self.tx_doom(victim as usize, Abort(Abort::CONFLICT | Abort::RETRY));
            }
        }
    }

    /// Takes an access of the running thread's transaction into its sets. False: it is doomed now.
    pub(crate) fn tx_track(&mut self, line: u32, addr: usize, size: usize, kind: Kind) -> bool {
        let me = self.current;
        match &mut self.threads[me].tx.fuse {
            Some(0) => {
                self.tx_doom(me, Abort(0));
                return false;
            }
            Some(fuse) => *fuse -= 1,
            None => {}
        }
        let mark = self.mark_of(line);
        let mark = &mut self.marks.marks[mark as usize];
        let tx = &mut self.threads[me].tx;
        let mut fits = true;
        if kind.writes() {
            if mark.writer != me as u32 {
                mark.writer = me as u32;
                tx.writes.push(line);
                let set = (addr >> 6) % tx.sets.len();
                tx.sets[set] += 1;
                fits = usize::from(tx.sets[set]) <= self.costs.l1_ways && tx.writes.len() <= self.costs.tx_write_lines;
            }
            // SAFETY: the caller of `world` is about to access this memory, and all simulated threads share this OS
            // thread.
            tx.undo.push(unsafe { Old::save(addr, size) });
        } else if !mark.readers.contains(&(me as u32)) {
            mark.readers.push(me as u32);
            tx.reads.push(line);
            fits = tx.reads.len() <= self.costs.tx_read_lines;
        }
        if !fits {
            self.tx_doom(me, Abort(Abort::CAPACITY));
        }
        fits
    }

    fn mark_of(&mut self, line: u32) -> u32 {
        let slot = &mut self.memory.lines[line as usize].tx;
        if *slot == NONE {
            *slot = self.marks.free.pop().unwrap_or_else(|| {
                self.marks.marks.push(Mark { writer: NONE, readers: Vec::new() });
                self.marks.marks.len() as u32 - 1
            });
        }
        *slot
    }

    /// Takes a thread's marks off all lines.
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
                self.marks.free.push(std::mem::replace(slot, NONE));
            }
        }
    }
}

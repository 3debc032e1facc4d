//! Finds the line of an address: a hash table of the lines that the program has accessed, and one of their pages.
//!
//! Pages are numbered in the order of their first access. This number, not the address, determines cache sets, since
//! the addresses that the operating system chooses must not change a run. A page also has a home node: the node of the
//! first thread that accesses the page, unless the page was placed.

use super::NONE;

/// Returns the slot of a key in a table of `mask + 1` slots, by Fibonacci hashing.
#[inline]
fn slot_of(key: u64, mask: usize) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24) as usize & mask
}

#[derive(Clone, Copy)]
struct Slot {
    key: u64,
    value: u32,
    /// A line's colour. It is stored here so that the line's cache sets are known before its record has arrived in the
    /// host's cache.
    colour: u32,
}

const EMPTY: Slot = Slot { key: 0, value: NONE, colour: 0 };

/// A hash table from 64-bit keys to dense numbers, with linear probing. Keys are never removed.
struct Numbers {
    slots: Vec<Slot>,
    count: usize,
}

impl Numbers {
    fn new() -> Self {
        Numbers { slots: vec![EMPTY; 1 << 10], count: 0 }
    }

    /// Returns the slot of a key that has a number.
    #[inline]
    fn known(&self, key: u64) -> Option<Slot> {
        let mask = self.slots.len() - 1;
        let mut at = slot_of(key, mask);
        loop {
            let slot = self.slots[at];
            if slot.value == NONE {
                return None;
            }
            if slot.key == key {
                return Some(slot);
            }
            at = (at + 1) & mask;
        }
    }

    /// Assigns the next number to a key that has none.
    #[cold]
    fn add(&mut self, key: u64, colour: u32) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = slot_of(key, mask);
        while self.slots[at].value != NONE {
            at = (at + 1) & mask;
        }
        let value = self.count as u32;
        self.slots[at] = Slot { key, value, colour };
        self.count += 1;
        if self.count * 2 > self.slots.len() {
            self.grow();
        }
        value
    }

    #[cold]
    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = Vec::with_capacity(mask + 1);
        super::use_huge_pages(slots.spare_capacity_mut());
        slots.resize(mask + 1, EMPTY);
        let old = std::mem::replace(&mut self.slots, slots);
        for slot in old.into_iter().filter(|slot| slot.value != NONE) {
            let mut at = slot_of(slot.key, mask);
            while self.slots[at].value != NONE {
                at = (at + 1) & mask;
            }
            self.slots[at] = slot;
        }
    }

    fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }
}

/// The value, instead of a home, of a page that was neither accessed nor placed.
const NOWHERE: u8 = u8::MAX;

/// The value, instead of a home, of a page without memory.
const UNMAPPED: u8 = NOWHERE - 1;

/// The numbers of lines and pages.
pub(crate) struct Table {
    lines: Numbers,
    pages: Numbers,
    /// Home nodes by page number.
    homes: Vec<u8>,
}

/// A line's entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The line's number.
    pub(crate) line: u32,
    /// The page's number and the line's position in the page, as one number. The model uses this number as the physical
    /// address.
    pub(crate) colour: u32,
    /// The line's home node, if this is the line's first access.
    pub(crate) fresh: Option<u8>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table { lines: Numbers::new(), pages: Numbers::new(), homes: Vec::new() }
    }

    /// Returns the line of `addr`. `toucher` is the node of the accessing thread.
    #[inline]
    pub(crate) fn line(&mut self, addr: usize, toucher: usize) -> Found {
        let line = (addr >> 6) as u64;
        match self.lines.known(line) {
            Some(slot) => Found { line: slot.value, colour: slot.colour, fresh: None },
            None => self.fresh(line, toucher),
        }
    }

    #[cold]
    fn fresh(&mut self, line: u64, toucher: usize) -> Found {
        let page = self.page(line >> 6);
        let home = &mut self.homes[page];
        if *home >= UNMAPPED {
            *home = toucher as u8;
        }
        let (colour, fresh) = ((page as u32) << 6 | (line & 63) as u32, Some(*home));
        Found { line: self.lines.add(line, colour), colour, fresh }
    }

    /// Returns the line of `addr`, if it was accessed before.
    #[inline]
    pub(crate) fn peek(&self, addr: usize) -> Option<Found> {
        let slot = self.lines.known((addr >> 6) as u64)?;
        Some(Found { line: slot.value, colour: slot.colour, fresh: None })
    }

    /// Brings the slot that [`line`](Self::line) will read into the host's cache.
    #[inline]
    pub(crate) fn prepare(&self, addr: usize) {
        let mask = self.lines.slots.len() - 1;
        super::host_prefetch(&raw const self.lines.slots[slot_of((addr >> 6) as u64, mask)]);
    }

    fn page(&mut self, page: u64) -> usize {
        if let Some(slot) = self.pages.known(page) {
            return slot.value as usize;
        }
        self.homes.push(NOWHERE);
        self.pages.add(page, 0) as usize
    }

    /// Sets the home of the pages from `addr` on, or removes it. Calls `line` for each of their lines that was
    /// accessed.
    pub(crate) fn place(&mut self, addr: usize, len: usize, home: Option<usize>, mut line: impl FnMut(u32)) {
        let (first, last) = (addr as u64 >> 12, (addr + len.max(1) - 1) as u64 >> 12);
        for page in first..=last {
            let number = self.page(page);
            self.homes[number] = home.map_or(NOWHERE, |home| home as u8);
            for slot in (page << 6..(page + 1) << 6).filter_map(|line| self.lines.known(line)) {
                line(slot.value);
            }
        }
    }

    /// Records that the pages from `addr` on have no memory, except pages with lines that were accessed.
    pub(crate) fn unmap(&mut self, addr: usize, len: usize) {
        for page in addr as u64 >> 12..=(addr + len.max(1) - 1) as u64 >> 12 {
            if (page << 6..(page + 1) << 6).all(|line| self.lines.known(line).is_none()) {
                let number = self.page(page);
                self.homes[number] = UNMAPPED;
            }
        }
    }

    /// Returns whether an address has no memory.
    pub(crate) fn unmapped(&self, addr: usize) -> bool {
        self.pages.known((addr >> 12) as u64).is_some_and(|slot| self.homes[slot.value as usize] == UNMAPPED)
    }

    /// Returns the home of an address, if its page was accessed or placed.
    pub(crate) fn home_of(&self, addr: usize) -> Option<usize> {
        let page = self.pages.known((addr >> 12) as u64)?;
        let home = self.homes[page.value as usize];
        (home < UNMAPPED).then_some(usize::from(home))
    }

    /// Returns the addresses of these lines. Takes time linear in the size of the table.
    pub(crate) fn addresses(&self, lines: &[u32]) -> Vec<usize> {
        let mut found = vec![0; lines.len()];
        for slot in self.lines.slots.iter().filter(|slot| slot.value != NONE) {
            if let Some(at) = lines.iter().position(|&line| line == slot.value) {
                found[at] = (slot.key as usize) << 6;
            }
        }
        found
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.bytes() + self.pages.bytes() + self.homes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stable() {
        let mut table = Table::new();
        let addrs: Vec<usize> = (0..5000).map(|k| 0x7f00_0000_0000 + k * 6400).collect();
        assert_eq!(table.peek(addrs[0]), None);
        for (number, addr) in addrs.iter().enumerate() {
            assert_eq!(table.line(*addr, 0).line, number as u32);
        }
        for (number, addr) in addrs.iter().enumerate() {
            let again = table.line(addr + 63, 1);
            assert_eq!((again.line, again.fresh), (number as u32, None));
            assert_eq!(table.peek(*addr), Some(again));
        }
    }

    #[test]
    fn homes_by_first_touch_and_by_placement() {
        let mut table = Table::new();
        assert_eq!(table.line(0x10_000, 3).fresh, Some(3));
        assert_eq!(table.line(0x10_040, 1).fresh, Some(3));
        table.place(0x20_000, 4096, Some(2), |_| panic!("untouched"));
        assert_eq!(table.line(0x20_100, 1).fresh, Some(2));
        let mut met = Vec::new();
        table.place(0x10_000, 4096, Some(0), |line| met.push(line));
        assert_eq!(met, [0, 1]);
        assert_eq!([0x10_080, 0x20_f00, 0x30_000].map(|addr| table.home_of(addr)), [Some(0), Some(2), None]);
        assert_eq!(table.line(0x10_080, 1).fresh, Some(0));
        table.place(0x10_000, 4096, None, |_| ());
        assert_eq!(table.line(0x10_0c0, 1).fresh, Some(1));
    }
}

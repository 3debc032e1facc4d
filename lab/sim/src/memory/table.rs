//! Finds the line of an address: a hash table of the pages that the program has accessed, with the lines of each.
//!
//! Lines and pages are numbered in the order of their first access. A page's number, not its address, determines cache
//! sets, since the addresses that the operating system chooses must not change a run. A page also has a home node: the
//! node of the first thread that accesses the page, unless the page was placed.

use super::NONE;

/// The binary logarithm of the number of lines in a page.
const LINES_BITS: u32 = 6;

/// Returns the slot of a key in a table of `mask + 1` slots, by Fibonacci hashing.
#[inline]
fn slot_of(key: u64, mask: usize) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24) as usize & mask
}

#[derive(Clone, Copy)]
struct Slot {
    key: u64,
    value: u32,
}

const EMPTY: Slot = Slot { key: 0, value: NONE };

/// A hash table from 64-bit keys to dense numbers, with linear probing. Keys are never removed.
struct Numbers {
    slots: Vec<Slot>,
    count: usize,
}

impl Numbers {
    fn new() -> Self {
        Numbers { slots: vec![EMPTY; 1 << 10], count: 0 }
    }

    /// Returns the number of a key that has one.
    #[inline]
    fn known(&self, key: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = slot_of(key, mask);
        loop {
            let slot = self.slots[at];
            if slot.value == NONE {
                return None;
            }
            if slot.key == key {
                return Some(slot.value);
            }
            at = (at + 1) & mask;
        }
    }

    /// Assigns the next number to a key that has none.
    #[cold]
    fn add(&mut self, key: u64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = slot_of(key, mask);
        while self.slots[at].value != NONE {
            at = (at + 1) & mask;
        }
        let value = self.count as u32;
        self.slots[at] = Slot { key, value };
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

/// The numbers of a page's lines, or `NONE` for those that were not accessed.
type Lines = [u32; 1 << LINES_BITS];

/// The numbers of lines and pages.
pub(crate) struct Table {
    /// The numbers of pages, by the address without the position in the page.
    pages: Numbers,
    /// Home nodes by page number.
    homes: Vec<u8>,
    /// Lines by page number.
    lines: Vec<Lines>,
    /// How many lines have a number.
    count: u32,
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

/// Returns an address's page, and the position of its line in the page.
#[inline]
fn parts(addr: usize) -> (u64, usize) {
    (addr as u64 >> (6 + LINES_BITS), addr >> 6 & ((1 << LINES_BITS) - 1))
}

impl Table {
    pub(crate) fn new() -> Self {
        Table { pages: Numbers::new(), homes: Vec::new(), lines: Vec::new(), count: 0 }
    }

    /// Returns the line of `addr`. `toucher` is the node of the accessing thread.
    #[inline]
    pub(crate) fn line(&mut self, addr: usize, toucher: usize) -> Found {
        self.peek(addr).unwrap_or_else(|| self.fresh(addr, toucher))
    }

    #[cold]
    fn fresh(&mut self, addr: usize, toucher: usize) -> Found {
        let (page, at) = parts(addr);
        let page = self.page(page);
        let home = &mut self.homes[page];
        if *home >= UNMAPPED {
            *home = toucher as u8;
        }
        let found = Found { line: self.count, colour: colour(page as u32, at), fresh: Some(*home) };
        self.lines[page][at] = self.count;
        self.count += 1;
        found
    }

    /// Returns the line of `addr`, if it was accessed before.
    #[inline]
    pub(crate) fn peek(&self, addr: usize) -> Option<Found> {
        let (page, at) = parts(addr);
        let page = self.pages.known(page)?;
        let line = self.lines[page as usize][at];
        (line != NONE).then_some(Found { line, colour: colour(page, at), fresh: None })
    }

    /// Brings what [`line`](Self::line) will read into the host's cache.
    #[inline]
    pub(crate) fn prepare(&self, addr: usize) {
        let (page, at) = parts(addr);
        if let Some(page) = self.pages.known(page) {
            super::host_prefetch(&raw const self.lines[page as usize][at]);
        }
    }

    fn page(&mut self, page: u64) -> usize {
        if let Some(number) = self.pages.known(page) {
            return number as usize;
        }
        if self.lines.len() == self.lines.capacity() {
            self.lines.reserve(self.lines.len().max(64));
            super::use_huge_pages(self.lines.spare_capacity_mut());
        }
        self.lines.push([NONE; 1 << LINES_BITS]);
        self.homes.push(NOWHERE);
        self.pages.add(page) as usize
    }

    /// Returns the numbers of those lines of a page that were accessed.
    fn accessed(&self, page: u64) -> impl Iterator<Item = u32> {
        let lines = self.pages.known(page).map(|page| &self.lines[page as usize]);
        lines.into_iter().flatten().copied().filter(|line| *line != NONE)
    }

    /// Sets the home of the pages from `addr` on, or removes it. Calls `line` for each of their lines that was
    /// accessed.
    pub(crate) fn place(&mut self, addr: usize, len: usize, home: Option<usize>, mut line: impl FnMut(u32)) {
        for page in pages(addr, len) {
            let number = self.page(page);
            self.homes[number] = home.map_or(NOWHERE, |home| home as u8);
            self.accessed(page).for_each(&mut line);
        }
    }

    /// Records that the pages from `addr` on have no memory, except pages with lines that were accessed.
    pub(crate) fn unmap(&mut self, addr: usize, len: usize) {
        for page in pages(addr, len) {
            if self.accessed(page).next().is_none() {
                let number = self.page(page);
                self.homes[number] = UNMAPPED;
            }
        }
    }

    /// Returns whether an address has no memory.
    pub(crate) fn unmapped(&self, addr: usize) -> bool {
        self.pages.known(parts(addr).0).is_some_and(|page| self.homes[page as usize] == UNMAPPED)
    }

    /// Returns the home of an address, if its page was accessed or placed.
    pub(crate) fn home_of(&self, addr: usize) -> Option<usize> {
        let home = self.homes[self.pages.known(parts(addr).0)? as usize];
        (home < UNMAPPED).then_some(usize::from(home))
    }

    /// Returns the addresses of these lines. Takes time linear in the size of the table.
    pub(crate) fn addresses(&self, lines: &[u32]) -> Vec<usize> {
        let mut found = vec![0; lines.len()];
        for slot in self.pages.slots.iter().filter(|slot| slot.value != NONE) {
            for (at, line) in self.lines[slot.value as usize].iter().enumerate().filter(|(_, line)| **line != NONE) {
                if let Some(place) = lines.iter().position(|wanted| wanted == line) {
                    found[place] = ((slot.key as usize) << LINES_BITS | at) << 6;
                }
            }
        }
        found
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes() + self.homes.capacity() + self.lines.capacity() * size_of::<Lines>()
    }
}

/// Returns [`Found::colour`].
#[inline]
fn colour(page: u32, at: usize) -> u32 {
    page << LINES_BITS | at as u32
}

/// Returns the pages that have parts of the `len` bytes at `addr`.
fn pages(addr: usize, len: usize) -> core::ops::RangeInclusive<u64> {
    parts(addr).0..=parts(addr + len.max(1) - 1).0
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

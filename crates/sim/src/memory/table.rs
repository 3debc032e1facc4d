//! From addresses to lines: a flat hash table of the lines that the program has touched, and one of their pages.
//!
//! Pages are numbered in the order of their first touch, and that number, not the address, decides about cache sets:
//! where the operating system happens to put memory must not change a run. A page also has a home node, that of its
//! first toucher unless somebody placed it.

use super::NONE;

/// Picks a slot of a table of `mask + 1` slots, by Fibonacci hashing.
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

/// A hash table from 64-bit keys to dense numbers, by linear probing. Nothing is ever taken out.
struct Numbers {
    slots: Vec<Slot>,
    count: usize,
}

impl Numbers {
    fn new() -> Self {
        Numbers { slots: vec![EMPTY; 1 << 10], count: 0 }
    }

    /// The number of `key`; a new key gets the next one, and `true` says so.
    #[inline]
    fn number(&mut self, key: u64) -> (u32, bool) {
        let mask = self.slots.len() - 1;
        let mut at = slot_of(key, mask);
        loop {
            let slot = self.slots[at];
            if slot.value == NONE {
                break;
            }
            if slot.key == key {
                return (slot.value, false);
            }
            at = (at + 1) & mask;
        }
        let value = self.count as u32;
        self.slots[at] = Slot { key, value };
        self.count += 1;
        if self.count * 2 > self.slots.len() {
            self.grow();
        }
        (value, true)
    }

    #[cold]
    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; mask + 1]);
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

/// A page's home before anybody touched it.
const NOWHERE: u8 = u8::MAX;

/// The numbers of lines and pages.
pub(crate) struct Table {
    lines: Numbers,
    pages: Numbers,
    /// By page number.
    homes: Vec<u8>,
}

/// A line that nobody touched before.
pub(crate) struct Fresh {
    /// Page number and position in the page: takes the place of a physical address.
    pub(crate) colour: u32,
    /// Its home node.
    pub(crate) home: u8,
}

impl Table {
    pub(crate) fn new() -> Self {
        Table { lines: Numbers::new(), pages: Numbers::new(), homes: Vec::new() }
    }

    /// The number of the line of `addr`, and what it is like if it is new; `toucher` is the node of who touches it.
    #[inline]
    pub(crate) fn line(&mut self, addr: usize, toucher: usize) -> (u32, Option<Fresh>) {
        let line = (addr >> 6) as u64;
        match self.lines.number(line) {
            (number, false) => (number, None),
            (number, true) => {
                let page = self.page(line >> 6);
                let home = &mut self.homes[page];
                if *home == NOWHERE {
                    *home = toucher as u8;
                }
                (number, Some(Fresh { colour: (page as u32) << 6 | (line & 63) as u32, home: *home }))
            }
        }
    }

    fn page(&mut self, page: u64) -> usize {
        let (number, new) = self.pages.number(page);
        if new {
            self.homes.push(NOWHERE);
        }
        number as usize
    }

    /// Gives the pages from `addr` a home, or takes it away. Calls `line` for every touched line of theirs.
    pub(crate) fn place(&mut self, addr: usize, len: usize, home: Option<usize>, mut line: impl FnMut(u32)) {
        let (first, last) = (addr as u64 >> 12, (addr + len.max(1) - 1) as u64 >> 12);
        for page in first..=last {
            let number = self.page(page);
            self.homes[number] = home.map_or(NOWHERE, |home| home as u8);
            for number in (page << 6..(page + 1) << 6).filter_map(|line| self.known(line)) {
                line(number);
            }
        }
    }

    fn known(&self, line: u64) -> Option<u32> {
        let mask = self.lines.slots.len() - 1;
        let mut at = slot_of(line, mask);
        loop {
            match self.lines.slots[at] {
                Slot { value: NONE, .. } => return None,
                Slot { key, value } if key == line => return Some(value),
                _ => at = (at + 1) & mask,
            }
        }
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
        for (number, addr) in addrs.iter().enumerate() {
            assert_eq!(table.line(*addr, 0).0, number as u32);
        }
        for (number, addr) in addrs.iter().enumerate() {
            let (again, fresh) = table.line(addr + 63, 1);
            assert_eq!((again, fresh.is_none()), (number as u32, true));
        }
    }

    #[test]
    fn homes_by_first_touch_and_by_placement() {
        let mut table = Table::new();
        assert_eq!(table.line(0x10_000, 3).1.unwrap().home, 3);
        assert_eq!(table.line(0x10_040, 1).1.unwrap().home, 3);
        table.place(0x20_000, 4096, Some(2), |_| panic!("untouched"));
        assert_eq!(table.line(0x20_100, 1).1.unwrap().home, 2);
        let mut met = Vec::new();
        table.place(0x10_000, 4096, Some(0), |line| met.push(line));
        assert_eq!(met, [0, 1]);
        assert_eq!(table.line(0x10_080, 1).1.unwrap().home, 0);
        table.place(0x10_000, 4096, None, |_| ());
        assert_eq!(table.line(0x10_0c0, 1).1.unwrap().home, 1);
    }
}

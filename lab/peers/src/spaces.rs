//! Maps of ranges. Each is behind a readers-writer lock, since neither has synchronization of its own.

use std::ops::Range;
use std::sync::RwLock;

use archipelago_workloads::spaces::{Known, Space};
use iset::IntervalMap;
use rangemap::RangeMap;

const SOUND: &str = "no thread panics with the lock";

/// rangemap: a B-tree of disjoint ranges.
#[derive(Default)]
struct Ranges(RwLock<RangeMap<u64, u64>>);

impl Space for Ranges {
    fn map(&self, range: Range<u64>, value: u64) {
        self.0.write().expect(SOUND).insert(range, value);
    }

    fn unmap(&self, range: Range<u64>) {
        self.0.write().expect(SOUND).remove(range);
    }

    fn fault(&self, point: u64) -> Option<u64> {
        self.0.read().expect(SOUND).get(&point).copied()
    }
}

/// iset: an interval tree (red-black, with the greatest end of each subtree), whose ranges may overlap.
#[derive(Default)]
struct Intervals(RwLock<IntervalMap<u64, u64>>);

impl Space for Intervals {
    fn map(&self, range: Range<u64>, value: u64) {
        self.0.write().expect(SOUND).insert(range, value);
    }

    fn unmap(&self, range: Range<u64>) {
        self.0.write().expect(SOUND).remove(range);
    }

    fn fault(&self, point: u64) -> Option<u64> {
        self.0.read().expect(SOUND).values_overlap(point).next().copied()
    }
}

/// All maps of ranges.
pub const SPACES: &[Known] = &[
    Known { name: "rangemap", make: || Box::new(Ranges::default()) },
    Known { name: "iset", make: || Box::new(Intervals::default()) },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_find_what_is_mapped() {
        for known in SPACES {
            let space = (known.make)();
            space.map(10..20, 1);
            space.map(20..30, 2);
            assert_eq!([9, 10, 19, 20, 30].map(|point| space.fault(point)), [None, Some(1), Some(1), Some(2), None]);
            space.unmap(10..20);
            assert_eq!([19, 20].map(|point| space.fault(point)), [None, Some(2)], "{}", known.name);
        }
    }
}

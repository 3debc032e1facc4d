//! Address spaces: this library's range map, and the three rivals of RCX's slides.
//!
//! | name | look-ups | changes |
//! |---|---|---|
//! | `ranges` | take no lock | locks of leaves |
//! | `rwlock` | take a readers-writer lock as readers (Linux's `mmap_sem`) | take the lock as writers |
//! | `spf` | take no lock (speculative page faults) | one lock |
//! | `rcxvm` | take no lock: walk a tree of mappings under RCU | take RCX's locks of the mappings that change |

use core::ops::Range;
use std::collections::BTreeMap;

use archipelago_index::Art;
use archipelago_platform::sync::{Mutex, RwLock};
use archipelago_ranges::RangeMap;
use archipelago_sets::{OverRcx, Set, SetSession, Tree};

/// An address space. Callers map only ranges that overlap no mapping, and unmap only whole mappings.
pub trait Space: Send + Sync {
    /// Maps a range.
    fn map(&self, range: Range<u64>, value: u64);

    /// Unmaps a range.
    fn unmap(&self, range: Range<u64>);

    /// Returns the value at a point, as a page fault does.
    fn fault(&self, point: u64) -> Option<u64>;
}

impl Space for RangeMap<u64, u64> {
    fn map(&self, range: Range<u64>, value: u64) {
        self.insert(range, value);
    }

    fn unmap(&self, range: Range<u64>) {
        self.remove(range);
    }

    fn fault(&self, point: u64) -> Option<u64> {
        self.get(point)
    }
}

const SOUND: &str = "no thread panics with the lock";

/// One readers-writer lock over a tree that is ordered by the mappings' starts.
#[derive(Default)]
struct Locked(RwLock<BTreeMap<u64, (u64, u64)>>);

impl Space for Locked {
    fn map(&self, range: Range<u64>, value: u64) {
        self.0.write().expect(SOUND).insert(range.start, (range.end, value));
    }

    fn unmap(&self, range: Range<u64>) {
        self.0.write().expect(SOUND).remove(&range.start);
    }

    fn fault(&self, point: u64) -> Option<u64> {
        let tree = self.0.read().expect(SOUND);
        let (_, (end, value)) = tree.range(..=point).next_back()?;
        (point < *end).then_some(*value)
    }
}

/// Packs a value with the length of its range in the upper half.
fn packed(range: &Range<u64>, value: u64) -> u64 {
    (range.end - range.start) << 32 | value
}

/// Returns the value of a range that begins at `start`, if it contains `point`.
fn within((start, packed): (u64, u64), point: u64) -> Option<u64> {
    (point - start < packed >> 32).then_some(packed & u64::from(u32::MAX))
}

/// A tree that is ordered by the mappings' starts and read without a lock, and one lock for changes.
struct Speculative {
    tree: Art<u64, u64>,
    lock: Mutex<()>,
}

impl Space for Speculative {
    fn map(&self, range: Range<u64>, value: u64) {
        let _changing = self.lock.lock().expect(SOUND);
        self.tree.pin().insert(range.start, packed(&range, value));
    }

    fn unmap(&self, range: Range<u64>) {
        let _changing = self.lock.lock().expect(SOUND);
        self.tree.pin().remove(&range.start);
    }

    fn fault(&self, point: u64) -> Option<u64> {
        within(self.tree.pin().range(..=point).next_back()?, point)
    }
}

/// RCXVM: a tree of mappings ordered by their starts. Page faults walk the tree under RCU. A change takes RCX's locks
/// of the mappings whose links it changes. The kernel's tree is balanced; this one is not.
///
/// A page fault finds each mapping that stays. If one mapping is removed while another is added at the same addresses,
/// the fault may find neither. Linux's speculative page faults have the same weakness, so they repeat a failed search
/// under the lock. The page faults of `spf` here do not repeat it.
#[derive(Default)]
struct RcxVm(Tree<OverRcx>);

impl Space for RcxVm {
    fn map(&self, range: Range<u64>, value: u64) {
        self.0.session().insert(range.start, packed(&range, value));
    }

    fn unmap(&self, range: Range<u64>) {
        self.0.session().remove(range.start);
    }

    fn fault(&self, point: u64) -> Option<u64> {
        within(self.0.session().floor(point)?, point)
    }
}

/// A space by name.
#[derive(Clone, Copy)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// Makes an empty space.
    pub make: fn() -> Box<dyn Space>,
}

/// All spaces.
pub const SPACES: &[Known] = &[
    Known { name: "ranges", make: || Box::new(RangeMap::<u64, u64>::new()) },
    Known { name: "rwlock", make: || Box::new(Locked::default()) },
    Known { name: "rcxvm", make: || Box::new(RcxVm::default()) },
    Known { name: "spf", make: || Box::new(Speculative { tree: Art::new(), lock: Mutex::new(()) }) },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Compares all spaces with a flat array.
    #[test]
    fn spaces_agree_with_an_array() {
        for known in SPACES {
            let (space, mut flat, mut mapped) = ((known.make)(), [None; 256], Vec::new());
            let mut random = Random::new(1, 0);
            for step in 1..5_000 {
                let start = random.within(0, 200);
                let range = start..start + random.within(1, 40);
                let is_free = (range.start..range.end).all(|point| flat[point as usize].is_none());
                if is_free {
                    space.map(range.clone(), step);
                    range.clone().for_each(|point| flat[point as usize] = Some(step));
                    mapped.push(range);
                } else if !mapped.is_empty() {
                    let range: Range<u64> = mapped.swap_remove(random.within(0, mapped.len() as u64 - 1) as usize);
                    range.clone().for_each(|point| flat[point as usize] = None);
                    space.unmap(range);
                }
                let point = random.within(0, 255);
                assert_eq!(space.fault(point), flat[point as usize], "{} at {point}", known.name);
            }
        }
    }

    /// Threads map and unmap chunks of their own between mappings that stay. The mappings that stay are found all the
    /// time, and the others are found only at their own addresses.
    #[test]
    fn mappings_that_stay_are_found_beside_changes() {
        const STAYING: u64 = 64;
        const APART: u64 = 1 << 20;
        for known in SPACES {
            let space = &(known.make)();
            (0..STAYING).rev().for_each(|at| space.map(at * APART..at * APART + 16, at + 1));
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    scope.spawn(move || {
                        let mut random = Random::new(7, thread);
                        for _ in 0..5_000 {
                            let at = random.within(0, STAYING / 3 - 1) * 3 + thread as u64;
                            let chunk = at * APART + 32..at * APART + 48;
                            space.map(chunk.clone(), 1_000 + at);
                            assert_eq!(space.fault(chunk.start + 5), Some(1_000 + at), "{}", known.name);
                            let other = random.within(0, STAYING - 1);
                            assert_eq!(space.fault(other * APART + 15), Some(other + 1), "{}", known.name);
                            assert_eq!(space.fault(other * APART + 16), None, "{}", known.name);
                            space.unmap(chunk.clone());
                            assert_eq!(space.fault(chunk.start), None, "{}", known.name);
                        }
                    });
                }
            });
        }
    }
}

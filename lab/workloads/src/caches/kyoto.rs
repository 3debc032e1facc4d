//! A rival modelled on Kyoto Cabinet's CacheDB (thesis §3.6). It has one readers-writer lock over everything, and
//! sixteen slots with a lock each. A slot contains buckets of binary search trees, and a list of its records in the
//! order of use. A record moves to the end of the list each time it is found.

use archipelago_platform::pad::CachePadded;
use archipelago_platform::plain::Plain;
use archipelago_platform::sync::{Mutex, RwLock};
use archipelago_platform::{touch, touch_mut};

use super::{BYTES, Direct, Room, Value};

/// The number of slots, as in Kyoto Cabinet.
pub const SLOTS: usize = 16;

/// The number that stands for no record.
const NONE: u32 = u32::MAX;

/// A record in its tree and in the list. Records are identified by their numbers.
struct Node {
    key: u64,
    value: Box<Value>,
    /// The left child, with lesser keys, and the right child.
    children: [u32; 2],
    /// The record that was used just before this one, and the one used just after.
    beside: [u32; 2],
}

/// A slot's records.
struct Slot {
    /// The root of each bucket's tree.
    buckets: Vec<Plain<u32>>,
    nodes: Vec<Plain<Node>>,
    /// The record that was used longest ago, and the one used last.
    ends: [u32; 2],
    most: usize,
}

/// The cache.
pub struct Kyoto {
    /// Every operation takes this lock shared. Kyoto Cabinet takes it exclusively for iteration and transactions, which
    /// this cache does not have.
    global: RwLock<()>,
    slots: Vec<CachePadded<Mutex<Slot>>>,
}

/// Hashes a key, so that neighbours are in different slots.
fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// Returns a key's slot.
pub fn slot_of(key: u64) -> usize {
    hash(key) as usize % SLOTS
}

impl Slot {
    /// Makes a slot with about a bucket for each of `records` records, and with room for `most`.
    fn new(records: usize, most: usize) -> Self {
        let buckets = vec![Plain::new(NONE); records.next_power_of_two()];
        Self { buckets, nodes: Vec::with_capacity(most), ends: [NONE; 2], most }
    }

    /// Returns the link that leads to a key's node, or would lead to it. A change of the link is not announced to the
    /// simulator yet.
    fn link(&mut self, key: u64) -> &mut u32 {
        let bucket = (hash(key) >> 4) as usize & (self.buckets.len() - 1);
        let (mut parent, mut at) = (None, *self.buckets[bucket]);
        while at != NONE {
            let node = &*self.nodes[at as usize];
            if node.key == key {
                break;
            }
            let side = usize::from(key > node.key);
            (parent, at) = (Some((at, side)), node.children[side]);
        }
        match parent {
            None => self.buckets[bucket].reach_mut(),
            Some((node, side)) => &mut self.nodes[node as usize].reach_mut().children[side],
        }
    }

    /// Makes the link to a key's node lead to this node.
    fn relink(&mut self, key: u64, to: u32) {
        let link = self.link(key);
        touch_mut(&raw const *link, size_of::<u32>());
        *link = to;
    }

    /// Removes a node from the list.
    fn unlist(&mut self, at: u32) {
        touch(self, size_of::<Self>());
        let beside = self.nodes[at as usize].beside;
        for side in [0, 1] {
            let to = beside[1 - side];
            match beside[side] {
                NONE => self.ends[side] = to,
                other => self.nodes[other as usize].beside[1 - side] = to,
            }
        }
    }

    /// Appends a node to the list's end as the one used last.
    fn list(&mut self, at: u32) {
        let last = self.ends[1];
        self.nodes[at as usize].beside = [last, NONE];
        match last {
            NONE => self.ends[0] = at,
            last => self.nodes[last as usize].beside[1] = at,
        }
        self.ends[1] = at;
    }

    /// Finds a key's node, and moves it to the list's end.
    fn find(&mut self, key: u64) -> Option<&mut Value> {
        let at = *self.link(key);
        if at == NONE {
            return None;
        }
        self.unlist(at);
        self.list(at);
        Some(&mut *self.nodes[at as usize].reach_mut().value)
    }

    fn set(&mut self, key: u64, value: Value) {
        if let Some(present) = self.find(key) {
            touch_mut(&raw const *present, BYTES);
            *present = value;
            return;
        }
        let node = Node { key, value: Box::new(value), children: [NONE; 2], beside: [NONE; 2] };
        touch_mut(&raw const *node.value, BYTES);
        let at = if self.nodes.len() < self.most {
            self.nodes.push(Plain::new(node));
            self.nodes.len() as u32 - 1
        } else {
            // The record that was used longest ago is evicted.
            let first = self.ends[0];
            self.unlist(first);
            self.cut(first);
            *self.nodes[first as usize] = node;
            first
        };
        self.list(at);
        self.relink(key, at);
    }

    /// Removes a node from its tree.
    fn cut(&mut self, at: u32) {
        let Node { key, children: [left, right], .. } = *self.nodes[at as usize];
        let instead = match (left, right) {
            (NONE, other) | (other, NONE) => other,
            (left, right) => {
                // The node with the greatest key below the removed one takes its position.
                let (mut parent, mut most) = (NONE, left);
                while self.nodes[most as usize].children[1] != NONE {
                    (parent, most) = (most, self.nodes[most as usize].children[1]);
                }
                if parent != NONE {
                    self.nodes[parent as usize].children[1] = self.nodes[most as usize].children[0];
                    self.nodes[most as usize].children[0] = left;
                }
                self.nodes[most as usize].children[1] = right;
                most
            }
        };
        self.relink(key, instead);
    }
}

impl Kyoto {
    /// Makes a cache with an equal share of the room in each slot. Kyoto Cabinet also has a bound for each slot; without
    /// a bound in its options, which is the papers' case, its slots keep everything.
    pub fn new(room: Room) -> Self {
        let share = room.records.div_ceil(SLOTS);
        let slot = |_| CachePadded::new(Mutex::new(Slot::new(share, share + room.slack)));
        let slots = (0..SLOTS).map(slot).collect();
        Self { global: RwLock::new(()), slots }
    }

    fn slot<R>(&self, key: u64, of: impl FnOnce(&mut Slot) -> R) -> R {
        let sound = "no thread panics with a lock";
        let _global = self.global.read().expect(sound);
        of(&mut self.slots[slot_of(key)].lock().expect(sound))
    }
}

impl Direct for Kyoto {
    fn get(&self, key: u64) -> Option<u64> {
        self.slot(key, |slot| slot.find(key).map(|value| value.copied()))
    }

    fn set(&self, key: u64, number: u64) {
        self.slot(key, |slot| slot.set(key, Value::of(number)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::random::Random;

    /// Compares a slot with a list of keys in the order of use.
    #[test]
    fn what_was_used_first_gives_way() {
        let (mut slot, mut model, mut random) = (Slot::new(20, 20), VecDeque::new(), Random::new(1, 0));
        // The buckets are few, so that their trees grow.
        slot.buckets.truncate(2);
        for _ in 0..20_000 {
            let key = random.within(0, 40);
            let at = model.iter().position(|it| *it == key);
            if random.percent(50) {
                assert_eq!(slot.find(key).is_some(), at.is_some());
            } else {
                slot.set(key, Value::of(key));
                if at.is_none() && model.len() == 20 {
                    model.pop_front();
                }
                if at.is_none() {
                    model.push_back(key);
                }
            }
            at.and_then(|at| model.remove(at)).into_iter().for_each(|key| model.push_back(key));
        }
        assert_eq!(model.len(), 20);
    }
}

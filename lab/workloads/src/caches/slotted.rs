//! The papers' variants of Kyoto Cabinet's CacheDB: its slots of small binary trees, without its locks. Look-ups walk a
//! tree in a read-side critical section. Changes are synchronized by RCU with a lock, RLU, MV-RLU (thesis §3.6.4) or
//! RCX (slides).
//!
//! All variants share one implementation: the trees are [`Forest`]s over a synchronization mechanism. Records are
//! stored outside the trees, and a replaced record is freed through RCU, whatever the mechanism. In the papers' RLU and
//! MV-RLU a record is part of its node and is copied with the node.
//!
//! In Kyoto Cabinet a look-up moves its record to the end of a list. A look-up in a read-side critical section cannot
//! do so; it marks the record instead. Each slot has a queue of its keys in the order of insertion, with a lock that
//! only insertions of new keys take. If the slot is full, records are taken from the front of the queue: a marked
//! record loses its mark and moves to the end, and the first record without a mark is evicted. (If there is none within
//! two passes over the queue, the last record taken is evicted.)

use std::collections::VecDeque;

use archipelago_platform::atomic::{AtomicBool, Ordering::Relaxed};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::sync::Mutex;
use archipelago_platform::touch_mut;
use archipelago_sets::{
    Forest, ForestSession, Mechanism, OverMvRlu, OverRcu, OverRcxStriped, OverRlu, Set, SetSession,
};
use archipelago_sync::mvrlu::{self, ClockKind};
use archipelago_sync::rcu::{Domain, Guard, Reader};
use archipelago_sync::rcx::{InOrder, Locks, Object, Rcx, Striped};

use super::kyoto::{SLOTS, slot_of};
use super::{BYTES, Caching, Client, Room, Value};

/// A record, and its mark: whether it was found since its insertion, or since it was last at the front of its queue.
struct Record {
    value: Value,
    found: AtomicBool,
}

/// The keys of a slot in the order of their insertion.
type Queue = CachePadded<Mutex<VecDeque<u64>>>;

/// A cache of slots of trees over `M`.
pub struct Slotted<M: Mechanism<2>> {
    forest: Forest<M>,
    slots: Vec<Queue>,
    /// The most records of a slot.
    most: usize,
    /// The RCU domain of replaced records.
    records: Domain,
    /// The locks of the slots, if updates lock a whole slot.
    locks: Option<SlotLocks>,
}

/// One RCX lock for each slot, as in the slides.
struct SlotLocks {
    rcx: Rcx,
    objects: [Object; SLOTS],
}

impl SlotLocks {
    fn new(rcx: Rcx) -> Self {
        Self { objects: core::array::from_fn(|_| rcx.object()), rcx }
    }

    /// Runs `change` while it holds a slot's lock. The caller must not be in a guard, since the lock's holder may wait
    /// for readers.
    fn hold<R>(&self, slot: usize, change: impl FnOnce() -> R) -> R {
        let handle = self.rcx.handle(&self.objects[slot]);
        let _held = self.rcx.lock(InOrder::one(&handle));
        change()
    }
}

impl Slotted<OverRcxStriped> {
    /// Makes a cache over RCU, whose updates lock single nodes of a tree. (These locks have one level; RCX's have two.)
    pub fn over_rcu(room: Room) -> Self {
        Self::over(OverRcxStriped::over(Rcx::fine_grained().build_with(Striped::make)), room)
    }

    /// Makes a cache over RCX.
    pub fn over_rcx(room: Room) -> Self {
        Self::over(OverRcxStriped::default(), room)
    }
}

impl Slotted<OverRcu> {
    /// Makes a cache over RCU, with one lock for each slot. (This lock has one level; RCX's have two.)
    pub fn over_rcu_slots(room: Room) -> Self {
        Self::over_slots(Rcx::fine_grained().build(), room)
    }

    /// Makes a cache over RCX, with one lock for each slot, as in the slides.
    pub fn over_rcx_slots(room: Room) -> Self {
        Self::over_slots(Rcx::default(), room)
    }

    fn over_slots(rcx: Rcx, room: Room) -> Self {
        let mut cache = Self::over(OverRcu::default(), room);
        cache.locks = Some(SlotLocks::new(rcx));
        cache
    }
}

impl Slotted<OverRlu> {
    /// Makes a cache over RLU, with a logical clock.
    pub fn over_rlu(room: Room) -> Self {
        Self::over(OverRlu::with(ClockKind::Logical, 0), room)
    }
}

impl Slotted<OverMvRlu> {
    /// Makes a cache over MV-RLU, with the hardware's clock.
    pub fn over_mvrlu(room: Room) -> Self {
        Self::over(OverMvRlu::with(mvrlu::Domain::builder().clock(ClockKind::Hardware)), room)
    }
}

impl<M: Mechanism<2>> Slotted<M> {
    fn over(mechanism: M, room: Room) -> Self {
        let share = room.records.div_ceil(SLOTS);
        let forest = Forest::over(mechanism, SLOTS * share.next_power_of_two());
        let slots = (0..SLOTS).map(|_| Queue::default()).collect();
        Self { forest, slots, most: share + room.slack, records: Domain::new(), locks: None }
    }
}

impl<M: Mechanism<2>> Caching for Slotted<M> {
    fn client(&self) -> Box<dyn Client + '_> {
        Box::new(Inside { cache: self, trees: self.forest.session(), reader: self.records.reader() })
    }
}

impl<M: Mechanism<2>> Drop for Slotted<M> {
    fn drop(&mut self) {
        let mut trees = self.forest.session();
        for key in self.slots.iter_mut().flat_map(|slot| slot.get_mut().expect("no thread panics with it").drain(..)) {
            // SAFETY: each record was boxed, and no other thread uses the cache.
            trees.remove(key).into_iter().for_each(|record| drop(unsafe { Box::from_raw(record as *mut Record) }));
        }
    }
}

/// Appends a key to the queue.
fn push(queue: &mut VecDeque<u64>, key: u64) {
    queue.push_back(key);
    touch_mut(&raw const queue[queue.len() - 1], size_of::<u64>());
}

/// Removes and returns the first key of the queue.
fn pop(queue: &mut VecDeque<u64>) -> u64 {
    touch_mut(&raw const queue[0], size_of::<u64>());
    queue.pop_front().expect("the queue is full")
}

/// A thread's access to the cache.
struct Inside<'c, M: Mechanism<2>> {
    cache: &'c Slotted<M>,
    trees: ForestSession<'c, M>,
    reader: Reader<'c>,
}

/// Returns the record whose address a tree returned.
///
/// # Safety
/// The look-up was made under the guard. A record is retired only when later look-ups cannot find it.
unsafe fn record<'g>(_: &'g Guard<'_>, address: u64) -> &'g Record {
    // SAFETY: the caller's promise.
    unsafe { &*(address as *const Record) }
}

impl<M: Mechanism<2>> Inside<'_, M> {
    /// Retires a record that is in no tree any more.
    fn retire(&self, address: Option<u64>) {
        let guard = self.reader.enter();
        // SAFETY: the record was boxed in `set`. The mechanism has removed it from the tree, and has returned its
        // address to this thread only.
        address.into_iter().for_each(|address| unsafe { guard.retire_box(address as *mut Record) });
    }

    /// Adds the new key `key` to the queue of its slot. If the slot is full, evicts a record.
    fn admit(&mut self, key: u64) {
        let cache = self.cache;
        let mut queue = cache.slots[slot_of(key)].lock().expect("no thread panics with it");
        push(&mut queue, key);
        if queue.len() <= cache.most {
            return;
        }
        // The search passes over the queue twice at most, since look-ups may mark records again meanwhile.
        let mut left = 2 * queue.len();
        let first = loop {
            let first = pop(&mut queue);
            left -= 1;
            if left == 0 || !self.was_found(first) {
                break first;
            }
            push(&mut queue, first);
        };
        drop(queue);
        let taken = self.trees.remove(first);
        self.retire(taken);
    }

    /// Returns whether a key's record has its mark, and removes the mark.
    fn was_found(&mut self, key: u64) -> bool {
        let guard = self.reader.enter();
        // SAFETY: the record was found under the guard.
        let record = self.trees.get(key).map(|found| unsafe { record(&guard, found) });
        // Relaxed: if a mark is lost, a record is only evicted earlier.
        let Some(found) = record.map(|record| &record.found).filter(|found| found.load(Relaxed)) else { return false };
        found.store(false, Relaxed);
        true
    }
}

impl<M: Mechanism<2>> Client for Inside<'_, M> {
    fn get(&mut self, key: u64) -> Option<u64> {
        let guard = self.reader.enter();
        // SAFETY: the record was found under the guard.
        let record = unsafe { record(&guard, self.trees.get(key)?) };
        if !record.found.load(Relaxed) {
            record.found.store(true, Relaxed);
        }
        Some(record.value.copied())
    }

    fn set(&mut self, key: u64, number: u64) {
        let record = Box::into_raw(Box::new(Record { value: Value::of(number), found: AtomicBool::new(false) }));
        touch_mut(record, BYTES);
        let mut put = || self.trees.put(key, record as u64);
        let replaced = match &self.cache.locks {
            None => put(),
            Some(locks) => locks.hold(slot_of(key), put),
        };
        match replaced {
            None => self.admit(key),
            replaced => self.retire(replaced),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record that is found repeatedly outlives newer records, and a slot keeps as many records as it has room for.
    #[test]
    fn what_is_found_gets_a_second_chance() {
        let cache = Slotted::over_rcu(Room::of(4 * SLOTS));
        let keys: Vec<u64> = (0..).filter(|key| slot_of(*key) == 0).take(20).collect();
        let mut client = cache.client();
        for key in &keys {
            client.set(*key, key + 1);
            assert_eq!(client.get(keys[0]), Some(keys[0] + 1));
        }
        assert_eq!(keys.iter().filter(|key| client.get(**key).is_some()).count(), 4);
    }
}

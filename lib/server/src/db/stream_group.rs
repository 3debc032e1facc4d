//! Groups of consumers of a stream.
//!
//! # Invariant
//! An entry is in `Group::pending` with a consumer if and only if the entry is in this consumer's `pending`.

use core::ops::{Deref, DerefMut};
use std::collections::{BTreeMap, BTreeSet};

use archipelago_platform::sync::Arc;

use super::stream::Id;

/// Bytes of a group and of a consumer, in addition to their names, and of a pending entry, which is in two trees.
const GROUP_COST: usize = 128;
const CONSUMER_COST: usize = 64;
const PENDING_COST: usize = 76;

/// The state of an entry that was delivered to a consumer and not acknowledged.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The consumer to which the entry was delivered.
    pub consumer: Arc<[u8]>,
    /// The time of the last delivery, in milliseconds since 1970.
    pub delivered: u64,
    /// How many times the entry was delivered.
    pub times: u64,
}

/// A consumer of a group.
#[derive(Clone, Debug, Default)]
pub struct Consumer {
    /// The time when the consumer was last active, in milliseconds since 1970.
    pub seen: u64,
    /// The entries that were delivered to the consumer and not acknowledged.
    pub pending: BTreeSet<Id>,
}

/// A group of consumers.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The largest identifier that was delivered to the group.
    pub last: Id,
    /// How many entries of the stream the group has read, if this number is known.
    pub read: Option<u64>,
    /// The entries that were delivered and not acknowledged.
    pub pending: BTreeMap<Id, Pending>,
    /// The consumers by name.
    pub consumers: BTreeMap<Arc<[u8]>, Consumer>,
    /// The length of all consumers' names together.
    names: usize,
}

impl Group {
    /// Returns a group without consumers.
    pub fn new(last: Id, read: Option<u64>) -> Self {
        Self { last, read, ..Self::default() }
    }

    /// Returns the approximate size of the group in bytes. O(1).
    pub(super) fn size(&self) -> usize {
        GROUP_COST + self.names + self.consumers.len() * CONSUMER_COST + self.pending.len() * PENDING_COST
    }

    /// Records that a consumer is active at time `now`. Creates the consumer if it does not exist. Returns its name,
    /// and whether it is new.
    pub fn seen(&mut self, name: &[u8], now: u64) -> (Arc<[u8]>, bool) {
        if let Some((name, _)) = self.consumers.get_key_value(name) {
            let name = name.clone();
            self.consumers.get_mut(&name).expect("it was found").seen = now;
            return (name, false);
        }
        let name: Arc<[u8]> = name.into();
        self.names += name.len();
        self.consumers.insert(name.clone(), Consumer { seen: now, pending: BTreeSet::new() });
        (name, true)
    }

    /// Makes an entry pending for a consumer of the group, and for no other consumer.
    pub fn assign(&mut self, id: Id, consumer: &Arc<[u8]>, delivered: u64, times: u64) {
        self.release(id);
        self.consumers.get_mut(consumer).expect("the consumer was seen").pending.insert(id);
        self.pending.insert(id, Pending { consumer: consumer.clone(), delivered, times });
    }

    /// Makes an entry no longer pending. Returns whether it was pending.
    pub fn release(&mut self, id: Id) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.remove(&id);
        }
        true
    }

    /// Removes a consumer and its pending entries. Returns how many entries were pending.
    pub fn dismiss(&mut self, name: &[u8]) -> usize {
        let Some(consumer) = self.consumers.remove(name) else { return 0 };
        self.names -= name.len();
        consumer.pending.iter().for_each(|id| _ = self.pending.remove(id));
        consumer.pending.len()
    }
}

/// Mutable access to a group of a stream. The drop adds the change of the group's size to the stream's sum.
pub struct Changed<'s> {
    group: &'s mut Group,
    grouped: &'s mut usize,
    before: usize,
}

impl<'s> Changed<'s> {
    /// Returns access to a group whose size is a part of the sum `grouped`.
    pub(super) fn of(group: &'s mut Group, grouped: &'s mut usize) -> Self {
        Self { before: group.size(), group, grouped }
    }
}

impl Deref for Changed<'_> {
    type Target = Group;

    fn deref(&self) -> &Group {
        self.group
    }
}

impl DerefMut for Changed<'_> {
    fn deref_mut(&mut self) -> &mut Group {
        self.group
    }
}

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        *self.grouped = *self.grouped + self.group.size() - self.before;
    }
}

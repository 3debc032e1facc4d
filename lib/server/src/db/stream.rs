//! Streams: entries ordered by identifier, and groups of consumers.
//!
//! Entries are stored in nodes. A node has at most [`NODE_ENTRIES`] entries and about [`NODE_BYTES`] bytes, in the form
//! of a Redis listpack ([`node`](super::stream_node)). Approximate trimming ("about") removes whole nodes, so the
//! division into nodes affects answers.
//!
//! # Invariants
//! - The key of a node in the tree is the identifier of the entry for which the node was made. All entries of a node
//!   have smaller identifiers than the next node's key.
//! - `len` is the number of entries that are not deleted, summed over all nodes.
//! - An entry is in `Group::pending` with a consumer if and only if the entry is in this consumer's `pending`.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use archipelago_platform::sync::Arc;

pub use super::stream_node::Entry;
use super::stream_node::Node;

/// The most entries of a node.
pub const NODE_ENTRIES: u32 = 100;
/// The size of a node in bytes at which another node is begun.
pub const NODE_BYTES: usize = 4096;

/// The identifier of an entry: milliseconds since 1970 and a sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u64, pub u64);

impl Id {
    /// The smallest identifier.
    pub const MIN: Self = Self(0, 0);
    /// The largest identifier.
    pub const MAX: Self = Self(u64::MAX, u64::MAX);

    /// Returns the next larger identifier. Returns `None` for the largest.
    pub fn next(self) -> Option<Self> {
        match self.1.checked_add(1) {
            Some(number) => Some(Self(self.0, number)),
            None => self.0.checked_add(1).map(|time| Self(time, 0)),
        }
    }

    /// Returns the next smaller identifier. Returns `None` for the smallest.
    pub fn previous(self) -> Option<Self> {
        match self.1.checked_sub(1) {
            Some(number) => Some(Self(self.0, number)),
            None => self.0.checked_sub(1).map(|time| Self(time, u64::MAX)),
        }
    }

    /// Returns the identifier as sixteen bytes. The bytes have the same order as the identifiers.
    pub fn bytes(self) -> [u8; 16] {
        (u128::from(self.0) << 64 | u128::from(self.1)).to_be_bytes()
    }
}

impl From<[u8; 16]> for Id {
    fn from(bytes: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self((number >> 64) as u64, number as u64)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

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
}

impl Group {
    /// Records that a consumer is active at time `now`. Creates the consumer if it does not exist. Returns its name,
    /// and whether it is new.
    pub fn seen(&mut self, name: &[u8], now: u64) -> (Arc<[u8]>, bool) {
        if let Some((name, _)) = self.consumers.get_key_value(name) {
            let name = name.clone();
            self.consumers.get_mut(&name).expect("it was found").seen = now;
            return (name, false);
        }
        let name: Arc<[u8]> = name.into();
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
        consumer.pending.iter().for_each(|id| _ = self.pending.remove(id));
        consumer.pending.len()
    }
}

/// The entries that trimming keeps.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// This many of the newest entries.
    Newest(u64),
    /// Entries with this identifier or a larger one.
    From(Id),
}

/// How a stream is to be trimmed.
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    /// The entries to keep.
    pub keep: Keep,
    /// Whether trimming is approximate: it then removes whole nodes only.
    pub about: bool,
    /// The most entries to remove. 0 means no limit.
    pub limit: u64,
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub(crate) nodes: BTreeMap<Id, Node>,
    len: u64,
    /// The largest identifier that the stream ever had, or the identifier that `XSETID` has set since.
    pub last: Id,
    /// The largest identifier that was deleted.
    pub deleted: Id,
    /// How many entries were ever added.
    pub added: u64,
    /// The groups by name.
    pub groups: BTreeMap<Vec<u8>, Group>,
}

impl Stream {
    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the stream has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the identifier of the first entry, or 0-0 if the stream is empty.
    pub fn first(&self) -> Id {
        self.entries().next().map_or(Id::MIN, |entry| entry.id)
    }

    /// Returns the identifier of the last entry.
    pub fn top(&self) -> Option<Id> {
        self.range(Id::MIN, Id::MAX, true).next().map(|entry| entry.id)
    }

    /// Returns the identifier for an entry that is added at time `now`. Returns `None` if no larger identifier exists.
    pub fn next_id(&self, now: u64) -> Option<Id> {
        if now > self.last.0 { Some(Id(now, 0)) } else { self.last.next() }
    }

    /// Appends an entry. Its identifier must be larger than `last`.
    pub fn append<'f>(&mut self, id: Id, fields: impl ExactSizeIterator<Item = &'f [u8]> + Clone) {
        let bytes: usize = fields.clone().map(<[u8]>::len).sum();
        let full = |node: &Node| node.bytes() + bytes >= NODE_BYTES || node.entries() >= NODE_ENTRIES;
        let (master, node) = match self.nodes.last_entry() {
            Some(last) if !full(last.get()) => (*last.key(), last.into_mut()),
            _ => (id, self.nodes.entry(id).or_insert_with(|| Node::new(fields.clone().step_by(2)))),
        };
        node.append(master, id, fields);
        self.len += 1;
        // Redis, too, wraps a count that a payload of `RESTORE` has set.
        self.added = self.added.wrapping_add(1);
        self.last = id;
    }

    /// Adds a node that was read from a file. Returns whether the node is after all existing nodes.
    pub(crate) fn adopt(&mut self, master: Id, node: Node) -> bool {
        let behind = self.end().is_none_or(|end| end < master);
        self.len += u64::from(node.live());
        self.nodes.insert(master, node);
        behind
    }

    /// Returns the identifier of the last entry, even if that entry is deleted.
    pub(crate) fn end(&self) -> Option<Id> {
        self.nodes.last_key_value().map(|(master, node)| node.last(*master))
    }

    /// Returns all entries in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.nodes.iter().flat_map(|(master, node)| node.live_entries(*master))
    }

    /// Returns the entries from `from` to `to`, both included, in descending order if `reverse` is set. The first entry
    /// is found in O(log n) and the time to decode one node.
    pub fn range(&self, from: Id, to: Id, reverse: bool) -> Box<dyn Iterator<Item = Entry<'_>> + '_> {
        if from > to {
            return Box::new(core::iter::empty());
        }
        let start = self.nodes.range(..=from).next_back().map_or(from, |(master, _)| *master);
        let nodes = self.nodes.range(start..=to);
        let within = move |entry: &Entry<'_>| from <= entry.id && entry.id <= to;
        if reverse {
            let all = nodes.rev().map(|(master, node)| node.live_entries(*master).collect::<Vec<_>>());
            return Box::new(all.flat_map(|entries| entries.into_iter().rev()).filter(within));
        }
        Box::new(nodes.flat_map(|(master, node)| node.live_entries(*master)).filter(within))
    }

    /// Returns whether an entry with this identifier exists.
    pub fn contains(&self, id: Id) -> bool {
        self.range(id, id, false).next().is_some()
    }

    /// Deletes an entry. Returns whether the entry existed.
    pub fn delete(&mut self, id: Id) -> bool {
        let Some((&master, node)) = self.nodes.range_mut(..=id).next_back() else { return false };
        if !node.delete(master, id) {
            return false;
        }
        if node.live() == 0 {
            self.nodes.remove(&master);
        }
        self.len -= 1;
        self.deleted = self.deleted.max(id);
        true
    }

    /// Removes the oldest entries. Returns how many entries were removed. `deleted` does not change, as in Redis.
    pub fn trim(&mut self, trim: Trim) -> u64 {
        let before = self.len;
        while let Some(first) = self.nodes.first_entry() {
            let (master, live) = (*first.key(), u64::from(first.get().live()));
            let removed = before - self.len;
            let enough = matches!(trim.keep, Keep::Newest(most) if self.len <= most);
            if enough || (trim.limit > 0 && removed + live > trim.limit) {
                break;
            }
            let whole = match trim.keep {
                Keep::Newest(most) => self.len - live >= most,
                Keep::From(id) => first.get().last(master) < id,
            };
            if whole {
                first.remove();
                self.len -= live;
                continue;
            }
            if !trim.about {
                let (node, len) = (first.into_mut(), &mut self.len);
                node.delete_while(master, |id| {
                    let go = match trim.keep {
                        Keep::Newest(most) => *len > most,
                        Keep::From(from) => id < from,
                    };
                    *len -= u64::from(go);
                    go
                });
            }
            break;
        }
        before - self.len
    }

    /// Returns whether an entry at or after `from` was deleted.
    pub fn has_holes_from(&self, from: Id) -> bool {
        self.len > 0 && self.deleted != Id::MIN && self.first() <= self.deleted && from <= self.deleted
    }

    /// Returns how many entries up to this identifier were ever added, if this number can be determined.
    pub fn ordinal(&self, id: Id) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if (self.len == 0 && id <= self.last) || id == self.last {
            return Some(self.added);
        }
        let first = self.first();
        if id > self.last || (self.deleted != Id::MIN && self.deleted >= first) {
            return None;
        }
        match id.cmp(&first) {
            core::cmp::Ordering::Less => self.added.checked_sub(self.len),
            core::cmp::Ordering::Equal => self.added.checked_sub(self.len).map(|before| before + 1),
            core::cmp::Ordering::Greater => None,
        }
    }

    /// Returns the approximate size of the stream in bytes.
    pub fn bytes(&self) -> usize {
        let nodes: usize = self.nodes.values().map(|node| node.capacity() + 32).sum();
        let groups = self.groups.iter().map(|(name, group)| {
            let consumers: usize =
                group.consumers.iter().map(|(name, consumer)| name.len() + 64 + consumer.pending.len() * 20).sum();
            name.len() + 128 + group.pending.len() * 56 + consumers
        });
        nodes + groups.sum::<usize>()
    }

    /// Returns the approximate size of the stream in bytes. It is extrapolated from the first node, because all nodes
    /// have about the same size. O(1).
    pub fn estimate(&self) -> usize {
        let first = self.nodes.values().next().map_or(0, |node| node.size() + 64);
        256 + self.nodes.len() * first
    }

    /// Passes to `add` everything of the stream that operations can see.
    pub fn digest(&self, add: &mut impl FnMut(&[u8])) {
        for (master, node) in &self.nodes {
            add(&master.bytes());
            node.digest(add);
        }
        add(&self.last.bytes());
        add(&self.deleted.bytes());
        add(&self.added.to_le_bytes());
        for (name, group) in &self.groups {
            add(name);
            add(&group.last.bytes());
            add(&group.read.unwrap_or(u64::MAX).to_le_bytes());
            for (key, Pending { consumer, delivered, times }) in &group.pending {
                add(&key.bytes());
                add(consumer);
                add(&delivered.to_le_bytes());
                add(&times.to_le_bytes());
            }
            for (name, consumer) in &group.consumers {
                add(name);
                add(&consumer.seen.to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Random;

    fn pairs(number: u64) -> [Vec<u8>; 4] {
        [
            b"a".to_vec(),
            number.to_string().into_bytes(),
            if number.is_multiple_of(3) { b"b".to_vec() } else { b"c".to_vec() },
            vec![b'v'; number as usize % 90],
        ]
    }

    #[test]
    fn is_a_map_by_identifier() {
        let (mut stream, mut model, mut random) = (Stream::default(), BTreeMap::<Id, Vec<Vec<u8>>>::new(), Random(5));
        for step in 0..8_000_u64 {
            let id = Id(step / 3, stream.last.1 % 7 + 1 + step);
            match random.below(10) {
                0..7 if id > stream.last => {
                    let fields = pairs(step);
                    stream.append(id, fields.iter().map(Vec::as_slice));
                    model.insert(id, fields.to_vec());
                }
                9 if random.below(40) == 0 => {
                    let keep = model.len() as u64 / 2;
                    stream.trim(Trim { keep: Keep::Newest(keep), about: false, limit: 0 });
                    while model.len() as u64 > keep {
                        model.pop_first();
                    }
                }
                _ => {
                    let victim = model.keys().nth(random.below(model.len() + 1)).copied().unwrap_or(id);
                    assert_eq!(stream.delete(victim), model.remove(&victim).is_some());
                }
            }
            assert_eq!(stream.len(), model.len() as u64);
            if step % 64 == 0 {
                let (from, to) = (Id(random.below(2_700) as u64, 0), Id(random.below(2_700) as u64, 9));
                let read = |entry: Entry<'_>| {
                    (entry.id, entry.fields().map(|field| field.bytes().into_owned()).collect::<Vec<_>>())
                };
                let expected: Vec<_> = model.iter().filter(|(id, _)| from <= **id && **id <= to).collect();
                assert!(stream.range(from, to, false).map(read).eq(expected.iter().map(|(id, f)| (**id, f.to_vec()))));
                assert!(
                    stream.range(from, to, true).map(read).eq(expected.iter().rev().map(|(id, f)| (**id, f.to_vec())))
                );
                assert_eq!(
                    (stream.first(), stream.top()),
                    (model.keys().next().copied().unwrap_or_default(), model.keys().last().copied())
                );
            }
        }
    }

    #[test]
    fn about_removes_whole_nodes() {
        let mut stream = Stream::default();
        (1..=250).for_each(|number| stream.append(Id(number, 0), [&b"f"[..], b"v"].into_iter()));
        assert_eq!(stream.nodes.len(), 3);
        assert_eq!(stream.trim(Trim { keep: Keep::Newest(140), about: true, limit: 0 }), 100);
        assert_eq!(stream.trim(Trim { keep: Keep::From(Id(201, 0)), about: true, limit: 50 }), 0);
        assert_eq!(stream.trim(Trim { keep: Keep::From(Id(201, 0)), about: true, limit: 100 }), 100);
        assert_eq!(stream.trim(Trim { keep: Keep::Newest(7), about: false, limit: 0 }), 43);
    }
}

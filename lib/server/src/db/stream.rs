//! Streams: entries by identifier, and groups of consumers.
//!
//! Entries lie in nodes of up to [`NODE_ENTRIES`] entries or about [`NODE_BYTES`] bytes, each the body of a listpack as Redis
//! has it ([`node`](super::stream_node)): what is trimmed "about" is trimmed by nodes, so that answers depend on them.
//!
//! # Invariants
//! - A node is in the tree at the identifier of the entry that it was made for, and its entries are below the next node's.
//! - `len` is the number of entries that are not deleted, over all nodes.
//! - An entry is in `Group::pending` with a consumer if and only if it is in the `pending` of this consumer.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use archipelago_platform::sync::Arc;

pub use super::stream_node::Entry;
use super::stream_node::Node;

/// The most entries of a node.
pub const NODE_ENTRIES: u32 = 100;
/// Bytes of a node before another is begun.
pub const NODE_BYTES: usize = 4096;

/// An entry's identifier: milliseconds and a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u64, pub u64);

impl Id {
    /// The smallest.
    pub const MIN: Self = Self(0, 0);
    /// The largest.
    pub const MAX: Self = Self(u64::MAX, u64::MAX);

    /// The one behind it.
    pub fn next(self) -> Option<Self> {
        match self.1.checked_add(1) {
            Some(number) => Some(Self(self.0, number)),
            None => self.0.checked_add(1).map(|time| Self(time, 0)),
        }
    }

    /// The one before it.
    pub fn previous(self) -> Option<Self> {
        match self.1.checked_sub(1) {
            Some(number) => Some(Self(self.0, number)),
            None => self.0.checked_sub(1).map(|time| Self(time, u64::MAX)),
        }
    }

    /// Its sixteen bytes, whose order is that of identifiers.
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

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug)]
pub struct Pending {
    /// To which consumer.
    pub consumer: Arc<[u8]>,
    /// When, in milliseconds since 1970.
    pub delivered: u64,
    /// How often.
    pub times: u64,
}

/// One of a group.
#[derive(Clone, Debug, Default)]
pub struct Consumer {
    /// When it was seen last, in milliseconds since 1970.
    pub seen: u64,
    /// What was delivered to it and not acknowledged.
    pub pending: BTreeSet<Id>,
}

/// A group of consumers.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Up to where entries were delivered.
    pub last: Id,
    /// How many entries were read, if that is known.
    pub read: Option<u64>,
    /// Entries that were delivered and not acknowledged.
    pub pending: BTreeMap<Id, Pending>,
    /// Consumers by name.
    pub consumers: BTreeMap<Arc<[u8]>, Consumer>,
}

impl Group {
    /// Notes that a consumer was seen: a new one, if there is none of the name. Returns its name, and whether it is new.
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

    /// Makes an entry pending with a consumer of the group, and with no other.
    pub fn assign(&mut self, id: Id, consumer: &Arc<[u8]>, delivered: u64, times: u64) {
        self.release(id);
        self.consumers.get_mut(consumer).expect("the consumer was seen").pending.insert(id);
        self.pending.insert(id, Pending { consumer: consumer.clone(), delivered, times });
    }

    /// Takes an entry out of those that are pending. Returns whether it was one.
    pub fn release(&mut self, id: Id) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.remove(&id);
        }
        true
    }

    /// Removes a consumer and what is pending with it. Returns how many entries were.
    pub fn dismiss(&mut self, name: &[u8]) -> usize {
        let Some(consumer) = self.consumers.remove(name) else { return 0 };
        consumer.pending.iter().for_each(|id| _ = self.pending.remove(id));
        consumer.pending.len()
    }
}

/// What is to be kept.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// The newest entries, this many.
    Newest(u64),
    /// Entries from this identifier on.
    From(Id),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    /// What is to be kept.
    pub keep: Keep,
    /// Whole nodes only.
    pub about: bool,
    /// The most entries to remove; 0: all.
    pub limit: u64,
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub(crate) nodes: BTreeMap<Id, Node>,
    len: u64,
    /// The largest identifier there ever was.
    pub last: Id,
    /// The largest that was deleted.
    pub deleted: Id,
    /// How many entries were ever added.
    pub added: u64,
    /// Groups by name.
    pub groups: BTreeMap<Vec<u8>, Group>,
}

impl Stream {
    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first entry's identifier, or 0-0.
    pub fn first(&self) -> Id {
        self.entries().next().map_or(Id::MIN, |entry| entry.id)
    }

    /// The last entry's identifier.
    pub fn top(&self) -> Option<Id> {
        self.range(Id::MIN, Id::MAX, true).next().map(|entry| entry.id)
    }

    /// The identifier for an entry of now.
    pub fn next_id(&self, now: u64) -> Option<Id> {
        if now > self.last.0 { Some(Id(now, 0)) } else { self.last.next() }
    }

    /// Appends an entry; its identifier is larger than `last`.
    pub fn append<'f>(&mut self, id: Id, fields: impl ExactSizeIterator<Item = &'f [u8]> + Clone) {
        let bytes: usize = fields.clone().map(<[u8]>::len).sum();
        let full = |node: &Node| node.bytes() + bytes >= NODE_BYTES || node.entries() >= NODE_ENTRIES;
        let (master, node) = match self.nodes.last_entry() {
            Some(last) if !full(last.get()) => (*last.key(), last.into_mut()),
            _ => (id, self.nodes.entry(id).or_insert_with(|| Node::new(fields.clone().step_by(2)))),
        };
        node.append(master, id, fields);
        self.len += 1;
        self.added += 1;
        self.last = id;
    }

    /// Appends a node that a file has. Returns whether it is behind all others.
    pub(crate) fn adopt(&mut self, master: Id, node: Node) -> bool {
        let behind = self.end().is_none_or(|end| end < master);
        self.len += u64::from(node.live());
        self.nodes.insert(master, node);
        behind
    }

    /// The identifier of the last entry, be it deleted.
    pub(crate) fn end(&self) -> Option<Id> {
        self.nodes.last_key_value().map(|(master, node)| node.last(*master))
    }

    /// All entries in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.nodes.iter().flat_map(|(master, node)| node.live_entries(*master))
    }

    /// The entries from `from` to `to`, which are in it; from the last on, if `reverse`. O(log n + a node) to the first.
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

    /// Returns whether there is such an entry.
    pub fn contains(&self, id: Id) -> bool {
        self.range(id, id, false).next().is_some()
    }

    /// Deletes an entry. Returns whether it was there.
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

    /// Trims from the oldest entry on. Returns how many entries went. They do not count as deleted, as in Redis.
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

    /// Returns whether an entry from `from` on was deleted.
    pub fn has_holes_from(&self, from: Id) -> bool {
        self.len > 0 && self.deleted != Id::MIN && self.first() <= self.deleted && from <= self.deleted
    }

    /// How many entries there ever were up to this identifier, if that can be known.
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

    /// Bytes of it, about.
    pub fn bytes(&self) -> usize {
        let nodes: usize = self.nodes.values().map(|node| node.capacity() + 32).sum();
        let groups = self.groups.iter().map(|(name, group)| {
            let consumers: usize =
                group.consumers.iter().map(|(name, consumer)| name.len() + 64 + consumer.pending.len() * 20).sum();
            name.len() + 128 + group.pending.len() * 56 + consumers
        });
        nodes + groups.sum::<usize>()
    }

    /// Bytes of it, about, by its first node: those behind it are of about the same length. O(1).
    pub fn estimate(&self) -> usize {
        let first = self.nodes.values().next().map_or(0, |node| node.size() + 64);
        256 + self.nodes.len() * first
    }

    /// Shows `add` all that operations can see of it.
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

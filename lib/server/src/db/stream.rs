//! Streams: entries ordered by identifier, and groups of consumers.
//!
//! Entries are stored in nodes. A node has at most [`NODE_ENTRIES`] entries and about [`NODE_BYTES`] bytes, in the form
//! of a Redis listpack ([`node`](super::stream_node)). Approximate trimming ("about") removes whole nodes, so the
//! division into nodes affects answers.
//!
//! # Invariants
//! - The key of a node in the tree is the identifier of the entry for which the node was made. All live entries of a
//!   node are in order, none precedes the node's key, and all have smaller identifiers than the next node's key.
//!   Deleted entries may have any identifiers: after `XSETID` to a smaller identifier, new entries have smaller
//!   identifiers than deleted entries before them.
//! - A node without live entries precedes all nodes with live entries, unless it was read from a file.
//! - `len` is the number of entries that are not deleted, summed over all nodes.
//! - `stored` and `grouped` are the sums of the nodes' and groups' sizes, with the costs per node and the groups'
//!   names.

use core::fmt;
use std::collections::BTreeMap;

pub use super::stream_group::{Changed, Consumer, Group, Pending};
pub use super::stream_node::Entry;
use super::stream_node::Node;

/// The most entries of a node.
pub const NODE_ENTRIES: u32 = 100;
/// The size of a node in bytes at which another node is begun.
pub const NODE_BYTES: usize = 4096;

#[cfg(test)]
std::thread_local! {
    /// How often this thread has looked a stream's first entry up.
    pub(crate) static FIRSTS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Bytes of a node in the tree, in addition to its entries.
const NODE_COST: usize = 64;
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

fn weight(node: &Node) -> usize {
    node.size() + NODE_COST
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub(crate) nodes: BTreeMap<Id, Node>,
    len: u64,
    stored: usize,
    grouped: usize,
    /// The identifier of the entry that was added last, or the identifier that `XSETID` has set since.
    pub last: Id,
    /// The largest identifier that was deleted.
    pub deleted: Id,
    /// How many entries were ever added.
    pub added: u64,
    groups: BTreeMap<Vec<u8>, Group>,
}

impl Stream {
    /// Returns the groups by name.
    pub fn groups(&self) -> &BTreeMap<Vec<u8>, Group> {
        &self.groups
    }

    /// Returns a group to be changed.
    pub fn group(&mut self, name: &[u8]) -> Option<Changed<'_>> {
        Some(Changed::of(self.groups.get_mut(name)?, &mut self.grouped))
    }

    /// Adds a group. Returns the group that had this name before.
    pub fn add_group(&mut self, name: Vec<u8>, group: Group) -> Option<Group> {
        let before = self.remove_group(&name);
        self.grouped += name.len() + group.size();
        self.groups.insert(name, group);
        before
    }

    /// Removes a group.
    pub fn remove_group(&mut self, name: &[u8]) -> Option<Group> {
        let group = self.groups.remove(name)?;
        self.grouped -= name.len() + group.size();
        Some(group)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the stream has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the identifier of the first entry, or 0-0 if the stream is empty. Takes the time to decode the first
    /// entry and the deleted entries before it.
    pub fn first(&self) -> Id {
        #[cfg(test)]
        FIRSTS.set(FIRSTS.get() + 1);
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
        // After `XSETID` to a smaller identifier, the entry may have a smaller identifier than the key of a last node
        // whose entries are all deleted. In such a node, or behind it, look-ups by the nodes' keys would not find the
        // entry.
        while let Some((&master, node)) = self.nodes.last_key_value()
            && node.live() == 0
            && id <= master
        {
            self.remove_node(master);
        }
        let bytes: usize = fields.clone().map(<[u8]>::len).sum();
        let full = |node: &Node| node.bytes() + bytes >= NODE_BYTES || node.entries() >= NODE_ENTRIES;
        let (master, node) = match self.nodes.last_entry() {
            Some(last) if !full(last.get()) => {
                self.stored -= weight(last.get());
                (*last.key(), last.into_mut())
            }
            _ => (id, self.nodes.entry(id).or_insert_with(|| Node::new(fields.clone().step_by(2)))),
        };
        node.append(master, id, fields);
        self.stored += weight(node);
        self.len += 1;
        // Redis, too, wraps a count that a payload of `RESTORE` has set.
        self.added = self.added.wrapping_add(1);
        self.last = id;
    }

    /// Returns a stream of the nodes of a file, each with its master (the identifier of the entry for which the node
    /// was made). The stream's `last` is the identifier of its last live entry. The nodes must be in the order of the
    /// masters. Returns `None` if a node is malformed, if the nodes are out of order, or if their live entries overlap.
    ///
    /// Redis, and versions of this program before the end of November 2026, append an entry to the last node even if
    /// the entry's identifier is smaller than the master. Such a node gets the identifier of its first live entry as
    /// its master.
    pub(crate) fn of_nodes<B: AsRef<[u8]>>(saved: impl Iterator<Item = (Id, B)>) -> Option<Self> {
        let (mut nodes, mut before) = (Vec::new(), None);
        for (master, bytes) in saved {
            if before.replace(master).is_some_and(|before| before >= master) {
                return None;
            }
            let (node, edges) = Node::load(master, bytes.as_ref())?;
            nodes.push(match edges {
                Some((first, _)) if first < master => (first, node.moved(master, first), edges),
                _ => (master, node, edges),
            });
        }
        nodes.sort_by_key(|(master, ..)| *master);
        let (mut stream, mut end) = (Self::default(), None);
        for (master, node, edges) in nodes {
            let behind = end.is_none_or(|end| end < master);
            match edges {
                Some((_, last)) if behind => end = Some(last),
                Some(_) => return None,
                // Nothing is lost with a node that has no live entry.
                None if !behind => continue,
                None => {}
            }
            stream.len += u64::from(node.live());
            stream.stored += weight(&node);
            if let Some(replaced) = stream.nodes.insert(master, node) {
                stream.stored -= weight(&replaced);
            }
        }
        stream.last = end.unwrap_or_default();
        Some(stream)
    }

    fn remove_node(&mut self, master: Id) {
        if let Some(node) = self.nodes.remove(&master) {
            self.stored -= weight(&node);
            self.len -= u64::from(node.live());
        }
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
        self.len -= 1;
        if node.live() == 0 {
            self.remove_node(master);
        }
        self.deleted = self.deleted.max(id);
        true
    }

    /// Removes the oldest entries. Returns how many entries were removed. `deleted` does not change, as in Redis.
    pub fn trim(&mut self, trim: Trim) -> u64 {
        let (before, mut from) = (self.len, Some(Id::MIN));
        while let Some((&master, node)) = from.and_then(|from| self.nodes.range_mut(from..).next()) {
            let live = u64::from(node.live());
            let removed = before - self.len;
            let enough = matches!(trim.keep, Keep::Newest(most) if self.len <= most);
            if enough || (trim.limit > 0 && removed + live > trim.limit) {
                break;
            }
            let whole = match trim.keep {
                Keep::Newest(most) => self.len - live >= most,
                Keep::From(id) => node.last(master) < id,
            };
            if whole {
                self.remove_node(master);
                continue;
            }
            if trim.about {
                break;
            }
            let len = &mut self.len;
            node.delete_while(master, |id| {
                let go = match trim.keep {
                    Keep::Newest(most) => *len > most,
                    Keep::From(from) => id < from,
                };
                *len -= u64::from(go);
                go
            });
            if node.live() > 0 {
                break;
            }
            // Only deleted entries are left, of which one has an identifier that is to be kept. The next node's entries
            // may have smaller identifiers than this deleted entry.
            from = master.next();
        }
        before - self.len
    }

    /// Returns whether an entry was deleted that is neither before `from` nor before the stream's [first](Self::first)
    /// entry, whose identifier is `first`. Returns `false` if the stream is empty. O(1).
    pub fn has_holes_from(&self, first: Id, from: Id) -> bool {
        self.len > 0 && self.deleted != Id::MIN && first <= self.deleted && from <= self.deleted
    }

    /// Returns how many entries up to this identifier were ever added, if this number can be determined. `first` is the
    /// identifier of the stream's [first](Self::first) entry. O(1).
    pub fn ordinal(&self, first: Id, id: Id) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if (self.len == 0 && id <= self.last) || id == self.last {
            return Some(self.added);
        }
        if id > self.last || (self.deleted != Id::MIN && self.deleted >= first) {
            return None;
        }
        match id.cmp(&first) {
            core::cmp::Ordering::Less => self.added.checked_sub(self.len),
            core::cmp::Ordering::Equal => self.added.checked_sub(self.len).map(|before| before + 1),
            core::cmp::Ordering::Greater => None,
        }
    }

    /// Returns the approximate number of bytes that the stream has allocated, with its groups. O(nodes).
    pub fn bytes(&self) -> usize {
        self.nodes.values().map(|node| node.capacity() + 32).sum::<usize>() + self.grouped
    }

    /// Returns the approximate size of the stream in bytes, with its groups. O(1).
    pub fn estimate(&self) -> usize {
        256 + self.stored + self.grouped
    }

    /// Asserts that the running sums equal the sums over all nodes, groups and consumers.
    #[cfg(test)]
    pub(crate) fn check_sums(&self) {
        let groups = self.groups.iter().map(|(name, group)| {
            let names: usize = group.consumers.keys().map(|name| name.len()).sum();
            let pending: usize = group.consumers.values().map(|consumer| consumer.pending.len()).sum();
            name.len() + 128 + names + group.consumers.len() * 64 + pending * 76
        });
        assert_eq!(self.grouped, groups.sum::<usize>());
        assert_eq!(self.stored, self.nodes.values().map(|node| node.size() + 64).sum::<usize>());
        assert_eq!(self.len, self.entries().count() as u64);
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
    use std::collections::BTreeSet;

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
            stream.check_sums();
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

    fn of_saved(stream: &Stream) -> Option<Stream> {
        let read = Stream::of_nodes(stream.nodes.iter().map(|(master, node)| (*master, node.save())))?;
        Some(Stream { last: stream.last, deleted: stream.deleted, added: stream.added, ..read })
    }

    fn digest(stream: &Stream) -> Vec<u8> {
        let mut all = Vec::new();
        stream.digest(&mut |bytes| all.extend_from_slice(bytes));
        all
    }

    #[test]
    fn entries_precede_deleted_ones_after_the_last_identifier_was_set_back() {
        let (mut behind, mut nodes) = (0, 0);
        for seed in 0..30 {
            let (mut stream, mut model, mut random) = (Stream::default(), BTreeSet::new(), Random(seed));
            for step in 0..600 {
                let some = Id(0, 1 + random.below(1 + stream.last.1 as usize) as u64);
                match random.below(12) {
                    0..6 => {
                        let id = Id(0, stream.last.1 + 1 + random.below(3) as u64);
                        let value = vec![b'v'; [1, 30, 1_500][random.below(3)]];
                        stream.append(id, [&b"f"[..], &value].into_iter());
                        model.insert(id);
                    }
                    6 => {
                        let last = model.pop_last();
                        assert_eq!(stream.delete(last.unwrap_or(some)), last.is_some());
                    }
                    7 => assert_eq!(stream.delete(some), model.remove(&some)),
                    8 => {
                        let from = Id(0, stream.last.1.saturating_sub(random.below(60) as u64));
                        let (before, kept) = (model.len(), model.split_off(&from));
                        model = kept;
                        let trimmed = stream.trim(Trim { keep: Keep::From(from), about: false, limit: 0 });
                        assert_eq!(trimmed, (before - model.len()) as u64);
                    }
                    9 if random.below(8) == 0 => {
                        let keep = random.below(30) as u64;
                        stream.trim(Trim { keep: Keep::Newest(keep), about: false, limit: 0 });
                        while model.len() as u64 > keep {
                            model.pop_first();
                        }
                    }
                    // As `XSETID` does.
                    _ => stream.last = stream.top().unwrap_or(Id(0, random.below(1 + stream.last.1 as usize) as u64)),
                }
                stream.check_sums();
                assert!(stream.entries().map(|entry| entry.id).eq(model.iter().copied()), "seed {seed}, step {step}");
                if step % 8 == 0 {
                    let mut all = (0..900).map(|number| Id(0, number));
                    assert!(all.all(|id| stream.contains(id) == model.contains(&id)), "seed {seed}, step {step}");
                }
                assert_eq!(
                    (stream.first(), stream.top()),
                    (model.first().copied().unwrap_or_default(), model.last().copied())
                );
                let read = of_saved(&stream).expect("what is saved is readable");
                read.check_sums();
                assert_eq!(digest(&read), digest(&stream));
                let dead = |(master, node): (&Id, &Node)| {
                    node.last(*master) > node.live_entries(*master).last().map_or(Id::MAX, |it| it.id)
                };
                behind += stream.nodes.iter().filter(|node| dead(*node)).count();
                nodes += usize::from(stream.nodes.len() > 2);
            }
        }
        assert!(
            behind > 1_000 && nodes > 1_000,
            "{behind} nodes end with a deleted entry, {nodes} streams have three nodes"
        );
    }

    /// Earlier versions, and Redis, made such nodes.
    #[test]
    fn nodes_whose_entries_precede_the_master_are_read() {
        let node = |ids: &[u64], dead: &[u64]| {
            let master = Id(0, ids[0]);
            let mut node = Node::new([&b"f"[..]].into_iter());
            ids.iter().for_each(|id| {
                let name = if id % 2 == 0 { &b"f"[..] } else { b"g" };
                node.append(master, Id(0, *id), [name, &[b'v'; 300][..*id as usize]].into_iter());
            });
            dead.iter().for_each(|id| assert!(node.delete(master, Id(0, *id))));
            (master, node)
        };
        // Entries 10 and 50 were deleted before entries 2 to 5 were added. Their node was full then, so 6 got another.
        let nodes = [node(&[6], &[]), node(&[7, 8], &[8]), node(&[10, 50], &[10, 50])];
        let mut late = nodes[2].1.clone();
        for id in 2..6 {
            let name = if id % 2 == 0 { &b"f"[..] } else { b"g" };
            late.append(Id(0, 10), Id(0, id), [name, &[b'v'; 300][..id as usize]].into_iter());
        }
        let saved = [(nodes[0].0, nodes[0].1.save()), (nodes[1].0, nodes[1].1.save()), (Id(0, 10), late.save())];
        let stream = Stream::of_nodes(saved.into_iter()).expect("it is readable");
        stream.check_sums();
        let read: Vec<_> = stream
            .entries()
            .map(|entry| (entry.id.1, entry.fields().map(|field| field.bytes().into_owned()).collect::<Vec<_>>()))
            .collect();
        let expected: Vec<_> = (2..8)
            .map(|id| (id, vec![if id % 2 == 0 { b"f".to_vec() } else { b"g".to_vec() }, vec![b'v'; id as usize]]))
            .collect();
        assert_eq!(read, expected);
        assert!((2..8).all(|id| stream.contains(Id(0, id))) && !stream.contains(Id(0, 50)));
        assert_eq!(digest(&of_saved(&stream).unwrap()), digest(&stream), "what was mended is saved as it is");
        // Live entries of two nodes may not overlap, and the nodes must be in order.
        let saved = |nodes: [(Id, Node); 2]| Stream::of_nodes(nodes.into_iter().map(|(id, node)| (id, node.save())));
        assert!(saved([node(&[1, 5], &[]), node(&[6, 7], &[6])]).is_some());
        assert!(saved([node(&[1, 5], &[]), node(&[5, 6], &[5])]).is_none());
        assert!(saved([node(&[1, 5], &[]), node(&[4, 6], &[])]).is_none());
        assert!(saved([node(&[4, 6], &[]), node(&[1, 2], &[])]).is_none());
        assert!(saved([node(&[1, 9], &[9]), node(&[4, 6], &[])]).is_some());
    }

    #[test]
    fn trims_behind_a_node_that_a_deleted_entry_keeps() {
        let mut stream = Stream::default();
        let add = |stream: &mut Stream, id| stream.append(Id(0, id), [&b"f"[..], &[b'v'; 4_000]].into_iter());
        stream.append(Id(0, 1), [&b"f"[..], b"v"].into_iter());
        add(&mut stream, 50);
        assert!(stream.delete(Id(0, 50)));
        stream.last = Id(0, 1);
        (2..9).for_each(|id| add(&mut stream, id));
        assert!(stream.nodes.len() > 5);
        assert_eq!(stream.trim(Trim { keep: Keep::From(Id(0, 7)), about: false, limit: 0 }), 6);
        assert_eq!((stream.first(), stream.len()), (Id(0, 7), 2));
        stream.check_sums();
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

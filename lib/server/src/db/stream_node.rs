//! Nodes of streams: several entries in the form of a Redis listpack, in memory as in RDB files.
//!
//! The *master* is the identifier of the entry for which the node was made. The field names of this entry are the
//! *master's names*. The items of the listpack are:
//!
//! 1. the number of live entries, and the number of entries that are marked as deleted;
//! 2. the number of the master's names, these names, and 0;
//! 3. for each entry: its flags; the differences between its identifier's two numbers and the master's; the number of
//!    its fields; alternating names and values; and the number of the entry's items. An entry whose names are the
//!    master's has neither the number of fields nor the names.
//!
//! A [`Node`] stores the first two numbers as integers, because they change often. Its body is the rest of the
//! listpack.

use super::listpack::{self, Item};
use super::stream::Id;

/// The flag of a deleted entry.
const DELETED: i64 = 1;
/// The flag of an entry whose field names are the master's.
const SAME: i64 = 2;

/// A node. See the module.
#[derive(Clone, Debug)]
pub struct Node {
    live: u32,
    dead: u32,
    /// The number of items in the body.
    items: u32,
    /// The offset of the first entry in `body`.
    start: u32,
    body: Vec<u8>,
}

/// An entry of a node.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'n> {
    /// The entry's identifier.
    pub id: Id,
    flags: i64,
    /// The offsets of the entry and of its fields or values.
    at: usize,
    content: usize,
    /// The number of fields.
    count: usize,
    body: &'n [u8],
}

fn number(body: &[u8], at: usize) -> Option<(i64, usize)> {
    listpack::next(body, at).and_then(|(item, next)| Some((item.int()?, next)))
}

/// Appends the first three items of an entry.
fn put_head(flags: i64, id: Id, master: Id, body: &mut Vec<u8>) {
    listpack::put_int(flags, body);
    listpack::put_int(id.0.wrapping_sub(master.0) as i64, body);
    listpack::put_int(id.1.wrapping_sub(master.1) as i64, body);
}

/// Returns the offset after the next `count` items.
fn skip(body: &[u8], at: usize, count: usize) -> Option<usize> {
    (0..count).try_fold(at, |at, _| Some(listpack::next(body, at)?.1))
}

impl<'n> Entry<'n> {
    /// Returns the entry at `at`, and the offset of the next entry. Returns `None` if the entry is malformed.
    fn read(body: &'n [u8], master: Id, at: usize) -> Option<(Self, usize)> {
        let (flags, next) = number(body, at)?;
        let (time, next) = number(body, next)?;
        let (sequence, next) = number(body, next)?;
        let id = Id(master.0.wrapping_add(time as u64), master.1.wrapping_add(sequence as u64));
        let (count, content) = if flags & SAME != 0 { number(body, 0)? } else { number(body, next)? };
        let count = usize::try_from(count).ok().filter(|count| *count <= body.len())?;
        let content = if flags & SAME != 0 { next } else { content };
        let items = if flags & SAME != 0 { count } else { 2 * count };
        let (told, end) = number(body, skip(body, content, items)?)?;
        // The items of an entry other than names and values: flags, two differences and, if the names are not the
        // master's, the number of fields.
        let expected = items as i64 + 3 + i64::from(flags & SAME == 0);
        (told == expected).then_some((Self { id, flags, at, content, count, body }, end))
    }

    fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the entry has no fields.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns alternating names and values.
    pub fn fields(self) -> impl Iterator<Item = Item<'n>> {
        let same = self.flags & SAME != 0;
        // The master's names follow their number at the start of the body.
        let (mut name, mut value) = (number(self.body, 0).map_or(0, |(_, next)| next), self.content);
        (0..2 * self.count).map_while(move |turn| {
            let place = if same && turn % 2 == 0 { &mut name } else { &mut value };
            let (item, next) = listpack::next(self.body, *place)?;
            *place = next;
            Some(item)
        })
    }
}

impl Node {
    /// Returns a node without entries. `names` become the master's names.
    pub fn new<'f>(names: impl Iterator<Item = &'f [u8]> + Clone) -> Self {
        let mut body = Vec::new();
        let count = names.clone().count();
        listpack::put_int(count as i64, &mut body);
        names.for_each(|name| listpack::put(name, &mut body));
        listpack::put_int(0, &mut body);
        Self { live: 0, dead: 0, items: count as u32 + 2, start: body.len() as u32, body }
    }

    /// Returns the node of a listpack that comes from an untrusted source, and the identifiers of its first and its
    /// last live entry. Returns `None` if the listpack is malformed, has no entry, or its live entries are out of
    /// order.
    ///
    /// Deleted entries may have any identifiers, because `XSETID` sets the stream's last identifier back behind them,
    /// and later entries then have smaller identifiers. The first live entry may precede the master
    /// ([`Stream::of_nodes`]).
    ///
    /// [`Stream::of_nodes`]: super::stream::Stream::of_nodes
    pub fn load(master: Id, bytes: &[u8]) -> Option<(Self, Option<(Id, Id)>)> {
        let items = listpack::items(bytes)?.len();
        let (live, at) = number(bytes, listpack::HEADER)?;
        let (dead, at) = number(bytes, at)?;
        let body = bytes[at..bytes.len() - 1].to_vec();
        let (names, at) = number(&body, 0)?;
        let names = usize::try_from(names).ok().filter(|names| *names <= body.len())?;
        let (zero, start) = number(&body, skip(&body, at, names)?)?;
        let node = Self {
            live: u32::try_from(live).ok()?,
            dead: u32::try_from(dead).ok()?,
            items: u32::try_from(items - 2).ok()?,
            start: start as u32,
            body,
        };
        let (mut at, mut met, mut edges) = (start, (0, 0), None);
        while at < node.body.len() {
            let (entry, next) = Entry::read(&node.body, master, at)?;
            // Deletion changes the flags in place. They have to be a single byte and may have no unknown bits.
            if !(0..=DELETED | SAME).contains(&entry.flags) || i64::from(node.body[at]) != entry.flags {
                return None;
            }
            if entry.is_deleted() {
                met.1 += 1
            } else {
                met.0 += 1;
                edges = match edges {
                    Some((_, last)) if last >= entry.id => return None,
                    Some((first, _)) => Some((first, entry.id)),
                    None => Some((entry.id, entry.id)),
                };
            }
            at = next;
        }
        (zero == 0 && met == (node.live, node.dead) && met != (0, 0)).then_some((node, edges))
    }

    /// Returns the node's live entries as a node with another master. The names of the old master remain the master's
    /// names.
    pub fn moved(&self, from: Id, to: Id) -> Self {
        let names = number(&self.body, 0).map_or(0, |(count, _)| count);
        let mut body = self.body[..self.start as usize].to_vec();
        let mut items = names as u32 + 2;
        for entry in self.live_entries(from) {
            let others = usize::from(entry.flags & SAME == 0);
            let content = if others == 0 { entry.count } else { 2 * entry.count };
            let end = skip(&self.body, entry.content, content).expect("the entry was read");
            put_head(entry.flags, entry.id, to, &mut body);
            if others == 1 {
                listpack::put_int(entry.count as i64, &mut body);
            }
            body.extend_from_slice(&self.body[entry.content..end]);
            listpack::put_int((3 + others + content) as i64, &mut body);
            items += (4 + others + content) as u32;
        }
        Self { live: self.live, dead: 0, items, start: self.start, body }
    }

    /// Returns the node as a listpack.
    pub fn save(&self) -> Vec<u8> {
        let mut counts = Vec::new();
        listpack::put_int(self.live.into(), &mut counts);
        listpack::put_int(self.dead.into(), &mut counts);
        listpack::whole(self.items as usize + 2, &[&counts, &self.body])
    }

    /// Returns the length of the listpack in bytes.
    pub fn bytes(&self) -> usize {
        let count = |number| if number < 128 { 2 } else { 3 };
        listpack::HEADER + count(self.live) + count(self.dead) + self.body.len() + 1
    }

    /// Returns the length of the body in bytes.
    pub fn size(&self) -> usize {
        self.body.len()
    }

    /// Returns the number of allocated bytes.
    pub fn capacity(&self) -> usize {
        self.body.capacity()
    }

    /// Returns the number of entries, including deleted ones.
    pub fn entries(&self) -> u32 {
        self.live + self.dead
    }

    /// Returns the number of entries that are not deleted.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Appends an entry. `fields` are alternating names and values.
    pub fn append<'f>(&mut self, master: Id, id: Id, fields: impl ExactSizeIterator<Item = &'f [u8]> + Clone) {
        let same = self.has_names(fields.clone().step_by(2));
        let body = &mut self.body;
        let count = fields.len() / 2;
        put_head(if same { SAME } else { 0 }, id, master, body);
        let mut items = 3;
        if !same {
            listpack::put_int(count as i64, body);
            items += 1;
        }
        for (at, field) in fields.enumerate() {
            if !same || at % 2 == 1 {
                listpack::put(field, body);
                items += 1;
            }
        }
        listpack::put_int(items, body);
        self.items += items as u32 + 1;
        self.live += 1;
    }

    /// Returns whether `names` are the master's names.
    fn has_names<'f>(&self, names: impl Iterator<Item = &'f [u8]>) -> bool {
        let Some((count, mut at)) = number(&self.body, 0) else { return false };
        let mut left = count;
        for name in names {
            match listpack::next(&self.body, at) {
                Some((item, next)) if left > 0 && item.is(name) => (left, at) = (left - 1, next),
                _ => return false,
            }
        }
        left == 0
    }

    fn all(&self, master: Id) -> impl Iterator<Item = Entry<'_>> {
        let mut at = self.start as usize;
        core::iter::from_fn(move || {
            let (entry, next) = Entry::read(&self.body, master, at)?;
            at = next;
            Some(entry)
        })
    }

    /// Returns the entries that are not deleted, in order.
    pub fn live_entries(&self, master: Id) -> impl Iterator<Item = Entry<'_>> {
        self.all(master).filter(|entry| !entry.is_deleted())
    }

    /// Returns the identifier of the last entry, even if that entry is deleted.
    pub fn last(&self, master: Id) -> Id {
        self.all(master).last().map_or(master, |entry| entry.id)
    }

    fn mark(&mut self, at: usize) {
        self.body[at] |= DELETED as u8;
        self.live -= 1;
        self.dead += 1;
    }

    /// Deletes an entry. Returns whether the entry existed.
    pub fn delete(&mut self, master: Id, id: Id) -> bool {
        let found =
            self.live_entries(master).find(|entry| entry.id >= id).filter(|entry| entry.id == id).map(|entry| entry.at);
        found.inspect(|at| self.mark(*at)).is_some()
    }

    /// Deletes entries from the first one on, and stops at the first entry for which `goes` returns `false`.
    pub fn delete_while(&mut self, master: Id, mut goes: impl FnMut(Id) -> bool) {
        let places: Vec<usize> =
            self.live_entries(master).take_while(|entry| goes(entry.id)).map(|entry| entry.at).collect();
        places.into_iter().for_each(|at| self.mark(at));
    }

    /// Passes the whole node to `add`.
    pub fn digest(&self, add: &mut impl FnMut(&[u8])) {
        add(&self.live.to_le_bytes());
        add(&self.dead.to_le_bytes());
        add(&self.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_marked_is_refused() {
        let mut node = Node::new([&b"f"[..]].into_iter());
        node.append(Id(1, 0), Id(1, 0), [&b"f"[..], b"v"].into_iter());
        let saved = node.save();
        assert!(Node::load(Id(1, 0), &saved).is_some_and(|(mut node, _)| node.delete(Id(1, 0), Id(1, 0))));
        assert!(Node::load(Id(2, 0), &saved).is_some(), "distances are from the master");
        let flags = saved.len() - 1 - (node.body.len() - node.start as usize);
        for others in [&[0xc0, SAME as u8, 2][..], &[4, 1], &[0xdf, 0xfe, 2]] {
            let mut bytes = saved.clone();
            bytes.splice(flags..flags + 2, others.iter().copied());
            let length = (bytes.len() as u32).to_le_bytes();
            bytes[..4].copy_from_slice(&length);
            assert!(super::super::listpack::items(&bytes).is_some(), "it is a listpack");
            assert!(Node::load(Id(1, 0), &bytes).is_none(), "{others:?}");
        }
    }
}

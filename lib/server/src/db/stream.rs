//! Streams: entries by identifier, and groups of consumers.

use core::fmt;
use std::collections::BTreeMap;

/// An entry's identifier: milliseconds and a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u64, pub u64);

impl Id {
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
    pub consumer: Vec<u8>,
    /// When, in milliseconds since 1970.
    pub delivered: u64,
    /// How often.
    pub times: u64,
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
    /// Consumers, and when each was seen last.
    pub consumers: BTreeMap<Vec<u8>, u64>,
}

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Entries: fields and values by turns.
    pub entries: BTreeMap<Id, Vec<Vec<u8>>>,
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
    /// The first entry's identifier, or 0-0.
    pub fn first(&self) -> Id {
        self.entries.keys().next().copied().unwrap_or_default()
    }

    /// Bytes of it, about. O(1).
    pub fn estimate(&self) -> usize {
        256 + self.entries.len() * 128
    }

    /// Shows `add` all that operations can see of it.
    pub fn digest(&self, add: &mut impl FnMut(&[u8])) {
        let id = |id: Id, add: &mut dyn FnMut(&[u8])| {
            add(&id.0.to_le_bytes());
            add(&id.1.to_le_bytes());
        };
        for (key, fields) in &self.entries {
            id(*key, add);
            fields.iter().for_each(|field| add(field));
        }
        id(self.last, add);
        id(self.deleted, add);
        add(&self.added.to_le_bytes());
        for (name, group) in &self.groups {
            add(name);
            id(group.last, add);
            add(&group.read.unwrap_or(u64::MAX).to_le_bytes());
            for (key, Pending { consumer, delivered, times }) in &group.pending {
                id(*key, add);
                add(consumer);
                add(&delivered.to_le_bytes());
                add(&times.to_le_bytes());
            }
            group.consumers.keys().for_each(|consumer| add(consumer));
        }
    }
}

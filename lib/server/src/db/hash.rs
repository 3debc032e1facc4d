//! Hashes. A small hash is a pack of alternating names and values, and a large hash is a table. Hashes with fields
//! that expire have two forms of their own ([`dated`](super::dated)).

use super::dated::{Few, Many};
use super::hashing::Hashing;
use super::pack::{Offset, Pack};
use super::small::Small;
use super::table::{Keyed, Table};

/// The most fields of a packed hash.
pub const MOST_PACKED: usize = 128;
/// The most bytes of a field's name or value in a packed hash.
pub const LONGEST_PACKED: usize = 64;

/// A field of a hash that is a table.
#[derive(Clone, Debug)]
pub struct Field {
    name: Small,
    value: Small,
    hash: u32,
}

// A field has no memory for an expiry time. A hash without expiry times has no memory for a pointer to such times.
const _: () = assert!(size_of::<Option<Field>>() == 56 && size_of::<Hash>() == size_of::<Pack>());

impl Keyed for Field {
    fn key(&self) -> &[u8] {
        &self.name
    }

    fn hash(&self) -> u32 {
        self.hash
    }

    fn heap(&self) -> usize {
        self.name.heap() + self.value.heap()
    }
}

impl Field {
    fn new(name: &[u8], value: &[u8], hashing: Hashing) -> Self {
        Self { name: name.into(), value: value.into(), hash: hashing.of(name) }
    }

    /// Returns the field's value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

/// A hash: fields with names and values.
#[derive(Clone, Debug)]
pub enum Hash {
    /// A small hash: alternating names and values.
    Packed(Pack),
    /// A large hash.
    Table(Box<Table<Field>>),
    /// A small hash with at least one field that expires.
    Few(Box<Few>),
    /// A large hash with at least one field that expires.
    Many(Box<Many>),
}

impl Default for Hash {
    fn default() -> Self {
        Self::Packed(Pack::default())
    }
}

/// The position of a field in a pack: its index among the fields, and the offsets of its name and its value.
pub(super) struct Spot {
    pub index: usize,
    name: Offset,
    pub value: Offset,
}

pub(super) fn spot(pack: &Pack, name: &[u8]) -> Option<Spot> {
    let (mut at, mut index) = (pack.first(), 0);
    while at < pack.end() {
        let (met, value) = pack.at(at);
        if met == name {
            return Some(Spot { index, name: at, value });
        }
        (at, index) = (pack.at(value).1, index + 1);
    }
    None
}

/// Sets a field of a pack. A new field becomes the last one. Returns whether the field is new. Returns `None` if the
/// field is too large for a pack or the pack is full.
pub(super) fn set_packed(pack: &mut Pack, name: &[u8], value: &[u8]) -> Option<bool> {
    let fits = name.len() <= LONGEST_PACKED && value.len() <= LONGEST_PACKED;
    match spot(pack, name) {
        Some(spot) if fits => {
            pack.replace(spot.value, value);
            Some(false)
        }
        None if fits && pack.len() / 2 < MOST_PACKED => {
            pack.push_back(name);
            pack.push_back(value);
            Some(true)
        }
        _ => None,
    }
}

/// Removes a field of a pack. Returns the index that the field had.
pub(super) fn remove_packed(pack: &mut Pack, name: &[u8]) -> Option<usize> {
    let spot = spot(pack, name)?;
    pack.remove(spot.name, 2);
    Some(spot.index)
}

/// Returns the names and values of a pack.
pub(super) fn pairs(pack: &Pack) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut items = pack.iter().map(|(_, item)| item);
    core::iter::from_fn(move || Some((items.next()?, items.next()?)))
}

/// Returns the fields of a pack as a table.
pub(super) fn table_of(pack: &Pack, hashing: Hashing) -> Table<Field> {
    let mut table = Table::new(hashing);
    pairs(pack).for_each(|(name, value)| _ = table.insert(Field::new(name, value, hashing)));
    table
}

impl Hash {
    /// Returns the number of fields. *Due* fields, which have expired and are still in memory, are included.
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.len() / 2,
            Self::Table(table) => table.len(),
            Self::Few(few) => few.len(),
            Self::Many(many) => many.table.len(),
        }
    }

    /// Returns whether the hash has no fields.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a field's value and its expiry time in milliseconds since 1970. 0 means that the field never expires.
    pub fn find(&self, name: &[u8]) -> Option<(&[u8], u64)> {
        match self {
            Self::Packed(pack) => spot(pack, name).map(|spot| (pack.at(spot.value).0, 0)),
            Self::Table(table) => table.get(name).map(|field| (field.value(), 0)),
            Self::Few(few) => few.find(name),
            Self::Many(many) => many.find(name),
        }
    }

    /// Returns a field's value, even if the field is due.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.find(name).map(|(value, _)| value)
    }

    /// Sets a field's value. An existing field keeps its expiry time. A new field never expires. Returns whether the
    /// field is new. If the hash becomes a table, the table gets the hash function `hashing`.
    pub fn set(&mut self, name: &[u8], value: &[u8], hashing: Hashing) -> bool {
        let set = match self {
            Self::Packed(pack) => set_packed(pack, name, value),
            Self::Few(few) => few.set(name, value),
            _ => None,
        };
        set.unwrap_or_else(|| {
            let table = self.unpack(hashing);
            table.insert(Field::new(name, value, table.hashing())).is_none()
        })
    }

    /// Turns the hash into a table and returns the table. A new table gets the hash function `hashing`.
    pub fn unpack(&mut self, hashing: Hashing) -> &mut Table<Field> {
        match self {
            Self::Packed(pack) => *self = Self::Table(Box::new(table_of(pack, hashing))),
            Self::Few(few) => *self = Self::Many(Box::new(Many::of(few, hashing))),
            _ => {}
        }
        match self {
            Self::Table(table) => table,
            Self::Many(many) => &mut many.table,
            _ => unreachable!("it was unpacked"),
        }
    }

    /// Removes a field. Returns whether the field existed.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let found = match self {
            Self::Packed(pack) => return remove_packed(pack, name).is_some(),
            Self::Table(table) => return table.remove(name).is_some(),
            Self::Few(few) => few.remove(name),
            Self::Many(many) => many.remove(name),
        };
        self.forget_no_times();
        found
    }

    /// Returns names, values and expiry times in milliseconds since 1970. 0 means that the field never expires.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &[u8], u64)> + '_> {
        match self {
            Self::Packed(pack) => Box::new(pairs(pack).map(|(name, value)| (name, value, 0))),
            Self::Table(table) => Box::new(table.iter().map(|field| (field.key(), field.value(), 0))),
            Self::Few(few) => Box::new(few.iter()),
            Self::Many(many) => Box::new(many.iter()),
        }
    }

    /// Sets the expiry time of a field in milliseconds since 1970, if the field exists. O(log n): if the hash gets or
    /// loses the memory for expiry times, a table is moved, not copied.
    pub fn expire_at(&mut self, name: &[u8], at: Option<u64>) {
        match self {
            Self::Packed(_) | Self::Table(_) if at.is_none() => return,
            Self::Packed(pack) => *self = Self::Few(Box::new(Few::new(core::mem::take(pack)))),
            Self::Table(table) => *self = Self::Many(Box::new(Many::new(table.take()))),
            _ => {}
        }
        match self {
            Self::Few(few) => few.expire_at(name, at.unwrap_or(0)),
            Self::Many(many) => many.expire_at(name, at.unwrap_or(0)),
            _ => unreachable!("it has times"),
        }
        self.forget_no_times();
    }

    /// Releases the memory for expiry times when no field has an expiry time any more.
    fn forget_no_times(&mut self) {
        match self {
            Self::Few(few) if few.earliest().is_none() => *self = Self::Packed(core::mem::take(&mut few.pack)),
            Self::Many(many) if many.earliest().is_none() => {
                *self = Self::Table(Box::new(many.table.take()));
            }
            _ => {}
        }
    }

    /// Returns the earliest expiry time of a field in milliseconds since 1970, if a field expires.
    pub fn earliest(&self) -> Option<u64> {
        match self {
            Self::Packed(_) | Self::Table(_) => None,
            Self::Few(few) => few.earliest(),
            Self::Many(many) => many.earliest(),
        }
    }

    /// Returns how many fields are due at time `now`. O(log n).
    pub fn due(&self, now: u64) -> usize {
        match self {
            Self::Packed(_) | Self::Table(_) => 0,
            Self::Few(few) => few.due(now),
            Self::Many(many) => many.due(now),
        }
    }

    /// Returns whether the hash has fields and all of them are due at time `now`.
    pub fn is_spent(&self, now: u64) -> bool {
        match self {
            Self::Packed(_) | Self::Table(_) => false,
            _ => self.due(now) == self.len() && !self.is_empty(),
        }
    }

    /// Removes at most `most` fields that are due at time `now`. Returns how many fields were removed. O(log n) for
    /// each removed field.
    pub fn take_due(&mut self, now: u64, most: usize) -> usize {
        let names: Vec<Small> = match self {
            Self::Packed(_) | Self::Table(_) => Vec::new(),
            Self::Few(few) => few.names_due(now, most),
            Self::Many(many) => many.names_due(now, most),
        };
        names.iter().for_each(|name| _ = self.remove(name));
        names.len()
    }

    /// Returns the name of the encoding, as `OBJECT ENCODING` reports it.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Packed(_) => "listpack",
            Self::Few(_) => "listpackex",
            Self::Table(_) | Self::Many(_) => "hashtable",
        }
    }

    /// Returns the approximate size in bytes. O(1).
    pub fn estimate(&self) -> usize {
        match self {
            Self::Packed(pack) => size_of::<Self>() + pack.size(),
            Self::Table(table) => table.estimate(),
            Self::Few(few) => size_of::<Self>() + few.estimate(),
            Self::Many(many) => size_of::<Self>() + many.estimate(),
        }
    }
}

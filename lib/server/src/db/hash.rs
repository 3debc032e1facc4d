//! Hashes: a pack of fields and values by turns, or a table; and when fields expire, if any does ([`dated`](super::dated)).

use super::dated::{Few, Many};
use super::pack::{Offset, Pack};
use super::small::Small;
use super::table::{Keyed, Table, hash};

/// The most fields of a packed hash.
pub const MOST_PACKED: usize = 128;
/// Bytes of the longest field or value of a packed hash.
pub const LONGEST_PACKED: usize = 64;

/// A field of a table.
#[derive(Clone, Debug)]
pub struct Field {
    name: Small,
    value: Small,
    hash: u32,
}

// A field has no room for a time, and a hash without times none for where they are.
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
    fn new(name: &[u8], value: &[u8]) -> Self {
        Self { name: name.into(), value: value.into(), hash: hash(name) }
    }

    /// Its value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

/// A hash: fields with values.
#[derive(Clone, Debug)]
pub enum Hash {
    /// Fields and values by turns.
    Packed(Pack),
    /// When it is large.
    Table(Box<Table<Field>>),
    /// A pack of which fields expire.
    Few(Box<Few>),
    /// A table of which fields expire.
    Many(Box<Many>),
}

impl Default for Hash {
    fn default() -> Self {
        Self::Packed(Pack::default())
    }
}

/// Where a field is in a pack: its place among the fields, and where its name and its value begin.
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

/// Sets a field of a pack: a new one is the last. Returns whether it is new; nothing, if it does not fit in.
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

/// Takes a field out of a pack. Returns which it was.
pub(super) fn remove_packed(pack: &mut Pack, name: &[u8]) -> Option<usize> {
    let spot = spot(pack, name)?;
    pack.remove(spot.name, 2);
    Some(spot.index)
}

/// The fields and values of a pack.
pub(super) fn pairs(pack: &Pack) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut items = pack.iter().map(|(_, item)| item);
    core::iter::from_fn(move || Some((items.next()?, items.next()?)))
}

/// The fields of a pack as a table.
pub(super) fn table_of(pack: &Pack) -> Table<Field> {
    let mut table = Table::default();
    pairs(pack).for_each(|(name, value)| _ = table.insert(Field::new(name, value)));
    table
}

impl Hash {
    /// How many fields there are, those that are due among them.
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.len() / 2,
            Self::Table(table) => table.len(),
            Self::Few(few) => few.len(),
            Self::Many(many) => many.table.len(),
        }
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A field's value, and when it expires in milliseconds since 1970; 0: never.
    pub fn find(&self, name: &[u8]) -> Option<(&[u8], u64)> {
        match self {
            Self::Packed(pack) => spot(pack, name).map(|spot| (pack.at(spot.value).0, 0)),
            Self::Table(table) => table.get(name).map(|field| (field.value(), 0)),
            Self::Few(few) => few.find(name),
            Self::Many(many) => many.find(name),
        }
    }

    /// A field's value, whether it is due or not.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.find(name).map(|(value, _)| value)
    }

    /// Sets a field's value. It expires as before; a new one never. Returns whether it is new.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> bool {
        let set = match self {
            Self::Packed(pack) => set_packed(pack, name, value),
            Self::Few(few) => few.set(name, value),
            _ => None,
        };
        set.unwrap_or_else(|| self.unpack().insert(Field::new(name, value)).is_none())
    }

    /// Makes a table of it.
    pub fn unpack(&mut self) -> &mut Table<Field> {
        match self {
            Self::Packed(pack) => *self = Self::Table(Box::new(table_of(pack))),
            Self::Few(few) => *self = Self::Many(Box::new(Many::of(few))),
            _ => {}
        }
        match self {
            Self::Table(table) => table,
            Self::Many(many) => &mut many.table,
            _ => unreachable!("it was unpacked"),
        }
    }

    /// Takes a field out. Returns whether it was there.
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

    /// Fields and values, and when they expire; 0: never.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &[u8], u64)> + '_> {
        match self {
            Self::Packed(pack) => Box::new(pairs(pack).map(|(name, value)| (name, value, 0))),
            Self::Table(table) => Box::new(table.iter().map(|field| (field.key(), field.value(), 0))),
            Self::Few(few) => Box::new(few.iter()),
            Self::Many(many) => Box::new(many.iter()),
        }
    }

    /// Sets when a field expires, in milliseconds since 1970, if it is there. O(1) beside the field's own place.
    pub fn expire_at(&mut self, name: &[u8], at: Option<u64>) {
        match self {
            Self::Packed(_) | Self::Table(_) if at.is_none() => return,
            Self::Packed(pack) => *self = Self::Few(Box::new(Few::new(core::mem::take(pack)))),
            Self::Table(table) => *self = Self::Many(Box::new(Many::new(core::mem::take(table)))),
            _ => {}
        }
        match self {
            Self::Few(few) => few.expire_at(name, at.unwrap_or(0)),
            Self::Many(many) => many.expire_at(name, at.unwrap_or(0)),
            _ => unreachable!("it has times"),
        }
        self.forget_no_times();
    }

    /// Keeps no room for times once there is none.
    fn forget_no_times(&mut self) {
        match self {
            Self::Few(few) if few.earliest().is_none() => *self = Self::Packed(core::mem::take(&mut few.pack)),
            Self::Many(many) if many.earliest().is_none() => {
                *self = Self::Table(Box::new(core::mem::take(&mut many.table)));
            }
            _ => {}
        }
    }

    /// When the first of its fields expires, in milliseconds since 1970, if any does.
    pub fn earliest(&self) -> Option<u64> {
        match self {
            Self::Packed(_) | Self::Table(_) => None,
            Self::Few(few) => few.earliest(),
            Self::Many(many) => many.earliest(),
        }
    }

    /// How many fields are due by `now`. O(log n).
    pub fn due(&self, now: u64) -> usize {
        match self {
            Self::Packed(_) | Self::Table(_) => 0,
            Self::Few(few) => few.due(now),
            Self::Many(many) => many.due(now),
        }
    }

    /// Returns whether all fields are due by `now`, and there is one.
    pub fn is_spent(&self, now: u64) -> bool {
        match self {
            Self::Packed(_) | Self::Table(_) => false,
            _ => self.due(now) == self.len() && !self.is_empty(),
        }
    }

    /// Takes at most `most` fields out that are due by `now`. Returns how many. O(how many, and log n for each).
    pub fn take_due(&mut self, now: u64, most: usize) -> usize {
        let names: Vec<Small> = match self {
            Self::Packed(_) | Self::Table(_) => Vec::new(),
            Self::Few(few) => few.names_due(now, most),
            Self::Many(many) => many.names_due(now, most),
        };
        names.iter().for_each(|name| _ = self.remove(name));
        names.len()
    }

    /// The name of its encoding.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Packed(_) => "listpack",
            Self::Few(_) => "listpackex",
            Self::Table(_) | Self::Many(_) => "hashtable",
        }
    }

    /// Bytes of it, about. O(1).
    pub fn estimate(&self) -> usize {
        match self {
            Self::Packed(pack) => size_of::<Self>() + pack.size(),
            Self::Table(table) => table.estimate(),
            Self::Few(few) => size_of::<Self>() + few.estimate(),
            Self::Many(many) => size_of::<Self>() + many.estimate(),
        }
    }
}

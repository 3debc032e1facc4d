//! Hashes: a pack of fields and values by turns, or a table.

use super::pack::Pack;
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
    /// When it expires, in milliseconds since 1970; 0: never.
    expires: u64,
    hash: u32,
}

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
    /// Its value.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// When it expires, in milliseconds since 1970; 0: never.
    pub fn expires(&self) -> u64 {
        self.expires
    }
}

/// A hash: fields with values.
#[derive(Clone, Debug)]
pub enum Hash {
    /// Fields and values by turns.
    Packed(Pack),
    /// When it is large.
    Table(Box<Table<Field>>),
}

impl Default for Hash {
    fn default() -> Self {
        Self::Packed(Pack::default())
    }
}

impl Hash {
    /// How many fields there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.len() / 2,
            Self::Table(table) => table.len(),
        }
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(pack: &Pack, name: &[u8]) -> Option<(usize, usize)> {
        let mut at = pack.first();
        while at < pack.end() {
            let (met, value) = pack.at(at);
            if met == name {
                return Some((at, value));
            }
            at = pack.at(value).1;
        }
        None
    }

    /// A field's value.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Packed(pack) => Self::place(pack, name).map(|(_, value)| pack.at(value).0),
            Self::Table(table) => table.get(name).map(Field::value),
        }
    }

    /// Sets a field that never expires. Returns whether it is new.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> bool {
        if let Self::Packed(pack) = self {
            let fits = name.len() <= LONGEST_PACKED && value.len() <= LONGEST_PACKED;
            match Self::place(pack, name) {
                Some((_, at)) if fits => {
                    pack.replace(at, value);
                    return false;
                }
                None if fits && pack.len() / 2 < MOST_PACKED => {
                    pack.push_back(name);
                    pack.push_back(value);
                    return true;
                }
                _ => self.unpack(),
            }
        }
        let Self::Table(table) = self else { unreachable!("it was unpacked") };
        let (name, value): (Small, Small) = (name.into(), value.into());
        let hash = hash(&name);
        table.insert(Field { name, value, expires: 0, hash }).is_none()
    }

    /// Makes a table of it.
    pub fn unpack(&mut self) {
        if let Self::Packed(_) = self {
            let mut table = Table::default();
            for (name, value) in self.iter() {
                table.insert(Field { name: name.into(), value: value.into(), expires: 0, hash: hash(name) });
            }
            *self = Self::Table(Box::new(table));
        }
    }

    /// Takes a field out. Returns whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        match self {
            Self::Packed(pack) => match Self::place(pack, name) {
                Some((at, _)) => {
                    pack.remove(at, 2);
                    true
                }
                None => false,
            },
            Self::Table(table) => table.remove(name).is_some(),
        }
    }

    /// Fields and values.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &[u8])> + '_> {
        match self {
            Self::Packed(pack) => {
                let mut items = pack.iter().map(|(_, item)| item);
                Box::new(core::iter::from_fn(move || Some((items.next()?, items.next()?))))
            }
            Self::Table(table) => Box::new(table.iter().map(|field| (field.key(), field.value()))),
        }
    }

    /// When a field expires, in milliseconds since 1970.
    pub fn expires(&self, name: &[u8]) -> Option<u64> {
        match self {
            Self::Packed(_) => None,
            Self::Table(table) => table.get(name).map(|field| field.expires).filter(|at| *at != 0),
        }
    }

    /// Sets when a field expires, if it is there.
    pub fn expire_at(&mut self, name: &[u8], at: Option<u64>) {
        if at.is_some() {
            self.unpack();
        }
        if let Self::Table(table) = self
            && let Some(field) = table.get_mut(name)
        {
            field.expires = at.unwrap_or(0);
        }
    }

    /// The name of its encoding.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Packed(_) => "listpack",
            Self::Table(_) => "hashtable",
        }
    }

    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Packed(pack) => pack.capacity(),
            Self::Table(table) => {
                table.bytes() + table.iter().map(|field| field.name.heap() + field.value.heap()).sum::<usize>()
            }
        }
    }
}

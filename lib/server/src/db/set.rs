//! Sets. A new set is a sorted array of integers. When a member is added that is not an integer, or when the set would
//! have more than [`MOST_INTEGERS`] members, it becomes a hash table. It then remains a hash table.

use std::borrow::Cow;

use super::hashing::Hashing;
use super::small::Small;
use super::table::{Keyed, Table};
use super::value::canonical;
use crate::reply::integer;

/// The most members of a set that is an array of integers.
pub const MOST_INTEGERS: usize = 512;

/// A member of a set that is a hash table.
#[derive(Clone, Debug)]
pub struct Member(Small, u32);

impl Keyed for Member {
    fn key(&self) -> &[u8] {
        &self.0
    }

    fn hash(&self) -> u32 {
        self.1
    }

    fn heap(&self) -> usize {
        self.0.heap()
    }
}

/// Integers in order. All have the same width: 2, 4 or 8 bytes, the least width that fits all of them. So the size
/// follows from the members alone, as counts of memory require. The last byte of the array is the width. If there are
/// no integers, the array is empty. The array has no spare capacity, because most sets of integers stop growing early.
#[derive(Clone, Debug, Default)]
pub struct Integers(Box<[u8]>);

const _: () = assert!(size_of::<Set>() == 16);

impl Integers {
    /// Returns the number of bytes of an integer, or 0 if there are no integers.
    fn width(&self) -> usize {
        self.0.last().map_or(0, |width| (*width).into())
    }

    fn len(&self) -> usize {
        self.0.len().checked_div(self.width()).unwrap_or(0)
    }

    /// Returns the length of the array in bytes.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// Returns the integer at this index.
    pub fn at(&self, index: usize) -> i64 {
        let width = self.width();
        let bytes = &self.0[index * width..(index + 1) * width];
        match *bytes {
            [a, b] => i16::from_le_bytes([a, b]).into(),
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
            _ => i64::from_le_bytes(bytes.try_into().expect("integers have 2, 4 or 8 bytes")),
        }
    }

    fn search(&self, number: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.at(middle) < number { low = middle + 1 } else { high = middle }
        }
        if low < self.len() && self.at(low) == number { Ok(low) } else { Err(low) }
    }

    fn insert(&mut self, index: usize, number: i64) {
        if width_of(number) > self.width() {
            self.rewrite(width_of(number));
        }
        let width = self.width();
        let mut bytes = core::mem::take(&mut self.0).into_vec();
        bytes.reserve_exact(width);
        bytes.splice(index * width..index * width, number.to_le_bytes().into_iter().take(width));
        self.0 = bytes.into();
    }

    fn remove(&mut self, index: usize) {
        let width = self.width();
        let mut bytes = core::mem::take(&mut self.0).into_vec();
        bytes.drain(index * width..(index + 1) * width);
        self.0 = bytes.into();
        // The integers are in order, so the first or the last one is the widest.
        match self.len() {
            0 => self.0 = Box::default(),
            len => {
                let least = width_of(self.at(0)).max(width_of(self.at(len - 1)));
                if least < width {
                    self.rewrite(least);
                }
            }
        }
    }

    /// Stores each integer in `width` bytes.
    fn rewrite(&mut self, width: usize) {
        let all = (0..self.len()).flat_map(|at| self.at(at).to_le_bytes().into_iter().take(width));
        self.0 = all.chain([width as u8]).collect();
    }
}

/// Returns the least number of bytes that an integer needs: 2, 4 or 8.
fn width_of(number: i64) -> usize {
    match number {
        _ if i16::try_from(number).is_ok() => 2,
        _ if i32::try_from(number).is_ok() => 4,
        _ => 8,
    }
}

/// A set.
#[derive(Clone, Debug)]
pub enum Set {
    /// At most [`MOST_INTEGERS`] integers.
    Integers(Integers),
    /// Any members.
    Table(Box<Table<Member>>),
}

impl Default for Set {
    fn default() -> Self {
        Self::Integers(Integers::default())
    }
}

fn text(number: i64) -> Vec<u8> {
    let mut digits = Vec::with_capacity(20);
    integer(number, &mut digits);
    digits
}

impl Set {
    /// Returns the number of members.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(integers) => integers.len(),
            Self::Table(table) => table.len(),
        }
    }

    /// Returns whether the set has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether `member` is in the set.
    pub fn contains(&self, member: &[u8]) -> bool {
        match self {
            Self::Integers(integers) => canonical(member).is_some_and(|number| integers.search(number).is_ok()),
            Self::Table(table) => table.contains(member),
        }
    }

    /// Adds a member. Returns whether the member is new. If the set becomes a hash table, the table gets the hash
    /// function `hashing`.
    pub fn insert(&mut self, member: &[u8], hashing: Hashing) -> bool {
        if let Self::Integers(integers) = self {
            match canonical(member).map(|number| (number, integers.search(number))) {
                Some((_, Ok(_))) => return false,
                Some((number, Err(at))) if integers.len() < MOST_INTEGERS => {
                    integers.insert(at, number);
                    return true;
                }
                _ => self.unpack(hashing),
            }
        }
        let Self::Table(table) = self else { unreachable!("it was unpacked") };
        !table.contains(member) && table.insert(Member(member.into(), table.hash(member))).is_none()
    }

    /// Turns the set into a hash table.
    pub(super) fn unpack(&mut self, hashing: Hashing) {
        let mut table = Table::new(hashing);
        for member in self.iter() {
            table.insert(Member((&*member).into(), hashing.of(&member)));
        }
        *self = Self::Table(Box::new(table));
    }

    /// Removes a member. Returns whether the member was in the set.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self {
            Self::Integers(integers) => match canonical(member).map(|number| integers.search(number)) {
                Some(Ok(at)) => {
                    integers.remove(at);
                    true
                }
                _ => false,
            },
            Self::Table(table) => table.remove(member).is_some(),
        }
    }

    /// Returns all members.
    pub fn iter(&self) -> Box<dyn Iterator<Item = Cow<'_, [u8]>> + '_> {
        match self {
            Self::Integers(integers) => Box::new((0..integers.len()).map(|at| Cow::Owned(text(integers.at(at))))),
            Self::Table(table) => Box::new(table.iter().map(|member| Cow::Borrowed(member.key()))),
        }
    }

    /// Returns the member with this index in the order of [`iter`](Self::iter).
    pub fn nth(&self, index: usize) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Integers(integers) => (index < integers.len()).then(|| Cow::Owned(text(integers.at(index)))),
            Self::Table(table) => table.nth(index).map(|member| Cow::Borrowed(member.key())),
        }
    }

    /// Returns a random member, unless the set is empty.
    pub fn choose(&self, random: &mut super::Random) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Integers(integers) if integers.len() == 0 => None,
            Self::Integers(integers) => Some(Cow::Owned(text(integers.at(random.below(integers.len()))))),
            Self::Table(table) => table.choose(|| random.draw()).map(|member| Cow::Borrowed(member.key())),
        }
    }

    /// Returns the name of the set's encoding, as `OBJECT ENCODING` reports it.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Integers(_) => "intset",
            Self::Table(_) => "hashtable",
        }
    }

    /// Returns how many bytes of memory the set takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Integers(integers) => integers.size(),
            Self::Table(table) => table.bytes() + table.iter().map(|member| member.0.heap()).sum::<usize>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_integers_follows_from_the_members_alone() {
        let mut set = Set::default();
        let numbers = ["9999999999", "1", "-70000", "2", "-9999999999", "32768"];
        let sizes = |set: &Set| {
            let mut fresh = Set::default();
            set.iter().for_each(|member| _ = fresh.insert(&member, Hashing::default()));
            (set.bytes(), fresh.bytes())
        };
        for round in 0..numbers.len() {
            numbers.iter().for_each(|number| assert!(set.insert(number.as_bytes(), Hashing::default())));
            for at in 0..numbers.len() {
                assert!(set.remove(numbers[(round + at) % numbers.len()].as_bytes()));
                let (size, fresh) = sizes(&set);
                assert_eq!(size, fresh, "{:?}", set.iter().collect::<Vec<_>>());
            }
        }
        assert!(set.is_empty());
    }
}

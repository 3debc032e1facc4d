//! The values that keys can have.

use std::borrow::Cow;

use archipelago_platform::atomic::{AtomicU32, Ordering::Relaxed};

use super::hash::Hash;
use super::hashing::Hashing;
use super::list::List;
use super::set::Set;
use super::small::Small;
use super::stream::Stream;
use super::table::Keyed;
use super::zset::Zset;
use crate::reply::integer;

/// A key with its value and its expiry time.
#[derive(Clone, Debug)]
pub struct Entry {
    key: Small,
    /// The value.
    pub value: Value,
    /// The expiry time in milliseconds since 1970. 0 means that the key never expires.
    expires: u64,
    hash: u32,
    access: Access,
}

/// The time of the last use, and under an LFU policy the number of uses, as [`evict`](super::evict) encodes them.
/// Readers change this word, too.
#[derive(Debug)]
struct Access(AtomicU32);

impl Clone for Access {
    fn clone(&self) -> Self {
        Self(AtomicU32::new(self.0.load(Relaxed)))
    }
}

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn hash(&self) -> u32 {
        self.hash
    }

    fn heap(&self) -> usize {
        self.key.heap()
    }
}

impl Entry {
    /// Returns the entry of a key that never expires, for a table with this hash function.
    pub fn new(key: &[u8], value: Value, hashing: Hashing) -> Self {
        Self { key: key.into(), value, expires: 0, hash: hashing.of(key), access: Access(AtomicU32::new(0)) }
    }

    /// Returns the 32 bits that record the entry's uses, as [`evict`](super::evict) encodes them.
    pub fn access(&self) -> u32 {
        self.access.0.load(Relaxed)
    }

    /// Sets the 32 bits that record the entry's uses.
    pub fn set_access(&self, access: u32) {
        self.access.0.store(access, Relaxed);
    }

    /// Records a use. Writes nothing if the bits do not change, so that the readers of a hot key can share its cache
    /// line.
    pub(super) fn note_use(&self, now: u64, lfu: bool, seed: u64) {
        let before = self.access();
        let after = super::evict::used(before, now, lfu, seed);
        if after != before {
            self.set_access(after);
        }
    }

    /// Returns the expiry time in milliseconds since 1970, if the key expires.
    pub fn expires(&self) -> Option<u64> {
        (self.expires != 0).then_some(self.expires)
    }

    pub(super) fn set_expires(&mut self, at: Option<u64>) {
        self.expires = at.map_or(0, |at| at.max(1));
    }

    /// Returns whether the key has expired at time `now`.
    pub fn has_expired(&self, now: u64) -> bool {
        self.expires != 0 && self.expires <= now
    }

    /// Returns whether the entry is invisible to all commands at time `now`. An entry is invisible if the key has
    /// expired, or if all fields of its hash have expired.
    pub fn is_dead(&self, now: u64) -> bool {
        self.has_expired(now) || matches!(&self.value, Value::Hash(hash) if hash.is_spent(now))
    }
}

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Str(Small),
    /// A string that was changed in place. It is expected to grow.
    Raw(Box<Vec<u8>>),
    /// A string that is an integer in its shortest decimal form.
    Int(i64),
    /// A list.
    List(Box<List>),
    /// A hash.
    Hash(Box<Hash>),
    /// A set.
    Set(Set),
    /// A sorted set.
    Zset(Box<Zset>),
    /// A stream.
    Stream(Box<Stream>),
}

// These sizes are what each key costs in addition to its heap memory. The assertion fails if a field adds padding.
const _: () = assert!(size_of::<Value>() == 24 && size_of::<Option<Entry>>() == 64);

/// A type of container: a value that has elements.
pub trait Container: Default {
    /// Returns the value as this type, if it has this type.
    fn of(value: &Value) -> Option<&Self>;
    /// Returns the value as this type, if it has this type.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// Returns the container as a value.
    fn into_value(self) -> Value;
    /// Returns whether a key with this container is to be removed.
    fn is_nothing(&self) -> bool;
}

macro_rules! kind {
    ($name:ident, $nothing:expr) => {
        impl Container for $name {
            fn of(value: &Value) -> Option<&Self> {
                if let Value::$name(inner) = value { Some(inner) } else { None }
            }

            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$name(inner) = value { Some(inner) } else { None }
            }

            fn into_value(self) -> Value {
                Value::$name(self.into())
            }

            fn is_nothing(&self) -> bool {
                $nothing(self)
            }
        }
    };
}

kind!(List, List::is_empty);
kind!(Hash, Hash::is_empty);
kind!(Set, Set::is_empty);
kind!(Zset, Zset::is_empty);
// A stream stays when its last entry is removed.
kind!(Stream, |_| false);

impl Value {
    /// Returns a string value. It is stored as an integer if the bytes are the shortest decimal form of an integer.
    pub fn string(bytes: &[u8]) -> Self {
        canonical(bytes).map_or_else(|| Self::Str(bytes.into()), Self::Int)
    }

    /// Returns the name of the value's type.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Str(_) | Self::Raw(_) | Self::Int(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
            Self::Zset(_) => "zset",
            Self::Stream(_) => "stream",
        }
    }

    /// Returns the name of the value's encoding, as `OBJECT ENCODING` reports it.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Int(_) => "int",
            Self::Str(bytes) if bytes.len() <= 44 => "embstr",
            Self::Str(_) | Self::Raw(_) => "raw",
            Self::List(_) => "quicklist",
            Self::Hash(hash) => hash.encoding(),
            Self::Set(set) => set.encoding(),
            Self::Zset(zset) => zset.encoding(),
            Self::Stream(_) => "stream",
        }
    }

    /// Passes to `add` everything of the value that operations can see.
    pub fn digest(&self, add: &mut impl FnMut(&[u8])) {
        match self {
            Self::Str(bytes) => add(bytes),
            Self::Raw(bytes) => add(bytes),
            Self::Int(number) => add(&number.to_le_bytes()),
            Self::List(list) => list.iter().for_each(add),
            Self::Hash(hash) => hash.iter().for_each(|(name, value, at)| {
                add(name);
                add(value);
                add(&at.to_le_bytes());
            }),
            Self::Set(set) => set.iter().for_each(|member| add(&member)),
            Self::Zset(zset) => zset.range(0, usize::MAX).iter().for_each(|(member, score)| {
                add(member);
                add(&score.to_le_bytes());
            }),
            Self::Stream(stream) => stream.digest(add),
        }
    }

    /// Returns the earliest expiry time of a hash's fields in milliseconds since 1970, if a field expires.
    pub fn earliest(&self) -> Option<u64> {
        if let Self::Hash(hash) = self { hash.earliest() } else { None }
    }

    /// Returns how many fields of a hash are due at time `now`, that is, have expired and are still in memory.
    pub fn due(&self, now: u64) -> usize {
        if let Self::Hash(hash) = self { hash.due(now) } else { 0 }
    }

    /// Returns whether the value is a stream with consumer groups.
    pub fn has_groups(&self) -> bool {
        matches!(self, Self::Stream(stream) if !stream.groups().is_empty())
    }

    /// Returns the bytes, if the value is a string.
    pub fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Str(bytes) => Some(Cow::Borrowed(bytes)),
            Self::Raw(bytes) => Some(Cow::Borrowed(bytes)),
            Self::Int(number) => {
                let mut digits = Vec::with_capacity(20);
                integer(*number, &mut digits);
                Some(Cow::Owned(digits))
            }
            _ => None,
        }
    }
}

/// Returns the integer whose shortest decimal form these bytes are: without "+" and leading zeros. Returns `None` for all
/// other bytes.
pub fn canonical(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    if *digits.first()? == b'0' && bytes.len() > 1 {
        return None;
    }
    // Each request has a number for each of its arguments, so this is faster than the standard library's way through `str`.
    // The digits of a negative number are subtracted, because the smallest integer has no positive counterpart.
    let is_negative = digits.len() < bytes.len();
    digits.iter().try_fold(0_i64, |number, byte| {
        let digit = i64::from(byte.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        let shifted = number.checked_mul(10)?;
        if is_negative { shifted.checked_sub(digit) } else { shifted.checked_add(digit) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shortest_form_is_an_integer() {
        for number in [0, 1, -1, 9, 10, -10, i64::MAX, i64::MAX - 1, i64::MIN, i64::MIN + 1] {
            assert_eq!(canonical(number.to_string().as_bytes()), Some(number));
        }
        let others = ["", "-", "-0", "00", "01", "-01", "+1", " 1", "1 ", "1:", "1/", "--1", "1e3", "1\n", "٣"];
        let too_large = ["9223372036854775808", "-9223372036854775809", "18446744073709551617", &"9".repeat(1000)];
        assert!(others.into_iter().chain(too_large).all(|text| canonical(text.as_bytes()).is_none()));
    }
}

//! Values of keys.

use std::borrow::Cow;

use super::table::{Keyed, hash};
use crate::reply::integer;

/// A key, its value and when it expires.
#[derive(Clone, Debug)]
pub struct Entry {
    key: Box<[u8]>,
    /// The value.
    pub value: Value,
    /// When it expires, in milliseconds since 1970; 0: never.
    expires: u64,
    hash: u32,
    /// When it was last changed, in seconds since 1970; for evictions.
    pub access: u32,
}

impl Keyed for Entry {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn hash(&self) -> u32 {
        self.hash
    }
}

impl Entry {
    /// A key that never expires.
    pub fn new(key: &[u8], value: Value) -> Self {
        Self { key: key.into(), value, expires: 0, hash: hash(key), access: 0 }
    }

    /// When it expires, in milliseconds since 1970.
    pub fn expires(&self) -> Option<u64> {
        (self.expires != 0).then_some(self.expires)
    }

    pub(super) fn set_expires(&mut self, at: Option<u64>) {
        self.expires = at.map_or(0, |at| at.max(1));
    }

    /// Returns whether it has expired by then.
    pub fn is_dead(&self, now: u64) -> bool {
        self.expires != 0 && self.expires <= now
    }
}

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Str(Vec<u8>),
    /// A string that was changed in place: it is expected to grow.
    Raw(Vec<u8>),
    /// A string that is a number in its shortest form.
    Int(i64),
}

impl Value {
    /// A string: a number, if it is one in its shortest form.
    pub fn string(bytes: &[u8]) -> Self {
        canonical(bytes).map_or_else(|| Self::Str(bytes.to_vec()), Self::Int)
    }

    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Str(_) | Self::Raw(_) | Self::Int(_) => "string",
        }
    }

    /// The name of its encoding, as `OBJECT ENCODING` tells it.
    pub fn encoding(&self) -> &'static str {
        match self {
            Self::Int(_) => "int",
            Self::Str(bytes) if bytes.len() <= 44 => "embstr",
            Self::Str(_) | Self::Raw(_) => "raw",
        }
    }

    /// Shows `add` all that operations can see of it.
    pub fn digest(&self, add: &mut impl FnMut(&[u8])) {
        match self {
            Self::Str(bytes) | Self::Raw(bytes) => add(bytes),
            Self::Int(number) => add(&number.to_le_bytes()),
        }
    }

    /// The bytes of a string.
    pub fn bytes(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Str(bytes) | Self::Raw(bytes) => Some(Cow::Borrowed(bytes)),
            Self::Int(number) => {
                let mut digits = Vec::with_capacity(20);
                integer(*number, &mut digits);
                Some(Cow::Owned(digits))
            }
        }
    }
}

/// The number that these bytes are the shortest form of.
pub fn canonical(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let leading = *digits.first()?;
    if digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) || (leading == b'0' && bytes.len() > 1) {
        return None;
    }
    core::str::from_utf8(bytes).ok()?.parse().ok()
}

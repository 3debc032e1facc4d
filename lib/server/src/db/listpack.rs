//! Items of Redis's listpacks. A stream's nodes have this form in memory, and small values have it in RDB files.
//!
//! An item has three parts: one or more bytes that encode its type and length, its content, and the total length of
//! these two parts. The last length has seven bits per byte, so that iteration from the end can decode it. A string
//! that is an integer in its shortest decimal form is stored as an integer. A listpack consists of: its length in bytes
//! (4 bytes), the number of its items (2 bytes; 65,535 means unknown), the items, and [`END`].
//!
//! The functions that decode accept bytes from untrusted sources. They return `None` for malformed bytes and never read
//! out of bounds.

use std::borrow::Cow;

use super::value::canonical;
use crate::reply::integer;

/// The last byte of a listpack.
pub const END: u8 = 0xff;
/// The number of bytes before the first item of a listpack.
pub const HEADER: usize = 6;

/// An item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'b> {
    /// A string that is an integer in its shortest decimal form.
    Int(i64),
    /// Any other string.
    Bytes(&'b [u8]),
}

impl<'b> Item<'b> {
    /// Returns the string.
    pub fn bytes(self) -> Cow<'b, [u8]> {
        match self {
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
            Self::Int(number) => {
                let mut digits = Vec::with_capacity(20);
                integer(number, &mut digits);
                Cow::Owned(digits)
            }
        }
    }

    /// Returns the integer, if the item is one.
    pub fn int(self) -> Option<i64> {
        if let Self::Int(number) = self { Some(number) } else { None }
    }

    /// Returns whether the item is this string.
    pub fn is(self, other: &[u8]) -> bool {
        self.bytes() == other
    }
}

/// Appends the length that ends an item. `length` is the size of the item's other two parts in bytes.
fn put_length(length: usize, out: &mut Vec<u8>) {
    let width = length_width(length);
    // Iteration from the end reads the last byte first. The first byte in memory is therefore the last to be read, so
    // it alone has no continuation bit.
    for place in (0..width).rev() {
        let more = if place + 1 < width { 0x80 } else { 0 };
        out.push((length >> (7 * place)) as u8 & 0x7f | more);
    }
}

/// Returns how many bytes the length at the end of an item takes. `length` is the size of the item's other two parts in
/// bytes.
fn length_width(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Appends an integer as an item.
pub fn put_int(number: i64, out: &mut Vec<u8>) {
    let start = out.len();
    let bytes = number.to_le_bytes();
    match number {
        0..=127 => out.push(number as u8),
        -4096..=4095 => out.extend([0xc0 | (number >> 8) as u8 & 0x1f, number as u8]),
        -0x8000..=0x7fff => out.extend([&[0xf1], &bytes[..2]].concat()),
        -0x80_0000..=0x7f_ffff => out.extend([&[0xf2], &bytes[..3]].concat()),
        -0x8000_0000..=0x7fff_ffff => out.extend([&[0xf3], &bytes[..4]].concat()),
        _ => out.extend([&[0xf4], &bytes[..]].concat()),
    }
    put_length(out.len() - start, out);
}

/// Appends a string as an item.
///
/// # Panics
/// Panics if the string has 4 GiB or more.
pub fn put(string: &[u8], out: &mut Vec<u8>) {
    if let Some(number) = canonical(string) {
        return put_int(number, out);
    }
    let start = out.len();
    let length = string.len();
    match length {
        0..64 => out.push(0x80 | length as u8),
        64..4096 => out.extend([0xe0 | (length >> 8) as u8, length as u8]),
        _ => {
            out.push(0xf0);
            out.extend(u32::try_from(length).expect("a string is shorter than 4 GiB").to_le_bytes());
        }
    }
    out.extend_from_slice(string);
    put_length(out.len() - start, out);
}

/// Returns the little-endian signed integer of `width` bytes at `at`.
fn signed(bytes: &[u8], at: usize, width: usize) -> Option<i64> {
    let mut wide = [0; 8];
    wide[8 - width..].copy_from_slice(bytes.get(at..at.checked_add(width)?)?);
    Some(i64::from_le_bytes(wide) >> (64 - 8 * width))
}

/// Returns the item at `at`, and the offset of the next item. Returns `None` if the item is malformed, and also if `at`
/// is after the last item.
pub fn next(bytes: &[u8], at: usize) -> Option<(Item<'_>, usize)> {
    let first = *bytes.get(at)?;
    let string = |header: usize, length: usize| {
        let start = at.checked_add(header)?;
        let end = start.checked_add(length)?;
        Some((Item::Bytes(bytes.get(start..end)?), header + length))
    };
    let number = |width: usize| Some((Item::Int(signed(bytes, at + 1, width)?), width + 1));
    let (item, length) = match first {
        0..0x80 => (Item::Int(first.into()), 1),
        0x80..0xc0 => string(1, (first & 0x3f).into())?,
        0xc0..0xe0 => {
            let number = i64::from(first & 0x1f) << 8 | i64::from(*bytes.get(at + 1)?);
            (Item::Int(number << 51 >> 51), 2)
        }
        0xe0..0xf0 => string(2, usize::from(first & 0xf) << 8 | usize::from(*bytes.get(at + 1)?))?,
        0xf0 => string(5, u32::from_le_bytes(bytes.get(at + 1..at + 5)?.try_into().ok()?) as usize)?,
        0xf1 => number(2)?,
        0xf2 => number(3)?,
        0xf3 => number(4)?,
        0xf4 => number(8)?,
        _ => return None,
    };
    let next = at + length + length_width(length);
    (next <= bytes.len()).then_some((item, next))
}

/// Returns the items of a whole listpack. Returns `None` if the listpack is malformed.
pub fn items(listpack: &[u8]) -> Option<Vec<Item<'_>>> {
    let total = u32::from_le_bytes(listpack.get(..4)?.try_into().ok()?);
    let count = u16::from_le_bytes(listpack.get(4..HEADER)?.try_into().ok()?);
    if total as usize != listpack.len() || *listpack.last()? != END {
        return None;
    }
    let (mut all, mut at, body) = (Vec::new(), HEADER, &listpack[..listpack.len() - 1]);
    while at < body.len() {
        let (item, after) = next(body, at)?;
        all.push(item);
        at = after;
    }
    (count == u16::MAX || usize::from(count) == all.len()).then_some(all)
}

/// Returns a whole listpack of `count` items that are already encoded.
pub fn whole(count: usize, encoded: &[&[u8]]) -> Vec<u8> {
    let length = HEADER + encoded.iter().map(|part| part.len()).sum::<usize>() + 1;
    let mut out = Vec::with_capacity(length);
    out.extend(u32::try_from(length).expect("it is shorter than 4 GiB").to_le_bytes());
    out.extend(u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
    encoded.iter().for_each(|part| out.extend_from_slice(part));
    out.push(END);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_put_is_read() {
        let numbers = [0, 127, 128, -1, 4095, 4096, -4096, -4097, 32767, -32768, 32768, 1 << 23, -(1 << 23), 1 << 31];
        let strings =
            [0, 1, 63, 64, 127, 128, 4095, 4096, 16_380, 16_381, 16_384, 2_097_151].map(|length| vec![b'x'; length]);
        let mut out = Vec::new();
        numbers.iter().for_each(|number| put_int(*number, &mut out));
        [i64::MIN, i64::MAX].iter().for_each(|number| put(number.to_string().as_bytes(), &mut out));
        strings.iter().for_each(|string| put(string, &mut out));
        let listpack = whole(numbers.len() + strings.len() + 2, &[&out]);
        let read = items(&listpack).expect("it is well-formed");
        let numbers = numbers.into_iter().chain([i64::MIN, i64::MAX]).map(|number| number.to_string().into_bytes());
        assert!(read.iter().map(|item| item.bytes().into_owned()).eq(numbers.chain(strings)));
    }

    #[test]
    fn lengths_behind_items_are_those_of_redis() {
        let mut out = Vec::new();
        for (length, expected) in [(5, vec![5]), (300, vec![2, 0x80 | 44]), (20_000, vec![1, 0x80 | 28, 0x80 | 32])] {
            out.clear();
            put_length(length, &mut out);
            assert_eq!(out, expected, "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..60), count in any::<u16>()) {
            let listpack = whole(count.into(), &[&bytes]);
            let _ = (items(&bytes), items(&listpack));
        }
    }
}

//! Reads integer sets, ziplists and zipmaps. Older versions of Redis encoded small values as ziplists and zipmaps.
//!
//! All functions return `None` if the bytes are malformed.

use crate::db::listpack::Item;

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Returns the strings of a ziplist.
pub fn ziplist(bytes: &[u8]) -> Option<Vec<Item<'_>>> {
    let count = u16::from_le_bytes(array(bytes, 8)?);
    if u32::from_le_bytes(array(bytes, 0)?) as usize != bytes.len() {
        return None;
    }
    let (mut all, mut at) = (Vec::new(), 10);
    while *bytes.get(at)? != 0xff {
        // The length of the previous entry, which is not needed.
        at += if bytes[at] == 0xfe { 5 } else { 1 };
        let (item, next) = ziplist_item(bytes, at)?;
        all.push(item);
        at = next;
    }
    let told = count == u16::MAX || usize::from(count) == all.len();
    (told && at + 1 == bytes.len()).then_some(all)
}

fn ziplist_item(bytes: &[u8], at: usize) -> Option<(Item<'_>, usize)> {
    let first = *bytes.get(at)?;
    let string = |header: usize, length: usize| {
        let end = (at + header).checked_add(length)?;
        Some((Item::Bytes(bytes.get(at + header..end)?), end))
    };
    let number = |number: i64, width: usize| Some((Item::Int(number), at + 1 + width));
    match first {
        0..0x40 => string(1, first.into()),
        0x40..0x80 => string(2, usize::from(first & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?)),
        0x80..0xc0 => string(5, u32::from_be_bytes(array(bytes, at + 1)?) as usize),
        0xc0 => number(i16::from_le_bytes(array(bytes, at + 1)?).into(), 2),
        0xd0 => number(i32::from_le_bytes(array(bytes, at + 1)?).into(), 4),
        0xe0 => number(i64::from_le_bytes(array(bytes, at + 1)?), 8),
        0xf0 => {
            let [low, middle, high] = array(bytes, at + 1)?;
            number((i32::from_le_bytes([0, low, middle, high]) >> 8).into(), 3)
        }
        0xfe => number(i8::from_le_bytes(array(bytes, at + 1)?).into(), 1),
        0xf1..=0xfd => number(i64::from(first & 0xf) - 1, 0),
        _ => None,
    }
}

/// Returns the numbers of an integer set.
pub fn intset(bytes: &[u8]) -> Option<Vec<i64>> {
    let width = u32::from_le_bytes(array(bytes, 0)?) as usize;
    let count = u32::from_le_bytes(array(bytes, 4)?) as usize;
    let content = &bytes[8..];
    if !matches!(width, 2 | 4 | 8) || content.len() != count.checked_mul(width)? {
        return None;
    }
    let number = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[8 - width..].copy_from_slice(bytes);
        i64::from_le_bytes(wide) >> (64 - 8 * width)
    };
    let all: Vec<i64> = content.chunks_exact(width).map(number).collect();
    all.windows(2).all(|pair| pair[0] < pair[1]).then_some(all)
}

/// Returns the strings of a zipmap: names and values alternate.
pub fn zipmap(bytes: &[u8]) -> Option<Vec<Item<'_>>> {
    let (mut all, mut at) = (Vec::new(), 1);
    while *bytes.get(at)? != 0xff {
        let mut length = usize::from(bytes[at]);
        at += 1;
        if length == 0xfe {
            length = u32::from_le_bytes(array(bytes, at)?) as usize;
            at += 4;
        }
        // The length of a value is followed by the number of unused bytes after the value.
        let free = if all.len() % 2 == 1 {
            at += 1;
            usize::from(*bytes.get(at - 1)?)
        } else {
            0
        };
        let end = at.checked_add(length)?;
        all.push(Item::Bytes(bytes.get(at..end)?));
        at = end + free;
    }
    (all.len() % 2 == 0 && at + 1 == bytes.len()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ziplist_of_each_form_is_read() {
        let entries: &[&[u8]] = &[
            &[0, 1, b'a'],
            &[3, 0xf1],
            &[2, 0xfd],
            &[2, 0xfe, 0x80],
            &[3, 0xc0, 0, 0x80],
            &[4, 0xf0, 0, 0, 0x80],
            &[5, 0xd0, 0, 0, 0, 0x80],
            &[6, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x80],
            &[10, 0x40, 2, b'b', b'c'],
            &[0xfe, 5, 0, 0, 0, 0x80, 0, 0, 0, 1, b'd'],
        ];
        let body = entries.concat();
        let mut bytes = ((body.len() + 11) as u32).to_le_bytes().to_vec();
        bytes.extend([0, 0, 0, 0, entries.len() as u8, 0]);
        bytes.extend(body);
        bytes.push(0xff);
        let read: Vec<String> =
            ziplist(&bytes).unwrap().iter().map(|item| String::from_utf8(item.bytes().into_owned()).unwrap()).collect();
        assert_eq!(
            read,
            ["a", "0", "12", "-128", "-32768", "-8388608", "-2147483648", "-9223372036854775808", "bc", "d"]
        );
    }

    #[test]
    fn a_zipmap_is_read() {
        let bytes = [2, 3, b'f', b'o', b'o', 3, 0, b'b', b'a', b'r', 1, b'x', 1, 2, b'y', 0, 0, 0xff];
        let read = zipmap(&bytes).unwrap();
        assert_eq!(
            read.iter().map(|item| item.bytes().into_owned()).collect::<Vec<_>>(),
            [&b"foo"[..], b"bar", b"x", b"y"]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut sized = bytes.clone();
            if let Some(length) = sized.get_mut(..4) {
                length.copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            }
            let _ = (ziplist(&bytes), ziplist(&sized), intset(&bytes), zipmap(&bytes));
        }
    }
}

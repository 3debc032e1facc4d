//! Reads values of all types and encodings.

use std::io::Read;

use super::Error;
use super::input::Input;
use super::packed::{intset, ziplist, zipmap};
use crate::db::hash::Hash;
use crate::db::hashing::Hashing;
use crate::db::list::{End, List};
use crate::db::listpack::{self, Item};
use crate::db::set::Set;
use crate::db::stream::{Group, Id, Stream};
use crate::db::value::{Container, Value};
use crate::db::zset::Zset;

/// The latest time at which a field may expire, in milliseconds since 1970. Redis reads no later time.
const LAST_READ: u64 = (1 << 48) - 1;

/// The result of reading a value.
#[derive(Debug)]
pub enum Found {
    /// A value.
    Value(Value),
    /// An empty container.
    Nothing,
}

impl<T: Container> From<T> for Found {
    fn from(value: T) -> Self {
        if value.is_nothing() { Self::Nothing } else { Self::Value(value.into_value()) }
    }
}

/// Reads a value of this type.
pub fn read<R: Read>(input: &mut Input<'_, R>, kind: u8) -> Result<Found, Error> {
    Ok(match kind {
        0 => Found::Value(Value::string(&input.string()?)),
        1 => list(input)?.into(),
        2 => set(input)?.into(),
        3 | 5 => zset(input, kind == 5)?.into(),
        4 => hash(input)?.into(),
        9 => with(input, zipmap, hash_of)?.into(),
        10 => with(input, ziplist, list_of)?.into(),
        11 => set_of_numbers(input)?.into(),
        12 => with(input, ziplist, zset_of)?.into(),
        13 => with(input, ziplist, hash_of)?.into(),
        14 | 18 => quicklist(input, kind == 18)?.into(),
        15 => stream(input, 1)?.into(),
        16 => with(input, listpack::items, hash_of)?.into(),
        17 => with(input, listpack::items, zset_of)?.into(),
        19 => stream(input, 2)?.into(),
        20 => with(input, listpack::items, set_of)?.into(),
        21 => stream(input, 3)?.into(),
        24 => dated_hash(input)?.into(),
        25 => dated_pack(input)?.into(),
        22 | 23 => {
            return Err(input.wrong(
                "a hash with fields that expire, of a version of Redis before 7.4: save with Redis 7.4 or newer",
            ));
        }
        6 | 7 => {
            return Err(
                input.wrong("a value of a module, which only Redis with this module reads: delete it there first")
            );
        }
        _ => return Err(input.wrong(format!("values of type {kind} are not known: save with Redis 7.0 to 8.0"))),
    })
}

/// Reads a string and makes a container of the items that are packed in it.
fn with<R: Read, T>(
    input: &mut Input<'_, R>,
    unpack: for<'b> fn(&'b [u8]) -> Option<Vec<Item<'b>>>,
    make: fn(&[Item<'_>], Hashing) -> Option<T>,
) -> Result<T, Error> {
    let bytes = input.string()?;
    unpack(&bytes).and_then(|items| make(&items, input.hashing)).ok_or_else(|| input.damaged())
}

fn list_of(items: &[Item<'_>], _: Hashing) -> Option<List> {
    let mut list = List::default();
    items.iter().for_each(|item| list.push(End::Right, &item.bytes()));
    Some(list)
}

fn set_of(items: &[Item<'_>], hashing: Hashing) -> Option<Set> {
    let mut set = Set::default();
    items.iter().all(|item| set.insert(&item.bytes(), hashing)).then_some(set)
}

fn hash_of(items: &[Item<'_>], hashing: Hashing) -> Option<Hash> {
    let mut hash = Hash::default();
    let new = items.chunks(2).all(|pair| pair.len() == 2 && hash.set(&pair[0].bytes(), &pair[1].bytes(), hashing));
    new.then_some(hash)
}

fn zset_of(items: &[Item<'_>], hashing: Hashing) -> Option<Zset> {
    let mut zset = Zset::default();
    let new = items.chunks(2).all(|pair| {
        let score = pair.get(1).and_then(|score| crate::family::parse::float(&score.bytes()).ok());
        score.is_some_and(|score| zset.set(&pair[0].bytes(), score, hashing).is_none())
    });
    new.then_some(zset)
}

fn set_of_numbers<R: Read>(input: &mut Input<'_, R>) -> Result<Set, Error> {
    let bytes = input.string()?;
    let numbers = intset(&bytes).ok_or_else(|| input.damaged())?;
    let mut set = Set::default();
    numbers.iter().for_each(|number| _ = set.insert(number.to_string().as_bytes(), input.hashing));
    Ok(set)
}

fn list<R: Read>(input: &mut Input<'_, R>) -> Result<List, Error> {
    let mut list = List::default();
    for _ in 0..input.length()? {
        list.push(End::Right, &input.string()?);
    }
    Ok(list)
}

/// Reads a list of ziplists; if `second`, a list of listpacks and single elements.
fn quicklist<R: Read>(input: &mut Input<'_, R>, second: bool) -> Result<List, Error> {
    let mut list = List::default();
    for _ in 0..input.length()? {
        let form = if second { input.length()? } else { 2 };
        let bytes = input.string()?;
        let items = match form {
            1 => vec![Item::Bytes(&bytes)],
            2 if second => listpack::items(&bytes).ok_or_else(|| input.damaged())?,
            2 => ziplist(&bytes).ok_or_else(|| input.damaged())?,
            _ => return Err(input.damaged()),
        };
        items.iter().for_each(|item| list.push(End::Right, &item.bytes()));
    }
    Ok(list)
}

fn set<R: Read>(input: &mut Input<'_, R>) -> Result<Set, Error> {
    let mut set = Set::default();
    for _ in 0..input.length()? {
        if !set.insert(&input.string()?, input.hashing) {
            return Err(input.damaged());
        }
    }
    Ok(set)
}

fn hash<R: Read>(input: &mut Input<'_, R>) -> Result<Hash, Error> {
    let mut hash = Hash::default();
    for _ in 0..input.length()? {
        if !hash.set(&input.string()?, &input.string()?, input.hashing) {
            return Err(input.damaged());
        }
    }
    Ok(hash)
}

/// Sets a new field that expires at `at`, in milliseconds since 1970; 0 means never.
fn date(hash: &mut Hash, name: &[u8], value: &[u8], at: u64, hashing: Hashing) -> Option<()> {
    let sane = at <= LAST_READ && hash.set(name, value, hashing);
    hash.expire_at(name, (at != 0).then_some(at));
    sane.then_some(())
}

/// Reads the earliest expiry time of all fields, then the fields. Each field is preceded by 0 if it does not expire;
/// otherwise by the difference between its time and the earliest, plus 1.
fn dated_hash<R: Read>(input: &mut Input<'_, R>) -> Result<Hash, Error> {
    let (first, mut hash) = (u64::from_le_bytes(input.array()?), Hash::default());
    for _ in 0..input.length()? {
        let at = match input.length()? {
            0 => Some(0),
            later => first.checked_add(later - 1),
        };
        let (name, value) = (input.string()?, input.string()?);
        at.and_then(|at| date(&mut hash, &name, &value, at, input.hashing)).ok_or_else(|| input.damaged())?;
    }
    Ok(hash)
}

/// Reads the earliest expiry time, then a listpack of fields, values and expiry times.
fn dated_pack<R: Read>(input: &mut Input<'_, R>) -> Result<Hash, Error> {
    input.array::<8>()?;
    with(input, listpack::items, |items, hashing| {
        let mut hash = Hash::default();
        for field in items.chunks(3) {
            let [name, value, at] = field else { return None };
            date(&mut hash, &name.bytes(), &value.bytes(), at.int()?.try_into().ok()?, hashing)?;
        }
        Some(hash)
    })
}

fn zset<R: Read>(input: &mut Input<'_, R>, binary: bool) -> Result<Zset, Error> {
    let mut zset = Zset::default();
    for _ in 0..input.length()? {
        let member = input.string()?;
        let score = if binary { f64::from_le_bytes(input.array()?) } else { written_score(input)? };
        if score.is_nan() || zset.add(&member, score, input.hashing).is_some() {
            return Err(input.damaged());
        }
    }
    Ok(zset.made())
}

/// Reads a score as decimal digits, preceded by their number in one byte.
fn written_score<R: Read>(input: &mut Input<'_, R>) -> Result<f64, Error> {
    match input.byte()? {
        0xff => Ok(f64::NEG_INFINITY),
        0xfe => Ok(f64::INFINITY),
        0xfd => Ok(f64::NAN),
        length => {
            let digits = input.take(length.into())?;
            crate::family::parse::float(&digits).map_err(|_| input.damaged())
        }
    }
}

fn id<R: Read>(input: &mut Input<'_, R>) -> Result<Id, Error> {
    Ok(Id(input.length()?, input.length()?))
}

/// Reads a stream in version 1 (Redis 5), 2 (7.0) or 3 (7.2) of its encoding.
fn stream<R: Read>(input: &mut Input<'_, R>, version: u8) -> Result<Stream, Error> {
    let mut nodes = Vec::new();
    for _ in 0..input.length()? {
        let master: [u8; 16] = input.string()?.try_into().map_err(|_| input.damaged())?;
        nodes.push((Id::from(master), input.string()?));
    }
    let mut stream = Stream::of_nodes(nodes.into_iter()).ok_or_else(|| input.damaged())?;
    let len = input.length()?;
    stream.last = id(input)?;
    if version >= 2 {
        // The ID of the first entry, which the entries contain as well.
        id(input)?;
        stream.deleted = id(input)?;
        stream.added = input.length()?;
    } else {
        stream.added = len;
    }
    if len != stream.len() || stream.top().is_some_and(|top| top > stream.last) {
        return Err(input.damaged());
    }
    for _ in 0..input.length()? {
        let name = input.string()?;
        let group = group(input, &stream, version)?;
        if stream.add_group(name, group).is_some() {
            return Err(input.damaged());
        }
    }
    Ok(stream)
}

fn group<R: Read>(input: &mut Input<'_, R>, stream: &Stream, version: u8) -> Result<Group, Error> {
    let last = id(input)?;
    // The largest number means that the count is unknown.
    let read = match version {
        1 => stream.ordinal(stream.first(), last),
        _ => Some(input.length()?).filter(|read| *read != u64::MAX),
    };
    let mut group = Group::new(last, read);
    let mut pending = std::collections::BTreeMap::new();
    for _ in 0..input.length()? {
        let id = Id::from(input.array::<16>()?);
        let delivered = u64::from_le_bytes(input.array()?);
        if pending.insert(id, (delivered, input.length()?)).is_some() {
            return Err(input.damaged());
        }
    }
    for _ in 0..input.length()? {
        let name = input.string()?;
        let (name, new) = group.seen(&name, u64::from_le_bytes(input.array()?));
        if version >= 3 {
            // The time of the consumer's last delivery, which Redis 7.0 does not have.
            input.array::<8>()?;
        }
        for _ in 0..input.length()? {
            let id = Id::from(input.array::<16>()?);
            let (delivered, times) = pending.remove(&id).ok_or_else(|| input.damaged())?;
            group.assign(id, &name, delivered, times);
        }
        if !new {
            return Err(input.damaged());
        }
    }
    // Every pending entry must belong to a consumer.
    if pending.is_empty() { Ok(group) } else { Err(input.damaged()) }
}

#[cfg(test)]
mod tests {
    use crate::db::stream::{Group, Id, Stream};
    use crate::db::value::Value;
    use crate::rdb::{Refused, dump};

    fn restored(payload: &[u8]) -> Result<Value, Refused> {
        crate::rdb::restore(payload, super::Hashing::default())
    }

    fn stream(change: impl Fn(&mut Stream, &mut Group)) -> Value {
        let (mut stream, mut group) = (Stream::default(), Group::default());
        (1..=3).for_each(|time| stream.append(Id(time, 0), [&b"f"[..], b"v"].into_iter()));
        let consumer = group.seen(b"c", 7).0;
        group.assign(Id(2, 0), &consumer, 8, 1);
        change(&mut stream, &mut group);
        stream.add_group(b"g".to_vec(), group);
        Value::Stream(Box::new(stream))
    }

    /// Returns a payload of this type and content.
    fn payload(kind: u8, content: &[u8]) -> Vec<u8> {
        crate::rdb::sealed([&[kind], content].concat(), 12)
    }

    #[test]
    fn hashes_whose_fields_expire_are_read_as_redis_writes_them() {
        // A listpack of fields, values and times. Fields with an expiry time come first, in the order of their times.
        let mut pack = vec![0; 4];
        pack.extend(6_u16.to_le_bytes());
        for item in [&b"a"[..], b"1", b"1800000000000", b"b", b"2", b"0"] {
            crate::db::listpack::put(item, &mut pack);
        }
        pack.push(crate::db::listpack::END);
        let length = pack.len() as u32;
        pack[..4].copy_from_slice(&length.to_le_bytes());
        let first = 1_800_000_000_000_u64.to_le_bytes();
        let few = [&first[..], &[pack.len() as u8], &pack].concat();
        // Each field of the table is preceded by the difference between its time and the first, plus 1.
        let many = [&first[..], &[3], &[1, 1, b'a', 1, b'1'], &[0, 1, b'b', 1, b'2'], &[6, 1, b'c', 1, b'3']].concat();
        for (kind, content, earliest, last) in [(25, &few, "a", None), (24, &many, "a", Some("c"))] {
            let Ok(Value::Hash(hash)) = restored(&payload(kind, content)) else { panic!("type {kind} is read") };
            assert_eq!(hash.find(earliest.as_bytes()), Some((&b"1"[..], 1_800_000_000_000)));
            assert_eq!(hash.find(b"b"), Some((&b"2"[..], 0)));
            let last = last.map(|name| hash.find(name.as_bytes()).unwrap().1);
            assert!(last.is_none_or(|at| at == 1_800_000_000_005));
            assert!(restored(&payload(kind, &content[..content.len() - 1])).is_err(), "type {kind} that is cut");
        }
        for (what, bad) in [
            (
                "a field that is there twice",
                [&first[..], &[2], &[1, 1, b'a', 1, b'1'], &[0, 1, b'a', 1, b'2']].concat(),
            ),
            ("a time that no command sets", [&[0xff; 8][..], &[1], &[1, 1, b'a', 1, b'1']].concat()),
            ("a time that overflows", [&[0xff; 8][..], &[1], &[9, 1, b'a', 1, b'1']].concat()),
            ("no field", [&first[..], &[0]].concat()),
        ] {
            assert!(restored(&payload(24, &bad)).is_err(), "{what}");
        }
        for kind in [22, 23] {
            let mut from = &[0; 40][..];
            let error = super::read(&mut super::Input::new(&mut from), kind).unwrap_err();
            assert!(error.what.contains("save with Redis 7.4"), "{error}");
        }
    }

    #[test]
    fn groups_that_make_no_sense_are_refused() {
        assert!(restored(&dump(&stream(|_, _| {}))).is_ok());
        let with_none = |_: &mut Stream, group: &mut Group| group.consumers.clear();
        assert!(restored(&dump(&stream(with_none))).is_err(), "pending with no consumer");
        let with_two = |_: &mut Stream, group: &mut Group| {
            group.seen(b"d", 7);
            group.consumers.values_mut().for_each(|consumer| _ = consumer.pending.insert(Id(2, 0)));
        };
        assert!(restored(&dump(&stream(with_two))).is_err(), "pending with two consumers");
        assert!(restored(&dump(&stream(|stream, _| stream.last = Id(2, 9)))).is_err(), "an entry behind the last");
        let set_back = |stream: &mut Stream, _: &mut Group| {
            assert!(stream.delete(Id(3, 0)));
            stream.last = Id(2, 0);
        };
        let Ok(Value::Stream(mut read)) = restored(&dump(&stream(set_back))) else { panic!("3-0 is deleted") };
        assert_eq!((read.len(), read.last), (2, Id(2, 0)));
        read.append(Id(2, 5), [&b"f"[..], b"v"].into_iter());
        let read = restored(&dump(&Value::Stream(read)));
        assert!(matches!(read, Ok(Value::Stream(read)) if read.contains(Id(2, 5))), "an entry behind a deleted one");
    }
}

//! The binary encoding of entries in snapshots.
//!
//! An image preserves all that an operation can see: keys, types, encodings (`OBJECT ENCODING`), elements, expiry
//! times, and the order of ordered values. An image does not preserve memory layouts, because no answer depends on a
//! layout ([`table`](super::table)). Databases with equal entries therefore behave alike.
//!
//! # Encoding
//! An entry is: the database's number, the key, the expiry time (0: never), the bits that record the entry's uses, a
//! byte for type and encoding, and the elements. Counts, times and numbers of databases are LEB128. Integers that are
//! values, and scores outside packs, have eight bytes. A byte string follows its length. Malformed bytes are refused.

use super::hash::Hash;
use super::hashing::Hashing;
use super::list::{End, List};
use super::pack::Pack;
use super::set::Set;
use super::stream::{Group, Id, Pending, Stream};
use super::table::Keyed;
use super::value::{Container, Entry, Value};
use super::zset::Zset;
use crate::operation::{Input, put_bytes, put_number};

const STR: u8 = 1;
const RAW: u8 = 2;
const INT: u8 = 3;
const LIST: u8 = 4;
const PACKED_HASH: u8 = 5;
const HASH: u8 = 6;
const INTEGERS: u8 = 7;
const SET: u8 = 8;
const PACKED_ZSET: u8 = 9;
const ZSET: u8 = 10;
const STREAM: u8 = 11;
const DATED_PACK: u8 = 12;

/// Appends an entry of database `db`.
pub fn put_entry(db: u32, entry: &Entry, out: &mut Vec<u8>) {
    put_number(u64::from(db), out);
    put_bytes(entry.key(), out);
    put_number(entry.expires().unwrap_or(0), out);
    put_number(u64::from(entry.access()), out);
    put_value(&entry.value, out);
}

/// Reads the next entry and the number of its database, for databases with this hash function.
pub fn entry(input: &mut Input<'_>, hashing: Hashing) -> Option<(u32, Entry)> {
    let (db, key, expires, access) = (input.small()?, input.bytes()?, input.number()?, input.small()?);
    let mut entry = Entry::new(key, value(input, hashing)?, hashing);
    entry.set_expires((expires != 0).then_some(expires));
    entry.set_access(access);
    Some((db, entry))
}

fn put_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Str(bytes) => put_tagged(STR, bytes, out),
        Value::Raw(bytes) => put_tagged(RAW, bytes, out),
        Value::Int(number) => {
            out.push(INT);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::List(list) => {
            put_count(LIST, list.len(), out);
            list.iter().for_each(|element| put_bytes(element, out));
        }
        Value::Hash(hash) => match &**hash {
            Hash::Packed(pack) => put_pack(PACKED_HASH, pack, out),
            _ => {
                put_count(if matches!(**hash, Hash::Few(_)) { DATED_PACK } else { HASH }, hash.len(), out);
                for (name, value, at) in hash.iter() {
                    put_bytes(name, out);
                    put_bytes(value, out);
                    put_number(at, out);
                }
            }
        },
        Value::Set(set) => {
            put_count(if matches!(set, Set::Integers(_)) { INTEGERS } else { SET }, set.len(), out);
            set.iter().for_each(|member| put_bytes(&member, out));
        }
        Value::Zset(zset) => match &**zset {
            Zset::Packed(pack) => put_pack(PACKED_ZSET, pack, out),
            Zset::Large { table, .. } => {
                put_count(ZSET, table.len(), out);
                for scored in table.iter() {
                    put_bytes(scored.key(), out);
                    out.extend_from_slice(&scored.score().to_bits().to_le_bytes());
                }
            }
        },
        Value::Stream(stream) => put_stream(stream, out),
    }
}

fn put_tagged(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    put_bytes(bytes, out);
}

fn put_count(tag: u8, count: usize, out: &mut Vec<u8>) {
    out.push(tag);
    put_number(count as u64, out);
}

fn put_pack(tag: u8, pack: &Pack, out: &mut Vec<u8>) {
    put_count(tag, pack.len(), out);
    pack.iter().for_each(|(_, item)| put_bytes(item, out));
}

fn value(input: &mut Input<'_>, hashing: Hashing) -> Option<Value> {
    Some(match input.byte()? {
        STR => Value::Str(input.bytes()?.into()),
        RAW => Value::Raw(Box::new(input.bytes()?.to_vec())),
        INT => Value::Int(input.word()? as i64),
        LIST => {
            let mut list = List::default();
            for _ in 0..input.number()? {
                list.push(End::Right, input.bytes()?);
            }
            list.shrink();
            list.into_value()
        }
        PACKED_HASH => Hash::Packed(pack(input)?).into_value(),
        tag @ (HASH | DATED_PACK) => {
            let mut hash = Hash::default();
            if tag == HASH {
                hash.unpack(hashing);
            }
            for _ in 0..input.number()? {
                let (name, value, expires) = (input.bytes()?, input.bytes()?, input.number()?);
                hash.set(name, value, hashing);
                hash.expire_at(name, (expires != 0).then_some(expires));
            }
            hash.into_value()
        }
        tag @ (INTEGERS | SET) => {
            let mut set = Set::default();
            if tag == SET {
                set.unpack(hashing);
            }
            for _ in 0..input.number()? {
                set.insert(input.bytes()?, hashing);
            }
            set.into_value()
        }
        PACKED_ZSET => Zset::Packed(pack(input)?).into_value(),
        ZSET => {
            let mut zset = Zset::default();
            zset.unpack(hashing);
            for _ in 0..input.number()? {
                let (member, score) = (input.bytes()?, f64::from_bits(input.word()?));
                zset.set(member, score, hashing);
            }
            zset.into_value()
        }
        STREAM => stream(input)?.into_value(),
        _ => return None,
    })
}

fn pack(input: &mut Input<'_>) -> Option<Pack> {
    let mut pack = Pack::default();
    for _ in 0..input.number()? {
        pack.push_back(input.bytes()?);
    }
    pack.shrink();
    Some(pack)
}

fn put_id(id: Id, out: &mut Vec<u8>) {
    put_number(id.0, out);
    put_number(id.1, out);
}

fn id(input: &mut Input<'_>) -> Option<Id> {
    Some(Id(input.number()?, input.number()?))
}

fn put_stream(stream: &Stream, out: &mut Vec<u8>) {
    let Stream { nodes, last, deleted, added, .. } = stream;
    // The nodes are encoded one by one, because approximate trimming ("about") removes whole nodes.
    put_count(STREAM, nodes.len(), out);
    for (master, node) in nodes {
        put_id(*master, out);
        put_bytes(&node.save(), out);
    }
    put_id(*last, out);
    put_id(*deleted, out);
    put_number(*added, out);
    put_number(stream.groups().len() as u64, out);
    for (name, Group { last, read, pending, consumers, .. }) in stream.groups() {
        put_bytes(name, out);
        put_id(*last, out);
        put_number(u64::from(read.is_some()), out);
        put_number(read.unwrap_or(0), out);
        put_number(pending.len() as u64, out);
        for (key, Pending { consumer, delivered, times }) in pending {
            put_id(*key, out);
            put_bytes(consumer, out);
            put_number(*delivered, out);
            put_number(*times, out);
        }
        put_number(consumers.len() as u64, out);
        for (name, consumer) in consumers {
            put_bytes(name, out);
            put_number(consumer.seen, out);
        }
    }
}

fn stream(input: &mut Input<'_>) -> Option<Stream> {
    let nodes = input.many(|input| Some((id(input)?, input.bytes()?)))?;
    let mut stream = Stream::of_nodes(nodes.into_iter())?;
    (stream.last, stream.deleted, stream.added) = (stream.last.max(id(input)?), id(input)?, input.number()?);
    for (name, group) in input.many(|input| Some((input.bytes()?.to_vec(), group(input)?)))? {
        stream.add_group(name, group);
    }
    Some(stream)
}

fn group(input: &mut Input<'_>) -> Option<Group> {
    let (last, known, read) = (id(input)?, input.number()? != 0, input.number()?);
    let mut group = Group::new(last, known.then_some(read));
    let pending = input.many(|input| Some((id(input)?, input.bytes()?.to_vec(), input.number()?, input.number()?)))?;
    for (name, seen) in input.many(|input| Some((input.bytes()?.to_vec(), input.number()?)))? {
        group.seen(&name, seen);
    }
    for (id, name, delivered, times) in pending {
        let name = group.consumers.get_key_value(&*name)?.0.clone();
        group.assign(id, &name, delivered, times);
    }
    Some(group)
}

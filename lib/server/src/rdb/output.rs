//! Writes values in the simple encodings that every version of Redis reads. Streams, which are written as listpacks,
//! and hashes with fields that expire are the exceptions.

use std::io::{self, Write};

use crc::{Digest, Table};

use super::input::CRC;
use crate::db::hash::Hash;
use crate::db::stream::{Id, Stream};
use crate::db::value::{Value, canonical};

/// A writer, with the checksum of the bytes written.
pub struct Output<'w, W> {
    to: &'w mut W,
    digest: Digest<'static, u64, Table<16>>,
}

/// Returns the number of a value's type in the file.
pub fn kind(value: &Value) -> u8 {
    match value {
        Value::Str(_) | Value::Raw(_) | Value::Int(_) => 0,
        Value::List(_) => 1,
        Value::Set(_) => 2,
        Value::Hash(hash) if hash.earliest().is_some() => 24,
        Value::Hash(_) => 4,
        Value::Zset(_) => 5,
        Value::Stream(_) => 19,
    }
}

impl<'w, W: Write> Output<'w, W> {
    /// Starts at the beginning of a file or payload.
    pub fn new(to: &'w mut W) -> Self {
        Self { to, digest: CRC.digest() }
    }

    /// Returns the checksum of all bytes written.
    pub fn sum(&self) -> u64 {
        self.digest.clone().finalize()
    }

    /// Writes bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.to.write_all(bytes)
    }

    /// Writes a length or a number.
    pub fn length(&mut self, length: u64) -> io::Result<()> {
        match length {
            0..0x40 => self.put(&[length as u8]),
            0x40..0x4000 => self.put(&[0x40 | (length >> 8) as u8, length as u8]),
            0x4000..=0xffff_ffff => {
                self.put(&[0x80])?;
                self.put(&(length as u32).to_be_bytes())
            }
            _ => {
                self.put(&[0x81])?;
                self.put(&length.to_be_bytes())
            }
        }
    }

    /// Writes a string. A short string of decimal digits is written as an integer.
    pub fn string(&mut self, string: &[u8]) -> io::Result<()> {
        match canonical(string).filter(|_| string.len() <= 11) {
            Some(number @ -0x80..=0x7f) => self.put(&[0xc0, number as u8]),
            Some(number @ -0x8000..=0x7fff) => {
                self.put(&[0xc1])?;
                self.put(&(number as i16).to_le_bytes())
            }
            Some(number @ -0x8000_0000..=0x7fff_ffff) => {
                self.put(&[0xc2])?;
                self.put(&(number as i32).to_le_bytes())
            }
            _ => {
                self.length(string.len() as u64)?;
                self.put(string)
            }
        }
    }

    /// Writes a value without its type.
    pub fn value(&mut self, value: &Value) -> io::Result<()> {
        match value {
            Value::Str(_) | Value::Raw(_) | Value::Int(_) => self.string(&value.bytes().expect("it is a string")),
            Value::List(list) => {
                self.length(list.len() as u64)?;
                list.iter().try_for_each(|element| self.string(element))
            }
            Value::Set(set) => {
                self.length(set.len() as u64)?;
                set.iter().try_for_each(|member| self.string(&member))
            }
            Value::Hash(hash) => self.hash(hash),
            Value::Zset(zset) => {
                self.length(zset.len() as u64)?;
                // The largest score first, as in Redis: then a reader inserts each member at the head of its skip list.
                zset.range(0, usize::MAX).into_iter().rev().try_for_each(|(member, score)| {
                    self.string(member)?;
                    self.put(&score.to_le_bytes())
                })
            }
            Value::Stream(stream) => self.stream(stream),
        }
    }

    /// If a field expires, the earliest expiry time comes first. Each field is then preceded by 0 if it does not expire;
    /// otherwise by the difference between its time and the earliest, plus 1.
    fn hash(&mut self, hash: &Hash) -> io::Result<()> {
        let earliest = hash.earliest();
        if let Some(at) = earliest {
            self.put(&at.to_le_bytes())?;
        }
        self.length(hash.len() as u64)?;
        hash.iter().try_for_each(|(name, value, at)| {
            if let Some(first) = earliest {
                self.length(if at == 0 { 0 } else { at - first + 1 })?;
            }
            self.string(name)?;
            self.string(value)
        })
    }

    fn id(&mut self, id: Id) -> io::Result<()> {
        self.length(id.0)?;
        self.length(id.1)
    }

    fn stream(&mut self, stream: &Stream) -> io::Result<()> {
        self.length(stream.nodes.len() as u64)?;
        for (master, node) in &stream.nodes {
            self.string(&master.bytes())?;
            self.string(&node.save())?;
        }
        self.length(stream.len())?;
        for id in [stream.last, stream.first(), stream.deleted] {
            self.id(id)?;
        }
        self.length(stream.added)?;
        self.length(stream.groups().len() as u64)?;
        for (name, group) in stream.groups() {
            self.string(name)?;
            self.id(group.last)?;
            self.length(group.read.unwrap_or(u64::MAX))?;
            self.length(group.pending.len() as u64)?;
            for (id, pending) in &group.pending {
                self.put(&id.bytes())?;
                self.put(&pending.delivered.to_le_bytes())?;
                self.length(pending.times)?;
            }
            self.length(group.consumers.len() as u64)?;
            for (name, consumer) in &group.consumers {
                self.string(name)?;
                self.put(&consumer.seen.to_le_bytes())?;
                self.length(consumer.pending.len() as u64)?;
                consumer.pending.iter().try_for_each(|id| self.put(&id.bytes()))?;
            }
        }
        Ok(())
    }
}

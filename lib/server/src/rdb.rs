//! RDB files and `DUMP` payloads in Redis 7's format. All encodings are read; simple encodings are written.
//!
//! | module | contents |
//! |---|---|
//! | [`input`] | reads bytes with their offset and checksum; lengths, strings, LZF compression |
//! | [`values`] | reads values of all types |
//! | [`packed`] | reads ziplists, integer sets and zipmaps |
//! | [`output`] | writes values |
//! | [`files`] | loads a server's database from a file, and saves it into a file |
//!
//! # Untrusted input
//! A payload of `RESTORE` or a file may contain anything. A length in it is not trusted: memory is allocated as bytes
//! arrive. A compressed string is refused if its stated length is more than LZF can produce from the compressed bytes. A
//! count of elements reserves no memory: each element is read until the input ends. Values do not nest, so reading does not
//! recurse.

pub mod files;
pub mod input;
pub mod output;
pub mod packed;
pub mod values;

use core::fmt;
use std::io::{self, Read, Write};

use crate::db::functions::Functions;
use crate::db::hashing::Hashing;
use crate::db::table::Keyed;
use crate::db::{Change, DATABASES, Db, Random};
use crate::reply::Fault;
use input::{Input, LIMIT};
use output::Output;
use values::Found;

/// The version of RDB that is written by default: that of Redis 7.0.
pub const VERSION: u16 = 10;
/// The version of RDB that is written if fields of a hash expire: that of Redis 7.4, the first version with such hashes.
pub const DATED: u16 = 12;
/// The newest version of RDB that is read: that of Redis 7.4 and 8.0.
pub const NEWEST: u16 = 12;

const AUX: u8 = 0xfa;
const SIZES: u8 = 0xfb;
const EXPIRES_MS: u8 = 0xfc;
const EXPIRES: u8 = 0xfd;
const DATABASE: u8 = 0xfe;
const END: u8 = 0xff;
const FREQUENCY: u8 = 0xf9;
const IDLE: u8 = 0xf8;
const FUNCTIONS: u8 = 0xf5;
const SLOT: u8 = 0xf4;

/// Why a file or payload was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The number of bytes before the error.
    pub offset: u64,
    /// What is wrong, and what to do.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.what)
    }
}

impl core::error::Error for Error {}

/// The contents of a file.
#[derive(Debug)]
pub struct Loaded {
    /// The databases.
    pub db: Db,
    /// The number of keys.
    pub keys: u64,
    /// The code of each library of functions.
    pub functions: Vec<Vec<u8>>,
}

/// Reads a file into databases with this hash function. O(bytes).
///
/// # Errors
/// If the file is not an RDB file of a version up to [`NEWEST`], is truncated or malformed, has a wrong checksum, or
/// contains values of modules.
pub fn read(from: &mut impl Read, hashing: Hashing) -> Result<Loaded, Error> {
    let mut input = Input::new(from);
    input.hashing = hashing;
    let magic: [u8; 9] = input.array()?;
    let version =
        magic.strip_prefix(b"REDIS").and_then(|digits| core::str::from_utf8(digits).ok()?.parse::<u16>().ok());
    let version = version.ok_or_else(|| input.wrong("this is no RDB file: is it the right one?"))?;
    if version == 0 || version > NEWEST {
        let text =
            format!("a file of RDB version {version}; versions 1 to {NEWEST} are read: save it with Redis 7.0 to 8.0");
        return Err(input.wrong(text));
    }
    let mut loaded = Loaded { db: Db::hashed(hashing), keys: 0, functions: Vec::new() };
    let (mut index, mut expires) = (0, None);
    loop {
        match input.byte()? {
            END => break,
            AUX => _ = (input.string()?, input.string()?),
            SIZES => _ = (input.length()?, input.length()?),
            SLOT => _ = (input.length()?, input.length()?, input.length()?),
            EXPIRES_MS => expires = Some(u64::from_le_bytes(input.array()?)),
            EXPIRES => expires = Some(u64::from(u32::from_le_bytes(input.array()?)) * 1000),
            FREQUENCY => _ = input.byte()?,
            IDLE => _ = input.length()?,
            FUNCTIONS => loaded.functions.push(input.string()?),
            DATABASE => {
                index = input.length()? as u32;
                if index >= DATABASES {
                    return Err(input.wrong(format!("database {index}: there are {DATABASES}")));
                }
            }
            kind => {
                let key = input.string()?;
                let found = values::read(&mut input, kind)?;
                // Old versions of Redis saved keys with empty containers. Redis skips such keys, too.
                if let Found::Value(value) = found {
                    let mut change = Change {
                        db: &mut loaded.db,
                        index,
                        now: 0,
                        random: Random(0),
                        wishes: 0,
                        rights: None,
                        deadline: None,
                    };
                    if change.find(&key).is_some() {
                        return Err(input.wrong("a key that is there twice: the file is damaged"));
                    }
                    change.set(&key, value);
                    change.expire_at(&key, expires);
                    loaded.keys += 1;
                }
                expires = None;
            }
        }
    }
    let (expected, offset) = (input.sum(), input.offset());
    if version >= 5 {
        let sum = u64::from_le_bytes(input.array()?);
        // A file that was written without a checksum has 0 here.
        if sum != 0 && sum != expected {
            let what = "the checksum is wrong: the file is damaged; take another copy".into();
            return Err(Error { offset, what });
        }
    }
    Ok(loaded)
}

/// Writes a file of version [`VERSION`], which Redis 7.0 and newer read. If fields of a hash expire, the version is
/// [`DATED`], which Redis 7.4 and newer read. O(bytes); values are not compressed.
///
/// # Errors
/// The errors of `to`.
pub fn write(db: &Db, to: &mut impl Write) -> io::Result<()> {
    let mut output = Output::new(to);
    let dated = db.spaces.iter().any(|space| space.dated > 0);
    let (version, redis) = if dated { (DATED, "7.4.0") } else { (VERSION, "7.0.15") };
    output.put(format!("REDIS{version:04}").as_bytes())?;
    for (name, value) in [("redis-ver", redis), ("redis-bits", "64")] {
        output.put(&[AUX])?;
        output.string(name.as_bytes())?;
        output.string(value.as_bytes())?;
    }
    libraries(&db.functions, &mut output)?;
    for (index, space) in db.spaces.iter().enumerate().filter(|(_, space)| !space.keys.is_empty()) {
        output.put(&[DATABASE])?;
        output.length(index as u64)?;
        output.put(&[SIZES])?;
        output.length(space.keys.len() as u64)?;
        output.length(space.volatile as u64)?;
        for entry in space.keys.iter() {
            if let Some(at) = entry.expires() {
                output.put(&[EXPIRES_MS])?;
                output.put(&at.to_le_bytes())?;
            }
            output.put(&[output::kind(&entry.value)])?;
            output.string(entry.key())?;
            output.value(&entry.value)?;
        }
    }
    output.put(&[END])?;
    let sum = output.sum();
    output.put(&sum.to_le_bytes())
}

fn libraries(functions: &Functions, output: &mut Output<'_, impl Write>) -> io::Result<()> {
    functions.iter().try_for_each(|library| {
        output.put(&[FUNCTIONS])?;
        output.string(&library.code)
    })
}

/// Returns a payload: the bytes that `content` writes, the version and a checksum.
fn payload(version: u16, content: impl FnOnce(&mut Output<'_, Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    content(&mut Output::new(&mut bytes)).expect("a vector takes all");
    sealed(bytes, version)
}

/// Returns the payload with these bytes: appends the version and the checksum.
pub fn sealed(mut bytes: Vec<u8>, version: u16) -> Vec<u8> {
    bytes.extend(version.to_le_bytes());
    let sum = input::CRC.checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Returns a value in the format of `DUMP`: its type and its bytes.
pub fn dump(value: &crate::db::value::Value) -> Vec<u8> {
    let version = if value.earliest().is_some() { DATED } else { VERSION };
    payload(version, |output| {
        output.put(&[output::kind(value)])?;
        output.value(value)
    })
}

/// Returns libraries in the format of `FUNCTION DUMP`.
pub fn dump_functions(functions: &Functions) -> Vec<u8> {
    payload(VERSION, |output| libraries(functions, output))
}

/// Why a payload was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The payload is of a newer version or damaged.
    Checksum,
    /// The payload's content is not a value.
    Format,
}

/// Returns the content of a payload, if its version and checksum are right.
fn opened(payload: &[u8]) -> Option<&[u8]> {
    let (content, sum) = payload.split_last_chunk::<8>()?;
    let (body, version) = content.split_last_chunk::<2>()?;
    // Unlike in a file, a checksum of 0 does not mean that there is none: `DUMP` always writes one.
    let is_whole = u64::from_le_bytes(*sum) == input::CRC.checksum(content);
    (u16::from_le_bytes(*version) <= NEWEST && is_whole).then_some(body)
}

/// Returns the texts of the libraries in an untrusted payload, one after the other, up to the first entry that is not a
/// library. Returns `None` if the version or the checksum is wrong.
pub fn restore_functions(payload: &[u8]) -> Option<impl Iterator<Item = Result<Vec<u8>, Fault>>> {
    let mut rest = opened(payload)?;
    Some(core::iter::from_fn(move || {
        let (kind, after) = rest.split_first()?;
        rest = after;
        if *kind != FUNCTIONS {
            return Some(Err(Fault::new("ERR given type is not a function")));
        }
        Some(Input::new(&mut rest).string().map_err(|_| Fault::new("ERR Failed loading library payload")))
    }))
}

/// Returns the value in an untrusted payload, for a database with this hash function.
///
/// # Errors
/// If the version or the checksum is wrong, or if the payload does not contain exactly one value.
pub fn restore(payload: &[u8], hashing: Hashing) -> Result<crate::db::value::Value, Refused> {
    let body = opened(payload).filter(|body| !body.is_empty()).ok_or(Refused::Checksum)?;
    let mut rest = &body[1..];
    let mut input = Input::new(&mut rest);
    input.hashing = hashing;
    match values::read(&mut input, body[0]) {
        Ok(Found::Value(value)) if rest.is_empty() => Ok(value),
        _ => Err(Refused::Format),
    }
}

/// The maximum length of a string in bytes: the limit of a request's arguments.
pub const LONGEST: u64 = LIMIT;

//! The library `cmsgpack`: packs values as MessagePack, and unpacks them.
//!
//! The encoding is implemented here. The existing crates (`rmp`) encode numbers but not Lua tables, and tables are most
//! of this file.

use mlua::{Error, Lua, MultiValue, Result, Table, Value};

use super::given::{Given, Said, add};

/// The deepest nesting of tables. Deeper tables are packed as nil, as in Redis. Tables that contain themselves can
/// therefore be packed.
const DEEPEST: usize = 16;

/// The deepest nesting that is unpacked. Each level is a recursive call.
const DEEPEST_UNPACKED: usize = 128;

/// The most bytes of a packed value. The limit is needed because tables may share tables.
const LARGEST: usize = 4 << 20;

const MISSING: &str = "Missing bytes in input.";
const BAD: &str = "Bad data format in input.";

/// Appends a length. `short` has the largest length that fits the first byte, and that byte without the length. `forms`
/// has the first bytes of lengths with one, two and four bytes, where they exist.
fn put_length(length: usize, short: (usize, u8), forms: [Option<u8>; 3], out: &mut Vec<u8>) {
    match (length, forms) {
        _ if length <= short.0 => out.push(short.1 | length as u8),
        (..=0xff, [Some(form), ..]) => out.extend([form, length as u8]),
        (..=0xffff, [_, Some(form), _]) => {
            out.push(form);
            out.extend((length as u16).to_be_bytes());
        }
        (_, [_, _, form]) => {
            out.push(form.expect("there is a form for all lengths"));
            out.extend((length as u32).to_be_bytes());
        }
    }
}

fn put_number(number: f64, out: &mut Vec<u8>) {
    let whole = number as i64;
    if number != whole as f64 || number == i64::MAX as f64 {
        let short = number as f32;
        if f64::from(short) == number {
            out.push(0xca);
            return out.extend(short.to_be_bytes());
        }
        out.push(0xcb);
        return out.extend(number.to_be_bytes());
    }
    let bytes = whole.to_be_bytes();
    let (form, kept) = match whole {
        -32..=127 => return out.push(whole as u8),
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -128..=-33 => (0xd0, 1),
        -32_768..=-129 => (0xd1, 2),
        -2_147_483_648..=-32_769 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(form);
    out.extend(&bytes[8 - kept..]);
}

/// Returns the array index that a key stands for, if it can be one.
fn place(key: &Value) -> Option<usize> {
    let number = match key {
        Value::Integer(number) => *number as f64,
        Value::Number(number) => *number,
        _ => return None,
    };
    (number > 0.0 && number <= f64::from(i32::MAX) && number.trunc() == number).then_some(number as usize)
}

/// Returns the number of entries of a table, and whether the table is an array.
fn measure(table: &Table) -> Result<Said<(usize, bool)>> {
    let (mut count, mut longest) = (0, Some(0));
    for pair in table.pairs::<Value, Value>() {
        let key = pair?.0;
        // Other keys are in the order of their addresses, which differs between replicas.
        if !matches!(key, Value::Number(_) | Value::Integer(_) | Value::String(_) | Value::Boolean(_)) {
            return Ok(Err(format!("the keys of this table have no order: one is a {}", key.type_name())));
        }
        count += 1;
        longest = longest.zip(place(&key)).map(|(longest, place)| place.max(longest));
    }
    Ok(Ok((count, longest == Some(count))))
}

fn put(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<Said<()>> {
    match value {
        Value::Boolean(is) => out.push(0xc2 | u8::from(*is)),
        Value::Integer(number) => put_number(*number as f64, out),
        Value::Number(number) => put_number(*number, out),
        Value::String(text) => {
            let text = text.as_bytes();
            put_length(text.len(), (31, 0xa0), [Some(0xd9), Some(0xda), Some(0xdb)], out);
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < DEEPEST => {
            let (count, is_array) = match measure(table)? {
                Ok(measured) => measured,
                Err(wrong) => return Ok(Err(wrong)),
            };
            let (short, forms) = if is_array { (0x90, [0xdc, 0xdd]) } else { (0x80, [0xde, 0xdf]) };
            put_length(count, (15, short), [None, Some(forms[0]), Some(forms[1])], out);
            return if is_array { put_array(table, count, depth, out) } else { put_map(table, depth, out) };
        }
        _ => out.push(0xc0),
    }
    Ok(if out.len() > LARGEST { Err("too large a value to pack".into()) } else { Ok(()) })
}

fn put_array(table: &Table, count: usize, depth: usize, out: &mut Vec<u8>) -> Result<Said<()>> {
    for at in 1..=count {
        if let Err(wrong) = put(&table.raw_get(at)?, depth + 1, out)? {
            return Ok(Err(wrong));
        }
    }
    Ok(Ok(()))
}

fn put_map(table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<Said<()>> {
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        for one in [key, value] {
            if let Err(wrong) = put(&one, depth + 1, out)? {
                return Ok(Err(wrong));
            }
        }
    }
    Ok(Ok(()))
}

/// The packed bytes that are not yet unpacked.
struct Packed<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    fn take(&mut self, count: usize) -> Said<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(MISSING)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Reads an unsigned integer of `bytes` bytes.
    fn number(&mut self, bytes: usize) -> Said<u64> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn value(&mut self, depth: usize) -> Result<Said<Value>> {
        Ok(match self.plain() {
            Ok(Plain::Value(value)) => Ok(value),
            Ok(Plain::Text(length)) => match self.take(length as usize) {
                Ok(text) => Ok(Value::String(self.lua.create_string(text)?)),
                Err(wrong) => Err(wrong),
            },
            Ok(_) if depth == DEEPEST_UNPACKED => Err(BAD.into()),
            Ok(Plain::Array(length)) => return self.array(length, depth + 1),
            Ok(Plain::Map(length)) => return self.map(length, depth + 1),
            Err(wrong) => Err(wrong),
        })
    }

    fn plain(&mut self) -> Said<Plain> {
        let first = self.take(1)?[0];
        let number = |number: f64| Plain::Value(Value::Number(number));
        Ok(match first {
            0..=0x7f => number(first.into()),
            0xe0..=0xff => number((first as i8).into()),
            0x80..=0x8f => Plain::Map((first & 15).into()),
            0x90..=0x9f => Plain::Array((first & 15).into()),
            0xa0..=0xbf => Plain::Text((first & 31).into()),
            0xc0 => Plain::Value(Value::Nil),
            0xc2 | 0xc3 => Plain::Value(Value::Boolean(first == 0xc3)),
            0xca => number(f32::from_bits(self.number(4)? as u32).into()),
            0xcb => number(f64::from_bits(self.number(8)?)),
            0xcc..=0xce => number(self.number(1 << (first - 0xcc))? as f64),
            // 0xcf is an unsigned integer of eight bytes. As in Redis, it is unpacked as a signed integer, like 0xd0 to
            // 0xd3.
            0xcf..=0xd3 => {
                let bits = if first == 0xcf { 64 } else { 8 << (first - 0xd0) };
                let shifted = self.number(bits / 8)? << (64 - bits);
                number((shifted as i64 >> (64 - bits)) as f64)
            }
            0xd9..=0xdb => Plain::Text(self.number(1 << (first - 0xd9))?),
            0xdc | 0xdd => Plain::Array(self.number(2 << (first - 0xdc))?),
            0xde | 0xdf => Plain::Map(self.number(2 << (first - 0xde))?),
            _ => return Err(BAD.into()),
        })
    }

    fn array(&mut self, length: u64, depth: usize) -> Result<Said<Value>> {
        let table = self.lua.create_table()?;
        for at in 1..=length {
            match self.value(depth)? {
                Ok(value) => table.raw_set(at, value)?,
                Err(wrong) => return Ok(Err(wrong)),
            }
        }
        Ok(Ok(Value::Table(table)))
    }

    fn map(&mut self, length: u64, depth: usize) -> Result<Said<Value>> {
        let table = self.lua.create_table()?;
        for _ in 0..length {
            let (key, value) = match (self.value(depth)?, depth) {
                (Ok(key), _) => match self.value(depth)? {
                    Ok(value) => (key, value),
                    Err(wrong) => return Ok(Err(wrong)),
                },
                (Err(wrong), _) => return Ok(Err(wrong)),
            };
            match key {
                Value::Nil => return Err(Error::runtime("table index is nil")),
                Value::Number(number) if number.is_nan() => return Err(Error::runtime("table index is NaN")),
                key => table.raw_set(key, value)?,
            }
        }
        Ok(Ok(Value::Table(table)))
    }
}

/// A complete value, or the number of bytes (`Text`) or elements that follow.
enum Plain {
    Value(Value),
    Text(u64),
    Array(u64),
    Map(u64),
}

/// Packs all arguments, one after the other: `pack(...)`.
fn pack(given: &Given<'_>) -> Result<Said<mlua::LuaString>> {
    if given.values().is_empty() {
        return Ok(Err(given.wrong(0, "MessagePack pack needs input.")));
    }
    let mut out = Vec::new();
    for value in given.values() {
        if let Err(wrong) = put(value, 0, &mut out)? {
            return Ok(Err(wrong));
        }
    }
    given.lua.create_string(out).map(Ok)
}

/// Unpacks at most `limit` values from `offset` on. If `limit` or `offset` is not 0, the first result is the offset
/// after the values, or -1 at the end.
fn unpack(given: &Given<'_>, limit: Said<i64>, offset: Said<i64>) -> Result<Said<MultiValue>> {
    let (text, limit, offset) = match (given.text(1), limit, offset) {
        (Ok(text), Ok(limit), Ok(offset)) => (text, limit, offset),
        (Err(wrong), ..) | (_, Err(wrong), _) | (.., Err(wrong)) => return Ok(Err(wrong)),
    };
    let bytes = text.as_bytes();
    if offset < 0 || limit < 0 {
        let length = bytes.len();
        return Ok(Err(format!("Invalid request to unpack with offset of {offset} and limit of {length}.")));
    }
    if offset as usize > bytes.len() {
        return Ok(Err(format!("Start offset {offset} greater than input length {}.", bytes.len())));
    }
    let is_whole = limit == 0 && offset == 0;
    let mut packed = Packed { lua: given.lua, bytes: &bytes[offset as usize..] };
    let mut values = MultiValue::new();
    while !packed.bytes.is_empty() && (is_whole || values.len() < limit as usize) {
        if values.len() == MOST {
            return Ok(Err("stack overflow (in function mp_unpack)".into()));
        }
        match packed.value(0)? {
            Ok(value) => values.push_back(value),
            Err(wrong) => return Ok(Err(wrong)),
        }
    }
    if !is_whole {
        let left = packed.bytes.len();
        let next = if left == 0 { -1.0 } else { (bytes.len() - left) as f64 };
        values.push_front(Value::Number(next));
    }
    Ok(Ok(values))
}

/// The most values that a function may return.
const MOST: usize = 7_900;

/// Returns the library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", pack)?;
    add(lua, &table, "unpack", |given| unpack(given, Ok(0), Ok(0)))?;
    add(lua, &table, "unpack_one", |given| unpack(given, Ok(1), given.whole(2, 0)))?;
    add(lua, &table, "unpack_limit", |given| {
        unpack(given, given.number(2).map(|limit| limit as i64), given.whole(3, 0))
    })?;
    Ok(table)
}

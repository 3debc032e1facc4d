//! The library `struct`: packs values as the bytes of C structures, and unpacks them, according to a format.

use mlua::{Lua, LuaString as Text, MultiValue, Result, Table, Value};

use super::given::{Given, Said, add};

/// The most bytes of an integer. Bytes beyond the eighth do not contribute to its value.
const LONGEST: usize = 32;

/// The alignment of a `!` without a number.
const ALIGNED: usize = 8;

/// The most bytes of a packed value.
const LARGEST: usize = 4 << 20;

/// 2^64: the least integer that needs more than 64 bits.
const BEYOND: f64 = 18_446_744_073_709_551_616.0;

/// The most values that a function may return.
const MOST: usize = 7_900;

const UNFINISHED: &str = "unfinished string in data";

/// The state of reading a format.
struct Format<'a> {
    given: &'a Given<'a>,
    left: &'a [u8],
    is_big: bool,
    align: usize,
}

/// An item of a format.
struct Item {
    kind: u8,
    /// The size in bytes. 0 for an item without a fixed size.
    size: usize,
    /// The number of padding bytes before the item.
    gap: usize,
}

impl<'a> Format<'a> {
    fn new(given: &'a Given<'a>, format: &'a [u8]) -> Self {
        // As in C, the format ends at the first zero byte.
        let left = format.split(|byte| *byte == 0).next().unwrap_or_default();
        Self { given, left, is_big: cfg!(target_endian = "big"), align: 1 }
    }

    /// Reads a number in the format. Returns `usual` if there is no number.
    fn number(&mut self, usual: usize) -> Said<usize> {
        let digits = self.left.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.left.split_at(digits);
        self.left = rest;
        let add = |sum: i32, digit: &u8| sum.checked_mul(10)?.checked_add((digit - b'0').into());
        match digits {
            [] => Ok(usual),
            digits => digits.iter().try_fold(0, add).map(|sum| sum as usize).ok_or("integral size overflow".into()),
        }
    }

    fn size(&mut self, kind: u8) -> Said<usize> {
        Ok(match kind {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.number(1)?,
            b'i' | b'I' => match self.number(4)? {
                size if size > LONGEST => {
                    return Err(format!("integral size {size} is larger than limit of {LONGEST}"));
                }
                size => size,
            },
            _ => 0,
        })
    }

    /// Reads the next item. `at` is the offset of the data before the item's padding.
    fn next(&mut self, at: usize) -> Said<Option<Item>> {
        let Some((&kind, rest)) = self.left.split_first() else { return Ok(None) };
        self.left = rest;
        let size = self.size(kind)?;
        let within = size.min(self.align).wrapping_sub(1);
        let gap = if size == 0 || kind == b'c' { 0 } else { (within + 1).wrapping_sub(at & within) & within };
        Ok(Some(Item { kind, size, gap }))
    }

    /// Reads a character that is not an item.
    fn control(&mut self, kind: u8) -> Said<()> {
        match kind {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let align = self.number(ALIGNED)?;
                if !align.is_power_of_two() {
                    return Err(format!("alignment {align} is not a power of 2"));
                }
                self.align = align;
            }
            other => {
                // A byte that is not ASCII appears in the message as the character with this code.
                let what = format!("invalid format option '{}'", char::from(other));
                return Err(self.given.wrong(1, &what));
            }
        }
        Ok(())
    }
}

/// Appends an integer as `size` bytes. Bytes beyond the eighth are 0.
fn put_whole(number: f64, size: usize, is_big: bool, out: &mut Vec<u8>) {
    let bits = match number {
        ..0.0 => number as i64 as u64,
        BEYOND.. => 0,
        _ => number as u64,
    };
    let byte = |at: usize| if at < 8 { (bits >> (8 * at)) as u8 } else { 0 };
    if is_big { out.extend((0..size).rev().map(byte)) } else { out.extend((0..size).map(byte)) }
}

fn whole(bytes: &[u8], is_big: bool, is_signed: bool) -> f64 {
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    let number = if is_big { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) };
    if !is_signed {
        return number as f64;
    }
    // The shift count wraps around at 64, as the processor's does. For more than eight bytes the sign bit is therefore
    // taken from the same position as in Redis.
    let mask = u64::MAX.wrapping_shl((bytes.len() as u32 * 8).wrapping_sub(1));
    let number = if number & mask == 0 { number } else { number | mask };
    number as i64 as f64
}

fn turned<const SIZE: usize>(mut bytes: [u8; SIZE], is_big: bool) -> [u8; SIZE] {
    if is_big {
        bytes.reverse();
    }
    bytes
}

/// Packs values: `pack(format, ...)`.
fn pack(given: &Given<'_>) -> Said<Vec<u8>> {
    let text = given.text(1)?;
    let text = text.as_bytes();
    // As in Redis, the arguments are followed by nil. A missing argument is then reported as nil.
    let given = given.followed_by_nil();
    let mut format = Format::new(&given, &text);
    let (mut out, mut at) = (Vec::new(), 2);
    while let Some(Item { kind, size, gap }) = format.next(out.len())? {
        out.resize(out.len() + gap, 0);
        let number = |at: usize| given.number(at);
        match kind {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                put_whole(number(at)?, size, format.is_big, &mut out);
            }
            b'x' => out.push(0),
            b'f' => out.extend(turned((number(at)? as f32).to_le_bytes(), format.is_big)),
            b'd' => out.extend(turned(number(at)?.to_le_bytes(), format.is_big)),
            b'c' | b's' => {
                let text = given.text(at)?;
                let text = text.as_bytes();
                let size = if size == 0 { text.len() } else { size };
                let kept = text.get(..size).ok_or_else(|| given.wrong(at + 1, "string too short"))?;
                out.extend_from_slice(kept);
                out.extend((kind == b's').then_some(0));
            }
            other => {
                format.control(other)?;
                continue;
            }
        }
        at += usize::from(kind != b'x');
        if out.len() > LARGEST {
            return Err("too large a value to pack".into());
        }
    }
    Ok(out)
}

/// Unpacks values: `unpack(format, data, from)`. Returns the values, and the position after them.
fn unpack(given: &Given<'_>) -> Result<Said<MultiValue>> {
    let mut values = MultiValue::new();
    Ok(match unpacked(given, &mut values)? {
        Ok(next) => {
            values.push_back(Value::Number(next as f64));
            Ok(values)
        }
        Err(wrong) => Err(wrong),
    })
}

fn unpacked(given: &Given<'_>, values: &mut MultiValue) -> Result<Said<i64>> {
    let start = || -> Said<(Text, Text, usize)> {
        let (text, data, from) = (given.text(1)?, given.text(2)?, given.whole(3, 1)?);
        if from == 0 {
            return Err(given.wrong(3, "offset must be 1 or greater"));
        }
        // As in C, a negative number becomes a large unsigned number.
        Ok((text, data, (from as usize).wrapping_sub(1)))
    };
    let (text, data, mut at) = match start() {
        Ok(start) => start,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let mut format = Format::new(given, &text);
    loop {
        let Item { kind, mut size, gap } = match format.next(at) {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(Ok(at.wrapping_add(1) as i64)),
            Err(wrong) => return Ok(Err(wrong)),
        };
        at = at.wrapping_add(gap);
        let short = || Ok(Err(given.wrong(2, "data string too short")));
        let Some(bytes) = data.get(at..).and_then(|left| left.get(..size)) else { return short() };
        if values.len() == MOST {
            return Ok(Err("stack overflow (too many results)".into()));
        }
        let value = match kind {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                Value::Number(whole(bytes, format.is_big, kind.is_ascii_lowercase()))
            }
            b'f' => {
                let bytes = bytes.try_into().expect("it has four");
                Value::Number(f32::from_le_bytes(turned(bytes, format.is_big)).into())
            }
            b'd' => {
                let bytes = bytes.try_into().expect("it has eight");
                Value::Number(f64::from_le_bytes(turned(bytes, format.is_big)))
            }
            b'c' => {
                if size == 0 {
                    let said = values.pop_back().and_then(|value| given.lua.coerce_number(value).ok().flatten());
                    let Some(said) = said else { return Ok(Err("format 'c0' needs a previous size".into())) };
                    size = if said < 0.0 { usize::MAX } else { said as usize };
                }
                let Some(bytes) = data[at..].get(..size) else { return short() };
                Value::String(given.lua.create_string(bytes)?)
            }
            b's' => {
                let Some(end) = memchr::memchr(0, &data[at..]) else { return Ok(Err(UNFINISHED.into())) };
                size = end + 1;
                Value::String(given.lua.create_string(&data[at..at + end])?)
            }
            b'x' => Value::Nil,
            other => match format.control(other) {
                Ok(()) => continue,
                Err(wrong) => return Ok(Err(wrong)),
            },
        };
        if kind != b'x' {
            values.push_back(value);
        }
        at += size;
    }
}

/// Returns the number of bytes that a format packs: `size(format)`.
fn size(given: &Given<'_>) -> Said<f64> {
    let text = given.text(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(given, &text);
    let mut at = 0;
    while let Some(Item { kind, size, gap }) = format.next(at)? {
        match kind {
            b's' => return Err(given.wrong(1, "option 's' has no fixed size")),
            b'c' if size == 0 => return Err(given.wrong(1, "option 'c0' has no fixed size")),
            kind if !kind.is_ascii_alphanumeric() => format.control(kind)?,
            _ => {}
        }
        at += gap + size;
    }
    Ok(at as f64)
}

/// Returns the library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", |given| match pack(given) {
        Ok(bytes) => given.lua.create_string(bytes).map(Ok),
        Err(wrong) => Ok(Err(wrong)),
    })?;
    add(lua, &table, "unpack", unpack)?;
    add(lua, &table, "size", |given| Ok(size(given)))?;
    Ok(table)
}

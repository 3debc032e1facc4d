//! Commands for the bits of strings.

use std::borrow::Cow;

use crate::args::Args;
use crate::command::{Command, Keys, ONE_KEY, category, flag};
use crate::db::value::Value;
use crate::db::{Change, View};
use crate::family::parse;
use crate::family::strings::{LONGEST, raw};
use crate::reply::{Answer, Fault, Reply, fault};
use category::BITMAP;
use flag::{DENYOOM, FAST};

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("setbit", 4, DENYOOM, ONE_KEY, BITMAP, setbit),
    Command::read("getbit", 3, FAST, ONE_KEY, BITMAP, getbit),
    Command::read("bitcount", -2, 0, ONE_KEY, BITMAP, bitcount),
    Command::read("bitpos", -3, 0, ONE_KEY, BITMAP, bitpos),
    Command::write("bitop", -4, DENYOOM, Keys::Range(2, -1, 1), BITMAP, bitop),
    Command::write("bitfield", -2, DENYOOM, ONE_KEY, BITMAP, bitfield),
    Command::read("bitfield_ro", -2, FAST, ONE_KEY, BITMAP, bitfield_ro),
];

const BAD_OFFSET: Fault = Fault::new("ERR bit offset is not an integer or out of range");

/// Parses the position of a bit. If `width` is given and the text begins with "#", the number counts fields of `width`
/// bits.
fn offset(text: &[u8], width: Option<u32>) -> Result<u64, Fault> {
    let (digits, factor) = match (text.strip_prefix(b"#"), width) {
        (Some(digits), Some(width)) => (digits, u64::from(width)),
        _ => (text, 1),
    };
    let number = u64::try_from(parse::integer_or(digits, BAD_OFFSET)?).map_err(|_| BAD_OFFSET)?;
    number.checked_mul(factor).filter(|bit| bit >> 3 < LONGEST as u64).ok_or(BAD_OFFSET)
}

fn bit_at(bytes: &[u8], bit: u64) -> bool {
    bytes.get((bit >> 3) as usize).is_some_and(|byte| byte >> (7 - (bit & 7)) & 1 == 1)
}

fn put_bit(bytes: &mut [u8], bit: u64, on: bool) {
    let mask = 1 << (7 - (bit & 7));
    let byte = &mut bytes[(bit >> 3) as usize];
    *byte = if on { *byte | mask } else { *byte & !mask };
}

/// Returns the bytes of a key's string, which is first extended with zeros until it contains the bit, and whether it was
/// extended.
fn with_room<'c>(change: &'c mut Change<'_>, key: &[u8], bit: u64) -> Result<(&'c mut Vec<u8>, bool), Fault> {
    let bytes = raw(change, key)?;
    let end = (bit >> 3) as usize + 1;
    let grows = bytes.len() < end;
    if grows {
        bytes.resize(end, 0);
    }
    Ok((bytes, grows))
}

fn setbit(change: &mut Change<'_>, args: &Args) -> Answer {
    let bit = offset(&args[2], None)?;
    let bad = Fault::new("ERR bit is not an integer or out of range");
    let on = parse::integer_or(&args[3], bad.clone())?;
    if on & !1 != 0 {
        return Err(bad);
    }
    let (bytes, grows) = with_room(change, &args[1], bit)?;
    let before = bit_at(bytes, bit);
    put_bit(bytes, bit, on == 1);
    // As in Redis, a bit that is set to its own value is no change: there is no event, and no `EXEC` fails.
    if grows || before != (on == 1) {
        change.changed(&args[1], b'$', "setbit");
    }
    Ok(Reply::Int(before.into()))
}

fn getbit(view: &View<'_>, args: &Args) -> Answer {
    let bit = offset(&args[2], None)?;
    Ok(Reply::Int(view.string(&args[1])?.is_some_and(|bytes| bit_at(&bytes, bit)).into()))
}

/// Parses start, end and unit of a range from `at` on. Returns the first and the last bit. Returns `None` if the range
/// is empty.
fn range(args: &Args, at: usize, length: usize) -> Result<Option<(u64, u64)>, Fault> {
    let start = parse::integer(&args[at])?;
    let end = args.get(at + 1).map_or(Ok(-1), parse::integer)?;
    let bits = match args.get(at + 2) {
        None => false,
        Some(_) if args.is(at + 2, "BIT") => true,
        Some(_) if args.is(at + 2, "BYTE") => false,
        Some(_) => return Err(fault::SYNTAX),
    };
    let length = length as i64 * if bits { 8 } else { 1 };
    if args.is(0, "BITCOUNT") && start < 0 && end < 0 && start > end {
        return Ok(None);
    }
    let from_end = |place: i64| if place < 0 { (place + length).max(0) } else { place };
    let (start, end) = (from_end(start), from_end(end).min(length - 1));
    if start > end {
        return Ok(None);
    }
    Ok(Some(if bits { (start as u64, end as u64) } else { (start as u64 * 8, end as u64 * 8 + 7) }))
}

fn bitcount(view: &View<'_>, args: &Args) -> Answer {
    let Some(bytes) = view.string(&args[1])? else { return Ok(Reply::Int(0)) };
    let (first, last) = match args.len() {
        2 if bytes.is_empty() => return Ok(Reply::Int(0)),
        2 => (0, bytes.len() as u64 * 8 - 1),
        4 | 5 => match range(args, 2, bytes.len())? {
            Some(range) => range,
            None => return Ok(Reply::Int(0)),
        },
        _ => return Err(fault::SYNTAX),
    };
    let (low, high) = ((first >> 3) as usize, (last >> 3) as usize);
    let mut count: u64 = bytes[low..=high].iter().map(|byte| u64::from(byte.count_ones())).sum();
    count -= (low as u64 * 8..first).filter(|bit| bit_at(&bytes, *bit)).count() as u64;
    count -= (last + 1..high as u64 * 8 + 8).filter(|bit| bit_at(&bytes, *bit)).count() as u64;
    Ok(Reply::Int(count as i64))
}

fn bitpos(view: &View<'_>, args: &Args) -> Answer {
    let wanted = match parse::integer(&args[2])? {
        0 => false,
        1 => true,
        _ => return Err(Fault::new("ERR The bit argument must be 1 or 0.")),
    };
    let Some(bytes) = view.string(&args[1])? else { return Ok(Reply::Int(if wanted { -1 } else { 0 })) };
    if args.len() > 6 {
        return Err(fault::SYNTAX);
    }
    let whole = bytes.len() as i64 * 8;
    let (first, last) = match args.len() {
        3 if bytes.is_empty() => (1, 0),
        3 => (0, whole as u64 - 1),
        _ => range(args, 3, bytes.len())?.unwrap_or((1, 0)),
    };
    if first > last {
        return Ok(Reply::Int(-1));
    }
    let skip = if wanted { 0 } else { 0xff };
    let mut bit = first;
    while bit <= last {
        if bit & 7 == 0 && bytes[(bit >> 3) as usize] == skip {
            bit += 8;
            continue;
        }
        if bit_at(&bytes, bit) == wanted {
            return Ok(Reply::Int(bit as i64));
        }
        bit += 1;
    }
    // All bits after the end of the string count as zeros, unless the command gives the end of a range.
    Ok(Reply::Int(if !wanted && args.len() < 5 { whole } else { -1 }))
}

fn bitop(change: &mut Change<'_>, args: &Args) -> Answer {
    let operation = ["AND", "OR", "XOR", "NOT"].iter().position(|word| args.is(1, word)).ok_or(fault::SYNTAX)?;
    if operation == 3 && args.len() != 4 {
        return Err(Fault::new("ERR BITOP NOT must be called with a single source key."));
    }
    let view = change.view();
    let sources = args.from(3).map(|key| Ok(view.string(key)?.unwrap_or_default()));
    let sources = sources.collect::<Result<Vec<Cow<'_, [u8]>>, Fault>>()?;
    let length = sources.iter().map(|source| source.len()).max().unwrap_or(0);
    let mut result = sources[0].to_vec();
    result.resize(length, 0);
    if operation == 3 {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for source in &sources[1..] {
        for (at, byte) in result.iter_mut().enumerate() {
            let other = source.get(at).copied().unwrap_or(0);
            match operation {
                0 => *byte &= other,
                1 => *byte |= other,
                _ => *byte ^= other,
            }
        }
    }
    let key = &args[2];
    if length > 0 {
        change.set(key, Value::Raw(Box::new(result)));
        change.changed(key, b'$', "set");
    } else {
        change.bury(key);
        if change.remove(key).is_some() {
            change.changed(key, b'g', "del");
        }
    }
    Ok(Reply::count(length))
}

/// What an operation on a field does if its result is out of the field's range.
#[derive(Clone, Copy, PartialEq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Clone, Copy)]
enum Act {
    Get,
    Set(i64),
    Add(i64),
}

struct Step {
    signed: bool,
    width: u32,
    offset: u64,
    overflow: Overflow,
    act: Act,
}

fn steps(args: &Args) -> Result<Vec<Step>, Fault> {
    let (mut steps, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while at < args.len() {
        let left = args.len() - at - 1;
        if args.is(at, "OVERFLOW") && left >= 1 {
            overflow = match () {
                () if args.is(at + 1, "WRAP") => Overflow::Wrap,
                () if args.is(at + 1, "SAT") => Overflow::Saturate,
                () if args.is(at + 1, "FAIL") => Overflow::Fail,
                () => return Err(Fault::new("ERR Invalid OVERFLOW type specified")),
            };
            at += 2;
            continue;
        }
        let (get, set) = (args.is(at, "GET") && left >= 2, args.is(at, "SET") && left >= 3);
        if !(get || set || (args.is(at, "INCRBY") && left >= 3)) {
            return Err(fault::SYNTAX);
        }
        let (signed, width) = field_type(&args[at + 1])?;
        let offset = offset(&args[at + 2], Some(width))?;
        if get {
            steps.push(Step { signed, width, offset, overflow, act: Act::Get });
            at += 3;
            continue;
        }
        let number = parse::integer(&args[at + 3])?;
        steps.push(Step {
            signed,
            width,
            offset,
            overflow,
            act: if set { Act::Set(number) } else { Act::Add(number) },
        });
        at += 4;
    }
    Ok(steps)
}

fn field_type(text: &[u8]) -> Result<(bool, u32), Fault> {
    let bad =
        Fault::new("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.");
    let signed = match text.first() {
        Some(b'i') => true,
        Some(b'u') => false,
        _ => return Err(bad),
    };
    let width = parse::integer_or(&text[1..], bad.clone())?;
    if (1..=if signed { 64 } else { 63 }).contains(&width) { Ok((signed, width as u32)) } else { Err(bad) }
}

impl Step {
    fn read(&self, bytes: &[u8]) -> i64 {
        let bits = (self.offset..self.offset + u64::from(self.width))
            .fold(0_u64, |bits, bit| bits << 1 | u64::from(bit_at(bytes, bit)));
        if self.signed { (bits << (64 - self.width)) as i64 >> (64 - self.width) } else { bits as i64 }
    }

    /// Returns the number that `SET` stores. Returns `None` if the field is to stay unchanged.
    fn set(&self, number: i64) -> Option<i64> {
        if !self.signed {
            // The 64 bits of the argument are taken as an unsigned number.
            return self.fit((number as u64).into());
        }
        // Redis computes the distance to the greatest number in 64 bits with a sign. If the distance needs more bits,
        // Redis takes a number below the field's range for a number above it.
        let (number, (low, high)) = (i128::from(number), self.limits());
        if self.overflow == Overflow::Saturate && number < low && high - number > i64::MAX.into() {
            return Some(high as i64);
        }
        self.fit(number)
    }

    fn write(&self, bytes: &mut [u8], number: i64) {
        for place in 0..self.width {
            put_bit(bytes, self.offset + u64::from(place), number >> (self.width - 1 - place) & 1 == 1);
        }
    }

    /// Returns the least and the greatest number of the field.
    fn limits(&self) -> (i128, i128) {
        if self.signed { (-(1 << (self.width - 1)), (1 << (self.width - 1)) - 1) } else { (0, (1 << self.width) - 1) }
    }

    /// Returns the result adjusted to the field's range. Returns `None` if the field is to stay unchanged.
    fn fit(&self, number: i128) -> Option<i64> {
        let (low, high) = self.limits();
        if (low..=high).contains(&number) {
            return Some(number as i64);
        }
        match self.overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(number.clamp(low, high) as i64),
            Overflow::Wrap => {
                let span = 1_i128 << self.width;
                let wrapped = number.rem_euclid(span);
                Some(if wrapped > high { wrapped - span } else { wrapped } as i64)
            }
        }
    }
}

fn bitfield(change: &mut Change<'_>, args: &Args) -> Answer {
    let steps = steps(args)?;
    let end = steps
        .iter()
        .filter(|step| !matches!(step.act, Act::Get))
        .map(|step| step.offset + u64::from(step.width) - 1)
        .max();
    let Some(end) = end else {
        let bytes = change.value(&args[1]).map(|value| value.bytes().ok_or(fault::WRONG_TYPE)).transpose()?;
        return Ok(gets(&steps, &bytes.unwrap_or_default()));
    };
    let (bytes, grows) = with_room(change, &args[1], end)?;
    let (mut answers, mut changes) = (Vec::new(), false);
    for step in &steps {
        let now = step.read(bytes);
        let (number, answer) = match step.act {
            Act::Get => {
                answers.push(Reply::Int(now));
                continue;
            }
            Act::Set(number) => (step.set(number), now),
            Act::Add(more) => {
                let sum = step.fit(i128::from(now) + i128::from(more));
                (sum, sum.unwrap_or(0))
            }
        };
        match number {
            Some(number) => {
                step.write(bytes, number);
                changes |= grows || now != number;
                answers.push(Reply::Int(answer));
            }
            None => answers.push(Reply::Null),
        }
    }
    if changes {
        change.changed(&args[1], b'$', "setbit");
    }
    Ok(Reply::Array(answers))
}

/// Returns the answer to steps that only read.
fn gets(steps: &[Step], bytes: &[u8]) -> Reply {
    Reply::Array(steps.iter().map(|step| Reply::Int(step.read(bytes))).collect())
}

fn bitfield_ro(view: &View<'_>, args: &Args) -> Answer {
    let steps = steps(args)?;
    if steps.iter().any(|step| !matches!(step.act, Act::Get)) {
        return Err(Fault::new("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    Ok(gets(&steps, &view.string(&args[1])?.unwrap_or_default()))
}

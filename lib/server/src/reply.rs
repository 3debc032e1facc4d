//! Answers to requests, and their bytes in both protocols.

mod bulks;

use std::borrow::Cow;

pub use bulks::Bulks;

/// The protocol of a connection. `HELLO` changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The older protocol. Each connection begins with it.
    #[default]
    Resp2,
    /// The newer protocol, which adds maps, sets, doubles, nulls and pushes.
    Resp3,
}

/// The answer to a command, independent of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// No value.
    Null,
    /// No array. In RESP3 the same as `Null`.
    NullArray,
    /// A short word, for example "OK".
    Status(&'static str),
    /// A status line that a script produced.
    Line(Vec<u8>),
    /// A number.
    Int(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// A floating-point number.
    Double(f64),
    /// The digits of a floating-point number: a double in RESP3, a bulk string in RESP2.
    Digits(String),
    /// A boolean that a script produced: a boolean in RESP3, 1 or 0 in RESP2.
    Bool(bool),
    /// The digits of a large integer that a script produced: a big number in RESP3, a bulk string in RESP2.
    Large(Vec<u8>),
    /// The three letters of a format, and a text, which a script produced: a verbatim string in RESP3, a bulk string in
    /// RESP2.
    Verbatim([u8; 3], Vec<u8>),
    /// Answers in order.
    Array(Vec<Reply>),
    /// Keys and values, alternating: a map in RESP3, an array in RESP2.
    Map(Vec<Reply>),
    /// Keys and values, alternating: a map in RESP3, an array of two-element arrays in RESP2.
    Pairs(Vec<Reply>),
    /// Members and scores, or names and values, alternating: an array of two-element arrays in RESP3, a flat array in RESP2.
    Twos(Vec<Reply>),
    /// A set in RESP3, an array in RESP2.
    Set(Vec<Reply>),
    /// An [`Array`](Self::Array), [`Map`](Self::Map) or [`Set`](Self::Set) of byte strings, in one allocation. Used where
    /// the strings may be many: for ranges, and for all elements of a key's value.
    Bulks(Many, Bulks),
    /// A message that is not the answer to a request: a push in RESP3, an array in RESP2.
    Push(Vec<Reply>),
    /// Text for people (`INFO`): a verbatim string in RESP3, a bulk string in RESP2.
    Text(String),
    /// An error: its line without the leading sign `-`.
    Error(Fault),
}

/// The form of an answer of many parts in RESP3. In RESP2 all forms are arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Many {
    /// Parts in order.
    Array,
    /// Keys and values, alternating.
    Map,
    /// Parts without order.
    Set,
}

/// An error's line: a code in capital letters, then a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub Cow<'static, str>);

/// The result of a command's function.
pub type Answer = Result<Reply, Fault>;

impl Fault {
    /// Returns an error whose text is known at compile time.
    pub const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// Returns an error whose text is made at run time.
    pub fn made(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

/// Errors that several families of commands use.
pub mod fault {
    use super::Fault;

    /// The key holds a value of another type.
    pub const WRONG_TYPE: Fault = Fault::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// The arguments are not valid.
    pub const SYNTAX: Fault = Fault::new("ERR syntax error");
    /// An argument or value should be an integer.
    pub const NOT_AN_INTEGER: Fault = Fault::new("ERR value is not an integer or out of range");
    /// An argument or value should be a number.
    pub const NOT_A_FLOAT: Fault = Fault::new("ERR value is not a valid float");
    /// An argument is out of range.
    pub const OUT_OF_RANGE: Fault = Fault::new("ERR value is out of range");
    /// An argument is not positive.
    pub const NOT_POSITIVE: Fault = Fault::new("ERR value is out of range, must be positive");
    /// The key does not exist.
    pub const NO_SUCH_KEY: Fault = Fault::new("ERR no such key");
    /// The command needs memory, and the limit of memory is reached.
    pub const NO_ROOM: Fault = Fault::new("OOM command not allowed when used memory > 'maxmemory'.");
    /// An argument should be a 32-bit integer.
    pub const NOT_SHORT: Fault = Fault::new("ERR value is out of range, value must between -2147483648 and 2147483647");
    /// There is no database with this number.
    pub const DB_INDEX: Fault = Fault::new("ERR DB index is out of range");
    /// A position is out of range.
    pub const INDEX: Fault = Fault::new("ERR index out of range");
    /// The result of an addition would not be a finite number.
    pub const NAN_OR_INFINITY: Fault = Fault::new("ERR increment would produce NaN or Infinity");
    /// A string would be longer than allowed.
    pub const TOO_LONG: Fault = Fault::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
}

impl Reply {
    /// The status "OK".
    pub const OK: Self = Self::Status("OK");

    /// Returns a byte string.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// Returns a count.
    pub fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Returns a byte string, or null.
    pub fn optional(bytes: Option<impl AsRef<[u8]>>) -> Self {
        bytes.map_or(Self::Null, Self::bulk)
    }

    /// Returns an array of byte strings.
    pub fn bulks<T: AsRef<[u8]>>(all: impl IntoIterator<Item = T>) -> Self {
        Self::Bulks(Many::Array, all.into_iter().collect())
    }

    /// Returns the approximate size of the answer in memory, in bytes.
    pub fn weight(&self) -> usize {
        let beside = match self {
            Self::Bulk(bytes) | Self::Line(bytes) | Self::Large(bytes) | Self::Verbatim(_, bytes) => bytes.len(),
            Self::Text(text) | Self::Digits(text) => text.len(),
            Self::Bulks(_, all) => all.encoded().len(),
            Self::Array(all)
            | Self::Map(all)
            | Self::Pairs(all)
            | Self::Twos(all)
            | Self::Set(all)
            | Self::Push(all) => all.iter().map(Self::weight).sum(),
            _ => 0,
        };
        size_of::<Self>() + beside
    }

    /// Returns the same answer with one [`Reply`] for each string of [`Bulks`](Self::Bulks), in nested arrays as well.
    #[must_use]
    pub fn apart(self) -> Self {
        match self {
            Self::Array(all) => Self::Array(all.into_iter().map(Self::apart).collect()),
            Self::Bulks(Many::Array, all) => Self::Array(all.apart()),
            Self::Bulks(Many::Map, all) => Self::Map(all.apart()),
            Self::Bulks(Many::Set, all) => Self::Set(all.apart()),
            other => other,
        }
    }

    /// Returns whether the answer is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }

    /// Appends the answer's bytes in a protocol.
    pub fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let three = protocol == Protocol::Resp3;
        match self {
            Self::Null if three => out.extend_from_slice(b"_\r\n"),
            Self::NullArray if three => out.extend_from_slice(b"_\r\n"),
            Self::Null => out.extend_from_slice(b"$-1\r\n"),
            Self::NullArray => out.extend_from_slice(b"*-1\r\n"),
            Self::Status(word) => line(b'+', word.as_bytes(), out),
            Self::Line(word) => line(b'+', word, out),
            Self::Int(number) => header(b':', *number, out),
            Self::Bulk(bytes) => bulk(bytes, out),
            Self::Double(number) if three => line(b',', double(*number).as_bytes(), out),
            Self::Double(number) => bulk(double(*number).as_bytes(), out),
            Self::Array(all) => many(b'*', all.len(), all, protocol, out),
            Self::Map(all) if three => many(b'%', all.len() / 2, all, protocol, out),
            Self::Pairs(all) if three => many(b'%', all.len() / 2, all, protocol, out),
            Self::Digits(digits) if three => line(b',', digits.as_bytes(), out),
            Self::Digits(digits) => bulk(digits.as_bytes(), out),
            Self::Twos(all) if !three => many(b'*', all.len(), all, protocol, out),
            Self::Pairs(all) | Self::Twos(all) => {
                header(b'*', all.len() as i64 / 2, out);
                all.chunks(2).for_each(|pair| many(b'*', pair.len(), pair, protocol, out));
            }
            Self::Set(all) if three => many(b'~', all.len(), all, protocol, out),
            Self::Push(all) if three => many(b'>', all.len(), all, protocol, out),
            Self::Map(all) | Self::Set(all) | Self::Push(all) => many(b'*', all.len(), all, protocol, out),
            Self::Bulks(kind, all) => {
                match kind {
                    Many::Map if three => header(b'%', all.len() as i64 / 2, out),
                    Many::Set if three => header(b'~', all.len() as i64, out),
                    _ => header(b'*', all.len() as i64, out),
                }
                out.extend_from_slice(all.encoded());
            }
            Self::Text(text) if three => verbatim(b"txt", text.as_bytes(), out),
            Self::Verbatim(format, text) if three => verbatim(format, text, out),
            Self::Verbatim(_, text) => bulk(text, out),
            Self::Bool(is) if three => out.extend_from_slice(if *is { b"#t\r\n" } else { b"#f\r\n" }),
            Self::Bool(is) => header(b':', (*is).into(), out),
            Self::Large(digits) if three => line(b'(', digits, out),
            Self::Large(digits) => bulk(digits, out),
            Self::Text(text) => bulk(text.as_bytes(), out),
            Self::Error(fault) => line(b'-', without_breaks(fault.0.as_bytes()), out),
        }
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        answer.unwrap_or_else(Self::Error)
    }
}

fn line_end(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Returns the bytes without the line breaks at their end. Redis removes these from errors.
pub fn without_breaks(bytes: &[u8]) -> &[u8] {
    let breaks = bytes.iter().rev().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    &bytes[..bytes.len() - breaks]
}

/// Appends a line. A line break within `bytes` would end the line early, so each of its bytes becomes a blank.
fn line(sign: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(sign);
    out.extend(bytes.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

fn header(sign: u8, number: i64, out: &mut Vec<u8>) {
    out.push(sign);
    integer(number, out);
    out.extend_from_slice(b"\r\n");
}

fn verbatim(format: &[u8; 3], text: &[u8], out: &mut Vec<u8>) {
    header(b'=', text.len() as i64 + 4, out);
    out.extend_from_slice(format);
    out.push(b':');
    line_end(text, out);
}

fn bulk(bytes: &[u8], out: &mut Vec<u8>) {
    header(b'$', bytes.len() as i64, out);
    line_end(bytes, out);
}

fn many(sign: u8, count: usize, all: &[Reply], protocol: Protocol, out: &mut Vec<u8>) {
    header(sign, count as i64, out);
    all.iter().for_each(|one| one.encode(protocol, out));
}

/// Returns a text as a log shows it: at most `most` of its bytes, with a note of how much is missing.
pub fn cut(text: &[u8], most: usize) -> Vec<u8> {
    let mut shown = text[..text.len().min(most)].to_vec();
    if text.len() > most {
        shown.extend_from_slice(format!("... ({} more bytes)", text.len() - most).as_bytes());
    }
    shown
}

/// Appends a number's decimal digits.
pub fn integer(number: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Formats a double like C's `%.17g`, which is the format of Redis 7.0's answers.
pub fn double(number: f64) -> String {
    general(number, 17)
}

/// Formats a double like C's `%g` with this many significant digits, from 1 to 17.
pub fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    // An integer of at most `digits` digits, and at most 15, is printed exactly: a double represents it exactly.
    if number.abs() < 10_f64.powi(digits.min(15) as i32) && number.trunc() == number {
        return (number as i64).to_string();
    }
    let last = digits - 1;
    let scientific = format!("{number:.last$e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("it was written with an exponent");
    let exponent: i32 = exponent.parse().expect("it was written as a number");
    if (-4..digits as i32).contains(&exponent) {
        let places = (last as i32 - exponent) as usize;
        return trimmed(&format!("{number:.places$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

/// Removes zeros at the end of a fraction.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_c_writes_them() {
        for (number, text) in [
            (0.1, "0.10000000000000001"),
            (3.0, "3"),
            (-999_999_999_999_999.0, "-999999999999999"),
            (-1.5, "-1.5"),
            (1e17, "1e+17"),
            (12345678901234567.0, "12345678901234568"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
        ] {
            assert_eq!(double(number), text);
        }
        for (number, text) in
            [(0.1, "0.1"), (123_456_789_012_345.0, "1.2345678901234e+14"), (99_999_999_999_999.9, "1e+14")]
        {
            assert_eq!(general(number, 14), text);
        }
        assert_eq!(general(9.5, 1), "1e+01");
    }

    #[test]
    fn both_protocols() {
        let reply = Reply::Map(vec![Reply::bulk("a"), Reply::Double(0.5), Reply::Null, Reply::Int(i64::MIN)]);
        let mut out = Vec::new();
        reply.encode(Protocol::Resp2, &mut out);
        assert_eq!(out, b"*4\r\n$1\r\na\r\n$3\r\n0.5\r\n$-1\r\n:-9223372036854775808\r\n");
        out.clear();
        reply.encode(Protocol::Resp3, &mut out);
        assert_eq!(out, b"%2\r\n$1\r\na\r\n,0.5\r\n_\r\n:-9223372036854775808\r\n");
        let reply = Reply::Twos(vec![Reply::bulk("a"), Reply::Digits("1.50".into())]);
        for (protocol, bytes) in [
            (Protocol::Resp2, &b"*2\r\n$1\r\na\r\n$4\r\n1.50\r\n"[..]),
            (Protocol::Resp3, b"*1\r\n*2\r\n$1\r\na\r\n,1.50\r\n"),
        ] {
            out.clear();
            reply.encode(protocol, &mut out);
            assert_eq!(out, bytes);
        }
    }
}

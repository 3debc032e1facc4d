//! Parses requests from bytes: arrays of bulk strings, and lines typed by hand.
//!
//! This parser is not taken from a crate. A request is a flat array of bulk strings (or a line), so its arguments fit
//! in one run of bytes. A general parser (`redis-protocol`, `redis`) allocates a tree for each request.
//!
//! Memory is allocated for bytes that have arrived, never for bytes that a length announces.

use crate::args::Args;
use crate::db::value::canonical;

/// The maximum length of a line in bytes: of an inline command, or of a length.
const LONGEST_LINE: usize = 64 << 10;
/// The maximum number of arguments of a request.
const MOST_ARGUMENTS: i64 = i32::MAX as i64;
/// The maximum number of arguments, and of bytes of one argument, for a client that has not authenticated yet.
const OF_STRANGERS: (i64, i64) = (10, 16 << 10);
/// The maximum length of one argument, in bytes.
pub const LONGEST_BULK: i64 = 512 << 20;
/// The maximum size of a request in bytes: all arguments and their offsets. Offsets are counted because the offsets of
/// very many empty arguments would take gigabytes. The limit lets an offset in [`Args`] fit in 32 bits.
pub const LONGEST_REQUEST: usize = 1 << 30;

/// The error for a malformed request. The connection is closed after the error is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl Malformed {
    fn new(what: impl Into<String>) -> Self {
        Self(format!("ERR Protocol error: {}", what.into()))
    }
}

/// Parses requests from the bytes of one connection, which arrive in pieces.
#[derive(Debug, Default)]
pub struct Parser {
    /// Whether the client has not authenticated yet. Such a client's requests have lower limits.
    pub is_strange: bool,
    args: Args,
    /// The number of arguments that are still missing; 0 between requests.
    missing: usize,
    /// The length of the next argument, if it was read already.
    bulk: Option<usize>,
}

impl Parser {
    /// Parses at most one request from the start of `input`. Returns the request, if it is complete, and the number of bytes
    /// consumed. The caller must not pass consumed bytes again. An empty request ("*0", an empty line) is skipped.
    ///
    /// # Errors
    /// If the bytes are not a request.
    pub fn take(&mut self, input: &[u8]) -> Result<(Option<Args>, usize), Malformed> {
        let mut at = 0;
        loop {
            if self.missing == 0 {
                let Some(&first) = input.get(at) else { return Ok((None, at)) };
                let Some((line, next)) = line(&input[at..], first == b'*')? else { return Ok((None, at)) };
                at += next;
                if first == b'*' {
                    let count = canonical(&line[1..]).filter(|count| *count <= MOST_ARGUMENTS);
                    let count = count.ok_or_else(|| Malformed::new("invalid multibulk length"))?;
                    if self.is_strange && count > OF_STRANGERS.0 {
                        return Err(Malformed::new("unauthenticated multibulk length"));
                    }
                    self.missing = usize::try_from(count).unwrap_or(0);
                    self.args = Args::with_capacity(
                        self.missing.min(16),
                        (input.len() - at).min(self.missing.min(1 << 10) * 64),
                    );
                    continue;
                }
                let args = words(line).ok_or_else(|| Malformed::new("unbalanced quotes in request"))?;
                if args.is_empty() {
                    continue;
                }
                return Ok((Some(args), at));
            }
            let length = match self.bulk {
                Some(length) => length,
                None => {
                    let Some(&first) = input.get(at) else { return Ok((None, at)) };
                    let Some((line, next)) = line(&input[at..], true)? else { return Ok((None, at)) };
                    if first != b'$' {
                        return Err(Malformed::new(format!("expected '$', got '{}'", char::from(first))));
                    }
                    let length = canonical(&line[1..]).filter(|length| (0..=LONGEST_BULK).contains(length));
                    let length = length.ok_or_else(|| Malformed::new("invalid bulk length"))?;
                    if self.is_strange && length > OF_STRANGERS.1 {
                        return Err(Malformed::new("unauthenticated bulk length"));
                    }
                    let length = length as usize;
                    if self.args.memory() + length > LONGEST_REQUEST {
                        return Err(Malformed::new("too long a request"));
                    }
                    at += next;
                    *self.bulk.insert(length)
                }
            };
            let Some(argument) = input[at..].get(..length + 2) else { return Ok((None, at)) };
            self.args.push(&argument[..length]);
            at += length + 2;
            self.bulk = None;
            self.missing -= 1;
            if self.missing == 0 {
                return Ok((Some(core::mem::take(&mut self.args)), at));
            }
        }
    }
}

/// Returns the first line without its end, and the start of the next line.
fn line(input: &[u8], of_length: bool) -> Result<Option<(&[u8], usize)>, Malformed> {
    let end = input[..input.len().min(LONGEST_LINE)].iter().position(|byte| *byte == b'\n');
    match end {
        Some(end) => Ok(Some((input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]), end + 1))),
        None if input.len() < LONGEST_LINE => Ok(None),
        None if !of_length => Err(Malformed::new("too big inline request")),
        None if input[0] == b'*' => Err(Malformed::new("too big mbulk count string")),
        None => Err(Malformed::new("too big bulk count string")),
    }
}

/// Splits a line into words. Words are separated by blanks, or quoted with escapes as in C. A zero byte ends the line, as in
/// Redis. Returns `None` if a closing quote is missing.
pub fn words(line: &[u8]) -> Option<Args> {
    let mut args = Args::default();
    let mut rest = line.split(|byte| *byte == 0).next().unwrap_or_default();
    loop {
        rest = rest.trim_ascii_start();
        let Some(&first) = rest.first() else { return Some(args) };
        let mut word = Vec::new();
        match first {
            b'"' | b'\'' => rest = quoted(&rest[1..], first, &mut word)?,
            _ => {
                while let Some((&byte, after)) = rest.split_first() {
                    match byte {
                        b' ' | b'\n' | b'\r' | b'\t' => break,
                        b'"' | b'\'' => {
                            rest = quoted(after, byte, &mut word)?;
                            break;
                        }
                        _ => word.push(byte),
                    }
                    rest = after;
                }
            }
        }
        args.push(&word);
    }
}

/// Appends the bytes up to the closing quote to `word`. Returns the rest of the line, which is empty or begins with a blank.
fn quoted<'l>(mut rest: &'l [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'l [u8]> {
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        if byte == quote {
            return rest.first().is_none_or(u8::is_ascii_whitespace).then_some(rest);
        }
        if byte != b'\\' {
            word.push(byte);
            continue;
        }
        let (&escaped, after) = rest.split_first()?;
        if quote == b'\'' {
            if escaped == b'\'' {
                word.push(b'\'');
                rest = after;
            } else {
                word.push(b'\\');
            }
            continue;
        }
        rest = after;
        let hex = (escaped == b'x').then(|| rest.get(..2)).flatten();
        let hex = hex.and_then(|digits| u8::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok());
        match (hex, escaped) {
            (Some(byte), _) => {
                word.push(byte);
                rest = &rest[2..];
            }
            (None, b'n') => word.push(b'\n'),
            (None, b'r') => word.push(b'\r'),
            (None, b't') => word.push(b'\t'),
            (None, b'b') => word.push(8),
            (None, b'a') => word.push(7),
            (None, other) => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(mut input: &[u8], step: usize) -> Result<Vec<Args>, Malformed> {
        let (mut parser, mut found, mut held) = (Parser::default(), Vec::new(), Vec::new());
        loop {
            let (args, taken) = parser.take(&held)?;
            held.drain(..taken);
            if let Some(args) = args {
                found.push(args);
                continue;
            }
            if input.is_empty() {
                return Ok(found);
            }
            let (piece, rest) = input.split_at(step.min(input.len()));
            held.extend_from_slice(piece);
            input = rest;
        }
    }

    #[test]
    fn requests_come_whole_however_they_are_cut() {
        let input = b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\n*0\r\n\r\nset  'a b' \"\\x41\\n\"\r\n*1\r\n$0\r\n\r\n";
        let expected: Vec<Args> = vec![
            [&b"GET"[..], b"a\r\nbc"].iter().collect(),
            [&b"set"[..], b"a b", b"A\n"].iter().collect(),
            [b""].iter().collect(),
        ];
        for step in 1..input.len() {
            assert_eq!(all(input, step).as_ref(), Ok(&expected), "in steps of {step}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_end_however_they_are_cut(picks in prop::collection::vec(0..14_usize, 0..60), step in 1..9_usize) {
            const PIECES: [&[u8]; 14] =
                [b"*1", b"*2", b"$1", b"$0", b"\r\n", b"\r\n", b"a", b"\0", b"\"", b"'", b"\\x4", b" ", b"\x0b", b"\xff"];
            let bytes: Vec<u8> = picks.into_iter().flat_map(|pick| PIECES[pick]).copied().collect();
            let whole = all(&bytes, bytes.len().max(1));
            prop_assert_eq!(&whole, &all(&bytes, step));
            for args in whole.into_iter().flatten() {
                prop_assert!(args.bytes() <= bytes.len() && args.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn a_zero_byte_ends_a_line_and_nothing_else() {
        for (line, expected) in [(&b"\0\0get a\r\n"[..], &[][..]), (b"get a\0b \"\r\n", &[&b"get"[..], b"a"])] {
            let expected = (!expected.is_empty()).then(|| expected.iter().collect());
            assert_eq!(Parser::default().take(line), Ok((expected, line.len())), "{line:?}");
        }
        assert!(all(b"get \"a\0\"\r\n", 100).is_err(), "the quote ends behind the line's end");
    }

    #[test]
    fn a_stranger_gets_little_room() {
        for (input, what) in [
            (&b"*11\r\n"[..], "unauthenticated multibulk length"),
            (b"*1\r\n$16385\r\n", "unauthenticated bulk length"),
        ] {
            assert_eq!(Parser::default().take(input), Ok((None, input.len())));
            let mut parser = Parser { is_strange: true, ..Parser::default() };
            assert_eq!(parser.take(input), Err(Malformed::new(what)));
        }
        let mut parser = Parser { is_strange: true, ..Parser::default() };
        assert_eq!(parser.take(b"*10\r\n$16384\r\n"), Ok((None, 13)));
    }

    #[test]
    fn a_length_announces_nothing() {
        let mut parser = Parser::default();
        let input = b"*2147483647\r\n$536870912\r\nabc";
        assert_eq!(parser.take(input), Ok((None, input.len() - 3)));
        assert!(parser.args.bytes() == 0 && parser.args.is_empty());
        for bad in
            [&b"*2147483648\r\n"[..], b"*1\r\n$536870913\r\n", b"*1\r\n$-1\r\n", b"*1\r\n:1\r\n", b"*x\r\n", b"\"a\r\n"]
        {
            assert!(all(bad, 100).is_err(), "{bad:?}");
        }
        for bad in
            [&b"*+1\r\n"[..], b"*01\r\n", b"*-0\r\n", b"*\r\n", b"*1\r\n$+1\r\n", b"*1\r\n$01\r\n", b"*1\r\n$\r\n"]
        {
            assert!(all(bad, 100).is_err(), "{bad:?}");
        }
        assert!(all(&[b'a'; LONGEST_LINE], LONGEST_LINE).is_err());
    }
}

//! Patterns of Lua 5.1 with a bounded number of steps.
//!
//! Lua's own matcher is a C function, so the count of instructions cannot stop it. It backtracks almost endlessly for
//! `("a?"):rep(30) .. ("a"):rep(30)`. Its recursion is as deep as the pattern is long, so it can overflow the stack.
//! This matcher counts its steps, and its recursion is at most [`DEEPEST`] deep, which is the limit of later versions
//! of Lua. In everything else it behaves as Lua's matcher. A zero byte ends a pattern, too.

use super::budget::STOPPED;

/// The deepest recursion.
const DEEPEST: usize = 200;
/// The most captures of a pattern.
const CAPTURES: usize = 32;
const ESCAPE: u8 = b'%';

/// The message for an invalid pattern, or for a match that cannot be completed.
pub type Wrong = &'static str;

#[derive(Clone, Copy)]
enum End {
    Open,
    /// The capture records a position and no text.
    Position,
    At(usize),
}

#[derive(Clone, Copy)]
struct Capture {
    start: usize,
    end: End,
}

/// The value of a capture.
pub enum Held<'t> {
    /// The captured text.
    Text(&'t [u8]),
    /// The captured position, from 1.
    Position(usize),
}

/// A pattern that is being matched against a text.
pub struct Matcher<'t> {
    text: &'t [u8],
    pattern: &'t [u8],
    captures: Vec<Capture>,
    depth: usize,
    /// The number of remaining steps.
    pub left: u64,
}

/// The start and the end of a match.
pub type Span = (usize, usize);

impl<'t> Matcher<'t> {
    /// Returns a matcher of `text` against `pattern` with at most `left` steps.
    pub fn new(text: &'t [u8], pattern: &'t [u8], left: u64) -> Self {
        let pattern = pattern.split(|byte| *byte == 0).next().unwrap_or_default();
        Self { text, pattern, captures: Vec::new(), depth: 0, left }
    }

    /// Returns the first match that begins at `from`. If `anchored` is not set, the match may also begin after `from`.
    pub fn search(&mut self, from: usize, anchored: bool) -> Result<Option<Span>, Wrong> {
        let skipped = usize::from(anchored);
        for start in from..=self.text.len() {
            self.captures.clear();
            if let Some(end) = self.matches(start, skipped)? {
                return Ok(Some((start, end)));
            }
            if anchored {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the number of captures. If the pattern has no capture, the whole match counts as a capture.
    pub fn count(&self) -> usize {
        self.captures.len().max(1)
    }

    /// Returns whether the pattern has no captures.
    pub fn is_bare(&self) -> bool {
        self.captures.is_empty()
    }

    /// Returns the text of the match `span`.
    pub fn whole(&self, (start, end): Span) -> &'t [u8] {
        &self.text[start..end]
    }

    /// Returns the value of a capture in the match `span`.
    pub fn capture(&self, index: usize, (start, end): Span) -> Result<Held<'t>, Wrong> {
        match self.captures.get(index) {
            None if index == 0 => Ok(Held::Text(self.whole((start, end)))),
            None => Err("invalid capture index"),
            Some(Capture { end: End::Open, .. }) => Err("unfinished capture"),
            Some(Capture { start, end: End::Position }) => Ok(Held::Position(start + 1)),
            Some(&Capture { start, end: End::At(end) }) => Ok(Held::Text(&self.text[start..end])),
        }
    }

    /// Counts steps. Returns an error if none is left.
    fn step(&mut self, count: usize) -> Result<(), Wrong> {
        self.left = self.left.saturating_sub(count as u64);
        if self.left > 0 { Ok(()) } else { Err(STOPPED) }
    }

    /// Returns the byte of the pattern at `at`, or 0 after the end.
    fn byte(&self, at: usize) -> u8 {
        self.pattern.get(at).copied().unwrap_or(0)
    }

    /// Matches the pattern from `p` on against the text from `s` on. Returns the end of the match.
    fn matches(&mut self, s: usize, p: usize) -> Result<Option<usize>, Wrong> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("pattern too complex");
        }
        let end = self.run(s, p);
        self.depth -= 1;
        end
    }

    fn run(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>, Wrong> {
        loop {
            self.step(1)?;
            match (self.byte(p), self.byte(p + 1)) {
                (0, _) => return Ok(Some(s)),
                (b'(', b')') => return self.open(s, p + 2, End::Position),
                (b'(', _) => return self.open(s, p + 1, End::Open),
                (b')', _) => return self.close(s, p + 1),
                (b'$', 0) => return Ok((s == self.text.len()).then_some(s)),
                (ESCAPE, b'b') => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (ESCAPE, b'f') => match self.frontier(s, p + 2)? {
                    Some(next) => p = next,
                    None => return Ok(None),
                },
                (ESCAPE, digit @ b'0'..=b'9') => match self.again(s, digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(p)?;
                    match self.byte(end) {
                        b'?' => {
                            if self.single(s, p, end)?
                                && let Some(whole) = self.matches(s + 1, end + 1)?
                            {
                                return Ok(Some(whole));
                            }
                            p = end + 1;
                        }
                        b'*' => return self.most(s, s, p, end),
                        b'+' => {
                            return if self.single(s, p, end)? { self.most(s + 1, s + 1, p, end) } else { Ok(None) };
                        }
                        b'-' => return self.least(s, p, end),
                        _ if !self.single(s, p, end)? => return Ok(None),
                        _ => (s, p) = (s + 1, end),
                    }
                }
            }
        }
    }

    fn open(&mut self, s: usize, p: usize, end: End) -> Result<Option<usize>, Wrong> {
        if self.captures.len() == CAPTURES {
            return Err("too many captures");
        }
        let level = self.captures.len();
        self.captures.push(Capture { start: s, end });
        let whole = self.matches(s, p)?;
        if whole.is_none() {
            self.captures.truncate(level);
        }
        Ok(whole)
    }

    fn close(&mut self, s: usize, p: usize) -> Result<Option<usize>, Wrong> {
        let open = self.captures.iter().rposition(|capture| matches!(capture.end, End::Open));
        let open = open.ok_or("invalid pattern capture")?;
        self.captures[open].end = End::At(s);
        let whole = self.matches(s, p)?;
        if whole.is_none() {
            self.captures[open].end = End::Open;
        }
        Ok(whole)
    }

    /// Matches `%bxy`: from an opening byte to the closing byte that balances it. Returns the end of the match.
    fn balanced(&mut self, s: usize, p: usize) -> Result<Option<usize>, Wrong> {
        let (opens, closes) = (self.byte(p), self.byte(p + 1));
        if closes == 0 {
            return Err("unbalanced pattern");
        }
        if self.text.get(s) != Some(&opens) {
            return Ok(None);
        }
        let mut open = 1;
        for (at, &byte) in self.text.iter().enumerate().skip(s + 1) {
            if byte == closes {
                open -= 1;
                if open == 0 {
                    self.step(at - s)?;
                    return Ok(Some(at + 1));
                }
            } else if byte == opens {
                open += 1;
            }
        }
        self.step(self.text.len() - s)?;
        Ok(None)
    }

    /// Matches `%f[set]`: a position between a byte outside the set and a byte in the set. Returns the offset in the
    /// pattern after the set.
    fn frontier(&mut self, s: usize, p: usize) -> Result<Option<usize>, Wrong> {
        if self.byte(p) != b'[' {
            return Err("missing '[' after '%f' in pattern");
        }
        let end = self.class_end(p)?;
        let before = s.checked_sub(1).map_or(0, |before| self.text[before]);
        let after = self.text.get(s).copied().unwrap_or(0);
        let is = !self.in_set(before, p, end - 1) && self.in_set(after, p, end - 1);
        Ok(is.then_some(end))
    }

    /// Matches `%1` to `%9`: the text of a capture again. Returns the end of the match.
    fn again(&mut self, s: usize, digit: u8) -> Result<Option<usize>, Wrong> {
        let capture = digit.checked_sub(b'1').and_then(|index| self.captures.get(usize::from(index)));
        match capture {
            None | Some(Capture { end: End::Open, .. }) => Err("invalid capture index"),
            Some(Capture { end: End::Position, .. }) => Ok(None),
            Some(&Capture { start, end: End::At(end) }) => {
                self.step(end - start)?;
                Ok(self.text[s..].starts_with(&self.text[start..end]).then_some(s + end - start))
            }
        }
    }

    /// Matches `*` and `+`: first as many repetitions as possible, then fewer. Returns the end of the match.
    fn most(&mut self, least: usize, s: usize, p: usize, end: usize) -> Result<Option<usize>, Wrong> {
        let mut at = s;
        while self.single(at, p, end)? {
            at += 1;
        }
        loop {
            if let Some(whole) = self.matches(at, end + 1)? {
                return Ok(Some(whole));
            }
            if at == least {
                return Ok(None);
            }
            at -= 1;
        }
    }

    /// Matches `-`: as few repetitions as possible. Returns the end of the match.
    fn least(&mut self, mut s: usize, p: usize, end: usize) -> Result<Option<usize>, Wrong> {
        loop {
            if let Some(whole) = self.matches(s, end + 1)? {
                return Ok(Some(whole));
            }
            if !self.single(s, p, end)? {
                return Ok(None);
            }
            s += 1;
        }
    }

    /// Returns the end of the character class that begins at `p`.
    fn class_end(&self, p: usize) -> Result<usize, Wrong> {
        match (self.byte(p), self.byte(p + 1)) {
            (ESCAPE, 0) => Err("malformed pattern (ends with '%')"),
            (ESCAPE, _) => Ok(p + 2),
            (b'[', next) => {
                let mut at = if next == b'^' { p + 2 } else { p + 1 };
                loop {
                    let byte = self.byte(at);
                    if byte == 0 {
                        return Err("malformed pattern (missing ']')");
                    }
                    at += if byte == ESCAPE && self.byte(at + 1) != 0 { 2 } else { 1 };
                    if self.byte(at) == b']' {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Returns whether the byte at `s` matches the character class from `p` to `end`.
    fn single(&mut self, s: usize, p: usize, end: usize) -> Result<bool, Wrong> {
        let Some(&byte) = self.text.get(s) else { return Ok(false) };
        self.step(end - p)?;
        Ok(match self.byte(p) {
            b'.' => true,
            ESCAPE => is_of(byte, self.byte(p + 1)),
            b'[' => self.in_set(byte, p, end - 1),
            own => own == byte,
        })
    }

    /// Returns whether a byte is in the set whose brackets are at `p` and `last`.
    fn in_set(&self, byte: u8, p: usize, last: usize) -> bool {
        let excludes = self.byte(p + 1) == b'^';
        let mut at = p + 1 + usize::from(excludes);
        while at < last {
            let own = self.byte(at);
            let (is, next) = if own == ESCAPE {
                (is_of(byte, self.byte(at + 1)), at + 2)
            } else if self.byte(at + 1) == b'-' && at + 2 < last {
                ((own..=self.byte(at + 2)).contains(&byte), at + 3)
            } else {
                (own == byte, at + 1)
            };
            if is {
                return !excludes;
            }
            at = next;
        }
        excludes
    }
}

/// Returns whether a byte is in the class of a letter, such as `%a`. A capital letter is the complement of the class.
fn is_of(byte: u8, letter: u8) -> bool {
    let is = match letter.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | b'\t'..=b'\r'),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return letter == byte,
    };
    is != letter.is_ascii_uppercase()
}

/// Returns whether a pattern is plain text without special characters.
pub fn is_plain(pattern: &[u8]) -> bool {
    pattern.iter().take_while(|byte| **byte != 0).all(|byte| !b"^$*+?.([%-".contains(byte))
}

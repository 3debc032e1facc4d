//! The functions of `string` that match patterns, and what else has no bound in Lua: what the prelude makes them of.
//!
//! Matches answer `true` and their results, or `false` and what is wrong, which the prelude raises where the script called.

use mlua::{Error, IntoLuaMulti, Lua, LuaString as Text, MultiValue, Result, Table, Value};

use super::budget::Budget;
use super::pattern::{self, Held, Matcher, Span, Wrong};

/// Runs a match within what is left to the script.
fn within(
    lua: &Lua,
    run: impl FnOnce(u64) -> (u64, Result<core::result::Result<MultiValue, Wrong>>),
) -> Result<MultiValue> {
    let budget = Budget::of(lua);
    let (left, answer) = run(budget.left());
    budget.leave(left);
    match answer? {
        Ok(mut values) => {
            values.push_front(Value::Boolean(true));
            Ok(values)
        }
        Err(wrong) => (false, wrong).into_lua_multi(lua),
    }
}

/// Where to begin, of what a script says: from 1, or from the end if negative.
fn begin(init: f64, length: usize) -> usize {
    let (init, length) = (init as i64, length as i64);
    let from = if init < 0 { init.saturating_add(length + 1) } else { init };
    (from - 1).clamp(0, length) as usize
}

fn captures(
    lua: &Lua,
    matcher: &Matcher<'_>,
    span: Span,
    values: &mut MultiValue,
) -> Result<core::result::Result<(), Wrong>> {
    for index in 0..matcher.count() {
        match matcher.capture(index, span) {
            Ok(Held::Text(text)) => values.push_back(Value::String(lua.create_string(text)?)),
            Ok(Held::Position(at)) => values.push_back(Value::Number(at as f64)),
            Err(wrong) => return Ok(Err(wrong)),
        }
    }
    Ok(Ok(()))
}

/// `search(text, pattern, init, anchors)`: where a match begins and ends, and its captures; of none nothing.
fn search(lua: &Lua, (text, pattern, init, anchors): (Text, Text, f64, bool)) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    within(lua, |left| {
        let mut matcher = Matcher::new(&text, &pattern, left);
        let anchored = anchors && pattern.first() == Some(&b'^');
        let answer = match matcher.search(begin(init, text.len()), anchored) {
            Err(wrong) => Ok(Err(wrong)),
            Ok(None) => Ok(Ok(MultiValue::new())),
            Ok(Some(span)) => {
                let mut values = MultiValue::from_vec(vec![
                    Value::Number((span.0 + 1) as f64),
                    Value::Number(span.1 as f64),
                    Value::Boolean(matcher.is_bare()),
                ]);
                captures(lua, &matcher, span, &mut values).map(|held| held.map(|()| values))
            }
        };
        (matcher.left, answer)
    })
}

/// `plain(text, pattern, init)`: where the pattern's own bytes begin and end; of none nothing.
fn plain(lua: &Lua, (text, pattern, init): (Text, Text, f64)) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = begin(init, text.len());
    let found = memchr::memmem::find(&text[from..], &pattern);
    let places = found.map(|at| (from + at + 1, from + at + pattern.len()));
    places.map_or_else(|| Ok(MultiValue::new()), |places| places.into_lua_multi(lua))
}

/// `replace(text, pattern, replacement, most)`: the text with up to `most` matches replaced, and how many were.
fn replace(lua: &Lua, (text, pattern, with, most): (Text, Text, Text, f64)) -> Result<MultiValue> {
    let (text, pattern, with) = (text.as_bytes(), pattern.as_bytes(), with.as_bytes());
    within(lua, |left| {
        let mut matcher = Matcher::new(&text, &pattern, left);
        let anchored = pattern.first() == Some(&b'^');
        let answer = replaced(&mut matcher, &text, anchored, &with, most as i64);
        let answer = match answer {
            Ok((bytes, count)) => lua.create_string(bytes).and_then(|text| (text, count).into_lua_multi(lua)).map(Ok),
            Err(wrong) => Ok(Err(wrong)),
        };
        (matcher.left, answer)
    })
}

fn replaced(
    matcher: &mut Matcher<'_>,
    text: &[u8],
    anchored: bool,
    with: &[u8],
    most: i64,
) -> core::result::Result<(Vec<u8>, i64), Wrong> {
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0);
    while count < most && at <= text.len() {
        let Some(span) = matcher.search(at, anchored)? else { break };
        count += 1;
        out.extend_from_slice(&text[at..span.0]);
        expand(matcher, span, with, &mut out)?;
        if out.len() > LONGEST {
            return Err("not enough memory");
        }
        at = span.1;
        if span.0 == span.1 {
            out.extend(text.get(at));
            at += 1;
        }
        if anchored {
            break;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    Ok((out, count))
}

/// Appends a replacement, in which `%1` stands for a capture and `%0` for the match.
fn expand(matcher: &Matcher<'_>, span: Span, with: &[u8], out: &mut Vec<u8>) -> core::result::Result<(), Wrong> {
    let mut bytes = with.iter();
    while let Some(&byte) = bytes.next() {
        let escaped = (byte == b'%').then(|| bytes.next().copied().unwrap_or(0));
        match escaped {
            None => out.push(byte),
            Some(b'0') => out.extend_from_slice(matcher.whole(span)),
            Some(digit @ b'1'..=b'9') => match matcher.capture(usize::from(digit - b'1'), span)? {
                Held::Text(text) => out.extend_from_slice(text),
                Held::Position(at) => out.extend_from_slice(at.to_string().as_bytes()),
            },
            Some(other) => out.push(other),
        }
    }
    Ok(())
}

/// `rep(text, count)`: `count` copies of the text. Lua's own function takes one instruction for a step of C for each copy, also of an
/// empty text.
fn rep(lua: &Lua, (text, count): (Text, f64)) -> Result<Text> {
    Budget::of(lua).point().map_err(Error::runtime)?;
    let (text, count) = (text.as_bytes(), count.max(0.0) as usize);
    match text.len().checked_mul(count) {
        Some(length) if length <= LONGEST => lua.create_string(text.repeat(count)),
        _ => Err(Error::runtime("not enough memory")),
    }
}

/// Bytes of a text that replacing or repeating may make: what it makes is no part of the state's memory yet.
const LONGEST: usize = 128 << 20;

/// What the prelude gets.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("search", lua.create_function(search)?)?;
    table.raw_set("plain", lua.create_function(plain)?)?;
    table.raw_set("replace", lua.create_function(replace)?)?;
    table.raw_set("rep", lua.create_function(rep)?)?;
    let is_plain = |_: &Lua, pattern: Text| Ok(pattern::is_plain(&pattern.as_bytes()));
    table.raw_set("is_plain", lua.create_function(is_plain)?)?;
    Ok(table)
}

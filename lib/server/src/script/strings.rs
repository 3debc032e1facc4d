//! The functions from which the prelude (`prelude.lua`) builds string functions with bounded time: pattern matching and
//! `string.rep`.
//!
//! A matching function returns `true` and its results, or `false` and an error message. The prelude raises the error at
//! the line where the script called.

use mlua::{Error, IntoLuaMulti, Lua, LuaString as Text, MultiValue, Result, Table, Value};

use super::budget::Budget;
use super::pattern::{self, Held, Matcher, Span, Wrong};

/// Runs a match with the script's remaining instructions as its steps.
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

/// Converts the start of a search, which counts from 1, or from the end if it is negative, to an offset.
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

/// `search(text, pattern, init, anchors)`: returns the start and the end of a match, whether the pattern has no
/// captures, and the captures (without any, the whole match). Returns no values if nothing matches.
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

/// `plain(text, pattern, init)`: returns the start and the end of the first occurrence of the pattern's bytes. Returns
/// no values if there is none.
fn plain(lua: &Lua, (text, pattern, init): (Text, Text, f64)) -> Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = begin(init, text.len());
    let found = memchr::memmem::find(&text[from..], &pattern);
    let places = found.map(|at| (from + at + 1, from + at + pattern.len()));
    places.map_or_else(|| Ok(MultiValue::new()), |places| places.into_lua_multi(lua))
}

/// `replace(text, pattern, replacement, most)`: returns the text with at most `most` matches replaced, and the number
/// of replacements.
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

/// Appends a replacement, in which `%1` to `%9` stand for captures and `%0` for the whole match.
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

/// `rep(text, count)`: returns `count` copies of the text. Lua's own function loops over all copies within a single
/// instruction, even if the text is empty.
fn rep(lua: &Lua, (text, count): (Text, f64)) -> Result<Text> {
    Budget::of(lua).point().map_err(Error::runtime)?;
    let (text, count) = (text.as_bytes(), count.max(0.0) as usize);
    match text.len().checked_mul(count) {
        Some(length) if length <= LONGEST => lua.create_string(text.repeat(count)),
        _ => Err(Error::runtime("not enough memory")),
    }
}

/// `point()`: passes a point, after or before a function in C that takes long.
fn point(lua: &Lua, (): ()) -> Result<()> {
    Budget::of(lua).point().map_err(Error::runtime)
}

/// The most bytes of a text that replacing or repeating may make. This text is not yet in Lua's memory, so Lua's limit
/// does not cover it.
const LONGEST: usize = 128 << 20;

/// Returns the functions for the prelude.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("search", lua.create_function(search)?)?;
    table.raw_set("plain", lua.create_function(plain)?)?;
    table.raw_set("replace", lua.create_function(replace)?)?;
    table.raw_set("rep", lua.create_function(rep)?)?;
    table.raw_set("point", lua.create_function(point)?)?;
    let is_plain = |_: &Lua, pattern: Text| Ok(pattern::is_plain(&pattern.as_bytes()));
    table.raw_set("is_plain", lua.create_function(is_plain)?)?;
    Ok(table)
}

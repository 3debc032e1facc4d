//! Converts replies to Lua values, and Lua values to replies.

use mlua::{Error, Lua, Result, Table, Value};

use super::budget::Budget;
use crate::reply::{Answer, Fault, Many, Reply, double};

/// The deepest nesting of tables in a reply.
const DEEPEST: usize = 128;

/// The most bytes of a reply.
const LARGEST: usize = 64 << 20;

/// The number of converted values between two points of the script's budget. Converting a table takes as long as about
/// ten instructions.
const INTERVAL: u64 = 100;

/// Returns a table with one field.
fn field(lua: &Lua, name: &str, value: impl mlua::IntoLua) -> Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

/// Returns an error as scripts see it.
pub fn error(lua: &Lua, fault: &Fault) -> Result<Value> {
    field(lua, "err", &*fault.0)
}

fn list(lua: &Lua, all: &[Reply], three: bool) -> Result<Value> {
    let table = lua.create_table_with_capacity(all.len(), 0)?;
    for (at, one) in all.iter().enumerate() {
        table.raw_set(at + 1, value(lua, one, three)?)?;
    }
    Ok(Value::Table(table))
}

/// Returns a table with the field `map` for keys and values, or `set` for elements.
fn keyed(lua: &Lua, name: &str, pairs: impl Iterator<Item = Result<(Value, Value)>>) -> Result<Value> {
    let table = lua.create_table()?;
    for pair in pairs {
        let (key, value) = pair?;
        table.raw_set(key, value)?;
    }
    field(lua, name, table)
}

fn verbatim(lua: &Lua, format: &[u8], text: &[u8]) -> Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("format", lua.create_string(format)?)?;
    table.raw_set("string", lua.create_string(text)?)?;
    field(lua, "verbatim_string", table)
}

/// Converts a reply to a Lua value, with the types of RESP3 if `three` is set.
pub fn value(lua: &Lua, reply: &Reply, three: bool) -> Result<Value> {
    Ok(match reply {
        Reply::Null | Reply::NullArray if three => Value::Nil,
        Reply::Null | Reply::NullArray => Value::Boolean(false),
        Reply::Status(word) => field(lua, "ok", *word)?,
        Reply::Line(word) => field(lua, "ok", lua.create_string(word)?)?,
        Reply::Int(number) => Value::Number(*number as f64),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Bool(is) if three => Value::Boolean(*is),
        Reply::Bool(is) => Value::Number(f64::from(u8::from(*is))),
        Reply::Large(digits) if three => field(lua, "big_number", lua.create_string(digits)?)?,
        Reply::Large(digits) => Value::String(lua.create_string(digits)?),
        Reply::Verbatim(format, text) if three => verbatim(lua, format, text)?,
        Reply::Verbatim(_, text) => Value::String(lua.create_string(text)?),
        Reply::Text(text) if three => verbatim(lua, b"txt", text.as_bytes())?,
        Reply::Text(text) => Value::String(lua.create_string(text)?),
        Reply::Double(number) if three => field(lua, "double", *number)?,
        Reply::Double(number) => Value::String(lua.create_string(double(*number))?),
        Reply::Map(all) | Reply::Pairs(all) if three => {
            let pairs = all.chunks_exact(2);
            keyed(lua, "map", pairs.map(|pair| Ok((value(lua, &pair[0], three)?, value(lua, &pair[1], three)?))))?
        }
        Reply::Set(all) if three => {
            keyed(lua, "set", all.iter().map(|one| Ok((value(lua, one, three)?, Value::Boolean(true)))))?
        }
        Reply::Bulks(Many::Map | Many::Set, _) if three => value(lua, &reply.clone().apart(), three)?,
        Reply::Bulks(_, all) => {
            let table = lua.create_table_with_capacity(all.len(), 0)?;
            for (at, string) in all.iter().enumerate() {
                table.raw_set(at + 1, lua.create_string(string)?)?;
            }
            Value::Table(table)
        }
        Reply::Digits(digits) if three => field(lua, "double", digits.parse::<f64>().unwrap_or(f64::NAN))?,
        Reply::Digits(digits) => Value::String(lua.create_string(digits)?),
        Reply::Twos(all) if !three => list(lua, all, three)?,
        Reply::Pairs(all) | Reply::Twos(all) => {
            let pairs: Vec<Reply> = all.chunks(2).map(|pair| Reply::Array(pair.to_vec())).collect();
            list(lua, &pairs, three)?
        }
        Reply::Array(all) | Reply::Map(all) | Reply::Set(all) | Reply::Push(all) => list(lua, all, three)?,
        Reply::Error(fault) => error(lua, fault)?,
    })
}

/// Returns the text of a field. As in C, the text ends at the first zero byte.
fn text(table: &Table, name: &str) -> Result<Option<Vec<u8>>> {
    Ok(match table.raw_get(name)? {
        Value::String(text) => text.as_bytes().split(|byte| *byte == 0).next().map(<[u8]>::to_vec),
        _ => None,
    })
}

/// Converts the value that a script returned to a reply. If the script asked for the types of RESP3 (`three`), booleans
/// remain booleans. As in Redis, tables that stand for other types of RESP3 are converted in either case. The
/// conversion counts against the script's budget.
pub fn answer(value: &Value, three: bool, budget: &Budget) -> Answer {
    let mut replies = Replies { room: LARGEST, budget, count: 0, three };
    replies.of(value, 0).map_err(|_| match budget.spent() {
        Some(why) => Fault::made(format!("ERR {why}")),
        None => Fault::new("ERR reached lua stack limit"),
    })
}

/// Returns a number without its fraction. NaN and too large numbers become `i64::MIN`, as on Redis's processor.
fn whole(number: f64) -> i64 {
    if number.abs() < 9_223_372_036_854_775_808.0 { number as i64 } else { i64::MIN }
}

/// Converts values to replies. Tables may share tables, so a few values can make a large reply. The size of the reply
/// and the time are therefore limited.
struct Replies<'a> {
    /// The remaining bytes.
    room: usize,
    budget: &'a Budget,
    /// The number of values converted so far.
    count: u64,
    /// `true` if a Lua boolean becomes a boolean of RESP3. Otherwise it becomes 1 or null, as in RESP2.
    three: bool,
}

impl Replies<'_> {
    /// Counts a value.
    fn step(&mut self) -> Result<()> {
        self.count += 1;
        if !self.count.is_multiple_of(INTERVAL) {
            return Ok(());
        }
        self.budget.leave(self.budget.left().saturating_sub(INTERVAL));
        self.budget.point().map_err(Error::runtime)
    }

    fn of_table(&mut self, table: &Table, depth: usize) -> Result<Reply> {
        if let Some(err) = text(table, "err")? {
            return Ok(Reply::Error(Fault::made(String::from_utf8_lossy(&err).into_owned())));
        }
        if let Some(word) = text(table, "ok")? {
            return Ok(Reply::Line(word));
        }
        match table.raw_get("double")? {
            Value::Number(number) => return Ok(Reply::Double(number)),
            Value::Integer(number) => return Ok(Reply::Double(number as f64)),
            _ => {}
        }
        for (name, both) in [("map", true), ("set", false)] {
            if let Value::Table(all) = table.raw_get(name)? {
                let mut replies = Vec::new();
                for pair in all.pairs::<Value, Value>() {
                    let (key, value) = pair?;
                    // Other keys are in the order of their addresses, which differs between replicas.
                    if !matches!(key, Value::String(_) | Value::Number(_) | Value::Integer(_) | Value::Boolean(_)) {
                        return Err(Error::runtime("a key without order"));
                    }
                    replies.push(self.of(&key, depth)?);
                    if both {
                        replies.push(self.of(&value, depth)?);
                    }
                }
                return Ok(if both { Reply::Map(replies) } else { Reply::Set(replies) });
            }
        }
        if let Value::String(digits) = table.raw_get("big_number")? {
            self.take(digits.as_bytes().len())?;
            // The bytes of a line break would end the line early in RESP3. Redis replaces them in RESP2, too.
            let digit = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
            return Ok(Reply::Large(digits.as_bytes().iter().map(digit).collect()));
        }
        if let Value::Table(parts) = table.raw_get("verbatim_string")?
            && let (Value::String(format), Value::String(text)) = (parts.raw_get("format")?, parts.raw_get("string")?)
        {
            self.take(text.as_bytes().len())?;
            let (mut letters, given) = ([b' '; 3], format.as_bytes());
            letters.iter_mut().zip(given.iter().take_while(|byte| **byte != 0)).for_each(|(to, from)| *to = *from);
            return Ok(Reply::Verbatim(letters, text.as_bytes().to_vec()));
        }
        let mut all = Vec::new();
        loop {
            match table.raw_get(all.len() + 1)? {
                Value::Nil => return Ok(Reply::Array(all)),
                one => all.push(self.of(&one, depth)?),
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Result<()> {
        self.room = self.room.checked_sub(bytes).ok_or_else(|| Error::runtime("too large"))?;
        Ok(())
    }

    fn of(&mut self, value: &Value, depth: usize) -> Result<Reply> {
        self.step()?;
        let bytes = if let Value::String(text) = value { text.as_bytes().len() } else { 0 };
        self.take(bytes + size_of::<Reply>())?;
        if depth > DEEPEST {
            return Err(Error::runtime("too deep"));
        }
        Ok(match value {
            Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
            Value::Integer(number) => Reply::Int(*number),
            Value::Number(number) => Reply::Int(whole(*number)),
            Value::Boolean(is) if self.three => Reply::Bool(*is),
            Value::Boolean(true) => Reply::Int(1),
            Value::Table(table) => self.of_table(table, depth + 1)?,
            _ => Reply::Null,
        })
    }
}

//! The library `cjson`: `encode`, `decode`, `null`, `new` and the settings.

pub mod settings;

use mlua::{Error, Lua, LuaString as Text, Result, Table, Value};

use super::given::wrong;
use crate::reply;
use settings::{Invalid, Settings, Shared};

/// The deepest nesting of tables, and of arrays and objects in JSON. A setting can only lower this limit.
const DEEPEST: usize = 120;

/// The most bytes of a text. A parsed text takes about sixteen times as much memory, which Lua's limit does not cover.
const LARGEST: usize = 4 << 20;

fn quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'"' | b'\\' | b'/' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            8 => out.extend(b"\\b"),
            12 => out.extend(b"\\f"),
            0..32 | 127 => out.extend(format!("\\u{byte:04x}").bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// The state of one call of `encode`: the settings, and the text written so far.
struct Encoder<'a> {
    settings: &'a Settings,
    out: Vec<u8>,
}

impl Encoder<'_> {
    fn number(&mut self, number: f64) -> Result<()> {
        if !number.is_finite() {
            match self.settings.encode_invalid {
                Invalid::Refused => {
                    return Err(Error::runtime("Cannot serialise number: must not be NaN or Inf"));
                }
                Invalid::Written => {}
                Invalid::Null => {
                    self.out.extend(b"null");
                    return Ok(());
                }
            }
        }
        self.out.extend(reply::general(number, self.settings.digits as usize).bytes());
        Ok(())
    }

    /// Returns the length of the array if the table is written as an array.
    fn length(&self, table: &Table) -> Result<Option<usize>> {
        let (mut count, mut longest) = (0_i64, 0_i64);
        for pair in table.pairs::<Value, Value>() {
            let at = match pair?.0 {
                Value::Integer(at) if at > 0 => at,
                Value::Number(at) if at > 0.0 && at.trunc() == at => at as i64,
                _ => return Ok(None),
            };
            (count, longest) = (count + 1, longest.max(at));
        }
        let sparse = &self.settings.sparse;
        if sparse.ratio > 0 && longest > sparse.safe && longest > count.saturating_mul(sparse.ratio) {
            let refusal = Error::runtime("Cannot serialise table: excessively sparse array");
            return if sparse.is_converted { Ok(None) } else { Err(refusal) };
        }
        Ok((count > 0).then_some(longest as usize))
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        // The length of the text is limited separately: tables may share tables, so that a few values can make a long text.
        if self.out.len() > LARGEST {
            return Err(Error::runtime("Cannot serialise, too large"));
        }
        match value {
            Value::Nil => self.out.extend(b"null"),
            Value::LightUserData(null) if null.0.is_null() => self.out.extend(b"null"),
            Value::Boolean(is) => self.out.extend(is.to_string().bytes()),
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::String(text) => quoted(&text.as_bytes(), &mut self.out),
            Value::Table(_) if depth >= DEEPEST.min(self.settings.encode_depth as usize) => {
                return Err(Error::runtime(format!("Cannot serialise, excessive nesting ({})", depth + 1)));
            }
            Value::Table(table) => match self.length(table)? {
                Some(length) => {
                    for at in 1..=length {
                        self.out.push(if at == 1 { b'[' } else { b',' });
                        self.value(&table.raw_get(at)?, depth + 1)?;
                    }
                    self.out.push(b']');
                }
                None => self.object(table, depth)?,
            },
            other => {
                return Err(Error::runtime(format!("Cannot serialise {}: type not supported", other.type_name())));
            }
        }
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: usize) -> Result<()> {
        self.out.push(b'{');
        for (at, pair) in table.pairs::<Value, Value>().enumerate() {
            let (key, value) = pair?;
            if at > 0 {
                self.out.push(b',');
            }
            match key {
                Value::String(key) => quoted(&key.as_bytes(), &mut self.out),
                Value::Integer(key) => self.name(key as f64)?,
                Value::Number(key) => self.name(key)?,
                other => {
                    let kind = other.type_name();
                    let what = format!("Cannot serialise {kind}: table key must be a number or string");
                    return Err(Error::runtime(what));
                }
            }
            self.out.push(b':');
            self.value(&value, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn name(&mut self, number: f64) -> Result<()> {
        self.out.push(b'"');
        self.number(number)?;
        self.out.push(b'"');
        Ok(())
    }
}

/// Finds the first bracket of a JSON text that opens more than `most` nested arrays and objects. Returns the nesting after the
/// bracket, and the number of bytes up to and including the bracket.
fn too_deep(text: &[u8], most: usize) -> Option<(usize, usize)> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > most {
            return Some((depth, at + 1));
        }
    }
    None
}

/// Converts a JSON value to a Lua value. Fields of objects are inserted in the order of their names, so that the result
/// does not depend on the parser's order.
fn value(lua: &Lua, json: &serde_json::Value) -> Result<Value> {
    use serde_json::Value::{Array, Bool, Null, Number, Object, String};
    Ok(match json {
        Null => Value::NULL,
        Bool(is) => Value::Boolean(*is),
        Number(number) => Value::Number(number.as_f64().unwrap_or(f64::INFINITY)),
        String(text) => Value::String(lua.create_string(text)?),
        Array(all) => {
            let table = lua.create_table_with_capacity(all.len(), 0)?;
            for (at, one) in all.iter().enumerate() {
                table.raw_set(at + 1, value(lua, one)?)?;
            }
            Value::Table(table)
        }
        Object(fields) => {
            let table = lua.create_table()?;
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, one) in fields {
                table.raw_set(name.as_str(), value(lua, one)?)?;
            }
            Value::Table(table)
        }
    })
}

/// Returns the library. Its functions share the settings.
pub fn library(lua: &Lua, settings: &Shared) -> Result<Table> {
    let table = lua.create_table()?;
    let shared = settings.clone();
    let encode = move |lua: &Lua, value: Value| {
        let mut encoder = Encoder { settings: &shared.get(), out: Vec::new() };
        encoder.value(&value, 0).map_err(|what| match what {
            Error::RuntimeError(what) => wrong(lua, &what),
            other => other,
        })?;
        lua.create_string(encoder.out)
    };
    let shared = settings.clone();
    let decode = move |lua: &Lua, text: Text| {
        let text = text.as_bytes();
        if text.len() > LARGEST {
            return Err(wrong(lua, "Found too large a text"));
        }
        let most = DEEPEST.min(shared.get().decode_depth as usize);
        if let Some((depth, at)) = too_deep(&text, most) {
            let what = format!("Found too many nested data structures ({depth}) at character {at}");
            return Err(wrong(lua, &what));
        }
        let json = serde_json::from_slice(&text);
        value(lua, &json.map_err(|what| wrong(lua, &format!("Expected value but found invalid token: {what}")))?)
    };
    table.raw_set("encode", lua.create_function(encode)?)?;
    table.raw_set("decode", lua.create_function(decode)?)?;
    table.raw_set("new", lua.create_function(|lua, ()| library(lua, &Shared::default()))?)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    settings::add_all(lua, &table, settings)?;
    Ok(table)
}

//! The library `cjson`: `encode`, `decode` and `null`.

use mlua::{Error, Lua, LuaString as Text, Result, Table, Value};

use super::given::wrong;

/// The deepest nesting of tables, and of arrays and objects in JSON.
const DEEPEST: usize = 120;

/// The most bytes of a text. A parsed text takes about sixteen times as much memory, which Lua's limit does not cover.
const LARGEST: usize = 4 << 20;

/// An array with holes may always have up to this length. A longer array with holes may be at most twice as long as its
/// number of elements.
const SPARSE: usize = 10;

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

/// Returns a number in Lua's notation.
fn digits(lua: &Lua, number: f64) -> Result<Vec<u8>> {
    if !number.is_finite() {
        return Err(Error::runtime("Cannot serialise number: must not be NaN or Inf"));
    }
    Ok(lua.coerce_string(Value::Number(number))?.expect("numbers have digits").as_bytes().to_vec())
}

/// Returns the length of the array if the table is an array.
fn length(table: &Table) -> Result<Option<usize>> {
    let (mut count, mut longest) = (0_usize, 0_usize);
    for pair in table.pairs::<Value, Value>() {
        let at = match pair?.0 {
            Value::Integer(at) if at > 0 => at as usize,
            Value::Number(at) if at > 0.0 && at.trunc() == at => at as usize,
            _ => return Ok(None),
        };
        (count, longest) = (count + 1, longest.max(at));
    }
    if longest > SPARSE && longest > count.saturating_mul(2) {
        return Err(Error::runtime("Cannot serialise table: excessively sparse array"));
    }
    Ok((count > 0).then_some(longest))
}

fn put(lua: &Lua, value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    // The length of the text is limited separately: tables may share tables, so that a few values can make a long text.
    if out.len() > LARGEST {
        return Err(Error::runtime("Cannot serialise, too large"));
    }
    match value {
        Value::Nil => out.extend(b"null"),
        Value::LightUserData(null) if null.0.is_null() => out.extend(b"null"),
        Value::Boolean(is) => out.extend(is.to_string().bytes()),
        Value::Integer(number) => out.extend(digits(lua, *number as f64)?),
        Value::Number(number) => out.extend(digits(lua, *number)?),
        Value::String(text) => quoted(&text.as_bytes(), out),
        Value::Table(_) if depth >= DEEPEST => {
            return Err(Error::runtime("Cannot serialise, excessive depth"));
        }
        Value::Table(table) => match length(table)? {
            Some(length) => {
                for at in 1..=length {
                    out.push(if at == 1 { b'[' } else { b',' });
                    put(lua, &table.raw_get(at)?, depth + 1, out)?;
                }
                out.push(b']');
            }
            None => put_object(lua, table, depth, out)?,
        },
        other => {
            return Err(Error::runtime(format!("Cannot serialise {}: type not supported", other.type_name())));
        }
    }
    Ok(())
}

fn put_object(lua: &Lua, table: &Table, depth: usize, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'{');
    for (at, pair) in table.pairs::<Value, Value>().enumerate() {
        let (key, value) = pair?;
        if at > 0 {
            out.push(b',');
        }
        match key {
            Value::String(key) => quoted(&key.as_bytes(), out),
            Value::Integer(key) => quoted(&digits(lua, key as f64)?, out),
            Value::Number(key) => quoted(&digits(lua, key)?, out),
            other => {
                let kind = other.type_name();
                let what = format!("Cannot serialise {kind}: table key must be a number or string");
                return Err(Error::runtime(what));
            }
        }
        out.push(b':');
        put(lua, &value, depth + 1, out)?;
    }
    out.push(b'}');
    Ok(())
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

/// Returns the library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let encode = |lua: &Lua, value: Value| {
        let mut out = Vec::new();
        put(lua, &value, 0, &mut out).map_err(|what| match what {
            Error::RuntimeError(what) => wrong(lua, &what),
            other => other,
        })?;
        lua.create_string(out)
    };
    let decode = |lua: &Lua, text: Text| {
        if text.as_bytes().len() > LARGEST {
            return Err(wrong(lua, "Found too large a text"));
        }
        // The parser refuses a nesting deeper than 128.
        let json = serde_json::from_slice(&text.as_bytes());
        value(lua, &json.map_err(|what| wrong(lua, &format!("Expected value but found invalid token: {what}")))?)
    };
    table.raw_set("encode", lua.create_function(encode)?)?;
    table.raw_set("decode", lua.create_function(decode)?)?;
    table.raw_set("null", Value::NULL)?;
    Ok(table)
}

//! What a script gives to a library's function, asked for as Lua's own libraries do, with their texts of errors.

use std::borrow::Cow;

use mlua::{Error, IntoLuaMulti, Lua, LuaString as Text, Result, Table, Value, Variadic};

/// Something that may go wrong with a text for the script.
pub type Said<T> = core::result::Result<T, String>;

/// A call's arguments, and the name that it has in errors.
pub struct Given<'a> {
    pub lua: &'a Lua,
    name: &'static str,
    values: Cow<'a, [Value]>,
}

impl Given<'_> {
    /// The same, with a nil behind the arguments.
    pub fn followed_by_nil(&self) -> Given<'_> {
        Given { lua: self.lua, name: self.name, values: self.values.iter().cloned().chain([Value::Nil]).collect() }
    }

    /// The arguments.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The error for an argument.
    pub fn wrong(&self, at: usize, what: &str) -> String {
        format!("bad argument #{at} to '{}' ({what})", self.name)
    }

    fn expected(&self, at: usize, kind: &str) -> String {
        let got = self.values.get(at - 1).map_or("no value", Value::type_name);
        // Whole numbers have a type of their own here.
        let got = if got == "integer" { "number" } else { got };
        self.wrong(at, &format!("{kind} expected, got {got}"))
    }

    /// A number, or digits.
    pub fn number(&self, at: usize) -> Said<f64> {
        let number = self.values.get(at - 1).and_then(|value| self.lua.coerce_number(value.clone()).ok().flatten());
        number.ok_or_else(|| self.expected(at, "number"))
    }

    /// A whole number: without what is behind the point. Of none, what is usual.
    pub fn whole(&self, at: usize, usual: i64) -> Said<i64> {
        match self.values.get(at - 1) {
            None | Some(Value::Nil) => Ok(usual),
            Some(_) => Ok(self.number(at)? as i64),
        }
    }

    /// A text, or a number's.
    pub fn text(&self, at: usize) -> Said<Text> {
        let text = self.values.get(at - 1).and_then(|value| self.lua.coerce_string(value.clone()).ok().flatten());
        text.ok_or_else(|| self.expected(at, "string"))
    }
}

/// An error of a function of Rust, which says where the script called it. A function of Lua would take its caller's place in
/// `return cmsgpack.pack()`.
pub fn wrong(lua: &Lua, what: &str) -> Error {
    let place = lua.inspect_stack(1, |frame| {
        let name = frame.source().short_src.map(|name| name.into_owned());
        name.zip(frame.current_line())
    });
    Error::runtime(place.flatten().map_or_else(|| what.to_owned(), |(name, line)| format!("{name}:{line}: {what}")))
}

/// Adds a function to a library.
pub fn add<R: IntoLuaMulti>(
    lua: &Lua,
    library: &Table,
    name: &'static str,
    run: impl Fn(&Given<'_>) -> Result<Said<R>> + 'static,
) -> Result<()> {
    let function = move |lua: &Lua, values: Variadic<Value>| {
        run(&Given { lua, name, values: Cow::Borrowed(&values) })?.map_err(|what| wrong(lua, &what))
    };
    library.raw_set(name, lua.create_function(function)?)
}

//! Reads the arguments that a script passes to a library's function. Conversions and error messages are those of Lua's
//! own libraries.

use std::borrow::Cow;

use mlua::{Error, IntoLuaMulti, Lua, LuaString as Text, Result, Table, Value, Variadic};

/// A result whose error is a message for the script.
pub type Said<T> = core::result::Result<T, String>;

/// The arguments of a call, and the function's name in error messages.
pub struct Given<'a> {
    pub lua: &'a Lua,
    name: &'static str,
    values: Cow<'a, [Value]>,
}

impl Given<'_> {
    /// Returns the same arguments, followed by nil.
    pub fn followed_by_nil(&self) -> Given<'_> {
        Given { lua: self.lua, name: self.name, values: self.values.iter().cloned().chain([Value::Nil]).collect() }
    }

    /// Returns the arguments.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Returns the message for a wrong argument. `at` is the argument's number, from 1.
    pub fn wrong(&self, at: usize, what: &str) -> String {
        format!("bad argument #{at} to '{}' ({what})", self.name)
    }

    fn expected(&self, at: usize, kind: &str) -> String {
        let got = self.values.get(at - 1).map_or("no value", Value::type_name);
        // mlua has a separate type for integers. Lua 5.1 has not.
        let got = if got == "integer" { "number" } else { got };
        self.wrong(at, &format!("{kind} expected, got {got}"))
    }

    /// Returns the argument as a number. A string of digits is converted.
    pub fn number(&self, at: usize) -> Said<f64> {
        let number = self.values.get(at - 1).and_then(|value| self.lua.coerce_number(value.clone()).ok().flatten());
        number.ok_or_else(|| self.expected(at, "number"))
    }

    /// Returns the argument as an integer without its fraction. Returns `usual` if the argument is missing or nil.
    pub fn whole(&self, at: usize, usual: i64) -> Said<i64> {
        match self.values.get(at - 1) {
            None | Some(Value::Nil) => Ok(usual),
            Some(_) => Ok(self.number(at)? as i64),
        }
    }

    /// Returns the argument as a string. A number is converted.
    pub fn text(&self, at: usize) -> Said<Text> {
        let text = self.values.get(at - 1).and_then(|value| self.lua.coerce_string(value.clone()).ok().flatten());
        text.ok_or_else(|| self.expected(at, "string"))
    }
}

/// Returns an error with the line in which the script called the function. The function is written in Rust for
/// this purpose: a function in Lua would replace its caller on the stack in `return cmsgpack.pack()`.
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

//! Loads the libraries of functions from their texts.
//!
//! While a library's text is loaded, it sees only `redis.register_function`, `redis.log` and constants. It sees no
//! database, no time and no random numbers. A text therefore registers the same functions wherever and whenever it is
//! loaded.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{Lua, Result, Table, Value, Variadic};

use super::budget::{Budget, STOPPED};
use super::stage::{self, LIBRARY, Stage, staged};
use super::state::{self, Outcome};
use crate::db::functions::{self, Function, Library, MOST};
use crate::reply::Fault;
use crate::resp;

/// The instructions that a library counts as, in addition to its own, because it needs a Lua state.
const STATE: u64 = 10_000;

const NAMES: &str =
    "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

fn fault<T>(text: &'static str) -> Outcome<T> {
    Err(Fault::new(text))
}

/// Checks the name of a library or a function.
fn name(bytes: &[u8]) -> Outcome<String> {
    let is = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if bytes.is_empty() || !bytes.iter().all(is) {
        return fault(NAMES);
    }
    Ok(bytes.iter().map(|byte| char::from(*byte)).collect())
}

/// Returns the library's name from the first line of its text.
///
/// # Errors
/// Returns an error if the first line has no valid name or names another engine.
pub fn named(code: &[u8]) -> Outcome<String> {
    if !code.starts_with(b"#!") {
        return fault("ERR Missing library metadata");
    }
    let end = code.iter().position(|byte| *byte == b'\n').ok_or(Fault::new("ERR Invalid library metadata"))?;
    let words = resp::words(&code[..end]).ok_or(Fault::new("ERR Invalid library metadata"))?;
    let mut given = None;
    for word in words.from(1) {
        let value = match word.split_at_checked(5) {
            Some((key, value)) if key.eq_ignore_ascii_case(b"name=") => value,
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(Fault::made(format!("ERR Invalid metadata value given: {word}")));
            }
        };
        if given.replace(value).is_some() {
            return fault("ERR Invalid metadata value, name argument was given multiple times");
        }
    }
    let given = name(given.ok_or(Fault::new("ERR Library name was not given"))?)?;
    let engine = &words[0][2..];
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(Fault::made(format!("ERR Engine '{}' not found", String::from_utf8_lossy(engine))));
    }
    Ok(given)
}

/// Registered functions, by their names in lower case.
pub type Registered = BTreeMap<String, Function>;

/// Converts an argument of a registration to text. Numbers are converted, too.
fn text(lua: &Lua, value: Value, wrong: &'static str) -> Outcome<Vec<u8>> {
    match lua.coerce_string(value) {
        Ok(Some(text)) => Ok(text.as_bytes().to_vec()),
        Ok(None) => fault(wrong),
        Err(what) => {
            stage::note_value(lua, &Value::Error(what.into()));
            fault(wrong)
        }
    }
}

/// Reads flags from a sequence. It ends at the first missing index.
fn flags(lua: &Lua, value: &Value) -> Outcome<u8> {
    let Value::Table(table) = value else {
        return fault("ERR flags argument to redis.register_function must be a table representing function flags");
    };
    let mut all = 0;
    for place in 1.. {
        let unknown = "ERR unknown flag given";
        let flag = match table.raw_get(place) {
            Ok(Value::Nil) => break,
            Ok(flag) => text(lua, flag, unknown)?,
            Err(_) => return fault(unknown),
        };
        all |= functions::flag(&flag.to_ascii_lowercase()).ok_or(Fault::new(unknown))?;
    }
    Ok(all)
}

/// Returns the function and its callback from a table of named arguments.
fn of_names(lua: &Lua, table: &Table) -> Outcome<(Function, mlua::Function)> {
    let (mut given, mut callback) = (None, None);
    let (mut description, mut all) = (None, 0);
    let mut pairs = Vec::new();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|what| state::internal(&what))?;
        // All keys are read before any value, because keys that are tables or functions are in the order of their
        // addresses. The result must not depend on addresses.
        let key = text(lua, key, "ERR named argument key given to redis.register_function is not a string")?;
        pairs.push((key.to_ascii_lowercase(), value));
    }
    for (key, value) in pairs {
        match &*key {
            b"function_name" => {
                let wrong = "ERR function_name argument given to redis.register_function must be a string";
                given = Some(text(lua, value, wrong)?);
            }
            b"description" => {
                let wrong = "ERR description argument given to redis.register_function must be a string";
                description = Some(text(lua, value, wrong)?);
            }
            b"callback" => match value {
                Value::Function(function) => callback = Some(function),
                _ => return fault("ERR callback argument given to redis.register_function must be a function"),
            },
            b"flags" => all = flags(lua, &value)?,
            _ => return fault("ERR unknown argument given to redis.register_function"),
        }
    }
    let given = given.ok_or(Fault::new("ERR redis.register_function must get a function name argument"))?;
    let callback = callback.ok_or(Fault::new("ERR redis.register_function must get a callback argument"))?;
    Ok((Function { name: name(&given)?, description, flags: all }, callback))
}

/// Returns the function and its callback from the arguments of `redis.register_function`.
fn of_arguments(lua: &Lua, values: &[Value]) -> Outcome<(Function, mlua::Function)> {
    match values {
        [Value::Table(table)] => of_names(lua, table),
        [_] => fault(
            "ERR calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
        ),
        [given, callback] => {
            let given = text(lua, given.clone(), "ERR first argument to redis.register_function must be a string")?;
            let Value::Function(callback) = callback else {
                return fault("ERR second argument to redis.register_function must be a function");
            };
            Ok((Function { name: name(&given)?, description: None, flags: 0 }, callback.clone()))
        }
        _ => fault("ERR wrong number of arguments to redis.register_function"),
    }
}

/// The functions that are registered while a library's text is loaded. The callbacks are in a Lua table, so that Lua's
/// memory limit covers them.
struct Register {
    open: Cell<bool>,
    bytes: Cell<usize>,
    functions: RefCell<Registered>,
}

impl Register {
    fn add(&self, lua: &Lua, values: &[Value], callbacks: &Table) -> Outcome<()> {
        if !self.open.get() {
            return fault("ERR redis.register_function can only be called on FUNCTION LOAD command");
        }
        let (function, callback) = of_arguments(lua, values)?;
        self.bytes.set(self.bytes.get() + function.weight());
        if self.bytes.get() > MOST {
            return Err(functions::too_much());
        }
        let mut all = self.functions.borrow_mut();
        let lower = function.name.to_ascii_lowercase();
        if all.contains_key(&lower) {
            return fault("ERR Function already exists in the library");
        }
        callbacks.raw_set(&*function.name, callback).map_err(|what| state::internal(&what))?;
        all.insert(lower, function);
        Ok(())
    }
}

/// Runs a library's text on a stage. Returns the registered functions, and the callbacks by the functions' names.
pub fn register(stage: &Stage, text: &[u8]) -> Result<Outcome<(Registered, Table)>> {
    let lua = &stage.lua;
    let chunk = match stage.compile(text) {
        Ok(chunk) => chunk,
        Err(fault) => return Ok(Err(fault)),
    };
    let callbacks = lua.create_table()?;
    let functions = RefCell::new(Registered::new());
    let register = Rc::new(Register { open: Cell::new(true), bytes: Cell::new(0), functions });
    let (shared, table) = (register.clone(), callbacks.clone());
    let add = move |lua: &Lua, values: Variadic<Value>| shared.add(lua, &values, &table).map_err(state::raise);
    let add = lua.create_function(add)?;
    let api = stage::basics(lua)?;
    api.raw_set("register_function", add)?;
    let (loaded, what): (bool, Value) = stage.load.call((chunk, api))?;
    register.open.set(false);
    if !loaded {
        let (line, _) = state::wrong(lua, &what);
        return Ok(Err(Fault::made(format!("ERR Error registering functions: {line}"))));
    }
    Ok(Ok((register.functions.take(), callbacks)))
}

/// Loads a library by running its text within a budget.
///
/// # Errors
/// Returns an error if the text does not compile, fails, registers no valid function, or exceeds a limit.
pub fn load(name: String, code: &[u8], budget: &Rc<Budget>) -> Outcome<Library> {
    if code.len() > MOST {
        return Err(functions::too_much());
    }
    if budget.left() < STATE {
        return Err(Fault::made(format!("ERR {STOPPED}")));
    }
    let mut library = Library { name, code: code.to_vec(), functions: Vec::new() };
    let registered =
        staged((LIBRARY, 0), budget, |stage| Ok(register(stage, library.text())?.map(|(functions, _)| functions)));
    let registered = registered.map_err(|what| state::internal(&what))??;
    budget.leave(budget.left().saturating_sub(STATE));
    if registered.is_empty() {
        return fault("ERR No functions registered");
    }
    library.functions = registered.into_values().collect();
    Ok(library)
}

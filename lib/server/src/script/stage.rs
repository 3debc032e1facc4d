//! A Lua state with the environment that scripts see: a *stage*. A thread keeps one stage for its next script.
//!
//! Creating a state takes many times as long as a short script. But each script must behave as if it ran in a new
//! state, or replicas could come to different results. A script is therefore first *tried* in the state that the thread
//! has kept ([`staged`]). There the script finds nothing of earlier scripts, and its resources are small: [`TRIAL`]
//! bytes of memory, and a limited number of bytes of commands' answers ([`Calls`](super::state)). If these resources
//! are enough, the script would have behaved in the same way in a new state:
//! - A script can write only to its own values. The table of globals and the libraries are read-only, as in Redis: a
//!   script gets an empty table in place of each library, and reads the library through this table. The functions that
//!   write to a table without asking its metatable (`rawset`, `table.insert`) refuse these tables.
//! - Instructions are counted from the script's beginning. A text that was compiled before is the same function. A
//!   compiled text has no upvalues, so it keeps nothing from one call to the next.
//! - A script cannot see how much memory the garbage of other scripts leaves to it, as long as the memory suffices.
//!
//! If the resources are not enough, the script is stopped. A script cannot catch this stop, just as it cannot catch the
//! stops by its other limits ([`Budget::fail`]). Then the script starts again in a new state with the full memory. The
//! commands that it had already called are not carried out again, because their answers were recorded.

use core::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use archipelago_platform::thread;
use mlua::{Error, Function, Lua, LuaOptions, Result, StdLib, Table, Value, Variadic};

use super::budget::Budget;
use super::state::{Raised, text_of};
use super::{bits, convert, json, packs, strings, structs, table};
use crate::db::Random;
use crate::family::parse;
use crate::reply::{Fault, without_breaks};

/// The most bytes of memory that one script may use.
pub const MEMORY: usize = 128 << 20;

/// The most bytes of memory that a script may use in the kept state, in addition to the bytes that the state already
/// uses.
const TRIAL: usize = 8 << 20;

/// The most bytes of a state that is kept. A new state has about a tenth of this.
const KEPT: usize = 2 << 20;

/// The name of a script's text in error messages.
pub const SCRIPT: &str = "@user_script";
/// The name of a library's text in error messages.
pub const LIBRARY: &str = "@user_function";

const PRELUDE: &str = include_str!("prelude.lua");

thread::thread_local! {
    /// The kept state, which is used for this thread's next script.
    static WAITS: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

/// Compiled texts, by their names in error messages and then by the texts. A look-up does not allocate.
#[derive(Default)]
struct Texts {
    functions: HashMap<&'static str, HashMap<Box<[u8]>, Function>>,
    /// The size of all texts in bytes.
    bytes: usize,
}

impl Texts {
    /// The most bytes of texts. Beyond this all texts are forgotten.
    const MOST: usize = 256 << 10;

    fn get(&self, name: &str, text: &[u8]) -> Option<&Function> {
        self.functions.get(name)?.get(text)
    }

    fn insert(&mut self, name: &'static str, text: &[u8], function: Function) {
        if self.bytes + text.len() > Self::MOST {
            *self = Self::default();
        }
        if text.len() <= Self::MOST {
            self.bytes += text.len();
            self.functions.entry(name).or_default().insert(text.into(), function);
        }
    }
}

/// A state whose tables are as scripts must find them.
pub struct Stage {
    // The first fields belong to the state `lua`. They are declared before `lua`, so that they are dropped first.
    texts: RefCell<Texts>,
    env: Table,
    /// The library `redis`. The functions that access a database are set again for each script.
    pub redis: Table,
    /// Runs a script or a function with its keys and arguments.
    pub run: Function,
    /// Runs a library's text.
    pub load: Function,
    random: Rc<Cell<u64>>,
    /// The settings of `cjson`.
    json: json::settings::Shared,
    /// The name that error messages give to the running text.
    name: Rc<Cell<&'static str>>,
    /// The Lua state.
    pub lua: Lua,
}

impl Stage {
    /// Prepares the state for a text. `name` is the text's name in error messages. The state may use `memory` bytes in
    /// all. The text is stopped when the budget is used up.
    fn begin(&self, name: &'static str, seed: u64, budget: &Rc<Budget>, memory: usize) -> Result<()> {
        self.name.set(name);
        self.random.set(seed);
        self.json.take();
        self.lua.set_memory_limit(memory)?;
        budget.limit(&self.lua)
    }

    fn new() -> Result<Self> {
        let lua = new()?;
        let (globals, json) = (lua.globals(), json::settings::Shared::default());
        globals.raw_set("cjson", json::library(&lua, &json)?)?;
        globals.raw_set("cmsgpack", packs::library(&lua)?)?;
        globals.raw_set("struct", structs::library(&lua)?)?;
        globals.raw_set("bit", bits::library(&lua)?)?;
        let (random, name) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(SCRIPT)));
        set_random(&lua, &random)?;
        let (redis, env) = (redis(&lua)?, lua.create_table()?);
        let seen = lua.create_function(seen)?;
        let spent = lua.create_function(|lua, ()| Ok(Budget::of(lua).spent()))?;
        let called = name.clone();
        let place = lua.create_function(move |lua, ()| place(lua, called.get()))?;
        let patterns = strings::library(&lua)?;
        let prelude = lua.load(PRELUDE).set_name("=redis");
        let (run, load) = prelude.call((seen, spent, place, &redis, &env, patterns))?;
        Ok(Self { texts: RefCell::default(), env, redis, run, load, random, json, name, lua })
    }

    /// Keeps the state for this thread's next script, unless the last script has left much garbage in it.
    fn give_back(self) {
        Budget::release(&self.lua);
        if self.lua.used_memory() <= KEPT {
            WAITS.with(|waits| waits.replace(Some(self)));
        }
    }

    /// Compiles a text, or returns the function that was compiled from the same text before.
    pub fn compile(&self, text: &[u8]) -> core::result::Result<Function, Fault> {
        let name = self.name.get();
        if let Some(function) = self.texts.borrow().get(name, text) {
            return Ok(function.clone());
        }
        let function = compile(&self.lua, text, name, Some(&self.env)).inspect_err(|fault| {
            if fault.0.ends_with(NO_MEMORY) {
                Budget::of(&self.lua).fail();
            }
        })?;
        self.texts.borrow_mut().insert(name, text, function.clone());
        Ok(function)
    }
}

/// Calls `run` with a stage: first in the kept state, as a trial. If the trial fails, calls `run` again in a new state.
/// `name` is the text's name in error messages, and `seed` starts its random numbers.
pub fn staged<T>(
    (name, seed): (&'static str, u64),
    budget: &Rc<Budget>,
    mut run: impl FnMut(&Stage) -> Result<T>,
) -> Result<T> {
    let stage = WAITS.with(RefCell::take).map_or_else(Stage::new, Ok)?;
    let mark = budget.try_out();
    let ran = stage.begin(name, seed, budget, stage.lua.used_memory() + TRIAL).and_then(|()| run(&stage));
    if let Err(what) = &ran {
        note(what, budget);
    }
    if budget.went_well(mark) {
        stage.give_back();
        return ran;
    }
    drop((ran, stage));
    let stage = Stage::new()?;
    stage.begin(name, seed, budget, MEMORY)?;
    run(&stage)
}

/// Lua's message for a lack of memory.
const NO_MEMORY: &str = "not enough memory";

/// Notes an error that is a lack of memory: fails the trial, or passes a point. (The memory was used up by few
/// instructions, if they made long strings. A script that catches the error and goes on must meet its time limit.)
fn note(what: &Error, budget: &Budget) {
    if text_of(what).ends_with(NO_MEMORY) {
        lacks_memory(budget);
    }
}

fn lacks_memory(budget: &Budget) {
    budget.fail();
    let _ = budget.point();
}

/// If the value is an error that is a lack of memory: fails the trial, or passes a point.
pub fn note_value(lua: &Lua, value: &Value) {
    match value {
        Value::Error(what) => note(what, &Budget::of(lua)),
        Value::String(text) if text.as_bytes().ends_with(NO_MEMORY.as_bytes()) => lacks_memory(&Budget::of(lua)),
        _ => {}
    }
}

/// Returns a new state.
pub fn new() -> Result<Lua> {
    let options = LuaOptions::new().catch_rust_panics(false);
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, options)?;
    lua.set_memory_limit(MEMORY)?;
    Ok(lua)
}

/// Compiles a text with this name.
pub fn compile(lua: &Lua, text: &[u8], name: &str, env: Option<&Table>) -> core::result::Result<Function, Fault> {
    let chunk = lua.load(text).set_name(name).set_mode(mlua::chunk::ChunkMode::Text);
    let chunk = match env {
        Some(env) => chunk.set_environment(env.clone()),
        None => chunk,
    };
    let of = if name == SCRIPT { "script (new function)" } else { "function" };
    chunk.into_function().map_err(|what| Fault::made(format!("ERR Error compiling {of}: {}", text_of(&what))))
}

/// Converts an error to the value that scripts see.
fn seen(lua: &Lua, value: Value) -> Result<Value> {
    note_value(lua, &value);
    let Value::Error(error) = &value else { return Ok(value) };
    match error.downcast_ref::<Raised>() {
        Some(Raised(fault)) => convert::error(lua, fault),
        None => Ok(Value::String(lua.create_string(text_of(error))?)),
    }
}

/// Returns the part of the library `redis` that also exists while a library's text is loaded.
pub fn basics(lua: &Lua) -> Result<Table> {
    let redis = lua.create_table()?;
    let log = |lua: &Lua, values: Variadic<Value>| match &values[..] {
        [] | [_] => Err(Error::runtime("redis.log() requires two arguments or more.")),
        [level, ..] => match lua.coerce_number(level.clone())? {
            None => Err(Error::runtime("First argument must be a number (log level).")),
            // Nothing is logged: each replica runs the script, so each line would be logged several times.
            Some(level) if (0.0..4.0).contains(&level.trunc()) => Ok(()),
            Some(_) => Err(Error::runtime("Invalid debug level.")),
        },
    };
    redis.raw_set("log", lua.create_function(log)?)?;
    for (level, name) in ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"].into_iter().enumerate() {
        redis.raw_set(name, level)?;
    }
    redis.raw_set("REDIS_VERSION", "7.0.15")?;
    redis.raw_set("REDIS_VERSION_NUM", 0x0007_000f)?;
    Ok(redis)
}

/// Returns the library `redis` with the functions that do not access a database.
fn redis(lua: &Lua) -> Result<Table> {
    let redis = basics(lua)?;
    let single = |name: &'static str| {
        move |lua: &Lua, values: Variadic<Value>| match &values[..] {
            [Value::String(text)] => {
                let table = lua.create_table()?;
                let bytes = text.as_bytes().to_vec();
                let bytes = if name == "err" { coded(&bytes) } else { bytes };
                table.raw_set(name, lua.create_string(bytes)?)?;
                Ok(Value::Table(table))
            }
            _ => convert::error(lua, &Fault::new("ERR wrong number or type of arguments")),
        }
    };
    redis.raw_set("error_reply", lua.create_function(single("err"))?)?;
    redis.raw_set("status_reply", lua.create_function(single("ok"))?)?;
    let sha1 = |lua: &Lua, values: Variadic<Value>| match &values[..] {
        [value] => {
            let text = lua.coerce_string(value.clone())?;
            Ok(text.map_or_else(|| table::digest(&[]), |text| table::digest(&text.as_bytes())))
        }
        _ => Err(Error::runtime("wrong number of arguments")),
    };
    redis.raw_set("sha1hex", lua.create_function(sha1)?)?;
    of_replication(lua, &redis)?;
    Ok(redis)
}

/// Adds the functions for replication and for a debugger. They change nothing: the log has the script itself, and there
/// is no debugger.
fn of_replication(lua: &Lua, redis: &Table) -> Result<()> {
    for (name, bits) in [("ALL", 3), ("AOF", 1), ("REPLICA", 2), ("SLAVE", 2), ("NONE", 0)] {
        redis.raw_set(format!("REPL_{name}"), bits)?;
    }
    let set_repl = |lua: &Lua, values: Variadic<Value>| match &values[..] {
        [bits] if lua.coerce_number(bits.clone())?.is_none_or(|bits| (0.0..4.0).contains(&bits.trunc())) => Ok(()),
        [_] => Err(Error::runtime("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")),
        _ => Err(Error::runtime("redis.set_repl() requires two arguments.")),
    };
    redis.raw_set("set_repl", lua.create_function(set_repl)?)?;
    redis.raw_set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    redis.raw_set("breakpoint", lua.create_function(|_, ()| Ok(false))?)?;
    redis.raw_set("debug", lua.create_function(|_, _: Variadic<Value>| Ok(()))?)
}

/// Returns an error's text with an error code before it. If the text has several words, the first word is the code.
fn coded(bytes: &[u8]) -> Vec<u8> {
    let bytes = parse::before_zero(bytes);
    // Redis removes line breaks at both ends.
    let text = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let start = text.iter().take_while(|byte| is_break(byte)).count();
    let text = without_breaks(&text[start..]);
    if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() }
}

/// Replaces `math.random` and `math.randomseed`, so that random numbers come from the operation's seed.
fn set_random(lua: &Lua, state: &Rc<Cell<u64>>) -> Result<()> {
    let math: Table = lua.globals().get("math")?;
    let (state, draws) = (state.clone(), state.clone());
    let random = move |_: &Lua, (low, high): (Option<f64>, Option<f64>)| {
        let mut random = Random(draws.get());
        let fraction = (random.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        draws.set(random.0);
        let (low, high) = match (low, high) {
            (None, _) => return Ok(fraction),
            (Some(high), None) => (1.0, high.floor()),
            (Some(low), Some(high)) => (low.floor(), high.floor()),
        };
        if low > high {
            return Err(Error::runtime("bad argument to 'random' (interval is empty)"));
        }
        Ok((fraction * (high - low + 1.0)).floor() + low)
    };
    math.raw_set("random", lua.create_function(random)?)?;
    let reseed = move |_: &Lua, seed: f64| {
        state.set(seed as i64 as u64);
        Ok(())
    };
    math.raw_set("randomseed", lua.create_function(reseed)?)
}

/// Returns the script's name and the line that is being executed.
fn place(lua: &Lua, name: &'static str) -> Result<(Option<&'static str>, Option<usize>)> {
    for level in 1..12 {
        let at = lua.inspect_stack(level, |frame| {
            let is = frame.source().source.as_deref() == Some(name);
            is.then(|| frame.current_line())
        });
        match at {
            Some(Some(line)) => return Ok((Some(name), line)),
            Some(None) => {}
            None => break,
        }
    }
    Ok((None, None))
}

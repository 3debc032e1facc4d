//! A Lua state as scripts see it. A thread keeps one for its next script.
//!
//! Making a state takes as long as a hundred short scripts. But each script shall run as if in a new state, or it would end
//! differently on different replicas. So it is *tried* in the state that the thread has kept ([`staged`]), in which it finds nothing
//! of the scripts before, and there it gets little: [`TRIAL`] bytes of memory, and few commands ([`Calls`](super::state)). If that
//! is enough, a new state would have done the same:
//! - All that a script can write to are values of its own and the tables of libraries; what scripts get for globals is guarded.
//!   A state whose tables are not what they were ([`Stage::is_intact`]) is dropped; most texts cannot have changed them ([`reach`](super::reach)).
//! - Instructions are counted from the script's beginning, and a text that was compiled before is the same function: one without
//!   variables of its own outside keeps nothing of its calls.
//! - How much memory the garbage of others leaves it cannot see, as long as it runs out of none.
//!
//! If it is not enough, the script is stopped there, out of its reach as by its other limits ([`Budget::fail`]), and begins anew in
//! a new state with all of its memory. The commands that it had called are not carried out again: their answers were kept.

use core::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Error, Function, Lua, LuaOptions, Result, StdLib, Table, Value, Variadic};

use super::budget::Budget;
use super::reach::may_change_libraries;
use super::state::{Raised, text_of};
use super::{bits, convert, json, packs, strings, structs, table};
use crate::db::Random;
use crate::reply::Fault;

/// Bytes that a script may take at a time.
pub const MEMORY: usize = 128 << 20;

/// Bytes that a script may take beside what the kept state has.
const TRIAL: usize = 8 << 20;

/// Bytes of a state that is kept: some ten times as many as a new one has.
const KEPT: usize = 2 << 20;

/// The name of a script's text in errors.
pub const SCRIPT: &str = "@user_script";
/// That of a library's text.
pub const LIBRARY: &str = "@user_function";

const PRELUDE: &str = include_str!("prelude.lua");

thread_local! {
    /// The state that waits for this thread's next script.
    static WAITS: RefCell<Option<Stage>> = const { RefCell::new(None) };
}

/// What a text was compiled to, and whether it may change libraries.
type Compiled = (Function, bool);

/// What was compiled, by the name of what it is, then by its text: a look-up allocates nothing.
#[derive(Default)]
struct Texts {
    functions: HashMap<&'static str, HashMap<Box<[u8]>, Compiled>>,
    /// Of the texts.
    bytes: usize,
}

impl Texts {
    /// Bytes of texts before all are forgotten.
    const MOST: usize = 256 << 10;

    fn get(&self, name: &str, text: &[u8]) -> Option<&Compiled> {
        self.functions.get(name)?.get(text)
    }

    fn insert(&mut self, name: &'static str, text: &[u8], function: Compiled) {
        if self.bytes + text.len() > Self::MOST {
            *self = Self::default();
        }
        if text.len() <= Self::MOST {
            self.bytes += text.len();
            self.functions.entry(name).or_default().insert(text.into(), function);
        }
    }
}

/// A state whose tables are as scripts see them.
pub struct Stage {
    // Before the state, to which they belong.
    texts: RefCell<Texts>,
    env: Table,
    /// The library `redis`. What asks for a database is of each script.
    pub redis: Table,
    /// Runs a script, or a function, with its keys and arguments.
    pub run: Function,
    /// Runs a library's text.
    pub load: Function,
    intact: Function,
    random: Rc<Cell<u64>>,
    /// The settings of `cjson`.
    json: json::settings::Shared,
    /// Says that something ran that may have changed libraries.
    is_doubtful: Cell<bool>,
    /// The name of what runs.
    name: Rc<Cell<&'static str>>,
    /// The state.
    pub lua: Lua,
}

impl Stage {
    /// Prepares the state for a text that errors call `name`. The state may take `memory` bytes in all; the text ends when the budget
    /// does.
    fn begin(&self, name: &'static str, seed: u64, budget: &Rc<Budget>, memory: usize) -> Result<()> {
        self.name.set(name);
        self.is_doubtful.set(false);
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
        let (run, load, intact) = prelude.call((seen, spent, place, &redis, &env, patterns))?;
        Ok(Self {
            texts: RefCell::default(),
            env,
            redis,
            run,
            load,
            intact,
            random,
            json,
            is_doubtful: Cell::new(false),
            name,
            lua,
        })
    }

    /// Keeps it for this thread's next script, if nothing of the last one is left.
    fn give_back(self) {
        Budget::release(&self.lua);
        if self.lua.used_memory() <= KEPT && (!self.is_doubtful.get() || self.is_intact()) {
            WAITS.with(|waits| waits.replace(Some(self)));
        }
    }

    fn is_intact(&self) -> bool {
        self.intact.call(()).unwrap_or(false)
    }

    /// A text of the name that this stage was taken for, compiled.
    pub fn compile(&self, text: &[u8]) -> core::result::Result<Function, Fault> {
        let name = self.name.get();
        if let Some((function, is_doubtful)) = self.texts.borrow().get(name, text) {
            self.is_doubtful.set(self.is_doubtful.get() | is_doubtful);
            return Ok(function.clone());
        }
        let function = compile(&self.lua, text, name, Some(&self.env)).inspect_err(|fault| {
            if fault.0.ends_with(NO_MEMORY) {
                Budget::of(&self.lua).fail();
            }
        })?;
        let is_doubtful = may_change_libraries(text);
        self.is_doubtful.set(self.is_doubtful.get() | is_doubtful);
        self.texts.borrow_mut().insert(name, text, (function.clone(), is_doubtful));
        Ok(function)
    }
}

/// Runs something on a stage: within a trial, and if that is not enough, in a new state. It has a name in errors, and randomness.
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

/// How Lua says that there is no memory.
const NO_MEMORY: &str = "not enough memory";

/// Fails a trial that has run out of memory.
fn note(what: &Error, budget: &Budget) {
    if text_of(what).ends_with(NO_MEMORY) {
        budget.fail();
    }
}

/// Fails a trial in which there was no memory for this value: an error's.
pub fn note_value(lua: &Lua, value: &Value) {
    match value {
        Value::Error(what) => note(what, &Budget::of(lua)),
        Value::String(text) if text.as_bytes().ends_with(NO_MEMORY.as_bytes()) => Budget::of(lua).fail(),
        _ => {}
    }
}

/// A new state.
pub fn new() -> Result<Lua> {
    let options = LuaOptions::new().catch_rust_panics(false);
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, options)?;
    lua.set_memory_limit(MEMORY)?;
    Ok(lua)
}

/// Compiles a text of this name.
pub fn compile(lua: &Lua, text: &[u8], name: &str, env: Option<&Table>) -> core::result::Result<Function, Fault> {
    let chunk = lua.load(text).set_name(name).set_mode(mlua::chunk::ChunkMode::Text);
    let chunk = match env {
        Some(env) => chunk.set_environment(env.clone()),
        None => chunk,
    };
    let of = if name == SCRIPT { "script (new function)" } else { "function" };
    chunk.into_function().map_err(|what| Fault::made(format!("ERR Error compiling {of}: {}", text_of(&what))))
}

/// What scripts see of an error.
fn seen(lua: &Lua, value: Value) -> Result<Value> {
    note_value(lua, &value);
    let Value::Error(error) = &value else { return Ok(value) };
    match error.downcast_ref::<Raised>() {
        Some(Raised(fault)) => convert::error(lua, fault),
        None => Ok(Value::String(lua.create_string(text_of(error))?)),
    }
}

/// What of `redis` is there while a library is loaded, too.
pub fn basics(lua: &Lua) -> Result<Table> {
    let redis = lua.create_table()?;
    let log = |lua: &Lua, values: Variadic<Value>| match &values[..] {
        [] | [_] => Err(Error::runtime("redis.log() requires two arguments or more.")),
        [level, ..] => match lua.coerce_number(level.clone())? {
            None => Err(Error::runtime("First argument must be a number (log level).")),
            // Each replica runs the script: its lines would be there many times.
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

/// The functions of `redis` that ask for no database.
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

/// What a script says of its replication, and to a debugger. It changes nothing here: what is logged is the script, and there is no debugger.
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

/// An error's text with a code before it: the first word, if there are more.
fn coded(bytes: &[u8]) -> Vec<u8> {
    // As in C, a zero ends it.
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = bytes.strip_prefix(b"-").unwrap_or(bytes);
    if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() }
}

/// `math.random` of the operation's own randomness.
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

/// Where a script is: its name, and the line.
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

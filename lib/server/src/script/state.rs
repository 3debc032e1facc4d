//! A Lua state that runs one script, or one function of a library.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{Error, Function, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, Variadic};

use super::budget::Budget;
use super::{bits, convert, json, library, strings, table};
use crate::acl::user::User;
use crate::args::Args;
use crate::command::{self, Run, flag};
use crate::db::functions::{self, ALLOW_OOM, Function as Registered, Library, NO_WRITES};
use crate::db::{Change, DATABASES, Random, View};
use crate::family::parse;
use crate::operation::wish;
use crate::reply::{Answer, Fault, Reply, double, fault};

/// Bytes that a script may take at a time.
const MEMORY: usize = 128 << 20;

/// The name of a script's text in errors.
const SCRIPT: &str = "@user_script";
/// That of a library's text.
pub const LIBRARY: &str = "@user_function";

const PRELUDE: &str = include_str!("prelude.lua");

/// What a script works on.
pub enum Target<'a, 'd> {
    /// A database to be changed.
    Change(&'a mut Change<'d>),
    /// A database to be read.
    View(View<'d>),
}

impl Target<'_, '_> {
    fn random(&mut self) -> u64 {
        match self {
            Self::Change(change) => change.random.draw(),
            Self::View(view) => {
                view.seed = Random(view.seed).draw();
                view.seed
            }
        }
    }

    /// What it may do; nothing: all.
    fn rights(&self) -> Option<&User> {
        match self {
            Self::Change(change) => change.rights,
            Self::View(view) => view.rights,
        }
    }

    /// How long it may take.
    fn budget(&self) -> Rc<Budget> {
        Budget::new(match self {
            Self::Change(change) => change.deadline,
            Self::View(view) => view.deadline,
        })
    }

    /// Says that memory is short.
    fn is_full(&self) -> bool {
        matches!(self, Self::Change(change) if change.wishes & wish::FULL != 0)
    }

    fn select(&mut self, number: &[u8]) -> Answer {
        let index = match parse::integer(number).map(u32::try_from)? {
            Ok(index) if index < DATABASES => index,
            _ => return Err(fault::DB_INDEX),
        };
        match self {
            Self::Change(change) => change.index = index,
            Self::View(view) => view.index = index,
        }
        Ok(Reply::OK)
    }

    /// Carries out a command that a script calls.
    fn call(&mut self, args: &Args, leave: &Leave) -> Answer {
        let command = command::find(&args[0]).filter(|command| !command.has(flag::INTERNAL));
        let Some(command) = command else { return Err(Fault::new("ERR Unknown Redis command called from script")) };
        if !command.takes(args.len()) {
            return Err(Fault::new("ERR Wrong number of args calling Redis command from script"));
        }
        let forbidden = Fault::new("ERR This Redis command is not allowed from script");
        if command.has(flag::NOSCRIPT) {
            return Err(forbidden);
        }
        if let Some(user) = self.rights() {
            user.check(command, args).map_err(|denied| denied.within())?;
        }
        if command.name == "select" {
            return self.select(&args[1]);
        }
        if matches!(command.run, Run::Session) {
            return Err(forbidden);
        }
        // What comes after must draw other numbers, even if this command draws none.
        self.random();
        leave.check(command)?;
        match (self, command.run) {
            (Self::Change(change), run) => change.run(run, args),
            (Self::View(view), Run::Read(run)) => run(view, args),
            (Self::View(_), _) => Err(WRITES),
        }
    }
}

/// The error for a command that writes, of a script that must not.
const WRITES: Fault = Fault::new("ERR Write commands are not allowed from read-only scripts.");

/// What a script's commands may do.
struct Leave {
    /// They only read.
    reads: bool,
    /// Those that need memory are refused: before the first that writes, since a script cannot be stopped halfway.
    full: Cell<bool>,
}

impl Leave {
    /// That of a script with these flags, or of one that says nothing of itself.
    fn of(target: &Target<'_, '_>, flags: Option<u8>) -> core::result::Result<Self, Fault> {
        let full = target.is_full();
        let Some(flags) = flags else { return Ok(Self { reads: false, full: Cell::new(full) }) };
        let reads = flags & NO_WRITES != 0;
        match target {
            _ if reads || (flags & ALLOW_OOM != 0 && matches!(target, Target::Change(_))) => {}
            _ if full => return Err(fault::NO_ROOM),
            Target::View(_) => {
                return Err(Fault::new("ERR Can not execute a script with write flag using *_ro command."));
            }
            Target::Change(_) => {}
        }
        Ok(Self { reads, full: Cell::new(false) })
    }

    fn check(&self, command: &command::Command) -> core::result::Result<(), Fault> {
        let writes = matches!(command.run, Run::Write(_));
        if writes && self.reads {
            return Err(WRITES);
        }
        if self.full.get() && command.has(flag::DENYOOM) {
            return Err(fault::NO_ROOM);
        }
        self.full.set(self.full.get() && !writes);
        Ok(())
    }
}

/// A script's text without its first line if that names the engine, and the flags there.
fn without_shebang(text: &[u8]) -> core::result::Result<(&[u8], Option<u8>), Fault> {
    if !text.starts_with(b"#!") {
        return Ok((text, None));
    }
    let end = text.iter().position(|byte| *byte == b'\n').ok_or(Fault::new("ERR Invalid script shebang"))?;
    let first = String::from_utf8_lossy(&text[..end]).into_owned();
    let mut words = first.split_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(Fault::made(format!("ERR Unexpected engine in script shebang: {engine}")));
    }
    let mut all = 0;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(Fault::made(format!("ERR Unknown lua shebang option: {word}")));
        };
        for flag in flags.split(',').filter(|_| !flags.is_empty()) {
            let unknown = || Fault::made(format!("ERR Unexpected flag in script shebang: {flag}"));
            all |= functions::flag(flag.as_bytes()).ok_or_else(unknown)?;
        }
    }
    // The line's end stays, so that lines keep their numbers.
    Ok((&text[end..], Some(all)))
}

/// Returns whether a script says of itself that it only reads.
pub fn only_reads(text: &[u8]) -> bool {
    text.starts_with(b"#!")
        && without_shebang(text).is_ok_and(|(_, flags)| flags.is_some_and(|all| all & NO_WRITES != 0))
}

/// A new state.
pub fn new() -> Result<Lua> {
    let options = LuaOptions::new().catch_rust_panics(false);
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, options)?;
    lua.set_memory_limit(MEMORY)?;
    Ok(lua)
}

/// An error that scripts see as a table: of a command, or of a registration. A function of Rust raises it, since one of Lua
/// would take its caller's place in `return redis.call(…)`, and the error would not say where it was.
#[derive(Debug)]
struct Raised(Fault);

impl core::fmt::Display for Raised {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0.0)
    }
}

impl core::error::Error for Raised {}

/// The error of Lua's for a fault.
pub fn raise(fault: Fault) -> Error {
    Error::external(Raised(fault))
}

/// What scripts see of an error.
fn seen(lua: &Lua, value: Value) -> Result<Value> {
    let Value::Error(error) = &value else { return Ok(value) };
    match error.downcast_ref::<Raised>() {
        Some(Raised(fault)) => convert::error(lua, fault),
        None => Ok(Value::String(lua.create_string(text_of(error))?)),
    }
}

/// What is wrong, without the places of all calls.
pub fn text_of(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. } | Error::RuntimeError(message) => message.clone(),
        Error::CallbackError { cause, .. } => text_of(cause),
        Error::MemoryError(_) => "not enough memory".into(),
        other => other.to_string(),
    }
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

/// Compiles a script.
///
/// # Errors
/// If it does not compile.
pub fn check(text: &[u8]) -> core::result::Result<(), Fault> {
    let (text, _) = without_shebang(text)?;
    compile(&new().map_err(|what| internal(&what))?, text, SCRIPT, None).map(|_| ())
}

/// An error of no script's text.
pub fn internal(what: &Error) -> Fault {
    Fault::made(format!("ERR {}", text_of(what)))
}

/// The arguments of a call, as a command has them.
fn arguments(values: &[Value]) -> core::result::Result<Args, Fault> {
    if values.is_empty() {
        return Err(Fault::new("ERR Please specify at least one argument for this redis lib call"));
    }
    let mut args = Args::default();
    for value in values {
        match value {
            Value::String(text) => args.push(&text.as_bytes()),
            Value::Number(number) => args.push(double(*number).as_bytes()),
            Value::Integer(number) => args.push(number.to_string().as_bytes()),
            _ => return Err(Fault::new("ERR Lua redis lib command arguments must be strings or integers")),
        }
        // Many references to one string may be more than a request may be.
        if args.bytes() > MEMORY {
            return Err(Fault::new("ERR not enough memory"));
        }
    }
    Ok(args)
}

/// What of `redis` is there while a library is loaded, too.
pub fn basics(lua: &Lua) -> Result<Table> {
    let redis = lua.create_table()?;
    let log = |_: &Lua, values: Variadic<Value>| match &values[..] {
        [] | [_] => Err(Error::runtime("redis.log() requires two arguments or more.")),
        // Each replica runs the script: its lines would be there many times.
        _ => Ok(()),
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
    Ok(redis)
}

/// An error's text with a code before it: the first word, if there are more.
fn coded(bytes: &[u8]) -> Vec<u8> {
    // As in C, a zero ends it.
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = bytes.strip_prefix(b"-").unwrap_or(bytes);
    if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() }
}

/// `math.random` of the operation's own randomness.
fn seed_math(lua: &Lua, seed: u64) -> Result<()> {
    let math: Table = lua.globals().get("math")?;
    let state = std::rc::Rc::new(Cell::new(seed));
    let draws = state.clone();
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

fn words<'a>(lua: &Lua, all: impl Iterator<Item = &'a [u8]>) -> Result<Table> {
    lua.create_sequence_from(all.map(|word| lua.create_string(word)).collect::<Result<Vec<_>>>()?)
}

/// The error that a script ended with, and where it was.
pub fn wrong(lua: &Lua, value: &Value) -> (String, String) {
    let (mut line, mut place) = (String::from("ERR unknown error"), String::new());
    match value {
        Value::Table(error) => {
            let text = |name: &str| -> Option<String> {
                let value: Value = error.raw_get(name).ok()?;
                Some(lua.coerce_string(value).ok()??.to_string_lossy())
            };
            line = text("err").unwrap_or(line);
            if let (Some(source), Some(at)) = (text("source"), text("line")) {
                place = format!(", on {source}:{at}.");
            }
        }
        Value::Error(what) => line = format!("ERR {}", text_of(what)),
        Value::String(text) => line = format!("ERR {}", text.to_string_lossy()),
        _ => {}
    }
    (line, place)
}

/// A state whose tables are as scripts see them.
pub struct Stage {
    /// The environment of what is compiled here.
    pub env: Table,
    /// Runs a script, or a function with its keys and arguments.
    run: Function,
    /// Runs a library's text.
    pub load: Function,
}

impl Stage {
    /// Sets up a state for texts that errors call `name`. Their scripts end when the budget does.
    pub fn new(lua: &Lua, env: Table, redis: &Table, name: &'static str, budget: &Rc<Budget>) -> Result<Self> {
        let globals = lua.globals();
        globals.raw_set("cjson", json::library(lua)?)?;
        globals.raw_set("bit", bits::library(lua)?)?;
        let seen = lua.create_function(seen)?;
        let spent = lua.create_function(|lua, ()| Ok(Budget::of(lua).spent()))?;
        let place = lua.create_function(move |lua, ()| place(lua, name))?;
        let patterns = strings::library(lua)?;
        budget.limit(lua)?;
        let (run, load) = lua.load(PRELUDE).set_name("=redis").call((seen, spent, place, redis, &env, patterns))?;
        Ok(Self { env, run, load })
    }
}

/// Has `act` run something on a stage with a database. It has a name and a label in errors.
fn perform(
    lua: &Lua,
    mut target: Target<'_, '_>,
    leave: &Leave,
    (name, label): (&'static str, &dyn Fn() -> String),
    env: Table,
    act: impl FnOnce(&Stage) -> Result<MultiValue>,
) -> Answer {
    let (budget, seed) = (target.budget(), target.random());
    let redis = seed_math(lua, seed).and_then(|()| redis(lua)).map_err(|what| internal(&what))?;
    let (target, three) = (RefCell::new(target), Cell::new(false));
    // The outer error stops the script, whoever would catch the inner one.
    let carry_out = |values: &[Value]| -> Result<Answer> {
        budget.point().map_err(Error::runtime)?;
        Ok(arguments(values).and_then(|args| target.borrow_mut().call(&args, leave)))
    };
    let ran = lua.scope(|scope| {
        let call = |lua: &Lua, values: Variadic<Value>| match carry_out(&values)? {
            Ok(reply) => convert::value(lua, &reply, three.get()),
            Err(fault) => Err(raise(fault)),
        };
        redis.raw_set("call", scope.create_function(call)?)?;
        let pcall = |lua: &Lua, values: Variadic<Value>| match carry_out(&values)? {
            Ok(reply) => convert::value(lua, &reply, three.get()),
            Err(fault) => convert::error(lua, &fault),
        };
        redis.raw_set("pcall", scope.create_function(pcall)?)?;
        let setresp = scope.create_function(|_, version: f64| match version {
            2.0 | 3.0 => {
                three.set(version == 3.0);
                Ok(())
            }
            _ => Err(Error::runtime("RESP version must be 2 or 3.")),
        })?;
        redis.raw_set("setresp", setresp)?;
        act(&Stage::new(lua, env, &redis, name, &budget)?)
    });
    let values = match ran {
        Ok(values) => values.into_vec(),
        Err(what) => return Err(Fault::made(format!("ERR {} script: {}", text_of(&what), label()))),
    };
    match &values[..] {
        [Value::Boolean(true)] => Ok(Reply::Null),
        [Value::Boolean(true), value, ..] => convert::answer(value),
        [_, value, ..] => {
            let (line, place) = wrong(lua, value);
            Err(Fault::made(format!("{line} script: {}{place}", label())))
        }
        _ => Ok(Reply::Null),
    }
}

/// Runs a script: its text and its number of keys are the first arguments of `args`.
///
/// # Errors
/// Those of the script.
pub fn run(target: Target<'_, '_>, args: &Args, keys: usize) -> Answer {
    let (text, flags) = without_shebang(&args[1])?;
    let leave = Leave::of(&target, flags)?;
    let lua = new().map_err(|what| internal(&what))?;
    let prepared = || {
        lua.globals().raw_set("KEYS", words(&lua, args.from(3).take(keys))?)?;
        lua.globals().raw_set("ARGV", words(&lua, args.from(3 + keys))?)?;
        lua.create_table()
    };
    let env = prepared().map_err(|what| internal(&what))?;
    let script = compile(&lua, text, SCRIPT, Some(&env))?;
    let label = || table::digest(&args[1]);
    perform(&lua, target, &leave, (SCRIPT, &label), env, |stage| stage.run.call(script))
}

/// Calls a function: its number of keys is the second argument of `args`.
///
/// The library's text is run anew, in a state of its own, as when it was loaded: it registers the same functions, and what
/// another call has left in its variables is not there. So a call on one replica alone changes nothing.
///
/// # Errors
/// Those of the function.
pub fn call(target: Target<'_, '_>, library: &Library, function: &Registered, args: &Args, keys: usize) -> Answer {
    let leave = Leave::of(&target, Some(function.flags))?;
    let lua = new().map_err(|what| internal(&what))?;
    let env = lua.create_table().map_err(|what| internal(&what))?;
    let label = || function.name.clone();
    perform(&lua, target, &leave, (LIBRARY, &label), env, |stage| {
        let (_, callbacks) =
            library::register(&lua, stage, library.text())?.map_err(|fault| Error::runtime(fault.0))?;
        let callback: Function = callbacks.raw_get(&*function.name)?;
        let (keys, args) = (words(&lua, args.from(3).take(keys))?, words(&lua, args.from(3 + keys))?);
        stage.run.call((callback, keys, args))
    })
}

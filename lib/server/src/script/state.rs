//! A Lua state that runs one script.

use core::cell::{Cell, RefCell};
use mlua::{Error, Function, Lua, LuaOptions, MultiValue, Result, StdLib, Table, Value, Variadic};

use super::budget::Budget;
use super::{bits, convert, json, strings, table};
use crate::acl::user::User;
use crate::args::Args;
use crate::command::{self, Run, flag};
use crate::db::{Change, DATABASES, Random, View};
use crate::family::parse;
use crate::reply::{Answer, Fault, Reply, double, fault};

/// Bytes that a script may take at a time.
const MEMORY: usize = 128 << 20;

/// The name of a script's text in errors.
const NAME: &str = "@user_script";

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
    fn call(&mut self, args: &Args, reads: bool) -> Answer {
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
        match (self, command.run) {
            (_, Run::Write(_)) if reads => {
                Err(Fault::new("ERR Write commands are not allowed from read-only scripts."))
            }
            (Self::Change(change), run) => change.run(run, args),
            (Self::View(view), Run::Read(run)) => run(view, args),
            (Self::View(_), _) => Err(Fault::new("ERR Write commands are not allowed from read-only scripts.")),
        }
    }
}

/// A script's text without its first line if that names the engine, and whether that says that the script only reads.
fn without_shebang(text: &[u8]) -> core::result::Result<(&[u8], bool), Fault> {
    if !text.starts_with(b"#!") {
        return Ok((text, false));
    }
    let end = text.iter().position(|byte| *byte == b'\n').ok_or(Fault::new("ERR Invalid script shebang"))?;
    let first = String::from_utf8_lossy(&text[2..end]).into_owned();
    let mut words = first.split_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(Fault::made(format!("ERR Unexpected engine in script shebang: {engine}")));
    }
    let mut reads = false;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(Fault::made(format!("ERR Unknown lua shebang option: {word}")));
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            match flag {
                "no-writes" => reads = true,
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => return Err(Fault::made(format!("ERR Unexpected flag in script shebang: {flag}"))),
            }
        }
    }
    // The line's end stays, so that lines keep their numbers.
    Ok((&text[end..], reads))
}

fn new() -> Result<Lua> {
    let options = LuaOptions::new().catch_rust_panics(false);
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH, options)?;
    lua.set_memory_limit(MEMORY)?;
    Ok(lua)
}

fn text_of(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. } | Error::RuntimeError(message) => message.clone(),
        Error::CallbackError { cause, .. } => text_of(cause),
        Error::MemoryError(_) => "not enough memory".into(),
        other => other.to_string(),
    }
}

fn compile(lua: &Lua, text: &[u8], env: Option<Table>) -> core::result::Result<Function, Fault> {
    let chunk = lua.load(text).set_name(NAME).set_mode(mlua::chunk::ChunkMode::Text);
    let chunk = match env {
        Some(env) => chunk.set_environment(env),
        None => chunk,
    };
    let wrong = |what| Fault::made(format!("ERR Error compiling script (new function): {}", text_of(&what)));
    chunk.into_function().map_err(wrong)
}

/// Compiles a script.
///
/// # Errors
/// If it does not compile.
pub fn check(text: &[u8]) -> core::result::Result<(), Fault> {
    let (text, _) = without_shebang(text)?;
    compile(&new().map_err(|what| internal(&what))?, text, None).map(|_| ())
}

/// An error of no script's text.
fn internal(what: &Error) -> Fault {
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

/// The functions of `redis` that ask for no database.
fn library(lua: &Lua) -> Result<Table> {
    let redis = lua.create_table()?;
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

/// The library, and the environment of a script.
fn prepare(lua: &Lua, args: &Args, keys: usize, seed: u64) -> Result<(Table, Table)> {
    let globals = lua.globals();
    globals.raw_set("cjson", json::library(lua)?)?;
    globals.raw_set("bit", bits::library(lua)?)?;
    globals.raw_set("KEYS", words(lua, args.from(3).take(keys))?)?;
    globals.raw_set("ARGV", words(lua, args.from(3 + keys))?)?;
    seed_math(lua, seed)?;
    Ok((library(lua)?, lua.create_table()?))
}

/// Where a script is: its name, and the line.
fn place(lua: &Lua, (): ()) -> Result<(Option<&'static str>, Option<usize>)> {
    for level in 1..12 {
        let at = lua.inspect_stack(level, |frame| {
            let is = frame.source().source.as_deref() == Some(NAME);
            is.then(|| frame.current_line())
        });
        match at {
            Some(Some(line)) => return Ok((Some(NAME), line)),
            Some(None) => {}
            None => break,
        }
    }
    Ok((None, None))
}

fn words<'a>(lua: &Lua, all: impl Iterator<Item = &'a [u8]>) -> Result<Table> {
    lua.create_sequence_from(all.map(|word| lua.create_string(word)).collect::<Result<Vec<_>>>()?)
}

/// The error of a script that ended with this value.
fn ended(lua: &Lua, value: &Value, digits: &str) -> Fault {
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
    Fault::made(format!("{line} script: {digits}{place}"))
}

/// Runs a script: its text and its number of keys are the first arguments of `args`.
///
/// # Errors
/// Those of the script.
pub fn run(mut target: Target<'_, '_>, args: &Args, keys: usize) -> Answer {
    let (text, reads) = without_shebang(&args[1])?;
    let lua = new().map_err(|what| internal(&what))?;
    let seed = target.random();
    let prepared = prepare(&lua, args, keys, seed).map_err(|what| internal(&what));
    let (redis, env) = prepared?;
    let script = compile(&lua, text, Some(env.clone()))?;
    let target = RefCell::new(target);
    let three = Cell::new(false);
    let ran = lua.scope(|scope| {
        let raw = scope.create_function(|lua, values: Variadic<Value>| {
            let answer = arguments(&values).and_then(|args| target.borrow_mut().call(&args, reads));
            Ok(match answer {
                Ok(reply) => (true, convert::value(lua, &reply, three.get())?),
                Err(fault) => (false, convert::error(lua, &fault)?),
            })
        })?;
        let setresp = scope.create_function(|_, version: f64| match version {
            2.0 | 3.0 => {
                three.set(version == 3.0);
                Ok(())
            }
            _ => Err(Error::runtime("RESP version must be 2 or 3.")),
        })?;
        redis.raw_set("setresp", setresp)?;
        let is_spent = lua.create_function(|lua, ()| Ok(Budget::left(lua) == 0))?;
        let place = lua.create_function(place)?;
        let patterns = strings::library(&lua)?;
        Budget::limit(&lua)?;
        let runner: Function =
            lua.load(PRELUDE).set_name("=redis").call((raw, is_spent, place, &redis, &env, patterns))?;
        runner.call::<MultiValue>(script)
    });
    let values = match ran {
        Ok(values) => values.into_vec(),
        Err(what) => return Err(Fault::made(format!("ERR {} script: {}", text_of(&what), table::digest(&args[1])))),
    };
    match &values[..] {
        [Value::Boolean(true)] => Ok(Reply::Null),
        [Value::Boolean(true), value, ..] => convert::answer(value),
        [_, value, ..] => Err(ended(&lua, value, &table::digest(&args[1]))),
        _ => Ok(Reply::Null),
    }
}

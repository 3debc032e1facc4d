//! Runs one script, or one function of a library, in a Lua state.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{Error, Function, Lua, MultiValue, Result, Table, Value, Variadic};

use super::budget::Budget;
use super::stage::{self, LIBRARY, MEMORY, SCRIPT, Stage, staged};
use super::{convert, library, table};
use crate::acl::user::User;
use crate::args::Args;
use crate::command::{self, Run, catalog, flag};
use crate::db::functions::{self, ALLOW_OOM, Function as Registered, Library, NO_WRITES};
use crate::db::{Change, DATABASES, Random, View};
use crate::family::generic::shows_uses;
use crate::family::{parse, streams};
use crate::operation::wish;
use crate::reply::{Answer, Fault, Reply, double, fault};

/// A result whose error is reported to the author of the script.
pub type Outcome<T> = core::result::Result<T, Fault>;

/// The database on which a script works.
pub enum Target<'a, 'd> {
    /// A database that the script may change.
    Change(&'a mut Change<'d>),
    /// A database that the script may only read.
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

    /// Returns the user whose rights limit the script. `None` permits every command.
    fn rights(&self) -> Option<&User> {
        match self {
            Self::Change(change) => change.rights,
            Self::View(view) => view.rights,
        }
    }

    /// Returns the limits of the script.
    fn budget(&self) -> Rc<Budget> {
        Budget::new(match self {
            Self::Change(change) => change.deadline,
            Self::View(view) => view.deadline,
        })
    }

    /// Returns whether memory was short when the operation was made.
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

    /// Records a message to be published. The server sends it when it processes the operation's effects, because only
    /// the server knows the receivers.
    fn publish(&mut self, args: &Args, leave: &Leave) -> Answer {
        match self {
            Self::Change(change) if !leave.reads => {
                change.called(args);
                change.publish(args)
            }
            _ => Err(WRITES),
        }
    }

    /// Returns whether the user's rights permit a script to call a command. Checks nothing else.
    fn may(&self, args: &Args) -> core::result::Result<bool, Fault> {
        let command = command::find(&args[0]).filter(|command| !command.has(flag::INTERNAL));
        let command = command.filter(|command| args.len() < 2 || catalog::row(command, args).is_some());
        let command = command.ok_or(Fault::new("ERR Invalid command passed to redis.acl_check_cmd()"))?;
        Ok(self.rights().is_none_or(|user| user.check(command, args).is_ok()))
    }

    /// Carries out a command that a script calls.
    fn call(&mut self, args: &Args, leave: &Leave) -> Answer {
        let command = command::find(&args[0]).filter(|command| !command.has(flag::INTERNAL));
        let unknown = Fault::new("ERR Unknown Redis command called from script");
        let command = command.ok_or(unknown.clone())?;
        if !command.takes(args.len())
            || catalog::row(command, args).ok_or(unknown)?.is_some_and(|row| !row.takes(args.len()))
        {
            return Err(Fault::new("ERR Wrong number of args calling Redis command from script"));
        }
        let forbidden = Fault::new("ERR This Redis command is not allowed from script");
        if command.has(flag::NOSCRIPT) {
            return Err(forbidden);
        }
        if command.has(flag::BLOCKING) && streams::block(args).is_some() {
            let name = String::from_utf8_lossy(&args[0]);
            return Err(Fault::made(format!("ERR {name} command is not allowed with BLOCK option from scripts")));
        }
        if let Some(user) = self.rights() {
            user.check(command, args).map_err(|denied| denied.within())?;
        }
        match command.name {
            "select" => return self.select(&args[1]),
            "publish" | "spublish" => return self.publish(args, leave),
            _ => {}
        }
        if matches!(command.run, Run::Session) {
            return Err(forbidden);
        }
        // The next command must draw other random numbers than this one, even if this command advances no seed itself.
        self.random();
        leave.check(command)?;
        // Each replica has its own records of uses, and snapshots do not have the policy.
        if matches!(self, Self::Change(_)) && command.name == "object" && shows_uses(args) {
            return Err(forbidden);
        }
        if let Self::Change(change) = self {
            change.called(args);
        }
        match (self, command.run) {
            (Self::Change(change), run) => change.run(run, args),
            (Self::View(view), Run::Read(run)) => run(view, args),
            (Self::View(_), _) => Err(WRITES),
        }
    }
}

/// The error for a writing command in a script that may only read.
const WRITES: Fault = Fault::new("ERR Write commands are not allowed from read-only scripts.");

/// The permissions of a script's commands.
struct Leave {
    /// Whether commands may only read.
    reads: bool,
    /// Whether commands that need memory are refused. The first command that writes resets the flag, because a script
    /// must not be stopped halfway.
    full: Cell<bool>,
}

impl Leave {
    /// Returns the permissions of a script with these flags. `None` stands for a script without a line of flags.
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

/// Returns a script's text and flags. If the first line names the engine, the line is removed from the text and its
/// flags are returned.
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
    // The line break stays, so that all lines keep their numbers.
    Ok((&text[end..], Some(all)))
}

/// Returns whether the flags of a script say that it only reads.
pub fn only_reads(text: &[u8]) -> bool {
    text.starts_with(b"#!")
        && without_shebang(text).is_ok_and(|(_, flags)| flags.is_some_and(|all| all & NO_WRITES != 0))
}

/// An error of a command or of a registration. Scripts see the error as a table. A Rust function raises it: in the tail
/// call `return redis.call(…)`, a Lua function would replace its caller on the stack, and the error would not have the
/// caller's line.
#[derive(Debug)]
pub struct Raised(pub Fault);

impl core::fmt::Display for Raised {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0.0)
    }
}

impl core::error::Error for Raised {}

/// Converts a fault to a Lua error.
pub fn raise(fault: Fault) -> Error {
    Error::external(Raised(fault))
}

/// Returns the message of an error without the stack trace.
pub fn text_of(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. } | Error::RuntimeError(message) => message.clone(),
        Error::CallbackError { cause, .. } => text_of(cause),
        Error::MemoryError(_) => "not enough memory".into(),
        other => other.to_string(),
    }
}

/// Compiles a script.
///
/// # Errors
/// Returns an error if the script does not compile.
pub fn check(text: &[u8]) -> core::result::Result<(), Fault> {
    let (text, _) = without_shebang(text)?;
    stage::compile(&stage::new().map_err(|what| internal(&what))?, text, SCRIPT, None).map(|_| ())
}

/// Returns the fault for an error that does not come from the script's text.
pub fn internal(what: &Error) -> Fault {
    Fault::made(format!("ERR {}", text_of(what)))
}

/// Converts the arguments of a call to those of a command.
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
        // A script may pass the same long string many times, so the sum can be larger than a request is allowed to be.
        if args.bytes() > MEMORY {
            return Err(Fault::new("ERR not enough memory"));
        }
    }
    Ok(args)
}

fn words<'a>(lua: &Lua, all: impl Iterator<Item = &'a [u8]>) -> Result<Table> {
    lua.create_sequence_from(all.map(|word| lua.create_string(word)).collect::<Result<Vec<_>>>()?)
}

/// Returns the message of the error that ended a script, and the line at which the error occurred.
pub fn wrong(lua: &Lua, value: &Value) -> (String, String) {
    let (mut line, mut place) = (String::from("ERR unknown error"), String::new());
    match value {
        Value::Table(error) => {
            let text = |name: &str| -> Option<String> {
                let value: Value = error.raw_get(name).ok()?;
                let text = lua.coerce_string(value).inspect_err(|_| Budget::of(lua).fail());
                Some(text.ok()??.to_string_lossy())
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

/// The commands that a script has called.
struct Calls<'a, 'd> {
    target: RefCell<Target<'a, 'd>>,
    leave: Leave,
    budget: Rc<Budget>,
    /// The answers to the commands in a trial, in order.
    answers: RefCell<Vec<Answer>>,
    /// How many bytes of answers the trial may still record.
    room: Cell<usize>,
    /// How many commands the script has called since it was started, or started again.
    count: Cell<usize>,
    /// `true` if the script has chosen the types of RESP3 with `redis.setresp`.
    three: Cell<bool>,
}

impl<'a, 'd> Calls<'a, 'd> {
    /// The most bytes of answers that a trial records.
    const ROOM: usize = 256 << 10;
    /// How many bytes an answer counts as, in addition to its own size.
    const ANSWER: usize = 128;

    fn new(target: Target<'a, 'd>, leave: Leave, budget: Rc<Budget>) -> Self {
        let (answers, room, count) = (RefCell::default(), Cell::new(Self::ROOM), Cell::new(0));
        Self { target: RefCell::new(target), leave, budget, answers, room, count, three: Cell::new(false) }
    }

    /// Carries a command out. A script that was started again gets the recorded answer instead. Passes the answer to
    /// `show`.
    ///
    /// # Errors
    /// Returns an error if the script must stop, even if the caller catches the errors of commands.
    fn call<T>(&self, values: &[Value], show: impl FnOnce(&Answer) -> Result<T>) -> Result<T> {
        self.budget.point().map_err(Error::runtime)?;
        let at = self.count.replace(self.count.get() + 1);
        if let Some(answer) = self.answers.borrow().get(at) {
            return show(answer);
        }
        let answer = arguments(values).and_then(|args| self.target.borrow_mut().call(&args, &self.leave));
        if !self.budget.is_tried() {
            return show(&answer);
        }
        let bytes = Self::ANSWER + answer.as_ref().map_or(0, Reply::weight);
        self.room.set(self.room.get().saturating_sub(bytes));
        if self.room.get() == 0 {
            self.budget.fail();
        }
        let shown = show(&answer);
        self.answers.borrow_mut().push(answer);
        self.budget.spent().map_or(shown, |why| Err(Error::runtime(why)))
    }
}

/// Calls `act` on a stage that has access to a database. `name` is the text's name in error messages, and `label` is
/// the script's digest or the function's name.
fn perform(
    mut target: Target<'_, '_>,
    leave: Leave,
    (name, label): (&'static str, &dyn Fn() -> String),
    act: impl Fn(&Stage) -> Result<Outcome<MultiValue>>,
) -> Answer {
    let (budget, seed) = (target.budget(), target.random());
    let calls = Calls::new(target, leave, budget.clone());
    let ran = staged((name, seed), &budget, |stage| {
        calls.count.set(0);
        calls.three.set(false);
        let values = on_stage(stage, &calls, || act(stage))?;
        Ok(values.and_then(|values| told(&stage.lua, &values.into_vec(), calls.three.get(), label)))
    });
    ran.unwrap_or_else(|what| Err(Fault::made(format!("ERR {} script: {}", text_of(&what), label()))))
}

/// Calls `act` while the commands are available to scripts on the stage.
fn on_stage<T>(stage: &Stage, calls: &Calls<'_, '_>, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let three = &calls.three;
    stage.lua.scope(|scope| {
        let call = |lua: &Lua, values: Variadic<Value>| {
            calls.call(&values, |answer| match answer {
                Ok(reply) => convert::value(lua, reply, three.get()),
                Err(fault) => Err(raise(fault.clone())),
            })
        };
        stage.redis.raw_set("call", scope.create_function(call)?)?;
        let pcall = |lua: &Lua, values: Variadic<Value>| {
            calls.call(&values, |answer| match answer {
                Ok(reply) => convert::value(lua, reply, three.get()),
                Err(fault) => convert::error(lua, fault),
            })
        };
        stage.redis.raw_set("pcall", scope.create_function(pcall)?)?;
        let setresp = |lua: &Lua, values: Variadic<Value>| match &values[..] {
            [version] => match lua.coerce_number(version.clone())?.map(f64::trunc) {
                Some(version @ (2.0 | 3.0)) => {
                    three.set(version == 3.0);
                    Ok(())
                }
                _ => Err(Error::runtime("RESP version must be 2 or 3.")),
            },
            _ => Err(Error::runtime("redis.setresp() requires one argument.")),
        };
        stage.redis.raw_set("setresp", scope.create_function(setresp)?)?;
        let may = |_: &Lua, values: Variadic<Value>| {
            let may = arguments(&values).and_then(|args| calls.target.borrow().may(&args));
            may.map_err(raise)
        };
        stage.redis.raw_set("acl_check_cmd", scope.create_function(may)?)?;
        act()
    })
}

/// Converts the values that the prelude (`prelude.lua`, which calls the script) returned to a reply.
fn told(lua: &Lua, values: &[Value], three: bool, label: &dyn Fn() -> String) -> Answer {
    match values {
        [Value::Boolean(true)] => Ok(Reply::Null),
        [Value::Boolean(true), value, ..] => convert::answer(value, three, &Budget::of(lua)),
        [_, value, ..] => {
            stage::note_value(lua, value);
            let (line, place) = wrong(lua, value);
            Err(Fault::made(format!("{line} script: {}{place}", label())))
        }
        _ => Ok(Reply::Null),
    }
}

/// Runs a script. Its text and its number of keys are the first arguments of `args`.
///
/// # Errors
/// Returns the errors of the script.
pub fn run(target: Target<'_, '_>, args: &Args, keys: usize) -> Answer {
    let (text, flags) = without_shebang(&args[1])?;
    let leave = Leave::of(&target, flags)?;
    let label = || table::digest(&args[1]);
    perform(target, leave, (SCRIPT, &label), |stage| {
        let script = match stage.compile(text) {
            Ok(script) => script,
            Err(fault) => return Ok(Err(fault)),
        };
        let (keys, args) = (words(&stage.lua, args.from(3).take(keys))?, words(&stage.lua, args.from(3 + keys))?);
        stage.run.call((script, keys, args, false)).map(Ok)
    })
}

/// Calls a function. Its number of keys is the second argument of `args`.
///
/// The library's text is run again for each call, as when it was loaded. It registers the same functions, and does not
/// see what another call has left in the library's variables. A call on only one replica therefore changes nothing.
///
/// # Errors
/// Returns the errors of the function.
pub fn call(target: Target<'_, '_>, library: &Library, function: &Registered, args: &Args, keys: usize) -> Answer {
    let leave = Leave::of(&target, Some(function.flags))?;
    let label = || function.name.clone();
    perform(target, leave, (LIBRARY, &label), |stage| {
        let (_, callbacks) = library::register(stage, library.text())?.map_err(|fault| Error::runtime(fault.0))?;
        let callback: Function = callbacks.raw_get(&*function.name)?;
        let (keys, args) = (words(&stage.lua, args.from(3).take(keys))?, words(&stage.lua, args.from(3 + keys))?);
        stage.run.call((callback, keys, args, true)).map(Ok)
    })
}

//! The settings of the library `cjson`, and the functions by which a script reads and changes them.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{IntoLua, Lua, MultiValue, Result, Table, Value};

use super::super::given::{Given, Said, add};

/// What `encode` writes for a number that JSON does not have: not a number, or infinite.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// Nothing: the number is an error.
    Refused,
    /// The number as C writes it.
    Written,
    /// `null`.
    Null,
}

/// When an array with holes is too sparse to be written as one.
#[derive(Clone, Copy)]
pub struct Sparse {
    /// Whether an array that is too sparse is written as an object. If not, the array is an error.
    pub is_converted: bool,
    /// How many times its number of elements an array may be long. 0: any number.
    pub ratio: i64,
    /// Any array may be this long.
    pub safe: i64,
}

/// The settings. Each script begins with the default ones.
#[derive(Clone, Copy)]
pub struct Settings {
    pub sparse: Sparse,
    /// How many tables may contain each other in a value to encode.
    pub encode_depth: i64,
    /// How many arrays and objects may contain each other in a text to decode.
    pub decode_depth: i64,
    /// Significant decimal digits of an encoded number.
    pub digits: i64,
    pub encode_invalid: Invalid,
    // The two settings below have no effect. No buffer is kept, and the parser refuses what JSON does not have.
    keep_buffer: bool,
    decode_invalid: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sparse: Sparse { is_converted: false, ratio: 2, safe: 10 },
            encode_depth: 1000,
            decode_depth: 1000,
            digits: 14,
            encode_invalid: Invalid::Refused,
            keep_buffer: true,
            decode_invalid: true,
        }
    }
}

/// The settings of one library, which its functions share.
pub type Shared = Rc<Cell<Settings>>;

/// An integer argument, if there is one, in the place of the setting.
fn integer(given: &Given<'_>, at: usize, setting: &mut i64, least: i64, most: i64) -> Said<()> {
    let number = given.whole(at, *setting)?;
    if !(least..=most).contains(&number) {
        return Err(given.wrong(at, &format!("expected integer between {least} and {most}")));
    }
    *setting = number;
    Ok(())
}

/// The index of the option that an argument names, if there is an argument. `true` and `false` are the options 1 and 0.
fn option(given: &Given<'_>, at: usize, options: &[&str]) -> Said<Option<usize>> {
    match given.values().get(at - 1) {
        None | Some(Value::Nil) => Ok(None),
        Some(Value::Boolean(is)) => Ok(Some(usize::from(*is))),
        Some(_) => {
            let text = given.text(at)?.to_string_lossy();
            let index = options.iter().position(|option| *option == text);
            index.map(Some).ok_or_else(|| given.wrong(at, &format!("invalid option '{text}'")))
        }
    }
}

fn flag(given: &Given<'_>, setting: &mut bool) -> Said<()> {
    *setting = option(given, 1, &["off", "on"])?.map_or(*setting, |index| index == 1);
    Ok(())
}

/// Adds a function that takes at most `most` arguments, changes the settings, and returns what `run` tells of them.
fn add_setting<const N: usize>(
    lua: &Lua,
    table: &Table,
    (name, shared): (&'static str, &Shared),
    run: fn(&Given<'_>, &mut Settings) -> Said<[Told; N]>,
) -> Result<()> {
    let shared = shared.clone();
    add(lua, table, name, move |given| {
        if given.values().len() > N {
            return Ok(Err(given.wrong(N + 1, "found too many arguments")));
        }
        let mut settings = shared.get();
        let told = run(given, &mut settings);
        shared.set(settings);
        let told = match told {
            Ok(told) => told,
            Err(what) => return Ok(Err(what)),
        };
        told.into_iter().map(|one| one.into_lua(given.lua)).collect::<Result<MultiValue>>().map(Ok)
    })
}

/// A setting's value as a script gets it.
enum Told {
    Is(bool),
    Number(i64),
    Null,
}

impl IntoLua for Told {
    fn into_lua(self, lua: &Lua) -> Result<Value> {
        match self {
            Self::Is(is) => is.into_lua(lua),
            Self::Number(number) => number.into_lua(lua),
            Self::Null => "null".into_lua(lua),
        }
    }
}

const MOST: i64 = i32::MAX as i64;

/// Adds the functions to a library.
pub fn add_all(lua: &Lua, table: &Table, shared: &Shared) -> Result<()> {
    add_setting(lua, table, ("encode_sparse_array", shared), |given, settings| {
        let sparse = &mut settings.sparse;
        flag(given, &mut sparse.is_converted)?;
        integer(given, 2, &mut sparse.ratio, 0, MOST)?;
        integer(given, 3, &mut sparse.safe, 0, MOST)?;
        Ok([Told::Is(sparse.is_converted), Told::Number(sparse.ratio), Told::Number(sparse.safe)])
    })?;
    add_setting(lua, table, ("encode_max_depth", shared), |given, settings| {
        integer(given, 1, &mut settings.encode_depth, 1, MOST)?;
        Ok([Told::Number(settings.encode_depth)])
    })?;
    add_setting(lua, table, ("decode_max_depth", shared), |given, settings| {
        integer(given, 1, &mut settings.decode_depth, 1, MOST)?;
        Ok([Told::Number(settings.decode_depth)])
    })?;
    add_setting(lua, table, ("encode_number_precision", shared), |given, settings| {
        integer(given, 1, &mut settings.digits, 1, 14)?;
        Ok([Told::Number(settings.digits)])
    })?;
    add_setting(lua, table, ("encode_keep_buffer", shared), |given, settings| {
        flag(given, &mut settings.keep_buffer)?;
        Ok([Told::Is(settings.keep_buffer)])
    })?;
    add_setting(lua, table, ("decode_invalid_numbers", shared), |given, settings| {
        flag(given, &mut settings.decode_invalid)?;
        Ok([Told::Is(settings.decode_invalid)])
    })?;
    add_setting(lua, table, ("encode_invalid_numbers", shared), |given, settings| {
        if let Some(index) = option(given, 1, &["off", "on", "null"])? {
            settings.encode_invalid = [Invalid::Refused, Invalid::Written, Invalid::Null][index];
        }
        Ok([match settings.encode_invalid {
            Invalid::Refused => Told::Is(false),
            Invalid::Written => Told::Is(true),
            Invalid::Null => Told::Null,
        }])
    })
}

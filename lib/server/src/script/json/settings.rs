//! The settings of the library `cjson`, and the functions by which a script reads and changes them.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{IntoLua, Lua, MultiValue, Result, Table, Value};

use super::super::given::{Given, Said, add};

/// How `encode` treats a number that JSON cannot represent: NaN or an infinity.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Invalid {
    /// The call fails.
    Refused,
    /// The text is `nan`, `inf` or `-inf`.
    Written,
    /// The text is `null`.
    Null,
}

/// The limits of sparse arrays. An array is too sparse if it is longer than both limits allow.
#[derive(Clone, Copy)]
pub struct Sparse {
    /// Tells whether an array that is too sparse is written as an object. Otherwise the call fails.
    pub is_converted: bool,
    /// The largest ratio of an array's length to its number of elements. 0 means no limit.
    pub ratio: i64,
    /// The length up to which no array is too sparse.
    pub safe: i64,
}

/// The settings of one library. Each script begins with the default settings, on every replica.
#[derive(Clone, Copy)]
pub struct Settings {
    pub sparse: Sparse,
    /// The deepest nesting of tables that `encode` accepts.
    pub encode_depth: i64,
    /// The deepest nesting of arrays and objects that `decode` accepts.
    pub decode_depth: i64,
    /// Significant decimal digits of an encoded number.
    pub digits: i64,
    pub encode_invalid: Invalid,
    // Scripts can read and change the two settings below, which have no effect: no buffer is kept between calls, and the
    // parser refuses the numbers that JSON does not have.
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

/// The settings of one library, shared by its functions.
pub type Shared = Rc<Cell<Settings>>;

/// Assigns an integer argument to the setting if the argument is given.
fn integer(given: &Given<'_>, at: usize, setting: &mut i64, least: i64, most: i64) -> Said<()> {
    let number = given.whole(at, *setting)?;
    if !(least..=most).contains(&number) {
        return Err(given.wrong(at, &format!("expected integer between {least} and {most}")));
    }
    *setting = number;
    Ok(())
}

/// Returns the index of the option that an argument names, or `None` without an argument. `false` and `true` name the options
/// 0 and 1.
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

/// Adds a function of at most `N` arguments to a library. It changes the settings, and returns the `N` values of `run`.
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

/// The value of a setting as the script receives it.
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

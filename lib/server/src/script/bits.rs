//! The library `bit`: operations on 32-bit integers.

use mlua::{Lua, Result, Table};

use super::given::{Given, add};

/// Returns the low 32 bits of a number, rounded as Lua's library `bit` does: adding 2^52 + 2^51 moves these bits to the
/// low end of the sum's mantissa.
fn bits(number: f64) -> i32 {
    const ENDS_AT_ONES: f64 = 6_755_399_441_055_744.0;
    (number + ENDS_AT_ONES).to_bits() as u32 as i32
}

/// Adds an operation with a number and a shift count.
fn shift(lua: &Lua, table: &Table, name: &'static str, run: fn(i32, u32) -> i32) -> Result<()> {
    let run = move |given: &Given<'_>| {
        let number = bits(given.number(1)?);
        Ok(f64::from(run(number, bits(given.number(2)?) as u32 & 31)))
    };
    add(lua, table, name, move |given| Ok(run(given)))
}

fn hex(number: i32, digits: i32) -> String {
    let count = digits.unsigned_abs().min(8) as usize;
    let all = format!("{number:08x}");
    let kept = &all[8 - count..];
    if digits < 0 { kept.to_ascii_uppercase() } else { kept.to_owned() }
}

/// Returns the library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let one = |name: &'static str, run: fn(i32) -> i32| {
        add(lua, &table, name, move |given| Ok(given.number(1).map(|number| f64::from(run(bits(number))))))
    };
    one("tobit", |number| number)?;
    one("bnot", |number| !number)?;
    one("bswap", i32::swap_bytes)?;
    let many = |name: &'static str, join: fn(i32, i32) -> i32| {
        let joined = move |given: &Given<'_>| {
            let first = bits(given.number(1)?);
            // The arguments are examined from the last to the first. If several are not numbers, the error is that of
            // the last one.
            (2..=given.values().len()).rev().try_fold(first, |joined, at| Ok(join(joined, bits(given.number(at)?))))
        };
        add(lua, &table, name, move |given| Ok(joined(given).map(f64::from)))
    };
    many("band", |one, other| one & other)?;
    many("bor", |one, other| one | other)?;
    many("bxor", |one, other| one ^ other)?;
    shift(lua, &table, "lshift", |number, places| number << places)?;
    shift(lua, &table, "rshift", |number, places| (number as u32 >> places) as i32)?;
    shift(lua, &table, "arshift", |number, places| number >> places)?;
    shift(lua, &table, "rol", i32::rotate_left)?;
    shift(lua, &table, "ror", i32::rotate_right)?;
    let tohex = |given: &Given<'_>| {
        let number = bits(given.number(1)?);
        let digits = if given.values().len() > 1 { bits(given.number(2)?) } else { 8 };
        Ok(hex(number, digits))
    };
    add(lua, &table, "tohex", move |given| Ok(tohex(given)))?;
    Ok(table)
}

//! The library `bit`: operations on 32 bits.

use mlua::{Lua, Result, Table, Variadic};

/// A number's low 32 bits, rounded as the library for Lua does: the sum has them at its end.
fn bits(number: f64) -> i32 {
    const ENDS_AT_ONES: f64 = 6_755_399_441_055_744.0;
    (number + ENDS_AT_ONES).to_bits() as u32 as i32
}

fn joined(all: &[f64], start: i32, join: fn(i32, i32) -> i32) -> f64 {
    all.iter().fold(start, |joined, number| join(joined, bits(*number))).into()
}

/// Adds an operation of a number and a count of places.
fn shift(lua: &Lua, table: &Table, name: &str, run: fn(i32, u32) -> i32) -> Result<()> {
    let run = move |_: &Lua, (number, places): (f64, f64)| Ok(f64::from(run(bits(number), bits(places) as u32 & 31)));
    table.raw_set(name, lua.create_function(run)?)
}

fn hex(number: i32, digits: i32) -> String {
    let count = digits.unsigned_abs().min(8) as usize;
    let all = format!("{number:08x}");
    let kept = &all[8 - count..];
    if digits < 0 { kept.to_ascii_uppercase() } else { kept.to_owned() }
}

/// The library.
pub fn library(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let one = |name: &str, run: fn(i32) -> i32| {
        table.raw_set(name, lua.create_function(move |_, number: f64| Ok(f64::from(run(bits(number)))))?)
    };
    one("tobit", |number| number)?;
    one("bnot", |number| !number)?;
    one("bswap", i32::swap_bytes)?;
    let many = |name: &str, start: i32, join: fn(i32, i32) -> i32| {
        let run = move |_: &Lua, (first, rest): (f64, Variadic<f64>)| Ok(joined(&rest, join(start, bits(first)), join));
        table.raw_set(name, lua.create_function(run)?)
    };
    many("band", -1, |one, other| one & other)?;
    many("bor", 0, |one, other| one | other)?;
    many("bxor", 0, |one, other| one ^ other)?;
    shift(lua, &table, "lshift", |number, places| number << places)?;
    shift(lua, &table, "rshift", |number, places| (number as u32 >> places) as i32)?;
    shift(lua, &table, "arshift", |number, places| number >> places)?;
    shift(lua, &table, "rol", i32::rotate_left)?;
    shift(lua, &table, "ror", i32::rotate_right)?;
    let run = |_: &Lua, (number, digits): (f64, Option<f64>)| Ok(hex(bits(number), digits.map_or(8, bits)));
    table.raw_set("tohex", lua.create_function(run)?)?;
    Ok(table)
}

//! Arguments as numbers, as Redis reads them.

use crate::reply::{Fault, fault};

/// An integer in its shortest form.
pub fn integer(bytes: &[u8]) -> Result<i64, Fault> {
    integer_or(bytes, fault::NOT_AN_INTEGER)
}

/// An integer in its shortest form, or this error.
pub fn integer_or(bytes: &[u8], error: Fault) -> Result<i64, Fault> {
    crate::db::value::canonical(bytes).ok_or(error)
}

/// A number that is not negative.
pub fn positive(bytes: &[u8]) -> Result<u64, Fault> {
    integer(bytes).ok().and_then(|number| u64::try_from(number).ok()).ok_or(fault::NOT_POSITIVE)
}

/// A floating-point number. "nan" is none.
pub fn float(bytes: &[u8]) -> Result<f64, Fault> {
    float_or(bytes, fault::NOT_A_FLOAT)
}

/// A floating-point number, or this error.
pub fn float_or(bytes: &[u8], error: Fault) -> Result<f64, Fault> {
    let number = number(bytes).ok_or(error.clone())?;
    let said = bytes.iter().find(|byte| !b"+-".contains(byte)).is_some_and(|byte| b"iI".contains(byte));
    if is_lost(bytes, number) || (number.is_infinite() && !said) { Err(error) } else { Ok(number) }
}

/// Returns whether a number is so small that nothing is left of it: as in C, it is out of range then.
pub fn is_lost(bytes: &[u8], number: f64) -> bool {
    let mut digits = bytes.iter().take_while(|byte| !b"eEpP".contains(byte));
    number == 0.0 && digits.any(|byte| (b'1'..=b'9').contains(byte))
}

/// A floating-point number, however large or small it is said to be. "nan" is none.
pub fn number(bytes: &[u8]) -> Option<f64> {
    let text = core::str::from_utf8(bytes).ok().filter(|text| text.len() <= 255)?;
    text.parse::<f64>().ok().or_else(|| hexadecimal(text)).filter(|number| !number.is_nan())
}

/// "0x1p3" and the like, as C reads them; without a fraction.
fn hexadecimal(text: &str) -> Option<f64> {
    let (sign, digits) =
        text.strip_prefix('-').map_or((1.0, text.strip_prefix('+').unwrap_or(text)), |rest| (-1.0, rest));
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    u64::from_str_radix(digits, 16).ok().map(|number| sign * number as f64)
}

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
    let text = core::str::from_utf8(bytes).ok().filter(|text| text.len() <= 255).ok_or(error.clone())?;
    let number = text.parse::<f64>().or_else(|_| hexadecimal(text).ok_or(error.clone()))?;
    let said = text.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
    if number.is_nan() || (number.is_infinite() && !said) { Err(error) } else { Ok(number) }
}

/// "0x1p3" and the like, as C reads them; without a fraction.
fn hexadecimal(text: &str) -> Option<f64> {
    let (sign, digits) =
        text.strip_prefix('-').map_or((1.0, text.strip_prefix('+').unwrap_or(text)), |rest| (-1.0, rest));
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    u64::from_str_radix(digits, 16).ok().map(|number| sign * number as f64)
}

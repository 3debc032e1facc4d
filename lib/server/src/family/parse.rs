//! Parses arguments as numbers, as Redis does.

use crate::reply::{Fault, fault};

/// Parses an integer in its shortest decimal form.
pub fn integer(bytes: &[u8]) -> Result<i64, Fault> {
    integer_or(bytes, fault::NOT_AN_INTEGER)
}

/// Parses an integer in its shortest decimal form. Returns `error` if the text is not one.
pub fn integer_or(bytes: &[u8], error: Fault) -> Result<i64, Fault> {
    crate::db::value::canonical(bytes).ok_or(error)
}

/// Parses an integer that is not negative.
pub fn positive(bytes: &[u8]) -> Result<u64, Fault> {
    integer(bytes).ok().and_then(|number| u64::try_from(number).ok()).ok_or(fault::NOT_POSITIVE)
}

/// Parses a floating-point number. NaN is refused.
pub fn float(bytes: &[u8]) -> Result<f64, Fault> {
    float_or(bytes, fault::NOT_A_FLOAT)
}

/// Parses a floating-point number. Returns `error` if the text is not one. NaN and out-of-range numbers are refused,
/// but infinities may be written out.
pub fn float_or(bytes: &[u8], error: Fault) -> Result<f64, Fault> {
    let number = number(bytes).ok_or(error.clone())?;
    let said = bytes.iter().find(|byte| !b"+-".contains(byte)).is_some_and(|byte| b"iI".contains(byte));
    if is_lost(bytes, number) || (number.is_infinite() && !said) { Err(error) } else { Ok(number) }
}

/// Returns whether a number other than zero has become 0 because it is too small. C reports such a number as out of
/// range.
pub fn is_lost(bytes: &[u8], number: f64) -> bool {
    let mut digits = bytes.iter().take_while(|byte| !b"eEpP".contains(byte));
    number == 0.0 && digits.any(|byte| (b'1'..=b'9').contains(byte))
}

/// Parses a floating-point number. Too large numbers become infinite, and too small numbers become 0. NaN is refused.
pub fn number(bytes: &[u8]) -> Option<f64> {
    let text = core::str::from_utf8(bytes).ok().filter(|text| text.len() <= 255)?;
    text.parse::<f64>().ok().or_else(|| hexadecimal(text)).filter(|number| !number.is_nan())
}

/// Parses a hexadecimal integer, such as "0x1f", as C does. Fractions and exponents are not supported.
fn hexadecimal(text: &str) -> Option<f64> {
    let (sign, digits) =
        text.strip_prefix('-').map_or((1.0, text.strip_prefix('+').unwrap_or(text)), |rest| (-1.0, rest));
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    u64::from_str_radix(digits, 16).ok().map(|number| sign * number as f64)
}

/// Returns the bytes before the first zero byte. There a text ends in C, and so in Redis's errors.
pub fn before_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

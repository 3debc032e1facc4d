//! Sums of 80-bit floating-point numbers, which have a mantissa of 64 bits and are C's `long double` on x86.
//! `INCRBYFLOAT` and `HINCRBYFLOAT` answer with such sums: 3.0 + 1.1 has to be 4.1 on every processor, and so in all
//! replicas.
//!
//! Unlike the processor's, the exponents here have no limit. Callers refuse sums that are out of the range of a `long
//! double`.

use super::hexadecimal::Hexadecimal;

/// A finite number: `sign` · `mantissa` · 2^`exponent`. The mantissa's highest bit is set, unless the mantissa is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// An unsigned integer of any length in base 2^32, least significant digit first.
#[derive(Clone, Default)]
struct Big(Vec<u32>);

impl Big {
    fn times_add(&mut self, factor: u32, add: u32) {
        let mut carry = u64::from(add);
        for digit in &mut self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn bits(&self) -> i32 {
        self.0.last().map_or(0, |top| self.0.len() as i32 * 32 - top.leading_zeros() as i32)
    }

    fn shifted(&self, by: u32) -> Self {
        let mut digits = vec![0; by as usize / 32];
        digits.extend_from_slice(&self.0);
        let mut shifted = Self(digits);
        shifted.times_add(1 << (by % 32), 0);
        shifted
    }

    fn at_least(&self, other: &Self) -> bool {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_ge()
    }

    fn subtract(&mut self, other: &Self) {
        let mut borrow = 0_i64;
        for (at, digit) in self.0.iter_mut().enumerate() {
            let value = i64::from(*digit) - i64::from(other.0.get(at).copied().unwrap_or(0)) + borrow;
            *digit = value as u32;
            borrow = value >> 32;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Divides by 10^9. Returns the remainder.
    fn nine_digits(&mut self) -> u32 {
        let mut rest = 0_u64;
        for digit in self.0.iter_mut().rev() {
            rest = rest << 32 | u64::from(*digit);
            *digit = (rest / 1_000_000_000) as u32;
            rest %= 1_000_000_000;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        rest as u32
    }
}

impl Extended {
    const ZERO: Self = Self { negative: false, mantissa: 0, exponent: 0 };

    /// The number of bytes from which on a text is refused, as in Redis: parsing takes quadratic time.
    const TOO_LONG: usize = 5 << 10;

    /// Returns the number nearest to a decimal or hexadecimal text. Returns `None` if the text is neither, if it is too
    /// long, or if its exponent is too large or too small.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() >= Self::TOO_LONG {
            return None;
        }
        let text = core::str::from_utf8(text).ok()?;
        if let Some(hexadecimal) = Hexadecimal::parse(text) {
            return Self::hexadecimal(hexadecimal);
        }
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (digits, power) = match digits.split_once(['e', 'E']) {
            Some((digits, power)) => (digits, power.parse::<i32>().ok()?),
            None => (digits, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = || whole.bytes().chain(fraction.bytes());
        if all().next().is_none() || !all().all(|digit| digit.is_ascii_digit()) || power.abs() > 4_900 {
            return None;
        }
        let mut number = Big::default();
        all().for_each(|digit| number.times_add(10, u32::from(digit - b'0')));
        let power = power - fraction.len() as i32;
        let mut divisor = Big(vec![1]);
        for _ in 0..power.abs() {
            if power > 0 { number.times_add(10, 0) } else { divisor.times_add(10, 0) }
        }
        Some(Self { negative, ..Self::quotient(number, divisor) })
    }

    /// Returns the nearest number. Returns `None` if C reports that the number is out of a `long double`'s range: it is at
    /// least 2^16384, or becomes 0 because it is not above 2^-16446.
    fn hexadecimal(number: Hexadecimal) -> Option<Self> {
        let Hexadecimal { negative, bits, exponent } = number;
        if bits == 0 {
            return Some(Self::ZERO);
        }
        let least = number.magnitude() < -16_446 || number.magnitude() == -16_446 && bits.is_power_of_two();
        let rounded = Self { negative, ..Self::round(bits, exponent) };
        if least || rounded.is_huge() { None } else { Some(rounded) }
    }

    fn quotient(number: Big, divisor: Big) -> Self {
        if number.bits() == 0 {
            return Self::ZERO;
        }
        // The quotient gets 65 or 66 bits, so that at least one bit after the mantissa's 64 decides how to round.
        let shift = 65 - (number.bits() - divisor.bits());
        let (mut rest, divisor) =
            if shift >= 0 { (number.shifted(shift as u32), divisor) } else { (number, divisor.shifted(-shift as u32)) };
        let mut quotient = 0_u128;
        for bit in (0..=65).rev() {
            let part = divisor.shifted(bit);
            if rest.at_least(&part) {
                rest.subtract(&part);
                quotient |= 1 << bit;
            }
        }
        Self::round(quotient << 2 | u128::from(rest.bits() > 0), -shift - 2)
    }

    /// Returns the number nearest to `bits` · 2^`exponent`. Ties go to the even mantissa. The lowest bit of `bits` may
    /// stand for all lower bits: it is set if any of them is set.
    fn round(bits: u128, mut exponent: i32) -> Self {
        if bits == 0 {
            return Self::ZERO;
        }
        let length = 128 - bits.leading_zeros() as i32;
        let drop = length - 64;
        exponent += drop;
        if drop <= 0 {
            return Self { negative: false, mantissa: (bits << -drop) as u64, exponent };
        }
        let (kept, half) = (bits >> drop, 1_u128 << (drop - 1));
        let lost = bits & ((1 << drop) - 1);
        let kept = kept + u128::from(lost > half || (lost == half && kept & 1 == 1));
        let carry = kept >> 64 != 0;
        Self {
            negative: false,
            mantissa: if carry { 1 << 63 } else { kept as u64 },
            exponent: exponent + i32::from(carry),
        }
    }

    /// Returns the rounded sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (large, small) = if (self.mantissa == 0, other.exponent, other.mantissa)
            > (other.mantissa == 0, self.exponent, self.mantissa)
        {
            (other, self)
        } else {
            (self, other)
        };
        let (large, small) = if large.mantissa == 0 { (small, large) } else { (large, small) };
        if small.mantissa == 0 {
            return large;
        }
        let distance = (large.exponent - small.exponent) as u32;
        let wide = u128::from(large.mantissa) << 62;
        let narrow = u128::from(small.mantissa) << 62;
        let shifted = if distance < 128 { narrow >> distance } else { 0 };
        let lost = distance >= 128 || shifted << distance != narrow;
        // The lowest bit is set if any bit below it was shifted out.
        let shifted = shifted | u128::from(lost);
        let sum = if large.negative == small.negative { wide + shifted } else { wide - shifted };
        let sum = Self::round(sum, large.exponent - 62);
        Self { negative: large.negative && sum.mantissa != 0, ..sum }
    }

    /// Returns whether the number is out of the range of a `long double`.
    pub fn is_huge(self) -> bool {
        self.mantissa != 0 && self.exponent + 64 > 16_384
    }

    /// Returns the decimal text, with at most 17 digits after the decimal point and without trailing zeros.
    pub fn text(self) -> String {
        let mut whole = Big::default();
        let mut fraction = 0;
        if self.exponent >= 0 {
            whole = Big(vec![self.mantissa as u32, (self.mantissa >> 32) as u32]).shifted(self.exponent as u32);
        } else {
            let scaled = u128::from(self.mantissa) * 10_u128.pow(17);
            let by = self.exponent.unsigned_abs();
            let kept = if by < 128 { scaled >> by } else { 0 };
            let lost = if by < 128 { scaled & ((1 << by) - 1) } else { 0 };
            let half = if by <= 128 { 1 << (by - 1) } else { u128::MAX };
            let kept = kept + u128::from(lost > half || (lost == half && kept & 1 == 1));
            fraction = kept % 10_u128.pow(17);
            let kept = kept / 10_u128.pow(17);
            whole.0.extend([kept as u32, (kept >> 32) as u32]);
        }
        let mut groups = Vec::new();
        while whole.0.iter().any(|digit| *digit != 0) {
            groups.push(whole.nine_digits());
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        groups.iter().rev().for_each(|group| text += &format!("{group:09}"));
        if fraction != 0 {
            text += &format!(".{fraction:017}");
            text.truncate(text.trim_end_matches('0').len());
        }
        if self.negative && text != "0" { format!("-{text}") } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_long_doubles() {
        for (one, other, sum) in [
            ("3.0", "1.1", "4.1"),
            ("0.1", "0.2", "0.3"),
            ("10.5", "-10.5", "0"),
            ("5.0e3", "200", "5200"),
            ("1e30", "0.5", "1000000000000000000024696061952"),
            ("-1.5", "0.25", "-1.25"),
            ("0", "1e-18", "0"),
            ("2", "121.28571428571429", "123.28571428571429"),
            ("0", "112.28571428571429", "112.28571428571429"),
            ("0", "123456789.123456789", "123456789.12345678899873747"),
        ] {
            let sum_of = |one: &str, other: &str| {
                Extended::parse(one.as_bytes()).unwrap().plus(Extended::parse(other.as_bytes()).unwrap()).text()
            };
            assert_eq!((sum_of(one, other), sum_of(other, one)), (sum.into(), sum.into()));
        }
        assert_eq!(Extended::parse(b"1e"), None);
        let digits = |count: usize| Extended::parse("1".repeat(count).as_bytes());
        assert!(digits(5_119).is_some_and(Extended::is_huge));
        assert_eq!(digits(5_120), None);
    }
}

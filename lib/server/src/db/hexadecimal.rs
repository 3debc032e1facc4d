//! Hexadecimal numbers as C's `strtod` and `strtold` take them: "0x1f", "-0x.8p-3". Redis takes them wherever it takes
//! floating-point numbers.

/// A number before it is rounded: `bits` · 2^`exponent`. The lowest bit of `bits` may stand for all lower bits: it is set if
/// any of them is set. `bits` has at least 64 bits then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hexadecimal {
    /// `true` if the number has a minus sign.
    pub negative: bool,
    /// The first bits of the number. If `bits` is 0, the number is 0.
    pub bits: u128,
    /// The weight of the lowest bit is 2 to the power of this number. The exponent of a text is limited to ±2^29, which
    /// is out of every range.
    pub exponent: i32,
}

impl Hexadecimal {
    /// Parses a text. Returns `None` if the text is no hexadecimal number, or has bytes after one. O(length).
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, digits) =
            text.strip_prefix('-').map_or((false, text.strip_prefix('+').unwrap_or(text)), |rest| (true, rest));
        let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
        let (digits, power) = match digits.split_once(['p', 'P']) {
            Some((digits, power)) => (digits, self::power(power)?),
            None => (digits, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (mut bits, mut lost) = (0_u128, 0);
        for digit in whole.chars().chain(fraction.chars()) {
            let digit = u128::from(digit.to_digit(16)?);
            if bits >> 120 == 0 {
                bits = bits << 4 | digit;
            } else {
                lost += 4;
                bits |= u128::from(digit > 0);
            }
        }
        let digits = lost - 4 * i32::try_from(fraction.len()).ok()?;
        Some(Self { negative, bits, exponent: power + digits })
    }

    /// Returns the exponent m of the highest bit: the number without its sign is at least 2^m and less than 2^(m + 1).
    /// `bits` must not be 0.
    pub fn magnitude(self) -> i32 {
        self.exponent + 127 - self.bits.leading_zeros() as i32
    }

    /// Returns the nearest number of 64 bits, ties to even. Too large numbers become infinite, too small numbers 0.
    pub fn double(self) -> f64 {
        let sign = if self.negative { -1.0 } else { 1.0 };
        if self.bits == 0 || self.magnitude() < -1_075 {
            return sign * 0.0;
        }
        if self.magnitude() > 1_023 {
            return sign * f64::INFINITY;
        }
        // A number below 2^-1022 has fewer than 53 bits, and perhaps none. In this case rounding makes it 2^-1074 or 0.
        let kept = 53 - (-1_022 - self.magnitude()).max(0);
        let bits = self.bits << self.bits.leading_zeros();
        let (above, below) = if kept == 0 { (0, bits) } else { (bits >> (128 - kept), bits << kept) };
        let up = below > 1 << 127 || below == 1 << 127 && above & 1 == 1;
        // A carry out of the mantissa increments the exponent, which is above it.
        let normal = (self.magnitude() + 1_022).max(0) as u64;
        sign * f64::from_bits((normal << 52) + above as u64 + u64::from(up))
    }
}

/// Parses the digits of an exponent, with or without a sign.
fn power(text: &str) -> Option<i32> {
    let (negative, digits) =
        text.strip_prefix('-').map_or((false, text.strip_prefix('+').unwrap_or(text)), |rest| (true, rest));
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // No number of digits that a text can have makes up for such an exponent.
    let power = digits.parse::<i32>().unwrap_or(i32::MAX).min(1 << 29);
    Some(if negative { -power } else { power })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn double(text: &str) -> f64 {
        Hexadecimal::parse(text).unwrap().double()
    }

    #[test]
    fn texts() {
        for (text, number) in
            [("0x1p3", 8.0), ("-0X1.8", -1.5), ("+0x.8P+1", 1.0), ("0x1.p-3", 0.125), ("0xep1", 28.0), ("0x0p99", 0.0)]
        {
            assert_eq!(double(text), number, "{text}");
        }
        for text in ["0x", "0x.", "0x.p1", "0xp3", "0x1p", "0x1p+", "0x1p3.5", "0x+1", "0x1p3x", "1p3", "0x1_0", "0x1 "]
        {
            assert_eq!(Hexadecimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn doubles_are_the_nearest() {
        let least = f64::from_bits(1);
        for (text, number) in [
            ("0x1.fffffffffffff7", 2.0 - f64::EPSILON),
            ("0x1.fffffffffffff8", 2.0),
            ("0x1.00000000000008", 1.0),
            ("0x1.000000000000080000000000000000000000000000001", 1.0 + f64::EPSILON),
            ("0x1.00000000000018", 1.0 + 2.0 * f64::EPSILON),
            ("0x123456789abcdef0123456789abcdef0123456789", 1.662_864_085_140_938_4e48),
            ("0x1.fffffffffffff7fp1023", f64::MAX),
            ("0x1.fffffffffffff8p1023", f64::INFINITY),
            ("-0x1p99999999999999999999", f64::NEG_INFINITY),
            ("0x1p-1022", f64::MIN_POSITIVE),
            ("0x1.fffffffffffff8p-1023", f64::MIN_POSITIVE),
            ("0x1.8p-1074", 2.0 * least),
            ("0x1p-1074", least),
            ("0x1.00000001p-1075", least),
            ("0x1p-1075", 0.0),
            ("0x1p-99999999999999999999", 0.0),
        ] {
            assert_eq!(double(text), number, "{text}");
        }
    }

    /// Every double is written with all of its digits and read again.
    #[test]
    fn doubles_are_read_again() {
        let mut bits = 1_u64;
        for _ in 0..10_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = f64::from_bits(bits & !(1 << 63));
            if !number.is_finite() {
                continue;
            }
            let (high, low) = (bits << 1 >> 53, bits << 12 >> 12);
            let text = format!("0x{}.{low:013x}p{}", u8::from(high > 0), high.max(1) as i64 - 1_023);
            assert_eq!(double(&text), number, "{text}");
        }
    }
}

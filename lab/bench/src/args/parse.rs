//! Parsers of options' values. For a value out of its limits, each parser returns one sentence as its error.

/// How long to warm up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warm {
    /// Until the throughput is steady.
    Auto,
    /// A number of virtual microseconds.
    Micros(u64),
}

/// Parses a positive number, with underscores and with `k`, `M` or `G` (powers of a thousand) or an exponent if wanted.
pub fn count(text: &str) -> Result<usize, String> {
    let wrong = || format!("'{text}' is not a positive number (as in 1000, 1_000, 5k, 10M, 1e9)");
    let plain = text.replace('_', "");
    let (digits, unit) = match plain.char_indices().last() {
        _ if plain.contains(['e', 'E']) => {
            let (digits, exponent) = plain.split_once(['e', 'E']).unwrap_or_default();
            let unsigned = exponent.bytes().all(|byte| byte.is_ascii_digit());
            let exponent = exponent.parse().ok().filter(|_| unsigned).ok_or_else(wrong)?;
            (digits, 10_usize.checked_pow(exponent).ok_or_else(wrong)?)
        }
        Some((at, 'k' | 'K')) => (&plain[..at], 1_000),
        Some((at, 'm' | 'M')) => (&plain[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&plain[..at], 1_000_000_000),
        _ => (plain.as_str(), 1),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: usize = digits.parse().map_err(|_| wrong())?;
    match number.checked_mul(unit) {
        None | Some(0) => Err(wrong()),
        Some(number) => Ok(number),
    }
}

/// Parses a number of warehouses, which has sixteen bits in keys.
pub fn warehouses(text: &str) -> Result<usize, String> {
    let most = usize::from(u16::MAX);
    count(text).ok().filter(|count| *count <= most).ok_or_else(|| format!("'{text}' is not 1 to 65_535 warehouses"))
}

/// Parses how many keys one call looks up.
pub fn batch(text: &str) -> Result<usize, String> {
    let keys = count(text)?;
    if keys <= 65_536 { Ok(keys) } else { Err(format!("'{text}' is not 1 to 65_536 keys")) }
}

/// Parses a percentage from 0 to 100.
pub fn percent(text: &str) -> Result<u32, String> {
    let percent = text.parse().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| format!("'{text}' is not a percentage (0 to 100)"))
}

/// Parses Zipf's exponent, less than 10.
pub fn exponent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(exponent) if (0.0..10.0).contains(&exponent) => Ok(exponent),
        _ => Err(format!("'{text}' is not an exponent (from 0, below 10)")),
    }
}

/// Parses instructions per cycle: from 0.1 to 16, the most that a core retires.
pub fn per_cycle(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.1..=16.0).contains(&number) => Ok(number),
        _ => Err(format!("'{text}' is no number of instructions per cycle (from 0.1 to 16)")),
    }
}

/// Parses Zipf's exponent, less than 1.
pub fn below_one(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(exponent) if (0.0..1.0).contains(&exponent) => Ok(exponent),
        _ => Err(format!("'{text}' is not an exponent (from 0, below 1)")),
    }
}

/// Parses virtual microseconds. The limit keeps all phases together below a run's limit of a minute
/// (`Config::limit_ns`).
pub fn micros(text: &str) -> Result<u64, String> {
    let micros = count(text).ok().filter(|micros| *micros <= 10_000_000);
    micros.map(|micros| micros as u64).ok_or_else(|| format!("'{text}' is not 1 to 10_000_000 microseconds"))
}

/// Parses what [`micros`] takes, or 0, or `auto`.
pub fn warm(text: &str) -> Result<Warm, String> {
    match text {
        "auto" => Ok(Warm::Auto),
        "0" => Ok(Warm::Micros(0)),
        _ => micros(text).map(Warm::Micros).map_err(|wrong| format!("{wrong}, 0 or auto")),
    }
}

/// Parses what [`count`] takes, or 0.
pub fn operations(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { count(text).map(|count| count as u64) }
}

/// Parses a factor of up to 1,000.
pub fn times(text: &str) -> Result<usize, String> {
    count(text).ok().filter(|times| *times <= 1_000).ok_or_else(|| format!("'{text}' is not 1 to 1_000"))
}

/// Parses the lines of external work, at most a million.
pub fn lines(text: &str) -> Result<usize, String> {
    let lines = operations(text).ok().filter(|lines| *lines <= 1_000_000);
    lines.map(|lines| lines as usize).ok_or_else(|| format!("'{text}' is not 0 to 1_000_000 words"))
}

/// Parses the width of ranges, at most 2^32.
pub fn width(text: &str) -> Result<u64, String> {
    operations(text).ok().filter(|width| *width <= 1 << 32).ok_or_else(|| format!("'{text}' is not a width up to 2^32"))
}

/// Parses seconds: more than 0, at most a day.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err(format!("'{text}' is not a number of seconds (above 0, at most a day)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_suffixes_and_underscores() {
        assert_eq!(count("7"), Ok(7));
        assert_eq!(count("1_000"), Ok(1000));
        assert_eq!(count("5k"), Ok(5000));
        assert_eq!(count("10M"), Ok(10_000_000));
        assert_eq!(count("2G"), Ok(2_000_000_000));
        assert_eq!((count("1e9"), count("25E5"), count("7e0")), (Ok(1_000_000_000), Ok(2_500_000), Ok(7)));
        assert_eq!((times("1k"), times("1001").is_err()), (Ok(1000), true));
        for wrong in [
            "",
            "k",
            "0",
            "-1",
            "+1",
            "1.5M",
            "ten",
            "10MM",
            "99999999999G",
            "é",
            "e9",
            "1e",
            "1e-1",
            "1e+1",
            "1e99",
            "1e2k",
            "0e3",
            "1e2e3",
        ] {
            assert!(count(wrong).is_err(), "{wrong} was taken for a number");
        }
    }

    #[test]
    fn limits_have_two_sides() {
        assert_eq!((percent("0"), percent("100")), (Ok(0), Ok(100)));
        assert_eq!((micros("1"), micros("10M")), (Ok(1), Ok(10_000_000)));
        assert_eq!(
            (warm("0"), warm("auto"), warm("1k")),
            (Ok(Warm::Micros(0)), Ok(Warm::Auto), Ok(Warm::Micros(1000)))
        );
        assert_eq!((exponent("0"), exponent("0.99")), (Ok(0.0), Ok(0.99)));
        assert!(exponent("-0.1").is_err() && exponent("nan").is_err() && exponent("10").is_err());
        assert_eq!((operations("0"), lines("1M"), width("4_294_967_296")), (Ok(0), Ok(1_000_000), Ok(1 << 32)));
        assert!(percent("101").is_err() && percent("-1").is_err() && percent("4294967396").is_err());
        assert!(micros("0").is_err() && micros("10_000_001").is_err() && warm("20M").is_err() && warm("cold").is_err());
        assert!(operations("-1").is_err() && lines("2M").is_err() && width("4_294_967_297").is_err());
    }

    #[test]
    fn a_tiny_exam_is_allowed_and_an_endless_one_is_not() {
        assert_eq!(seconds("0.1"), Ok(0.1));
        assert!(seconds("0").is_err());
        assert!(seconds("inf").is_err());
        assert!(seconds("nan").is_err());
    }
}

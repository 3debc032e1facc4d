//! Settings of snapshots, of the log's rewriting, and of memory.

use super::Config;
use crate::db::evict::Policy;

/// The parameters with their initial values.
pub const PARAMETERS: &[(&str, &str)] = &[
    ("save", ""),
    ("auto-aof-rewrite-percentage", "100"),
    ("auto-aof-rewrite-min-size", "67108864"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("maxmemory-samples", "5"),
];

/// Parses a number of bytes as Redis does: digits, then nothing or one of the units `b`, `k`, `kb`, `m`, `mb`, `g`, `gb`.
/// A text without digits stands for 0.
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    if digits.is_empty() { Some(0) } else { digits.parse::<u64>().ok()?.checked_mul(unit) }
}

/// Parses the value of `save` as Redis does: empty, or pairs of a number of seconds and a number of changes. One blank
/// is between two numbers. Other white space may only precede a number.
fn points(text: &str) -> Option<Vec<(u64, u64)>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let numbers: Vec<u64> = text.split(' ').map(|word| word.trim_ascii_start().parse().ok()).collect::<Option<_>>()?;
    let points = || numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    (numbers.len().is_multiple_of(2) && numbers.iter().step_by(2).all(|seconds| *seconds > 0)).then(points)
}

/// Returns the value of `save` in the format of `CONFIG GET`.
fn shown(points: &[(u64, u64)]) -> String {
    points.iter().map(|(seconds, changes)| format!("{seconds} {changes}")).collect::<Vec<_>>().join(" ")
}

/// Checks that a text is an integer from `least` to `most`, both included. Returns the integer's digits.
///
/// # Errors
/// Redis's error text for any other text.
pub fn within(text: &str, least: i64, most: i64) -> Result<String, String> {
    match text.parse::<i64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number.to_string()),
        Ok(_) => Err(format!("argument must be between {least} and {most} inclusive")),
        Err(_) => Err("argument couldn't be parsed into an integer".into()),
    }
}

/// Checks a new value of a parameter of this module and returns the value to store. Returns `None` if the parameter does not
/// belong to this module.
///
/// # Errors
/// The reason why the value is wrong.
pub fn checked(name: &str, text: &str) -> Option<Result<String, String>> {
    Some(match name {
        "requirepass" => Ok(text.to_owned()),
        "timeout" | "tcp-keepalive" | "auto-aof-rewrite-percentage" => within(text, 0, i32::MAX.into()),
        "maxclients" => within(text, 1, u32::MAX.into()),
        "maxmemory-samples" => within(text, 1, i32::MAX.into()),
        "save" => points(text).map(|points| shown(&points)).ok_or("Invalid save parameters".into()),
        "maxmemory-policy" => Policy::NAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map(|(name, _)| (*name).to_owned())
            .ok_or("argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction".into()),
        "maxmemory" | "auto-aof-rewrite-min-size" => {
            bytes(text).map(|bytes| bytes.to_string()).ok_or("argument must be a memory value".into())
        }
        _ => return None,
    })
}

/// Returns whether the log is to be rewritten, if `appended` bytes were appended since a snapshot of `snapshot` bytes.
pub fn is_outgrown(config: &Config, appended: u64, snapshot: u64) -> bool {
    let percentage: u64 = config.get("auto-aof-rewrite-percentage").parse().unwrap_or(0);
    let least: u64 = config.get("auto-aof-rewrite-min-size").parse().unwrap_or(u64::MAX);
    percentage > 0 && appended > 0 && appended >= least && appended >= snapshot / 100 * percentage
}

/// Returns whether `save` asks for a snapshot, `since` seconds and `changes` changes after the last snapshot.
pub fn is_due(config: &Config, since: u64, changes: u64) -> bool {
    let points = points(&config.get("save")).unwrap_or_default();
    changes > 0 && points.iter().any(|(seconds, least)| since >= *seconds && changes >= *least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn numbers_of_bytes() {
        let all = ["100", "3kb", "3K", "2mb", "1gb", "1g", "5b", "", "mb", "x", "12pb", "-1", "99999999999gb"];
        let expected = [100, 3 << 10, 3000, 2 << 20, 1 << 30, 1_000_000_000, 5, 0, 0];
        assert!(all.iter().map(|text| bytes(text)).eq(expected.map(Some).into_iter().chain([None; 4])));
    }

    #[test]
    fn when_a_snapshot_is_due() {
        let config = Config::new(&Settings::default());
        assert!(!is_due(&config, 1 << 30, 1 << 30), "no points are set");
        config.set("save", "900 1 60 1000").unwrap();
        let all =
            [(900, 1, true), (899, 1, false), (900, 0, false), (60, 1000, true), (60, 999, false), (59, 2000, false)];
        all.iter().for_each(|(since, changes, due)| assert_eq!(is_due(&config, *since, *changes), *due));
        assert!(config.set("save", "900").is_err() && config.set("save", "a b").is_err());
        assert!(!is_outgrown(&config, (64 << 20) - 1, 0) && is_outgrown(&config, 64 << 20, 0));
        assert!(!is_outgrown(&config, 90 << 20, 100 << 20) && is_outgrown(&config, 100 << 20, 100 << 20));
        config.set("auto-aof-rewrite-min-size", "1kb").unwrap();
        assert_eq!(config.get("auto-aof-rewrite-min-size"), "1024");
        assert!(is_outgrown(&config, 1024, 0));
        config.set("auto-aof-rewrite-percentage", "0").unwrap();
        assert!(!is_outgrown(&config, u64::MAX, 0), "it is switched off");
    }
}

//! Parameters of `CONFIG` for the modules of the server: scripts, events, slow commands, tracking, and limits of clients.

use archipelago_platform::sync::Mutex;

use super::events;
use super::shared::{Shared, lock};
use crate::config::{keeping, yes_or_no};
#[cfg(feature = "lua")]
use crate::deadline::LIMIT;
use crate::operation::Write;

/// The parameters with their initial values.
pub const PARAMETERS: [(&str, &str); 10] = [
    ("busy-reply-threshold", "5000"),
    ("client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
    ("hll-sparse-max-bytes", "3000"),
    ("latency-monitor-threshold", "0"),
    ("latency-tracking", "yes"),
    ("lua-time-limit", "5000"),
    ("notify-keyspace-events", ""),
    ("slowlog-log-slower-than", "10000"),
    ("slowlog-max-len", "128"),
    ("tracking-table-max-keys", "1000000"),
];

/// Checks a new value and returns it in the format of `CONFIG GET`. Returns `None` if the parameter does not belong to this
/// module.
///
/// # Errors
/// The reason why the value is wrong.
pub fn check(name: &str, value: &str, before: &str) -> Option<Result<String, String>> {
    let number = |least| keeping::within(value, least, i64::MAX);
    Some(match name {
        "notify-keyspace-events" => {
            let invalid = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
            events::classes(value).map(events::shown).ok_or(invalid.into())
        }
        "hll-sparse-max-bytes" => match keeping::bytes(value).and_then(|bytes| u32::try_from(bytes).ok()) {
            Some(bytes) => Ok(bytes.to_string()),
            None => Err("argument must be a memory value".into()),
        },
        "slowlog-log-slower-than" => number(-1),
        "slowlog-max-len" | "latency-monitor-threshold" | "tracking-table-max-keys" => number(0),
        "lua-time-limit" | "busy-reply-threshold" => number(0),
        "protected-mode" => yes_or_no(value),
        "aclfile" => Err("can't set immutable config".into()),
        "acllog-max-len" => number(0),
        "acl-pubsub-default" => Err("users are made without channels".into()),
        "latency-tracking" => Err("commands are always timed".into()),
        "client-output-buffer-limit" => limits(value, before).map_err(str::to_owned),
        _ => return None,
    })
}

/// Limits on the bytes that wait to be sent to a client. A value of 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// A client with more unsent bytes is ended at once.
    pub hard: u64,
    /// A client that has had more unsent bytes for [`seconds`](Self::seconds) is ended.
    pub soft: u64,
    /// The time for which a client may be above the soft limit, in seconds.
    pub seconds: u64,
}

/// The limits of both classes of clients: normal clients and subscribers.
#[derive(Default)]
pub struct Output {
    classes: Mutex<[Limits; 2]>,
}

impl Output {
    /// Sets the limits from a value of `client-output-buffer-limit`.
    pub fn set(&self, value: &str) {
        *lock(&self.classes) = ["normal", "pubsub"].map(|class| limits_of(value, class));
    }

    /// Returns the limits of normal clients, and of subscribers.
    pub fn all(&self) -> [Limits; 2] {
        *lock(&self.classes)
    }
}

/// Returns the limits of a class in a value of `client-output-buffer-limit`.
pub fn limits_of(value: &str, class: &str) -> Limits {
    let mut words = value.split(' ').skip_while(|word| *word != class).skip(1);
    let mut next = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    Limits { hard: next(), soft: next(), seconds: next() }
}

/// Replaces the limits of some classes in `before` by those in `value`.
fn limits(value: &str, before: &str) -> Result<String, &'static str> {
    // One blank is between two words, and an empty value changes nothing, as in Redis.
    let words: Vec<&str> = if value.is_empty() { Vec::new() } else { value.split(' ').collect() };
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.");
    }
    let mut all: Vec<String> = before.split(' ').map(str::to_owned).collect();
    for class in words.chunks(4) {
        let name =
            if class[0].eq_ignore_ascii_case("replica") { "slave".into() } else { class[0].to_ascii_lowercase() };
        let place = all
            .iter()
            .position(|word| *word == name)
            .ok_or("Invalid client class specified in buffer limit configuration.")?;
        let wrong = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
        let numbers = [keeping::bytes(class[1]), keeping::bytes(class[2]), class[3].parse().ok()];
        for (at, number) in numbers.into_iter().enumerate() {
            all[place + 1 + at] = number.ok_or(wrong)?.to_string();
        }
    }
    Ok(all.join(" "))
}

impl Shared {
    /// Applies a parameter's new value. Returns operations that the database needs for it.
    pub fn configure(&self, name: &str) -> Vec<Write> {
        let name = name.to_ascii_lowercase();
        let value = self.config.get(&name);
        match name.as_str() {
            "notify-keyspace-events" => return self.events.listen(events::classes(&value).unwrap_or(0)),
            "hll-sparse-max-bytes" => return vec![Write::Sparse { most: value.parse().unwrap_or(u32::MAX) }],
            "client-output-buffer-limit" => self.limits.set(&value),
            "tracking-table-max-keys" => self.tracking.limit(value.parse().unwrap_or(0)),
            #[cfg(feature = "lua")]
            "busy-reply-threshold" | "lua-time-limit" => self.scripts.limit(value.parse().unwrap_or(LIMIT)),
            "requirepass" => self.acl.require(value.as_bytes()),
            _ => self.slow.configure(&name, &value),
        }
        Vec::new()
    }

    /// Applies the initial values of all parameters.
    pub fn configure_all(&self) {
        PARAMETERS.iter().for_each(|(name, _)| _ = self.configure(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_redis_reads_them() {
        let before = PARAMETERS[1].1;
        let after = limits("normal 1mb 2k 3 PUBSUB 0 0 0", before).unwrap();
        assert_eq!(after, "normal 1048576 2000 3 slave 268435456 67108864 60 pubsub 0 0 0");
        assert_eq!(limits_of(&after, "normal"), Limits { hard: 1 << 20, soft: 2000, seconds: 3 });
        assert!(limits("normal 1 2", before).is_err() && limits("other 1 2 3", before).is_err());
        assert_eq!(
            check("slowlog-max-len", "-5", ""),
            Some(Err("argument must be between 0 and 9223372036854775807 inclusive".into()))
        );
    }
}

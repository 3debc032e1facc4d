//! The log of refused requests: `ACL LOG`.

use std::collections::VecDeque;

use archipelago_platform::sync::{Mutex, MutexGuard};

use crate::reply::{Reply, cut};

/// Equal refusals within this time, in milliseconds, are counted as one entry.
const TOGETHER: u64 = 60_000;

/// The most bytes that are kept of a refused command, key or channel, and of a user's name: the log is not counted as
/// used memory, and every client can have requests refused.
const BYTES: usize = 128;
/// The most bytes that are kept of a client's line, which contains the client's name.
const LINE: usize = 1024;

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `command`, `key`, `channel` or `auth`.
    pub reason: &'static str,
    /// `toplevel` or `multi`.
    pub context: &'static str,
    /// The refused command, key or channel; `auth` after a failed authentication.
    pub object: Vec<u8>,
    /// The user's name.
    pub user: Vec<u8>,
    /// The client's line in `CLIENT LIST`.
    pub client: String,
    /// The time of the refusal, in milliseconds since 1970.
    pub at: u64,
}

/// Refused requests with their counts, the latest first.
#[derive(Default)]
pub struct Log {
    entries: Mutex<VecDeque<(u64, Entry)>>,
}

impl Log {
    fn entries(&self) -> MutexGuard<'_, VecDeque<(u64, Entry)>> {
        self.entries.lock().expect("nothing panics while it is locked")
    }

    /// Adds a refusal, and removes entries beyond the latest `most`. Long texts are cut, with a note of how much is
    /// missing.
    pub fn note(&self, mut entry: Entry, most: usize) {
        for text in [&mut entry.object, &mut entry.user] {
            if text.len() > BYTES {
                *text = cut(text, BYTES);
            }
        }
        if entry.client.len() > LINE {
            entry.client = String::from_utf8_lossy(&cut(entry.client.as_bytes(), LINE)).into_owned();
        }
        let mut entries = self.entries();
        let same = entries.iter().position(|(_, known)| {
            (known.reason, known.context, &known.object, &known.user)
                == (entry.reason, entry.context, &entry.object, &entry.user)
                && entry.at.saturating_sub(known.at) <= TOGETHER
        });
        let count = same.and_then(|place| entries.remove(place)).map_or(0, |(count, _)| count);
        entries.push_front((count + 1, entry));
        entries.truncate(most);
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.entries().clear();
    }

    /// Returns the latest `count` entries in the format of `ACL LOG`.
    pub fn told(&self, count: usize, now: u64) -> Reply {
        let told = |(count, entry): &(u64, Entry)| {
            let pairs = [
                ("count", Reply::Int(*count as i64)),
                ("reason", Reply::bulk(entry.reason)),
                ("context", Reply::bulk(entry.context)),
                ("object", Reply::bulk(&entry.object)),
                ("username", Reply::bulk(&entry.user)),
                ("age-seconds", Reply::Double(now.saturating_sub(entry.at) as f64 / 1000.0)),
                ("client-info", Reply::bulk(entry.client.trim_end())),
            ];
            Reply::Map(pairs.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect())
        };
        Reply::Array(self.entries().iter().take(count).map(told).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        let log = Log::default();
        let entry = |object: Vec<u8>| Entry {
            reason: "key",
            context: "toplevel",
            object,
            user: vec![b'u'; 10_000],
            client: "c".repeat(10_000),
            at: 1,
        };
        log.note(entry(vec![b'k'; 1 << 20]), 128);
        log.note(entry(vec![b'k'; 1 << 20]), 128);
        log.note(entry(vec![b'k'; 128]), 128);
        let entries = log.entries();
        let shown: Vec<_> = entries.iter().map(|(count, entry)| (*count, entry.object.len())).collect();
        assert_eq!(shown, [(1, 128), (2, 128 + "... (1048448 more bytes)".len())]);
        assert!(entries[1].1.object.ends_with(b"k... (1048448 more bytes)"));
        assert!(entries.iter().all(|(_, entry)| entry.user.len() < 200 && entry.client.len() < 1_100));
        assert!(entries.iter().all(|(_, entry)| entry.object.capacity() < 300 && entry.user.capacity() < 300));
    }
}

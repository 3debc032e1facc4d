//! The log of refused requests: `ACL LOG`.

use std::collections::VecDeque;

use archipelago_platform::sync::{Mutex, MutexGuard};

use crate::reply::Reply;

/// Equal refusals within this time, in milliseconds, are counted as one entry.
const TOGETHER: u64 = 60_000;

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

    /// Adds a refusal, and removes entries beyond the latest `most`.
    pub fn note(&self, entry: Entry, most: usize) {
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

//! The model part: one thread compares every answer with `BTreeMap`'s.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::clock::{Clock, Verdict};
use super::subject::{Session, Subject};
use crate::keys::BenchKey;

/// Entries of the longest scan.
const LONGEST_SCAN: usize = 120;

pub fn examine<K: BenchKey>(map: &dyn Subject<K>, keys: &[K], seed: u64, clock: Clock) -> Verdict {
    let returns_old = map.insert_returns_old();
    let mut pair = Pair { session: map.session(), returns_old, scans: map.scans(), model: BTreeMap::new() };
    // Every other key is inserted, so that scans can start from absent keys.
    for (i, key) in keys.iter().enumerate().step_by(2) {
        pair.insert(key, i as u64)?;
    }
    let mut rng = SmallRng::seed_from_u64(seed);
    let deadline = clock.start();
    let mut steps = 0u64;
    loop {
        let key = &keys[rng.random_range(0..keys.len())];
        match rng.random_range(0..100) {
            0..30 => pair.insert(key, steps)?,
            30..45 => pair.remove(key)?,
            45..55 => pair.update(key)?,
            dice if dice < 80 || !pair.scans => pair.get(key)?,
            _ => pair.scan(key, rng.random_range(0..=LONGEST_SCAN))?,
        }
        steps += 1;
        if steps.is_multiple_of(1024) && deadline.passed() {
            return pair.everything(keys);
        }
    }
}

struct Pair<'a, K> {
    session: Box<dyn Session<K> + 'a>,
    /// Whether the map's `insert` returns the value that it replaced.
    returns_old: bool,
    scans: bool,
    model: BTreeMap<K, u64>,
}

impl<K: BenchKey> Pair<'_, K> {
    fn insert(&mut self, key: &K, value: u64) -> Verdict {
        let old = self.session.insert(key, value);
        let expected = self.model.insert(key.clone(), value);
        // If the map's `insert` does not return the old value, it returns `None`.
        if self.returns_old { same("insert", key, old, expected) } else { Ok(()) }
    }

    fn remove(&mut self, key: &K) -> Verdict {
        same("remove", key, self.session.remove(key), self.model.remove(key))
    }

    fn get(&mut self, key: &K) -> Verdict {
        same("get", key, self.session.get(key), self.model.get(key).copied())
    }

    fn update(&mut self, key: &K) -> Verdict {
        let mut next = |old: u64| old.wrapping_mul(31).wrapping_add(7);
        let old = self.session.update(key, &mut next);
        let expected = self.model.get_mut(key).map(|value| std::mem::replace(value, next(*value)));
        same("update", key, old, expected)
    }

    fn scan(&mut self, from: &K, limit: usize) -> Verdict {
        let mut seen: Vec<(K, u64)> = Vec::with_capacity(limit);
        let count = self.session.scan(from, limit, &mut |key, value| seen.push((key, value)));
        if count != seen.len() {
            return Err(format!("scan says it visited {count} entries and visited {}", seen.len()));
        }
        let expected: Vec<(K, u64)> = self.model.range(from..).take(limit).map(|(k, v)| (k.clone(), *v)).collect();
        if seen == expected {
            return Ok(());
        }
        let present = if self.model.contains_key(from) { "present" } else { "absent" };
        let at = seen.iter().zip(&expected).take_while(|(one, other)| one == other).count();
        Err(format!(
            "scan of {limit} from {present} key {}: entry {at} is {}, should be {}",
            from.readable(),
            readable(seen.get(at)),
            readable(expected.get(at))
        ))
    }

    /// Compares all entries, by a scan if the map has scans.
    fn everything(&mut self, keys: &[K]) -> Verdict {
        match self.scans {
            true => self.scan(&keys[0], self.model.len() + 1),
            false => keys.iter().try_for_each(|key| self.get(key)),
        }
    }
}

fn same<K: BenchKey>(what: &str, key: &K, found: Option<u64>, expected: Option<u64>) -> Verdict {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what} {} returns {found:?}, should be {expected:?}", key.readable()))
}

fn readable<K: BenchKey>(entry: Option<&(K, u64)>) -> String {
    entry.map_or_else(|| "None".to_owned(), |(key, value)| format!("Some({}, {value})", key.readable()))
}

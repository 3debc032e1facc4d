//! The parts with concurrent writers: readers check that they find all present keys.

use archipelago_platform::thread;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::clock::{Clock, Deadline, Verdict};
use super::subject::{Session, Subject};
use crate::keys::BenchKey;

/// The number of threads in each role.
const WRITERS: u64 = 2;
const READERS: u64 = 2;
/// All threads of a part.
pub const THREADS: usize = (WRITERS + READERS) as usize;

/// Entries of the longest scan.
const LONGEST_SCAN: usize = 100;

/// Keys that are overwritten: few, so that readers and writers often use the same key.
const OVERWRITTEN: usize = 2000;

/// Runs the part in which all keys are always present and are overwritten all the time.
pub fn overwrites<K: BenchKey>(map: &dyn Subject<K>, keys: &[K], seed: u64, clock: Clock) -> Verdict {
    let keys = &keys[..keys.len().min(OVERWRITTEN)];
    let overwrite = |session: &dyn Session<K>, rng: &mut SmallRng| {
        let at = rng.random_range(0..keys.len());
        let value = value(at, rng.random());
        if rng.random() {
            session.insert(&keys[at], value);
        } else {
            session.update(&keys[at], &mut |_| value);
        }
    };
    examine(map, keys, seed, clock, overwrite)
}

/// Runs the part in which every other key is never touched, while the keys between are inserted and removed.
pub fn neighbours<K: BenchKey>(map: &dyn Subject<K>, keys: &[K], seed: u64, clock: Clock) -> Verdict {
    let (stable, moving): (Vec<_>, Vec<_>) = keys.iter().cloned().enumerate().partition(|(at, _)| at % 2 == 0);
    let stable: Vec<K> = stable.into_iter().map(|(_, key)| key).collect();
    let churn = |session: &dyn Session<K>, rng: &mut SmallRng| {
        // The keys are neighbours, so that pages fill up, split, become empty and merge.
        let from = rng.random_range(0..moving.len());
        let stretch = &moving[from..moving.len().min(from + 200)];
        if rng.random() {
            stretch.iter().for_each(|(at, key)| _ = session.insert(key, *at as u64));
        } else {
            stretch.iter().for_each(|(_, key)| _ = session.remove(key));
        }
    };
    examine(map, &stable, seed, clock, churn)
}

/// Returns a value that contains the key to which it is written.
fn value(at: usize, random: u32) -> u64 {
    (at as u64) << 32 | u64::from(random)
}

/// Loads `stable`. Then writers repeat `write` while readers look for the keys of `stable`.
fn examine<K: BenchKey>(
    map: &dyn Subject<K>,
    stable: &[K],
    seed: u64,
    clock: Clock,
    write: impl Fn(&dyn Session<K>, &mut SmallRng) + Sync,
) -> Verdict {
    {
        let session = map.session();
        stable.iter().enumerate().for_each(|(at, key)| _ = session.insert(key, value(at, 0)));
    }
    let deadline = clock.start();
    let write = &write;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let session = map.session();
                let mut rng = SmallRng::seed_from_u64(seed ^ (writer + 1) << 40);
                while !deadline.passed() {
                    (0..64).for_each(|_| write(&*session, &mut rng));
                }
            });
        }
        let start = |reader| scope.spawn(move || read(map, stable, seed ^ (reader + 1) << 48, deadline));
        let readers: Vec<_> = (0..READERS).map(start).collect();
        readers.into_iter().try_for_each(|reader| reader.join().expect("panics end the part"))
    })
}

fn read<K: BenchKey>(map: &dyn Subject<K>, stable: &[K], seed: u64, deadline: Deadline) -> Verdict {
    let session = &*map.session();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut verdict = Ok(());
    // The loop runs at least once, even if a busy machine starts this thread after the deadline.
    loop {
        for _ in 0..32 {
            let at = rng.random_range(0..stable.len());
            verdict = verdict.and_then(|()| get(session, stable, at));
        }
        if map.scans() {
            let at = rng.random_range(0..stable.len());
            let limit = rng.random_range(1..=LONGEST_SCAN);
            verdict = verdict.and_then(|()| scan(session, stable, at, limit));
        }
        if verdict.is_err() || deadline.passed() {
            return verdict;
        }
    }
}

fn get<K: BenchKey>(session: &dyn Session<K>, stable: &[K], at: usize) -> Verdict {
    match session.get(&stable[at]) {
        Some(value) if value >> 32 == at as u64 => Ok(()),
        Some(value) => Err(format!("get {} returns {value}, which was never written to it", stable[at].readable())),
        None => Err(format!("get misses {}, which is always there", stable[at].readable())),
    }
}

/// Scans from a stable key. Up to the last key shown, the scan must show every stable key, in order.
fn scan<K: BenchKey>(session: &dyn Session<K>, stable: &[K], at: usize, limit: usize) -> Verdict {
    let mut seen: Vec<(K, u64)> = Vec::with_capacity(limit);
    session.scan(&stable[at], limit, &mut |key, value| seen.push((key, value)));
    if let Some(pair) = seen.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(format!("scan shows {} and then {}", pair[0].0.readable(), pair[1].0.readable()));
    }
    if seen.len() < limit.min(stable.len() - at) {
        let (from, shown) = (stable[at].readable(), seen.len());
        return Err(format!(
            "scan of {limit} from {from} shows only {shown} entries: one is missing which is always there"
        ));
    }
    let last = &seen.last().expect("a limit of at least 1 and a stable key").0;
    let mut shown = seen.iter();
    for (at, key) in stable.iter().enumerate().skip(at).take_while(|(_, key)| *key <= last) {
        match shown.find(|(shown, _)| shown >= key) {
            Some((shown, value)) if shown == key && value >> 32 == at as u64 => {}
            Some((shown, value)) if shown == key => {
                return Err(format!("scan shows {value} for {}, which was never written to it", key.readable()));
            }
            _ => return Err(format!("scan misses {}, which is always there", key.readable())),
        }
    }
    Ok(())
}

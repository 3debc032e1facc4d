//! Tests with several threads, each of which knows which results it must see, so no checker of histories is needed.
//! These tests are larger and longer, and have more threads, than is possible with recorded histories.

use super::keys::TestKey;
use super::model::perform;
use super::tested::{Invariants, Make};
use super::{contents, scan, scan_rev, sized};
use archipelago_check::map::{MapOp, apply};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload::{self, Choice, Mix, OpKind};
use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::thread;
use rand::RngExt;
use std::collections::BTreeMap;

/// Returns a value that contains an index (usually its key's index in the pool) and a version.
fn stamped(place: usize, version: usize) -> u64 {
    (place as u64) << 32 | version as u64
}

fn place_of(value: u64) -> usize {
    (value >> 32) as usize
}

/// Every thread has keys of its own, which are adjacent to the others' keys. It sees each of its writes at once, also
/// in another session of the same thread.
pub fn own_writes<K: TestKey>(make: Make<K, u64>) {
    const THREADS: usize = 4;
    watchdog(USUAL, |_| {
        let mut pool = K::pool(sized(600, 24));
        pool.sort();
        let index = make();
        thread::scope(|s| {
            for t in 0..THREADS {
                let (index, pool) = (&index, &pool);
                s.spawn(move || {
                    let (session, other) = (index.pin(), index.pin());
                    for version in 0..sized(4, 2) {
                        for (place, key) in pool.iter().enumerate().skip(t).step_by(THREADS) {
                            let left = version.checked_sub(1).map(|before| stamped(place, before));
                            write_and_look(&session, &other, key, left, stamped(place, version));
                        }
                    }
                });
            }
        });
        assert!(contents(&index.pin()).iter().map(|(key, _)| key).eq(&pool), "every key was left there");
        index.check();
    });
}

/// Applies operations of every kind to one key: `left` is the key's value before, and `value` its value afterwards.
fn write_and_look<K: TestKey>(
    session: &impl OrderedSession<K, u64>,
    other: &impl OrderedSession<K, u64>,
    key: &K,
    left: Option<u64>,
    value: u64,
) {
    const STEP: u64 = 1 << 20;
    let look = |expected: Option<u64>| {
        assert_eq!(session.get(key), expected, "{key:?}");
        assert_eq!(other.get(key), expected, "{key:?} through another session of the thread");
        let shown = scan(session, key, 1).into_iter().find(|(k, _)| k == key).map(|(_, v)| v);
        assert_eq!(shown, expected, "a scan from {key:?}");
        if let Some(found) = scan_rev(session, key, 1) {
            let shown = found.into_iter().find(|(k, _)| k == key).map(|(_, v)| v);
            assert_eq!(shown, expected, "a descending scan from {key:?}");
        }
    };
    look(left);
    assert_eq!(session.remove(key), left);
    look(None);
    assert_eq!(session.update(key, |_| value), None);
    look(None);
    assert_eq!(session.insert(key, value + STEP), None);
    look(Some(value + STEP));
    assert_eq!(other.insert(key, value + 2 * STEP), Some(value + STEP));
    look(Some(value + 2 * STEP));
    assert_eq!(session.update(key, |old| old + STEP), Some(value + 2 * STEP));
    look(Some(value + 3 * STEP));
    assert_eq!(other.remove(key), Some(value + 3 * STEP));
    assert_eq!(session.remove(key), None);
    look(None);
    assert_eq!(session.insert(key, value), None);
}

/// Half of the keys are always present. They are overwritten all the time while the keys between them are inserted and
/// removed. No look-up and no scan may miss a key that is always present.
pub fn overwritten_keys_never_hide<K: TestKey>(make: Make<K, u64>) {
    const WRITERS: usize = 2;
    const READERS: usize = 2;
    watchdog(USUAL, |_| {
        let mut pool = K::pool(sized(300, 20));
        pool.sort();
        let index = make();
        for (place, key) in pool.iter().enumerate().step_by(2) {
            index.pin().insert(key, stamped(place, 0));
        }
        let reading = AtomicUsize::new(READERS);
        thread::scope(|s| {
            for t in 0..WRITERS {
                let (index, pool, reading) = (&index, &pool, &reading);
                s.spawn(move || overwrite(&index.pin(), pool, t, || reading.load(Ordering::Relaxed) > 0));
            }
            for t in 0..READERS {
                let (index, pool, reading) = (&index, &pool, &reading);
                s.spawn(move || {
                    let (session, _done) = (index.pin(), Countdown(reading));
                    for _ in 0..sized(200, 3) {
                        if t == 0 {
                            get_all(&session, pool)
                        } else {
                            scan_all(&session, pool)
                        }
                        thread::yield_now();
                    }
                });
            }
        });
        get_all(&index.pin(), &pool);
        scan_all(&index.pin(), &pool);
        index.check();
    });
}

/// A countdown that is decremented even if its thread panics, so that the threads that wait for it do not hang.
struct Countdown<'a>(&'a AtomicUsize);

impl Drop for Countdown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn overwrite<K: TestKey>(
    session: &impl OrderedSession<K, u64>,
    pool: &[K],
    thread: usize,
    mut go_on: impl FnMut() -> bool,
) {
    let (mut rng, choice) = (workload::rng(17, thread), Choice::uniform(pool.len()));
    for version in (1..).take_while(|_| go_on()) {
        let place = choice.next(&mut rng);
        let (key, value) = (&pool[place], stamped(place, version));
        if place % 2 == 1 {
            _ = if version % 2 == 0 { session.insert(key, value) } else { session.remove(key) };
        } else if version % 3 == 0 {
            session.update(key, |_| value).unwrap_or_else(|| panic!("update did not find {key:?}"));
        } else {
            session.insert(key, value).unwrap_or_else(|| panic!("insert did not find {key:?}"));
        }
    }
}

fn get_all<K: TestKey>(session: &impl OrderedSession<K, u64>, pool: &[K]) {
    for (place, key) in pool.iter().enumerate().step_by(2) {
        let value = session.get(key).unwrap_or_else(|| panic!("get missed {key:?}"));
        assert_eq!(place_of(value), place, "{key:?} has another key's value");
    }
}

fn scan_all<K: TestKey>(session: &impl OrderedSession<K, u64>, pool: &[K]) {
    let mut upward = contents(session);
    assert!(upward.windows(2).all(|pair| pair[0].0 < pair[1].0), "a scan went backwards");
    upward.retain(|(_, value)| place_of(*value).is_multiple_of(2));
    assert!(upward.iter().map(|(key, _)| key).eq(pool.iter().step_by(2)), "a scan missed a key or showed it twice");
    assert!(upward.iter().all(|(key, value)| *key == pool[place_of(*value)]), "a key has another key's value");
    if let Some(mut downward) = scan_rev(session, &pool[pool.len() - 1], usize::MAX) {
        downward.retain(|(_, value)| place_of(*value).is_multiple_of(2));
        let shown = downward.iter().rev().map(|(key, _)| key);
        assert!(shown.eq(pool.iter().step_by(2)), "a descending scan missed a key or showed it twice");
    }
}

/// In each round the threads together insert all keys and then remove all keys. In two of three rounds, each thread
/// removes another thread's keys.
pub fn churn<K: TestKey>(make: Make<K, u64>) {
    const THREADS: usize = 3;
    watchdog(USUAL, |notes| {
        let pool = K::pool(sized(1500, 60));
        let mut sorted: Vec<_> = pool.iter().cloned().zip((0..).map(|place| stamped(place, 0))).collect();
        sorted.sort();
        let index = make();
        for round in 0..sized(10, 2) {
            in_shares(THREADS, |share| {
                let session = index.pin();
                for (place, key) in pool.iter().enumerate().skip(share).step_by(THREADS) {
                    assert_eq!(session.insert(key, stamped(place, 0)), None, "{key:?} was not there");
                }
            });
            assert!(contents(&index.pin()) == sorted, "round {round}: not everything inserted is there");
            index.check();
            notes.note(format!("round {round}: full"));
            in_shares(THREADS, |share| {
                let session = index.pin();
                for (place, key) in pool.iter().enumerate().skip((share + round) % THREADS).step_by(THREADS) {
                    assert_eq!(session.remove(key), Some(stamped(place, 0)), "{key:?} was there");
                }
            });
            index.quiesce();
            assert_eq!(contents(&index.pin()), [], "round {round}: everything was removed");
            index.check();
            notes.note(format!("round {round}: empty"));
        }
    });
}

fn in_shares(threads: usize, work: impl Fn(usize) + Sync) {
    thread::scope(|s| {
        for share in 0..threads {
            let work = &work;
            s.spawn(move || work(share));
        }
    });
}

/// There are 32 threads, usually many more than cores. Each has keys of its own between the others' keys, and compares
/// all results with a model of its own.
pub fn more_threads_than_cores<K: TestKey>(make: Make<K, u64>) {
    const THREADS: usize = sized(32, 6);
    watchdog(USUAL, |_| {
        let pool = K::pool(THREADS * sized(12, 4));
        let index = make();
        in_shares(THREADS, |t| {
            let own: Vec<&K> = pool.iter().skip(t).step_by(THREADS).collect();
            let (session, mut model) = (index.pin(), BTreeMap::new());
            let (mut rng, choice) = (workload::rng(23, t), Choice::uniform(own.len()));
            for version in 0..sized(300, 12) {
                let key = own[choice.next(&mut rng)].clone();
                let value = stamped(t, version);
                let op = match Mix::EVEN.next(&mut rng) {
                    OpKind::Get | OpKind::Scan => MapOp::Get(key),
                    OpKind::Insert => MapOp::Insert(key, value),
                    OpKind::Update => MapOp::Update(key, value),
                    OpKind::Remove => MapOp::Remove(key),
                };
                assert_eq!(perform(&session, &op), Some(apply(&mut model, &op)), "{op:?}");
                if rng.random_ratio(1, 32) {
                    thread::yield_now();
                }
            }
            for key in own {
                assert_eq!(session.get(key), model.get(key).copied(), "{key:?}");
            }
        });
        let left = contents(&index.pin());
        assert!(left.windows(2).all(|pair| pair[0].0 < pair[1].0), "a scan went backwards");
        assert!(left.iter().all(|(key, value)| index.pin().get(key) == Some(*value)), "a scan and a look-up disagree");
        index.check();
    });
}

/// Threads live for a few operations. The map must not lose the data of ended threads, and its slots for threads must
/// not be used up.
pub fn threads_come_and_go<K: TestKey>(make: Make<K, u64>) {
    const THREADS: usize = sized(500, 16);
    const AT_ONCE: usize = 4;
    watchdog(USUAL, |_| {
        let pool = K::pool(THREADS);
        let index = make();
        for wave in 0..THREADS / AT_ONCE {
            in_shares(AT_ONCE, |share| {
                let place = wave * AT_ONCE + share;
                let (session, key) = (index.pin(), &pool[place]);
                assert_eq!(session.insert(key, stamped(place, 0)), None);
                assert_eq!(session.get(key), Some(stamped(place, 0)));
                // The key was inserted two waves of threads earlier. Every second key of each wave stays.
                if let Some(old) = place.checked_sub(2 * AT_ONCE).filter(|old| old % 2 == 1) {
                    assert_eq!(session.remove(&pool[old]), Some(stamped(old, 0)));
                }
            });
        }
        let stays = |place: &usize| place.is_multiple_of(2) || *place >= THREADS - 2 * AT_ONCE;
        let mut expected: Vec<_> =
            (0..THREADS).filter(stays).map(|place| (pool[place].clone(), stamped(place, 0))).collect();
        expected.sort();
        assert!(contents(&index.pin()) == expected, "not what the threads left behind");
        index.check();
    });
}

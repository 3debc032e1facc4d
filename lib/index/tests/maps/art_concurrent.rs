//! `Art` with many threads: linearizable histories, each thread's own keys under churn, walks that miss no permanent
//! entry, counted drops. Both write synchronizations are tested.

use archipelago_check::drops::DropCounter;
use archipelago_check::history::Recorder;
use archipelago_check::linear::DEFAULT_STEPS;
use archipelago_check::map::{MapOp, MapRet, check_map};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_index::art::{Art, WriteSync};
use archipelago_platform::atomic::{AtomicBool, Ordering};
use archipelago_platform::sync::Barrier;
use archipelago_platform::thread;
use std::collections::{BTreeMap, BTreeSet};

const BOTH: [WriteSync; 2] = [WriteSync::OptimisticLockCoupling, WriteSync::Rowex];

/// A small random number generator (splitmix), which is the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Returns keys that make nodes grow, shrink, branch inside prefixes and merge. Some keys are prefixes of others.
fn hostile(i: u64) -> Vec<u8> {
    let stem: &[u8] = [&b""[..], b"a", b"aaaaaaaa", b"aaaaaaaab", b"aaaaccccccccccc"][(i % 5) as usize];
    let mut key = stem.to_vec();
    let rest = i / 5;
    if rest > 0 {
        key.push((rest * 37) as u8);
    }
    if rest % 3 == 2 {
        key.extend([0, 0, rest as u8]);
    }
    key
}

#[test]
fn histories_are_linearizable() {
    let (rounds, ops) = if cfg!(miri) { (1, 12) } else { (150, 60) };
    for sync in BOTH {
        watchdog(USUAL, |_| {
            for round in 0..rounds {
                // With few keys threads race; with more keys nodes change their kind.
                let keys = [6, 25, 120][round % 3];
                let art: Art<Vec<u8>, u64> = Art::with_write_sync(sync);
                let recorder = Recorder::new();
                let start = Barrier::new(4);
                thread::scope(|scope| {
                    for id in 0..4 {
                        let (art, recorder, start) = (&art, &recorder, &start);
                        scope.spawn(move || {
                            let map = art.pin();
                            let mut log = recorder.log();
                            let mut random = Random(round as u64 * 100 + id);
                            start.wait();
                            for i in 0..ops {
                                let (key, value) = (hostile(random.below(keys)), id * 1000 + i);
                                let limit = 1 + random.below(40) as usize;
                                match random.below(10) {
                                    0..4 => log.record(MapOp::Insert(key.clone(), value), |_| {
                                        MapRet::Value(map.insert(key.clone(), value))
                                    }),
                                    4..7 => log.record(MapOp::Remove(key.clone()), |_| MapRet::Value(map.remove(&key))),
                                    7 => log.record(MapOp::Update(key.clone(), value), |_| {
                                        MapRet::Value(map.update(&key, |_| value))
                                    }),
                                    8 => log.record(MapOp::Get(key.clone()), |_| MapRet::Value(map.get(&key))),
                                    _ if i % 2 == 0 => log.record(MapOp::Scan(key.clone(), limit), |_| {
                                        let mut seen = Vec::new();
                                        map.scan(&key, limit, |key, value| seen.push((key.to_vec(), *value)));
                                        MapRet::Entries(seen)
                                    }),
                                    _ => log.record(MapOp::ScanRev(key.clone(), limit), |_| {
                                        let mut seen = Vec::new();
                                        map.scan_rev(&key, limit, |key, value| seen.push((key.to_vec(), *value)));
                                        MapRet::Entries(seen)
                                    }),
                                };
                            }
                        });
                    }
                });
                check_map(&BTreeMap::new(), &recorder.finish(), DEFAULT_STEPS).assert_ok();
                art.check_invariants();
            }
        });
    }
}

/// Every thread inserts, removes and checks keys of its own, which are between all other threads' keys.
fn churn(sync: WriteSync, threads: u64, ops: u64, key: impl Fn(u64) -> u64 + Sync) {
    let art: Art<u64, u64> = Art::with_write_sync(sync);
    let start = Barrier::new(threads as usize);
    thread::scope(|scope| {
        for id in 0..threads {
            let (art, start, key) = (&art, &start, &key);
            scope.spawn(move || {
                let map = art.pin();
                let mut random = Random(id);
                let mut own = BTreeMap::new();
                start.wait();
                for i in 0..ops {
                    // The map grows and shrinks in turn.
                    let growing = (i / 500) % 2 == 0;
                    let k = key(random.below(200) * threads + id);
                    if (random.below(10) < 8) == growing {
                        assert_eq!(map.insert(k, i), own.insert(k, i));
                    } else {
                        assert_eq!(map.remove(&k), own.remove(&k));
                    }
                    if random.below(20) == 0 {
                        let mut next = own.range(k..);
                        let mut last = None;
                        let mut expected = next.next();
                        map.scan(&k, 50, |seen, value| {
                            assert!(seen >= k && last.is_none_or(|last| last < seen), "ascending, no doubles");
                            last = Some(seen);
                            if let Some((mine, its)) = expected.filter(|own| *own.0 <= seen) {
                                assert_eq!((*mine, *its), (seen, *value), "an own key was passed over");
                                expected = next.next();
                            }
                        });
                    }
                }
                for (k, value) in &own {
                    assert_eq!(map.get(k), Some(*value));
                    assert_eq!(map.remove(k), Some(*value));
                }
            });
        }
    });
    art.check_invariants();
    assert!(art.is_empty());
}

#[test]
fn own_keys_under_churn() {
    let ops = if cfg!(miri) { 20 } else { 20_000 };
    for sync in BOTH {
        watchdog(USUAL, |_| churn(sync, if cfg!(miri) { 2 } else { 4 }, ops, |i| i));
        watchdog(USUAL, |_| {
            churn(sync, if cfg!(miri) { 2 } else { 4 }, ops, |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        });
    }
}

#[test]
#[cfg(not(miri))]
fn own_keys_under_churn_with_more_threads_than_cores() {
    for sync in BOTH {
        watchdog(USUAL, |_| churn(sync, 32, 3_000, |i| i.reverse_bits()));
    }
}

/// Every walk, in both directions, shows the keys that are always present, whatever is inserted and removed between
/// them.
#[test]
fn walks_miss_nothing_that_stays() {
    let (stay, walks) = if cfg!(miri) { (5u64, 2) } else { (400, 400) };
    for sync in BOTH {
        watchdog(USUAL, |_| {
            let art: &Art<Vec<u8>, u64> = &Art::with_write_sync(sync);
            let permanent: Vec<_> = BTreeSet::from_iter((0..stay).map(|i| hostile(i * 2))).into_iter().collect();
            for key in &permanent {
                art.pin().upsert(key, 1);
            }
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                for id in 0..2 {
                    let (done, permanent) = (&done, &permanent);
                    scope.spawn(move || {
                        let map = art.pin();
                        let mut random = Random(id);
                        while !done.load(Ordering::Relaxed) {
                            let key = hostile(random.below(stay * 4));
                            if permanent.binary_search(&key).is_ok() {
                                map.upsert(&key, random.next());
                            } else if random.below(2) == 0 {
                                map.upsert(&key, 0);
                            } else {
                                map.remove(&key);
                            }
                        }
                    });
                }
                let map = art.pin();
                for _ in 0..walks {
                    let up: Vec<_> = map.iter().map(|entry| entry.0).collect();
                    assert!(up.is_sorted_by(|a, b| a < b));
                    assert!(permanent.iter().all(|key| up.binary_search(key).is_ok()));
                    let down: Vec<_> = map.iter().rev().map(|entry| entry.0).collect();
                    assert!(down.is_sorted_by(|a, b| a > b));
                    assert!(permanent.iter().all(|key| down.binary_search_by(|other| key.cmp(other)).is_ok()));
                }
                done.store(true, Ordering::Relaxed);
            });
            art.check_invariants();
        });
    }
}

/// Threads start and end. Every value is dropped exactly once, with the map at the latest.
#[test]
fn values_are_dropped_once() {
    let (generations, ops) = if cfg!(miri) { (2, 10) } else { (30, 2_000) };
    for sync in BOTH {
        watchdog(USUAL, |_| {
            let drops = DropCounter::new();
            let art: Art<u64, _> = Art::with_write_sync(sync);
            for generation in 0..generations {
                thread::scope(|scope| {
                    for id in 0..3 {
                        let art = &art;
                        scope.spawn(move || {
                            let map = art.pin();
                            let mut random = Random(generation * 10 + id);
                            for i in 0..ops {
                                let key = random.below(300);
                                match random.below(7) {
                                    0..2 => drop(map.insert(key, drops.value(i))),
                                    2 => drop(map.update(&key, |_| drops.value(i))),
                                    3 => drop(map.get_or_insert_with(key, || drops.value(i))),
                                    4 => drop(map.pop_first()),
                                    5 => drop(map.pop_last()),
                                    _ => drop(map.remove(&key)),
                                }
                            }
                        });
                    }
                });
            }
            art.check_invariants();
            assert!(drops.alive() >= art.len() as i64);
            drop(art);
            drops.assert_all_dropped();
        });
    }
}

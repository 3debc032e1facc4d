//! Search layers that lag behind the list: answers are correct whichever pages the layers lead to. Other tests check
//! that no unnecessary background work is done.

use crate::common::keys::TestKey;
use crate::common::sized;
use archipelago_check::topologies::topologies;
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload;
use archipelago_index::HydraList;
use archipelago_index::hydra::{Maintainers, MaintenanceStats, SearchLayerKind};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use rand::RngExt;
use std::collections::BTreeMap;

const THREADS: usize = 4;

/// Lets a thread work on its own part of the keys, whose content it knows. The threads' keys alternate.
fn work<K: TestKey>(map: &HydraList<K, u64>, share: &[K], model: &mut BTreeMap<K, u64>, round: u64, grows: bool) {
    let session = map.pin();
    let mut rng = workload::rng(round, share.len());
    for (place, key) in (0..).zip(share) {
        let insert = rng.random_ratio(if grows { 9 } else { 1 }, 10);
        let (value, ours, theirs) = (round << 32 | place, session.get(key), model.get(key).copied());
        assert_eq!(ours, theirs, "{key:?}");
        if insert {
            assert_eq!(session.insert(key.clone(), value), model.insert(key.clone(), value), "{key:?}");
        } else {
            assert_eq!(session.remove(key), model.remove(key), "{key:?}");
        }
        if place % 64 == 0 {
            // Other threads' keys are inserted and removed, but this thread's keys must be present.
            let seen: Vec<_> = session.range(key.clone()..).take(40).collect();
            let last = seen.last().map(|(key, _)| key);
            let ours = model.range(key..).take_while(|(key, _)| last.is_some_and(|last| *key <= last));
            assert!(ours.map(|(k, v)| (k.clone(), *v)).all(|entry| seen.contains(&entry)), "a scan missed our entry");
        }
    }
}

/// The map grows and shrinks in phases, and the search layer is stalled in some of them. At first the layer knows no
/// page. Later it leads to pages that have since been split, or merged into others.
fn stalled<K: TestKey>(layer: SearchLayerKind) {
    let pool = K::pool(sized(6_000, 120));
    for topology in topologies() {
        watchdog(USUAL, |notes| {
            let nodes = topology.nodes().len();
            let map: HydraList<K, u64> = HydraList::builder().topology(topology).search_layer(layer).build();
            let mut models = vec![BTreeMap::new(); THREADS];
            let shares: Vec<Vec<K>> =
                (0..THREADS).map(|t| pool.iter().skip(t).step_by(THREADS).cloned().collect()).collect();
            // The pairs are (stalled, growing).
            let phases = [(true, true), (true, false), (false, true), (true, false), (true, true), (false, false)];
            for (round, (paused, grows)) in (0..).zip(phases) {
                notes.note(format!("{nodes} nodes, phase {round}"));
                map.pause_maintenance(paused);
                let rounds = at_rest(&map).rounds;
                thread::scope(|s| {
                    for (model, share) in models.iter_mut().zip(&shares) {
                        let map = &map;
                        s.spawn(move || work(map, share, model, round, grows));
                    }
                });
                assert!(!paused || map.maintenance_stats().rounds == rounds, "the layer was not stalled");
                map.check_invariants();
                let all: BTreeMap<K, u64> = models.iter().flatten().map(|(k, v)| (k.clone(), *v)).collect();
                assert!(map.pin().iter().eq(all.clone()), "phase {round}");
                assert!(map.pin().iter().rev().eq(all.into_iter().rev()), "phase {round}, backwards");
            }
            map.sync();
            map.check_invariants();
        });
    }
}

#[test]
fn stalled_words() {
    stalled::<u64>(SearchLayerKind::Snapshot);
}

#[test]
fn stalled_strings() {
    stalled::<String>(SearchLayerKind::Snapshot);
}

#[test]
fn stalled_words_by_tree() {
    stalled::<u64>(SearchLayerKind::Art);
}

#[test]
fn stalled_strings_by_tree() {
    stalled::<String>(SearchLayerKind::Art);
}

/// Waits until every background thread has done the work for which it was woken.
fn at_rest<K: TestKey>(map: &HydraList<K, u64>) -> MaintenanceStats {
    watchdog(USUAL, |_| {
        loop {
            let stats = map.maintenance_stats();
            if stats.done == stats.roused {
                return stats;
            }
            thread::yield_now();
        }
    })
}

#[cfg(not(miri))]
#[test]
fn an_idle_map_does_nothing() {
    const KEYS: u64 = 200_000;
    let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for topology in topologies() {
        let nodes = topology.nodes().len();
        let map: HydraList<u64, u64> = HydraList::builder().topology(topology).build();
        map.pin().extend((0..KEYS).map(|n| (key(n), n)));
        let before = at_rest(&map);
        assert_eq!(before.threads, nodes, "a large map has a background thread per node");
        assert!(before.done >= nodes as u64 && before.wakes > 0, "{before:?}");
        // Operations that do not change the structure wake no thread, either.
        let session = map.pin();
        for n in 0..KEYS {
            assert_eq!(session.insert(key(n), n + 1), Some(n));
        }
        assert_eq!(session.iter().count() as u64, KEYS);
        thread::sleep(Duration::from_millis(50));
        let after = map.maintenance_stats();
        // The system may end a sleep without a reason (a spurious wake-up).
        assert!(after.wakes <= before.wakes + nodes as u64, "{before:?}, {after:?}");
        assert_eq!(MaintenanceStats { wakes: before.wakes, ..after }, before);
    }
}

#[test]
fn small_maps_and_maps_without_maintainers_start_no_thread() {
    let small: HydraList<u64, u64> = (0..sized(5_000, 100) as u64).map(|n| (n, n)).collect();
    assert_eq!(small.maintenance_stats().threads, 0);
    let map = HydraList::builder().maintainers(Maintainers::Clients).build();
    map.pin().extend((0..sized(100_000, 100) as u64).map(|n| (n, n)));
    let stats = map.maintenance_stats();
    assert!(stats.threads == 0 && (stats.rounds > 0 || cfg!(miri)), "{stats:?}");
}

/// The larger the map, the more changes happen until the next round of maintenance is due. So few rounds are due while
/// a map grows, and all of them together cost O(n).
#[cfg(not(miri))]
#[test]
fn rounds_become_rare_as_the_map_grows() {
    let map = HydraList::builder().maintainers(Maintainers::Clients).build();
    let mut counted = Vec::new();
    for part in 0..4u64 {
        map.pin().extend((part * 50_000..(part + 1) * 50_000).map(|n| (n, n)));
        counted.push(map.maintenance_stats().rounds);
    }
    assert!(counted[3] - counted[0] < 40, "{counted:?}");
}

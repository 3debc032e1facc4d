//! Values that own memory: every value is dropped exactly once, and none is read half-written or after its drop.

use super::keys::TestKey;
use super::tested::{Invariants, Make};
use super::{contents, scan, sized};
use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload::{self, Choice, Mix, OpKind};
use archipelago_index::{OrderedIndex, OrderedSession};
use archipelago_platform::thread;

/// Values are overwritten, updated, removed, or still present at the end. After the map has been dropped, all values
/// are dropped. No value is dropped before its last reader has ended.
pub fn drops<K: TestKey>(make: Make<K, Counted>) {
    watchdog(USUAL, |_| {
        let counter = DropCounter::new();
        let pool = K::pool(sized(250, 12));
        drop(make());
        let index = make();
        thread::scope(|s| {
            for t in 0..3 {
                let (index, pool) = (&index, &pool);
                s.spawn(move || use_counted(&index.pin(), pool, counter, t));
            }
        });
        index.check();
        let session = index.pin();
        let key = &pool[0];
        session.insert(key, counter.value(7));
        let held = session.get(key).expect("just inserted");
        assert_eq!(counter.errors(), 0, "a value was used after its drop, or dropped twice");
        assert!(counter.alive() > contents(&session).len() as i64, "the map dropped values it still holds");
        drop(session);
        drop(index);
        assert_eq!(held.tag(), 7, "a value handed out outlives the map");
        drop(held);
        counter.assert_all_dropped();
    });
}

fn use_counted<K: TestKey>(session: &impl OrderedSession<K, Counted>, pool: &[K], counter: DropCounter, thread: usize) {
    let (mut rng, choice) = (workload::rng(31, thread), Choice::zipf(pool.len(), 0.7));
    for _ in 0..sized(6000, 60) {
        let place = choice.next(&mut rng);
        let (key, tag) = (&pool[place], place as u64);
        let old = match Mix::EVEN.next(&mut rng) {
            OpKind::Get => session.get(key),
            OpKind::Insert => session.insert(key, counter.value(tag)),
            OpKind::Remove => session.remove(key),
            OpKind::Update => session.update(key, |old| counter.value(old.tag())),
            OpKind::Scan => {
                session.scan(key, 5, |key, value| assert_eq!(K::owned(key), pool[value.tag() as usize]));
                None
            }
        };
        assert!(old.is_none_or(|old| old.tag() == tag), "another key's value came back");
    }
    let mut found = Vec::new();
    session.get_many(pool, &mut found);
    for (tag, value) in (0..).zip(found) {
        assert!(value.is_none_or(|value| value.tag() == tag), "another key's value came back");
    }
}

/// Strings of many lengths are read while they are overwritten.
pub fn long_values<K: TestKey>(make: Make<K, String>) {
    watchdog(USUAL, |_| {
        let pool = K::pool(sized(40, 6));
        let index = make();
        let text = |place: usize, version: usize| format!("{place}/{version};").repeat(1 + version % 60);
        let is_whole = |place: usize, value: &str| {
            let version = value.split(['/', ';']).nth(1).and_then(|version| version.parse().ok());
            version.is_some_and(|version| value == text(place, version))
        };
        for (place, key) in pool.iter().enumerate() {
            index.pin().insert(key, text(place, 0));
        }
        thread::scope(|s| {
            for t in 0..4 {
                let (index, pool, text, is_whole) = (&index, &pool, &text, &is_whole);
                s.spawn(move || {
                    let session = index.pin();
                    let (mut rng, choice) = (workload::rng(41, t), Choice::uniform(pool.len()));
                    for version in 0..sized(4000, 40) {
                        let place = choice.next(&mut rng);
                        let key = &pool[place];
                        let seen = match (t, version % 4) {
                            (0, _) => session.insert(key, text(place, version)),
                            (1, 0) => session.update(key, |old| {
                                assert!(is_whole(place, old), "update saw {old:?} at {key:?}");
                                text(place, version)
                            }),
                            (_, 1) => scan(&session, key, 1).pop().map(|(_, value)| value),
                            _ => session.get(key),
                        };
                        let seen = seen.unwrap_or_else(|| panic!("{key:?} is always there"));
                        assert!(is_whole(place, &seen), "{seen:?} at {key:?}");
                    }
                });
            }
        });
        index.check();
    });
}

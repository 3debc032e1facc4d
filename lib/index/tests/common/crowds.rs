//! A crowd of threads (many more than processors) that uses a map with all kinds of operations.

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::hostile::{Longest, crowd, in_turns, longest_gap, some_try, within};
use archipelago_index::map::{Kind, Map};
use archipelago_platform::time::{Duration, Instant};

/// Lets a crowd of threads use a map in a range of keys. The values that they read must be in order and belong to their
/// keys, and no entry may be lost. In any crowd of this size, threads wait a long time for a processor. A run without a
/// map measures this time, and no operation may take much longer. The bound on time must hold in one of several tries.
pub fn in_a_crowd<S: Kind>(
    map: Map<S, u64, Counted>,
    counter: DropCounter,
    keys: u64,
    threads: usize,
    (tries, time): (usize, Duration),
) {
    some_try(tries, || {
        let longest = Longest::default();
        let work = |me: usize, end: Instant| {
            let (map, mut random) = (map.pin(), me as u64 + 1);
            while Instant::now() < end {
                random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                let (key, start) = ((random >> 40) % keys, Instant::now());
                let mut last = None;
                match (random >> 33) % 12 {
                    0..=2 => _ = map.insert(key, counter.value(key)),
                    3..=5 => _ = map.remove(&key),
                    6 => _ = map.update(&key, |_| counter.value(key)),
                    7 => assert!(map.get(&key).is_none_or(|value| value.tag() == key)),
                    8 => assert!(map.pop_first().is_none_or(|(key, value)| value.tag() == key)),
                    9 => assert!(map.pop_last().is_none_or(|(key, value)| value.tag() == key)),
                    10 => {
                        _ = map.scan(&key, 20, |key, value| {
                            assert!(last < Some(key) && value.tag() == key);
                            last = Some(key);
                        })
                    }
                    _ => {
                        _ = map.scan_rev(&key, 20, |key, value| {
                            assert!(last.is_none_or(|last| last > key) && value.tag() == key);
                            last = Some(key);
                        })
                    }
                }
                longest.note(start.elapsed());
            }
        };
        let (_, control) = in_turns(|| longest_gap(threads, time / 2), || crowd(threads, time, work));
        map.check_invariants();
        within("an operation in a crowd", 10, longest.get(), control)
    });
    drop(map);
    counter.assert_all_dropped();
}

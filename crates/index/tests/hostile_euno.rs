//! `EunoBTree` and `EunoSkipList` under loads that scatter their chunks: many more threads than processors in few keys, pops
//! from both ends, windows of keys that slide; with bounds on memory and on the longest operation.

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::hostile::{
    self, Counting, Longest, alone, crowd, duration, in_turns, longest_gap, some_try, within,
};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_index::euno::{Contention, Skip, Tree};
use archipelago_index::map::{Kind, Map};
use archipelago_index::{EunoBTree, EunoSkipList};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Chunks that are scattered have more entries than fit into one: taking from the ends must not need that they do.
fn pops<S: Kind>(map: Map<S, u64, Counted>, counter: DropCounter) {
    let map_ = map.pin();
    let count = if cfg!(miri) { 150 } else { 5_000 };
    // In no order, so that parts fill.
    (0..count).map(|n| n * 7_919 % count).for_each(|n| _ = map_.insert(n, counter.value(n)));
    for n in 0..count / 2 {
        assert_eq!(map_.pop_first().map(|(key, value)| (key, value.tag())), Some((n, n)));
        let last = count - 1 - n;
        assert_eq!(map_.pop_last().map(|(key, value)| (key, value.tag())), Some((last, last)));
        // What was taken comes again between the others.
        if n % 3 == 0 {
            _ = map_.insert(n, counter.value(n));
            assert_eq!(map_.pop_first().map(|(key, _)| key), Some(n));
        }
    }
    assert!(map_.pop_first().is_none() && map_.pop_last().is_none());
    map.check_invariants();
    drop(map);
    counter.assert_all_dropped();
}

#[test]
fn scattered_chunks_are_taken_from_at_both_ends() {
    for transactions in [true, false] {
        for contention in [Contention::Always, Contention::Never, Contention::Adaptive] {
            let tree = EunoBTree::builder().contention(contention).transactions(transactions).build();
            pops::<Tree>(tree, DropCounter::new());
            let list = EunoSkipList::builder().contention(contention).transactions(transactions).build();
            pops::<Skip>(list, DropCounter::new());
        }
    }
}

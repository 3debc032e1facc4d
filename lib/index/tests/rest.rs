//! Idle maps without a thread of their own. Values that were removed or replaced last are freed soon, although no other
//! operation follows. (One thread of the process maintains all idle maps.) A map that is owned by one of its own
//! removed values is freed, too.
#![cfg(not(any(miri, archipelago_sim)))]

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::watchdog::{USUAL, watchdog};
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::blink::{Builder, LogFed, Standard};
use archipelago_index::hydra::Maintainers;
use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList, OrderedIndex, OrderedSession};
use archipelago_platform::topology::Topology;
use archipelago_tested as _;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

/// A value that may own the map that contains it.
#[derive(Clone)]
struct Owner {
    _counted: Counted,
    _map: Option<Arc<dyn Any + Send + Sync>>,
}

/// Waits until only `alive` values are alive, without any call to the map.
fn wait_for_alive(counter: DropCounter, alive: i64) {
    while counter.alive() > alive {
        sleep(Duration::from_millis(1));
    }
}

/// Garbage is freed while the map is in use, while it is idle, and after a reader has delayed it.
fn garbage_goes<M: OrderedIndex<u64, Counted>>(map: &M, count: u64) {
    watchdog(USUAL, |notes| {
        let counter = DropCounter::new();
        let all = count as i64;
        (0..count).for_each(|key| drop(map.pin().insert(&key, counter.value(key))));
        for round in 0..10 {
            notes.note(format!("round {round}"));
            drop(map.pin().insert(&round, counter.value(1)));
            wait_for_alive(counter, all);
            // Sometimes this sleep is so long that the thread that maintains idle maps has stopped looking at the map.
            sleep(Duration::from_millis(round % 3 * 10));
        }
        notes.note("another thread's, which has ended");
        scope(|scope| scope.spawn(|| drop(map.pin().remove(&2))).join()).unwrap();
        wait_for_alive(counter, all - 1);
        notes.note("behind a reader");
        map.pin().scan(&0, 1, |_, _| {
            drop(map.pin().remove(&3));
            drop(map.pin().insert(&4, counter.value(1)));
            sleep(Duration::from_millis(20));
            assert_eq!(counter.alive(), all, "a reader may still look");
        });
        wait_for_alive(counter, all - 2);
    });
}

/// The last owner of a map is a value that was removed from it. A thread that does not belong to the map drops this
/// value.
fn a_map_goes_with_its_value<M: OrderedIndex<u64, Owner> + 'static>(make: impl Fn() -> M, count: u64) {
    watchdog(USUAL, |notes| {
        let counter = DropCounter::new();
        let value = |map: Option<Arc<dyn Any + Send + Sync>>| Owner { _counted: counter.value(0), _map: map };
        for round in 0..100 {
            notes.note(format!("round {round}"));
            let map = Arc::new(make());
            (0..count).for_each(|key| drop(map.pin().insert(&key, value(None))));
            drop(map.pin().insert(&7, value(Some(map.clone()))));
            // Sometimes the thread that maintains idle maps still looks at the map, and sometimes it has long stopped.
            sleep(Duration::from_millis(round % 4 * 2));
            drop(map.pin().remove(&7));
            drop(map);
        }
        wait_for_alive(counter, 0);
        counter.assert_all_dropped();
    });
}

/// Makes a map with too few entries for a background thread.
fn small<V: Send + Sync + 'static>() -> HydraList<u64, V> {
    HydraList::new()
}

fn clients<V: Send + Sync + 'static>() -> HydraList<u64, V> {
    HydraList::builder().maintainers(Maintainers::Clients).build()
}

/// Makes a tree with replicas on two nodes, which are fed from a log.
fn fed<V: Send + Sync + 'static>() -> BLinkTree<u64, V, LogFed<Standard>> {
    Builder::default().topology(Topology::synthetic(2, 1)).build()
}

#[test]
fn garbage_of_a_small_hydralist_goes() {
    garbage_goes(&small(), 100);
}

#[test]
fn garbage_of_a_hydralist_without_threads_goes() {
    garbage_goes(&clients(), 40_000);
}

#[test]
fn garbage_of_an_art_goes() {
    garbage_goes(&Art::new(), 1_000);
}

#[test]
fn garbage_of_a_b_link_tree_goes() {
    garbage_goes(&BLinkTree::<u64, _>::new(), 1_000);
}

#[test]
fn garbage_of_replicas_from_a_log_goes() {
    garbage_goes(&fed(), 1_000);
}

#[test]
fn garbage_of_eunomias_maps_goes() {
    garbage_goes(&EunoBTree::<u64, _>::new(), 1_000);
    garbage_goes(&EunoSkipList::<u64, _>::new(), 1_000);
}

#[test]
fn a_small_hydralist_goes_with_its_value() {
    a_map_goes_with_its_value(small, 100);
}

#[test]
fn a_hydralist_without_threads_goes_with_its_value() {
    a_map_goes_with_its_value(clients, 3_000);
}

#[test]
fn an_art_goes_with_its_value() {
    a_map_goes_with_its_value(Art::new, 100);
}

#[test]
fn a_b_link_tree_goes_with_its_value() {
    a_map_goes_with_its_value(BLinkTree::<u64, _>::new, 100);
}

#[test]
fn replicas_from_a_log_go_with_their_value() {
    a_map_goes_with_its_value(fed, 100);
}

#[test]
fn eunomias_maps_go_with_their_values() {
    a_map_goes_with_its_value(EunoBTree::<u64, _>::new, 200);
    a_map_goes_with_its_value(EunoSkipList::<u64, _>::new, 200);
}

/// A value whose flags show that its drop has begun, and that it has ended. Clones set no flag.
struct Slow(Option<Arc<[AtomicBool; 2]>>);

impl Clone for Slow {
    fn clone(&self) -> Self {
        Self(None)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        if let Some([begun, ended]) = self.0.as_deref() {
            begun.store(true, Ordering::Release);
            sleep(Duration::from_millis(20));
            ended.store(true, Ordering::Release);
        }
    }
}

/// When the drop of a map returns, all its values have been dropped, even if a thread was maintaining it.
fn the_end_waits_for_a_look<M: OrderedIndex<u64, Slow>>(map: M) {
    watchdog(USUAL, |_| {
        let flags: Arc<[AtomicBool; 2]> = Arc::default();
        drop(map.pin().insert(&1, Slow(Some(flags.clone()))));
        drop(map.pin().remove(&1));
        while !flags[0].load(Ordering::Acquire) {
            sleep(Duration::from_micros(100));
        }
        drop(map);
        assert!(flags[1].load(Ordering::Acquire), "a value of a map that has gone is being dropped");
    });
}

#[test]
fn the_end_of_a_small_hydralist_waits_for_a_look() {
    the_end_waits_for_a_look(small());
}

#[test]
fn the_end_of_an_art_waits_for_a_look() {
    the_end_waits_for_a_look(Art::new());
}

#[test]
fn the_end_of_a_b_link_tree_waits_for_a_look() {
    the_end_waits_for_a_look(BLinkTree::<u64, Slow>::new());
}

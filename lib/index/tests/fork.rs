//! Tests of maps in a child process, which does not have the map's background threads. The map can be used and dropped
//! in the child, whatever its threads were doing when the process forked. The same holds for maps without threads. The
//! tests run without the test harness, since a test with `fork` must know all threads of its process.

#[cfg(all(unix, not(any(miri, archipelago_sim))))]
#[path = "common/quiet.rs"]
#[allow(dead_code)]
mod quiet;

#[cfg(all(unix, not(any(miri, archipelago_sim))))]
mod forked {
    use super::quiet::soon;
    use archipelago_check::drops::{Counted, DropCounter};
    use archipelago_check::forked::in_child;
    use archipelago_index::blink::{Builder, LogFed, Standard};
    use archipelago_index::euno::Contention;
    use archipelago_index::map::{Kind, Map};
    use archipelago_index::{BLinkTree, EunoBTree, EunoSkipList, HydraList};
    use archipelago_platform::topology::Topology;
    use std::thread::sleep;
    use std::time::Duration;

    /// A map with at least this many entries has background threads.
    const LARGE: u64 = 36_000;

    fn map(counter: DropCounter, nodes: usize) -> HydraList<u64, Counted> {
        let map = HydraList::builder().topology(Topology::synthetic(nodes, 1)).build();
        map.pin().extend((0..LARGE).map(|key| (key, counter.value(key))));
        assert_eq!(map.maintenance_stats().threads, nodes);
        map
    }

    fn used_and_dropped(map: HydraList<u64, Counted>, counter: DropCounter) {
        let rounds = map.maintenance_stats().rounds;
        map.pin().extend((LARGE / 2..3 * LARGE).map(|key| (key, counter.value(key))));
        (0..LARGE).for_each(|key| assert!(map.pin().delete(&key)));
        assert_eq!(map.pin().get_with(&(2 * LARGE), Counted::tag), Some(2 * LARGE));
        assert!(map.maintenance_stats().rounds > rounds, "the layers are brought up to date");
        map.sync();
        assert_eq!(map.len() as u64, 2 * LARGE);
        soon(|| match counter.alive() {
            alive if alive == 2 * LARGE as i64 => Ok(()),
            alive => Err(format!("{alive} values are alive")),
        });
        map.check_invariants();
        drop(map);
        counter.assert_all_dropped();
    }

    /// The process forks while the map's threads sleep. The map is used and dropped in the child, and then in the
    /// parent.
    fn threads_asleep(nodes: usize) {
        let counter = DropCounter::new();
        let map = map(counter, nodes);
        loop {
            let stats = map.maintenance_stats();
            if stats.roused == stats.done {
                break;
            }
            sleep(Duration::from_millis(1));
        }
        // Even a thread that is about to sleep gets the time to do so.
        sleep(Duration::from_millis(5));
        let map = std::cell::Cell::new(Some(map));
        let ended = in_child(|| {
            used_and_dropped(map.take().expect("it was put there"), counter);
        });
        assert_eq!(ended, 0, "the child");
        let map = map.take().expect("the child took its own");
        map.pin().extend((LARGE / 2..3 * LARGE).map(|key| (key, counter.value(key))));
        assert_eq!(map.pin().get_with(&LARGE, Counted::tag), Some(LARGE));
        drop(map);
        counter.assert_all_dropped();
    }

    /// The process forks at any time, so the map's threads may be about to work. The map is dropped in one child, and
    /// used in another one.
    fn threads_at_work(nodes: usize) {
        let counter = DropCounter::new();
        for round in 0..20 {
            let map = std::cell::Cell::new(Some(map(counter, nodes)));
            sleep(Duration::from_micros(round * 200));
            let ended = in_child(|| drop(map.take()));
            assert_eq!(ended, 0, "the child of round {round}");
            let ended = in_child(|| used_and_dropped(map.take().expect("it was put there"), counter));
            assert_eq!(ended, 0, "the child of round {round} that used it");
        }
        counter.assert_all_dropped();
    }

    /// A value whose drop takes `time`.
    struct Slow {
        _value: Counted,
        time: Duration,
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            sleep(self.time);
        }
    }

    /// The process forks while a thread is freeing removed values. It is the map's own thread or, if the map has none,
    /// the process's thread for idle maps.
    fn threads_that_free<S: Kind>(map: Map<S, u64, Slow>, counter: DropCounter, entries: u64) {
        let fill = |map: &Map<S, u64, Slow>, keys: std::ops::Range<u64>, slow: u64| {
            let time = |key| Duration::from_micros(if key < slow { 300 } else { 0 });
            map.pin().extend(keys.map(|key| (key, Slow { _value: counter.value(key), time: time(key) })));
        };
        fill(&map, 0..entries, 0);
        let map = std::cell::Cell::new(Some(map));
        for round in 0..8 {
            let here = map.take().expect("it was put there");
            fill(&here, 0..40, 40);
            (0..40).for_each(|key| assert!(here.pin().delete(&key)));
            map.set(Some(here));
            sleep(Duration::from_millis(1 + round));
            let ended = in_child(|| {
                let map = map.take().expect("it was put there");
                fill(&map, entries..2 * entries, 0);
                map.sync();
                map.check_invariants();
                drop(map);
                counter.assert_all_dropped();
            });
            assert_eq!(ended, 0, "the child of round {round} of a {}", S::NAME);
        }
        drop(map.take());
        counter.assert_all_dropped();
    }

    /// Tests replicas that are fed from a log. The log has operations of threads that do not exist in the child.
    fn trees() {
        let counter = DropCounter::new();
        let tree: BLinkTree<u64, Counted, LogFed<Standard>> =
            Builder::default().topology(Topology::synthetic(3, 1)).build();
        let insert = |from: u64| (from..from + LARGE).for_each(|key| drop(tree.pin().insert(key, counter.value(key))));
        std::thread::scope(|scope| (0..3).for_each(|n| _ = scope.spawn(move || insert(n * LARGE / 2))));
        let tree = std::cell::Cell::new(Some(tree));
        let used_and_dropped = || {
            let tree = tree.take().expect("it was put there");
            (0..LARGE).for_each(|key| assert!(tree.pin().delete(&key)));
            assert_eq!(tree.pin().pop_first().map(|(key, _)| key), Some(LARGE));
            assert_eq!(tree.pin().iter().count() as u64, LARGE - 1);
            tree.check_invariants();
            drop(tree);
            counter.assert_all_dropped();
        };
        assert_eq!(in_child(used_and_dropped), 0, "the child");
        used_and_dropped();
    }

    /// One of Eunomia's maps has garbage when the process forks. The thread for idle maps, which would have freed it,
    /// does not exist in the child. The map is used and dropped in the child, and then in the parent.
    fn eunomia<S: Kind>(map: Map<S, u64, Counted>, counter: DropCounter) {
        let used = |map: Map<S, u64, Counted>| {
            map.pin().extend((LARGE / 2..3 * LARGE).map(|key| (key, counter.value(key))));
            (0..LARGE).for_each(|key| assert!(map.pin().delete(&key)));
            assert_eq!(map.pin().get_with(&(2 * LARGE), Counted::tag), Some(2 * LARGE));
            map.sync();
            map.check_invariants();
            drop(map);
            counter.assert_all_dropped();
        };
        map.pin().extend((0..LARGE).map(|key| (key, counter.value(key))));
        map.pin().retain(|key, _| key % 2 == 0);
        map.pin().extend((0..LARGE).map(|key| (key, counter.value(key))));
        let map = std::cell::Cell::new(Some(map));
        assert_eq!(in_child(|| used(map.take().expect("it was put there"))), 0, "the child of a {}", S::NAME);
        used(map.take().expect("the child took its own"));
    }

    pub fn all() {
        trees();
        for nodes in [1, 3] {
            threads_asleep(nodes);
            threads_at_work(nodes);
            let map = HydraList::builder().topology(Topology::synthetic(nodes, 1)).build();
            threads_that_free(map, DropCounter::new(), LARGE);
        }
        threads_that_free(EunoBTree::new(), DropCounter::new(), 100);
        threads_that_free(EunoSkipList::new(), DropCounter::new(), 100);
        for contention in [Contention::Adaptive, Contention::Always] {
            eunomia(EunoBTree::builder().contention(contention).build(), DropCounter::new());
            eunomia(EunoSkipList::builder().contention(contention).build(), DropCounter::new());
        }
        println!("ok");
    }
}

fn main() {
    #[cfg(all(unix, not(any(miri, archipelago_sim))))]
    forked::all();
}

//! A map with background threads in a child process, which has not got them: dropping it there neither waits nor panics,
//! and a map whose threads slept can be used there as well, as can one without threads. No test harness: `fork` wants a process of known threads.

#[cfg(all(unix, not(any(miri, archipelago_sim))))]
mod forked {
    use archipelago_check::drops::{Counted, DropCounter};
    use archipelago_index::blink::{Builder, LogFed, Standard};
    use archipelago_index::euno::Contention;
    use archipelago_index::map::{Kind, Map};
    use archipelago_index::{BLinkTree, EunoBTree, EunoSkipList, HydraList};
    use archipelago_platform::topology::Topology;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread::sleep;
    use std::time::Duration;

    /// Enough entries for background threads.
    const LARGE: u64 = 26_000;

    /// A child that has not ended by then hangs.
    const SECONDS: u32 = 30;

    /// Runs `child` in a child process and says how that ended: 0 if it returned, 1 if it panicked, less if it was killed.
    fn in_child(child: impl FnOnce()) -> i32 {
        // SAFETY: the child has this thread only, which ends it by `_exit`; what it runs in between is what is tested.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: a signal that ends the process if it hangs.
            unsafe { libc::alarm(SECONDS) };
            let result = catch_unwind(AssertUnwindSafe(child));
            // SAFETY: nothing else runs here.
            unsafe { libc::_exit(i32::from(result.is_err())) }
        }
        let mut status = 0;
        // SAFETY: `status` is ours to write.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
    }

    fn map(counter: DropCounter, nodes: usize) -> HydraList<u64, Counted> {
        let map = HydraList::builder().topology(Topology::synthetic(nodes, 1)).build();
        map.pin().extend((0..LARGE).map(|key| (key, counter.value(key))));
        assert_eq!(map.maintenance_stats().threads, nodes);
        map
    }

    /// The map is used and dropped in the child, its threads having slept; and then here.
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
        // About to sleep is not asleep.
        sleep(Duration::from_millis(5));
        let map = std::cell::Cell::new(Some(map));
        let ended = in_child(|| {
            let map = map.take().expect("it was put there");
            map.pin().extend((LARGE / 2..3 * LARGE).map(|key| (key, counter.value(key))));
            (0..LARGE).for_each(|key| assert!(map.pin().delete(&key)));
            assert_eq!(map.pin().get_with(&(2 * LARGE), Counted::tag), Some(2 * LARGE));
            map.sync();
            assert_eq!((map.len() as u64, counter.alive()), (2 * LARGE, 2 * LARGE as i64));
            map.check_invariants();
            drop(map);
            counter.assert_all_dropped();
        });
        assert_eq!(ended, 0, "the child");
        let map = map.take().expect("the child took its own");
        map.pin().extend((LARGE / 2..3 * LARGE).map(|key| (key, counter.value(key))));
        assert_eq!(map.pin().get_with(&LARGE, Counted::tag), Some(LARGE));
        drop(map);
        counter.assert_all_dropped();
    }

    /// The map is dropped in a child whenever: its threads may be at work.
    fn threads_at_work(nodes: usize) {
        let counter = DropCounter::new();
        for round in 0..20 {
            let map = std::cell::Cell::new(Some(map(counter, nodes)));
            sleep(Duration::from_micros(round * 200));
            let ended = in_child(|| drop(map.take()));
            assert_eq!(ended, 0, "the child of round {round}");
        }
        counter.assert_all_dropped();
    }

    /// Replicas that are fed from a log, which threads have filled that are not in the child.
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

    /// A map of Eunomia's, with garbage that the process's thread was to look after, is used and dropped in the child; and then
    /// here.
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
        }
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

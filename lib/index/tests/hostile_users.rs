//! Hostile users' code: closures and destructors that panic or use the map themselves, and threads that end
//! while the map is being dropped.

mod common;

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::hostile::some_try;
use archipelago_check::watchdog::{USUAL, watchdog};
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::art::Radix;
use archipelago_index::blink::BLink;
use archipelago_index::euno::{Skip, Tree};
use archipelago_index::hydra::Hydra;
use archipelago_index::hydra::{Maintainers, SearchLayerKind};
use archipelago_index::map::{Kind, Map};
use archipelago_index::{Art, Change, HydraList, OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::sync::{Arc, Barrier, LazyLock};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_platform::topology::Topology;
use archipelago_tested as _;
use common::{contents, sized};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn panics(f: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "the panic went missing");
}

/// A counted value whose drop panics if `in_drop` is true, and whose clone panics if `in_clone` is true.
struct Explosive {
    counted: Counted,
    in_drop: bool,
    in_clone: bool,
}

impl Explosive {
    fn new(counter: DropCounter, tag: u64) -> Self {
        Explosive { counted: counter.value(tag), in_drop: false, in_clone: false }
    }

    /// Makes a value that panics when it is cloned.
    fn in_clone(counter: DropCounter, tag: u64) -> Self {
        Explosive { counted: counter.value(tag), in_drop: false, in_clone: true }
    }

    /// Makes a value. If its number is a multiple of `every`, it panics when it is dropped.
    fn in_drop(counter: DropCounter, tag: u64, every: u64) -> Self {
        Explosive { counted: counter.value(tag), in_drop: tag.is_multiple_of(every), in_clone: false }
    }
}

impl Clone for Explosive {
    fn clone(&self) -> Self {
        assert!(!self.in_clone, "as planned, in clone");
        // A clone does not panic.
        Explosive { counted: self.counted.clone(), in_drop: false, in_clone: false }
    }
}

impl Drop for Explosive {
    fn drop(&mut self) {
        assert!(!self.in_drop || thread::panicking(), "as planned, in drop");
    }
}

const KEYS: u64 = sized(2_000, 60) as u64;

/// Every closure that a user passes panics once. Afterwards the map is as if the call had not been made.
fn closures_panic<I: OrderedIndex<u64, Explosive>>(map: I, get_or_insert: impl Fn(&I, u64, &dyn Fn() -> Explosive)) {
    let counter = DropCounter::new();
    let session = map.pin();
    for key in 0..KEYS {
        session.insert(&key, Explosive::new(counter, key));
    }
    for key in (0..KEYS).step_by(7) {
        panics(|| {
            session.update(&key, |_| panic!("as planned, in update"));
        });
        panics(|| get_or_insert(&map, KEYS + key, &|| panic!("as planned, in make")));
        panics(|| {
            session.scan(&key, 3, |_, _| panic!("as planned, in a scan"));
        });
        panics(|| {
            session.scan_rev(&key, 3, |_, _| panic!("as planned, in a scan"));
        });
        assert!(session.get(&(KEYS + key)).is_none());
        assert_eq!(session.update(&key, |old| old.clone()).map(|old| old.counted.tag()), Some(key));
    }
    // Another thread removes every second key, and finds no lock held.
    thread::scope(|s| {
        s.spawn(|| {
            let session = map.pin();
            for key in (0..KEYS).step_by(2) {
                assert_eq!(session.remove(&key).map(|old| old.counted.tag()), Some(key));
            }
        });
    });
    assert_eq!(contents(&session).len() as u64, KEYS / 2);
    drop(session);
    drop(map);
    counter.assert_all_dropped();
}

#[test]
fn closures_panic_in_a_hydralist() {
    closures_panic(HydraList::new(), |map, key, make| {
        map.pin().get_or_insert_with(key, make);
    });
    closures_panic(Art::new(), |map, key, make| {
        map.pin().get_or_insert_with(key, make);
    });
}

/// All entries that the iterator returned before it panicked are in the map, although entries are inserted in batches.
#[test]
fn an_iterator_panics_and_its_entries_are_there() {
    for taken in [0, 1, 63, 64, 65, sized(1_000, 100)] {
        let counter = DropCounter::new();
        let map = HydraList::new();
        let entries = (0..).map(|n| {
            assert!(n < taken as u64, "as planned, in an iterator");
            (n, Explosive::new(counter, n))
        });
        panics(|| map.pin().extend(entries));
        assert_eq!(map.len(), taken);
        assert!(map.pin().iter().map(|entry| entry.0).eq(0..taken as u64));
        drop(map);
        counter.assert_all_dropped();
    }
}

/// An iterator that has returned its end is not called again.
#[test]
fn an_iterator_s_end_is_its_end() {
    for given in [0, 5, 64, 70] {
        let mut turn = 0;
        let map: HydraList<u64, u64> = HydraList::new();
        map.pin().extend(std::iter::from_fn(|| {
            turn += 1;
            assert!(turn <= given + 1, "asked again after the end");
            (turn <= given).then_some((turn, turn))
        }));
        assert_eq!(map.len() as u64, given);
    }
}

/// `retain` does not remove a value that `keep` has not seen: here `keep` changes some entries itself before it
/// approves their removal.
#[test]
fn values_changed_since_they_were_seen_are_retained() {
    fn check<V: Clone + Send + Sync + PartialEq + 'static>(value: impl Fn(u64) -> V) {
        let map: HydraList<u64, V> = (0..KEYS).map(|key| (key, value(key))).collect();
        let session = map.pin();
        session.retain(|key, _| {
            if key % 3 == 0 {
                session.insert(key, value(KEYS + key));
            }
            key % 3 == 2
        });
        assert!(session.iter().map(|entry| entry.0).eq((0..KEYS).filter(|key| key % 3 != 1)));
        assert!(session.iter().all(|(key, seen)| seen == value(if key % 3 == 0 { KEYS + key } else { key })));
        map.check_invariants();
    }
    check(|n| n);
    check(|n| n.to_string());
}

/// While `make` runs, removed and replaced values are freed, since `make` may take a long time.
#[test]
fn a_value_in_the_making_holds_nothing_back() {
    fn check<I: OrderedIndex<u64, Counted>>(map: I, make: impl Fn(&I, &dyn Fn() -> Counted)) {
        let counter = DropCounter::new();
        map.pin().insert(&1, counter.value(1));
        make(&map, &|| {
            drop(map.pin().remove(&1));
            // Many replaced values make the thread reclaim. (A try fails if another thread is preempted in a section.)
            let rounds = 10 * KEYS;
            some_try(10, || {
                (0..rounds).for_each(|tag| drop(map.pin().insert(&3, counter.value(tag))));
                let alive = counter.alive();
                let freed = alive < rounds as i64 / 2;
                thread::sleep(Duration::from_millis(if freed { 0 } else { 20 }));
                if freed { Ok(()) } else { Err(format!("{alive} values are still there after {rounds} replacements")) }
            });
            counter.value(2)
        });
        assert!(map.pin().get(&2).is_some());
    }
    check(HydraList::new(), |map, make| drop(map.pin().get_or_insert_with(2, make)));
    check(Art::new(), |map, make| drop(map.pin().get_or_insert_with(2, make)));
}

/// The clone of a value panics when the map returns it. The entry has still been replaced or removed, as the call
/// requested.
fn clones_panic<I: OrderedIndex<u64, Explosive>>(map: I) {
    let counter = DropCounter::new();
    let session = map.pin();
    let armed = |key| Explosive::in_clone(counter, key);
    for key in 0..KEYS {
        session.insert(&key, armed(key));
    }
    for key in (0..KEYS).step_by(3) {
        panics(|| drop(session.get(&key)));
        panics(|| drop(session.insert(&key, armed(key))));
        panics(|| drop(session.remove(&key)));
        assert!(session.get(&key).is_none(), "removed, although no caller learnt what");
        panics(|| drop(session.update(&(key + 1).min(KEYS - 1), |old| armed(old.counted.tag()))));
    }
    drop(session);
    drop(map);
    counter.assert_all_dropped();
}

#[test]
fn clones_panic_in_every_map() {
    clones_panic(HydraList::<u64, Explosive>::new());
    clones_panic(Art::<u64, Explosive>::new());
}

/// A clone panics in the middle of an iteration. Afterwards the iterator never shows an entry twice or out of order.
#[test]
fn clones_panic_in_an_iterator() {
    fn keys(mut next: impl FnMut() -> Option<(u64, Explosive)>) -> Vec<u64> {
        let mut seen = Vec::new();
        for _ in 0..1_000 {
            match catch_unwind(AssertUnwindSafe(&mut next)) {
                Ok(Some((key, _))) => seen.push(key),
                Ok(None) => return seen,
                Err(_) => {}
            }
        }
        panic!("no end after {seen:?}")
    }
    let counter = DropCounter::new();
    let value = |key| if key % 17 == 11 { Explosive::in_clone(counter, key) } else { Explosive::new(counter, key) };
    let list: HydraList<u64, Explosive> = (0..100).map(|key| (key, value(key))).collect();
    let tree = Art::new();
    (0..100).for_each(|key| _ = tree.pin().insert(key, value(key)));
    let (mut up, mut down) = (list.pin().iter(), list.pin().iter());
    let (mut tree_up, mut tree_down) = (tree.pin().iter(), tree.pin().iter());
    let forth = [keys(|| up.next()), keys(|| tree_up.next())];
    let back = [keys(|| down.next_back()), keys(|| tree_down.next_back())];
    assert!(forth.iter().all(|keys| keys.starts_with(&[0, 1, 2]) && keys.is_sorted_by(|a, b| a < b)));
    assert!(back.iter().all(|keys| keys.starts_with(&[99, 98, 97]) && keys.is_sorted_by(|a, b| a > b)));
    drop((up, down, tree_up, tree_down));
    drop((list, tree));
    counter.assert_all_dropped();
}

/// The drop of a value panics. If this happens while the map is dropped, the panic continues after everything is
/// dropped. If it happens later than the call that removed the value, the panic is reported and not propagated.
fn drops_panic<I: OrderedIndex<u64, Explosive>>(make: impl Fn() -> I) {
    let counter = DropCounter::new();
    let armed = |key| Explosive::in_drop(counter, key, 5);
    let map = make();
    thread::scope(|s| {
        for t in 0..2 {
            let (map, armed) = (&map, &armed);
            s.spawn(move || {
                let session = map.pin();
                for round in 0..4 {
                    for key in (t..KEYS).step_by(2) {
                        session.insert(&key, armed(key + round));
                    }
                    for key in (t..KEYS).step_by(4) {
                        assert!(session.remove(&key).is_some());
                    }
                }
            });
        }
    });
    map.quiesce();
    assert_eq!(contents(&map.pin()).len() as u64, KEYS / 2);
    panics(|| drop(map));
    counter.assert_all_dropped();
    // If no value panics, dropping the map does not panic.
    let map = make();
    map.pin().insert(&1, armed(1));
    drop(map);
    counter.assert_all_dropped();
}

#[test]
fn drops_panic_in_every_map() {
    drops_panic(HydraList::new);
    drops_panic(|| HydraList::builder().topology(Topology::synthetic(4, 1)).build());
    drops_panic(Art::new);
}

/// A panic drops a map whose values panic when they are dropped. A second panic that leaves a destructor would end the
/// process, so the map must not propagate it.
#[test]
fn a_map_dropped_by_a_panic_says_nothing_more() {
    let counter = DropCounter::new();
    let unwind = catch_unwind(|| {
        let map = HydraList::new();
        let tree: Art<u64, _> = Art::new();
        for key in 0..50u64 {
            map.pin().insert(key, Explosive::in_drop(counter, key, 1));
            tree.pin().insert(key, Explosive::in_drop(counter, key, 1));
        }
        panic!("the first");
    });
    assert_eq!(unwind.unwrap_err().downcast_ref(), Some(&"the first"));
    counter.assert_all_dropped();
}

/// A value whose destructor writes to the map in which it was.
struct Reentrant {
    key: u64,
    last: bool,
}

impl Clone for Reentrant {
    fn clone(&self) -> Self {
        Reentrant { key: self.key, last: true }
    }
}

static WRITES_FROM_DROP: AtomicUsize = AtomicUsize::new(0);
static REENTERED: LazyLock<HydraList<u64, Reentrant>> = LazyLock::new(|| {
    let builder = HydraList::builder().topology(Topology::synthetic(2, 1));
    // With these settings, the threads that remove values also retire nodes of the search layer.
    builder.maintainers(Maintainers::Clients).search_layer(SearchLayerKind::Art).build()
});

impl Drop for Reentrant {
    fn drop(&mut self) {
        if self.last {
            return;
        }
        let write = WRITES_FROM_DROP.fetch_add(1, Ordering::Relaxed) as u64;
        let session = REENTERED.pin();
        // The key is always new, so that pages are split.
        let other = (1 << 63) | write.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        session.upsert(&other, Reentrant { key: other, last: true });
        session.get_with(&self.key, |value| assert_eq!(value.key, self.key));
        session.delete(&(other ^ 1));
        if write % 512 < 4 {
            session.sync();
        }
    }
}

/// Any operation may drop values. So their destructors may run in operations that split or merge pages or do a round of
/// maintenance, but never while the map holds a lock that the destructors need.
#[test]
fn destructors_may_use_the_map() {
    watchdog(USUAL, |_| {
        let keys = sized(20_000, 200) as u64;
        thread::scope(|s| {
            for t in 0..2 {
                s.spawn(move || {
                    let session = REENTERED.pin();
                    for round in 0..3 {
                        for key in (t..keys).step_by(2) {
                            session.upsert(&key, Reentrant { key, last: false });
                        }
                        for key in (t..keys).step_by(2) {
                            assert!(session.delete(&key), "round {round}");
                        }
                    }
                });
            }
        });
        (0..20).for_each(|_| REENTERED.sync());
        REENTERED.pin().retain(|_, _| false);
        (0..20).for_each(|_| REENTERED.sync());
        REENTERED.check_invariants();
        assert!(WRITES_FROM_DROP.load(Ordering::Relaxed) as u64 > keys);
    });
}

/// Whichever owner is the last drops the map, while other threads end their sessions and background threads still have
/// work to do.
#[test]
fn maps_end_while_sessions_end() {
    watchdog(USUAL, |notes| {
        for round in 0..sized(300, 4) {
            notes.note(format!("round {round}"));
            let nodes = 1 << (round % 4);
            let map: HydraList<u64, String> = HydraList::builder().topology(Topology::synthetic(nodes, 1)).build();
            // Some maps are large enough for background threads.
            let keys = if round % 10 == 0 { sized(40_000, 100) } else { 300 } as u64;
            map.pin().extend((0..keys).map(|n| (n, n.to_string())));
            let (map, barrier) = (Arc::new(map), Arc::new(Barrier::new(3)));
            let threads: Vec<_> = (0..3u64)
                .map(|t| {
                    let (map, barrier) = (map.clone(), barrier.clone());
                    thread::spawn(move || {
                        let session = map.pin();
                        barrier.wait();
                        for key in (t * 100..keys).step_by(1 + round % 3).take(200) {
                            session.remove(&key);
                            session.insert(key + keys, "new".into());
                        }
                    })
                })
                .collect();
            drop(map);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    });
}

/// The destructors of thread-locals use a map when the thread has released nearly all of its state.
#[test]
fn threads_use_a_map_on_their_way_out() {
    static MAP: LazyLock<HydraList<u64, String>> = LazyLock::new(HydraList::new);

    struct Late(u64);

    impl Drop for Late {
        fn drop(&mut self) {
            let session = MAP.pin();
            session.insert(self.0, "late".into());
            assert_eq!(session.get(&self.0).as_deref(), Some("late"));
            session.remove(&(self.0 - 1));
        }
    }

    thread::thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    let threads = sized(400, 8) as u64;
    for wave in 0..threads / 4 {
        let threads: Vec<_> = (0..4)
            .map(|t| {
                let key = (wave * 4 + t) * 2 + 1;
                thread::spawn(move || {
                    // This destructor is registered before those of everything that the map uses, so it runs after
                    // them.
                    LATE.with(|late| *late.borrow_mut() = Some(Late(key)));
                    MAP.pin().insert(key - 1, "early".into());
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
    MAP.sync();
    MAP.check_invariants();
    assert_eq!(MAP.len() as u64, threads);
    assert!(MAP.pin().iter().all(|(key, value)| key % 2 == 1 && value == "late"));
}

/// A value that counts down: each drop decrements the thread's counter of drops, and each clone the thread's counter of
/// clones. If the counter was zero, the drop or clone panics.
struct Mine(Counted);

thread::thread_local! {
    static DROPS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static CLONES_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

fn is_nth(left: &'static std::thread::LocalKey<Cell<u64>>) -> bool {
    let n = left.get();
    left.set(n.wrapping_sub(1));
    n == 0 && !thread::panicking()
}

impl Clone for Mine {
    fn clone(&self) -> Self {
        assert!(!is_nth(&CLONES_LEFT), "as planned, in clone");
        Mine(self.0.clone())
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        assert!(!is_nth(&DROPS_LEFT), "as planned, in drop");
    }
}

impl PartialEq for Mine {
    fn eq(&self, other: &Self) -> bool {
        self.0.tag() == other.0.tag()
    }
}

/// For each call and each n below 60, the nth destructor or the nth clone that the call runs panics. No value leaks,
/// and none is dropped twice.
///
/// (The calls end in `for_each(drop)`, and not in `last()`. If a destructor panics after a function has made its
/// result, the compiled code leaks the result. This also happens in `std`'s `Iterator::last`: rust-lang/rust issue
/// 47949.)
fn nth_panics<S: Kind>() {
    type On<S> = fn(&mut Map<S, u64, Mine>, &dyn Fn(u64) -> Mine);
    let calls: &[(&str, On<S>)] = &[
        ("clone", |map, _| drop(map.clone())),
        ("extend", |map, new| map.pin().extend((20..60).map(|n| (n, new(n))))),
        ("collect", |map, _| drop(map.pin().iter().collect::<Vec<_>>())),
        ("range", |map, _| _ = map.pin().range(5..).nth(20)),
        ("range back", |map, _| _ = map.pin().range(..).rev().nth(20)),
        ("both ends", |map, _| {
            let mut range = map.pin().range(..);
            _ = (range.next(), range.next_back(), range.next(), range.next_back());
        }),
        ("seek", |map, _| {
            let mut range = map.pin().range(..);
            _ = (range.next(), range.next());
            range.seek(&20);
            range.next();
            range.seek_back(&25);
        }),
        ("values", |map, _| map.pin().values().for_each(drop)),
        ("get_many", |map, _| _ = map.pin().get_many(&[1, 2, 3, 4, 5])),
        ("insert", |map, new| (0..40).for_each(|n| _ = map.pin().insert(n, new(n)))),
        ("upsert", |map, new| (0..40).for_each(|n| _ = map.pin().upsert(&n, new(n)))),
        ("replace", |map, new| (20..40).for_each(|n| _ = map.pin().replace(&n, new(n)))),
        ("update", |map, new| (20..40).for_each(|n| _ = map.pin().update(&n, |_| new(n)))),
        ("remove", |map, _| (0..40).for_each(|n| _ = map.pin().remove(&n))),
        ("pop", |map, _| while map.pin().pop_first().is_some() && map.pin().pop_last().is_some() {}),
        ("compute", |map, new| {
            (20..40).for_each(|n| {
                map.pin().compute(&n, |old| {
                    if n % 2 == 0 { Change::Put(new(n)) } else { old.map_or(Change::Keep, |_| Change::Remove) }
                });
            });
        }),
        ("compare_exchange", |map, new| {
            (20..40).for_each(|n| _ = map.pin().compare_exchange(&n, Some(&new(n)), (n % 3 > 0).then(|| new(n + 1))));
        }),
        ("insert_if_absent", |map, new| (20..40).for_each(|n| _ = map.pin().insert_if_absent(n, new(n)))),
        ("get_or_insert_with", |map, new| (20..40).for_each(|n| _ = map.pin().get_or_insert_with(n, || new(n)))),
        ("retain", |map, _| map.pin().retain(|key, _| key % 2 == 0)),
        ("remove_range", |map, _| _ = map.pin().remove_range(5..25)),
        ("extract_if", |map, _| map.pin().extract_if(.., |key, _| key % 2 == 0).for_each(drop)),
        ("split_off", |map, _| drop(map.split_off(&10))),
        ("append", |map, new| map.append(&mut (20..60).map(|n| (n, new(n))).collect())),
        ("into_iter", |map, _| drop(std::mem::take(map).into_iter().skip(5).step_by(3).collect::<Vec<_>>())),
        ("clear", |map, _| map.clear()),
        ("from_sorted_parallel", |_, new| {
            drop(Map::<S, u64, Mine>::from_sorted_parallel((0..30).map(|n| (n, new(n))).collect(), 1));
        }),
        ("try_insert", |map, new| (20..40).for_each(|n| _ = map.pin().try_insert(n, new(n)))),
        ("sync", |map, _| map.sync()),
    ];
    for (name, call) in calls {
        for armed in [&DROPS_LEFT, &CLONES_LEFT] {
            for nth in 0..sized(60, 3) as u64 {
                let counter = DropCounter::new();
                let new = |tag| Mine(counter.value(tag));
                let mut map: Map<S, u64, Mine> = (0..30).map(|n| (n, new(n))).collect();
                armed.set(nth);
                _ = catch_unwind(AssertUnwindSafe(|| call(&mut map, &new)));
                _ = catch_unwind(AssertUnwindSafe(|| drop(map)));
                armed.set(u64::MAX);
                assert_eq!((counter.alive(), counter.errors()), (0, 0), "{name}, {nth}");
            }
        }
    }
}

#[test]
fn whichever_destructor_panics_nothing_leaks() {
    nth_panics::<Hydra>();
    nth_panics::<Radix>();
    nth_panics::<BLink>();
    nth_panics::<Tree>();
    nth_panics::<Skip>();
}

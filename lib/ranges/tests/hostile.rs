//! Values whose methods panic or use the map, many more threads than processors, sessions that stay open.
#![cfg(not(archipelago_sim))]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use archipelago_check::drops::DropCounter;
use archipelago_check::hostile::{
    Counting, alone, beside, crowd, duration, in_turns, longest_gap, press, some_try, within,
};
use archipelago_ranges::RangeMap;

#[global_allocator]
static HEAP: Counting = Counting::new();

thread_local! {
    /// The number of calls of a value's `clone` or `eq` until one panics.
    static CALLS: Cell<u32> = const { Cell::new(u32::MAX) };
}

fn call() {
    CALLS.set(CALLS.get() - 1);
    assert!(CALLS.get() > 0, "planned");
}

/// A value whose methods panic at the call that `CALLS` determines. The number of values is counted.
#[derive(Debug)]
struct Value(u64, archipelago_check::drops::Counted);

impl Clone for Value {
    fn clone(&self) -> Self {
        call();
        Self(self.0, self.1.clone())
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        call();
        self.0 == other.0
    }
}

impl Eq for Value {}

type Shown = Vec<(std::ops::Range<u64>, u64)>;

fn shown(map: &RangeMap<u64, Value>) -> Shown {
    map.pin().iter().map(|(range, value)| (range, value.0)).collect()
}

type Operation<'a> = &'a dyn Fn(&RangeMap<u64, Value>);

/// Each operation is repeated, and panics at its first call of a value's method, then at its second call, and so on.
/// After a panic the map is unchanged. After the run without a panic, it is changed.
#[test]
fn values_that_panic_change_nothing() {
    let _beside = beside();
    let drops = DropCounter::new();
    let value = |number| Value(number, drops.value(number));
    let operations: [(&str, Operation<'_>); 5] = [
        ("insert", &|map| map.insert(95..905, value(1))),
        ("try_insert", &|map| drop(map.try_insert(2_000..2_010, value(1)))),
        ("remove", &|map| assert!(map.remove(95..905) > 0)),
        ("change", &|map| assert!(map.change(95..905, |_, old| value(old.0 + 1)) > 0)),
        ("insert_in_gap", &|map| assert!(map.insert_in_gap(7, 0, 0..5_000, value(3)).is_some())),
    ];
    for (name, operation) in operations {
        let (mut at, mut panics) = (1, 0);
        loop {
            let map: RangeMap<u64, Value> = (0..150).map(|at| (at * 10..at * 10 + 9, value(at % 3))).collect();
            let before = shown(&map);
            CALLS.set(at);
            let done = catch_unwind(AssertUnwindSafe(|| operation(&map)));
            CALLS.set(u32::MAX);
            map.check_invariants();
            if done.is_ok() {
                assert_ne!(shown(&map), before, "{name}");
                break;
            }
            assert_eq!(shown(&map), before, "{name}, at call {at}");
            // No lock is held any more, so the insertion returns.
            map.insert(0..10_000, value(9));
            (at, panics) = (at + 1, panics + 1);
        }
        assert!(panics > 5, "{name} has called nothing");
    }
    drops.assert_all_dropped();
}

/// The window has several leaves, and the closure panics at each range.
#[test]
fn closures_that_panic_change_nothing() {
    let _beside = beside();
    let map: RangeMap<u64, u64> = (0..100).map(|at| (at * 10..at * 10 + 5, at)).collect();
    let before = map.ranges();
    for wanted in 0..100 {
        let panics = |_, value: &u64| if *value == wanted { panic!("planned") } else { value + 1 };
        catch_unwind(AssertUnwindSafe(|| map.change(0..1_000, panics))).unwrap_err();
        assert_eq!(map.ranges(), before);
    }
    assert_eq!(map.remove(0..1_000), 100);
}

#[test]
fn a_change_inside_of_a_change_is_refused_and_look_ups_are_not() {
    let _beside = beside();
    let (map, other) = (RangeMap::new(), RangeMap::new());
    map.insert(0_u64..10, 0_u64);
    map.change(0..5, |_, value| value + map.get(7).unwrap() + map.pin().len() as u64);
    assert_eq!(map.ranges(), [(0..5, 1), (5..10, 0)]);
    for inner in [&map, &other] {
        let nested = || map.change(0..10, |_, value| value + inner.remove(100..200) as u64);
        let message = *catch_unwind(AssertUnwindSafe(nested)).unwrap_err().downcast::<&str>().unwrap();
        assert!(message.contains("from inside a change"), "{message}");
    }
    other.insert(1..2, 3);
    map.insert(5..10, 1);
    assert_eq!(map.ranges(), [(0..10, 1)]);
}

/// A value whose destructor changes its map.
struct Shy(&'static RangeMap<u64, Shy>, u64);

impl Clone for Shy {
    fn clone(&self) -> Self {
        Self(self.0, 0)
    }
}

impl PartialEq for Shy {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}

impl Eq for Shy {}

impl Drop for Shy {
    fn drop(&mut self) {
        if self.1 > 0 {
            self.0.remove(self.1..self.1 + 1);
        }
    }
}

#[test]
fn destructors_may_change_the_map() {
    let _beside = beside();
    let map: &'static RangeMap<u64, Shy> = Box::leak(Box::default());
    for at in 0..2_000 {
        map.insert(at * 10..at * 10 + 5, Shy(map, 100_000 + at));
        map.remove(at * 10..at * 10 + 5);
    }
    map.check_invariants();
    assert!(map.pin().is_empty());
}

const RANGES: u64 = 2_000;
const THREADS: usize = 32;

fn live() -> RangeMap<u64, u64> {
    (0..RANGES).map(|at| (at * 100..at * 100 + 50, at)).collect()
}

/// Makes one change of a short window, or, rarely, of a long one.
fn disturb(map: &RangeMap<u64, u64>, thread: usize, turn: u64) {
    let mixed = (turn * THREADS as u64 + thread as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let start = mixed % (RANGES * 100);
    let end = start + if mixed.is_multiple_of(64) { 5_000 } else { 60 };
    match mixed % 3 {
        0 => map.insert(start..end, turn % 7),
        1 => {
            map.remove(start..end);
        }
        _ => {
            map.change(start..end, |_, value| value + 1);
        }
    }
}

/// The test runs many more threads than processors. The used memory stays below twice the live map plus 64 KiB per
/// thread. No operation lasts much longer than the pauses of threads that only read the clock.
#[test]
fn crowds_are_bounded_in_memory_and_time() {
    let _alone = alone();
    let fresh = HEAP.growth(|| std::mem::forget(live()));
    some_try(5, || {
        let map = live();
        let gap = || longest_gap(THREADS, duration() / 4);
        HEAP.reset_peak();
        let before = HEAP.bytes();
        let ((longest, changes), gap) =
            in_turns(gap, || press(THREADS, duration(), |thread, turn| disturb(&map, thread, turn)));
        let grown = HEAP.peak() - before;
        map.check_invariants();
        let ranges = map.ranges();
        let live = HEAP.growth(|| std::mem::forget(ranges.into_iter().collect::<RangeMap<_, _>>())).max(fresh) as usize;
        println!("{changes} changes, {grown} bytes more at the most, {live} live");
        if grown >= 2 * live + THREADS * (64 << 10) {
            return Err(format!("{grown} bytes"));
        }
        within("changes", 8, longest, gap)
    });
}

/// A single thread never waits for other threads, and its replaced memory is freed continuously.
#[test]
fn what_is_replaced_is_freed_on_the_way() {
    let _alone = alone();
    let map = live();
    let grown = HEAP.most(|| (0..100_000).for_each(|turn| disturb(&map, 0, turn))).0;
    assert!(grown < (1 << 20), "{grown} bytes");
}

/// While a session is open, the memory that is replaced is kept. It is freed after the session's end.
#[test]
fn a_session_that_ends_gives_back_what_it_kept() {
    let _alone = alone();
    let map = live();
    let pinned = map.pin();
    let kept: Shown = pinned.iter().map(|(range, value)| (range, *value)).collect();
    let ranges = pinned.iter();
    thread::scope(|scope| drop(scope.spawn(|| (0..20_000).for_each(|turn| disturb(&map, 1, turn))).join()));
    // The iterator of the session still returns the old ranges.
    assert!(ranges.map(|(range, value)| (range, *value)).eq(kept));
    let held = map.domain().stats().pending_bytes;
    drop(pinned);
    (0..4_000).for_each(|turn| disturb(&map, 0, turn));
    (0..4).for_each(|_| map.domain().collect());
    let left = map.domain().stats().pending_bytes;
    assert!(left < held / 10, "{left} of {held} bytes");
}

/// The memory of removed ranges is freed: leaves are merged as their ranges are removed.
#[test]
fn an_emptied_map_is_small() {
    let _alone = alone();
    let used = || {
        let map = RangeMap::new();
        for turn in 0..1_000 {
            map.insert(0_u64..1, turn);
            map.remove(0..1);
        }
        std::mem::forget(map);
    };
    let fresh = HEAP.growth(used);
    for all_at_once in [true, false] {
        let map: RangeMap<u64, u64> = (0..100_000).map(|at| (at * 10..at * 10 + 5, at)).collect();
        if all_at_once {
            map.remove(0..u64::MAX);
        } else {
            // The order of the removals is scattered.
            (0..100_000_u64).map(|at| at * 77_777 % 100_000 * 10).for_each(|at| {
                map.remove(at..at + 5);
            });
        }
        (0..8).for_each(|_| map.domain().collect());
        assert!(map.pin().is_empty());
        let most = 2 * fresh + 4096;
        let held = HEAP.growth(|| drop(map)).abs();
        assert!(held < most, "{held} bytes beside {fresh} of a map that was always small");
    }
}

/// All ranges but every hundredth, or sixteenth, are removed, in several orders. The map then takes less than three
/// times the memory of a map that only ever had the remaining ranges.
#[test]
fn few_ranges_left_evenly_are_small() {
    let _alone = alone();
    const COUNT: u64 = 100_000;
    let range = |at: u64| (at * 10..at * 10 + 5, at);
    let held = |map: RangeMap<u64, u64>| {
        (0..8).for_each(|_| map.domain().collect());
        HEAP.growth(|| drop(map)).unsigned_abs()
    };
    type Order = (&'static str, fn(u64) -> u64);
    let orders: [Order; 3] =
        [("scattered", |at| at * 77_777 % COUNT), ("ascending", |at| at), ("descending", |at| COUNT - 1 - at)];
    for (step, (order, place)) in [100, 16].into_iter().flat_map(|step| orders.map(|order| (step, order))) {
        let fresh = held((0..COUNT).step_by(step).map(range).collect());
        let map: RangeMap<u64, u64> = (0..COUNT).map(range).collect();
        for at in (0..COUNT).map(place).filter(|at| at % step as u64 != 0) {
            map.remove(range(at).0);
        }
        let thinned = held(map);
        assert!(thinned < 3 * fresh, "each {step}th, {order}: {thinned} bytes, and {fresh} of a map of what is left");
    }
}

/// Look-ups finish while another thread changes the map all the time, and see each change as a whole.
#[test]
fn readers_see_whole_changes() {
    let _beside = beside();
    let map = RangeMap::new();
    map.insert(0_u64..10_000, 0_u64);
    let seen = AtomicU64::new(0);
    crowd(4, duration() / 4, |thread, end| {
        let mut turn = 0;
        while std::time::Instant::now() < end {
            turn += 1;
            if thread == 0 {
                // The first insertion of a turn replaces all ranges by one, whose value is the number of the turn. The
                // others split it.
                map.insert(0..10_000, turn);
                (0..100).for_each(|at| map.insert(at * 100..at * 100 + 50, 1 << 40 | at));
            } else {
                let (first, second) = (map.get(turn * 7_919 % 10_000), map.get(turn * 104_729 % 10_000));
                if let (Some(first), Some(second)) = (first, second)
                    && first < 1 << 40
                    && second < 1 << 40
                {
                    assert!(first <= second, "{second} after {first}");
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                let covered: u64 = map.pin().iter().map(|(range, _)| range.end - range.start).sum();
                assert_eq!(covered, 10_000);
            }
        }
    });
    assert!(seen.into_inner() > 0);
}

thread_local! {
    /// How many more destructors of a [`Restless`] of this thread change its map.
    static CHANGES: Cell<u32> = const { Cell::new(0) };
}

/// A value whose destructor changes the map while `CHANGES` is not 0, also if the value is a clone. `clone` and `eq`
/// panic at the call that `CALLS` determines.
struct Restless(&'static RangeMap<u64, Restless>, u64);

impl Clone for Restless {
    fn clone(&self) -> Self {
        call();
        Self(self.0, self.1)
    }
}

impl PartialEq for Restless {
    fn eq(&self, other: &Self) -> bool {
        call();
        self.1 == other.1
    }
}

impl Eq for Restless {}

impl Drop for Restless {
    fn drop(&mut self) {
        if let Some(left) = CHANGES.get().checked_sub(1) {
            CHANGES.set(left);
            let calls = CALLS.replace(u32::MAX);
            self.0.remove(100_000..100_001);
            CALLS.set(calls);
        }
    }
}

/// When ranges are joined, all their values except one are dropped. When a change panics, all values that it has cloned
/// are dropped.
#[test]
fn destructors_of_clones_may_change_the_map() {
    let _beside = beside();
    let map: &'static RangeMap<u64, Restless> = Box::leak(Box::default());
    let value = |number| Restless(map, number);
    (0..40).for_each(|at| map.insert(at * 10..at * 10 + 10, value(at % 4 / 2)));
    let operations: [&dyn Fn(); 4] = [
        &|| map.insert(55..95, value(1)),
        &|| assert!(map.try_insert(400..410, value(1)).is_ok()),
        &|| assert!(map.change(40..215, |_, _| value(1)) > 0),
        &|| assert!(map.remove(30..200) > 0),
    ];
    let mut changes = 0;
    for operation in operations {
        let panics = (1..1_000).take_while(|at| {
            CALLS.set(*at);
            CHANGES.set(1_000);
            let done = catch_unwind(AssertUnwindSafe(operation));
            changes += 1_000 - CHANGES.replace(0);
            CALLS.set(u32::MAX);
            map.check_invariants();
            done.is_err()
        });
        assert!((1..900).contains(&panics.count()));
    }
    assert!(changes > 100, "{changes} values were dropped");
}

/// After a removal, two leaves may be merged, which clones values. If this clone panics, the removal has already taken
/// effect, and the call does not panic.
#[test]
fn a_change_that_panics_is_not_done() {
    let _beside = beside();
    let drops = DropCounter::new();
    let shown_ranges = |map: &RangeMap<u64, Value>| map.pin().iter().map(|(range, _)| range).collect::<Vec<_>>();
    let (mut at, mut panics) = (1, 0);
    loop {
        let map: RangeMap<u64, Value> = (0..20).map(|at| (at * 10..at * 10 + 5, Value(at, drops.value(at)))).collect();
        let before = shown_ranges(&map);
        CALLS.set(at);
        let done = catch_unwind(AssertUnwindSafe(|| map.remove(15..158)));
        let left = CALLS.replace(u32::MAX);
        map.check_invariants();
        let hit = if done.is_ok() { [&before[..2], &before[16..]].concat() } else { before };
        assert_eq!(shown_ranges(&map), hit, "at call {at}");
        if done.is_err() {
            panics += 1;
        } else if left > 0 {
            break;
        }
        at += 1;
    }
    assert!(panics > 1 && at > panics + 4, "{panics} panics in {at} calls: nothing was merged");
    drops.assert_all_dropped();
}

/// A value whose `clone` panics at the call that `CALLS` determines. The destructor of the panic's payload changes the
/// map.
struct Charged(&'static RangeMap<u64, Charged>, u64);

struct Payload(&'static RangeMap<u64, Charged>);

impl Drop for Payload {
    fn drop(&mut self) {
        self.0.remove(900..901);
    }
}

impl Clone for Charged {
    fn clone(&self) -> Self {
        if CALLS.replace(CALLS.get().wrapping_sub(1)) == 1 {
            std::panic::panic_any(Payload(self.0));
        }
        Self(self.0, self.1)
    }
}

impl PartialEq for Charged {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}

impl Eq for Charged {}

/// A merge after a removal catches a panic of `clone`, and drops no payload under its locks: either the call panics and
/// changes nothing, or it succeeds.
#[test]
fn payloads_of_panics_may_change_the_map() {
    let _beside = beside();
    let (mut panics, mut merges) = (0, 0);
    for at in 1..40 {
        let map: &'static RangeMap<u64, Charged> = Box::leak(Box::default());
        (0..20).for_each(|at| map.insert(at * 10..at * 10 + 5, Charged(map, at)));
        CALLS.set(at);
        let done = catch_unwind(AssertUnwindSafe(|| map.remove(15..158)));
        let was_reached = CALLS.replace(u32::MAX) == 0 || done.is_err();
        assert_eq!(map.pin().len(), if done.is_ok() { 6 } else { 20 }, "at call {at}");
        panics += u32::from(done.is_err());
        merges += u32::from(done.is_ok() && was_reached);
        drop(done);
        map.insert(0..1_000, Charged(map, 0));
        map.check_invariants();
    }
    assert!(panics > 0 && merges > 0, "{panics} panics, {merges} of merges");
}

#[test]
fn an_empty_window_hits_nothing() {
    let _beside = beside();
    let map: RangeMap<u64, u64> = (0..40).map(|at| (at * 10..at * 10 + 5, at)).collect();
    for at in (0..=400).chain([u64::MAX]) {
        assert_eq!(map.remove(at..at), 0);
        assert_eq!(map.change(at..at, |_, _| panic!("no range")), 0);
        let pinned = map.pin();
        assert_eq!((pinned.overlapping(at..at).count(), pinned.overlapping(at..at).rev().count()), (0, 0));
        assert_eq!(pinned.find_gap(1, 0, at..at), None);
    }
    assert_eq!(map.pin().len(), 40);
}

/// Compares a map with an array of its points. The ranges and gaps are at both ends of the key type, with any size and
/// alignment.
#[test]
fn the_ends_of_the_key_type_are_points_like_others() {
    let _beside = beside();
    let (map, mut taken) = (RangeMap::<u16, u16>::new(), vec![None; usize::from(u16::MAX)]);
    let mut state = 1_u64;
    let mut random = move |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % bound) as u16
    };
    for turn in 0..1_000 {
        // Points and sizes are often the least or the greatest numbers, or numbers close to these.
        let mut point = || [random(40), u16::MAX - random(40), random(1 << 16), 0, u16::MAX][usize::from(random(5))];
        let (a, b) = (point(), point());
        let (range, size, alignment) = (a.min(b)..a.max(b), point().max(1), point());
        let points = usize::from(range.start)..usize::from(range.end);
        // For each point: the number of consecutive free points that begin with it.
        let mut free = vec![0_usize; taken.len() + 1];
        (0..taken.len()).rev().for_each(|at| free[at] = if taken[at].is_none() { free[at + 1] + 1 } else { 0 });
        let gap = range
            .clone()
            .filter(|start| alignment == 0 || start % alignment == 0)
            .take_while(|start| range.end - start >= size)
            .find(|start| free[usize::from(*start)] >= usize::from(size))
            .map(|start| start..start + size);
        assert_eq!(map.pin().find_gap(size, alignment, range.clone()), gap, "{size} at {alignment} in {range:?}");
        assert_eq!(map.get(a), taken.get(usize::from(a)).copied().flatten());
        match turn % 3 {
            0 if !range.is_empty() => {
                map.insert(range, turn);
                taken[points].fill(Some(turn));
            }
            1 => {
                map.remove(range);
                taken[points].fill(None);
            }
            _ => {
                map.change(range, |_, value| value + 1);
                taken[points].iter_mut().flatten().for_each(|value| *value += 1);
            }
        }
        map.check_invariants();
    }
    assert!(
        map.ranges().iter().all(|(range, value)| range.clone().all(|point| taken[usize::from(point)] == Some(*value)))
    );
}

/// A change waits for a leaf, which another change replaces by several leaves. The first change is then made in the new
/// leaves.
#[test]
fn changes_that_wait_for_a_leaf_find_its_successors() {
    let _beside = beside();
    for _ in 0..5 {
        let map: RangeMap<u64, u64> = (0..16).map(|at| (at * 10..at * 10 + 9, at)).collect();
        let begins = AtomicU64::new(0);
        thread::scope(|scope| {
            map.change(4..5, |_, value| {
                let (map, begins) = (&map, &begins);
                scope.spawn(move || {
                    begins.store(1, Ordering::Relaxed);
                    map.insert(5..6, 100);
                });
                while begins.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                // Meanwhile the other thread reaches the leaf and waits for this change. This change makes more ranges
                // than the leaf has room for.
                thread::sleep(Duration::from_millis(10));
                value + 50
            });
        });
        assert_eq!([3, 4, 5, 6].map(|point| map.get(point)), [Some(0), Some(50), Some(100), Some(0)]);
        map.check_invariants();
    }
}

//! Iterators that are paused or leaked between any two steps, over every map. The tests check which memory they keep
//! from being freed, whether they continue correctly, and what they clone.

mod common;

use archipelago_check::hostile::{Counting, alone};
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload;
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::art::Radix;
use archipelago_index::blink::BLink;
use archipelago_index::euno::{Skip, Tree};
use archipelago_index::hydra::Hydra;
use archipelago_index::map::{Kind, Map};
use archipelago_tested as _;
use common::keys::TestKey;
use common::quiet::{has_no_garbage, soon, soon_shows};
use common::sized;
use rand::RngExt;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Makes tests, each of which runs on every kind of map.
macro_rules! of_every_map {
    ($($test:ident)*) => { $(
        #[test]
        fn $test() {
            let _alone = alone();
            watchdog(USUAL, |_| {
                every::$test::<Hydra>();
                every::$test::<Radix>();
                every::$test::<BLink>();
                every::$test::<Tree>();
                every::$test::<Skip>();
            });
        }
    )* };
}

of_every_map! { paused_iterators_hold_nothing_back leaked_iterators_hold_nothing_back references_hold_all_of_it_back
paused_iterators_go_on one_entry_is_one_clone }

/// A value of a kilobyte, whose first byte states whether it has been freed.
struct Block(Box<[u8; 1000]>);

impl Block {
    fn new(n: u64) -> Self {
        Self(Box::new([n as u8 | 1; 1000]))
    }

    fn check(&self) {
        assert!(self.0[0] & 1 == 1 && self.0.iter().all(|&byte| byte == self.0[0]), "it has been freed");
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.0[0] = 0;
    }
}

impl Clone for Block {
    fn clone(&self) -> Self {
        self.check();
        Self(self.0.clone())
    }
}

type Blocks<S> = Map<S, u64, Block>;

const KEYS: u64 = 600;
const OVERWRITES: u64 = sized(20_000, 700) as u64;

fn blocks<S: Kind>() -> Blocks<S> {
    (0..KEYS).map(|n| (n, Block::new(n))).collect()
}

/// Returns the growth of the heap, in bytes, after many values have been replaced.
fn kept_of_overwrites<S: Kind>(map: &Blocks<S>) -> isize {
    let session = map.pin();
    map.sync();
    HEAP.growth(|| {
        (0..OVERWRITES).for_each(|n| _ = session.upsert(&(n % 7), Block::new(n)));
        map.sync();
    })
}

/// The bytes of all replaced values, and an eighth of them.
const ALL: isize = OVERWRITES as isize * 1000;
const FEW: isize = ALL / 8;

/// Replaces many values, and waits until nearly all of them are freed and no guard of the map is held.
#[track_caller]
fn overwrites_are_freed<S: Kind>(map: &Blocks<S>) {
    let before = HEAP.bytes();
    kept_of_overwrites(map);
    soon(|| {
        let (kept, readers) = (HEAP.bytes().wrapping_sub(before) as isize, map.stats().garbage.readers);
        let text = format!("{}: {kept} bytes, {readers} readers", S::NAME);
        if kept < FEW && readers == 0 { Ok(()) } else { Err(text) }
    });
}

/// The number of kinds of iterators that [`in_the_middle`] returns.
const KINDS: usize = 13;

/// A trait that every iterator implements, so that iterators of different types can be in one list.
trait Paused: Send {}
impl<T: Send> Paused for T {}

/// Returns iterators of every kind, each stopped somewhere in the middle, which users may pause or leak.
fn in_the_middle<S: Kind>(map: &Blocks<S>) -> [(&'static str, Box<dyn Paused + '_>); KINDS] {
    let session = map.pin();
    let mut range = session.range::<u64, _>(..);
    assert!(range.next().is_some() && range.next().is_some() && range.next_back().is_some());
    let mut entries = session.entries::<u64, _>(..);
    assert!(entries.next().is_some_and(|entry| entry.key() == 0));
    assert!(entries.nth(20).is_some_and(|entry| entry.key() == 21));
    let mut backwards = session.entries(..KEYS);
    assert!(backwards.next_back().is_some_and(|entry| entry.key() == KEYS - 1));
    let mut both = session.entries(10..30);
    assert!(both.next().is_some() && both.next_back().is_some() && both.next().is_some());
    let mut released = session.entries::<u64, _>(..);
    assert!(released.next_ref().is_some() && released.next_back_ref().is_some());
    released.release();
    let mut lent = session.entries::<u64, _>(..);
    assert!(lent.next_ref().is_some() && lent.next_back_ref().is_some() && lent.next().is_some());
    let mut extracted = session.extract_if(100.., |key, _| key % 2 == 1);
    assert!(extracted.next().is_some_and(|entry| entry.key() == 101));
    assert!(extracted.nth(7).is_some_and(|entry| entry.key() == 117));
    let mut drained = session.drain_range(200..);
    assert!(drained.next().is_some_and(|entry| entry.key() == 200));
    let mut panicked =
        session.extract_if(300.., |key, _| key != 305 && if key == 310 { panic!("as planned") } else { true });
    assert_eq!(panicked.by_ref().take(6).count(), 6);
    let panicking = std::panic::AssertUnwindSafe(|| while panicked.next().is_some() {});
    assert!(std::panic::catch_unwind(panicking).is_err());
    let mut ended = session.entries(1..2);
    assert!(ended.next_ref().is_some() && ended.next().is_none());
    let mut lent_to_the_end = session.entries(1..4);
    assert!(lent_to_the_end.next_back_ref().is_some());
    while lent_to_the_end.next_ref().is_some() {}
    let mut nothing_there = session.entries(KEYS..);
    assert!(nothing_there.next_ref().is_none() && nothing_there.next_back_ref().is_none());
    let mut all_asked = session.extract_if(..7, |key, _| key == 2);
    assert_eq!(all_asked.by_ref().count(), 1);
    [
        ("range", Box::new(range)),
        ("entries", Box::new(entries)),
        ("entries, from the back", Box::new(backwards)),
        ("entries, from both ends", Box::new(both)),
        ("entries that had lent, released", Box::new(released)),
        ("entries that had lent, then yielded", Box::new(lent)),
        ("extract_if", Box::new(extracted)),
        ("drain_range", Box::new(drained)),
        ("extract_if, after a panic", Box::new(panicked)),
        ("entries, at their end", Box::new(ended)),
        ("entries, lent to their end", Box::new(lent_to_the_end)),
        ("no entries", Box::new(nothing_there)),
        ("extract_if, at its end", Box::new(all_asked)),
    ]
}

mod every {
    use super::*;

    pub(super) fn paused_iterators_hold_nothing_back<S: Kind>() {
        for one in 0..KINDS {
            let map = blocks::<S>();
            let (name, paused) = Vec::from(in_the_middle(&map)).swap_remove(one);
            println!("{name}");
            overwrites_are_freed(&map);
            drop(paused);
            map.check_invariants();
        }
    }

    pub(super) fn leaked_iterators_hold_nothing_back<S: Kind>() {
        let map = blocks::<S>();
        in_the_middle(&map).into_iter().for_each(|(_, leaked)| mem::forget(leaked));
        overwrites_are_freed(&map);
        map.check_invariants();
    }

    /// References, entries and an iterator that has lent an entry keep all memory from being freed, as documented.
    /// `stats` shows this.
    pub(super) fn references_hold_all_of_it_back<S: Kind>() {
        let map = blocks::<S>();
        let session = map.pin();
        let mut lending = session.entries::<u64, _>(..);
        let check = |name: &str, shown: &Block| {
            let (kept, garbage) = (kept_of_overwrites(&map), map.stats().garbage);
            shown.check();
            let seen = garbage.readers > 0 && garbage.objects as u64 >= OVERWRITES && garbage.refused > 0;
            assert!(kept >= ALL && seen, "{} {name}: {kept} bytes, {garbage:?}", S::NAME);
        };
        check("get_ref", &session.get_ref(&3).unwrap());
        check("get_entry", &session.get_entry(&3).unwrap());
        check("an iterator's entry", &session.entries::<u64, _>(..).nth(3).unwrap());
        check("an extracted entry", &session.drain_range(50..).next().unwrap());
        check("next_ref", lending.next_ref().unwrap().1);
        lending.release();
        soon_shows(&map, |stats| stats.garbage.readers == 0);
        map.sync();
        soon_shows(&map, has_no_garbage);
    }

    /// Whatever changes between two steps, an iterator shows all entries that stay in the map, in ascending order, each
    /// once. It never shows a freed value.
    pub(super) fn paused_iterators_go_on<S: Kind>() {
        fn check<S: Kind, K: TestKey>(key: fn(u64) -> K) {
            let mut rng = workload::rng(0x17, 0);
            for round in 0..sized(150, 6) {
                let count = rng.random_range(0..[6, 40, 400][round % 3]);
                let map: Map<S, K, Block> = (0..count).map(|n| (key(n), Block::new(n))).collect();
                let session = map.pin();
                let mut entries = session.entries::<K, _>(..);
                let (mut front, mut back, mut held) = (Vec::new(), Vec::new(), Vec::new());
                loop {
                    let shown = match rng.random_range(0..4) {
                        0 => entries.next().map(|entry| {
                            entry.value().check();
                            front.push(entry.to_key());
                            held.push(entry);
                        }),
                        1 => entries.next_back().map(|entry| {
                            entry.value().check();
                            back.push(entry.to_key());
                        }),
                        2 => entries.next_ref().map(|(key, value)| {
                            value.check();
                            front.push(K::owned(key));
                        }),
                        _ => entries.next_back_ref().map(|(key, value)| {
                            value.check();
                            back.push(K::owned(key));
                        }),
                    };
                    if shown.is_none() {
                        break;
                    }
                    if rng.random_ratio(1, 3) {
                        held.iter().for_each(|entry| entry.value().check());
                        held.clear();
                    }
                    if rng.random_ratio(1, 3) {
                        entries.release();
                    }
                    // Even keys stay; odd keys are inserted, removed and changed.
                    for _ in 0..rng.random_range(0..4) {
                        let n = rng.random_range(0..=count);
                        match rng.random_range(0..3) {
                            0 if n % 2 == 1 => _ = session.delete::<K>(&key(n)),
                            _ => _ = session.upsert::<K>(&key(n), Block::new(n)),
                        }
                    }
                    if rng.random_ratio(1, 2) {
                        map.sync();
                    }
                }
                assert!(entries.next().is_none() && entries.next_back().is_none());
                front.extend(back.into_iter().rev());
                assert!(front.is_sorted_by(|a, b| a < b), "{}: {front:?}", S::NAME);
                let missed = (0..count).step_by(2).map(key).find(|key| front.binary_search(key).is_err());
                assert!(missed.is_none(), "{}: {missed:?} of {count} is missing in {front:?}", S::NAME);
                drop((entries, held));
                map.check_invariants();
            }
        }
        check::<S, u64>(|n| n);
        check::<S, String>(|n| format!("{n:06}/{}", "x".repeat(n as usize % 40)));
        // The keys are close to the greatest `u64`.
        check::<S, u64>(|n| u64::MAX - 500 + n + if n >= 300 { 100 } else { 0 });
    }

    /// A caller that wants one entry causes only one clone, from either end.
    pub(super) fn one_entry_is_one_clone<S: Kind>() {
        static CLONES: AtomicUsize = AtomicUsize::new(0);
        struct Dear;
        impl Clone for Dear {
            fn clone(&self) -> Self {
                CLONES.fetch_add(1, Ordering::Relaxed);
                Self
            }
        }
        let map: Map<S, u64, Dear> = (0..1000).map(|n| (n, Dear)).collect();
        let session = map.pin();
        let clones = |most: usize, name: &str, work: &dyn Fn() -> bool| {
            let before = CLONES.load(Ordering::Relaxed);
            assert!(work(), "{name}");
            let clones = CLONES.load(Ordering::Relaxed) - before;
            assert!(clones <= most, "{} {name}: {clones} clones", S::NAME);
        };
        clones(1, "first_key_value", &|| session.first_key_value().is_some());
        clones(1, "last_key_value", &|| session.last_key_value().is_some());
        clones(1, "next", &|| session.iter().next().is_some());
        clones(1, "next_back", &|| session.iter().next_back().is_some());
        clones(1, "a range's next", &|| session.range(10..900).next().is_some());
        clones(1, "a range's next_back", &|| session.range(10..900).next_back().is_some_and(|(key, _)| key == 899));
        clones(1, "values", &|| session.values().next_back().is_some());
        clones(0, "keys", &|| session.keys().next_back() == Some(999));
        clones(0, "first", &|| session.first().is_some() && session.last().is_some());
        clones(0, "entries", &|| session.entries::<u64, _>(..).next_back().is_some());
        clones(1, "pop_first", &|| session.pop_first().is_some());
        clones(1, "pop_last", &|| session.pop_last().is_some());
        clones(1, "get", &|| session.get(&500).is_some());
        clones(1, "remove", &|| session.remove(&500).is_some());
        clones(2, "both ends", &|| {
            let mut both = session.iter();
            both.next().is_some() && both.next_back().is_some()
        });
        clones(21, "five from each end", &|| session.iter().take(5).chain(session.iter().rev().take(5)).count() == 10);
        clones(5, "all of a few", &|| session.range(10..15).rev().count() == 5);
        assert!(session.iter().rev().map(|(key, _)| key).is_sorted_by(|a, b| a > b) && session.iter().count() == 997);
    }
}

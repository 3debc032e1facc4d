//! Hostile uses of references, iterators and atomic operations, over every map: users forget them, keep them, panic in
//! them, use the map in them, and implement traits wrongly. The tests also run in a small form under Miri.

#[path = "../../../lib/index/tests/common/mod.rs"]
mod common;

use archipelago_check::drops::{Counted, DropCounter};
use archipelago_check::hostile::{Counting, alone, some_try};
use archipelago_check::watchdog::{USUAL, watchdog};
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::art::Radix;
use archipelago_index::blink::BLink;
use archipelago_index::euno::{Skip, Tree};
use archipelago_index::hydra::Hydra;
use archipelago_index::map::{Kind, Map};
use archipelago_index::{Art, Change, HydraList, OnBacklog, Refused};
use archipelago_platform::memory::taken_by;
use archipelago_platform::sync::Arc;
use archipelago_tested as _;
use common::quiet::{has_no_garbage, soon, soon_shows, soon_syncs};
use common::sized;
use std::alloc::Layout;
use std::mem;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread;

#[global_allocator]
static HEAP: Counting = Counting::new();

/// Runs a test on every kind of map.
macro_rules! every_map {
    ($test:ident) => {
        $test::<Hydra>();
        $test::<Radix>();
        $test::<BLink>();
        $test::<Tree>();
        $test::<Skip>();
    };
}

fn panics(f: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "the panic went missing");
}

const KEYS: u64 = sized(1_000, 60) as u64;

fn counted<S: Kind>(counter: DropCounter) -> Map<S, u64, Counted> {
    (0..KEYS).map(|n| (n, counter.value(n))).collect()
}

/// A forgotten reference or iterator delays reclamation, which `stats` shows, and has no other effect. The map drops
/// all its values in the end.
fn forgotten<S: Kind>() {
    let counter = DropCounter::new();
    let map = counted::<S>(counter);
    {
        let session = map.pin();
        mem::forget(session.get_ref(&1));
        mem::forget(session.get_entry(&2));
        mem::forget(session.first());
        let mut entries = session.entries::<u64, _>(..);
        mem::forget(entries.next());
        mem::forget(entries);
        let mut range = session.iter();
        mem::forget(range.next());
        mem::forget(range);
        let mut extracted = session.extract_if(..10, |_, _| true);
        mem::forget(extracted.next());
        mem::forget(extracted);
        mem::forget(session.compute(&3, |_| Change::Keep));
        mem::forget(session.insert_if_absent(4, counter.value(4)));
        _ = map.pin_owned();
    }
    let left = map.len() as u64;
    assert_eq!(left, KEYS - 1);
    let rounds = sized(3_000, 100) as u64;
    (0..rounds).for_each(|n| _ = map.pin().upsert(&(n % KEYS), counter.value(n)));
    assert!(map.stats().garbage.readers > 0 && map.stats().garbage.objects as u64 >= rounds - KEYS);
    assert_eq!(counter.errors(), 0);
    map.check_invariants();
    drop(map);
    // Two values are alive: the value that could not be inserted, which is in the forgotten error, and a clone that the
    // range had made. The map owned the others.
    assert_eq!((counter.errors(), counter.alive()), (0, 2));
}

#[test]
fn forgotten_references_do_no_harm() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        every_map!(forgotten);
    });
}

/// Closures that panic change nothing, and no lock or guard stays held.
fn closures_panic<S: Kind>() {
    let counter = DropCounter::new();
    let map = counted::<S>(counter);
    let session = map.pin();
    for key in (0..KEYS).step_by(11) {
        panics(|| _ = session.compute(&key, |_| panic!("as planned")));
        panics(|| _ = session.upsert_with(&key, || unreachable!(), |_| panic!("as planned")));
        panics(|| _ = session.upsert_with(&(KEYS + key), || panic!("as planned"), |_| unreachable!()));
        panics(|| _ = session.remove_if(&key, |_| panic!("as planned")));
        panics(|| _ = session.get_or_insert_with(KEYS + key, || panic!("as planned")));
        panics(|| _ = session.extract_if(key.., |_, _| panic!("as planned")).next());
        panics(|| _ = session.scan_range(key.., |_, _| -> ControlFlow<()> { panic!("as planned") }));
        panics(|| _ = session.scan_range_rev(..key + 1, |_, _| -> ControlFlow<()> { panic!("as planned") }));
        // The entry for which the closure returned true is removed. When the closure panics, the other entries stay.
        let mut turn = 0;
        let mut extracted = session.extract_if(key..key + 3, |_, _| {
            turn += 1;
            assert!(turn == 1, "as planned");
            true
        });
        drop(extracted.next());
        panics(|| _ = extracted.next());
        drop(extracted);
        assert!(session.insert(key, counter.value(key)).is_none());
    }
    assert_eq!((map.len() as u64, map.pin().keys().count() as u64), (KEYS, KEYS));
    map.sync();
    soon(|| match (map.stats().garbage.readers, counter.alive()) {
        (0, alive) if alive == KEYS as i64 => Ok(()),
        (readers, alive) => Err(format!("{readers} readers, {alive} values alive")),
    });
    assert_eq!(counter.errors(), 0);
    thread::scope(|s| s.spawn(|| assert_eq!(map.pin().remove_range::<u64, _>(..) as u64, KEYS)).join().unwrap());
    map.check_invariants();
}

#[test]
fn closures_that_panic_change_nothing() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        every_map!(closures_panic);
    });
}

/// Closures use the map, including the key about which they decide.
fn closures_reenter<S: Kind>() {
    let map: Map<S, u64, String> = (0..KEYS).map(|n| (n, n.to_string())).collect();
    let session = map.pin();
    for key in 0..KEYS {
        let mut turns = 0;
        let done = session.compute(&key, |old| {
            turns += 1;
            match turns {
                1 => {
                    assert_eq!(old, Some(&key.to_string()));
                    session.upsert(&key, "changed".into());
                    session.upsert(&(KEYS + key), "new".into());
                    Change::Remove
                }
                2 => {
                    assert_eq!(old.map(String::as_str), Some("changed"));
                    assert!(session.delete(&key));
                    Change::Remove
                }
                _ => {
                    assert_eq!(old, None);
                    Change::Put("last".into())
                }
            }
        });
        assert!(done.old.is_none() && turns == 3 && *done.new.unwrap() == "last");
        session.remove_if(&(KEYS + key), |_| session.delete(&(KEYS + key)));
    }
    assert_eq!(map.len() as u64, KEYS);
    // While an iterator runs, the entry that it would yield next is removed, and the entry that it has just yielded is
    // replaced.
    let mut seen = 0;
    for entry in session.entries::<u64, _>(..) {
        assert_eq!(entry.value(), "last");
        session.delete(&(entry.key() + 1));
        session.upsert(&entry.key(), "behind".into());
        seen += 1;
    }
    assert!(seen <= KEYS);
    soon_shows(&map, |stats| stats.garbage.readers == 0);
    let kept = session.extract_if::<u64, _, _>(.., |key, _| {
        session.upsert(&key, "changed while it was asked about".into());
        false
    });
    assert_eq!(kept.count(), 0);
    map.check_invariants();
}

#[test]
fn closures_may_use_the_map() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        // If a condition changes the value about which it decides, it is called again with the new value.
        let map: HydraList<u64, u64> = (0..3).map(|n| (n, n)).collect();
        let session = map.pin();
        let mut turns = 0;
        let extracted = session.extract_if::<u64, _, _>(.., |key, value| {
            turns += 1;
            if turns < 4 {
                session.upsert(&key, value + 10);
            }
            true
        });
        assert_eq!(extracted.count(), 3);
        assert!(map.is_empty() && turns == 6);
    });
}

#[test]
fn closures_reenter_every_map() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        every_map!(closures_reenter);
    });
}

/// A type whose `PartialEq` returns true always, returns false always, or panics.
#[derive(Clone, Debug)]
struct Liar(u64, &'static str);

impl PartialEq for Liar {
    fn eq(&self, _: &Self) -> bool {
        match self.1 {
            "yes" => true,
            "no" => false,
            _ => panic!("as planned"),
        }
    }
}

fn liars_compare<S: Kind>() {
    let map: Map<S, u64, Liar> = Map::from([(1, Liar(1, "yes")), (2, Liar(2, "no")), (3, Liar(3, "panic"))]);
    let session = map.pin();
    assert!(
        session.compare_exchange(&1, Some(&Liar(9, "no")), Some(Liar(4, "yes"))).is_ok_and(|old| old.unwrap().0 == 1)
    );
    let same = session.get(&2).unwrap();
    assert!(session.compare_exchange(&2, Some(&same), None).is_err_and(|error| error.current.unwrap().0 == 2));
    panics(|| _ = session.compare_exchange(&3, Some(&same), Some(same.clone())).is_ok());
    assert!(map != map.clone() && session.delete(&2));
    panics(|| _ = map == map.clone());
    assert_eq!(map.len(), 2);
    map.check_invariants();
}

#[test]
fn liars_may_compare() {
    let _alone = alone();
    every_map!(liars_compare);
}

/// A value whose drop uses the map in which it was.
struct Homesick<S: Kind>(Weak<Map<S, u64, Homesick<S>>>, u64);

impl<S: Kind> Drop for Homesick<S> {
    fn drop(&mut self) {
        if let Some(map) = self.0.upgrade() {
            let session = map.pin();
            let seen = session.get_ref(&self.1).map(|value| value.1);
            assert!(seen.is_none_or(|key| key == self.1));
            session.remove_if(&(self.1 + 1_000_000), |_| true);
            assert!(session.entries(self.1..).take(3).all(|entry| entry.key() >= self.1));
        }
    }
}

fn homesick<S: Kind>() {
    let map = std::sync::Arc::new(Map::<S, u64, Homesick<S>>::new());
    let value = |key: u64| Homesick(std::sync::Arc::downgrade(&map), key);
    let session = map.pin();
    for round in 0..3 {
        for key in 0..KEYS {
            session.compute(&key, |_| Change::Put(value(key)));
            session.upsert(&(key + 1_000_000), value(key + 1_000_000));
            assert!(session.insert_if_absent(key, value(key)).is_err());
        }
        session.drain_range(KEYS / 4..KEYS / 2).for_each(drop);
        session.remove_range(..KEYS / 8);
        assert!(session.extract_if(KEYS / 2.., |key, _| key % 2 == 0).next().is_some(), "round {round}");
        map.sync();
    }
    let entry = session.first();
    map.pin().remove_range::<u64, _>(..);
    map.sync();
    assert!(entry.is_some_and(|entry| entry.value().1 == entry.key()));
    map.sync();
    map.check_invariants();
}

#[test]
fn values_whose_drop_uses_the_map() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        every_map!(homesick);
    });
}

/// Writers of a map with a backlog limit (on the memory that waits for readers) do not wait for references that they
/// hold themselves.
fn own_references<S: Kind>() {
    let map: Map<S, u64, String> = Map::<S, u64, String>::builder().backlog_limit(100, OnBacklog::Wait).build();
    let session = map.pin();
    (0..10).for_each(|n| _ = session.upsert(&n, n.to_string()));
    let reference = session.get_ref(&1);
    (0..1_000).for_each(|n| assert!(session.upsert(&1, n.to_string())));
    assert_eq!(reference.as_deref().map(String::as_str), Some("1"));
    drop(reference);
    for entry in session.entries::<u64, _>(..) {
        (0..1_000).for_each(|n| assert!(session.upsert(&entry.key(), n.to_string())));
    }
    let entry = session.get_entry(&2).unwrap();
    let refused = (0..100_000).find_map(|n| session.try_insert(2, n.to_string()).err());
    assert!(matches!(refused, Some(Refused::Backlogged((2, _)))));
    assert_eq!(entry.value(), "999");
    drop(entry);
    // The thread that maintains idle maps may be a reader for a moment, too.
    while session.try_insert(2, "again".into()).is_err() {
        thread::yield_now();
    }
}

#[test]
fn own_references_are_not_waited_for() {
    let _alone = alone();
    watchdog(USUAL, |_| {
        every_map!(own_references);
    });
}

/// A map that was created and not used takes at most 64 bytes and no heap memory. Operations that only look at it
/// allocate little.
#[test]
fn an_empty_map_takes_nothing() {
    let _alone = alone();
    fn check<S: Kind>() {
        assert!(size_of::<Map<S, u64, u64>>() <= 64 && size_of::<Map<S, String, String>>() <= 64);
        HEAP.allocates_nothing(|| mem::forget((Map::<S, u64, u64>::new(), Map::<S, String, String>::default())));
        let map = Map::<S, String, String>::new();
        let looked = HEAP.growth(|| {
            assert!(map.is_empty() && map.bytes() == 0 && map.split_points(4).is_empty() && map == Map::new());
            map.sync();
            map.check_invariants();
        });
        assert!(looked < 8 << 10, "{looked} bytes");
    }
    every_map!(check);
    let built = HEAP.growth(|| mem::forget(HydraList::<u64, u64>::builder().build()));
    assert!(built < 1_000, "{built} bytes");
}

/// An unused map is appended to another map again and again. This takes no memory: nothing is moved, and the unused map
/// keeps its settings.
#[test]
fn an_unused_map_is_appended_without_memory() {
    const ROUNDS: usize = sized(1_000, 100);
    let _alone = alone();
    fn check<S: Kind>() {
        let map = Map::<S, u64, u64>::from([(1, 1)]);
        let mut staged = Map::<S, u64, u64>::builder().memory_limit(1 << 30).build();
        let grown = HEAP.growth(|| (0..ROUNDS).for_each(|_| map.append(&mut staged)));
        // Settings take more than ten bytes.
        assert!(grown < 10 * ROUNDS as isize, "{}: {grown} bytes", S::NAME);
        staged.pin().insert(2, 2);
        map.append(&mut staged);
        assert!(staged.is_empty() && map.len() == 2);
    }
    every_map!(check);
}

/// `bytes` returns about the number of bytes that the map takes from the heap, including boxed values. A limit on these
/// bytes holds.
#[test]
fn a_memory_limit_holds() {
    type Block = [u8; 300];
    const LIMIT: usize = sized(6 << 20, 128 << 10);
    /// More entries than fit under the limit.
    const MOST: u64 = LIMIT as u64 / 100;
    let _alone = alone();
    fn check<S: Kind>(slack: usize) {
        let before = HEAP.bytes();
        let key = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // A thread that is preempted while it counts the bytes anew lets the others exceed the limit by a part of what was
        // left before.
        let map = some_try(3, || {
            let map = Map::<S, u64, Block>::builder().memory_limit(LIMIT).build();
            let refused = thread::scope(|s| {
                let fill = |t: u64| {
                    let session = map.pin();
                    (0..MOST).find_map(|n| session.try_insert(key(4 * n + t), [t as u8; 300]).err()).unwrap()
                };
                let threads: Vec<_> = (0..3).map(|t| s.spawn(move || fill(t))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            for (t, refused) in refused.into_iter().enumerate() {
                let Refused::Full((key, value)) = refused else { panic!("{refused:?}") };
                assert!(value == [t as u8; 300] && !map.pin().contains_key(&key));
            }
            let said = map.bytes();
            if said <= LIMIT + slack { Ok(map) } else { Err(format!("{}: {said} bytes, {LIMIT} allowed", S::NAME)) }
        });
        let (said, taken) = (map.bytes(), HEAP.bytes() - before);
        assert!(said >= LIMIT / 2, "{said} bytes, {LIMIT} allowed");
        assert!(taken.abs_diff(said) <= said / 5 + (64 << 10), "{said} bytes said, {taken} taken");
        // Between two calls the thread for idle maps may free something.
        let stats = soon(|| {
            let (stats, said) = (map.stats(), map.bytes());
            if stats.bytes == said { Ok(stats) } else { Err(format!("{said} bytes, and {stats:?}")) }
        });
        let each = taken_by(Layout::new::<Block>());
        assert_eq!((stats.entries, stats.values), (map.len(), map.len() * each));
        assert!(stats.pages > 0 && stats.room >= if stats.room > 0 { stats.entries } else { 0 });
        // Values are replaced; then the entries in the lower half of the keys are removed at once, and the map is
        // filled again.
        let session = map.pin();
        // Values that are replaced while this thread reads are not freed, so they continue to take room.
        let replace = |_: &Block| (0..MOST).find_map(|_| session.try_replace(&key(0), [9; 300]).err());
        assert!(matches!(session.get_with(&key(0), replace), Some(Some(Refused::Full([9, ..])))));
        let removed = session.remove_range(..u64::MAX / 2);
        soon_syncs(&map, has_no_garbage);
        let more = (0..MOST).map(|n| (key(1 << 40 | n), [5; 300]));
        let Err(Refused::Full((next, _))) = session.try_extend(more) else { panic!("it is bounded") };
        let stored = (0..).take_while(|n| key(1 << 40 | n) != next).count();
        assert!(stored > removed / 3 && map.bytes() <= LIMIT + slack, "{stored} for {removed}");
        assert!((0..stored as u64).all(|n| session.contains_key(&key(1 << 40 | n))));
        // An operation without `try_` stores its entry even above the limit.
        assert!(session.insert(next, [1; 300]).is_none());
        map.check_invariants();
    }
    check::<Hydra>(2 << 20);
    check::<Radix>(64 << 10);
    check::<BLink>(2 << 20);
    check::<Tree>(2 << 20);
    check::<Skip>(2 << 20);
}

/// The last reference to the owner of a map may be stored next to an entry of the map. The borrow checker ensures that
/// the entry is dropped first.
#[test]
fn maps_end_after_their_references() {
    let _alone = alone();
    let map = Arc::new(Art::<u64, String>::from([(1, "one".into())]));
    let other = map.clone();
    thread::spawn(move || {
        let session = other.pin_owned();
        let entry = session.get_entry(&1);
        assert_eq!(entry.as_ref().map(|entry| entry.value().as_str()), Some("one"));
    })
    .join()
    .unwrap();
    assert_eq!(map.pin().get(&1).as_deref(), Some("one"));
}

/// All values of size zero are stored as the same word. Each of them is still dropped exactly once.
#[test]
fn values_without_a_size_are_dropped_once_each() {
    static ALIVE: AtomicIsize = AtomicIsize::new(0);
    struct Token;
    impl Token {
        fn new() -> Self {
            ALIVE.fetch_add(1, Ordering::Relaxed);
            Self
        }
    }
    impl Drop for Token {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::Relaxed);
        }
    }
    fn check<S: Kind>() {
        let map = Map::<S, u64, Token>::new();
        let session = map.pin();
        for key in [1, 1, 2] {
            session.upsert(&key, Token::new());
            session.compute(&key, |_| Change::Put(Token::new()));
            session.compute(&key, |_| Change::Keep);
            session.upsert_with(&key, Token::new, |_| Token::new());
        }
        session.compute(&2, |_| Change::Remove);
        assert!(session.remove_if(&1, |_| false).is_none() && session.remove_if(&1, |_| true).is_some());
        session.upsert_with(&3, Token::new, |_| Token::new());
        drop(map);
        assert_eq!(ALIVE.load(Ordering::Relaxed), 0, "{}", S::NAME);
    }
    let _alone = alone();
    every_map!(check);
}

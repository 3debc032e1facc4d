//! What iterators fetch ahead: the user's steps from values to other memory, and batches of an expected size. And
//! iterators over what a closure makes of lent entries.

use crate::common::quiet::{has_no_garbage, soon_shows, soon_syncs};
use crate::common::sized;
use archipelago_check::hostile::some_try;
use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_check::workload;
use archipelago_index::art::Radix;
use archipelago_index::blink::BLink;
use archipelago_index::euno::{Skip, Tree};
use archipelago_index::hydra::Hydra;
use archipelago_index::map::{Kind, Map};
use rand::RngExt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

macro_rules! of_every_map {
    ($($test:ident)*) => { $(
        #[test]
        fn $test() {
            every::$test::<Hydra>();
            every::$test::<Radix>();
            every::$test::<BLink>();
            every::$test::<Tree>();
            every::$test::<Skip>();
        }
    )* };
}

of_every_map! { steps_come_before_the_reader only_what_is_read_is_fetched steps_see_living_values
panics_of_steps_end_iterators settings_keep_their_steps lent_entries_are_mapped }

/// What has happened to a value: which step has seen it, or that the reader has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    First,
    Second,
    Read,
}

type Events = Arc<Mutex<Vec<(Event, u64)>>>;

/// A value that is boxed.
type Boxed = (u64, u64);

fn boxed(n: u64) -> Boxed {
    (n, 2 * n)
}

/// Makes a map with two steps, which note that they were made.
fn noting<S: Kind>(entries: u64) -> (Map<S, u64, Boxed>, Events) {
    let events = Events::default();
    let note = |event| {
        let events = events.clone();
        move |value: &Boxed| {
            events.lock().unwrap().push((event, value.0));
            &raw const value.1
        }
    };
    let mut map = Map::builder().fetch_ahead(note(Event::First)).fetch_ahead(note(Event::Second)).build();
    map.extend((0..entries).map(|n| (n, boxed(n))));
    // Once an object was freed, an iterator fetches the rest of its batch again, with all steps.
    soon_syncs(&map, has_no_garbage);
    events.lock().unwrap().clear();
    (map, events)
}

/// Returns the numbers of times that the two steps were made since the last call. They are equal.
fn steps(events: &Events) -> usize {
    let events = core::mem::take(&mut *events.lock().unwrap());
    let of = |event| events.iter().filter(|it| it.0 == event).count();
    assert_eq!(of(Event::First), of(Event::Second));
    of(Event::First)
}

/// `Art` makes no steps.
fn makes_steps<S: Kind>() -> bool {
    S::NAME != "Art"
}

mod every {
    use super::*;

    /// All of a batch make one step before any of them makes the next one. Then the reader gets the first of them.
    pub fn steps_come_before_the_reader<S: Kind>() {
        let (map, events) = noting::<S>(10);
        let expected = |order: &dyn Fn(u64) -> u64| -> Vec<(Event, u64)> {
            let of = |event: Event| (0..10).map(move |n| (event, n));
            let steps = of(Event::First).chain(of(Event::Second)).filter(|_| makes_steps::<S>());
            steps.chain((0..10).map(|n| (Event::Read, order(n)))).collect()
        };
        let read = |value: &Boxed| events.lock().unwrap().push((Event::Read, value.0));
        map.pin().scan(&0, 10, |_, value| read(value));
        assert_eq!(core::mem::take(&mut *events.lock().unwrap()), expected(&|n| n));
        map.pin().scan_rev(&20, 10, |_, value| read(value));
        let mut back = core::mem::take(&mut *events.lock().unwrap());
        back[..if makes_steps::<S>() { 20 } else { 0 }].sort_unstable();
        assert_eq!(back, expected(&|n| 9 - n));
    }

    /// Only values that the caller asked for are fetched, and none if the caller reads keys only. (A look of the thread
    /// for idle maps can make an iterator fetch the rest of its batch again, so one of several tries counts.)
    pub fn only_what_is_read_is_fetched<S: Kind>() {
        some_try(20, || {
            let (map, events) = noting::<S>(sized(2_000, 300) as u64);
            let session = map.pin();
            let fetched = |count: usize| {
                let (steps, count) = (steps(&events), if makes_steps::<S>() { count } else { 0 });
                if steps == count { Ok(()) } else { Err(format!("{}: {steps} steps, not {count}", S::NAME)) }
            };
            assert_eq!(session.scan(&100, 10, |_, _| ()), 10);
            fetched(10)?;
            assert_eq!(session.scan_rev(&100, 10, |_, _| ()), 10);
            fetched(10)?;
            assert_eq!(session.keys().count(), map.len());
            fetched(0)?;
            assert_eq!(session.entries(100..).take(10).map(|entry| entry.value().0).sum::<u64>(), 1045);
            fetched(16)?;
            let mut entries = session.entries(100..).expecting(10);
            (0..10).for_each(|_| assert!(entries.next().is_some()));
            fetched(10)?;
            // A batch has at most 256 entries, and at least one.
            for (expecting, first) in [(0, 1), (1, 1), (70, 70), (5_000, 256)] {
                let mut entries = session.entries::<u64, _>(..).expecting(expecting);
                assert_eq!(entries.next_back().unwrap().key(), map.len() as u64 - 1);
                fetched(first)?;
            }
            assert_eq!(session.entries::<u64, _>(..).expecting(3).count(), map.len());
            fetched(map.len())?;
            assert!(session.iter().eq((0..map.len() as u64).map(|n| (n, boxed(n)))));
            Ok(())
        });
    }

    /// A value with a mark of its life.
    struct Marked(AtomicU64);
    const ALIVE: u64 = 0x600D;

    impl Drop for Marked {
        fn drop(&mut self) {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// No step is called with a value that has been freed, whatever other threads replace and remove.
    pub fn steps_see_living_values<S: Kind>() {
        watchdog(USUAL, |_| {
            let freed = Arc::new(AtomicBool::new(false));
            let step = {
                let freed = freed.clone();
                move |value: &Marked| {
                    if value.0.load(Ordering::Relaxed) != ALIVE {
                        freed.store(true, Ordering::Relaxed);
                    }
                    &raw const value.0
                }
            };
            let keys = sized(300, 40) as u64;
            let marked = || Marked(AtomicU64::new(ALIVE));
            let mut map: Map<S, u64, Marked> = Map::builder().fetch_ahead(step.clone()).fetch_ahead(step).build();
            map.extend((0..keys).map(|n| (n, marked())));
            thread::scope(|s| {
                for t in 0..2 {
                    let map = &map;
                    s.spawn(move || {
                        let (mut rng, map) = (workload::rng(71, t), map.pin());
                        for _ in 0..sized(8_000, 100) {
                            let key = rng.random_range(0..keys);
                            if rng.random_bool(0.3) {
                                map.delete(&key);
                            } else {
                                map.upsert(&key, marked());
                            }
                        }
                    });
                }
                s.spawn(|| {
                    let map = map.pin();
                    for _ in 0..sized(60, 4) {
                        let check = |value: &Marked| assert_eq!(value.0.load(Ordering::Relaxed), ALIVE);
                        map.scan_range::<u64, _, ()>(.., |_, value| {
                            check(value);
                            ControlFlow::Continue(())
                        });
                        map.scan_rev(&keys, 100, |_, value| check(value));
                        map.entries::<u64, _>(..).map_refs(|_, value| check(value)).for_each(drop);
                        map.entries::<u64, _>(..).rev().for_each(|entry| check(entry.value()));
                    }
                });
            });
            assert!(!freed.load(Ordering::Relaxed), "{}: a step got a freed value", S::NAME);
        });
    }

    /// A step that panics ends the scan or the iterator, and nothing else.
    pub fn panics_of_steps_end_iterators<S: Kind>() {
        let armed = Arc::new(AtomicBool::new(false));
        let step = {
            let armed = armed.clone();
            move |value: &Boxed| {
                assert!(!armed.load(Ordering::Relaxed) || value.0 != 50, "a panic of a step");
                &raw const value.1
            }
        };
        let mut map: Map<S, u64, Boxed> = Map::builder().fetch_ahead(step).build();
        map.extend((0..200).map(|n| (n, boxed(n))));
        let session = map.pin();
        let mut entries = session.entries(50..);
        let mut range = session.range(50..);
        armed.store(true, Ordering::Relaxed);
        if makes_steps::<S>() {
            let panics = |run: &mut dyn FnMut()| assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            panics(&mut || _ = session.scan(&40, 20, |_, _| ()));
            panics(&mut || _ = session.scan_rev(&60, 20, |_, _| ()));
            panics(&mut || _ = entries.next());
            // The first entry of a range is fetched alone.
            assert_eq!(session.range(49..).next(), Some((49, boxed(49))));
            panics(&mut || _ = session.range(49..).count());
            assert!(entries.next().is_none() && entries.next_back().is_none());
        }
        assert_eq!(range.next(), Some((50, boxed(50))));
        armed.store(false, Ordering::Relaxed);
        assert_eq!(session.insert(50, boxed(7)), Some(boxed(50)));
        assert_eq!(session.entries::<u64, _>(..).count(), 200);
        soon_shows(&map, |stats| stats.garbage.readers == 0);
        map.check_invariants();
    }

    /// Clones of a map and of a builder, and maps that are cut off, have the same steps.
    pub fn settings_keep_their_steps<S: Kind>() {
        let (mut map, events) = noting::<S>(100);
        let fetched = |count: usize| assert_eq!(steps(&events), if makes_steps::<S>() { count } else { 0 });
        let clone = map.clone();
        steps(&events);
        assert_eq!(clone.pin().scan(&0, 100, |_, _| ()), 100);
        fetched(100);
        let rest = map.split_off(&40);
        steps(&events);
        assert_eq!(rest.pin().scan(&0, 100, |_, _| ()), 60);
        fetched(60);
        let calls = Arc::new(AtomicU64::new(0));
        let count = calls.clone();
        let builder = Map::<S, u64, Boxed>::builder().fetch_ahead(move |value: &Boxed| {
            count.fetch_add(1, Ordering::Relaxed);
            &raw const value.0
        });
        for builder in [builder.clone(), builder] {
            let map = builder.build();
            map.pin().insert(1, boxed(1));
            map.pin().scan(&0, 1, |_, _| ());
        }
        assert_eq!(calls.load(Ordering::Relaxed), if makes_steps::<S>() { 2 } else { 0 });
    }

    /// An iterator over what is made of entries yields what an iterator over entries leads to, from both ends. It holds
    /// a guard between its first step and its end.
    pub fn lent_entries_are_mapped<S: Kind>() {
        let len = sized(700, 300) as u64;
        let map: Map<S, String, Vec<u64>> = (0..len).map(|n| (format!("{n:04}"), vec![n; 3])).collect();
        // The thread for idle maps may be a reader for a moment.
        let nothing_reads = || _ = soon_shows(&map, |stats| stats.garbage.readers == 0);
        let session = map.pin();
        let numbers = |key: &str, value: &Vec<u64>| (key.parse::<u64>().unwrap(), value.iter().sum::<u64>());
        let number = |n: u64| (n, 3 * n);
        assert!(session.entries::<String, _>(..).map_refs(numbers).eq((0..len).map(number)));
        assert!(session.entries::<String, _>(..).map_refs(numbers).rev().eq((0..len).rev().map(number)));
        let mut both = session.entries("0010".to_owned().."0290".to_owned()).map_refs(numbers);
        nothing_reads();
        let (mut low, mut high) = (10, 290);
        while low < high {
            assert_eq!(both.next(), Some(number(low)));
            low += 1;
            for _ in 0..(high - low).min(2) {
                high -= 1;
                assert_eq!(both.next_back(), Some(number(high)));
            }
            assert_ne!(map.stats().garbage.readers, 0);
        }
        assert_eq!((both.next(), both.next_back()), (None, None));
        nothing_reads();
        // The closure may have a state, and the rest can be taken out.
        let mut calls = 0;
        let mut some = session.entries::<String, _>(..).map_refs(|_, _| calls += 1);
        assert_eq!(some.by_ref().take(5).count(), 5);
        let mut rest = some.into_inner();
        rest.release();
        nothing_reads();
        assert_eq!(rest.next_ref().map(|(key, _)| key.to_owned()), Some("0005".to_owned()));
        drop(rest);
        nothing_reads();
        assert_eq!(calls, 5);
    }
}

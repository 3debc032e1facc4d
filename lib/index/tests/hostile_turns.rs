//! Maintenance of `HydraList`s while clients have all processors: the map's thread waits for a processor, and clients
//! take turns with it.
//!
//! Threads far outnumber the processors. Each moves a window of keys: it inserts above its keys and removes the lowest
//! of them, so pages are split and merged all the time. Beside them a reader stays, threads end with leaked sessions,
//! and other maps are dropped while their threads work.
//!
//! All bounds are counts: a map's own counters, and the bytes that one operation allocates. These bytes show how many
//! rounds (updates of the search layer) the operation did, since a round builds the layer anew. The map has no count of
//! one operation's work; the limit of a client's round (`LONGEST` in `turns.rs`) is a time, which is not tested.
#![cfg(not(any(miri, archipelago_sim)))]

mod common;

use archipelago_check::drops::DropCounter;
use archipelago_check::hostile::{Counting, alone, duration_or, some_try};
use archipelago_check::watchdog::{USUAL, watchdog};
// `archipelago_tested` is linked so that this program uses its compiled copies of the maps.
use archipelago_index::map::Stats;
use archipelago_index::{HydraList, Key};
use archipelago_tested as _;
use common::quiet::soon_shows;
use std::mem;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: Counting = Counting::new();

/// The entries of all threads of a crowd together.
const ENTRIES: u64 = 40_000;
/// The entries that a crowd inserts and removes in a load.
const MOVES: u64 = 200_000;
/// The entries that one client inserts and removes in a load.
const OF_ONE: u64 = 12_500;
/// A split leaves more entries than this in each page.
const FEWEST: u64 = 16;
/// The least number of rounds in the load of one client, which makes eleven.
const ROUNDS: u64 = 8;

/// The keys of a thread.
type Make<K> = fn(thread: u64, n: u64) -> K;

/// The greatest of several counts during a load.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    /// The bytes that one operation allocated.
    operation: usize,
    pages: usize,
    layers: usize,
    garbage: usize,
}

impl Most {
    fn or(self, other: Self) -> Self {
        Self {
            operation: self.operation.max(other.operation),
            pages: self.pages.max(other.pages),
            layers: self.layers.max(other.layers),
            garbage: self.garbage.max(other.garbage),
        }
    }

    fn see(&mut self, stats: &Stats) {
        let Stats { pages, layers, garbage, .. } = *stats;
        *self = self.or(Self { operation: 0, pages, layers, garbage: garbage.bytes });
    }

    fn operation(&mut self, work: impl FnOnce()) {
        self.operation = self.operation.max(HEAP.allocated_here(work));
    }
}

/// A map with windows of keys: each of `threads` threads has one, and one more client.
struct Windows<K: Key> {
    map: HydraList<K, u64>,
    make: Make<K>,
    threads: u64,
    /// The lowest key in each window of the crowd.
    of_crowd: u64,
    /// The lowest key in the window of the other client.
    of_one: u64,
    /// The map's statistics at rest, before any load.
    full: Stats,
}

impl<K: Key + PartialEq> Windows<K> {
    fn new(make: Make<K>) -> Self {
        let threads = thread::available_parallelism().map_or(1, |cores| cores.get() as u64 * 4).clamp(16, 256);
        let map: HydraList<K, u64> = HydraList::new();
        let windows = (0..=threads).flat_map(|thread| (0..ENTRIES / threads).map(move |n| (make(thread, n), n)));
        map.pin().extend(windows);
        map.sync();
        let full = map.stats();
        Self { map, make, threads, of_crowd: 0, of_one: 0, full }
    }

    fn each(&self) -> u64 {
        ENTRIES / self.threads
    }

    fn moves(&self) -> u64 {
        MOVES / self.threads
    }

    /// Moves a thread's window, which begins with the key `from`, by `moves` keys.
    fn slide(&self, thread: u64, from: u64, moves: u64) -> Most {
        let (session, mut most) = (self.map.pin(), Most::default());
        let key = |n| (self.make)(thread, n);
        for n in from..from + moves {
            let (new, old, inner) = (n + self.each(), n, n + self.each() / 2);
            most.operation(|| assert_eq!(session.insert(key(new), new), None));
            most.operation(|| assert_eq!(session.remove(&key(old)), Some(old)));
            assert_eq!(session.get(&key(inner)), Some(inner));
            if n % 256 == 0 {
                most.see(&self.map.stats());
            }
        }
        let mut entries = session.iter();
        assert!(entries.next().is_some());
        mem::forget((entries, session));
        most
    }

    /// Moves the windows of a crowd while other maps come and go.
    fn crowd(&self) -> Most {
        let values = DropCounter::new();
        let most = thread::scope(|scope| {
            scope.spawn(|| maps_come_and_go(values));
            let slide = |thread| move || self.slide(thread, self.of_crowd, self.moves());
            let threads: Vec<_> = (0..self.threads).map(|thread| scope.spawn(slide(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).fold(Most::default(), Most::or)
        });
        values.assert_all_dropped();
        most
    }

    /// As [`crowd`](Self::crowd), while a reader stays.
    fn crowd_beside_a_reader(&self) -> Most {
        let (over, reading) = (AtomicBool::new(false), Barrier::new(2));
        let staying = |_: &u64| {
            reading.wait();
            while !over.load(Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        };
        thread::scope(|scope| {
            scope
                .spawn(|| assert!(self.map.pin().get_with(&(self.make)(self.threads, self.of_one), staying).is_some()));
            reading.wait();
            let most = self.crowd();
            over.store(true, Relaxed);
            most
        })
    }

    /// Runs a load, which begins with the clients' turns. At most one page is retired for each split, and one snapshot
    /// for each round, so a map with a reader that stays is bounded, too. At rest the map is as small as before.
    fn bounded(&self, moves: u64, load: impl FnOnce() -> Most) -> Most {
        self.map.give_turns();
        let before = self.map.maintenance_stats().rounds;
        let most = load();
        let rounds = self.map.maintenance_stats().rounds - before;
        println!("{rounds} rounds, {most:?}; full: {:?}", self.full);
        assert!(rounds >= ROUNDS, "{rounds} rounds");
        let pages = 2 * self.full.pages + (moves / FEWEST) as usize;
        assert!(most.pages <= pages, "{} pages, {pages} allowed", most.pages);
        let garbage = (rounds as usize + 2) * 2 * most.layers;
        assert!(most.garbage <= garbage, "{} bytes of garbage, {garbage} allowed", most.garbage);
        soon_shows(&self.map, |stats| {
            let work = self.map.maintenance_stats();
            let rests = work.roused == work.done && stats.garbage.objects == 0;
            rests && stats.pages <= 2 * self.full.pages && stats.bytes <= 2 * self.full.bytes
        });
        self.map.check_invariants();
        most
    }

    /// Checks that the map has the entries of all windows, and no others.
    fn check(&self) {
        let from = |thread| if thread < self.threads { self.of_crowd } else { self.of_one };
        let window = |thread| (from(thread)..from(thread) + self.each()).map(move |n| ((self.make)(thread, n), n));
        assert!(self.map.pin().iter().eq((0..=self.threads).flat_map(window)));
    }
}

/// Makes maps with threads of their own, and drops them while the threads and clients update the search layer.
fn maps_come_and_go(values: DropCounter) {
    for round in 0..4 {
        let map = HydraList::new();
        let fill = |keys: Range<u64>| map.pin().extend(keys.map(|key| (key, values.value(key))));
        fill(0..40_000);
        if round % 2 == 0 {
            map.give_turns();
        }
        fill(40_000..60_000);
        drop(map.pin().remove(&round));
    }
}

/// An operation that does one round allocates at most `percent` of the bytes of the search layer.
fn clients_take_turns<K: Key + PartialEq>(make: Make<K>, percent: usize) {
    let _alone = alone();
    watchdog(USUAL + duration_or(Duration::ZERO), |notes| {
        let mut windows = Windows::new(make);
        // While the only client waits for a processor, the map's thread may take the map for idle, and begin rounds
        // that the client's operation then finishes. Such a try says nothing.
        let of_one = some_try(5, || {
            let most = windows.bounded(OF_ONE, || windows.slide(windows.threads, windows.of_one, OF_ONE));
            windows.of_one += OF_ONE;
            let allowed = most.layers * percent / 100;
            let said = format!("{} bytes in an operation, {allowed} of one round", most.operation);
            if most.operation <= allowed { Ok(most.operation) } else { Err(said) }
        });
        // A client that does a round also applies the rounds that threads of the process have begun, which wait for it:
        // the map's thread, and the thread for idle maps. In a crowd the layer is larger.
        let longest = 3 * 2 * of_one;
        let start = Instant::now();
        while windows.of_crowd == 0 || start.elapsed() < duration_or(Duration::ZERO) {
            for reader_stays in [true, false] {
                notes.note(format!("from {}, beside a reader: {reader_stays}", windows.of_crowd));
                let load = || if reader_stays { windows.crowd_beside_a_reader() } else { windows.crowd() };
                let most = windows.bounded(MOVES, load).operation;
                windows.of_crowd += windows.moves();
                assert!(most <= longest, "an operation allocates {most} bytes, {longest} allowed");
                windows.check();
            }
        }
    });
}

#[test]
fn clients_take_turns_with_words() {
    clients_take_turns(|thread, n| (thread << 32) | (3 * n), 150);
}

#[test]
fn clients_take_turns_with_byte_strings() {
    clients_take_turns(|thread, n| format!("user{thread:03}/{n:09}@example.org").into_bytes(), 500);
}

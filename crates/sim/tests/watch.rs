//! Plain accesses to shared memory that nothing announces are found, and no others.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]

mod common;

use std::cell::UnsafeCell;

use archipelago_sim::{Config, SimAlloc, Unannounced, run_with, world};
use common::{Word, machine};

#[global_allocator]
static HEAP: SimAlloc = SimAlloc;

/// A plain counter on the arena's heap, and a lock that says in which order threads use it.
struct Shared {
    turn: Word,
    plain: Box<UnsafeCell<[u64; 8]>>,
}

/// Three threads in turn run `use_it` on the same plain memory.
fn found(use_it: impl Fn(*mut u64)) -> Vec<Unannounced> {
    let config = Config { watch: true, ..Config::default() };
    let setup = || Shared { turn: Word::new(0), plain: Box::new(UnsafeCell::new([0; 8])) };
    let body = |shared: &Shared, client: archipelago_sim::Client| {
        for round in 0..5 {
            while shared.turn.get() != (round * client.threads + client.index) as u64 {
                world::spin_hint();
            }
            use_it(shared.plain.get().cast());
            shared.turn.add(1);
        }
        // Private memory needs no announcement.
        let mine = std::hint::black_box(vec![client.index; 100]);
        assert_eq!(mine.iter().sum::<usize>(), 100 * client.index);
    };
    run_with(&machine(), &config, 3, setup, body, drop).0.assert_done().unannounced
}

/// What is found of lines that change; the pointer to the plain memory does not.
fn changing(use_it: impl Fn(*mut u64)) -> Vec<Unannounced> {
    found(use_it).into_iter().filter(|place| place.changing).collect()
}

#[test]
fn a_forgotten_write_is_found() {
    // SAFETY: threads take turns.
    let found = found(|plain| unsafe { plain.write_volatile(plain.read_volatile() + 1) });
    assert!(found.iter().any(|place| place.writes && place.changing), "{found:?}");
    assert!(found.iter().all(|place| place.lines == 1 && place.place.contains("watch.rs")), "{found:?}");
}

#[test]
fn a_read_announcement_covers_no_write() {
    let found = changing(|plain| {
        world::touch(plain.cast(), 8);
        // SAFETY: threads take turns.
        unsafe { plain.write_volatile(1) };
    });
    assert_eq!((found.len(), found[0].writes, found[0].accesses), (1, true, 15), "{found:?}");
}

#[test]
fn announced_accesses_are_not_reported() {
    let found = changing(|plain| {
        world::touch_mut(plain.cast(), 8);
        // SAFETY: threads take turns.
        unsafe { plain.write_volatile(plain.read_volatile() + 1) };
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn what_only_is_read_is_told_apart() {
    // SAFETY: threads take turns, and only read.
    let found = found(|plain| assert_eq!(unsafe { plain.read_volatile() }, 0));
    assert!(!found.is_empty() && found.iter().all(|place| !place.writes && !place.changing), "{found:?}");
}

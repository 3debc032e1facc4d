//! RCU natively: every retired object is reclaimed once and not too early, whatever threads, guards and panics do.
#![cfg(not(loom))]

#[path = "rcu/held.rs"]
mod held;
#[path = "rcu/reclaiming.rs"]
mod reclaiming;
#[path = "rcu/sections.rs"]
mod sections;

use core::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(target_os = "linux")]
use archipelago_check::late::at_the_very_end;
use archipelago_check::watchdog::watchdog;
use archipelago_platform::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use archipelago_platform::sync::{Arc, Barrier, Weak};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use archipelago_sync::rcu::{Domain, Flavour, Guard, Held, Owner, Reader};

const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

fn each_flavour(test: impl Fn(&dyn Fn() -> Domain)) {
    for flavour in [Flavour::Epoch, Flavour::Membarrier] {
        test(&|| Domain::with_flavour(flavour));
    }
}

/// An object that is marked as alive until it is dropped, and that counts its drops.
struct Tracked<'c> {
    alive: AtomicUsize,
    drops: &'c AtomicUsize,
}

const ALIVE: usize = 0x600D;

impl<'c> Tracked<'c> {
    fn boxed(drops: &'c AtomicUsize) -> *mut Self {
        Box::into_raw(Box::new(Self { alive: AtomicUsize::new(ALIVE), drops }))
    }

    fn check(&self) {
        assert_eq!(self.alive.load(Ordering::Relaxed), ALIVE, "read after it was reclaimed");
    }
}

impl Drop for Tracked<'_> {
    fn drop(&mut self) {
        assert_eq!(self.alive.swap(0xDEAD, Ordering::Relaxed), ALIVE, "reclaimed twice");
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn retire_new(guard: &Guard<'_>, drops: &AtomicUsize) {
    // SAFETY: never linked anywhere; `drops` outlives the domain in every test here.
    unsafe { guard.retire_box(Tracked::boxed(drops)) }
}

/// Replaces the shared object `rounds` times, and reads it each time, under a guard.
fn churn(domain: &Domain, shared: &AtomicPtr<Tracked<'_>>, drops: &AtomicUsize, rounds: usize) {
    let reader = domain.reader();
    for _ in 0..rounds {
        let guard = reader.enter();
        // SAFETY: read from the structure inside the guard.
        unsafe { &*shared.load(Ordering::Acquire) }.check();
        let fresh = Tracked { alive: AtomicUsize::new(ALIVE), drops };
        // The cast changes a lifetime. This is sound, because `drops` outlives the domain in every test here.
        let old = shared.swap(Box::into_raw(Box::new(fresh)).cast(), Ordering::AcqRel);
        // SAFETY: the swap unlinked it, so this thread alone retires it.
        unsafe { guard.retire_box(old) };
        // SAFETY: this guard began before the object was retired.
        unsafe { &*old }.check();
    }
}

fn churn_with_threads(domain: Domain, threads: usize, rounds: usize) {
    let drops = AtomicUsize::new(0);
    let shared = AtomicPtr::new(Tracked::boxed(&drops));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| churn(&domain, &shared, &drops, rounds));
        }
    });
    let pending = domain.stats().pending;
    assert_eq!(drops.load(Ordering::Relaxed) + pending, threads * rounds);
    domain.collect();
    assert_eq!(domain.stats().pending, 0);
    assert_eq!(drops.load(Ordering::Relaxed), threads * rounds);
    drop(domain);
    // SAFETY: the last object was never retired.
    drop(unsafe { Box::from_raw(shared.into_inner()) });
    assert_eq!(drops.load(Ordering::Relaxed), threads * rounds + 1);
}

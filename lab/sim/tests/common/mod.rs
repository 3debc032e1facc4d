//! A shared word, and the machine of most tests.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod races;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use archipelago_sim::{Machine, world};

/// The machine of most tests.
pub fn machine() -> Machine {
    Machine::preset("xeon-e7-4850v3-4s").unwrap()
}

/// A shared word on a line of its own, as the platform's atomics are.
#[repr(align(64))]
pub struct Word(AtomicU64);

impl Word {
    pub const fn new(value: u64) -> Self {
        Word(AtomicU64::new(value))
    }

    /// Makes a word from an index.
    pub fn new_of(value: usize) -> Self {
        Word::new(value as u64)
    }

    fn addr(&self) -> *const () {
        (&raw const self.0).cast()
    }

    /// Returns the word by the address that real accesses use; with [`Config::watch`](archipelago_sim::Config::watch)
    /// this is a second mapping of the same memory.
    fn word(&self) -> &AtomicU64 {
        // SAFETY: `charged` returns an address of the same memory as `self.0`, which lives as long as `self`.
        unsafe { &*world::charged(&raw const self.0) }
    }

    pub fn get(&self) -> u64 {
        world::load(self.addr(), 8, || self.word().load(Relaxed))
    }

    pub fn set(&self, value: u64) {
        world::store(self.addr(), 8, || self.word().swap(value, Relaxed) != value);
    }

    pub fn add(&self, value: u64) -> u64 {
        world::update(self.addr(), 8, || (self.word().fetch_add(value, Relaxed), value != 0))
    }

    pub fn swap(&self, value: u64) -> u64 {
        world::update(self.addr(), 8, || {
            let old = self.word().swap(value, Relaxed);
            (old, old != value)
        })
    }

    pub fn cas(&self, old: u64, new: u64) -> bool {
        world::update(self.addr(), 8, || {
            let done = self.word().compare_exchange(old, new, Relaxed, Relaxed).is_ok();
            (done, done && old != new)
        })
    }

    /// Takes the word as a test-and-test-and-set lock.
    pub fn lock(&self) {
        while self.get() != 0 || self.swap(1) != 0 {
            world::spin_hint();
        }
    }

    pub fn unlock(&self) {
        self.set(0);
    }

    /// Takes and releases the lock.
    pub fn lock_and_count(&self) {
        self.lock();
        self.unlock();
    }

    /// Releases and takes the lock.
    pub fn lock_and_count_free(&self) {
        self.unlock();
        self.lock();
    }

    /// Reads the word directly, not through the model.
    pub fn peek(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

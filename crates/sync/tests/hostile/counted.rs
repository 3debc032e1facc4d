//! An allocator that counts, and a way for a test to be alone with the count.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The system's, counted.
pub struct Counted;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if live > PEAK.load(Ordering::Relaxed) {
        PEAK.fetch_max(live, Ordering::Relaxed);
    }
}

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) };
    }
}

/// Bytes allocated now, in the whole program.
pub fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// The most bytes since the last [`reset_peak`].
#[allow(dead_code)]
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// See [`peak`].
#[allow(dead_code)]
pub fn reset_peak() {
    PEAK.store(live(), Ordering::Relaxed);
}

static TESTS: RwLock<()> = RwLock::new(());

/// Keeps every test out that is [`beside`] others: the count, and the cores, are this one's.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    TESTS.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// For a test that may run beside others, but not beside one that is [`alone`].
pub fn beside() -> RwLockReadGuard<'static, ()> {
    TESTS.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

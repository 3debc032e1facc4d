//! A list that only grows, and that threads read without a lock. With a lock, each reader would change the lock's word.
//! This word would move between sockets with every read, and permanent readers would delay new items.

use core::mem::MaybeUninit;
use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicUsize, Ordering};
use archipelago_platform::sync::Mutex;
use archipelago_platform::{touch, touch_mut};

/// Items in the first part. Each part has twice as many as the previous one.
const FIRST: usize = if cfg!(loom) { 1 } else { 16 };
/// As many parts as a list of `u32::MAX` items needs; under loom, which looks at each atomic at each fence, few.
const PARTS: usize = if cfg!(loom) { 4 } else { 29 };

/// Invariant: items below `len` are initialized, in allocated parts, and never move.
pub(super) struct Grown<T> {
    parts: [AtomicPtr<MaybeUninit<T>>; PARTS],
    len: AtomicUsize,
    growing: Mutex<()>,
}

// SAFETY: items are shared as those of a `Vec` behind a reference, and dropped by the thread that drops the list.
unsafe impl<T: Send + Sync> Sync for Grown<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Grown<T> {}

/// Returns the part of an item, its position in the part, and the part's number of items.
fn place(at: usize) -> (usize, usize, usize) {
    let part = (at / FIRST + 1).ilog2() as usize;
    (part, at - FIRST * ((1 << part) - 1), FIRST << part)
}

impl<T> Grown<T> {
    pub(super) fn new() -> Self {
        Self {
            parts: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            len: AtomicUsize::new(0),
            growing: Mutex::new(()),
        }
    }

    /// Returns the number of items. Acquire: pairs with [`push`](Self::push), so items below the result are
    /// initialized.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        // SAFETY: below `len`.
        (at < self.len()).then(|| unsafe { self.there(at) })
    }

    /// Returns the items that the list has now.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        // SAFETY: below `len`.
        (0..self.len()).map(|at| unsafe { self.there(at) })
    }

    /// # Safety
    /// The item is below `len`, which the caller has read.
    unsafe fn there(&self, at: usize) -> &T {
        let (part, place, _) = place(at);
        // Relaxed: the caller has loaded `len` with Acquire, so it sees the part.
        let item = self.parts[part].load(Ordering::Relaxed).wrapping_add(place);
        touch(item.cast::<T>(), size_of::<T>());
        // SAFETY: by the invariant.
        unsafe { (*item).assume_init_ref() }
    }

    /// Adds an item. `make` gets the item's index, and no other item is added while it runs.
    ///
    /// # Panics
    /// If the list has `u32::MAX` items.
    pub(super) fn push(&self, make: impl FnOnce(usize) -> T) -> &T {
        let _growing = self.growing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Relaxed: only the lock's holders change it.
        let at = self.len.load(Ordering::Relaxed);
        assert!(at < u32::MAX as usize, "too many items");
        let item = make(at);
        let (part, place, room) = place(at);
        let mut items = self.parts[part].load(Ordering::Relaxed);
        if place == 0 {
            items = Box::into_raw(Box::<[T]>::new_uninit_slice(room)).cast();
            self.parts[part].store(items, Ordering::Relaxed);
        }
        // SAFETY: in the part, which has room for it; no thread reads at or above `len`.
        unsafe { (*items.add(place)).write(item) };
        touch_mut(items.wrapping_add(place).cast::<T>(), size_of::<T>());
        // Release: see `len`.
        self.len.store(at + 1, Ordering::Release);
        // SAFETY: below `len`.
        unsafe { self.there(at) }
    }
}

impl<T> Drop for Grown<T> {
    fn drop(&mut self) {
        let len = self.len();
        for at in 0..len {
            let (part, place, _) = place(at);
            // SAFETY: by the invariant; dropped here only.
            unsafe { (*self.parts[part].load(Ordering::Relaxed).add(place)).assume_init_drop() };
        }
        for (part, items) in self.parts.iter().enumerate() {
            let items = items.load(Ordering::Relaxed);
            if !items.is_null() {
                // SAFETY: from `push`, with this many.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(items, FIRST << part)) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use archipelago_platform::sync::Arc;
    use archipelago_platform::thread;

    use super::*;

    #[test]
    fn places_fill_the_parts() {
        let mut next = (0, 0);
        for at in 0..1000 {
            let (part, place, room) = place(at);
            assert_eq!((part, place), next, "{at}");
            next = if place + 1 == room { (part + 1, 0) } else { (part, place + 1) };
        }
        assert!(place(u32::MAX as usize).0 < PARTS);
    }

    /// While four threads add items, readers see an initialized prefix of the list; each item is dropped once.
    #[test]
    fn what_is_there_stays() {
        let (counted, list) = (Arc::new(()), Grown::new());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| _ = list.push(|at| (at, Box::new(at), counted.clone()))));
            }
            while list.len() < 2000 {
                let seen = list.iter().enumerate().map(|(at, item)| assert!(item.0 == at && *item.1 == at)).count();
                assert!(seen <= list.len());
            }
        });
        assert_eq!(list.get(1999).map(|item| item.0), Some(1999));
        assert!(list.get(2000).is_none() && Arc::strong_count(&counted) == 2001);
        drop(list);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}

//! Entries: a key, a value, and the policy's data about them.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use archipelago_platform::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use archipelago_platform::hint::prefetch_read;
use archipelago_platform::{touch, touch_mut};

use crate::clock::{NEVER, Tick};

/// The part of an entry that does not depend on the types of key and value. It is the first field, so that a pointer to
/// it is also a pointer to the entry.
pub(crate) struct Header {
    pub hash: u64,
    /// The entry's weight towards the bound.
    pub weight: usize,
    /// The time at which the entry expires at the latest.
    last: Tick,
    /// The time at which the entry expires if it is not used before.
    deadline: AtomicU64,
    /// The entry's position in the policy's queues. Written and read with the shard's lock held.
    place: AtomicU64,
    /// Marks that hits leave for the policy.
    marks: AtomicU32,
}

impl Header {
    #[inline]
    pub fn marks(&self) -> u32 {
        self.marks.load(Relaxed)
    }

    /// Relaxed: a mark that is seen late, or overwritten by a concurrent one, only makes an eviction of the entry more
    /// likely.
    #[inline]
    pub fn mark(&self, marks: u32) {
        self.marks.store(marks, Relaxed);
    }

    /// Relaxed, as in the next method: the shard's lock orders the accesses.
    pub fn place(&self) -> u64 {
        self.place.load(Relaxed)
    }

    pub fn put(&self, place: u64) {
        self.place.store(place, Relaxed);
    }

    /// Returns whether the entry has a time of expiry.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.deadline.load(Relaxed) != NEVER
    }

    /// Returns whether the entry has expired.
    #[inline]
    pub fn is_expired(&self, now: Tick) -> bool {
        self.deadline.load(Relaxed) <= now
    }

    /// Sets the deadline to `idle` after `now`, but not after the latest time. The deadline is written only if it grows
    /// by a 16th of `idle`, so that most hits of a popular entry write nothing.
    #[inline]
    pub fn live_on(&self, now: Tick, idle: Tick) {
        let deadline = self.last.min(now.saturating_add(idle));
        // Relaxed: deadlines of two concurrent hits differ by less than the 16th that is not written anyway.
        if deadline > self.deadline.load(Relaxed).saturating_add(idle / 16) {
            self.deadline.store(deadline, Relaxed);
        }
    }
}

/// The times at which an entry expires: at `last` at the latest, and at `deadline` if it is not used before.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub last: Tick,
    pub deadline: Tick,
}

/// A cached key and its value. Neither ever changes: a new value is a new entry.
#[repr(C)]
pub(crate) struct Entry<K, V> {
    header: Header,
    key: K,
    value: V,
}

/// The memory of an entry.
pub(crate) type Block<K, V> = Box<MaybeUninit<Entry<K, V>>>;

/// A pointer to an entry that is, or was, in the table: the table owns it until it is retired.
pub(crate) type Shared<K, V> = NonNull<Entry<K, V>>;

impl<K, V> Entry<K, V> {
    #[cfg(test)]
    pub fn boxed(key: K, value: V, hash: u64, weight: usize, times: Times) -> Shared<K, V> {
        Self::within(Box::new_uninit(), key, value, hash, weight, times)
    }

    /// Makes an entry in this block. Does not panic.
    pub fn within(
        mut block: Block<K, V>,
        key: K,
        value: V,
        hash: u64,
        weight: usize,
        Times { last, deadline }: Times,
    ) -> Shared<K, V> {
        let header = Header {
            hash,
            weight,
            last,
            deadline: AtomicU64::new(deadline.min(last)),
            place: AtomicU64::new(0),
            marks: AtomicU32::new(0),
        };
        let at = block.as_mut_ptr();
        // The fields are written one by one, so that the value is moved directly into the allocation and not
        // through an entry on the stack.
        // SAFETY: in the bounds of the allocation, all of which is initialized.
        let entry = unsafe {
            (&raw mut (*at).header).write(header);
            (&raw mut (*at).key).write(key);
            (&raw mut (*at).value).write(value);
            Box::leak(block.assume_init())
        };
        touch_mut(entry, size_of::<Self>());
        NonNull::from(entry)
    }

    #[inline]
    pub fn header(&self) -> &Header {
        touch(&raw const self.header, size_of::<Header>());
        &self.header
    }

    #[inline]
    pub fn key(&self) -> &K {
        touch(&raw const self.key, size_of::<K>());
        &self.key
    }

    #[inline]
    pub fn value(&self) -> &V {
        touch(&raw const self.value, size_of::<V>());
        &self.value
    }
}

/// An entry without its types, for policies. The entry is in the table of the shard whose lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resident<'s> {
    header: NonNull<Header>,
    shard: PhantomData<&'s Header>,
}

// SAFETY: headers are atomics and values that never change; policies use them with the shard's lock held.
unsafe impl Send for Resident<'_> {}

impl<'s> Resident<'s> {
    /// # Safety
    /// The entry is not freed while the result is used.
    pub unsafe fn new<K, V>(entry: Shared<K, V>) -> Self {
        Self { header: entry.cast(), shard: PhantomData }
    }

    pub fn header(&self) -> &Header {
        // SAFETY: by the promise of `new`.
        let header = unsafe { self.header.as_ref() };
        touch(header, size_of::<Header>());
        header
    }

    /// Prefetches the header.
    pub fn prefetch(self) {
        prefetch_read(self.header.as_ptr());
    }

    pub fn entry<K, V>(self) -> Shared<K, V> {
        self.header.cast()
    }

    /// Extends the lifetime for storage in a policy: an entry is removed from its policy before it is retired.
    pub fn kept(self) -> Resident<'static> {
        Resident { header: self.header, shard: PhantomData }
    }
}

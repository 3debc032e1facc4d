//! What is cached: a key, a value, and what a policy knows of them.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use archipelago_platform::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use archipelago_platform::hint::prefetch_read;
use archipelago_platform::{touch, touch_mut};

use crate::clock::{NEVER, Tick};

/// The part of an entry that does not depend on the types of key and value. It comes first, so that a pointer to it is one to
/// the entry.
pub(crate) struct Header {
    pub hash: u64,
    /// What the entry counts for in the bound.
    pub weight: usize,
    /// When the entry expires at the latest.
    last: Tick,
    /// When the entry expires, if it is not used meanwhile.
    deadline: AtomicU64,
    /// Where the policy has the entry. Written and read with the shard's lock held.
    place: AtomicU64,
    /// What hits have left here for the policy.
    marks: AtomicU32,
}

impl Header {
    #[inline]
    pub fn marks(&self) -> u32 {
        self.marks.load(Relaxed)
    }

    /// Relaxed: a mark that is seen late, or lost beside another, costs a chance to stay and nothing else.
    #[inline]
    pub fn mark(&self, marks: u32) {
        self.marks.store(marks, Relaxed);
    }

    /// Relaxed, as the next: the shard's lock orders them.
    pub fn place(&self) -> u64 {
        self.place.load(Relaxed)
    }

    pub fn put(&self, place: u64) {
        self.place.store(place, Relaxed);
    }

    /// Returns whether the entry may expire at all.
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.deadline.load(Relaxed) != NEVER
    }

    /// Returns whether the entry's time is over.
    #[inline]
    pub fn is_expired(&self, now: Tick) -> bool {
        self.deadline.load(Relaxed) <= now
    }

    /// Lets the entry live `idle` more, from `now`, within its latest time. Written when a 16th of `idle` is gained, so that
    /// the hits of a popular entry mostly write nothing.
    #[inline]
    pub fn live_on(&self, now: Tick, idle: Tick) {
        let deadline = self.last.min(now.saturating_add(idle));
        // Relaxed: two hits at once differ by less than what is not written anyway.
        if deadline > self.deadline.load(Relaxed).saturating_add(idle / 16) {
            self.deadline.store(deadline, Relaxed);
        }
    }
}

/// When an entry expires: at `last` at the latest, and at `deadline` if it is not used.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    pub last: Tick,
    pub deadline: Tick,
}

/// A cached key and its value. Neither is changed: a new value is a new entry.
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

    /// An entry in this block. Does not panic.
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
        // Part by part: a value that is moved into its place is not copied into an entry on the stack before.
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

/// An entry of whatever types, as policies see it: in the table of the shard whose lock is held.
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

    /// Fetches the header, without waiting.
    pub fn prefetch(self) {
        prefetch_read(self.header.as_ptr());
    }

    pub fn entry<K, V>(self) -> Shared<K, V> {
        self.header.cast()
    }

    /// The same for as long as a policy has it: an entry is taken out of its policy before it is retired.
    pub fn kept(self) -> Resident<'static> {
        Resident { header: self.header, shard: PhantomData }
    }
}

//! Entries: a key, a value, and the policy's data about them.
//!
//! Each entry has a header of 16 bytes. An entry that expires, or whose weight does not fit into the header, is *long*:
//! it has an [`Extension`] right before its header.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::{NonNull, drop_in_place};
use std::alloc::{alloc, dealloc, handle_alloc_error};

use archipelago_platform::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use archipelago_platform::hint::prefetch_read;
use archipelago_platform::{touch, touch_mut};

use crate::clock::{Idle, NEVER, Tick};

/// How many bits of a hash are stored.
const HASH_BITS: u32 = 48;
/// The bits of a hash that are stored.
pub(crate) const HASH: u64 = (1 << HASH_BITS) - 1;
/// Stored instead of a weight if the extension holds the weight.
const LONG: u64 = u64::MAX >> HASH_BITS;

/// The part of an entry that does not depend on the types of key and value. It is the first field, so that a pointer to
/// it is also a pointer to the entry.
#[repr(C)]
pub(crate) struct Header {
    /// The hash, and above it the entry's weight towards the bound, or [`LONG`].
    hash_and_weight: u64,
    /// The entry's position in the policy's queues. Written and read with the shard's lock held.
    place: AtomicU32,
    /// Marks that hits leave for the policy.
    marks: AtomicU32,
}

/// The deadline of an entry that was found expired.
const ENDED: Tick = 0;

/// The additional data of a long entry.
pub(crate) struct Extension {
    weight: usize,
    /// The time at which the entry expires at the latest.
    last: Tick,
    /// The time at which the entry expires unless a hit postpones it.
    deadline: AtomicU64,
}

impl Header {
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash_and_weight & HASH
    }

    fn is_long(&self) -> bool {
        self.hash_and_weight >> HASH_BITS == LONG
    }

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
    pub fn place(&self) -> u32 {
        self.place.load(Relaxed)
    }

    pub fn put(&self, place: u32) {
        self.place.store(place, Relaxed);
    }
}

impl Extension {
    /// Returns whether the entry has expired. If so, no hit postpones the deadline any more.
    #[inline]
    pub fn is_expired(&self, now: Tick) -> bool {
        // Relaxed, as in the next method: the deadline orders no other accesses.
        let mut deadline = self.deadline.load(Relaxed);
        // A hit that read the clock earlier may not have stored its deadline yet. Its store must not revive an entry
        // that was found expired, so its exchange has to fail.
        while ENDED < deadline && deadline <= now {
            match self.deadline.compare_exchange(deadline, ENDED, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(postponed) => deadline = postponed,
            }
        }
        deadline <= now
    }

    /// Postpones the deadline, if less than the time to idle remains at `now`. The new deadline leaves more than this
    /// time, so most hits of a popular entry write nothing. The deadline is never after `last`.
    #[inline]
    pub fn live_on(&self, now: Tick, idle: Idle) {
        let (least, deadline) = (self.last.min(now.saturating_add(idle.least)), self.last.min(idle.deadline(now)));
        let mut before = self.deadline.load(Relaxed);
        // Any time may pass between the reading of the clock and the store: the deadline of a later hit must stay.
        while before > now && least > before {
            match self.deadline.compare_exchange(before, deadline, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(newer) => before = newer,
            }
        }
    }
}

/// The times at which an entry expires: at `last` at the latest, and at `deadline` unless a hit postpones the deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub last: Tick,
    pub deadline: Tick,
}

impl Times {
    /// The times of an entry that does not expire.
    pub const ENDLESS: Self = Self { last: NEVER, deadline: NEVER };
}

/// Returns whether an entry has to be long.
pub(crate) fn is_long(weight: usize, times: Times) -> bool {
    weight as u64 >= LONG || times != Times::ENDLESS
}

const LINE: usize = 64;
/// The most cache lines of an entry that are prefetched.
const MOST_LINES: usize = 32;

/// A cached key and its value. Neither ever changes: a new value of a key is stored in a new entry.
#[repr(C)]
pub(crate) struct Entry<K, V> {
    header: Header,
    key: K,
    value: V,
}

/// A pointer to an entry that is, or was, in the table: the table owns it until it is retired. The pointer may be used
/// to access the whole block of the entry, including an extension.
pub(crate) type Shared<K, V> = NonNull<Entry<K, V>>;

/// The memory of an entry.
pub(crate) struct Block<K, V> {
    entry: Shared<K, V>,
    is_long: bool,
}

impl<K, V> Block<K, V> {
    /// Returns the layout of a block, and the entry's offset in it.
    pub const fn layout(is_long: bool) -> (Layout, usize) {
        let entry = Layout::new::<Entry<K, V>>();
        let offset = if is_long { size_of::<Extension>().next_multiple_of(entry.align()) } else { 0 };
        match Layout::from_size_align(offset + entry.size(), entry.align()) {
            Ok(layout) => (layout, offset),
            Err(_) => panic!("an entry is larger than memory"),
        }
    }

    pub fn new(is_long: bool) -> Self {
        let (layout, offset) = Self::layout(is_long);
        // SAFETY: the layout is not empty, since it has a header; the offset is within the layout.
        let entry = unsafe { NonNull::new(alloc(layout)).map(|block| block.byte_add(offset).cast()) };
        Self { entry: entry.unwrap_or_else(|| handle_alloc_error(layout)), is_long }
    }

    /// Returns the block of this entry, whose key and value may have been dropped already.
    ///
    /// # Safety
    /// `entry` was returned by [`into_entry`](Self::into_entry), `is_long` is the block's, and no other thread uses the
    /// entry any more.
    pub unsafe fn of(entry: Shared<K, V>, is_long: bool) -> Self {
        Self { entry, is_long }
    }

    /// Returns the address at which the entry will be written.
    #[cfg(all(test, not(any(loom, archipelago_sim))))]
    pub fn entry(&self) -> Shared<K, V> {
        self.entry
    }

    /// As [`entry`](Self::entry); the caller owns the memory.
    pub fn into_entry(self) -> Shared<K, V> {
        let entry = self.entry;
        core::mem::forget(self);
        entry
    }

    pub fn is_long(&self) -> bool {
        self.is_long
    }
}

impl<K, V> Drop for Block<K, V> {
    fn drop(&mut self) {
        let (layout, offset) = Self::layout(self.is_long);
        // SAFETY: allocated by `new` with this layout, and owned.
        unsafe { dealloc(self.entry.as_ptr().byte_sub(offset).cast(), layout) }
    }
}

impl<K, V> Entry<K, V> {
    #[cfg(test)]
    pub fn boxed(key: K, value: V, hash: u64, weight: usize) -> Shared<K, V> {
        Self::within(Block::new(is_long(weight, Times::ENDLESS)), key, value, hash, weight, Times::ENDLESS)
    }

    /// Makes an entry in this block, which must be long if the entry needs an extension. Does not panic.
    pub fn within(
        block: Block<K, V>,
        key: K,
        value: V,
        hash: u64,
        weight: usize,
        Times { last, deadline }: Times,
    ) -> Shared<K, V> {
        let in_header = if block.is_long { LONG } else { weight as u64 };
        let header = Header {
            hash_and_weight: hash & HASH | in_header << HASH_BITS,
            place: AtomicU32::new(0),
            marks: AtomicU32::new(0),
        };
        let at = block.entry.as_ptr();
        // The fields are written one by one, so that the value is moved directly into the allocation and not through an
        // entry on the stack.
        // SAFETY: the writes are within the block. All fields are initialized here. A long block has room for an
        // extension right before the entry.
        unsafe {
            (&raw mut (*at).header).write(header);
            (&raw mut (*at).key).write(key);
            (&raw mut (*at).value).write(value);
            if block.is_long {
                let deadline = AtomicU64::new(deadline.min(last));
                let extension = at.cast::<Extension>().sub(1);
                extension.write(Extension { weight, last, deadline });
                touch_mut(extension, size_of::<Extension>());
            }
        }
        touch_mut(at, size_of::<Self>());
        block.into_entry()
    }

    /// Drops key and value, and returns the block.
    ///
    /// # Safety
    /// No other thread uses the entry any more, and the entry is emptied only once.
    pub unsafe fn emptied(entry: Shared<K, V>) -> Block<K, V> {
        // SAFETY: the caller's promise. If a destructor panics, the block is freed.
        unsafe {
            let block = Block::of(entry, entry.as_ref().header.is_long());
            drop_in_place(entry.as_ptr());
            block
        }
    }

    /// The number of cache lines that a prefetch of a whole entry requests, at most [`MOST_LINES`].
    pub const LINES: usize = {
        let lines = size_of::<Self>().div_ceil(LINE);
        if lines < MOST_LINES { lines } else { MOST_LINES }
    };

    /// Prefetches these cache lines of an entry.
    #[inline]
    pub fn prefetch(entry: *mut Self, lines: Range<usize>) {
        lines.for_each(|line| prefetch_read(entry.wrapping_byte_add(line * LINE)));
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

/// A reference to an entry without the types of its key and value. The entry is not freed during `'s`. A policy sees
/// the entries of its shard, whose lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resident<'s> {
    header: NonNull<Header>,
    shard: PhantomData<&'s Header>,
}

// SAFETY: a header consists of atomics and of fields that never change; policies use headers with the shard's lock
// held.
unsafe impl Send for Resident<'_> {}

impl<'s> Resident<'s> {
    /// # Safety
    /// The entry is not freed while the result is used.
    #[inline]
    pub unsafe fn new<K, V>(entry: Shared<K, V>) -> Self {
        Self { header: entry.cast(), shard: PhantomData }
    }

    #[inline]
    pub fn header(&self) -> &Header {
        // SAFETY: by the promise of `new`.
        let header = unsafe { self.header.as_ref() };
        touch(header, size_of::<Header>());
        header
    }

    fn extension(self) -> Option<&'s Extension> {
        self.header().is_long().then(|| {
            // SAFETY: `Entry::within` has written the extension of a long entry right before the header, in the entry's
            // block.
            let extension = unsafe { self.header.cast::<Extension>().sub(1).as_ref() };
            touch(extension, size_of::<Extension>());
            extension
        })
    }

    /// Returns the entry's weight.
    #[inline]
    pub fn weight(self) -> usize {
        self.extension().map_or((self.header().hash_and_weight >> HASH_BITS) as usize, |long| long.weight)
    }

    /// Returns the extension of an entry that expires at some time, and `None` for other entries.
    #[inline]
    pub fn timed(self) -> Option<&'s Extension> {
        self.extension().filter(|long| long.deadline.load(Relaxed) != NEVER)
    }

    /// Prefetches the header.
    pub fn prefetch(self) {
        prefetch_read(self.header.as_ptr());
    }

    pub fn entry<K, V>(self) -> Shared<K, V> {
        self.header.cast()
    }

    /// Extends the lifetime, so that a policy can store the reference. This is sound since an entry is removed from its
    /// policy before it is retired.
    pub fn kept(self) -> Resident<'static> {
        Resident { header: self.header, shard: PhantomData }
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;

    /// Entries of any weight, times and alignment return their weight and times, and their addresses are aligned.
    #[test]
    fn entries_are_as_long_as_they_have_to_be() {
        #[repr(align(64))]
        struct Aligned(u64);
        let timed = Times { last: 70, deadline: 90 };
        let most = LONG as usize - 1;
        for (weight, times, is_long_one) in [
            (0, Times::ENDLESS, false),
            (most, Times::ENDLESS, false),
            (most + 1, Times::ENDLESS, true),
            (1, timed, true),
            (usize::MAX, timed, true),
        ] {
            assert_eq!(is_long(weight, times), is_long_one, "{weight}");
            let entry =
                Entry::within(Block::new(is_long_one), Aligned(7), "value".to_owned(), u64::MAX - 5, weight, times);
            assert!(entry.is_aligned());
            // SAFETY: freed below.
            let (resident, entry_ref) = unsafe { (Resident::new(entry), entry.as_ref()) };
            assert_eq!((resident.weight(), resident.header().hash()), (weight, (u64::MAX - 5) & HASH));
            assert_eq!((entry_ref.key().0, entry_ref.value().as_str()), (7, "value"));
            assert!(resident.timed().is_none_or(|timed| !timed.is_expired(69)));
            assert_eq!(resident.timed().map(|timed| timed.is_expired(70)), (times == timed).then_some(true));
            // SAFETY: made above.
            drop(unsafe { Entry::emptied(entry) });
        }
    }

    #[test]
    fn most_entries_have_sixteen_bytes_beside_key_and_value() {
        assert_eq!(size_of::<Entry<u64, [u8; 1_000]>>(), 1_024);
        assert_eq!(Block::<u64, u64>::layout(true).0.size(), 16 + 16 + 24);
    }
}

/// Loom models of hits, which store deadlines.
///
/// `RUSTFLAGS="--cfg loom" cargo test --profile model --target-dir target/loom -p archipelago-cache --lib`
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use archipelago_platform::model::model;
    use archipelago_platform::sync::Arc;
    use archipelago_platform::thread;
    use archipelago_platform::time::Duration;

    /// Hits at these times race, where the deadline is 100 and the time to idle 100. Returns the deadline, and what
    /// `also` returns, which is called beside the first hit.
    fn after_hits<R>(times: [Tick; 2], also: impl Fn(&Extension) -> R) -> (Tick, R) {
        let entry = Arc::new(Extension { weight: 1, last: NEVER, deadline: AtomicU64::new(100) });
        let other = entry.clone();
        let hit = |entry: &Extension, now| {
            if !entry.is_expired(now) {
                entry.live_on(now, Idle::new(Duration::from_millis(99)));
            }
        };
        let first = thread::spawn(move || hit(&other, times[0]));
        hit(&entry, times[1]);
        let result = also(&entry);
        first.join().unwrap();
        (entry.deadline.load(Relaxed), result)
    }

    #[test]
    fn late_hits_move_no_deadline_back() {
        model(2, || assert_eq!(after_hits([50, 90], |_| ()), (196, ())));
    }

    #[test]
    fn late_hits_revive_nothing() {
        model(2, || {
            let (deadline, found) = after_hits([99, 0], |entry| entry.is_expired(150));
            assert_eq!(deadline <= 150, found);
        });
    }
}

//! The records of a node: its base, and the deltas in front of the base.
//!
//! A base and the room for its deltas are one block of memory:
//!
//! | part | content |
//! |---|---|
//! | header | the [`Record`] of the base |
//! | items | keys with their values, or separators with the ids of children, ascending |
//! | taken | how many of the places behind are taken |
//! | places | room for deltas |
//!
//! So a chain is freed as a whole. All parts but `taken` are plain memory: a thread writes a record before it publishes
//! the record's address (Release), and no thread changes the record afterwards. Readers announce their reads.

use core::mem::offset_of;
use core::ptr;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use archipelago_platform::atomic::{AtomicU32, Ordering::Relaxed};
use archipelago_platform::{touch, touch_mut};
use archipelago_sync::rcu::Guard;

use crate::rivals::btree::InPlace;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The numbers of a node by which it is consolidated and split. They are small in tests, so that short histories have
/// many splits.
pub struct Limits {
    /// The number of deltas from which a chain is consolidated.
    pub chain: u16,
    /// The number of items from which a consolidated node is split.
    pub items: usize,
    /// The number of places for deltas.
    places: u32,
}

const LEAF: Limits =
    if cfg!(test) { Limits { chain: 4, items: 8, places: 6 } } else { Limits { chain: 24, items: 128, places: 32 } };
const INNER: Limits =
    if cfg!(test) { Limits { chain: 2, items: 6, places: 3 } } else { Limits { chain: 2, items: 64, places: 8 } };

impl Limits {
    /// Returns the limits of a node of a level. Leaves have level 0.
    #[inline]
    pub fn of(level: u8) -> &'static Limits {
        if level == 0 { &LEAF } else { &INNER }
    }
}

/// The id of no node.
pub const NONE: u64 = u64::MAX;

/// A key with its value, or a separator with the id of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Item<K> {
    pub key: K,
    pub word: u64,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Base,
    /// The key has the value, whether it was present before or not.
    Insert,
    Delete,
    /// The keys from the record's key on are in the node with the record's id, the right sibling.
    Split,
    /// The child with the record's id has the keys from the record's key on, up to `until`: an index term.
    Term,
}

/// What a new delta says.
#[derive(Clone, Copy)]
pub struct Change<K> {
    pub kind: Kind,
    pub key: K,
    pub word: u64,
    /// Of a term: the bound of the child's keys. None if the child has no bound.
    pub until: Option<K>,
}

/// A record; see the module.
#[repr(C)]
pub struct Record<K> {
    kind: Kind,
    level: u8,
    has_until: bool,
    /// The number of deltas from this record on.
    depth: u16,
    /// Of a base: the number of its items.
    len: u16,
    /// The right sibling's id.
    right: u64,
    /// The bound of the node's keys: null if the node has none, or in a record of this chain.
    high: *const K,
    /// The block, with the provenance of the whole block.
    block: *mut Record<K>,
    next: *const Record<K>,
    /// Of a base: the storage of `high`.
    key: K,
    word: u64,
    until: K,
}

/// Where the parts of a block are, in bytes from its begin.
struct Parts {
    items: usize,
    taken: usize,
    places: usize,
    end: usize,
}

impl Parts {
    #[inline]
    fn of<K>(len: usize, places: u32) -> Parts {
        let items = size_of::<Record<K>>();
        let taken = (items + len * size_of::<Item<K>>()).next_multiple_of(LINE);
        let behind = taken + LINE;
        Parts { items, taken, places: behind, end: behind + places as usize * size_of::<Record<K>>() }
    }

    fn layout(&self) -> Layout {
        Layout::from_size_align(self.end, LINE).expect("a node is small")
    }
}

/// Makes a node of a base alone. Returns its block.
pub fn base<K: InPlace>(level: u8, high: Option<K>, right: u64, items: &[Item<K>]) -> *mut Record<K> {
    let parts = Parts::of::<K>(items.len(), Limits::of(level).places);
    // SAFETY: the block has room for all that is written, at the layout's places. No other thread knows the block.
    unsafe {
        let block = alloc(parts.layout()).cast::<Record<K>>();
        if block.is_null() {
            handle_alloc_error(parts.layout());
        }
        touch_mut(block, parts.items + size_of_val(items));
        let key = high.unwrap_or_default();
        let bound = if high.is_some() { block.byte_add(offset_of!(Record<K>, key)).cast() } else { ptr::null() };
        block.write(Record {
            kind: Kind::Base,
            level,
            has_until: false,
            depth: 0,
            len: items.len() as u16,
            right,
            high: bound,
            block,
            next: ptr::null(),
            key,
            word: 0,
            until: key,
        });
        ptr::copy_nonoverlapping(items.as_ptr(), block.byte_add(parts.items).cast(), items.len());
        block.byte_add(parts.taken).cast::<AtomicU32>().write(AtomicU32::new(0));
        block
    }
}

/// Frees a block.
///
/// # Safety
/// [`base`] made the block, and no thread uses it any more.
pub unsafe fn free<K>(block: *mut Record<K>) {
    // SAFETY: the caller's promise. Records have nothing to drop.
    unsafe {
        let (level, len) = ((*block).level, (*block).len);
        dealloc(block.cast(), Parts::of::<K>(len.into(), Limits::of(level).places).layout());
    }
}

/// Frees the block of a chain.
///
/// # Safety
/// The address is that of a record, and no thread uses the chain any more.
pub unsafe fn free_chain<K>(head: *mut Record<K>) {
    // SAFETY: the caller's promise.
    unsafe { free((*head).block) }
}

/// A place in a block for a delta that is not published yet. One operation has it, and uses it again if its attempt to
/// publish fails.
pub struct Place<K> {
    block: *mut Record<K>,
    place: *mut Record<K>,
}

impl<K: InPlace> Record<K> {
    /// Returns the record at an address.
    ///
    /// # Safety
    /// The address was read (Acquire) from the mapping table inside the guard, or from a record of such a chain.
    #[inline]
    pub unsafe fn at<'g>(address: *const Self, _: &'g Guard<'_>) -> &'g Self {
        touch(address, size_of::<Self>());
        // SAFETY: the record was in the table inside the guard, so its block is not freed before the guard's end.
        unsafe { &*address }
    }

    #[inline]
    pub fn level(&self) -> u8 {
        self.level
    }

    #[inline]
    pub fn right(&self) -> u64 {
        self.right
    }

    #[inline]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Returns the key and the id of a split, if this record is one.
    #[inline]
    pub fn as_split(&self) -> Option<(K, u64)> {
        (self.kind == Kind::Split).then_some((self.key, self.word))
    }

    /// Returns the bound of the node's keys.
    #[inline]
    pub fn high(&self) -> Option<&K> {
        if self.high.is_null() {
            return None;
        }
        touch(self.high, size_of::<K>());
        // SAFETY: the bound is in a record of this chain, so it lives as long as this record.
        Some(unsafe { &*self.high })
    }

    /// Returns whether a key is in a node to the right.
    #[inline]
    pub fn is_below(&self, key: &K) -> bool {
        self.high().is_some_and(|high| high <= key)
    }

    /// Returns the chain's deltas, the newest first.
    #[inline]
    pub fn deltas(&self) -> impl Iterator<Item = &Self> {
        let delta = |record: &&Self| record.kind != Kind::Base;
        core::iter::successors(Some(self).filter(delta), move |record| {
            touch(record.next, size_of::<Self>());
            // SAFETY: a delta's `next` is a record of the same block, which lives as long as this record.
            Some(unsafe { &*record.next }).filter(delta)
        })
    }

    /// Returns the items of the chain's base, among them those that are no longer in the node. The caller announces the
    /// reads.
    #[inline]
    pub fn items(&self) -> &[Item<K>] {
        touch(self.block, size_of::<Self>());
        // SAFETY: the header was written before any record of the block was published, and the items are behind the
        // header; none changes. The pointer is the block's own.
        unsafe {
            let len = usize::from((*self.block).len);
            core::slice::from_raw_parts(self.block.byte_add(Parts::of::<K>(len, 0).items).cast(), len)
        }
    }

    /// Returns how many items of the base have keys that are not above a key.
    #[inline]
    fn up_to(items: &[Item<K>], key: &K) -> usize {
        items.partition_point(|item| {
            touch(item, size_of::<Item<K>>());
            item.key <= *key
        })
    }

    /// Returns the value of a key, which is not below the node.
    #[inline]
    pub fn get(&self, key: &K) -> Option<u64> {
        for delta in self.deltas() {
            match delta.kind {
                Kind::Insert if delta.key == *key => return Some(delta.word),
                Kind::Delete if delta.key == *key => return None,
                _ => {}
            }
        }
        let items = self.items();
        let at = Self::up_to(items, key);
        items[..at].last().filter(|item| item.key == *key).map(|item| item.word)
    }

    /// Returns the child with a key, of an inner node that has the key.
    #[inline]
    pub fn child(&self, key: &K) -> u64 {
        for delta in self.deltas().filter(|delta| delta.kind == Kind::Term) {
            if delta.key <= *key && (!delta.has_until || *key < delta.until) {
                return delta.word;
            }
        }
        let items = self.items();
        // The first item is for all keys below the second one.
        items[Self::up_to(&items[1..], key)].word
    }

    /// Returns whether an inner node has the separator, and the next separator above it: the node's bound if there is
    /// none.
    pub fn around(&self, separator: &K) -> (bool, Option<K>) {
        let items = self.items();
        let at = Self::up_to(items, separator);
        let mut present = at > 0 && items[at - 1].key == *separator;
        let mut next = self.high().copied();
        let mut see = |key: K| {
            if key > *separator && next.is_none_or(|next| key < next) {
                next = Some(key);
            }
        };
        items.get(at).into_iter().for_each(|item| see(item.key));
        for delta in self.deltas().filter(|delta| delta.kind == Kind::Term) {
            present |= delta.key == *separator;
            see(delta.key);
        }
        (present, next)
    }

    /// Appends the node's items to `to`, ascending, as they are at this head.
    pub fn collect(&self, to: &mut Vec<Item<K>>) {
        let mut changes: Vec<(K, Option<u64>)> = Vec::with_capacity(self.depth.into());
        for delta in self.deltas() {
            match delta.kind {
                Kind::Insert | Kind::Term => changes.push((delta.key, Some(delta.word))),
                Kind::Delete => changes.push((delta.key, None)),
                Kind::Base | Kind::Split => {}
            }
        }
        // The sort is stable, and so the newest change of a key is the first of them, which stays.
        changes.sort_by_key(|change| change.0);
        changes.dedup_by_key(|change| change.0);
        let high = self.high().copied();
        let within = |key: &K| high.is_none_or(|high| *key < high);
        let (mut changes, items) = (changes.into_iter().filter(|change| within(&change.0)).peekable(), self.items());
        touch(items.as_ptr(), size_of_val(items));
        let add = |to: &mut Vec<_>, (key, word): (K, Option<u64>)| to.extend(word.map(|word| Item { key, word }));
        for item in items.iter().take_while(|item| within(&item.key)) {
            while let Some(change) = changes.next_if(|change| change.0 < item.key) {
                add(to, change);
            }
            match changes.next_if(|change| change.0 == item.key) {
                Some(change) => add(to, change),
                None => to.push(*item),
            }
        }
        changes.for_each(|change| add(to, change));
    }

    /// Takes a place for a delta in this chain's block. Returns `None` if no place is left.
    pub fn place(&self) -> Option<Place<K>> {
        let parts = Parts::of::<K>(self.items().len(), 0);
        // SAFETY: `taken` is in the block, which lives as long as this record, and is accessed by this reference only.
        let taken = unsafe { &*self.block.byte_add(parts.taken).cast::<AtomicU32>() };
        // Relaxed: the places are memory that no thread reads before a delta is published there.
        let at = taken.fetch_add(1, Relaxed);
        // SAFETY: the place is within the block.
        (at < Limits::of(self.level).places).then(|| unsafe {
            Place { block: self.block, place: self.block.byte_add(parts.places).cast::<Self>().add(at as usize) }
        })
    }

    /// Returns whether a place is in this chain's block.
    pub fn has(&self, place: &Place<K>) -> bool {
        self.block == place.block
    }

    /// Writes a delta in front of this record. Returns the delta's address, which the caller may publish.
    pub fn prepend(&self, place: &Place<K>, change: Change<K>) -> *mut Self {
        debug_assert!(self.has(place));
        let Change { kind, key, word, until } = change;
        // SAFETY: one operation has the place, and no delta was published there.
        unsafe {
            touch_mut(place.place, size_of::<Self>());
            let own: *const K = place.place.byte_add(offset_of!(Record<K>, key)).cast();
            let split = kind == Kind::Split;
            place.place.write(Record {
                kind,
                level: self.level,
                has_until: until.is_some(),
                depth: self.depth + 1,
                len: 0,
                right: if split { word } else { self.right },
                high: if split { own } else { self.high },
                block: self.block,
                next: self,
                key,
                word,
                until: until.unwrap_or_default(),
            });
        }
        place.place
    }

    /// Retires the chain's block.
    ///
    /// # Safety
    /// The chain has left the mapping table, and no other thread retires it.
    pub unsafe fn retire(&self, guard: &Guard<'_>) {
        unsafe fn freed<K>(block: *mut (), _: *mut ()) {
            // SAFETY: no guard that could see the block remains.
            unsafe { free(block.cast::<Record<K>>()) }
        }
        let bytes = Parts::of::<K>(self.items().len(), Limits::of(self.level).places).end;
        // SAFETY: the caller's promise.
        unsafe { guard.retire_sized(self.block.cast(), bytes, ptr::null_mut(), freed::<K>) }
    }
}

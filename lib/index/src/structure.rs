//! The interface between the maps that users see, the key types, and the structures that store the entries.
//!
//! A *structure* maps encoded keys to words, concurrently. There are HydraList (a data list with a search layer), the
//! adaptive radix tree, the B-link tree, and Eunomia's chunks under a tree or under towers. A structure supplies the
//! primitives of [`Structure`]. From these [`Map`](crate::Map) makes the whole public interface: sessions, references,
//! iterators, atomic operations, limits, bulk operations. So all maps have the same methods with the same signatures,
//! consistency and bounds, and the tests are written once.
//!
//! A [`Form`] is all that a structure knows about keys: how encodings are compared, stored and shown. A form does not
//! know the structures. A [`Kind`] of structure names one structure for each form, and a form selects the structure
//! that is for itself. The memory layout that a structure has for a form is private to the structure: it is a trait of
//! the structure, implemented for both forms.
//!
//! To add a structure: implement [`Structure`] for its core and [`Kind`] for a marker type, define the alias
//! `Map<Marker, K, V>`, and add the alias to the conformance tests. Methods with a default implementation are optional.
//!
//! # Contract of a structure
//! 1. *Point operations* (`get`, `put`, `take`) are linearizable for each key. `take_end` is linearizable over all
//!    keys.
//! 2. *Walks* (`scan`, `scan_back`) show entries in order and show no key twice. Each entry is shown as it was at some
//!    moment of the call. An entry that is present throughout the call is shown.
//! 3. *Words are opaque.* Each word is returned once, by the operation that replaces or removes it; the caller then
//!    owns it. The word stays valid for guards that were entered before its retirement.
//! 4. *Closures run without locks.* A closure may use this structure, too: the operation that calls the closure holds
//!    no lock meanwhile. If the closure panics, the structure is consistent, and what the operation has changed before
//!    stays changed.
//! 5. *Keys' memory* belongs to the structure, which retires the keys that it has boxed. A key shown to a closure is
//!    valid until the closure returns.

mod bytes;
mod word;

use crate::ahead::Reach;
use crate::limits::Limits;
use archipelago_platform::hint;
use archipelago_platform::sync::Arc;
use archipelago_sync::rcu::{Domain, Guard};
use core::cmp::Ordering;
use core::fmt::Debug;

/// A family of encodings: the keys that an index compares and stores. There are two forms, [`Word`] and [`Bytes`].
/// Users never need to name this trait.
pub trait Form: Copy + Send + Sync + Sized + 'static {
    /// A borrowed encoding, ordered as the keys are.
    type Probe<'a>: Copy + Ord + Debug;

    /// An owned encoding, used for scan positions and bounds.
    type Owned: Clone + Send + Sync + 'static;

    /// A list of encodings.
    type Keys: KeyList<Self>;

    /// The structure of a kind for this form.
    type Core<S: Kind>: Structure<Self, Config = S::Config, Hooks = S::Hooks>;

    /// Tells which of the two forms this is.
    const KIND: FormKind;

    /// Compares two encodings, which may have different lifetimes.
    fn compare(a: Self::Probe<'_>, b: Self::Probe<'_>) -> Ordering;

    /// Returns an owned copy of `key`.
    fn own(key: Self::Probe<'_>) -> Self::Owned;

    /// Borrows an owned encoding.
    fn probe(owned: &Self::Owned) -> Self::Probe<'_>;

    /// Returns the least key greater than `key`; `None` if `key` is the greatest.
    fn just_above(key: Self::Probe<'_>) -> Option<Self::Owned>;

    /// Changes `owned` to the least key greater than `key`, and reuses its memory. Returns false and changes nothing if
    /// `key` is the greatest key.
    fn set_above(owned: &mut Self::Owned, key: Self::Probe<'_>) -> bool;

    /// Returns the least key.
    fn least() -> Self::Owned;

    /// Returns whether `key` is the least key.
    fn is_least(key: Self::Probe<'_>) -> bool;

    /// Calls `f` with the byte string that represents `key`. The byte strings have the same order as the keys.
    fn with_bytes<R>(key: Self::Probe<'_>, f: impl FnOnce(&[u8]) -> R) -> R;

    /// Returns the key that a byte string of [`with_bytes`](Self::with_bytes) represents.
    ///
    /// # Panics
    /// If `bytes` is not such a string, the call may panic.
    fn of_bytes(bytes: &[u8]) -> Self::Probe<'_>;

    /// Returns the tag of `key`: one byte of a hash, which is never zero.
    fn tag(key: Self::Probe<'_>) -> u8;

    /// Calls `f` with the encoding in this form.
    #[doc(hidden)]
    fn of<R>(encoding: &(impl Encoding + ?Sized), f: impl FnOnce(Self::Probe<'_>) -> R) -> R;

    /// Decodes a whole key.
    ///
    /// # Safety
    /// `probe` must be an encoding that `D` may read.
    #[doc(hidden)]
    unsafe fn read<'a, D: Decoding>(probe: Self::Probe<'a>) -> D::Key<'a>;
}

/// The two forms, for code that must tell them apart at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormKind {
    /// The form [`Word`].
    Word,
    /// The form [`Bytes`].
    Bytes,
}

/// The form of keys whose encoding is a `u64`.
#[derive(Clone, Copy, Debug)]
pub enum Word {}

/// The form of keys whose encoding is a byte string; they are in lexicographic order.
#[derive(Clone, Copy, Debug)]
pub enum Bytes {}

/// A type by which a map can be searched: a key, or a borrowed form of a key (`str` for `String`).
///
/// The encoding must preserve the order and be injective: `a < b` exactly when `a`'s encoding is less than `b`'s. If an
/// implementation breaks this rule, or encodes a key differently each time, the map's order is unexpected, but no
/// undefined behaviour follows.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key, and no key is looked up by it: a `String` is by a `str`, a tuple by `by_parts(&(\"a\", 7))`"
)]
pub trait Encode {
    /// The encoding's form.
    type Form: Form;

    /// Calls `f` with the encoding of `self`.
    fn encode<R>(&self, f: impl FnOnce(<Self::Form as Form>::Probe<'_>) -> R) -> R;
}

/// A value that can be encoded in either form.
pub trait Encoding {
    /// Returns the encoding as a number.
    fn word(&self) -> u64;

    /// Calls `f` with the encoding as a byte string.
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R;
}

/// A decoder, which reads keys from encodings of either form.
pub trait Decoding {
    /// A decoded key, borrowed from its encoding.
    type Key<'a>;

    /// Decodes a number.
    ///
    /// # Safety
    /// `word` must be an encoding of a key that this decoder reads.
    unsafe fn of_word<'a>(word: u64) -> Self::Key<'a>;

    /// Decodes a byte string.
    ///
    /// # Safety
    /// `bytes` must be an encoding of a key that this decoder reads.
    unsafe fn of_bytes(bytes: &[u8]) -> Self::Key<'_>;
}

/// A list of encoded keys, see [`Form::Keys`].
pub trait KeyList<F: Form>: Default + Send + Sync + 'static {
    /// Appends a key.
    fn push(&mut self, key: F::Probe<'_>);

    /// Returns the key at index `at`.
    fn get(&self, at: usize) -> F::Probe<'_>;

    /// Removes all keys, but keeps the memory.
    fn clear(&mut self);
}

/// The condition under which [`Structure::put`] stores.
#[derive(Clone, Copy)]
pub enum When {
    /// Store whether the key is present or not.
    Always,
    /// Store only if the key is absent.
    Absent,
    /// Store only if the key is present.
    Present,
    /// Store only if the key is present with exactly this word.
    Holds(u64),
}

/// The effect of a [`Structure::put`].
pub enum Put {
    /// The key was absent, and is now present.
    Inserted,
    /// The key was present. The caller now owns the replaced word.
    Replaced(u64),
    /// Nothing was stored: the key is present with this word.
    Kept(u64),
    /// Nothing was stored: the key is absent.
    Missing,
}

/// One end of a map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The least key.
    First,
    /// The greatest key.
    Last,
}

impl End {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::First => Self::Last,
            Self::Last => Self::First,
        }
    }
}

/// A structure for one form of keys, shared by threads. The module's documentation has its contract.
///
/// The trait cannot be implemented without `unsafe`: a map follows the words that its structure returns, and decodes
/// the keys that the structure shows.
///
/// ```compile_fail,E0200
/// use archipelago::index::map::Structure;
///
/// struct Liar;
/// impl Structure<archipelago::index::Word> for Liar {}
/// ```
///
/// # Safety
/// The structure keeps the contract. In particular, every word that it returns or shows was stored, and had not been
/// replaced or removed when the caller's guard was entered. A key that it shows was stored. It uses its [`Limits`] only
/// to build one structure: itself, or one structure that it contains. To a structure that it contains, it passes only
/// guards of that structure's domain.
pub unsafe trait Structure<F: Form>: Send + Sync + Sized + 'static {
    /// The structure's settings, see [`Kind::Config`].
    type Config;

    /// The kind's own methods, see [`Kind::Hooks`].
    type Hooks: ?Sized;

    /// The data with which an operation starts in its thread, such as the search layer of the thread's NUMA node. A
    /// session that is bound to a thread finds it once.
    type Place<'s>: Copy;

    /// The position of the last of several writes with ascending keys.
    type Near<'g>: Default;

    /// The length of the longest key that can be stored, in bytes of its encoding. `Map` refuses longer keys.
    const LONGEST_KEY: usize = usize::MAX;

    /// Makes an empty structure.
    fn build(config: &Self::Config, limits: Limits) -> Arc<Self>;

    /// Returns the methods that only this kind of structures has.
    fn hooks(&self) -> &Self::Hooks;

    /// Returns the calling thread's starting data.
    fn place(&self) -> Self::Place<'_>;

    /// Returns the domain that reclaims the structure's removed memory. All guards below must be guards of this domain.
    fn domain(&self) -> &Domain;

    /// Returns the limits with which the structure was built.
    fn limits(&self) -> &Limits;

    // ---- Point operations ------------------------------------------------------------------------------------------

    /// Returns the word of `key`.
    fn get(&self, place: Self::Place<'_>, guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64>;

    /// Stores `word` under `key` if `when` permits it, and updates the count of entries.
    fn put(&self, place: Self::Place<'_>, guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put;

    /// Removes `key`, and updates the count of entries. If a word is expected, `key` is removed only if it has this
    /// word.
    fn take(&self, place: Self::Place<'_>, guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64>;

    /// Removes the entry with the least or the greatest key, updates the count of entries, and calls `found` with the
    /// entry.
    fn take_end<R>(
        &self,
        place: Self::Place<'_>,
        guard: &Guard<'_>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R>;

    // ---- Walks ----------------------------------------------------------------------------------------------------

    /// Calls `visit` with up to `limit` entries at or above `from`, in ascending order, until `visit` returns false.
    /// Returns the number of calls.
    fn scan(
        &self,
        place: Self::Place<'_>,
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        limit: usize,
        words: Words<'_>,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize;

    /// Calls `visit` with up to `limit` entries below `bound` (`None` means all), in descending order, until `visit`
    /// returns false. Returns the number of calls.
    fn scan_back(
        &self,
        place: Self::Place<'_>,
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words<'_>,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize;

    /// Finds the first entry at or above `from`.
    #[inline]
    fn ceiling<R>(
        &self,
        place: Self::Place<'_>,
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let (mut found, mut result) = (Some(found), None);
        self.scan(place, guard, from, 1, Words::Shown, |key, word| {
            result = found.take().map(|found| found(key, word));
            false
        });
        result
    }

    /// Calls `show` with up to `count` keys that divide the map into parts of about the same size. The keys are
    /// ascending if no thread changes the map meanwhile. The same key may be shown more than once.
    fn split_points(&self, place: Self::Place<'_>, guard: &Guard<'_>, count: usize, show: impl FnMut(F::Probe<'_>));

    // ---- Several keys at a time ------------------------------------------------------------------------------------

    /// Looks up several keys, in order.
    fn get_many<Q: Encode<Form = F>>(
        &self,
        place: Self::Place<'_>,
        guard: &Guard<'_>,
        keys: &[Q],
        mut found: impl FnMut(Option<u64>),
    ) {
        keys.iter().for_each(|key| found(key.encode(|key| self.get(place, guard, key))));
    }

    /// Stores as [`put`](Self::put) does with [`When::Always`]. It is fast if successive keys are ascending, or nearly
    /// so.
    fn put_near<'g>(
        &self,
        place: Self::Place<'_>,
        guard: &'g Guard<'_>,
        near: &mut Self::Near<'g>,
        key: F::Probe<'_>,
        word: u64,
    ) -> Put {
        let _ = near;
        self.put(place, guard, key, word, When::Always)
    }

    // ---- The whole structure ---------------------------------------------------------------------------------------

    /// Returns the number of entries. It is exact while no thread changes the structure.
    fn entries(&self) -> usize;

    /// Returns the memory that the structure holds, without boxed values and without memory that waits for readers.
    fn held(&self) -> Held;

    /// Returns the bytes that an entry with this key takes outside of pages, without its boxed value.
    fn outside(&self, key: F::Probe<'_>) -> usize;

    /// Returns the bytes of free pages that threads with this starting data use before the structure allocates more
    /// pages.
    fn spare(&self, place: Self::Place<'_>) -> usize {
        let _ = place;
        0
    }

    /// Returns whether `key` is present, or its page has room for it. The answer is true of some moment of the call.
    fn fits(&self, place: Self::Place<'_>, guard: &Guard<'_>, key: F::Probe<'_>) -> bool {
        self.get(place, guard, key).is_some()
    }

    /// Returns whether [`settle`](Self::settle) would search for pages to merge or to move together. After such a
    /// search, this function returns false until an eighth of the structure has changed.
    fn is_thin(&self) -> bool {
        false
    }

    /// Tells the structure that something was retired just now.
    #[inline]
    fn note_garbage(&self) {}

    /// Does the pending background work, and merges and moves pages that have become nearly empty. It does not free
    /// memory that a guard of the caller keeps.
    fn settle(&self) {}

    /// Ends background work, and calls `each` once with every word. Returns the payload of a background thread's panic,
    /// if such a thread has panicked.
    ///
    /// # Safety
    /// The caller must have exclusive access, and then drops the structure.
    unsafe fn dismantle(&self, each: impl FnMut(u64)) -> Option<Box<dyn core::any::Any + Send>>;

    /// Checks every invariant. No other thread may use the structure meanwhile.
    ///
    /// # Panics
    /// If an invariant does not hold.
    fn check(&self);
}

/// How the caller of a scan uses the words of entries.
#[derive(Clone, Copy, Debug)]
pub enum Words<'a> {
    /// The caller does not follow the words as pointers.
    Shown,
    /// The caller follows the words as pointers. A structure that shows several entries at a time may prefetch the
    /// targets, so that the caller's cache misses overlap.
    Followed,
    /// The caller also follows pointers that it finds at the targets. A structure that prefetches the targets may
    /// prefetch these pointers' targets, too.
    Reached(Reach<'a>),
}

impl Words<'_> {
    /// Prefetches what the caller of a scan will read of some entries.
    ///
    /// # Safety
    /// The entries had these words in the structure, and were shown under a guard that still lasts.
    #[inline]
    pub(crate) unsafe fn fetch(self, words: impl Iterator<Item = u64> + Clone) {
        if let Self::Shown = self {
            return;
        }
        words.clone().for_each(|word| hint::prefetch_read(core::ptr::without_provenance::<u8>(word as usize)));
        if let Self::Reached(reach) = self {
            // SAFETY: the guard keeps the boxes; a map passes the steps of its own values to its own structure.
            unsafe { reach.fetch(words) }
        }
    }
}

/// The memory that a structure holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// All bytes.
    pub bytes: usize,
    /// The number of pages or inner nodes.
    pub pages: usize,
    /// The number of entries for which the pages have room; 0 for a structure without pages.
    pub room: usize,
    /// The part of `bytes` that is in search layers.
    pub layers: usize,
}

/// A kind of structure, for keys of both forms. It is the first parameter of [`Map`](crate::Map).
pub trait Kind: Sized + Send + Sync + 'static {
    /// The structure for keys that are words.
    type OfWords: Structure<Word, Config = Self::Config, Hooks = Self::Hooks>;

    /// The structure for keys that are byte strings.
    type OfBytes: Structure<Bytes, Config = Self::Config, Hooks = Self::Hooks>;

    /// The kind's settings.
    type Config: Clone + Default + Debug + Send + Sync + 'static;

    /// The methods of this kind's maps that other maps do not have, for keys of either form.
    type Hooks: ?Sized;

    /// The name under which users know the kind.
    const NAME: &'static str;
}

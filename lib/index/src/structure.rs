//! The seam between the maps that users see, the keys that they have, and the structures beneath.
//!
//! A *structure* maps encoded keys to words, concurrently: HydraList's two layers, the adaptive radix tree, the B-link tree, Eunomia's chunks under a tree or under towers. It supplies the
//! primitives of [`Structure`], and [`Map`](crate::Map) makes the whole face of them: sessions, references, iterators,
//! atomic operations, limits, bulk work. So all maps have the same methods with the same signatures, consistency and
//! bounds, and the tests are written once.
//!
//! A [`Form`] is what a structure knows of keys: how encodings are compared, kept and shown. Forms know no structure: a
//! [`Kind`] of structure has one for each form, and a form picks its own. What layout a structure has for a form is the
//! structure's secret: a trait of its own, which it implements for both forms.
//!
//! To add a structure: implement [`Structure`] for its core and [`Kind`] for a marker, alias `Map<Marker, K, V>`, and put
//! the alias into the conformance tests. What has a default here may be left to it.
//!
//! # What a structure promises
//! 1. *Points* (`get`, `put`, `take`) are linearizable, key by key. `take_end` is too, over all keys.
//! 2. *Walks* (`scan`, `scan_back`) show entries in order, none twice, each as it was at some moment of the call, and miss
//!    none that was there throughout.
//! 3. *Words are opaque*: each is handed back once, by what replaces or removes it, and the caller that gets it owns it. It stays
//!    valid for guards that are older than its retirement.
//! 4. *Closures run without locks*: whatever they do, also to this structure, finds no lock held; if they panic, the
//!    structure is as the call left it.
//! 5. *Keys' memory* is the structure's: it retires what it has boxed. A key shown to a closure is valid until that returns.

mod bytes;
mod word;

use crate::limits::Limits;
use archipelago_platform::sync::Arc;
use archipelago_sync::rcu::{Domain, Guard};
use core::cmp::Ordering;
use core::fmt::Debug;

/// A family of encodings: what an index compares and stores. There are two, [`Word`] and [`Bytes`]; users never need to
/// name this trait.
pub trait Form: Copy + Send + Sync + Sized + 'static {
    /// A borrowed encoding, ordered as the keys are.
    type Probe<'a>: Copy + Ord + Debug;

    /// A key kept by itself: scan positions, bounds.
    type Owned: Clone + Send + Sync + 'static;

    /// Many keys kept together.
    type Keys: KeyList<Self>;

    /// The structure that a kind has for this form.
    type Core<S: Kind>: Structure<Self, Config = S::Config, Hooks = S::Hooks>;

    /// Which of the two forms this is.
    const KIND: FormKind;

    /// The order of two encodings, whatever their lifetimes.
    fn compare(a: Self::Probe<'_>, b: Self::Probe<'_>) -> Ordering;

    /// Keeps `key`.
    fn own(key: Self::Probe<'_>) -> Self::Owned;

    /// The kept key.
    fn probe(owned: &Self::Owned) -> Self::Probe<'_>;

    /// Some key less than `bound` with few or no keys in between; `None` if `bound` is the least key.
    fn just_below(bound: Self::Probe<'_>) -> Option<Self::Owned>;

    /// The least key greater than `key`; `None` if it is the greatest.
    fn just_above(key: Self::Probe<'_>) -> Option<Self::Owned>;

    /// Makes `owned` the least key greater than `key`, in the memory that it has. False, with nothing changed, if `key` is
    /// the greatest.
    fn set_above(owned: &mut Self::Owned, key: Self::Probe<'_>) -> bool;

    /// The least key.
    fn least() -> Self::Owned;

    /// Some key with few or no keys above it.
    fn great() -> Self::Owned;

    /// Calls `f` with the byte string that stands for `key`, in the same order.
    fn with_bytes<R>(key: Self::Probe<'_>, f: impl FnOnce(&[u8]) -> R) -> R;

    /// The key that a byte string of [`with_bytes`](Self::with_bytes) stands for.
    ///
    /// # Panics
    /// It may, if `bytes` is no such string.
    fn of_bytes(bytes: &[u8]) -> Self::Probe<'_>;

    /// The tag of `key`: a hash byte that is never zero.
    fn tag(key: Self::Probe<'_>) -> u8;

    /// Calls `f` with an encoding in this form.
    #[doc(hidden)]
    fn of<R>(encoding: &(impl Encoding + ?Sized), f: impl FnOnce(Self::Probe<'_>) -> R) -> R;

    /// Reads a whole key.
    ///
    /// # Safety
    /// `D` may read `probe`.
    #[doc(hidden)]
    unsafe fn read<'a, D: Decoding>(probe: Self::Probe<'a>) -> D::Key<'a>;
}

/// The two forms, for code that must tell them apart at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormKind {
    /// See [`Word`].
    Word,
    /// See [`Bytes`].
    Bytes,
}

/// Keys that fit one `u64`.
#[derive(Clone, Copy, Debug)]
pub enum Word {}

/// Keys that are byte strings, in lexicographic order.
#[derive(Clone, Copy, Debug)]
pub enum Bytes {}

/// Something that can be looked up: a key, or a borrowed form of one (`str` for `String`).
///
/// The encoding is order-preserving and injective: `a < b` exactly when `a`'s encoding is less than `b`'s. An
/// implementation that breaks this, or encodes a key differently each time, gives a map in a surprising order, never
/// undefined behaviour.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key, and no key is looked up by it: a `String` is by a `str`, a tuple by `by_parts(&(\"a\", 7))`"
)]
pub trait Encode {
    /// The encoding's form.
    type Form: Form;

    /// Calls `f` with the encoding of `self`.
    fn encode<R>(&self, f: impl FnOnce(<Self::Form as Form>::Probe<'_>) -> R) -> R;
}

/// Something with an encoding in either form.
pub trait Encoding {
    /// The encoding as a number.
    fn word(&self) -> u64;

    /// Calls `f` with the encoding as a byte string.
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R;
}

/// What reads keys from encodings of either form.
pub trait Decoding {
    /// A key, borrowed from its encoding.
    type Key<'a>;

    /// Reads a number.
    ///
    /// # Safety
    /// `word` is an encoding of such a key.
    unsafe fn of_word<'a>(word: u64) -> Self::Key<'a>;

    /// Reads a byte string.
    ///
    /// # Safety
    /// `bytes` is an encoding of such a key.
    unsafe fn of_bytes(bytes: &[u8]) -> Self::Key<'_>;
}

/// A list of encoded keys. See [`Form::Keys`].
pub trait KeyList<F: Form>: Default + Send + Sync + 'static {
    /// Adds a key at the end.
    fn push(&mut self, key: F::Probe<'_>);

    /// The key at a place.
    fn get(&self, at: usize) -> F::Probe<'_>;

    /// Removes all keys, and keeps the memory.
    fn clear(&mut self);
}

/// When [`Structure::put`] stores.
#[derive(Clone, Copy)]
pub enum When {
    /// Whether the key is there or not.
    Always,
    /// Only if the key is not there.
    Absent,
    /// Only if the key is there.
    Present,
    /// Only if the key is there with exactly this word.
    Holds(u64),
}

/// What [`Structure::put`] did.
pub enum Put {
    /// The key was not there and is now.
    Inserted,
    /// The key was there; this is the word replaced, now the caller's.
    Replaced(u64),
    /// Nothing was stored: the key is there with this word.
    Kept(u64),
    /// Nothing was stored: the key is not there.
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

/// A structure of one form of keys, shared by threads. See the module's text for what it promises.
pub trait Structure<F: Form>: Send + Sync + Sized + 'static {
    /// See [`Kind::Config`].
    type Config;

    /// See [`Kind::Hooks`].
    type Hooks: ?Sized;

    /// What operations know about the place where they run (a NUMA node, say), found once for a session.
    type Place<'s>: Copy;

    /// Where the last of several writes with ascending keys went.
    type Near<'g>: Default;

    /// The longest key that can be stored, in bytes of its encoding. The face stores no longer one.
    const LONGEST_KEY: usize = usize::MAX;

    /// An empty structure.
    fn build(config: &Self::Config, limits: Limits) -> Arc<Self>;

    /// What it has beyond what all structures do.
    fn hooks(&self) -> &Self::Hooks;

    /// This thread's place.
    fn place(&self) -> Self::Place<'_>;

    /// The domain that reclaims what the structure lets go of. All guards below are of it.
    fn domain(&self) -> &Domain;

    /// The limits it was built with.
    fn limits(&self) -> &Limits;

    // ---- Points ---------------------------------------------------------------------------------------------------

    /// The word of `key`.
    fn get(&self, place: Self::Place<'_>, guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64>;

    /// Stores `word` under `key`, and counts.
    fn put(&self, place: Self::Place<'_>, guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put;

    /// Takes `key` out, and counts; if a word is expected, only if that is its word.
    fn take(&self, place: Self::Place<'_>, guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64>;

    /// Takes the least or the greatest entry out, and counts; `found` receives it.
    fn take_end<R>(
        &self,
        place: Self::Place<'_>,
        guard: &Guard<'_>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R>;

    // ---- Walks ----------------------------------------------------------------------------------------------------

    /// Shows up to `limit` entries at or above `from` to `visit`, ascending, until that returns false. How many.
    fn scan(
        &self,
        place: Self::Place<'_>,
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        limit: usize,
        words: Words,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize;

    /// Shows up to `limit` entries below `bound` (`None`: all) to `visit`, descending, until that returns false. How many.
    fn scan_back(
        &self,
        place: Self::Place<'_>,
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize;

    /// The first entry at or above `from`.
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

    /// Shows up to `count` keys that cut the map into parts of about the same size; ascending, if nothing changes meanwhile, and
    /// maybe one more than once.
    fn split_points(&self, place: Self::Place<'_>, guard: &Guard<'_>, count: usize, show: impl FnMut(F::Probe<'_>));

    // ---- Many at a time -------------------------------------------------------------------------------------------

    /// The words of several keys, in order.
    fn get_many<Q: Encode<Form = F>>(
        &self,
        place: Self::Place<'_>,
        guard: &Guard<'_>,
        keys: &[Q],
        mut found: impl FnMut(Option<u64>),
    ) {
        keys.iter().for_each(|key| found(key.encode(|key| self.get(place, guard, key))));
    }

    /// As [`put`](Self::put) with [`When::Always`], for keys that come in ascending order, or nearly.
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

    // ---- The whole ------------------------------------------------------------------------------------------------

    /// How many entries there are: exact while no thread changes the structure.
    fn entries(&self) -> usize;

    /// Bytes of memory held, without values' boxes and without what waits for readers; and in what.
    fn held(&self) -> Held;

    /// Bytes that an entry with this key takes outside pages, boxed values apart.
    fn outside(&self, key: F::Probe<'_>) -> usize;

    /// Bytes of free pages that are used before the structure takes more memory for pages, at this place.
    fn spare(&self, place: Self::Place<'_>) -> usize {
        let _ = place;
        0
    }

    /// Returns whether `key` is there, or its page has room for it: true of some moment of the call.
    fn fits(&self, place: Self::Place<'_>, guard: &Guard<'_>, key: F::Probe<'_>) -> bool {
        self.get(place, guard, key).is_some()
    }

    /// Returns whether [`settle`](Self::settle) would look for pages to merge or to move together. When it has, that is false until
    /// an eighth of what the structure has has changed.
    fn is_thin(&self) -> bool {
        false
    }

    /// Notes that something was retired just now.
    #[inline]
    fn note_garbage(&self) {}

    /// Does what background work there is to do, and merges and moves pages that have become thin. Memory that a guard of the
    /// caller's holds back is not freed.
    fn settle(&self) {}

    /// For a caller that has the structure to itself, before it is dropped: ends background work, and shows each word once.
    /// What a background thread panicked with.
    fn dismantle(&self, each: impl FnMut(u64)) -> Option<Box<dyn core::any::Any + Send>>;

    /// Checks every invariant, at quiescence.
    ///
    /// # Panics
    /// If one does not hold.
    fn check(&self);
}

/// What the caller of a scan does with the words of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// The caller does not follow them.
    Shown,
    /// The caller follows them as pointers. A structure that shows several entries at a time may prefetch the targets,
    /// so that the caller's cache misses overlap.
    Followed,
}

impl Words {
    /// Returns the kind for callers that read values of type `V`.
    #[inline]
    pub(crate) fn of<V: 'static>() -> Self {
        if crate::value::is_inline::<V>() { Self::Shown } else { Self::Followed }
    }
}

/// What a structure holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes, all in all.
    pub bytes: usize,
    /// Pages or inner nodes.
    pub pages: usize,
    /// Entries that its pages have room for; 0 where that means nothing.
    pub room: usize,
    /// Bytes of them in search layers, beside the entries.
    pub layers: usize,
}

/// A kind of structure, whatever its keys: the first parameter of [`Map`](crate::Map).
pub trait Kind: Sized + Send + Sync + 'static {
    /// The structure for keys that are words.
    type OfWords: Structure<Word, Config = Self::Config, Hooks = Self::Hooks>;

    /// The structure for keys that are byte strings.
    type OfBytes: Structure<Bytes, Config = Self::Config, Hooks = Self::Hooks>;

    /// Its settings.
    type Config: Clone + Default + Debug + Send + Sync + 'static;

    /// What only this kind has, whatever the keys' form: what its maps have methods for beyond [`Map`](crate::Map)'s.
    type Hooks: ?Sized;

    /// The name that users know it by.
    const NAME: &'static str;
}

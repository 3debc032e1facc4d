//! The interface of all ordered maps: [`Map`], implemented once over the primitives of a [`Structure`].
//!
//! | file | what it contains |
//! |---|---|
//! | [`crate::structure`] | the interface of structures |
//! | this one, [`traits`], [`builder`] | the map itself |
//! | [`session`], `write`, [`compute`], [`fallible`] | operations on one key |
//! | `reference` | references: `Ref`, `Entry` |
//! | [`walk`], [`range`], `batch`, `fetched`, [`entries`], `parallel` | iterators |
//! | [`bulk`], [`drain`], [`whole`] | operations on many entries |
//! | [`crate::limits`], [`stats`] | memory |
//!
//! # Consistency, the same for all maps
//! Operations on one key are linearizable: each takes effect at one moment of its call. `pop_first` and `pop_last` are
//! linearizable, too. Operations that visit several entries are scans, iterators, and all operations that use these.
//! They show keys in order and show no key twice. They show every key that is present throughout the operation, each
//! with a value that it had at some moment of the visit. The moments of different entries may differ. For an atomic
//! snapshot of several entries use MV-RLU (`archipelago::sync::mvrlu`).
//!
//! # Invariants
//! 1. A word in the structure is a live `V`. It is the value itself for values that are stored in a word, and otherwise
//!    the address of a box.
//! 2. Code that gets a word back from the structure retires the word, or moves it to another map, or owns the map and
//!    takes or drops the value.
//! 3. A word is followed only by its owner, or under a guard that was entered before the word's retirement.
//! 4. The structure is made at the first use: a map that was only created owns no thread, and no memory except its
//!    settings.

mod batch;
mod builder;
mod bulk;
mod compute;
mod drain;
mod entries;
mod fallible;
mod fetched;
mod parallel;
mod range;
mod reference;
mod session;
mod stats;
mod traits;
mod walk;
mod whole;
mod write;

pub use crate::ahead::Reach;
pub use crate::limits::{LimitConfig, Limits, Refused};
pub use crate::structure::{End, Held, Kind, Put, Structure, When, Words};
pub use builder::Builder;
pub use compute::{Change, CompareExchangeError, Computed, Occupied};
pub use drain::ExtractIf;
pub use entries::{Entries, MapRefs};
#[cfg(feature = "rayon")]
pub use parallel::ParRange;
pub use range::{Keys, KeysOnly, Pairs, Range, Take, Values, ValuesOnly};
pub use reference::{Entry, Ref};
pub use session::{Hold, Pinned, Roaming, Session};
pub use stats::Stats;
pub use whole::IntoIter;

use crate::structure::Form;
use crate::{Encode, Key};
use archipelago_platform::sync::{Arc, OnceLock};
use builder::Settings;
use core::marker::PhantomData;

/// The form of a key's encodings.
pub(crate) type FormOf<K> = <K as Encode>::Form;

/// The structure of a map.
pub(crate) type CoreOf<S, K> = <FormOf<K> as Form>::Core<S>;

/// A concurrent ordered map over a structure `S`. [`HydraList`](crate::HydraList), [`Art`](crate::Art),
/// [`BLinkTree`](crate::BLinkTree), [`EunoBTree`](crate::EunoBTree) and [`EunoSkipList`](crate::EunoSkipList) are
/// aliases of it.
///
/// Operations are called on a *session*. [`pin`](Self::pin) makes a session for this thread, in about a nanosecond;
/// [`pin_owned`](Self::pin_owned) makes one that may move between threads with a task. `insert`, `get`, `remove`,
/// `range` and the others are methods of [`Session`], and not of the map. The [module](self) lists the guarantees of
/// all maps.
///
/// ```
/// use archipelago::HydraList;
///
/// let map: HydraList<u64, u64> = HydraList::new();
/// let map = map.pin(); // this thread's session
/// map.insert(7, 42);
/// assert_eq!(map.get(&7), Some(42));
/// assert_eq!(map.range(5..100).collect::<Vec<_>>(), [(7, 42)]);
/// ```
///
/// The map itself has no such methods:
///
/// ```compile_fail,E0599
/// let map: archipelago::HydraList<u64, u64> = Default::default();
/// map.insert(7, 42);
/// ```
///
/// Numbers of at most 64 bits, `bool`, `char` and `()` are stored in the map's own words. Other values are boxed, and
/// read by reference under a guard. They need not be `Clone`: most methods that return clones have a counterpart that
/// returns a reference ([`Ref`], [`Entry`]).
///
/// A map is invariant in the types of its keys and values, like a lock around them. One `'static` type can be a subtype
/// of another: a function that takes any reference also takes a `&'static` reference. If a map of the first type could
/// be used as a map of the second type, a function that needs a `&'static` reference could be stored in the map, and
/// then be called with a shorter one. So these functions do not compile:
///
/// ```compile_fail,E0308
/// use archipelago::HydraList;
///
/// type ForAny = for<'a> fn(&'a String);
/// type ForStatic = fn(&'static String);
///
/// fn weaker<'m>(map: &'m HydraList<u64, ForAny>) -> &'m HydraList<u64, ForStatic> {
///     map
/// }
/// ```
///
/// ```compile_fail,E0308
/// use archipelago::index::{Session, hydra::Hydra};
///
/// type ForAny = for<'a> fn(&'a String);
/// type ForStatic = fn(&'static String);
///
/// fn weaker<'m>(session: Session<'m, Hydra, u64, ForAny>) -> Session<'m, Hydra, u64, ForStatic> {
///     session
/// }
/// ```
///
/// (A type that only returns values is covariant. So a [`Ref`] of the first type is a `Ref` of the second type:)
///
/// ```
/// use archipelago::index::{Entry, Ref};
///
/// type ForAny = for<'a> fn(&'a String);
/// type ForStatic = fn(&'static String);
///
/// fn weaker<'m>(
///     (value, entry): (Ref<'m, ForAny>, Entry<'m, u64, ForAny>),
/// ) -> (Ref<'m, ForStatic>, Entry<'m, u64, ForStatic>) {
///     (value, entry)
/// }
/// ```
///
/// Two maps share no data. Dropping a map ends its background threads and drops every entry. Values that were removed
/// or replaced before are dropped at some time after the last reader has ended, by any thread that uses the map, or by
/// a background thread. If such a drop panics, the panic hook reports the panic, which is not propagated.
pub struct Map<S: Kind, K: Key, V: Send + Sync + 'static> {
    core: OnceLock<Arc<CoreOf<S, K>>>,
    /// `None` means the defaults.
    settings: Option<Box<Settings<S>>>,
    // The map owns values of type V. It is `Send` and `Sync` under the conditions that would hold for an `RwLock`
    // around its entries: all threads get shared references to the values. Like an `RwLock`, the map is invariant in
    // `V`, since a reference to the map permits both reading and storing values.
    entries: PhantomData<(K, Stored<V>)>,
}

/// A marker of values that are read and written through a shared reference: invariant in `V`.
type Stored<V> = (V, fn(V) -> V);

impl<S: Kind, K: Key, V: Send + Sync + 'static> Map<S, K, V> {
    /// The length of the longest key that can be stored, in bytes of its encoding (a string is its own encoding). It is
    /// `usize::MAX` for all maps except [`BLinkTree`](crate::BLinkTree) and, with byte strings, [`Art`](crate::Art). A
    /// look-up of a longer key finds nothing.
    pub const LONGEST_KEY: usize = <CoreOf<S, K> as Structure<FormOf<K>>>::LONGEST_KEY;

    /// Returns whether a key is too long to be stored.
    #[inline(always)]
    fn is_too_long(key: crate::Probe<'_, K>) -> bool {
        Self::LONGEST_KEY != usize::MAX && FormOf::<K>::with_bytes(key, <[u8]>::len) > Self::LONGEST_KEY
    }

    /// Makes an empty map with the default configuration. Until the map is used, it takes a few words of memory. While
    /// the map is small, it starts no thread of its own.
    ///
    /// ```
    /// use archipelago::Art;
    ///
    /// let map: Art<String, u64> = Art::new();
    /// assert_eq!(map.bytes(), 0);
    /// assert_eq!(map.pin().get("one"), None); // the first use makes the structure
    /// assert!(map.bytes() > 0);
    /// ```
    pub fn new() -> Self {
        Self::with(None)
    }

    fn with(settings: Option<Box<Settings<S>>>) -> Self {
        Self { core: OnceLock::new(), settings, entries: PhantomData }
    }

    /// Makes an empty map with this map's settings.
    fn like(&self) -> Self {
        Self::with(self.settings.clone())
    }

    /// Returns the structure, and makes it at the first call.
    #[inline]
    pub(crate) fn core(&self) -> &CoreOf<S, K> {
        match self.core.get() {
            Some(core) => core,
            None => self.first_core(),
        }
    }

    #[cold]
    fn first_core(&self) -> &CoreOf<S, K> {
        self.core.get_or_init(|| self.make())
    }

    /// Returns the structure if the map has been used.
    #[inline]
    pub(crate) fn used(&self) -> Option<&CoreOf<S, K>> {
        self.core.get().map(|core| &**core)
    }

    /// Returns how a caller that reads values uses the structure's words.
    #[inline]
    pub(crate) fn words(&self) -> Words<'_> {
        if crate::value::is_inline::<V>() {
            return Words::Shown;
        }
        match &self.settings {
            Some(settings) if !settings.reach.is_empty() => Words::Reached(Reach::new(&settings.reach)),
            _ => Words::Followed,
        }
    }

    #[cold]
    fn make(&self) -> Arc<CoreOf<S, K>> {
        match &self.settings {
            Some(settings) => Structure::build(&settings.config, Limits::new(settings.limits)),
            None => Structure::build(&S::Config::default(), Limits::new(LimitConfig::default())),
        }
    }

    /// Returns a session of this thread. This costs about a nanosecond; a session that is forgotten leaks nothing.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map: HydraList<u64, &str> = HydraList::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| map.pin().insert(1, "one")); // a session cannot be sent: each thread makes its own
    ///     scope.spawn(|| map.pin().insert(2, "two"));
    /// });
    /// assert_eq!(map.len(), 2);
    /// ```
    #[inline]
    pub fn pin(&self) -> Session<'_, S, K, V> {
        Session::pinned(self)
    }

    /// Returns a session that is `Send` and `Sync`. A task may move it from thread to thread, and keep it across an
    /// `await`. It has the same methods as a session that [`pin`](Self::pin) returns. Each call looks up the state of
    /// its current thread, as `pin` does, which costs a nanosecond.
    ///
    /// The session itself delays no reclamation, but references that it returns do. A [`Ref`] is bound to its thread,
    /// so a task that must be `Send` cannot keep one across an `await`; it can keep an [`Entry`].
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// async fn later() {}
    ///
    /// async fn work(map: std::sync::Arc<HydraList<u64, String>>) -> usize {
    ///     let map = map.pin_owned();
    ///     map.insert(1, "one".into());
    ///     let entry = map.get_entry(&1);
    ///     later().await;
    ///     entry.map_or(0, |entry| entry.value().len())
    /// }
    ///
    /// fn is_send(_: &impl Send) {}
    /// is_send(&work(Default::default()));
    /// ```
    pub fn pin_owned(&self) -> Session<'_, S, K, V, Roaming> {
        Session::roaming(self)
    }

    /// Returns the number of entries. It is exact while no thread changes the map; otherwise it differs from the exact
    /// number by at most the number of entries inserted or removed during the call. O(threads).
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one"), (2, "two"), (1, "uno")]);
    /// assert_eq!(map.len(), 2); // `uno` has replaced `one`
    /// map.pin().remove(&3);
    /// assert_eq!(map.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.used().map_or(0, Structure::entries)
    }

    /// Returns whether there are no entries, with [`len`](Self::len)'s consistency.
    ///
    /// ```
    /// use archipelago::EunoBTree;
    ///
    /// let map = EunoBTree::from([(1, "one")]);
    /// assert!(!map.is_empty());
    /// map.pin().remove_range(..);
    /// assert!(map.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until background work has caught up with everything done to the map before the call, and frees the removed
    /// and replaced memory that no thread reads. It waits for no reader. A call is never needed for correctness; it is
    /// useful before a measurement. Memory that a reader may still be using, or that a background thread is about to
    /// free, is freed after the call. Garbage of an idle map is freed some milliseconds later.
    ///
    /// After removals all over a map `sync` also merges nearly empty pages and moves pages out of sparse blocks, in
    /// O(pages). Then the map takes at most about three times the memory of a fresh one. A `HydraList` with background
    /// threads does this by itself when it becomes idle. Without `sync` a `BLinkTree` and Eunomia's maps may keep
    /// nearly all their memory.
    ///
    /// ```
    /// use archipelago::HydraList;
    ///
    /// let map = HydraList::from([(1, "one".to_string())]);
    /// let one = map.pin().remove_ref(&1);
    /// map.sync(); // frees nothing, since `one` is a reader, and does not wait for it
    /// assert_eq!(one.as_deref().map(String::as_str), Some("one"));
    /// assert!(map.stats().garbage.bytes > 0);
    /// ```
    pub fn sync(&self) {
        if let Some(core) = self.used() {
            core.settle();
        }
    }

    /// Checks every internal invariant. It is for tests: call it when no other thread uses the map.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        if let Some(core) = self.used() {
            core.check();
        }
    }
}

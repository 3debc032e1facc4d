//! The interface of all ordered maps: [`Map`], implemented once over the primitives of a [`Structure`].
//!
//! | file | what it has |
//! |---|---|
//! | [`crate::structure`] | the interface of structures |
//! | this one, [`traits`], [`builder`] | the map itself |
//! | [`session`], `write`, [`compute`], [`fallible`] | operations on one key |
//! | `reference` | references: `Ref`, `Entry` |
//! | [`walk`], [`range`], `fetched`, [`entries`], `parallel` | iterators |
//! | [`bulk`], [`drain`], [`whole`] | operations on many entries |
//! | [`crate::limits`], [`stats`] | memory |
//!
//! # Consistency, the same for all maps
//! Operations on one key are linearizable: each takes effect at one moment of its call. So are `pop_first` and `pop_last`.
//! Operations that visit several entries (scans, iterators, and all that use them) show keys in order, none twice, miss
//! none that is present throughout, and show each value as it was at some moment of the visit; different entries may be
//! from different moments. For an atomic snapshot of several entries use MV-RLU (`archipelago::sync::mvrlu`).
//!
//! # Invariants
//! 1. A word in the structure is a live `V`: in place for values that live in a word, otherwise the address of a box.
//! 2. Code that gets a word back from the structure retires it, or owns the map and drops it.
//! 3. A word is followed only under a guard that is older than its retirement.
//! 4. The structure is made at the first use: a map that was only created owns no memory and no thread.

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

pub use crate::limits::{LimitConfig, Limits, Refused};
pub use crate::structure::{End, Held, Kind, Put, Structure, When, Words};
pub use builder::Builder;
pub use compute::{Change, CompareExchangeError, Computed, Occupied};
pub use drain::ExtractIf;
pub use entries::Entries;
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

/// A concurrent ordered map over a structure `S`: what [`HydraList`](crate::HydraList), [`Art`](crate::Art),
/// [`BLinkTree`](crate::BLinkTree), [`EunoBTree`](crate::EunoBTree) and [`EunoSkipList`](crate::EunoSkipList) are.
///
/// Operations go through a *session*: [`pin`](Self::pin) makes one for this thread, in a nanosecond, and
/// [`pin_owned`](Self::pin_owned) one that a task can take along. `insert`, `get`, `remove`, `range` and the others are methods of
/// [`Session`], and not of the map. The [module](self) lists the guarantees of all maps.
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
/// Without a session there is no such method:
///
/// ```compile_fail,E0599
/// let map: archipelago::HydraList<u64, u64> = Default::default();
/// map.insert(7, 42);
/// ```
///
/// Values of primitive number types are stored in the map's own words; others are boxed, and read by reference under a
/// guard. They need not be `Clone`: methods that return a clone have a sibling that returns a reference ([`Ref`],
/// [`Entry`]).
///
/// Two maps share nothing. Dropping a map ends its background threads and drops every entry; values that were removed
/// or replaced earlier are dropped at some time after no thread can be reading them, in any thread that uses the map.
/// The panic hook reports a panic of such a drop, which is not propagated.
pub struct Map<S: Kind, K: Key, V: Send + Sync + 'static> {
    core: OnceLock<Arc<CoreOf<S, K>>>,
    /// `None`: the defaults.
    settings: Option<Box<Settings<S>>>,
    // Owns V; Send and Sync as if it held entries behind a lock that hands out shared references from any thread.
    entries: PhantomData<(K, V)>,
}

impl<S: Kind, K: Key, V: Send + Sync + 'static> Map<S, K, V> {
    /// The longest key that can be stored, in bytes of its encoding (of a string, its own): `usize::MAX` but for a
    /// [`BLinkTree`](crate::BLinkTree). A look-up of a longer key finds nothing.
    pub const LONGEST_KEY: usize = <CoreOf<S, K> as Structure<FormOf<K>>>::LONGEST_KEY;

    /// Whether a key is too long to be stored.
    #[inline(always)]
    fn is_too_long(key: crate::Probe<'_, K>) -> bool {
        Self::LONGEST_KEY != usize::MAX && FormOf::<K>::with_bytes(key, <[u8]>::len) > Self::LONGEST_KEY
    }

    /// An empty map with the default configuration. It takes a few words until it is used, and starts no thread of its own while
    /// it is small.
    pub fn new() -> Self {
        Self::with(None)
    }

    fn with(settings: Option<Box<Settings<S>>>) -> Self {
        Self { core: OnceLock::new(), settings, entries: PhantomData }
    }

    /// An empty map with this one's settings.
    fn like(&self) -> Self {
        Self::with(self.settings.clone())
    }

    /// The structure, made now if it was not there.
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

    /// The structure, if the map has been used.
    #[inline]
    pub(crate) fn used(&self) -> Option<&CoreOf<S, K>> {
        self.core.get().map(|core| &**core)
    }

    #[cold]
    fn make(&self) -> Arc<CoreOf<S, K>> {
        match &self.settings {
            Some(settings) => Structure::build(&settings.config, Limits::new(settings.limits)),
            None => Structure::build(&S::Config::default(), Limits::new(LimitConfig::default())),
        }
    }

    /// This thread's session. Costs about a nanosecond, and nothing to forget.
    #[inline]
    pub fn pin(&self) -> Session<'_, S, K, V> {
        Session::pinned(self)
    }

    /// A session that is `Send` and `Sync`: a task may take it along from thread to thread, and keep it over an `await`. It
    /// has the same methods; each looks up its thread's place, as a [`pin`](Self::pin) of its own would, which costs a
    /// nanosecond.
    ///
    /// The session itself delays no reclamation, but references that it returns do. A [`Ref`] belongs to its thread, so
    /// a task that must be `Send` cannot keep one over an `await`; it can keep an [`Entry`].
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

    /// The number of entries: exact while no thread changes the map, otherwise off by at most what is inserted or removed
    /// during the call. O(threads).
    pub fn len(&self) -> usize {
        self.used().map_or(0, Structure::entries)
    }

    /// Whether there are no entries, with [`len`](Self::len)'s consistency.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until background work has caught up with everything done to the map before the call, and frees removed and
    /// replaced memory as far as no thread reads it; it waits for no reader. Never needed for correctness; useful
    /// before measuring. It does not guarantee that memory is reclaimed at once: memory that a reader may still be
    /// using, or that a background thread is about to free, is freed later. Garbage of an idle map is freed some
    /// milliseconds later.
    ///
    /// After removals all over a map `sync` also merges thin pages and moves pages out of sparse blocks, in O(pages):
    /// then the map takes at most about three times the memory of a fresh one. A `HydraList` with background threads
    /// does this by itself when it becomes idle. Without `sync` a `BLinkTree` and Eunomia's maps may keep nearly all
    /// their memory.
    pub fn sync(&self) {
        if let Some(core) = self.used() {
            core.settle();
        }
    }

    /// Checks every internal invariant. For tests: call it when no other thread uses the map.
    ///
    /// # Panics
    /// If one does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        if let Some(core) = self.used() {
            core.check();
        }
    }
}

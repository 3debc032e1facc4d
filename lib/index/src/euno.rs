//! **Eunomia** (Wang et al., PPoPP'17; Zhang et al., TPDS'18): ordered maps for many threads that write to few
//! neighbouring keys.
//!
//! ```text
//!  index phase       walks down inner levels, which seldom change        -> chunk, version
//!  operation phase   changes the chunk, if it still has that version
//! ```
//!
//! A *chunk* is a leaf: a version, and 111 slots for entries. Each phase is a short [region](archipelago_sync::region).
//! Walks validate versions. If hardware transactions work and the map's [`Builder`] does not forbid them, changes are
//! transactions. Otherwise changes take version locks. Most conflicts occur in the second phase. By default, a chunk is
//! *scattered* while changes of the chunk conflict: new entries are stored in parts with their own locks and cache
//! lines. Threads that would replace the same value in a part, in transactions, wait for each other at a *door*.
//! [`EunoBTree`]'s index consists of the inner levels of a B+tree, and [`EunoSkipList`]'s index consists of towers.
//! Both maps have the same chunks.
//!
//! | file | contents |
//! |---|---|
//! | `chunk`, `form`, `memory` | the chunk, its parts, keys as words, the memory of chunks |
//! | `look` | reading pages: in walks, in changes, or as the only thread |
//! | `find`, `change` | both phases, as regions |
//! | `core`, `scan`, `structure` | operations, under the public interface of [`Map`] |
//! | `heat`, `door` | detection of contended chunks, and waiting before them |
//! | `reshape`, `held`, `waste` | splits, merges, scattering |
//! | `sweep` | compaction of the memory of chunks after removals |
//! | `index`, `tree`, `towers` | the interface of indexes; the B+tree's inner levels; the skip list's towers |
//! | `size` | the sizes of pages: the maps' own, and the paper's |
//!
//! `docs/mechanisms/eunomia.md` lists the differences from the paper, with reasons.

mod change;
mod chunk;
mod core;
mod door;
mod find;
mod form;
mod heat;
mod held;
mod index;
mod look;
mod memory;
mod reshape;
mod scan;
mod size;
mod structure;
mod sweep;
mod towers;
mod tree;
mod waste;

use crate::Key;
use crate::map::{Map, Session as AnySession};
use crate::structure::{Bytes, Kind, Structure as _, Word};
use size::{Narrow, Size as _, Wide};

/// For tests: the number of a chunk's own slots.
#[doc(hidden)]
pub const SLOTS: usize = Wide::SLOTS;

/// Which chunks (leaves of the map) are *scattered*: new entries are stored in parts of the chunk that have locks and
/// cache lines of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contention {
    /// Contended chunks, while they are contended. The default.
    #[default]
    Adaptive,
    /// All chunks, always.
    Always,
    /// No chunks.
    Never,
}

/// For experiments: the way in which walks run where transactions work.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walks {
    /// Walks take no lock and write nothing, and validate the versions of pages. The default.
    #[default]
    ByVersions,
    /// Walks are transactions, as in the paper.
    InTransactions,
}

/// A map's settings, see [`Builder`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    contention: Contention,
    transactions: bool,
    walks: Walks,
    doors: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { contention: Contention::default(), transactions: true, walks: Walks::default(), doors: true }
    }
}

/// Marks maps that are B+trees over Eunomia's chunks. See [`EunoBTree`].
#[derive(Debug)]
pub enum Tree {}

impl Kind for Tree {
    type OfWords = core::Core<Word, tree::Levels<Word, Wide>>;
    type OfBytes = core::Core<Bytes, tree::Levels<Bytes, Wide>>;
    type Config = Config;
    type Hooks = dyn structure::Hooks;

    const NAME: &'static str = "EunoBTree";
}

/// A concurrent ordered map: a B+tree over chunks that tolerate contended writes. See the [module](self) for how it
/// works, and [`Map`] for how to use it.
///
/// Its operations are the methods of a [`Session`](crate::Session): `map.pin().insert(key, value)`,
/// `map.pin().get(&key)`.
///
/// ```
/// use archipelago::EunoBTree;
///
/// let map: EunoBTree<u64, u64> = EunoBTree::new();
/// let map = map.pin();
/// map.insert(7, 42);
/// map.insert(5, 40);
/// assert_eq!(map.get(&7), Some(42));
/// assert_eq!(map.range(..=6).next_back(), Some((5, 40)));
/// ```
pub type EunoBTree<K, V> = Map<Tree, K, V>;

/// Marks maps that are skip lists over Eunomia's chunks. See [`EunoSkipList`].
#[derive(Debug)]
pub enum Skip {}

impl Kind for Skip {
    type OfWords = core::Core<Word, towers::Towers<Word, Wide>>;
    type OfBytes = core::Core<Bytes, towers::Towers<Bytes, Wide>>;
    type Config = Config;
    type Hooks = dyn structure::Hooks;

    const NAME: &'static str = "EunoSkipList";
}

/// A concurrent ordered map: a skip list over the same chunks as those of [`EunoBTree`]. Its towers are never split or
/// merged, so fewer of them change while the map grows and shrinks. But a look-up takes more steps.
///
/// Its operations are the methods of a [`Session`](crate::Session): `map.pin().insert(key, value)`,
/// `map.pin().get(&key)`.
///
/// ```
/// use archipelago::EunoSkipList;
///
/// let map: EunoSkipList<String, u64> = EunoSkipList::new();
/// let map = map.pin();
/// map.insert("b".into(), 2);
/// map.insert("a".into(), 1);
/// assert_eq!(map.pop_first(), Some(("a".into(), 1)));
/// ```
pub type EunoSkipList<K, V> = Map<Skip, K, V>;

/// For experiments: marks B+trees in the paper's geometry, 16 entries in a chunk and 16 separators in a node.
#[doc(hidden)]
#[derive(Debug)]
pub enum NarrowTree {}

impl Kind for NarrowTree {
    type OfWords = core::Core<Word, tree::Levels<Word, Narrow>>;
    type OfBytes = core::Core<Bytes, tree::Levels<Bytes, Narrow>>;
    type Config = Config;
    type Hooks = dyn structure::Hooks;

    const NAME: &'static str = "EunoBTree of 16";
}

/// For experiments: marks skip lists over chunks of 16 entries.
#[doc(hidden)]
#[derive(Debug)]
pub enum NarrowSkip {}

impl Kind for NarrowSkip {
    type OfWords = core::Core<Word, towers::Towers<Word, Narrow>>;
    type OfBytes = core::Core<Bytes, towers::Towers<Bytes, Narrow>>;
    type Config = Config;
    type Hooks = dyn structure::Hooks;

    const NAME: &'static str = "EunoSkipList of 16";
}

/// A session on an [`EunoBTree`].
pub type Session<'m, K, V> = AnySession<'m, Tree, K, V>;

/// An iterator over a range of an [`EunoBTree`].
pub type Range<'m, K, V> = crate::map::Range<'m, Tree, K, V>;

/// Configures an [`EunoBTree`].
pub type Builder<K, V> = crate::map::Builder<Tree, K, V>;

impl<K: Key, V: Send + Sync + 'static> EunoBTree<K, V> {
    /// For tests: returns the number of bytes of all scatters. No other thread may use the map meanwhile.
    #[doc(hidden)]
    pub fn contention_bytes(&self) -> usize {
        self.core().hooks().contention_bytes()
    }

    /// For tests: scatters every quiet chunk, and joins every scattered chunk whose entries fit into the chunk's own
    /// slots.
    #[doc(hidden)]
    pub fn flip_chunks(&self) {
        self.core().hooks().flip_chunks();
    }

    /// For tests: moves every chunk but the first.
    #[doc(hidden)]
    pub fn move_chunks(&self) {
        self.core().hooks().move_chunks();
    }
}

/// The kinds of maps over Eunomia's chunks: [`Tree`] and [`Skip`], and for experiments their narrow forms.
pub trait Eunomia: Kind<Config = Config> {}

impl Eunomia for Tree {}

impl Eunomia for Skip {}

impl Eunomia for NarrowTree {}

impl Eunomia for NarrowSkip {}

impl<S: Eunomia, K: Key, V: Send + Sync + 'static> crate::map::Builder<S, K, V> {
    /// Sets when chunks are scattered. The default is [`Contention::Adaptive`].
    ///
    /// ```
    /// use archipelago::index::euno::{Contention, EunoBTree};
    ///
    /// // Every thread counts under neighbouring keys at all times, so there is nothing to detect.
    /// let map = EunoBTree::<u64, u64>::builder().contention(Contention::Always).build();
    /// for event in [7, 8, 7] {
    ///     map.pin().upsert_with(&event, || 1, |count| count + 1);
    /// }
    /// assert_eq!(map.into_iter().collect::<Vec<_>>(), [(7, 2), (8, 1)]);
    /// ```
    pub fn contention(mut self, contention: Contention) -> Self {
        self.config.contention = contention;
        self
    }

    /// Sets whether to use hardware transactions where they work. The default is yes.
    ///
    /// ```
    /// use archipelago::EunoSkipList;
    ///
    /// // For a machine on which transactions abort too often: changes take version locks there, too.
    /// let map = EunoSkipList::<u64, &str>::builder().transactions(false).build();
    /// map.pin().insert(1, "one");
    /// assert_eq!(map.pin().get(&1), Some("one"));
    /// ```
    pub fn transactions(mut self, wanted: bool) -> Self {
        self.config.transactions = wanted;
        self
    }

    /// For experiments: sets how walks run where transactions work.
    #[doc(hidden)]
    pub fn walks(mut self, walks: Walks) -> Self {
        self.config.walks = walks;
        self
    }

    /// For experiments: sets whether threads wait at the doors of scattered chunks if changes are transactions.
    /// Default: yes.
    #[doc(hidden)]
    pub fn doors(mut self, wanted: bool) -> Self {
        self.config.doors = wanted;
        self
    }
}

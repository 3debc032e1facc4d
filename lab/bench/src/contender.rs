//! What an ordered map must offer to be measured and examined, and what is known of it at compile time.

use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList, OrderedIndex};

use crate::keys::BenchKey;

/// An index with the facts that the driver needs at compile time.
pub trait Contender<K: BenchKey>: OrderedIndex<K, u64> + Sized {
    /// Whether `update` replaces the value in place. If not, workloads overwrite by `insert`.
    const UPDATES_IN_PLACE: bool = true;

    /// Whether `insert` returns the value it replaced. If not, it returns `None`.
    const INSERT_RETURNS_OLD: bool = true;

    /// An empty index.
    fn empty() -> Self;
}

impl<K: BenchKey> Contender<K> for HydraList<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

impl<K: BenchKey> Contender<K> for Art<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

impl<K: BenchKey> Contender<K> for BLinkTree<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

impl<K: BenchKey> Contender<K> for EunoBTree<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

impl<K: BenchKey> Contender<K> for EunoSkipList<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

/// Code that works with any contender.
pub trait Visit<K: BenchKey> {
    /// Called with the type behind a name.
    fn visit<I: Contender<K>>(&mut self, info: &'static Info);
}

/// What is known of an index without making one.
#[derive(Debug, PartialEq, Eq)]
pub struct Info {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// One of this library's, rather than a peer.
    pub ours: bool,
    /// Whether byte strings can be keys.
    pub bytes: bool,
    /// Whether a key may contain a zero byte.
    pub zero_bytes: bool,
    /// The longest key in bytes.
    pub longest_key: usize,
}

impl Info {
    /// A peer without limits.
    pub const fn peer(name: &'static str) -> Info {
        Info { name, ours: false, bytes: true, zero_bytes: true, longest_key: usize::MAX }
    }
}

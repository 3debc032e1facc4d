//! What an ordered map must offer to be measured and examined, and what is known of it at compile time.

use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList, OrderedIndex};

use crate::keys::BenchKey;

/// An index with the facts that the driver needs at compile time.
pub trait BenchIndex<K: BenchKey>: OrderedIndex<K, u64> + Sized + 'static {
    /// Whether `update` replaces the value in place. If not, workloads overwrite by `insert`.
    const UPDATES_IN_PLACE: bool = true;

    /// Whether `insert` returns the value it replaced. If not, it returns `None`.
    const INSERT_RETURNS_OLD: bool = true;

    /// An empty index.
    fn empty() -> Self;
}

impl<K: BenchKey> BenchIndex<K> for HydraList<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

impl<K: BenchKey> BenchIndex<K> for Art<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

impl<K: BenchKey> BenchIndex<K> for BLinkTree<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

impl<K: BenchKey> BenchIndex<K> for EunoBTree<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

impl<K: BenchKey> BenchIndex<K> for EunoSkipList<K, u64> {
    fn empty() -> Self {
        Self::new()
    }
}

/// Code that works with any contender.
pub trait Visit<K: BenchKey> {
    /// Called with the type behind a name, and how an empty one is made.
    fn made<I: BenchIndex<K>>(&mut self, info: &'static Info, empty: fn() -> I);

    /// The same of a type whose [`BenchIndex::empty`] makes it.
    fn visit<I: BenchIndex<K>>(&mut self, info: &'static Info) {
        self.made(info, I::empty);
    }
}

/// Where a contender can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// On this machine and on the virtual one.
    Both,
    /// On this machine: the virtual one doesn't know it, or not well.
    Native,
    /// On the virtual machine, to see what a part of it brings.
    Simulated,
}

impl On {
    /// Whether it can be measured on the virtual machine; on this one, if not `simulated`.
    pub(crate) fn has(self, simulated: bool) -> bool {
        self == On::Both || (self == On::Simulated) == simulated
    }
}

/// What is known of an index without making one.
#[derive(Debug, PartialEq, Eq)]
pub struct Info {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// One of this library's, rather than a peer.
    pub ours: bool,
    /// Where it can be measured.
    pub on: On,
    /// Whether byte strings can be keys.
    pub bytes: bool,
    /// Whether a key may contain a zero byte.
    pub zero_bytes: bool,
    /// The longest key in bytes.
    pub longest_key: usize,
}

impl Info {
    /// A peer without limits, on this machine.
    pub const fn peer(name: &'static str) -> Info {
        Info { name, ours: false, on: On::Native, bytes: true, zero_bytes: true, longest_key: usize::MAX }
    }

    /// One without limits that this crate has.
    pub(crate) const fn of(on: On, name: &'static str) -> Info {
        Info { on, ..Info::peer(name) }
    }

    /// One of this library's, without limits.
    pub(crate) const fn ours(on: On, name: &'static str) -> Info {
        Info { ours: true, ..Info::of(on, name) }
    }
}

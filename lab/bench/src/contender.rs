//! The operations that an ordered map needs to be measured and examined, and what is known of the map at compile time.

use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList, OrderedIndex};

use crate::keys::BenchKey;

/// An index with the facts that the driver needs at compile time.
pub trait BenchIndex<K: BenchKey>: OrderedIndex<K, u64> + Sized + 'static {
    /// Whether `update` replaces the value in place. If not, workloads overwrite by `insert`.
    const UPDATES_IN_PLACE: bool = true;

    /// Whether `insert` returns the value it replaced. If not, it returns `None`.
    const INSERT_RETURNS_OLD: bool = true;

    /// True for an ordered index. The `scan` of another index panics, and workloads with scans leave that index out.
    const SCANS: bool = true;

    /// Makes an empty index.
    fn empty() -> Self;

    /// Returns the bytes of the index's copies of tuples, if it stands for an index that has identifiers of tuples in
    /// their place. Tuples are no memory of an index.
    fn tuples(&self) -> usize {
        0
    }

    /// Makes room for `keys` keys, if the index can. Called before anything is inserted.
    fn reserve(&mut self, keys: usize) {
        let _ = keys;
    }
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
    /// Called with the type behind a name, and with the function that makes an empty index of the type.
    fn made<I: BenchIndex<K>>(&mut self, info: &'static Info, empty: fn() -> I);

    /// Calls [`made`](Self::made) with a type that [`BenchIndex::empty`] makes.
    fn visit<I: BenchIndex<K>>(&mut self, info: &'static Info) {
        self.made(info, I::empty);
    }
}

/// Where a contender can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// On this machine and on the virtual one.
    Both,
    /// On this machine only: the virtual machine (a simulator) cannot run the contender, or models it badly.
    Native,
    /// On the virtual machine only: the contender shows the effect of one of an index's parts, or stands for a
    /// contender that is [`Native`](Self::Native).
    Simulated,
}

impl On {
    /// Returns whether the contender can be measured on the virtual machine if `simulated`, or else on this machine.
    pub(crate) fn has(self, simulated: bool) -> bool {
        self == On::Both || (self == On::Simulated) == simulated
    }
}

/// The facts about an index that are known without making one.
#[derive(Debug, PartialEq, Eq)]
pub struct Info {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// True if the index is this library's own, false if it is a peer or a rival.
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
    /// Returns the facts of a peer without limits, on this machine only.
    pub const fn peer(name: &'static str) -> Info {
        Info { name, ours: false, on: On::Native, bytes: true, zero_bytes: true, longest_key: usize::MAX }
    }

    /// Returns the facts of an index of this crate without limits.
    pub(crate) const fn of(on: On, name: &'static str) -> Info {
        Info { on, ..Info::peer(name) }
    }

    /// Returns the facts of one of this library's indexes, without limits.
    pub(crate) const fn ours(on: On, name: &'static str) -> Info {
        Info { ours: true, ..Info::of(on, name) }
    }
}

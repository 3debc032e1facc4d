//! Every index that can be measured or examined, in one place.
//!
//! An index is named at run time but must be called without indirection, so the code that uses one is generic and is
//! handed over as a [`Visit`]: [`Roster::dispatch`] turns the name into the type.

use archipelago_index::{Art, HydraList, OrderedIndex};

use crate::failure::Failure;
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
    /// Too incorrect to be timed: takes part in the exam only.
    pub exam_only: bool,
}

const PLAIN: Info =
    Info { name: "", ours: false, bytes: true, zero_bytes: true, longest_key: usize::MAX, exam_only: false };

/// All of them, ours first, in the order of reports.
pub static INDEXES: &[Info] = &[
    Info { name: "hydralist", ours: true, ..PLAIN },
    Info { name: "art", ours: true, ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "arctic", zero_bytes: false, ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "artmap", ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "congee", bytes: false, ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "ferntree", ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "bplustree", ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "masstree", longest_key: 256, ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "scc-treeindex", ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "concurrent-map", ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "crossbeam-skiplist", ..PLAIN },
    #[cfg(feature = "peers")]
    Info { name: "indexset", exam_only: true, ..PLAIN },
    Info { name: "rwlock-btreemap", ..PLAIN },
    Info { name: "mutex-btreemap", ..PLAIN },
];

/// Turns names into types, for one key type.
pub trait Roster: Sized {
    /// Calls `visit` with the type behind `info`.
    fn dispatch(info: &'static Info, visit: &mut impl Visit<Self>)
    where
        Self: BenchKey;
}

impl Roster for u64 {
    fn dispatch(info: &'static Info, visit: &mut impl Visit<u64>) {
        match info.name {
            #[cfg(feature = "peers")]
            "congee" => visit.visit::<crate::peers::congee::CongeeMap>(info),
            #[cfg(feature = "peers")]
            "arctic" => visit.visit::<crate::peers::arctic::ArcticMap<u64>>(info),
            #[cfg(feature = "peers")]
            "artmap" => visit.visit::<crate::peers::artmap::ArtMap<u64>>(info),
            _ => dispatch_any(info, visit),
        }
    }
}

impl Roster for Vec<u8> {
    fn dispatch(info: &'static Info, visit: &mut impl Visit<Vec<u8>>) {
        match info.name {
            #[cfg(feature = "peers")]
            "arctic" => visit.visit::<crate::peers::arctic::ArcticMap<Vec<u8>>>(info),
            #[cfg(feature = "peers")]
            "artmap" => visit.visit::<crate::peers::artmap::ArtMap<Vec<u8>>>(info),
            _ => dispatch_any(info, visit),
        }
    }
}

/// The indexes whose one text serves both key types.
fn dispatch_any<K>(info: &'static Info, visit: &mut impl Visit<K>)
where
    K: BenchKey + crate::peers::PeerKey,
{
    use crate::peers::*;
    match info.name {
        "hydralist" => visit.visit::<HydraList<K, u64>>(info),
        "art" => visit.visit::<Art<K, u64>>(info),
        #[cfg(feature = "peers")]
        "ferntree" => visit.visit::<ferntree::FernTree<K>>(info),
        #[cfg(feature = "peers")]
        "bplustree" => visit.visit::<bplustree::BPlusTree<K>>(info),
        #[cfg(feature = "peers")]
        "masstree" => visit.visit::<masstree::MassTree<K>>(info),
        #[cfg(feature = "peers")]
        "scc-treeindex" => visit.visit::<scc::TreeIndex<K>>(info),
        #[cfg(feature = "peers")]
        "concurrent-map" => visit.visit::<concurrent_map::ConcurrentMap<K>>(info),
        #[cfg(feature = "peers")]
        "crossbeam-skiplist" => visit.visit::<skiplist::SkipList<K>>(info),
        #[cfg(feature = "peers")]
        "indexset" => visit.visit::<indexset::IndexSet<K>>(info),
        "rwlock-btreemap" => visit.visit::<locked::RwLocked<K>>(info),
        "mutex-btreemap" => visit.visit::<locked::Mutexed<K>>(info),
        name => unreachable!("{name} is listed but has no type for these keys"),
    }
}

/// The indexes that a comma-separated list names; `all`, `ours` and `peers` stand for several. In the list's order,
/// each once.
///
/// # Errors
/// If a name is not known.
pub fn select(list: &str) -> Result<Vec<&'static Info>, Failure> {
    let mut chosen: Vec<&'static Info> = Vec::new();
    for name in list.split(',').map(str::trim) {
        let before = chosen.len();
        let mut matched = false;
        for info in INDEXES.iter().filter(|info| matches(info, name)) {
            matched = true;
            if !chosen.contains(&info) {
                chosen.push(info);
            }
        }
        // `ours` may be empty without being unknown.
        if !matched && chosen.len() == before && !matches!(name, "all" | "ours" | "peers") {
            return Err(Failure::new(format!("unknown index '{name}'; known are {} (or all, ours, peers)", names())));
        }
    }
    if chosen.is_empty() {
        return Err(Failure::new(format!("--index {list} chooses no index; known are {}", names())));
    }
    Ok(chosen)
}

fn matches(info: &Info, name: &str) -> bool {
    match name {
        "all" => true,
        "ours" => info.ours,
        "peers" => !info.ours,
        name => info.name == name,
    }
}

/// The known names, for messages.
pub fn names() -> String {
    INDEXES.iter().map(|info| info.name).collect::<Vec<_>>().join(", ")
}

//! All contenders by name: this library's indexes, the peers (indexes of published crates) that the program was built
//! with, and rivals that every program has (a B+tree, a tree like Masstree, and trees under one lock).
//!
//! An index is named at run time, but its calls must be direct. So code that uses an index is generic, and is passed as
//! a [`Visit`]: [`Dispatch::dispatch`] turns the name into the type. Peers are in crates of their own, which depend on
//! this crate. A program therefore chooses its [`Roster`] by a type parameter of [`run`](crate::run).

use archipelago_index::art::WriteSync;
use archipelago_index::hydra::{Experiment, Maintainers, SearchLayerKind};
use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList};
use archipelago_platform::topology::Topology;
use archipelago_workloads::catalog::Known;
use archipelago_workloads::{caches, spaces};

use crate::choose::choose;
use crate::contender::{BenchIndex, Info, On, Visit};
use crate::failure::Failure;
use crate::keys::BenchKey;
use crate::locked::{Mutexed, RwLocked};
use crate::method::{LockFree, Method};
use crate::rivals::btree::{self, BTreeOlc};
use crate::rivals::bw_tree::BwTree;
use crate::rivals::cuckoo::Cuckoo;
use crate::rivals::locked_tree;
use crate::rivals::masstree::{self, Masstree};
use crate::rivals::slotted_art::{SlotKey, SlottedArt, Sorted, Tagged};
use crate::rivals::tids::Tids;
use crate::rivals::wormhole::Wormhole;

/// Turns names into types, for one key type.
pub trait Dispatch<K: BenchKey> {
    /// Calls `visit` with the type behind `info`.
    fn dispatch(info: &'static Info, visit: &mut impl Visit<K>);
}

/// The peers of a program, beside the contenders of [`Own`].
pub trait Roster: Dispatch<u64> + Dispatch<Vec<u8>> + 'static {
    /// The peers, in the order of reports.
    const PEERS: &'static [Info];

    /// Stores with transactions, for `bench txn`.
    const STORES: &'static [Known];

    /// Whether [`List`](Self::List) is a peer's. If so, it is the method `lf-crossbeam` of `bench nr`.
    const HAS_LIST: bool;

    /// Caches that are peers, for `bench cache`.
    const CACHES: &'static [caches::Known] = &[];

    /// Address spaces that are peers, for `bench ranges`.
    const SPACES: &'static [spaces::Known] = &[];

    /// A lock-free skip list for `bench nr`, as a priority queue or as a dictionary.
    type List<const QUEUE: bool>: Method + FromIterator<(u64, u64)>;
}

/// The roster without peers.
pub struct Own;

static OURS: [Info; 16] = [
    Info::ours(On::Both, "hydralist"),
    // One search layer instead of one per node.
    Info::ours(On::Simulated, "hydralist-one-layer"),
    // The thesis's search layer: a radix tree that is changed in place.
    Info::ours(On::Both, "hydralist-radix-layer"),
    // Clients do the rounds of maintenance, instead of a thread of the map.
    Info::ours(On::Native, "hydralist-clients"),
    // Four of the steps of the thesis's factor analysis, each undone.
    Info::ours(On::Simulated, "hydralist-without-tags"),
    Info::ours(On::Simulated, "hydralist-scalar-tags"),
    Info::ours(On::Simulated, "hydralist-without-backoff"),
    Info::ours(On::Simulated, "hydralist-locked-updates"),
    Info::ours(On::Simulated, "hydralist-locked-updates-without-backoff"),
    Info::ours(On::Simulated, "hydralist-synchronous"),
    Info::ours(On::Both, "art"),
    Info::ours(On::Simulated, "art-olc"),
    // Its leaves stand for tuples, and are not counted as memory.
    Info::ours(On::Simulated, "art-tids"),
    Info { longest_key: BLinkTree::<u64, u64>::LONGEST_KEY, ..Info::ours(On::Native, "blink") },
    Info::ours(On::Both, "euno-btree"),
    Info::ours(On::Both, "euno-skiplist"),
];

/// Rivals that every program has.
static RIVALS: [Info; 10] = [
    Info { longest_key: btree::LONGEST, ..Info::of(On::Both, "btree-olc") },
    // The first two steps of the thesis's factor analysis: a radix tree whose leaves have slots, sorted or with tags.
    Info { longest_key: btree::LONGEST, ..Info::of(On::Both, "art-slotted") },
    Info { longest_key: btree::LONGEST, ..Info::of(On::Both, "art-slotted-tags") },
    Info { longest_key: masstree::LONGEST, ..Info::of(On::Both, "masstree-like") },
    Info::of(On::Both, "wormhole-like"),
    Info { longest_key: btree::LONGEST, ..Info::of(On::Both, "bw-tree-like") },
    // It has no scans.
    Info { longest_key: btree::LONGEST, ..Info::of(On::Both, "cuckoo-like") },
    // The simulated counterpart of `rwlock-btreemap`: the virtual machine cannot see accesses inside the standard
    // library's tree.
    Info { bytes: false, ..Info::of(On::Simulated, "rwlock-btree") },
    Info::of(On::Native, "rwlock-btreemap"),
    Info::of(On::Native, "mutex-btreemap"),
];

impl Roster for Own {
    const PEERS: &'static [Info] = &[];
    const STORES: &'static [Known] = &[];
    const HAS_LIST: bool = false;

    type List<const QUEUE: bool> = LockFree<QUEUE, true, false>;
}

impl Dispatch<u64> for Own {
    fn dispatch(info: &'static Info, visit: &mut impl Visit<u64>) {
        match info.name {
            "rwlock-btree" => visit.visit::<locked_tree::RwLocked>(info),
            _ => dispatch_any(info, visit),
        }
    }
}

impl Dispatch<Vec<u8>> for Own {
    fn dispatch(info: &'static Info, visit: &mut impl Visit<Vec<u8>>) {
        dispatch_any(info, visit);
    }
}

/// Dispatches to the indexes whose code is the same for both key types.
fn dispatch_any<K: SlotKey>(info: &'static Info, visit: &mut impl Visit<K>) {
    type Hydra<K> = HydraList<K, u64>;
    match info.name {
        // The second has other instructions, which the virtual machine charges by name.
        "hydralist" | "hydralist-scalar-tags" => visit.visit::<Hydra<K>>(info),
        "hydralist-one-layer" => visit.made(info, || Hydra::builder().topology(Topology::synthetic(1, 1)).build()),
        "hydralist-radix-layer" => visit.made(info, || Hydra::builder().search_layer(SearchLayerKind::Art).build()),
        "hydralist-clients" => visit.made(info, || Hydra::builder().maintainers(Maintainers::Clients).build()),
        "hydralist-without-tags" => visit.made(info, || Hydra::builder().experiment(Experiment::NoTags).build()),
        "hydralist-without-backoff" => visit.made(info, || Hydra::builder().experiment(Experiment::NoBackoff).build()),
        "hydralist-locked-updates" => {
            visit.made(info, || Hydra::builder().experiment(Experiment::LockedUpdates).build())
        }
        "hydralist-locked-updates-without-backoff" => {
            visit.made(info, || Hydra::builder().experiment(Experiment::LockedUpdatesNoBackoff).build());
        }
        "hydralist-synchronous" => visit.made(info, || Hydra::builder().experiment(Experiment::Synchronous).build()),
        "art" => visit.visit::<Art<K, u64>>(info),
        "art-olc" => visit.made(info, || Art::<K, u64>::with_write_sync(WriteSync::OptimisticLockCoupling)),
        "art-tids" => visit.visit::<Tids<K>>(info),
        "blink" => visit.visit::<BLinkTree<K, u64>>(info),
        "euno-btree" => visit.visit::<EunoBTree<K, u64>>(info),
        "euno-skiplist" => visit.visit::<EunoSkipList<K, u64>>(info),
        "btree-olc" => visit.visit::<BTreeOlc<K>>(info),
        "art-slotted" => visit.visit::<SlottedArt<K, Sorted<K>>>(info),
        "art-slotted-tags" => visit.visit::<SlottedArt<K, Tagged<K>>>(info),
        "masstree-like" => visit.visit::<Masstree<K>>(info),
        "wormhole-like" => visit.visit::<Wormhole<K>>(info),
        "bw-tree-like" => visit.visit::<BwTree<K>>(info),
        "cuckoo-like" => visit.visit::<Cuckoo<K>>(info),
        "rwlock-btreemap" => visit.visit::<RwLocked<K>>(info),
        "mutex-btreemap" => visit.visit::<Mutexed<K>>(info),
        name => unreachable!("{name} is listed but has no type for these keys"),
    }
}

/// Returns the indexes for this machine, or for the virtual one, in the order of reports, with this library's first.
pub(crate) fn indexes<R: Roster>(simulated: bool) -> impl Iterator<Item = &'static Info> {
    OURS.iter().chain(R::PEERS).chain(&RIVALS).filter(move |info| info.on.has(simulated))
}

/// Returns whether an index has scans.
pub(crate) fn has_scans<R: Dispatch<K>, K: BenchKey>(info: &'static Info) -> bool {
    struct Ask(bool);
    impl<K: BenchKey> Visit<K> for Ask {
        fn made<I: BenchIndex<K>>(&mut self, _: &'static Info, _: fn() -> I) {
            self.0 = I::SCANS;
        }
    }
    let mut ask = Ask(true);
    R::dispatch(info, &mut ask);
    ask.0
}

/// Returns the help text of the option `--index`.
pub(crate) fn help<R: Roster>() -> String {
    let names: Vec<&str> = indexes::<R>(false).map(|info| info.name).collect();
    format!("Indexes, comma-separated: {}; also all, ours, peers{}", names.join(", "), more::<R>())
}

/// Returns a hint how to get more indexes.
fn more<R: Roster>() -> &'static str {
    if R::PEERS.is_empty() { "; more with the cargo feature 'peers'" } else { "" }
}

/// Returns the indexes that a comma-separated list names, in the list's order, each once. `all`, `ours` and `peers`
/// stand for several indexes.
///
/// # Errors
/// If a name is not known.
pub(crate) fn select<R: Roster>(list: &str, simulated: bool) -> Result<Vec<&'static Info>, Failure> {
    let known: Vec<&'static Info> = indexes::<R>(simulated).collect();
    let (ours, peers) = (|info: &'static Info| info.ours, |info: &'static Info| !info.ours);
    let more = if simulated { "" } else { more::<R>() };
    choose("index", list, &known, |info| info.name, &[("ours", &ours), ("peers", &peers)])
        .map_err(|failure| Failure::new(format!("{failure}{more}")))
}

//! All contenders by name: ours, the peers that the program was built with, a B+tree, and the locked maps of the standard
//! library.
//!
//! An index is named at run time but must be called without indirection, so the code that uses one is generic and is
//! handed over as a [`Visit`]: [`Dispatch::dispatch`] turns the name into the type. Peers live in crates of their own, which
//! depend on this one: a program chooses its [`Roster`] by a type parameter of [`run`](crate::run).

use archipelago_index::{Art, BLinkTree, EunoBTree, EunoSkipList, HydraList};
use archipelago_workloads::catalog::Known;
use archipelago_workloads::{caches, spaces};

use crate::choose::choose;
use crate::contender::{Info, Visit};
use crate::failure::Failure;
use crate::keys::BenchKey;
use crate::locked::{Mutexed, RwLocked};
use crate::nr::methods::{LockFree, Method};
use crate::rivals::btree::{BTreeOlc, TreeKey};
use crate::rivals::masstree::{LONGEST, Masstree};

/// Turns names into types, for one key type.
pub trait Dispatch<K: BenchKey> {
    /// Calls `visit` with the type behind `info`.
    fn dispatch(info: &'static Info, visit: &mut impl Visit<K>);
}

/// The peers of a program, beside what [`Own`] has.
pub trait Roster: Dispatch<u64> + Dispatch<Vec<u8>> + 'static {
    /// The peers, in the order of reports.
    const PEERS: &'static [Info];

    /// Stores with transactions, for `bench txn`.
    const STORES: &'static [Known];

    /// Whether [`List`](Self::List) is a peer's: method `lf-crossbeam` of `bench nr`.
    const HAS_LIST: bool;

    /// Caches that are peers, for `bench cache`.
    const CACHES: &'static [caches::Known] = &[];

    /// Address spaces that are peers, for `bench ranges`.
    const SPACES: &'static [spaces::Known] = &[];

    /// A lock-free skip list, for `bench nr`: as a priority queue or as a dictionary.
    type List<const QUEUE: bool>: Method + FromIterator<(u64, u64)>;
}

/// The roster without peers.
pub struct Own;

static OURS: [Info; 5] = [
    Info { ours: true, ..Info::peer("hydralist") },
    Info { ours: true, ..Info::peer("art") },
    Info { ours: true, longest_key: BLinkTree::<u64, u64>::LONGEST_KEY, ..Info::peer("blink") },
    Info { ours: true, ..Info::peer("euno-btree") },
    Info { ours: true, ..Info::peer("euno-skiplist") },
];

/// Rivals that every program has.
static RIVALS: [Info; 4] = [
    Info::peer("btree-olc"),
    Info { longest_key: LONGEST, ..Info::peer("masstree-like") },
    Info::peer("rwlock-btreemap"),
    Info::peer("mutex-btreemap"),
];

impl Roster for Own {
    const PEERS: &'static [Info] = &[];
    const STORES: &'static [Known] = &[];
    const HAS_LIST: bool = false;

    type List<const QUEUE: bool> = LockFree<QUEUE, true>;
}

impl<K: TreeKey> Dispatch<K> for Own {
    fn dispatch(info: &'static Info, visit: &mut impl Visit<K>) {
        match info.name {
            "hydralist" => visit.visit::<HydraList<K, u64>>(info),
            "art" => visit.visit::<Art<K, u64>>(info),
            "blink" => visit.visit::<BLinkTree<K, u64>>(info),
            "euno-btree" => visit.visit::<EunoBTree<K, u64>>(info),
            "euno-skiplist" => visit.visit::<EunoSkipList<K, u64>>(info),
            "btree-olc" => visit.visit::<BTreeOlc<K>>(info),
            "masstree-like" => visit.visit::<Masstree<K>>(info),
            "rwlock-btreemap" => visit.visit::<RwLocked<K>>(info),
            "mutex-btreemap" => visit.visit::<Mutexed<K>>(info),
            name => unreachable!("{name} is listed but has no type for these keys"),
        }
    }
}

/// All of them, ours first, in the order of reports.
pub(crate) fn indexes<R: Roster>() -> impl Iterator<Item = &'static Info> {
    OURS.iter().chain(R::PEERS).chain(&RIVALS)
}

/// What the option `--index` takes.
pub(crate) fn help<R: Roster>() -> String {
    let names: Vec<&str> = indexes::<R>().map(|info| info.name).collect();
    format!("Indexes, comma-separated: {}; also all, ours, peers{}", names.join(", "), more::<R>())
}

/// How to have more of them.
fn more<R: Roster>() -> &'static str {
    if R::PEERS.is_empty() { "; more with the cargo feature 'peers'" } else { "" }
}

/// The indexes that a comma-separated list names; `all`, `ours` and `peers` stand for several. In the list's order,
/// each once.
///
/// # Errors
/// If a name is not known.
pub(crate) fn select<R: Roster>(list: &str) -> Result<Vec<&'static Info>, Failure> {
    let known: Vec<&'static Info> = indexes::<R>().collect();
    let (ours, peers) = (|info: &'static Info| info.ours, |info: &'static Info| !info.ours);
    let more = more::<R>();
    choose("index", list, &known, |info| info.name, &[("ours", &ours), ("peers", &peers)])
        .map_err(|failure| Failure::new(format!("{failure}{more}")))
}

//! All contenders by name: ours, the peers that the program was built with, and the locked maps of the standard library.
//!
//! An index is named at run time but must be called without indirection, so the code that uses one is generic and is
//! handed over as a [`Visit`]: [`Dispatch::dispatch`] turns the name into the type. Peers live in crates of their own, which
//! depend on this one: a program chooses its [`Roster`] by a type parameter of [`run`](crate::run).

use archipelago_index::{Art, BLinkTree, HydraList};

use crate::contender::{Info, Visit};
use crate::failure::Failure;
use crate::keys::BenchKey;
use crate::locked::{Mutexed, RwLocked};
use crate::nr::methods::{LockFree, Method};

/// Turns names into types, for one key type.
pub trait Dispatch<K: BenchKey> {
    /// Calls `visit` with the type behind `info`.
    fn dispatch(info: &'static Info, visit: &mut impl Visit<K>);
}

/// The peers of a program, beside what [`Own`] has.
pub trait Roster: Dispatch<u64> + Dispatch<Vec<u8>> + 'static {
    /// The peers, in the order of reports.
    const PEERS: &'static [Info];

    /// Whether [`List`](Self::List) is a peer's: method `lf-crossbeam` of `bench nr`.
    const HAS_LIST: bool;

    /// A lock-free skip list, for `bench nr`: as a priority queue or as a dictionary.
    type List<const QUEUE: bool>: Method + FromIterator<(u64, u64)>;
}

/// The roster without peers.
pub struct Own;

static OURS: [Info; 3] = [
    Info { ours: true, ..Info::peer("hydralist") },
    Info { ours: true, ..Info::peer("art") },
    Info { ours: true, longest_key: BLinkTree::<u64, u64>::LONGEST_KEY, ..Info::peer("blink") },
];

static LOCKED: [Info; 2] = [Info::peer("rwlock-btreemap"), Info::peer("mutex-btreemap")];

impl Roster for Own {
    const PEERS: &'static [Info] = &[];
    const HAS_LIST: bool = false;

    type List<const QUEUE: bool> = LockFree<QUEUE, true>;
}

impl<K: BenchKey> Dispatch<K> for Own {
    fn dispatch(info: &'static Info, visit: &mut impl Visit<K>) {
        match info.name {
            "hydralist" => visit.visit::<HydraList<K, u64>>(info),
            "art" => visit.visit::<Art<K, u64>>(info),
            "blink" => visit.visit::<BLinkTree<K, u64>>(info),
            "rwlock-btreemap" => visit.visit::<RwLocked<K>>(info),
            "mutex-btreemap" => visit.visit::<Mutexed<K>>(info),
            name => unreachable!("{name} is listed but has no type for these keys"),
        }
    }
}

/// All of them, ours first, in the order of reports.
pub(crate) fn indexes<R: Roster>() -> impl Iterator<Item = &'static Info> {
    OURS.iter().chain(R::PEERS).chain(&LOCKED)
}

/// Whether it is the name of one of this library's indexes.
pub(crate) fn is_ours(name: &str) -> bool {
    OURS.iter().any(|info| info.name == name)
}

/// The indexes that a comma-separated list names; `all`, `ours` and `peers` stand for several. In the list's order,
/// each once.
///
/// # Errors
/// If a name is not known.
pub(crate) fn select<R: Roster>(list: &str) -> Result<Vec<&'static Info>, Failure> {
    let mut chosen: Vec<&'static Info> = Vec::new();
    for name in list.split(',').map(str::trim) {
        let before = chosen.len();
        let mut matched = false;
        for info in indexes::<R>().filter(|info| matches(info, name)) {
            matched = true;
            if !chosen.contains(&info) {
                chosen.push(info);
            }
        }
        // `ours` may be empty without being unknown.
        if !matched && chosen.len() == before && !matches!(name, "all" | "ours" | "peers") {
            let names = names::<R>();
            return Err(Failure::new(format!("unknown index '{name}'; known are {names} (or all, ours, peers)")));
        }
    }
    if chosen.is_empty() {
        return Err(Failure::new(format!("--index {list} chooses no index; known are {}", names::<R>())));
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

/// The known names, for messages; and how to have more.
fn names<R: Roster>() -> String {
    let names: Vec<&str> = indexes::<R>().map(|info| info.name).collect();
    let more = if R::PEERS.is_empty() { "; more with the cargo feature 'peers'" } else { "" };
    names.join(", ") + more
}

//! Ordered maps, caches and maps of ranges of other authors, each behind an adapter of its own.
//!
//! Every adapter uses the peer's best idiom with one guard per operation, as a user without a session of their own
//! would. Nothing is cached between operations.
//!
//! Here are maps that lead some column of the reports, or that many programs use. A new one needs an adapter, a line in
//! [`Roster::PEERS`] and an arm in a `dispatch`; a cache or a map of ranges a line in [`caches`] or [`spaces`].

use ::ferntree::OptimisticRead;
use archipelago_bench::contender::{Info, Visit};
use archipelago_bench::rivals::btree::TreeKey;
use archipelago_bench::roster::{Dispatch, Own, Roster};

pub mod arctic;
pub mod artmap;
pub mod caches;
pub mod congee;
pub mod ferntree;
pub mod masstree;
pub mod scc;
pub mod skiplist;
pub mod spaces;

/// The roster with all of them.
pub struct Peers;

impl Roster for Peers {
    const PEERS: &'static [Info] = &[
        Info { zero_bytes: false, ..Info::peer("arctic") },
        Info::peer("artmap"),
        Info { bytes: false, ..Info::peer("congee") },
        Info::peer("ferntree"),
        Info { longest_key: 256, ..Info::peer("masstree") },
        Info::peer("scc-treeindex"),
        Info::peer("crossbeam-skiplist"),
    ];
    const HAS_LIST: bool = true;
    const CACHES: &'static [archipelago_workloads::caches::Known] = caches::CACHES;
    const SPACES: &'static [archipelago_workloads::spaces::Known] = spaces::SPACES;

    type List<const QUEUE: bool> = skiplist::List<QUEUE>;
}

impl Dispatch<u64> for Peers {
    fn dispatch(info: &'static Info, visit: &mut impl Visit<u64>) {
        match info.name {
            "congee" => visit.visit::<congee::CongeeMap>(info),
            "arctic" => visit.visit::<arctic::ArcticMap<u64>>(info),
            "artmap" => visit.visit::<artmap::ArtMap<u64>>(info),
            _ => dispatch_any(info, visit),
        }
    }
}

impl Dispatch<Vec<u8>> for Peers {
    fn dispatch(info: &'static Info, visit: &mut impl Visit<Vec<u8>>) {
        match info.name {
            "arctic" => visit.visit::<arctic::ArcticMap<Vec<u8>>>(info),
            "artmap" => visit.visit::<artmap::ArtMap<Vec<u8>>>(info),
            _ => dispatch_any(info, visit),
        }
    }
}

/// The indexes whose one text serves both key types.
fn dispatch_any<K: TreeKey + OptimisticRead>(info: &'static Info, visit: &mut impl Visit<K>) {
    match info.name {
        "ferntree" => visit.visit::<ferntree::FernTree<K>>(info),
        "masstree" => visit.visit::<masstree::MassTree<K>>(info),
        "scc-treeindex" => visit.visit::<scc::TreeIndex<K>>(info),
        "crossbeam-skiplist" => visit.visit::<skiplist::SkipList<K>>(info),
        _ => Own::dispatch(info, visit),
    }
}

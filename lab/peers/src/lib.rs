//! Ordered maps, caches, maps of ranges and stores with transactions by other authors, each behind an adapter.
//!
//! Every adapter uses the peer's best idiom with one guard per operation, as a caller that keeps no session would.
//! Nothing is cached between operations.
//!
//! Stores are used with serializable transactions and in memory: `surrealmx` (many writers, multi-version), `redb` (one
//! writer beside readers of snapshots), `sqlite` (one connection behind a lock). They store bytes, so rows are encoded
//! by postcard, as most programs would encode them. The stores pass the workloads' own checks, and their repeated
//! attempts are counted.
//!
//! The crate contains maps that lead some column of the reports, or that many programs use. A new map needs an adapter,
//! a line in [`Roster::PEERS`] and an arm in a `dispatch`. A new store, cache or map of ranges needs a line in
//! [`Roster::STORES`], [`caches`] or [`spaces`].

use ::ferntree::OptimisticRead;
use archipelago_bench::contender::{Info, Visit};
use archipelago_bench::rivals::btree::TreeKey;
use archipelago_bench::roster::{Dispatch, Own, Roster};
use archipelago_workloads::Flat;
use archipelago_workloads::catalog::{Known, load};

pub mod arctic;
pub mod artmap;
pub mod caches;
pub mod congee;
pub mod ferntree;
pub mod masstree;
pub mod redb;
pub mod scc;
pub mod skiplist;
pub mod spaces;
pub mod sqlite;
pub mod surrealmx;

/// The roster with all peers.
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
    const STORES: &'static [Known] = &[
        Known::of("surrealmx", |_, workload, seed| load(Flat::new(surrealmx::SurrealMx::default()), workload, seed)),
        Known::of("redb", |_, workload, seed| load(Flat::new(redb::Redb::default()), workload, seed)),
        Known::of("sqlite", |_, workload, seed| load(Flat::new(sqlite::Sqlite::default()), workload, seed)),
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

/// Dispatches to the indexes whose code is the same for both key types.
fn dispatch_any<K: TreeKey + OptimisticRead>(info: &'static Info, visit: &mut impl Visit<K>)
where
    Own: Dispatch<K>,
{
    match info.name {
        "ferntree" => visit.visit::<ferntree::FernTree<K>>(info),
        "masstree" => visit.visit::<masstree::MassTree<K>>(info),
        "scc-treeindex" => visit.visit::<scc::TreeIndex<K>>(info),
        "crossbeam-skiplist" => visit.visit::<skiplist::SkipList<K>>(info),
        _ => Own::dispatch(info, visit),
    }
}

#[cfg(test)]
mod tests {
    use archipelago_workloads::catalog::Workload;
    use archipelago_workloads::tpcc::Scale;
    use archipelago_workloads::ycsb::{Load, Reports, Requests};

    use super::*;

    /// Runs each store with three threads and each workload: no update, no money, and no order is lost.
    #[test]
    fn stores_keep_what_they_promise() {
        let ycsb =
            Load { rows: 500, theta: 0.9, updates: 50, reports: Reports::Transactions, requests: Requests::Columns };
        let tpcc = Workload::Tpcc { warehouses: 2, scale: Scale::TINY, pair: false };
        for store in Peers::STORES {
            for workload in [Workload::Ycsb(ycsb), Workload::SmallBank(200), tpcc] {
                let arena = store.load(workload, 1);
                let writes = std::thread::scope(|scope| {
                    let run = |thread| {
                        let mut client = arena.client(thread, 1);
                        (0..1000).filter(|_| client.turn().writes).count()
                    };
                    let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || run(thread))).collect();
                    threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
                });
                assert!(writes > 2000, "{}: {writes}", store.name);
                arena.check().unwrap_or_else(|wrong| panic!("{}: {wrong}", store.name));
            }
        }
    }
}

//! Arenas by name: schemes over maps, and the global lock. What is generic is made here, once, so that the command is not.

use archipelago_txn::on::{self, Kind};
use archipelago_txn::{Isolation, Scheme, Silo, TicToc};

use crate::arena::Arena;
use crate::smallbank::SmallBank;
use crate::store::Store;
use crate::tpcc::{Scale, Tpcc};
use crate::ycsb::{Load, Ycsb};
use crate::{Engine, Global};

/// A workload with its size.
#[derive(Clone, Copy, Debug)]
pub enum Workload {
    /// YCSB with rows of one column.
    Ycsb(Load),
    /// YCSB with rows of ten columns.
    Ycsb10(Load),
    /// SmallBank with so many customers.
    SmallBank(u64),
    /// TPC-C; `true`: New-Order and Payment alone.
    Tpcc {
        /// Warehouses.
        warehouses: u16,
        /// What is in each.
        scale: Scale,
        /// New-Order and Payment alone.
        pair: bool,
    },
}

/// Loads a workload into an empty store.
fn load<D: Store>(db: D, workload: Workload, seed: u64) -> Box<dyn Arena> {
    match workload {
        Workload::Ycsb(load) => Box::new(Ycsb::<D, 1>::load(db, load)),
        Workload::Ycsb10(load) => Box::new(Ycsb::<D, 10>::load(db, load)),
        Workload::SmallBank(customers) => Box::new(SmallBank::load(db, customers)),
        Workload::Tpcc { warehouses, scale, pair } => {
            let tpcc = Tpcc::load(db, scale, warehouses, seed);
            Box::new(if pair { tpcc.pair_only() } else { tpcc })
        }
    }
}

fn ours<S: Scheme, M: Kind>(isolation: Isolation, workload: Workload, seed: u64) -> Box<dyn Arena> {
    load(Engine::<S, M>::at(isolation), workload, seed)
}

/// A store by name.
pub struct Known {
    /// Its scheme.
    pub scheme: &'static str,
    /// Its map; empty if the scheme has its own.
    pub map: &'static str,
    /// Loads a workload into a new one.
    pub load: fn(Workload, u64) -> Box<dyn Arena>,
}

macro_rules! known {
    ($($map:literal $kind:ty;)*) => {
        &[
            $(
                Known {
                    scheme: "silo",
                    map: $map,
                    load: |workload, seed| ours::<Silo, $kind>(Isolation::Serializable, workload, seed),
                },
                Known {
                    scheme: "tictoc",
                    map: $map,
                    load: |workload, seed| ours::<TicToc, $kind>(Isolation::Serializable, workload, seed),
                },
                Known {
                    scheme: "silo-snapshot",
                    map: $map,
                    load: |workload, seed| ours::<Silo, $kind>(Isolation::Snapshot, workload, seed),
                },
            )*
            Known { scheme: "lock", map: "", load: |workload, seed| load(Global::default(), workload, seed) },
        ]
    };
}

/// All stores: `silo` and `tictoc` are serializable, `silo-snapshot` has snapshot isolation (legal for TPC-C and YCSB; SmallBank has a
/// skew there), `lock` is the global lock.
pub const STORES: &[Known] = known! {
    "hydralist" on::HydraList;
    "art" on::Art;
    "blink" on::BLinkTree;
    "euno-btree" on::EunoBTree;
    "euno-skiplist" on::EunoSkipList;
};

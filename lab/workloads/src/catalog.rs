//! Arenas by name: schemes over maps, and the global lock. What is generic is made here, once, so that the command is not.

use archipelago_txn::on::{self, Kind};
use archipelago_txn::{Hekaton, Isolation, MvRlu, NoWait, Scheme, Silo, TicToc, WaitDie};

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
pub fn load<D: Store>(db: D, workload: Workload, seed: u64) -> Box<dyn Arena> {
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

/// A store by name.
pub struct Known {
    /// Its name: of ours, the scheme's and the map's.
    pub name: &'static str,
    isolation: Isolation,
    make: fn(Isolation, Workload, u64) -> Box<dyn Arena>,
}

impl Known {
    /// A store that is made by `make` with a workload in it, which takes a seed. Its transactions are serializable.
    pub const fn of(name: &'static str, make: fn(Isolation, Workload, u64) -> Box<dyn Arena>) -> Self {
        Self { name, isolation: Isolation::Serializable, make }
    }

    const fn ours<S: Scheme, M: Kind>(name: &'static str, isolation: Isolation) -> Self {
        let make = |isolation, workload, seed| load(Engine::<S, M>::at(isolation), workload, seed);
        Self { name, isolation, make }
    }

    /// Loads a workload into a new one.
    pub fn load(&self, workload: Workload, seed: u64) -> Box<dyn Arena> {
        (self.make)(self.isolation, workload, seed)
    }
}

const SERIALIZABLE: Isolation = Isolation::Serializable;

/// The default scheme over each map, and the other schemes over the default map: each pair makes all workloads anew, which takes
/// its time to compile. `silo-snapshot` has snapshot isolation (legal for TPC-C and YCSB; SmallBank has a skew there). Then
/// stores that are no scheme over a map in memory: with a log, which the virtual machine has not; the global lock.
static STORES: &[Known] = &[
    Known::ours::<Silo, on::HydraList>("silo-hydralist", SERIALIZABLE),
    Known::ours::<Silo, on::Art>("silo-art", SERIALIZABLE),
    Known::ours::<Silo, on::BLinkTree>("silo-blink", SERIALIZABLE),
    Known::ours::<Silo, on::EunoBTree>("silo-euno-btree", SERIALIZABLE),
    Known::ours::<Silo, on::EunoSkipList>("silo-euno-skiplist", SERIALIZABLE),
    Known::ours::<TicToc, on::HydraList>("tictoc-hydralist", SERIALIZABLE),
    Known::ours::<NoWait, on::HydraList>("no-wait-hydralist", SERIALIZABLE),
    Known::ours::<WaitDie, on::HydraList>("wait-die-hydralist", SERIALIZABLE),
    Known::ours::<Hekaton, on::HydraList>("hekaton-hydralist", SERIALIZABLE),
    Known::ours::<MvRlu, on::HydraList>("mvrlu-hydralist", SERIALIZABLE),
    Known::ours::<Silo, on::HydraList>("silo-snapshot-hydralist", Isolation::Snapshot),
    #[cfg(not(archipelago_sim))]
    Known::of("silo-logged-hydralist", |_, workload, seed| {
        load(Engine::<Silo, on::HydraList>::logged(), workload, seed)
    }),
    Known::of("lock", |_, workload, seed| load(Global::default(), workload, seed)),
];

/// All stores.
pub fn stores() -> impl Iterator<Item = &'static Known> {
    STORES.iter()
}

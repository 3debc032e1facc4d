//! Stores and workloads by name: the schemes (kinds of concurrency control) over the maps, and the global lock. The
//! generic code is instantiated here once, so that the command is not generic.

use archipelago_txn::on;
use archipelago_txn::{Hekaton, Isolation, MvRlu, NoWait, Scheme, Silo, TicToc, WaitDie};

use crate::arena::Arena;
use crate::chosen::{Choice, Chosen};
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
    /// SmallBank with this many customers.
    SmallBank(u64),
    /// TPC-C.
    Tpcc {
        /// Warehouses.
        warehouses: u16,
        /// The contents of a warehouse.
        scale: Scale,
        /// Whether only New-Order and Payment run.
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
    /// Its name: for this library's stores, the names of the scheme and the map.
    pub name: &'static str,
    map: Choice,
    /// The isolation that its transactions have.
    pub isolation: Isolation,
    make: fn(Isolation, Workload, u64) -> Box<dyn Arena>,
}

impl Known {
    /// Describes a store that `make` makes and loads with a workload, from a seed. Its transactions are serializable.
    pub const fn of(name: &'static str, make: fn(Isolation, Workload, u64) -> Box<dyn Arena>) -> Self {
        Self { name, map: HYDRA, isolation: Isolation::Serializable, make }
    }

    /// Describes a store with Silo over this map. Its transactions are serializable.
    pub const fn silo_over(name: &'static str, map: Choice) -> Self {
        Self::ours::<Silo>(name, map, Isolation::Serializable)
    }

    const fn ours<S: Scheme>(name: &'static str, map: Choice, isolation: Isolation) -> Self {
        let make = |isolation, workload, seed| load(Engine::<S, Chosen>::at(isolation), workload, seed);
        Self { name, map, isolation, make }
    }

    /// Describes a scheme over [`HYDRA`] with timestamps of the processors' clocks.
    const fn ordered<S: Scheme>(name: &'static str, isolation: Isolation) -> Self {
        let make = |isolation, workload, seed| load(Engine::<S, Chosen>::ordered(isolation), workload, seed);
        Self { isolation, ..Self::of(name, make) }
    }

    /// Makes a store and loads a workload into it.
    pub fn load(&self, workload: Workload, seed: u64) -> Box<dyn Arena> {
        self.map.within(|| (self.make)(self.isolation, workload, seed))
    }
}

pub(crate) const HYDRA: Choice = Choice::of::<on::HydraList>();

/// Defines the stores of a scheme, one over each map.
macro_rules! over_maps {
    ($name:literal, $scheme:ty, $isolation:ident) => {
        [
            Known::ours::<$scheme>(concat!($name, "-hydralist"), HYDRA, Isolation::$isolation),
            Known::ours::<$scheme>(concat!($name, "-art"), Choice::of::<on::Art>(), Isolation::$isolation),
            Known::ours::<$scheme>(concat!($name, "-blink"), Choice::of::<on::BLinkTree>(), Isolation::$isolation),
            Known::ours::<$scheme>(concat!($name, "-euno-btree"), Choice::of::<on::EunoBTree>(), Isolation::$isolation),
            Known::ours::<$scheme>(
                concat!($name, "-euno-skiplist"),
                Choice::of::<on::EunoSkipList>(),
                Isolation::$isolation,
            ),
        ]
    };
}

/// The schemes over the maps. `silo-snapshot` has snapshot isolation. TPC-C and YCSB stay consistent under snapshot
/// isolation, but SmallBank has a write skew under it, which is counted.
static SCHEMES: &[[Known; 5]] = &[
    over_maps!("silo", Silo, Serializable),
    over_maps!("tictoc", TicToc, Serializable),
    over_maps!("no-wait", NoWait, Serializable),
    over_maps!("wait-die", WaitDie, Serializable),
    over_maps!("hekaton", Hekaton, Serializable),
    over_maps!("mvrlu", MvRlu, Serializable),
    over_maps!("silo-snapshot", Silo, Snapshot),
];

/// The other stores: with timestamps of the processors' clocks; with a log, which is not available on the virtual
/// machine (a simulator); and with the global lock.
static OTHERS: &[Known] = &[
    Known::ordered::<MvRlu>("mvrlu-ordered-hydralist", Isolation::Serializable),
    Known::ordered::<MvRlu>("mvrlu-ordered-snapshot-hydralist", Isolation::Snapshot),
    Known::ordered::<Hekaton>("hekaton-ordered-hydralist", Isolation::Serializable),
    #[cfg(not(archipelago_sim))]
    Known::of("silo-logged-hydralist", |_, workload, seed| load(Engine::<Silo, Chosen>::logged(), workload, seed)),
    Known::of("lock", |_, workload, seed| load(Global::default(), workload, seed)),
];

/// Returns all stores.
pub fn stores() -> impl Iterator<Item = &'static Known> {
    SCHEMES.iter().flatten().chain(OTHERS)
}

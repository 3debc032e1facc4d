//! TPC-C, whole: nine tables, five transactions, the twelve consistency conditions. Without think times, keying times and terminals'
//! screens, so results are not tpmC; and with a scale that tests make smaller.
//!
//! Where the specification leaves something open or is not followed:
//! - A terminal belongs to one warehouse for good and draws its district with each transaction.
//! - All five transactions are serializable (the specification lets Stock-Level read less); Delivery is one transaction and
//!   not deferred.
//! - HISTORY has a key: the terminal's number and a count.
//! - Under snapshot isolation TPC-C is serializable all the same: Fekete et al., *Making Snapshot Isolation Serializable* (TODS'05),
//!   section 4. No two of its transactions have a skew, since whatever one of them decides by, it writes itself.

mod check;
mod deliver;
mod draw;
mod load;
mod order;
mod pay;
mod read;
pub mod rows;

use archipelago_platform::atomic::{AtomicU64, Ordering};

use crate::arena::{Arena, Client, Turn};
use crate::random::Random;
use crate::store::{Stop, Store};
use rows::*;

/// How much there is in a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Items, and as many in each warehouse's stock.
    pub items: u32,
    /// Customers of a district, and as many orders when the run begins, of which the last three tenths are new.
    pub customers: u16,
}

impl Scale {
    /// The specification's.
    pub const WHOLE: Self = Self { items: 100_000, customers: 3_000 };

    /// For the virtual machine: a hundredth of a warehouse.
    pub const SMALL: Self = Self { items: 1_000, customers: 30 };

    /// For tests.
    pub const TINY: Self = Self { items: 100, customers: 10 };

    /// Orders of a district that are delivered when the run begins.
    fn delivered(self) -> u32 {
        u32::from(self.customers) * 7 / 10
    }
}

/// Districts of a warehouse.
pub const DISTRICTS: u8 = 10;

/// The tables of a store.
pub struct Tables<D: Store> {
    pub(crate) warehouses: D::Table<Warehouse>,
    pub(crate) districts: D::Table<District>,
    pub(crate) customers: D::Table<Customer>,
    pub(crate) history: D::Table<History>,
    pub(crate) new_orders: D::Table<NewOrder>,
    pub(crate) orders: D::Table<Order>,
    pub(crate) lines: D::Table<OrderLine>,
    pub(crate) items: D::Table<Item>,
    pub(crate) stock: D::Table<Stock>,
}

/// TPC-C, loaded into a store.
pub struct Tpcc<D: Store> {
    db: D,
    tables: Tables<D>,
    scale: Scale,
    warehouses: u16,
    /// New-Order and Payment alone.
    pair: bool,
    /// Clients that there have been: each has history of its own.
    clients: AtomicU64,
}

/// A transaction of TPC-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A customer orders.
    NewOrder,
    /// A customer pays.
    Payment,
    /// What has become of a customer's last order.
    OrderStatus,
    /// A warehouse delivers the oldest new order of each district.
    Delivery,
    /// How many of the items sold last are nearly sold out.
    StockLevel,
}

impl Kind {
    /// All five, each at the place of its name among [`Arena::kinds`].
    pub const ALL: [Kind; 5] = [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    fn writes(self) -> bool {
        !matches!(self, Kind::OrderStatus | Kind::StockLevel)
    }
}

impl<D: Store> Tpcc<D> {
    /// Loads so many warehouses into an empty store.
    ///
    /// # Panics
    /// If `warehouses` is 0.
    pub fn load(db: D, scale: Scale, warehouses: u16, seed: u64) -> Self {
        assert!(warehouses > 0, "TPC-C needs a warehouse");
        let tables = Tables {
            warehouses: db.table(),
            districts: db.table(),
            customers: db.table(),
            history: db.table(),
            new_orders: db.table(),
            orders: db.table(),
            lines: db.table(),
            items: db.table(),
            stock: db.table(),
        };
        load::all(&db, &tables, scale, warehouses, seed);
        Self { db, tables, scale, warehouses, pair: false, clients: AtomicU64::new(0) }
    }

    /// Runs New-Order and Payment alone, half each.
    #[must_use]
    pub fn pair_only(self) -> Self {
        Self { pair: true, ..self }
    }

    /// The terminal of a thread, at the warehouse that is its own as far as there are as many.
    pub fn terminal(&self, thread: usize, seed: u64) -> Terminal<'_, D> {
        // Relaxed: a number, no more.
        let history = self.clients.fetch_add(1, Ordering::Relaxed) + 1;
        let home = (thread % usize::from(self.warehouses)) as u16 + 1;
        Terminal { tpcc: self, home, random: Random::new(seed, thread + 1), history: history << 40, clock: 0 }
    }
}

/// A terminal: draws transactions and runs them.
pub struct Terminal<'t, D: Store> {
    tpcc: &'t Tpcc<D>,
    home: u16,
    random: Random,
    /// The next key in HISTORY.
    history: u64,
    /// The time: transactions run so far.
    clock: u64,
}

impl<D: Store> Terminal<'_, D> {
    /// Draws a kind as the specification's mix has it: 45, 43, 4, 4 and 4 of a hundred.
    fn draw(&mut self) -> Kind {
        if self.tpcc.pair {
            return if self.random.percent(50) { Kind::NewOrder } else { Kind::Payment };
        }
        match self.random.within(0, 99) {
            0..45 => Kind::NewOrder,
            45..88 => Kind::Payment,
            88..92 => Kind::OrderStatus,
            92..96 => Kind::Delivery,
            _ => Kind::StockLevel,
        }
    }

    /// Runs a transaction of this kind.
    ///
    /// # Panics
    /// If the store fails.
    pub fn run(&mut self, kind: Kind) -> Turn {
        self.clock += 1;
        let mut begun = 0;
        let result = match kind {
            Kind::NewOrder => {
                let order = order::Input::draw(self);
                self.transact(kind, &mut begun, |tables, tx| order::run::<D>(tables, tx, &order).map(drop))
            }
            Kind::Payment => {
                let payment = pay::Input::draw(self);
                self.transact(kind, &mut begun, |tables, tx| pay::run::<D>(tables, tx, &payment).map(drop))
            }
            Kind::OrderStatus => {
                let question = read::Status::draw(self);
                self.transact(kind, &mut begun, |tables, tx| read::status::<D>(tables, tx, &question).map(drop))
            }
            Kind::Delivery => {
                let delivery = deliver::Input::draw(self);
                self.transact(kind, &mut begun, |tables, tx| deliver::run::<D>(tables, tx, &delivery).map(drop))
            }
            Kind::StockLevel => {
                let question = read::Level::draw(self);
                self.transact(kind, &mut begun, |tables, tx| read::level::<D>(tables, tx, &question).map(drop))
            }
        };
        let rolled_back = result == Err(Stop::Wanted);
        assert!(rolled_back || result.is_ok(), "{kind:?}: {result:?}");
        Turn { kind: kind as usize, begun, writes: kind.writes(), rolled_back }
    }

    /// Runs a transaction that writes, if `kind` does.
    fn transact(
        &self,
        kind: Kind,
        begun: &mut u64,
        mut body: impl FnMut(&Tables<D>, &mut D::Tx<'_>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let Tpcc { db, tables, .. } = self.tpcc;
        let body = |tx: &mut D::Tx<'_>| {
            *begun += 1;
            body(tables, tx)
        };
        if kind.writes() { db.transact(body) } else { db.transact_read(body) }
    }

    /// Any district.
    fn district(&mut self) -> u8 {
        self.random.within(1, u64::from(DISTRICTS)) as u8
    }

    /// Another warehouse than the terminal's, if there is one.
    fn other_warehouse(&mut self) -> u16 {
        let other = self.random.within(1, u64::from(self.tpcc.warehouses).max(2) - 1) as u16;
        let other = if other >= self.home { other + 1 } else { other };
        other.min(self.tpcc.warehouses)
    }

    /// A customer of a district: by last name in 60 of 100 cases.
    fn who(&mut self) -> Who {
        let customers = self.tpcc.scale.customers;
        if self.random.percent(60) {
            Who::Named(draw::last_name(draw::last(&mut self.random, draw::When::Run, customers)))
        } else {
            Who::Numbered(draw::customer(&mut self.random, customers))
        }
    }
}

impl<D: Store> Client for Terminal<'_, D> {
    fn turn(&mut self) -> Turn {
        let kind = self.draw();
        self.run(kind)
    }
}

impl<D: Store> Arena for Tpcc<D> {
    fn client(&self, thread: usize, seed: u64) -> Box<dyn Client + '_> {
        Box::new(self.terminal(thread, seed))
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["new-order", "payment", "order-status", "delivery", "stock-level"]
    }

    fn check(&self) -> Result<(), String> {
        self.db.view(|view| check::conditions::<D>(&self.tables, view, self.scale))
    }
}

/// How a customer is told.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    /// By number.
    Numbered(u16),
    /// By last name: the middle one of those that have it, by first names, the later of two.
    Named(Name),
}

/// The number of a customer.
pub(crate) fn find<D: Store>(
    tables: &Tables<D>,
    read: &mut impl crate::store::Read<D>,
    (w, d): (u16, u8),
    who: &Who,
) -> Result<u16, Stop> {
    let last = match who {
        Who::Numbered(number) => return Ok(*number),
        Who::Named(last) => *last,
    };
    let of = district(w, d) as u32;
    let mut found = Vec::new();
    read.scan_second(
        &tables.customers,
        (of, last, [0; 16])..=(of, last, [0xff; 16]),
        crate::store::Way::Up,
        |customer| {
            found.push(customer.c);
            true
        },
    )?;
    // Rounded up, from 1: clause 2.5.2.2. Every name that is drawn is some customer's.
    Ok(found[found.len().div_ceil(2) - 1])
}

#[cfg(test)]
mod tests;

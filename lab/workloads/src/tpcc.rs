//! TPC-C with nine tables, five transactions and the twelve consistency conditions. It has no think times, keying times
//! or terminal screens, so its results are not tpmC. Its scale can be reduced for tests.
//!
//! Choices where the specification leaves something open, and deviations from it:
//! - A terminal belongs to one warehouse for good, and draws a district for each transaction.
//! - All five transactions are serializable (the specification permits weaker isolation for Stock-Level). Delivery is
//!   one transaction and is not deferred.
//! - HISTORY has a key: the terminal's number and a count.
//! - A transaction does not return to its terminal all columns that the specification lists. New-Order reads of an item
//!   only I_PRICE, and of a customer only C_DISCOUNT. So it does not examine I_DATA and S_DATA for "ORIGINAL"
//!   (2.4.2.2), nor return C_LAST and C_CREDIT. Order-Status and Payment return a balance. A customer has no C_MIDDLE.
//!   Leaving columns out saves time in stores that keep rows as objects, but not in stores of bytes, which decode the
//!   whole row in any case.
//! - Under snapshot isolation TPC-C is serializable nevertheless: Fekete et al., *Making Snapshot Isolation
//!   Serializable* (TODS'05), section 4. No two of its transactions have a write skew, since each transaction writes
//!   the data by which it decides.

mod check;
mod deliver;
mod draw;
mod load;
mod order;
mod pay;
mod read;
pub mod rows;

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_txn::Isolation;

use crate::arena::{Arena, Client, Turn};
use crate::random::Random;
use crate::store::{Stop, Store};
use rows::*;

/// The size of a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The number of items, and of rows in each warehouse's stock.
    pub items: u32,
    /// The number of customers of a district. A district has the same number of orders when the run begins. The last
    /// three tenths of them are new.
    pub customers: u16,
}

impl Scale {
    /// The specification's scale.
    pub const WHOLE: Self = Self { items: 100_000, customers: 3_000 };

    /// The scale for the virtual machine (a simulator): a hundredth of a warehouse.
    pub const SMALL: Self = Self { items: 1_000, customers: 30 };

    /// The scale for tests.
    pub const TINY: Self = Self { items: 100, customers: 10 };

    /// Returns the number of a district's orders that are delivered when the run begins.
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
    /// Whether only New-Order and Payment run.
    pair: bool,
    /// The number of clients so far; it gives each client its own keys of HISTORY. Padded, because the clients read the
    /// other fields.
    clients: CachePadded<AtomicU64>,
}

/// A transaction of TPC-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionType {
    /// A customer orders.
    NewOrder,
    /// A customer pays.
    Payment,
    /// A customer asks for the state of the last order.
    OrderStatus,
    /// A warehouse delivers the oldest new order of each district.
    Delivery,
    /// A warehouse counts the items sold last whose stock is low.
    StockLevel,
}

impl TransactionType {
    /// All five, in the order of their names in [`Arena::kinds`].
    pub const ALL: [TransactionType; 5] = [
        TransactionType::NewOrder,
        TransactionType::Payment,
        TransactionType::OrderStatus,
        TransactionType::Delivery,
        TransactionType::StockLevel,
    ];

    fn writes(self) -> bool {
        !matches!(self, TransactionType::OrderStatus | TransactionType::StockLevel)
    }
}

impl<D: Store> Tpcc<D> {
    /// Loads `warehouses` warehouses into an empty store.
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
        Self { db, tables, scale, warehouses, pair: false, clients: CachePadded::default() }
    }

    /// Returns the workload with only New-Order and Payment, half each.
    #[must_use]
    pub fn pair_only(self) -> Self {
        Self { pair: true, ..self }
    }

    /// Returns the terminal of a thread. Each terminal has a warehouse of its own if there are enough warehouses.
    pub fn terminal(&self, thread: usize, seed: u64) -> Terminal<'_, D> {
        // Relaxed: the counter carries no data.
        let history = self.clients.fetch_add(1, Ordering::Relaxed) + 1;
        let home = (thread % usize::from(self.warehouses)) as u16 + 1;
        Terminal { tpcc: self, home, random: Random::new(seed, thread + 1), history: history << 40, clock: 0 }
    }
}

/// A terminal, which draws transactions and runs them.
pub struct Terminal<'t, D: Store> {
    tpcc: &'t Tpcc<D>,
    home: u16,
    random: Random,
    /// The last key that the terminal used in HISTORY; its keys ascend by 1.
    history: u64,
    /// The time: the number of transactions that the terminal has begun.
    clock: u64,
}

impl<D: Store> Terminal<'_, D> {
    /// Draws a kind in the specification's mix: in the order of [`TransactionType::ALL`], 45, 43, 4, 4 and 4 percent.
    fn draw(&mut self) -> TransactionType {
        if self.tpcc.pair {
            return if self.random.percent(50) { TransactionType::NewOrder } else { TransactionType::Payment };
        }
        match self.random.within(0, 99) {
            0..45 => TransactionType::NewOrder,
            45..88 => TransactionType::Payment,
            88..92 => TransactionType::OrderStatus,
            92..96 => TransactionType::Delivery,
            _ => TransactionType::StockLevel,
        }
    }

    /// Runs a transaction of this kind.
    ///
    /// # Panics
    /// If the store fails.
    pub fn run(&mut self, kind: TransactionType) -> Turn {
        self.clock += 1;
        let mut begun = 0;
        let result = match kind {
            TransactionType::NewOrder => {
                let order = order::Input::draw(self);
                self.transact(kind, &mut begun, |tables, tx| order::run::<D>(tables, tx, &order).map(drop))
            }
            TransactionType::Payment => {
                let payment = pay::Input::draw(self);
                self.transact(kind, &mut begun, |tables, tx| pay::run::<D>(tables, tx, &payment).map(drop))
            }
            TransactionType::OrderStatus => {
                let question = read::Status::draw(self);
                self.transact(kind, &mut begun, |tables, tx| read::status::<D>(tables, tx, &question).map(drop))
            }
            TransactionType::Delivery => {
                let delivery = deliver::Input::draw(self);
                self.transact(kind, &mut begun, |tables, tx| deliver::run::<D>(tables, tx, &delivery).map(drop))
            }
            TransactionType::StockLevel => {
                let question = read::Level::draw(self);
                self.transact(kind, &mut begun, |tables, tx| read::level::<D>(tables, tx, &question).map(drop))
            }
        };
        let rolled_back = result == Err(Stop::Wanted);
        assert!(rolled_back || result.is_ok(), "{kind:?}: {result:?}");
        Turn { kind: kind as usize, begun, writes: kind.writes(), rolled_back }
    }

    /// Runs a transaction of this kind: as a writing one if the kind writes, otherwise as a read-only one.
    fn transact(
        &self,
        kind: TransactionType,
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

    /// Draws a district.
    fn district(&mut self) -> u8 {
        self.random.within(1, u64::from(DISTRICTS)) as u8
    }

    /// Draws a warehouse other than the terminal's, if there is one.
    fn other_warehouse(&mut self) -> u16 {
        let other = self.random.within(1, u64::from(self.tpcc.warehouses).max(2) - 1) as u16;
        let other = if other >= self.home { other + 1 } else { other };
        other.min(self.tpcc.warehouses)
    }

    /// Draws a customer of a district: in 60 % of cases by last name, else by number.
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

    fn check_at(&self, _: Isolation) -> Result<u64, String> {
        self.db.view(|view| check::conditions::<D>(&self.tables, view, self.scale)).map(|()| 0)
    }
}

/// How an input identifies a customer.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    /// By the customer's number.
    Numbered(u16),
    /// By last name: the middle one of the customers with this name, ordered by first name. If their number is even, it
    /// is the first of the two middle ones.
    Named(Name),
}

/// Returns the number of a customer.
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
    // The position in the middle is rounded up, counting from 1 (clause 2.5.2.2). Every drawn last name belongs to a
    // customer.
    Ok(found[found.len().div_ceil(2) - 1])
}

#[cfg(test)]
mod tests;

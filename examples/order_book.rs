//! An order book: three tables that change together. Orders rest by price, then by time; one that arrives is matched with the best of
//! the other side, in one transaction. An auditor looks at snapshots all the while, and finds the three tables in agreement.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use archipelago::txn::{Database, Error, Index, Row, Table, Tx, on};

const BUY: u8 = 0;
const SELL: u8 = 1;

/// Prices in the order in which they are served: the highest buyers first, and the lowest sellers.
fn rank(side: u8, price: u64) -> u64 {
    if side == BUY { u64::MAX - price } else { price }
}

/// An order that waits for its match.
#[derive(Clone)]
struct Order {
    /// The number of its arrival.
    number: u64,
    side: u8,
    price: u64,
    /// What was ordered, and what of it is left.
    ordered: u64,
    left: u64,
}

impl Row for Order {
    type Key = u64;
    type Map = on::HydraList;
    type Indexes = (ByPriority,);
    fn key(&self) -> u64 {
        self.number
    }
}

/// Price, then time: what is served next comes first.
struct ByPriority;

impl Index for ByPriority {
    type Row = Order;
    type Key = (u8, u64, u64);
    type Map = on::BLinkTree;
    const UNIQUE: bool = true;
    fn key(order: &Order) -> Self::Key {
        (order.side, rank(order.side, order.price), order.number)
    }
}

/// What is left of all orders at a price: what an exchange shows.
#[derive(Clone)]
struct Level {
    side_and_price: (u8, u64),
    left: u64,
}

impl Row for Level {
    type Key = (u8, u64);
    type Map = on::HydraList;
    type Indexes = ();
    fn key(&self) -> (u8, u64) {
        self.side_and_price
    }
}

/// A match: the order that came, the one that was there.
#[derive(Clone)]
struct Trade {
    came: u64,
    rested: u64,
    quantity: u64,
}

impl Row for Trade {
    type Key = (u64, u64);
    type Map = on::HydraList;
    type Indexes = ();
    fn key(&self) -> (u64, u64) {
        (self.came, self.rested)
    }
}

struct Book {
    db: Database,
    orders: Table<Order>,
    levels: Table<Level>,
    trades: Table<Trade>,
}

impl Book {
    /// Matches an order as far as it can be, and lets the rest wait. It begins anew if another came between, and is serializable: that
    /// no order of the other side would match the rest is still so when it commits.
    fn place(&self, order: &Order) -> Result<(), Error> {
        self.db.transact(|tx| {
            let mut order = order.clone();
            let other = BUY + SELL - order.side;
            let acceptable = (other, 0, 0)..=(other, rank(other, order.price), u64::MAX);
            while order.left > 0
                && let Some(best) = tx.range_by::<ByPriority>(&self.orders, acceptable.clone()).next().transpose()?
            {
                let quantity = best.left.min(order.left);
                tx.insert(&self.trades, Trade { came: order.number, rested: best.number, quantity })?;
                self.take(tx, best, quantity)?;
                order.left -= quantity;
            }
            if order.left > 0 {
                let (side_and_price, left) = ((order.side, order.price), order.left);
                if !tx.update(&self.levels, &side_and_price, |level| level.left += left)? {
                    tx.insert(&self.levels, Level { side_and_price, left })?;
                }
                tx.insert(&self.orders, order)?;
            }
            Ok(())
        })
    }

    /// Takes a quantity from an order that waits, and from its level; what has nothing left goes.
    fn take(&self, tx: &mut Tx<'_>, order: &Order, quantity: u64) -> Result<(), Error> {
        let level = (order.side, order.price);
        tx.update(&self.levels, &level, |level| level.left -= quantity)?;
        if tx.get(&self.levels, &level)?.is_some_and(|level| level.left == 0) {
            tx.remove(&self.levels, &level)?;
        }
        tx.update(&self.orders, &order.number, |order| order.left -= quantity)?;
        if order.left == quantity {
            tx.remove(&self.orders, &order.number)?;
        }
        Ok(())
    }

    /// Looks at all three tables at one moment; what was traded, and what waits. No writer waits for it, and it never begins anew.
    fn audit(&self) -> (u64, u64) {
        let view = self.db.snapshot();
        let (mut of_order, mut of_level, mut best) = (BTreeMap::new(), BTreeMap::new(), [None, None]);
        let (mut traded, mut waits) = (0, 0);
        for trade in view.range(&self.trades, ..) {
            traded += trade.quantity;
            *of_order.entry(trade.came).or_insert(0) += trade.quantity;
            *of_order.entry(trade.rested).or_insert(0) += trade.quantity;
        }
        for order in view.range_by::<ByPriority>(&self.orders, ..) {
            waits += order.left;
            *of_level.entry((order.side, order.price)).or_insert(0) += order.left;
            best[usize::from(order.side)].get_or_insert(order.price);
            let traded = of_order.get(&order.number).copied().unwrap_or(0);
            assert_eq!(order.ordered, order.left + traded, "order {}: trades are not what is missing", order.number);
        }
        let levels: BTreeMap<_, _> = view.range(&self.levels, ..).map(|level| (level.key(), level.left)).collect();
        assert_eq!(levels, of_level, "the levels are not the sums of their orders");
        assert!(best[0].zip(best[1]).is_none_or(|(buy, sell)| buy < sell), "two orders that match wait: {best:?}");
        (traded, waits)
    }
}

/// Trades on several threads, and audits beside them.
fn run(traders: u64, orders_each: u64) {
    let db = Database::new();
    let book = Book { orders: db.table(), levels: db.table(), trades: db.table(), db };
    let (arrivals, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let trader = |seed: u64| {
        let mut dice = seed;
        let mut roll = |sides: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % sides
        };
        let order = |_| {
            let (number, ordered) = (arrivals.fetch_add(1, Ordering::Relaxed), 1 + roll(100));
            let order = Order { number, side: roll(2) as u8, price: 950 + roll(100), ordered, left: ordered };
            book.place(&order).map(|()| ordered).expect("only conflicts are in the way")
        };
        (0..orders_each).map(order).sum::<u64>()
    };
    let (ordered, audits) = thread::scope(|scope| {
        let traders: Vec<_> = (1..=traders).map(|seed| scope.spawn(move || trader(seed))).collect();
        let audit = || (!over.load(Ordering::Relaxed)).then(|| book.audit());
        let auditor = scope.spawn(move || std::iter::from_fn(audit).count());
        let ordered: u64 = traders.into_iter().map(|trader| trader.join().expect("it trades")).sum();
        over.store(true, Ordering::Relaxed);
        (ordered, auditor.join().expect("the tables agree"))
    });
    let (traded, waits) = book.audit();
    assert_eq!(ordered, 2 * traded + waits, "a quantity is lost");
    println!(
        "{traders} traders ordered {ordered} pieces: {traded} changed hands, {waits} wait; {audits} audits found no fault"
    );
}

fn main() {
    run(3, 20_000);
}

#[cfg(test)]
#[test]
fn the_tables_agree() {
    run(4, 300);
}

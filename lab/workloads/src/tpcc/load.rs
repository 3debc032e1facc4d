//! Loads the initial contents of the tables (clause 4.3.3), warehouse by warehouse.

use archipelago_platform::sync::Arc;
use archipelago_platform::{SIMULATED, thread};

use super::draw::{self, When};
use super::rows::*;
use super::{DISTRICTS, Scale, Tables};
use crate::random::Random;
use crate::store::{Stop, Store, Write};

/// Rows that one transaction inserts.
const BATCH: usize = 100;

/// What each customer has paid before the run. A warehouse has received this amount from each of its customers. The
/// lines of orders that are delivered before the run cost nothing.
const PAID: i64 = 10_00;

/// Inserts rows, [`BATCH`] rows in each transaction.
fn insert<D: Store, R: crate::record::Record>(db: &D, table: &D::Table<R>, rows: impl Iterator<Item = R>) {
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let batch: Vec<R> = rows.by_ref().take(BATCH).collect();
        let inserted = db.transact(|tx| {
            for row in &batch {
                tx.insert(table, row.clone())?;
            }
            Ok::<_, Stop>(())
        });
        inserted.expect("keys are different");
    }
}

/// Loads all tables. On a real machine, the warehouses are loaded in parallel.
pub fn all<D: Store>(db: &D, tables: &Tables<D>, scale: Scale, warehouses: u16, seed: u64) {
    let mut random = Random::new(seed, 0);
    let item = |i| Item {
        i,
        image: random.within(1, 10_000) as u32,
        name: random.text(14, 24),
        price: random.within(1_00, 100_00) as i64,
        data: data(&mut random),
    };
    insert(db, &tables.items, (1..=scale.items).map(item));
    let load = |w| warehouse(db, tables, scale, w, seed);
    if SIMULATED {
        return (1..=warehouses).for_each(load);
    }
    let lanes = thread::available_parallelism().map_or(1, usize::from).min(usize::from(warehouses)) as u16;
    thread::scope(|scope| {
        for lane in 1..=lanes {
            let load = &load;
            scope.spawn(move || (lane..=warehouses).step_by(usize::from(lanes)).for_each(load));
        }
    });
}

/// Draws the text of an item. A tenth of the texts contain "ORIGINAL".
fn data(random: &mut Random) -> String {
    let mut text = random.text(26, 50);
    if random.percent(10) {
        let at = random.within(0, text.len() as u64 - 8) as usize;
        text.replace_range(at..at + 8, "ORIGINAL");
    }
    text
}

fn place(random: &mut Random) -> Address {
    Address {
        name: random.text(6, 10),
        street: [random.text(10, 20), random.text(10, 20)],
        city: random.text(10, 20),
        state: random.text(2, 2).to_uppercase(),
        zip: random.digits(4) + "11111",
    }
}

fn warehouse<D: Store>(db: &D, tables: &Tables<D>, scale: Scale, w: u16, seed: u64) {
    let mut random = Random::new(seed, usize::from(w));
    let paid = PAID * i64::from(scale.customers);
    let (tax, ytd) = (random.within(0, 2000) as i64, paid * i64::from(DISTRICTS));
    let row = Warehouse { w, tax, ytd, place: Arc::new(place(&mut random)) };
    insert(db, &tables.warehouses, [row].into_iter());
    let stock = |i| {
        let dist = core::array::from_fn(|_| random.letters());
        let info = Arc::new(StockInfo { dist, data: data(&mut random) });
        Stock { w, i, quantity: random.within(10, 100) as i32, ytd: 0, orders: 0, remote: 0, info }
    };
    insert(db, &tables.stock, (1..=scale.items).map(stock));
    for d in 1..=DISTRICTS {
        let (tax, next_o) = (random.within(0, 2000) as i64, u32::from(scale.customers) + 1);
        let row = District { w, d, tax, ytd: paid, next_o, place: Arc::new(place(&mut random)) };
        insert(db, &tables.districts, [row].into_iter());
        customers(db, tables, scale, (w, d), &mut random);
        orders(db, tables, scale, (w, d), &mut random);
    }
}

fn customers<D: Store>(db: &D, tables: &Tables<D>, scale: Scale, (w, d): (u16, u8), random: &mut Random) {
    let mut made = random.clone();
    let customer = |c: u16| {
        // The first thousand customers have different last names.
        let last = if c <= 1000 { c - 1 } else { draw::last(&mut made, When::Load, scale.customers) };
        let person = Person {
            first: name(&made.text(8, 16)),
            last: draw::last_name(last),
            phone: made.digits(16),
            place: place(&mut made),
            since: 0,
            credit_limit: 50_000_00,
        };
        Customer {
            w,
            d,
            c,
            bad_credit: made.percent(10),
            discount: made.within(0, 5000) as i64,
            balance: -PAID,
            ytd_payment: PAID,
            payments: 1,
            deliveries: 0,
            data: made.text(300, 500).into(),
            person: Arc::new(person),
        }
    };
    insert(db, &tables.customers, (1..=scale.customers).map(customer));
    let paid = |c: u16| History {
        id: customer_key(w, d, c),
        customer: super::rows::customer(w, d, c),
        w,
        d,
        date: 0,
        amount: PAID,
        data: random.letters(),
    };
    insert(db, &tables.history, (1..=scale.customers).map(paid));
}

/// Returns a key of HISTORY that no terminal uses: the terminals' keys begin at 2^40.
fn customer_key(w: u16, d: u8, c: u16) -> u64 {
    customer(w, d, c)
}

fn orders<D: Store>(db: &D, tables: &Tables<D>, scale: Scale, (w, d): (u16, u8), random: &mut Random) {
    let mut buyers: Vec<u16> = (1..=scale.customers).collect();
    (1..buyers.len()).for_each(|at| buyers.swap(at, random.within(0, at as u64) as usize));
    let is_new = |o: u32| o > scale.delivered();
    let orders: Vec<Order> = (1..)
        .zip(buyers)
        .map(|(o, c)| {
            let carrier = (!is_new(o)).then(|| random.within(1, 10) as u8);
            Order { w, d, o, c, entry: 1, carrier, lines: random.within(5, 15) as u8, all_local: true }
        })
        .collect();
    let lines = orders.iter().flat_map(|order| (1..=order.lines).map(move |number| (order.o, number)));
    let line = |(o, number)| OrderLine {
        w,
        d,
        o,
        number,
        quantity: 5,
        supply_w: w,
        item: random.within(1, u64::from(scale.items)) as u32,
        delivery: (!is_new(o)).then_some(1),
        amount: if is_new(o) { random.within(1, 9999_99) as i64 } else { 0 },
        dist: random.letters(),
    };
    insert(db, &tables.lines, lines.map(line));
    let new = orders.iter().filter(|order| is_new(order.o)).map(|order| NewOrder { w, d, o: order.o });
    insert(db, &tables.new_orders, new);
    insert(db, &tables.orders, orders.into_iter());
}

//! The transaction New-Order (clause 2.4).

use super::rows::*;
use super::{Tables, Terminal, draw};
use crate::store::{Read, Stop, Store, Write};

/// An order line of the input.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The item's number; 0 for an item that does not exist.
    pub item: u32,
    /// The warehouse that supplies the item.
    pub supply_w: u16,
    /// The quantity.
    pub quantity: u8,
}

/// The input of an order.
#[derive(Clone, Debug)]
pub struct Input {
    /// The warehouse.
    pub w: u16,
    /// The district.
    pub d: u8,
    /// The customer.
    pub c: u16,
    /// The order lines: 5 to 15.
    pub wanted: Vec<Wanted>,
    /// The time.
    pub entry: u64,
}

impl Input {
    /// Draws an input. A hundredth of the items come from another warehouse. A hundredth of the orders have a last item
    /// that does not exist.
    pub fn draw<D: Store>(terminal: &mut Terminal<'_, D>) -> Self {
        let (d, scale) = (terminal.district(), terminal.tpcc.scale);
        let c = draw::customer(&mut terminal.random, scale.customers);
        let lines = terminal.random.within(5, 15);
        let mut wanted: Vec<Wanted> = (0..lines)
            .map(|_| {
                let item = draw::item(&mut terminal.random, scale.items);
                let remote = terminal.random.percent(1);
                let supply_w = if remote { terminal.other_warehouse() } else { terminal.home };
                Wanted { item, supply_w, quantity: terminal.random.within(1, 10) as u8 }
            })
            .collect();
        if terminal.random.percent(1) {
            wanted.last_mut().expect("at least five").item = 0;
        }
        Self { w: terminal.home, d, c, wanted, entry: terminal.clock }
    }
}

/// The output of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The order's number.
    pub o: u32,
    /// The order's price in cents, with discount and taxes.
    pub total: i64,
}

/// Places an order.
///
/// # Errors
/// [`Stop::Wanted`] if an item does not exist; and errors of the store.
pub fn run<D: Store>(tables: &Tables<D>, tx: &mut D::Tx<'_>, input: &Input) -> Result<Output, Stop> {
    let Input { w, d, c, entry, .. } = *input;
    let there = "the tables are whole";
    let w_tax = tx.get(&tables.warehouses, &w, |row| row.tax)?.expect(there);
    let took = |row: &mut District| {
        row.next_o += 1;
        (row.tax, row.next_o - 1)
    };
    let (d_tax, o) = tx.update(&tables.districts, &district(w, d), took)?.expect(there);
    let discount = tx.get(&tables.customers, &customer(w, d, c), |row| row.discount)?.expect(there);
    let (lines, all_local) = (input.wanted.len() as u8, input.wanted.iter().all(|wanted| wanted.supply_w == w));
    tx.insert(&tables.orders, Order { w, d, o, c, entry, carrier: None, lines, all_local })?;
    tx.insert(&tables.new_orders, NewOrder { w, d, o })?;
    let mut sum = 0;
    for (number, wanted) in (1..).zip(&input.wanted) {
        let Some(price) = tx.get(&tables.items, &wanted.item, |row| row.price)? else { return Err(Stop::Wanted) };
        let dist = supply::<D>(tables, tx, (w, d), wanted)?;
        let amount = i64::from(wanted.quantity) * price;
        sum += amount;
        let Wanted { item, supply_w, quantity } = *wanted;
        tx.insert(
            &tables.lines,
            OrderLine { w, d, o, number, quantity, supply_w, item, delivery: None, amount, dist },
        )?;
    }
    // The product is in ten-thousandths of ten-thousandths of a cent; it is rounded to cents.
    let total = i128::from(sum) * i128::from(10_000 - discount) * i128::from(10_000 + w_tax + d_tax);
    Ok(Output { o, total: ((total + 50_000_000) / 100_000_000) as i64 })
}

/// Takes an item from a warehouse's stock. Returns the stock's text for the district (S_DIST).
fn supply<D: Store>(
    tables: &Tables<D>,
    tx: &mut D::Tx<'_>,
    (w, d): (u16, u8),
    wanted: &Wanted,
) -> Result<[u8; 24], Stop> {
    let take = |row: &mut Stock| {
        let quantity = i32::from(wanted.quantity);
        row.quantity += if row.quantity >= quantity + 10 { -quantity } else { 91 - quantity };
        row.ytd += u32::from(wanted.quantity);
        row.orders += 1;
        row.remote += u32::from(wanted.supply_w != w);
        row.info.dist[usize::from(d) - 1]
    };
    Ok(tx.update(&tables.stock, &stock(wanted.supply_w, wanted.item), take)?.expect("each warehouse has every item"))
}

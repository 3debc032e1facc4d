//! The read-only transactions: Order-Status (clause 2.6) and Stock-Level (clause 2.8).

use super::rows::*;
use super::{Tables, Terminal, Who, find};
use crate::store::{Read, Stop, Store, Way};

/// The input of Order-Status.
#[derive(Clone, Debug)]
pub struct Status {
    /// The warehouse.
    pub w: u16,
    /// The district.
    pub d: u8,
    /// The customer.
    pub(crate) who: Who,
}

impl Status {
    /// Draws an input.
    pub fn draw<D: Store>(terminal: &mut Terminal<'_, D>) -> Self {
        Self { w: terminal.home, d: terminal.district(), who: terminal.who() }
    }
}

/// Returns a customer's last order, if there is one, and the amounts of its lines.
///
/// # Errors
/// Errors of the store only.
pub fn status<D: Store>(
    tables: &Tables<D>,
    tx: &mut impl Read<D>,
    input: &Status,
) -> Result<Option<(u32, Vec<i64>)>, Stop> {
    let Status { w, d, .. } = *input;
    let c = find(tables, tx, (w, d), &input.who)?;
    tx.get(&tables.customers, &customer(w, d, c), |row| row.balance)?.expect("it was found");
    let mut last = None;
    let of = order_of(w, d, c, 0)..=order_of(w, d, c, (1 << 24) - 1);
    tx.scan_second(&tables.orders, of, Way::Down, |row| {
        last = Some(row.o);
        false
    })?;
    let Some(o) = last else { return Ok(None) };
    let mut amounts = Vec::new();
    tx.scan(&tables.lines, line(w, d, o, 0)..=line(w, d, o, u8::MAX), Way::Up, |row| {
        amounts.push(row.amount);
        true
    })?;
    Ok(Some((o, amounts)))
}

/// The input of Stock-Level.
#[derive(Clone, Debug)]
pub struct Level {
    /// The warehouse.
    pub w: u16,
    /// The district.
    pub d: u8,
    /// The threshold: a stock below it is low.
    pub threshold: i32,
}

impl Level {
    /// Draws an input.
    pub fn draw<D: Store>(terminal: &mut Terminal<'_, D>) -> Self {
        let d = terminal.district();
        Self { w: terminal.home, d, threshold: terminal.random.within(10, 20) as i32 }
    }
}

/// The number of last orders that are examined.
const LAST: u32 = 20;

/// Returns how many different items of the district's last twenty orders are low in the warehouse's stock.
///
/// # Errors
/// Errors of the store only.
pub fn level<D: Store>(tables: &Tables<D>, tx: &mut impl Read<D>, input: &Level) -> Result<usize, Stop> {
    let Level { w, d, threshold } = *input;
    let next =
        tx.get(&tables.districts, &district(w, d), |row| row.next_o)?.expect("every warehouse has ten districts");
    let from = line(w, d, next.saturating_sub(LAST), 0);
    let mut items = Vec::new();
    tx.scan(&tables.lines, from..line(w, d, next, 0), Way::Up, |row| {
        items.push(row.item);
        true
    })?;
    items.sort_unstable();
    items.dedup();
    let mut few = 0;
    for item in items {
        let quantity = tx.get(&tables.stock, &stock(w, item), |row| row.quantity)?;
        few += usize::from(quantity.expect("each warehouse has every item") < threshold);
    }
    Ok(few)
}

//! The transaction Delivery (clause 2.7).

use super::rows::*;
use super::{DISTRICTS, Tables, Terminal};
use crate::store::{Read, Stop, Store, Way, Write};

/// The input of a delivery.
#[derive(Clone, Debug)]
pub struct Input {
    /// The warehouse.
    pub w: u16,
    /// The carrier.
    pub carrier: u8,
    /// The time.
    pub date: u64,
}

impl Input {
    /// Draws an input.
    pub fn draw<D: Store>(terminal: &mut Terminal<'_, D>) -> Self {
        Self { w: terminal.home, carrier: terminal.random.within(1, 10) as u8, date: terminal.clock }
    }
}

/// Delivers the oldest new order of each district that has one. Returns how many it delivered.
///
/// # Errors
/// Errors of the store only.
pub fn run<D: Store>(tables: &Tables<D>, tx: &mut D::Tx<'_>, input: &Input) -> Result<usize, Stop> {
    let mut delivered = 0;
    for d in 1..=DISTRICTS {
        let mut oldest = None;
        let of = order(input.w, d, 0)..=order(input.w, d, u32::MAX);
        tx.scan(&tables.new_orders, of, Way::Up, |row| {
            oldest = Some(row.o);
            false
        })?;
        if let Some(o) = oldest {
            one::<D>(tables, tx, input, (d, o))?;
            delivered += 1;
        }
    }
    Ok(delivered)
}

/// Delivers an order.
fn one<D: Store>(tables: &Tables<D>, tx: &mut D::Tx<'_>, input: &Input, (d, o): (u8, u32)) -> Result<(), Stop> {
    let Input { w, carrier, date } = *input;
    let there = "every new order is an order, with lines and a customer";
    tx.remove(&tables.new_orders, &order(w, d, o))?;
    let sent = |row: &mut Order| {
        row.carrier = Some(carrier);
        (row.c, row.lines)
    };
    let (c, lines) = tx.update(&tables.orders, &order(w, d, o), sent)?.expect(there);
    let mut sum = 0;
    for number in 1..=lines {
        let sent = |row: &mut OrderLine| {
            row.delivery = Some(date);
            row.amount
        };
        sum += tx.update(&tables.lines, &line(w, d, o, number), sent)?.expect(there);
    }
    let received = |row: &mut Customer| {
        row.balance += sum;
        row.deliveries += 1;
    };
    tx.update(&tables.customers, &customer(w, d, c), received)?.expect(there);
    Ok(())
}

//! The transaction Payment (clause 2.5).

use super::rows::*;
use super::{Tables, Terminal, Who, find};
use crate::store::{Stop, Store, Write};

/// The input of a payment.
#[derive(Clone, Debug)]
pub struct Input {
    /// The warehouse that receives the payment.
    pub w: u16,
    /// The district that receives the payment.
    pub d: u8,
    /// The warehouse of the paying customer.
    pub customer_w: u16,
    /// The district of the paying customer.
    pub customer_d: u8,
    /// The customer.
    pub(crate) who: Who,
    /// The amount in cents.
    pub amount: i64,
    /// The key of the row in HISTORY.
    pub history: u64,
    /// The time.
    pub date: u64,
}

impl Input {
    /// Draws an input. In 15 % of the payments the customer belongs to another warehouse.
    pub fn draw<D: Store>(terminal: &mut Terminal<'_, D>) -> Self {
        let (w, d) = (terminal.home, terminal.district());
        let is_local = terminal.tpcc.warehouses == 1 || !terminal.random.percent(15);
        let (customer_w, customer_d) =
            if is_local { (w, d) } else { (terminal.other_warehouse(), terminal.district()) };
        let (who, amount) = (terminal.who(), terminal.random.within(1_00, 5000_00) as i64);
        terminal.history += 1;
        let (history, date) = (terminal.history, terminal.clock);
        Self { w, d, customer_w, customer_d, who, amount, history, date }
    }
}

/// The most bytes of C_DATA.
const LONGEST: usize = 500;

/// Pays. Returns the customer's new balance.
///
/// # Errors
/// Errors of the store only.
pub fn run<D: Store>(tables: &Tables<D>, tx: &mut D::Tx<'_>, input: &Input) -> Result<i64, Stop> {
    let Input { w, d, customer_w, customer_d, amount, date, .. } = *input;
    let there = "the tables are whole";
    let at_w = tx.update(&tables.warehouses, &w, |row| {
        row.ytd += amount;
        row.place.clone()
    })?;
    let at_d = tx.update(&tables.districts, &district(w, d), |row| {
        row.ytd += amount;
        row.place.clone()
    })?;
    let c = find(tables, tx, (customer_w, customer_d), &input.who)?;
    let payer = customer(customer_w, customer_d, c);
    let pay = |row: &mut Customer| {
        row.balance -= amount;
        row.ytd_payment += amount;
        row.payments += 1;
        if row.bad_credit {
            let mut data = format!("{c} {customer_d} {customer_w} {d} {w} {amount}|{}", row.data);
            data.truncate(LONGEST);
            row.data = data.into();
        }
        row.balance
    };
    let balance = tx.update(&tables.customers, &payer, pay)?.expect(there);
    let mut data = [b' '; 24];
    let names = [(0, at_w.expect(there)), (14, at_d.expect(there))];
    names.iter().for_each(|(at, place)| data[*at..*at + place.name.len()].copy_from_slice(place.name.as_bytes()));
    tx.insert(&tables.history, History { id: input.history, customer: payer, w, d, date, amount, data })?;
    Ok(balance)
}

//! Checks the twelve consistency conditions (clause 3.3.2) exactly, and the agreement of the indexes with the rows.
//!
//! Condition 11 is stated for a newly loaded database. It holds later, too, if deliveries are counted: orders minus new
//! orders equal the orders that were delivered when the run began, plus the deliveries that C_DELIVERY_CNT counts.

use core::ops::RangeFull;
use std::collections::BTreeMap;

use super::rows::*;
use super::{Scale, Tables};
use crate::record::Record;
use crate::store::{Read, Store, Way};

/// A sentence that says what is wrong.
type Wrong = String;

/// Returns an error unless `one` equals `other`.
fn same<T: PartialEq + core::fmt::Debug>(
    condition: &str,
    what: impl FnOnce() -> String,
    one: T,
    other: T,
) -> Result<(), Wrong> {
    if one == other {
        return Ok(());
    }
    Err(format!("condition {condition}, {}: {one:?} is not {other:?}", what()))
}

/// Visits all rows of a table. Returns how many there are.
fn all<D: Store, R: Record>(view: &mut impl Read<D>, table: &D::Table<R>, mut visit: impl FnMut(&R)) -> usize {
    let mut count = 0;
    let shown = view.scan(table, RangeFull, Way::Up, |row| {
        visit(row);
        count += 1;
        true
    });
    shown.expect("a view meets no conflicts");
    count
}

/// What other tables contain about a district.
#[derive(Default)]
struct Sums {
    orders: u32,
    last_order: u32,
    ordered_lines: u64,
    lines: u64,
    new: u32,
    /// The least and the greatest number of a new order.
    news: Option<(u32, u32)>,
    paid: i64,
    deliveries: u32,
}

/// What other tables contain about an order.
#[derive(Default)]
struct Whole {
    lines: u64,
    amount: i64,
    delivered: u64,
    is_new: bool,
}

/// Checks all conditions.
///
/// # Errors
/// A message about the first condition that does not hold.
pub fn conditions<D: Store>(tables: &Tables<D>, view: &mut impl Read<D>, scale: Scale) -> Result<(), Wrong> {
    let mut districts: BTreeMap<u64, Sums> = BTreeMap::new();
    let mut orders: BTreeMap<u64, Whole> = BTreeMap::new();
    // For each customer: the amounts delivered, and the amounts paid.
    let mut customers: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
    all(view, &tables.new_orders, |row| {
        let sums = districts.entry(district(row.w, row.d)).or_default();
        let (least, most) = sums.news.unwrap_or((row.o, row.o));
        (sums.new, sums.news) = (sums.new + 1, Some((least.min(row.o), most.max(row.o))));
        orders.entry(row.key()).or_default().is_new = true;
    });
    all(view, &tables.lines, |row| {
        districts.entry(district(row.w, row.d)).or_default().lines += 1;
        let whole = orders.entry(order(row.w, row.d, row.o)).or_default();
        whole.lines += 1;
        whole.delivered += u64::from(row.delivery.is_some());
        whole.amount += row.amount;
    });
    all(view, &tables.history, |row| {
        districts.entry(district(row.w, row.d)).or_default().paid += row.amount;
        customers.entry(row.customer).or_default().1 += row.amount;
    });
    let mut wrong = Ok(());
    let counted = all(view, &tables.orders, |row| {
        let sums = districts.entry(district(row.w, row.d)).or_default();
        sums.orders += 1;
        sums.last_order = sums.last_order.max(row.o);
        sums.ordered_lines += u64::from(row.lines);
        let whole = orders.remove(&row.key()).unwrap_or_default();
        if row.carrier.is_some() {
            customers.entry(customer(row.w, row.d, row.c)).or_default().0 += whole.amount;
        }
        if wrong.is_ok() {
            wrong = of_order(row, &whole);
        }
    });
    wrong?;
    same("5 and 6", || "lines and new orders without an order".to_owned(), orders.keys().next(), None)?;
    indexed(view, &tables.orders, counted)?;
    let mut wrong = Ok(());
    let counted = all(view, &tables.customers, |row| {
        districts.entry(district(row.w, row.d)).or_default().deliveries += row.deliveries;
        if wrong.is_ok() {
            wrong = of_customer(row, customers.get(&row.key()).copied().unwrap_or_default());
        }
    });
    wrong?;
    indexed(view, &tables.customers, counted)?;
    warehouses(tables, view, &districts, scale)
}

/// Checks conditions 5, 6 and 7.
fn of_order(row: &Order, whole: &Whole) -> Result<(), Wrong> {
    let name = || format!("order {} of district {}/{}", row.o, row.w, row.d);
    same("5", name, row.carrier.is_none(), whole.is_new)?;
    same("6", name, u64::from(row.lines), whole.lines)?;
    same("7", name, if row.carrier.is_some() { whole.lines } else { 0 }, whole.delivered)
}

/// Checks conditions 10 and 12.
fn of_customer(row: &Customer, (delivered, paid): (i64, i64)) -> Result<(), Wrong> {
    let name = || format!("customer {} of district {}/{}", row.c, row.w, row.d);
    same("10", name, row.balance, delivered - paid)?;
    same("12", name, row.balance + row.ytd_payment, delivered)
}

/// Checks conditions 1 to 4, 8, 9 and 11.
fn warehouses<D: Store>(
    tables: &Tables<D>,
    view: &mut impl Read<D>,
    sums: &BTreeMap<u64, Sums>,
    scale: Scale,
) -> Result<(), Wrong> {
    // For each warehouse: the sum of its districts' D_YTD, and the sum of its history.
    let mut ytds: BTreeMap<u16, (i64, i64)> = BTreeMap::new();
    let mut wrong = Ok(());
    all(view, &tables.districts, |row| {
        let sums = &sums[&row.key()];
        let ytd = ytds.entry(row.w).or_default();
        *ytd = (ytd.0 + row.ytd, ytd.1 + sums.paid);
        if wrong.is_ok() {
            wrong = of_district(row, sums, scale);
        }
    });
    wrong?;
    let mut wrong = Ok(());
    all(view, &tables.warehouses, |row| {
        let (of_districts, paid) = ytds.get(&row.w).copied().unwrap_or_default();
        let name = || format!("warehouse {}", row.w);
        if wrong.is_ok() {
            wrong = same("1", name, row.ytd, of_districts).and_then(|()| same("8", name, row.ytd, paid));
        }
    });
    wrong
}

fn of_district(row: &District, sums: &Sums, scale: Scale) -> Result<(), Wrong> {
    let name = || format!("district {}/{}", row.w, row.d);
    same("2", name, row.next_o - 1, sums.last_order)?;
    if let Some((least, most)) = sums.news {
        same("2", name, row.next_o - 1, most)?;
        same("3", name, most - least + 1, sums.new)?;
    }
    same("4", name, sums.ordered_lines, sums.lines)?;
    same("9", name, row.ytd, sums.paid)?;
    same("11", name, sums.orders - sums.new, scale.delivered() + sums.deliveries)
}

/// Checks that every row has its entry in the secondary index, and that the index is in order.
fn indexed<D: Store, R: Record>(view: &mut impl Read<D>, table: &D::Table<R>, rows: usize) -> Result<(), Wrong> {
    let (mut entries, mut before, mut in_order) = (0, None, true);
    let shown = view.scan_second(table, RangeFull, Way::Up, |row| {
        let key = row.second();
        in_order &= before.as_ref().is_none_or(|before| *before <= key);
        (entries, before) = (entries + 1, Some(key));
        true
    });
    shown.expect("a view meets no conflicts");
    same("of indexes", || "entries and rows".to_owned(), (entries, in_order), (rows, true))
}

//! Tests each transaction against the specification, and many concurrent transactions against the twelve conditions.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use archipelago_txn::{Hekaton, Isolation, MvRlu, NoWait, Scheme, Silo, TicToc, WaitDie, on};

use super::*;
use crate::catalog::HYDRA;
use crate::chosen::{Choice, Chosen};
use crate::record::Record;
use crate::store::{Read, Way};
use crate::{Engine, Global};

/// Returns all rows of all tables, a line each.
fn dump<D: Store>(tpcc: &Tpcc<D>) -> String {
    fn table<D: Store, R: Record + core::fmt::Debug>(text: &mut String, view: &mut D::View<'_>, table: &D::Table<R>) {
        let shown = view.scan(table, .., Way::Up, |row| writeln!(text, "{row:?}").is_ok());
        shown.expect("a view meets no conflicts");
    }
    let (mut text, tables) = (String::new(), &tpcc.tables);
    tpcc.db.view(|view| {
        table::<D, _>(&mut text, view, &tables.warehouses);
        table::<D, _>(&mut text, view, &tables.districts);
        table::<D, _>(&mut text, view, &tables.customers);
        table::<D, _>(&mut text, view, &tables.history);
        table::<D, _>(&mut text, view, &tables.new_orders);
        table::<D, _>(&mut text, view, &tables.orders);
        table::<D, _>(&mut text, view, &tables.lines);
        table::<D, _>(&mut text, view, &tables.items);
        table::<D, _>(&mut text, view, &tables.stock);
    });
    text
}

fn tiny<D: Store>(db: D, warehouses: u16) -> Tpcc<D> {
    HYDRA.within(|| Tpcc::load(db, Scale::TINY, warehouses, 5))
}

fn ours() -> Engine<Silo, Chosen> {
    Engine::serializable()
}

/// Returns a copy of the row with this key.
fn row<D: Store, R: Record>(tpcc: &Tpcc<D>, table: &D::Table<R>, key: R::Key) -> R {
    tpcc.db.view(|view| view.get(table, &key, R::clone)).unwrap().expect("it is there")
}

#[test]
fn an_order_takes_from_the_stock() {
    let tpcc = tiny(ours(), 2);
    let t = &tpcc.tables;
    let before = [row(&tpcc, &t.stock, stock(1, 3)), row(&tpcc, &t.stock, stock(2, 4))];
    let wanted =
        vec![order::Wanted { item: 3, supply_w: 1, quantity: 10 }, order::Wanted { item: 4, supply_w: 2, quantity: 1 }];
    let input = order::Input { w: 1, d: 2, c: 7, wanted, entry: 99 };
    let shown = tpcc.db.transact(|tx| order::run::<Engine<_, _>>(t, tx, &input)).unwrap();
    let prices = [row(&tpcc, &t.items, 3).price, row(&tpcc, &t.items, 4).price];
    let (w, d) = (row(&tpcc, &t.warehouses, 1), row(&tpcc, &t.districts, district(1, 2)));
    let c = row(&tpcc, &t.customers, customer(1, 2, 7));
    let sum = (10 * prices[0] + prices[1]) as f64;
    let total = sum * (1.0 - c.discount as f64 / 1e4) * (1.0 + (w.tax + d.tax) as f64 / 1e4);
    assert!((shown.total as f64 - total).abs() <= 0.51, "{} is not {total}", shown.total);
    assert_eq!((shown.o, d.next_o), (11, 12));
    let made = row(&tpcc, &t.orders, order(1, 2, 11));
    assert_eq!((made.c, made.lines, made.all_local, made.carrier, made.entry), (7, 2, false, None, 99));
    assert_eq!(row(&tpcc, &t.new_orders, order(1, 2, 11)).o, 11);
    for (number, supply_w, item, quantity, at) in [(1, 1, 3, 10, 0), (2, 2, 4, 1, 1)] {
        let made = row(&tpcc, &t.lines, line(1, 2, 11, number));
        let amount = i64::from(quantity) * prices[at];
        assert_eq!((made.item, made.supply_w, made.quantity, made.amount), (item, supply_w, quantity, amount));
        assert_eq!((made.delivery, made.dist), (None, before[at].info.dist[1]));
        let after = row(&tpcc, &t.stock, stock(supply_w, item));
        let taken = before[at].quantity - i32::from(quantity);
        assert_eq!(after.quantity, if taken >= 10 { taken } else { taken + 91 });
        assert_eq!((after.ytd, after.orders, after.remote), (u32::from(quantity), 1, u32::from(supply_w != 1)));
    }
    tpcc.check().unwrap();
}

fn an_order_of_what_is_not_there<D: Store>(db: D) {
    let tpcc = tiny(db, 1);
    let before = dump(&tpcc);
    let wanted = vec![
        order::Wanted { item: 3, supply_w: 1, quantity: 10 },
        order::Wanted { item: 3, supply_w: 1, quantity: 9 },
        order::Wanted { item: 0, supply_w: 1, quantity: 1 },
    ];
    let input = order::Input { w: 1, d: 2, c: 7, wanted, entry: 99 };
    let shown = tpcc.db.transact(|tx| order::run::<D>(&tpcc.tables, tx, &input));
    assert_eq!(shown, Err(Stop::Wanted));
    assert!(dump(&tpcc) == before, "something is left");
    tpcc.check().unwrap();
}

#[test]
fn an_order_of_what_is_not_there_leaves_nothing() {
    an_order_of_what_is_not_there(ours());
    an_order_of_what_is_not_there(Global::default());
}

#[test]
fn a_payment_by_name_is_of_the_middle_customer() {
    let tpcc = tiny(ours(), 2);
    let t = &tpcc.tables;
    // All loaded customers have different last names; the test gives three of them the same one.
    let namesakes = [("ZOE", 9), ("ANN", 4), ("EVE", 6)];
    for (first, c) in namesakes {
        tpcc.db
            .transact(|tx| {
                let mut row = tx.get(&t.customers, &customer(2, 3, c))?.expect("it is there").row.clone();
                let mut person = (*row.person).clone();
                (person.first, person.last) = (name(first), name("BARBARBAR"));
                row.person = person.into();
                (row.bad_credit, row.data) = (true, "x".repeat(500).into());
                tx.upsert(&t.customers, crate::record::At::new(row))?;
                Ok::<_, Stop>(())
            })
            .unwrap();
    }
    // With the customer that was loaded as BARBARBAR there are four customers of this name, and the second by first
    // name is the middle one.
    let mut firsts: Vec<(Name, u16)> = namesakes.map(|(first, c)| (name(first), c)).into();
    firsts.push((row(&tpcc, &t.customers, customer(2, 3, 1)).person.first, 1));
    firsts.sort_unstable();
    let c = firsts[1].1;
    let before = row(&tpcc, &t.customers, customer(2, 3, c));
    let who = Who::Named(name("BARBARBAR"));
    let input = pay::Input { w: 1, d: 5, customer_w: 2, customer_d: 3, who, amount: 12_34, history: 77, date: 8 };
    let balance = tpcc.db.transact(|tx| pay::run::<Engine<_, _>>(t, tx, &input)).unwrap();
    let after = row(&tpcc, &t.customers, customer(2, 3, c));
    assert_eq!((balance, after.balance), (before.balance - 12_34, before.balance - 12_34));
    assert_eq!((after.ytd_payment, after.payments), (before.ytd_payment + 12_34, 2));
    if after.bad_credit {
        assert!(after.data.starts_with(&format!("{c} 3 2 5 1 1234|")) && after.data.len() == 500, "{}", after.data);
    }
    assert_eq!(row(&tpcc, &t.warehouses, 1).ytd, 10_00 * 100 + 12_34);
    assert_eq!(row(&tpcc, &t.districts, district(1, 5)).ytd, 10_00 * 10 + 12_34);
    let history = row(&tpcc, &t.history, 77);
    assert_eq!((history.customer, history.w, history.d, history.amount), (customer(2, 3, c), 1, 5, 12_34));
    tpcc.check().unwrap();
}

#[test]
fn a_delivery_is_of_the_oldest_orders() {
    let tpcc = tiny(ours(), 1);
    let t = &tpcc.tables;
    // Three of ten orders are new. Each of three deliveries delivers one order of every district, and the fourth
    // delivers none.
    for (o, delivered) in [(8, 10), (9, 10), (10, 10), (11, 0)] {
        let input = deliver::Input { w: 1, carrier: 4, date: 50 };
        assert_eq!(tpcc.db.transact(|tx| deliver::run::<Engine<_, _>>(t, tx, &input)), Ok(delivered));
        if delivered == 10 {
            let order = row(&tpcc, &t.orders, order(1, 3, o));
            assert_eq!(order.carrier, Some(4));
            let lines = (1..=order.lines).map(|number| row(&tpcc, &t.lines, line(1, 3, o, number)));
            let sum: i64 = lines.inspect(|line| assert_eq!(line.delivery, Some(50))).map(|line| line.amount).sum();
            let buyer = row(&tpcc, &t.customers, customer(1, 3, order.c));
            assert_eq!((buyer.balance, buyer.deliveries), (sum - 10_00, 1));
        }
        tpcc.check().unwrap();
    }
}

#[test]
fn questions_are_answered() {
    let tpcc = tiny(ours(), 1);
    let t = &tpcc.tables;
    for c in 1..=10 {
        // Every customer has one order when the run begins.
        let status = read::Status { w: 1, d: 2, who: Who::Numbered(c) };
        let (o, amounts) = tpcc.db.transact(|tx| read::status(t, tx, &status)).unwrap().expect("an order");
        let order = row(&tpcc, &t.orders, order(1, 2, o));
        assert_eq!((order.c, usize::from(order.lines)), (c, amounts.len()));
    }
    // At this small scale, the items of the last orders are those of all orders.
    let mut few: Vec<u32> = Vec::new();
    for o in 1..=10 {
        let lines = (1..=row(&tpcc, &t.orders, order(1, 2, o)).lines).map(|n| row(&tpcc, &t.lines, line(1, 2, o, n)));
        few.extend(lines.map(|line| line.item).filter(|item| row(&tpcc, &t.stock, stock(1, *item)).quantity < 30));
    }
    few.sort_unstable();
    few.dedup();
    let level = read::Level { w: 1, d: 2, threshold: 30 };
    assert_eq!(tpcc.db.transact(|tx| read::level(t, tx, &level)), Ok(few.len()));
    assert!(!few.is_empty());
}

/// The same terminal, drawing the same inputs, leaves equal rows in all stores.
#[test]
fn all_stores_agree() {
    fn left<D: Store>(db: D, map: Choice) -> String {
        let tpcc = map.within(|| Tpcc::load(db, Scale::TINY, 2, 5));
        let mut terminal = tpcc.terminal(1, 3);
        let turns: Vec<Turn> = (0..2000).map(|_| terminal.turn()).collect();
        assert!(turns.iter().all(|turn| turn.begun == 1), "alone it is in no one's way");
        let share = |kind: TransactionType| turns.iter().filter(|turn| turn.kind == kind as usize).count() / 20;
        assert!(
            (40..50).contains(&share(TransactionType::NewOrder)) && (38..48).contains(&share(TransactionType::Payment))
        );
        assert!(
            [TransactionType::OrderStatus, TransactionType::Delivery, TransactionType::StockLevel]
                .iter()
                .all(|kind| (2..7).contains(&share(*kind)))
        );
        // About a hundredth of the transactions are rolled back.
        assert!((1..25).contains(&turns.iter().filter(|turn| turn.rolled_back).count()));
        tpcc.check().unwrap();
        dump(&tpcc)
    }
    let global = left(Global::default(), HYDRA);
    assert!(left(ours(), HYDRA) == global);
    assert!(left(Engine::<TicToc, Chosen>::serializable(), Choice::of::<on::BLinkTree>()) == global);
    assert!(left(Engine::<Silo, Chosen>::at(Isolation::Snapshot), Choice::of::<on::EunoBTree>()) == global);
}

/// Runs concurrent terminals, and a reader that checks the conditions meanwhile.
fn beside<D: Store>(tpcc: &Tpcc<D>, turns: usize) {
    let (over, ordered, looks) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let terminals: Vec<_> = (0..4)
            .map(|thread| {
                let ordered = &ordered;
                scope.spawn(move || {
                    let mut terminal = tpcc.terminal(thread, 11);
                    for _ in 0..turns {
                        let turn = terminal.turn();
                        let orders = turn.kind == TransactionType::NewOrder as usize && !turn.rolled_back;
                        ordered.fetch_add(usize::from(orders), Relaxed);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Relaxed) || looks.load(Relaxed) == 0 {
                tpcc.check().expect("during the run");
                looks.fetch_add(1, Relaxed);
            }
        });
        let ended: Vec<_> = terminals.into_iter().map(|terminal| terminal.join()).collect();
        over.store(true, Relaxed);
        ended.into_iter().for_each(|end| end.expect("a terminal"));
    });
    tpcc.check().expect("after the run");
    let mut orders = 0;
    let count = |_: &Order| {
        orders += 1;
        true
    };
    tpcc.db.view(|view| view.scan(&tpcc.tables.orders, .., Way::Up, count)).unwrap();
    let loaded = 10 * usize::from(DISTRICTS) * usize::from(tpcc.warehouses);
    assert_eq!(orders, loaded + ordered.into_inner(), "an order is lost, or was made twice");
    assert!(looks.into_inner() > 0);
}

fn beside_by<S: Scheme>(isolation: Isolation) {
    beside(&tiny(Engine::<S, Chosen>::at(isolation), 1), 250);
    let art = Choice::of::<on::Art>();
    beside(&art.within(|| Tpcc::load(Engine::<S, Chosen>::at(isolation), Scale::TINY, 3, 5)), 250);
}

#[test]
fn conditions_hold_beside_silo() {
    beside_by::<Silo>(Isolation::Serializable);
}

#[test]
fn conditions_hold_beside_tictoc() {
    beside_by::<TicToc>(Isolation::Serializable);
}

#[test]
fn conditions_hold_beside_no_wait_locks() {
    beside_by::<NoWait>(Isolation::Serializable);
}

#[test]
fn conditions_hold_beside_wait_die_locks() {
    beside_by::<WaitDie>(Isolation::Serializable);
}

#[test]
fn conditions_hold_beside_hekaton() {
    beside_by::<Hekaton>(Isolation::Serializable);
}

#[test]
fn conditions_hold_beside_mvrlu() {
    beside_by::<MvRlu>(Isolation::Serializable);
}

/// TPC-C stays consistent under snapshot isolation, although snapshot isolation is not serializable in general; see the
/// module's text.
#[test]
fn conditions_hold_beside_snapshots() {
    beside_by::<Silo>(Isolation::Snapshot);
}

#[test]
fn conditions_hold_beside_a_global_lock() {
    beside(&tiny(Global::default(), 2), 500);
}

#[test]
fn two_transactions_alone_keep_the_conditions() {
    let tpcc = tiny(ours(), 1).pair_only();
    let mut terminal = tpcc.terminal(0, 1);
    assert!((0..300).all(|_| terminal.turn().kind <= TransactionType::Payment as usize));
    tpcc.check().unwrap();
}

//! SmallBank (Alomari, Cahill, Fekete, Röhm: *The Cost of Serializability on Platforms That Use Snapshot Isolation*,
//! ICDE'08). Each customer has a savings and a checking account. Nine of ten transactions use the first hundred
//! customers. Money is in cents.
//!
//! Of a hundred transactions, SendPayment is 25; Balance, DepositChecking, TransactSavings, Amalgamate and WriteCheck
//! are 15 each.
//!
//! Two rules are stricter than in the paper, so that a consistency condition can detect write skew. TransactSavings
//! withdraws an amount only if the savings account covers it and both accounts together cover it, too. (In the paper,
//! the savings account alone decides.) Amalgamate moves no debts. With these rules WriteCheck and TransactSavings have
//! a write skew under snapshot isolation: each reads both of a customer's accounts and writes one of them. So together
//! they can overdraw the customer without WriteCheck's penalty.
//!
//! If transactions are serializable, the last check of a customer whose balance is negative was not covered: all other
//! transactions leave a covered customer covered. Condition 2 of [`Arena::check_at`] is this sentence. It is examined in
//! the final state, and by each WriteCheck, since the next uncovered check hides an earlier skew.

use archipelago_platform::atomic::{AtomicI64, AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_txn::Isolation;
use serde::{Deserialize, Serialize};

use crate::arena::{Arena, Client, Turn};
use crate::random::Random;
use crate::record::plain;
use crate::store::{Read, Stop, Store, Way, Write};

/// A row of SAVINGS.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Savings {
    customer: u64,
    cents: i64,
}
plain!(Savings: u64 = |row| row.customer);

/// A row of CHECKING.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checking {
    customer: u64,
    cents: i64,
    /// 1 if the customer's last check was not covered, else 0.
    uncovered: u64,
}
plain!(Checking: u64 = |row| row.customer);

/// Returns whether a customer is overdrawn, but not by an uncovered check.
fn skewed(saved: i64, checking: &Checking) -> bool {
    saved + checking.cents < 0 && checking.uncovered == 0
}

/// The money in each account at the beginning.
const FIRST: i64 = 100_00;

/// The penalty for a check that is not covered.
const PENALTY: i64 = 1_00;

/// The number of customers in nine of ten transactions.
const POPULAR: u64 = 100;

/// The bank.
pub struct SmallBank<D: Store> {
    db: D,
    savings: D::Table<Savings>,
    checking: D::Table<Checking>,
    customers: u64,
    /// Deposits less withdrawals, by clients that have ended. Padded, because the others read the other fields.
    moved: CachePadded<AtomicI64>,
    /// Write skews that these clients have seen.
    skews: CachePadded<AtomicU64>,
}

/// The effects of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Deposits less withdrawals, in cents.
    pub moved: i64,
    /// `true` if the transaction saw a write skew. No later transaction reports the same write skew.
    pub skewed: bool,
}

impl Effect {
    fn of(moved: i64) -> Self {
        Self { moved, skewed: false }
    }
}

/// A transaction of SmallBank, with its customers and its money in cents.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// Reads a customer's balance.
    Balance(u64),
    /// Deposits to checking.
    DepositChecking(u64, i64),
    /// Deposits to savings; or withdraws from savings, if savings and both accounts together cover it.
    TransactSavings(u64, i64),
    /// Moves all of the first customer's money to the checking account of the second.
    Amalgamate(u64, u64),
    /// Withdraws from checking, with a penalty if both accounts together do not cover it.
    WriteCheck(u64, i64),
    /// Moves money from one checking account to another, if the first covers it.
    SendPayment(u64, u64, i64),
}

const THERE: &str = "every customer has both accounts";

impl<D: Store> SmallBank<D> {
    /// Opens the accounts of `customers` customers in an empty store.
    ///
    /// # Panics
    /// If there are fewer than two customers.
    pub fn load(db: D, customers: u64) -> Self {
        assert!(customers > 1, "SmallBank needs two customers");
        let (savings, checking) = (db.table(), db.table());
        for customer in 0..customers {
            let opened = db.transact(|tx| {
                tx.insert(&savings, Savings { customer, cents: FIRST })?;
                tx.insert(&checking, Checking { customer, cents: FIRST, uncovered: 0 })?;
                Ok::<_, Stop>(())
            });
            opened.expect("customers are different");
        }
        Self { db, savings, checking, customers, moved: CachePadded::default(), skews: CachePadded::default() }
    }

    /// Runs a transaction. TransactSavings and WriteCheck call `pause` between their reads and their write.
    ///
    /// # Errors
    /// [`Stop::Wanted`] if the accounts do not cover what the task takes from them; and the store's errors.
    pub fn run(&self, tx: &mut D::Tx<'_>, task: Task, pause: impl FnOnce()) -> Result<Effect, Stop> {
        match task {
            Task::Balance(customer) => {
                tx.get(&self.savings, &customer, |row| row.cents)?.expect(THERE);
                tx.get(&self.checking, &customer, |row| row.cents)?.expect(THERE);
                Ok(Effect::of(0))
            }
            Task::DepositChecking(customer, cents) => self.check_in(tx, customer, cents).map(|()| Effect::of(cents)),
            Task::TransactSavings(customer, cents) => {
                let saved = tx.get(&self.savings, &customer, |row| row.cents)?.expect(THERE);
                let there = tx.get(&self.checking, &customer, |row| row.cents)?.expect(THERE);
                pause();
                if cents < 0 && (saved + cents < 0 || saved + there + cents < 0) {
                    return Err(Stop::Wanted);
                }
                tx.update(&self.savings, &customer, |row| row.cents += cents)?.expect(THERE);
                Ok(Effect::of(cents))
            }
            Task::Amalgamate(from, to) => {
                let saved = tx.update(&self.savings, &from, |row| core::mem::take(&mut row.cents))?.expect(THERE);
                let there = tx.update(&self.checking, &from, |row| core::mem::take(&mut row.cents))?.expect(THERE);
                if saved + there < 0 {
                    return Err(Stop::Wanted);
                }
                self.check_in(tx, to, saved + there).map(|()| Effect::of(0))
            }
            Task::WriteCheck(customer, cents) => {
                let saved = tx.get(&self.savings, &customer, |row| row.cents)?.expect(THERE);
                let read = |row: &Checking| (row.cents, skewed(saved, row));
                let (there, skewed) = tx.get(&self.checking, &customer, read)?.expect(THERE);
                pause();
                let penalty = if saved + there < cents { PENALTY } else { 0 };
                let write = |row: &mut Checking| {
                    row.cents -= cents + penalty;
                    row.uncovered = u64::from(penalty > 0);
                };
                tx.update(&self.checking, &customer, write)?.expect(THERE);
                Ok(Effect { moved: -cents - penalty, skewed })
            }
            Task::SendPayment(from, to, cents) => {
                let there = tx.get(&self.checking, &from, |row| row.cents)?.expect(THERE);
                if there < cents {
                    return Err(Stop::Wanted);
                }
                tx.update(&self.checking, &from, |row| row.cents -= cents)?.expect(THERE);
                self.check_in(tx, to, cents).map(|()| Effect::of(0))
            }
        }
    }

    fn check_in(&self, tx: &mut D::Tx<'_>, customer: u64, cents: i64) -> Result<(), Stop> {
        tx.update(&self.checking, &customer, |row| row.cents += cents)?.expect(THERE);
        Ok(())
    }

    fn draw(&self, random: &mut Random) -> Task {
        let popular = self.customers.min(POPULAR);
        let most = if random.percent(90) { popular } else { self.customers };
        let one = random.within(0, most - 1);
        let other = (one + random.within(1, most - 1)) % most;
        let cents = random.within(1_00, 50_00) as i64;
        match random.within(0, 99) {
            0..15 => Task::Balance(one),
            15..30 => Task::DepositChecking(one, cents),
            30..45 => Task::TransactSavings(one, if random.percent(50) { cents } else { -cents }),
            45..60 => Task::Amalgamate(one, other),
            60..75 => Task::WriteCheck(one, cents),
            _ => Task::SendPayment(one, other, cents),
        }
    }
}

struct Teller<'b, D: Store> {
    bank: &'b SmallBank<D>,
    random: Random,
    moved: i64,
    skews: u64,
}

impl<D: Store> Client for Teller<'_, D> {
    fn turn(&mut self) -> Turn {
        let task = self.bank.draw(&mut self.random);
        let mut begun = 0;
        let body = |tx: &mut D::Tx<'_>| {
            begun += 1;
            self.bank.run(tx, task, || ())
        };
        let db = &self.bank.db;
        let done = if matches!(task, Task::Balance(_)) { db.transact_read(body) } else { db.transact(body) };
        let rolled_back = done == Err(Stop::Wanted);
        assert!(rolled_back || done.is_ok(), "{task:?}: {done:?}");
        let Effect { moved, skewed } = done.unwrap_or_default();
        self.moved += moved;
        self.skews += u64::from(skewed);
        let kind = match task {
            Task::Balance(_) => 0,
            Task::DepositChecking(..) => 1,
            Task::TransactSavings(..) => 2,
            Task::Amalgamate(..) => 3,
            Task::WriteCheck(..) => 4,
            Task::SendPayment(..) => 5,
        };
        Turn { kind, begun, writes: kind > 0, rolled_back }
    }
}

impl<D: Store> Drop for Teller<'_, D> {
    fn drop(&mut self) {
        // Relaxed: the sums are read after the threads were joined.
        self.bank.moved.fetch_add(self.moved, Ordering::Relaxed);
        if self.skews > 0 {
            self.bank.skews.fetch_add(self.skews, Ordering::Relaxed);
        }
    }
}

impl<D: Store> Arena for SmallBank<D> {
    fn client(&self, thread: usize, seed: u64) -> Box<dyn Client + '_> {
        Box::new(Teller { bank: self, random: Random::new(seed, thread + 1), moved: 0, skews: 0 })
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["balance", "deposit-checking", "transact-savings", "amalgamate", "write-check", "send-payment"]
    }

    /// Checks two conditions. (1) The money in all accounts is the money at the beginning plus deposits less
    /// withdrawals. (2) The last check of each customer whose balance is negative was not covered, and no WriteCheck has
    /// seen the contrary. Snapshot isolation does not promise condition 2.
    fn check_at(&self, isolation: Isolation) -> Result<u64, String> {
        let (mut sum, mut last) = (0, None);
        let mut skews = self.skews.load(Ordering::Relaxed);
        let shown = self.db.view(|view| {
            let mut accounts = Vec::new();
            view.scan(&self.checking, .., Way::Up, |row| {
                accounts.push(row.clone());
                true
            })?;
            for checking in accounts {
                let saved = view.get(&self.savings, &checking.customer, |row| row.cents)?.expect(THERE);
                sum += saved + checking.cents;
                if skewed(saved, &checking) {
                    (skews, last) = (skews + 1, Some(checking.customer));
                }
            }
            Ok::<_, Stop>(())
        });
        shown.expect("a view meets no conflicts");
        let expected = 2 * FIRST * self.customers as i64 + self.moved.load(Ordering::Relaxed);
        if sum != expected {
            return Err(format!("condition 1: there are {sum} cents, and must be {expected}"));
        }
        if skews > 0 && isolation == Isolation::Serializable {
            let which = last.map_or(String::new(), |it| format!(", the last of them customer {it}"));
            return Err(format!("condition 2: {skews} times a customer was overdrawn without a penalty{which}"));
        }
        Ok(skews)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use archipelago_txn::{Hekaton, Isolation, MvRlu, NoWait, Silo, TicToc, WaitDie, on};

    use super::*;
    use crate::catalog::HYDRA;
    use crate::chosen::{Choice, Chosen};
    use crate::{Engine, Global};

    const ART: Choice = Choice::of::<on::Art>();

    fn beside<D: Store>(db: D, map: Choice) {
        let bank = map.within(|| SmallBank::load(db, 200));
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let bank = &bank;
                scope.spawn(move || {
                    let mut teller = bank.client(thread, 1);
                    let wrote = (0..5000).filter(|_| teller.turn().writes).count();
                    assert!((4000..4500).contains(&wrote), "{wrote}");
                });
            }
        });
        bank.check().unwrap();
    }

    #[test]
    fn no_cent_is_lost() {
        beside(Engine::<Silo, Chosen>::serializable(), ART);
        beside(Engine::<TicToc, Chosen>::serializable(), HYDRA);
        beside(Engine::<NoWait, Chosen>::serializable(), ART);
        beside(Engine::<WaitDie, Chosen>::serializable(), HYDRA);
        beside(Engine::<Hekaton, Chosen>::serializable(), ART);
        beside(Engine::<MvRlu, Chosen>::serializable(), HYDRA);
        beside(Global::default(), HYDRA);
        #[cfg(not(archipelago_sim))]
        beside(Engine::<Silo, Chosen>::logged(), HYDRA);
    }

    /// Runs a task of the only client.
    fn run<D: Store>(bank: &SmallBank<D>, task: Task, pause: &dyn Fn()) {
        let Effect { moved, skewed } = bank.db.transact(|tx| bank.run(tx, task, pause)).unwrap();
        bank.moved.fetch_add(moved, Ordering::Relaxed);
        bank.skews.fetch_add(u64::from(skewed), Ordering::Relaxed);
    }

    /// A bank of which customer 1 has as much money as at the beginning, and a past of overdrafts and penalties.
    fn with_a_past(isolation: Isolation) -> SmallBank<Engine<Silo, Chosen>> {
        let bank = ART.within(|| SmallBank::load(Engine::at(isolation), 2));
        for task in [Task::WriteCheck(1, 3 * FIRST), Task::WriteCheck(1, 0)] {
            run(&bank, task, &|| ());
            assert_eq!(bank.check_at(isolation), Ok(0), "the balance is negative after an uncovered check");
        }
        run(&bank, Task::DepositChecking(1, 3 * FIRST + 2 * PENALTY), &|| ());
        run(&bank, Task::WriteCheck(1, 0), &|| ());
        bank
    }

    /// Writes a check for all of a customer's money, and meanwhile withdraws all savings.
    fn check_beside_savings(bank: &SmallBank<Engine<Silo, Chosen>>) {
        let first = Cell::new(true);
        let take = || {
            if first.replace(false) {
                std::thread::scope(|scope| {
                    scope.spawn(|| run(bank, Task::TransactSavings(1, -FIRST), &|| ())).join().unwrap();
                });
            }
        };
        run(bank, Task::WriteCheck(1, 2 * FIRST), &take);
    }

    #[test]
    fn checks_and_savings_skew_under_snapshots_only() {
        let bank = with_a_past(Isolation::Serializable);
        check_beside_savings(&bank);
        assert_eq!(bank.check(), Ok(()));
        let bank = with_a_past(Isolation::Snapshot);
        check_beside_savings(&bank);
        assert_eq!(bank.check_at(Isolation::Snapshot), Ok(1), "what is not promised is counted");
        let wrong = bank.check().unwrap_err();
        assert!(wrong.starts_with("condition 2: 1 times") && wrong.ends_with("customer 1"), "{wrong}");
    }

    /// The check that follows a skew is not covered and changes the row, but sees the skew.
    #[test]
    fn a_later_check_hides_no_skew() {
        let bank = with_a_past(Isolation::Snapshot);
        check_beside_savings(&bank);
        (0..2).for_each(|_| run(&bank, Task::WriteCheck(1, 1), &|| ()));
        assert_eq!(bank.check_at(Isolation::Snapshot), Ok(1), "it is counted once");
        assert!(bank.check().is_err());
    }
}

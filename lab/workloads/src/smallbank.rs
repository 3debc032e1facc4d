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
//! they can overdraw the customer without WriteCheck's penalty. Condition 2 of [`Arena::check`] detects this.

use archipelago_platform::atomic::{AtomicI64, Ordering};
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
    /// How many penalties the customer has paid.
    penalties: u64,
}
plain!(Checking: u64 = |row| row.customer);

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
    /// Deposits less withdrawals, by clients that have ended.
    moved: AtomicI64,
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
                tx.insert(&checking, Checking { customer, cents: FIRST, penalties: 0 })?;
                Ok::<_, Stop>(())
            });
            opened.expect("customers are different");
        }
        Self { db, savings, checking, customers, moved: AtomicI64::new(0) }
    }

    /// Runs a transaction. Returns deposits less withdrawals, in cents. TransactSavings and WriteCheck call `pause`
    /// between their reads and their write.
    ///
    /// # Errors
    /// [`Stop::Wanted`] if the accounts do not cover it; and the store's errors.
    pub fn run(&self, tx: &mut D::Tx<'_>, task: Task, pause: impl FnOnce()) -> Result<i64, Stop> {
        match task {
            Task::Balance(customer) => {
                tx.get(&self.savings, &customer, |row| row.cents)?.expect(THERE);
                tx.get(&self.checking, &customer, |row| row.cents)?.expect(THERE);
                Ok(0)
            }
            Task::DepositChecking(customer, cents) => self.check_in(tx, customer, cents).map(|()| cents),
            Task::TransactSavings(customer, cents) => {
                let saved = tx.get(&self.savings, &customer, |row| row.cents)?.expect(THERE);
                let there = tx.get(&self.checking, &customer, |row| row.cents)?.expect(THERE);
                pause();
                if cents < 0 && (saved + cents < 0 || saved + there + cents < 0) {
                    return Err(Stop::Wanted);
                }
                tx.update(&self.savings, &customer, |row| row.cents += cents)?.expect(THERE);
                Ok(cents)
            }
            Task::Amalgamate(from, to) => {
                let saved = tx.update(&self.savings, &from, |row| core::mem::take(&mut row.cents))?.expect(THERE);
                let there = tx.update(&self.checking, &from, |row| core::mem::take(&mut row.cents))?.expect(THERE);
                if saved + there < 0 {
                    return Err(Stop::Wanted);
                }
                self.check_in(tx, to, saved + there).map(|()| 0)
            }
            Task::WriteCheck(customer, cents) => {
                let saved = tx.get(&self.savings, &customer, |row| row.cents)?.expect(THERE);
                let there = tx.get(&self.checking, &customer, |row| row.cents)?.expect(THERE);
                pause();
                let penalty = if saved + there < cents { PENALTY } else { 0 };
                let write = |row: &mut Checking| {
                    row.cents -= cents + penalty;
                    row.penalties += u64::from(penalty > 0);
                };
                tx.update(&self.checking, &customer, write)?.expect(THERE);
                Ok(-cents - penalty)
            }
            Task::SendPayment(from, to, cents) => {
                let there = tx.get(&self.checking, &from, |row| row.cents)?.expect(THERE);
                if there < cents {
                    return Err(Stop::Wanted);
                }
                tx.update(&self.checking, &from, |row| row.cents -= cents)?.expect(THERE);
                self.check_in(tx, to, cents).map(|()| 0)
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
        self.moved += done.unwrap_or(0);
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
        // Relaxed: the sum is read after the threads were joined.
        self.bank.moved.fetch_add(self.moved, Ordering::Relaxed);
    }
}

impl<D: Store> Arena for SmallBank<D> {
    fn client(&self, thread: usize, seed: u64) -> Box<dyn Client + '_> {
        Box::new(Teller { bank: self, random: Random::new(seed, thread + 1), moved: 0 })
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["balance", "deposit-checking", "transact-savings", "amalgamate", "write-check", "send-payment"]
    }

    /// Checks two conditions. (1) The money in all accounts is the money at the beginning plus deposits less
    /// withdrawals. (2) A customer whose balance is negative has paid a penalty, since only an uncovered check
    /// overdraws.
    fn check(&self) -> Result<(), String> {
        let (mut sum, mut overdrawn) = (0, None);
        let shown = self.db.view(|view| {
            let mut accounts = Vec::new();
            view.scan(&self.checking, .., Way::Up, |row| {
                accounts.push(row.clone());
                true
            })?;
            for Checking { customer, cents, penalties } in accounts {
                let saved = view.get(&self.savings, &customer, |row| row.cents)?.expect(THERE);
                sum += saved + cents;
                if saved + cents < 0 && penalties == 0 {
                    overdrawn = Some(customer);
                }
            }
            Ok::<_, Stop>(())
        });
        shown.expect("a view meets no conflicts");
        let expected = 2 * FIRST * self.customers as i64 + self.moved.load(Ordering::Relaxed);
        if sum != expected {
            return Err(format!("condition 1: there are {sum} cents, and must be {expected}"));
        }
        overdrawn
            .map_or(Ok(()), |it| Err(format!("condition 2: customer {it} has less than nothing without a penalty")))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use archipelago_txn::{Isolation, Silo, TicToc, on};

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
        beside(Global::default(), HYDRA);
        #[cfg(not(archipelago_sim))]
        beside(Engine::<Silo, Chosen>::logged(), HYDRA);
    }

    /// Writes a check for all of a customer's money, and meanwhile withdraws all savings.
    fn check_beside_savings(isolation: Isolation) -> Result<(), String> {
        let bank = ART.within(|| SmallBank::load(Engine::<Silo, Chosen>::at(isolation), 2));
        let run = |task, pause: &dyn Fn()| {
            let done = bank.db.transact(|tx| bank.run(tx, task, pause)).unwrap();
            bank.moved.fetch_add(done, Ordering::Relaxed);
        };
        let first = Cell::new(true);
        let take = || {
            if first.replace(false) {
                std::thread::scope(|scope| {
                    let take = || bank.db.transact(|tx| bank.run(tx, Task::TransactSavings(1, -FIRST), || ()));
                    let done = scope.spawn(take).join().unwrap().unwrap();
                    bank.moved.fetch_add(done, Ordering::Relaxed);
                });
            }
        };
        run(Task::WriteCheck(1, 2 * FIRST), &take);
        bank.check()
    }

    #[test]
    fn checks_and_savings_skew_under_snapshots_only() {
        assert_eq!(check_beside_savings(Isolation::Serializable), Ok(()));
        let wrong = check_beside_savings(Isolation::Snapshot).unwrap_err();
        assert!(wrong.starts_with("condition 2"), "{wrong}");
    }
}

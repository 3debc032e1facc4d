//! A bank whose books reveal lost transactions. Every transaction inserts a move (a transfer), and each account counts
//! the moves in which it took part. After a recovery the accounts are compared with the recovered moves.

use std::collections::BTreeMap;

use archipelago_txn::{Database, Error, Index, Opening, Row, Scheme, Table, Tx, on};
use serde::{Deserialize, Serialize};

/// The number of accounts. Accounts may be overdrawn, and the sum of their money is 0. No transfer takes all money of
/// account 0, the bank's own.
pub const ACCOUNTS: u64 = 6;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Account {
    pub id: u64,
    pub cents: i64,
    /// The number of moves in which the account took part.
    pub moves: u64,
    /// A text whose length varies.
    pub note: String,
}

impl Row for Account {
    type Key = u64;
    type Map = on::Art;
    type Indexes = (ByCents,);
    fn key(&self) -> u64 {
        self.id
    }
}

pub struct ByCents;

impl Index for ByCents {
    type Row = Account;
    type Key = i64;
    type Map = on::BLinkTree;
    fn key(row: &Account) -> i64 {
        row.cents
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Move {
    pub number: (u64, u64),
    pub from: u64,
    pub to: u64,
    pub cents: i64,
    /// For each of the two accounts, the number of earlier moves in which it had taken part.
    pub seen: (u64, u64),
}

impl Row for Move {
    type Key = (u64, u64);
    type Map = on::HydraList;
    type Indexes = (ByFrom,);
    fn key(&self) -> (u64, u64) {
        self.number
    }
}

pub struct ByFrom;

impl Index for ByFrom {
    type Row = Move;
    type Key = (u64, (u64, u64));
    type Map = on::Art;
    const UNIQUE: bool = true;
    fn key(row: &Move) -> (u64, (u64, u64)) {
        (row.from, row.number)
    }
}

pub struct Bank<S: Scheme> {
    pub accounts: Table<Account, S>,
    pub moves: Table<Move, S>,
}

impl<S: Scheme> Bank<S> {
    pub fn declare(opening: &mut Opening<S>) -> Self {
        Self { accounts: opening.table("accounts"), moves: opening.table("moves") }
    }

    /// Returns an account. If it was never opened or is closed, it has no money, and its count of moves is computed
    /// from the moves.
    fn account(&self, tx: &mut Tx<'_, S>, id: u64) -> Result<Account, Error> {
        if let Some(row) = tx.get(&self.accounts, &id)? {
            return Ok(row.clone());
        }
        // Counts the account's moves.
        let rows = tx.range(&self.moves, ..).collect::<Result<Vec<_>, _>>()?;
        let moves = rows.iter().filter(|row| row.from == id || row.to == id).count() as u64;
        Ok(Account { id, cents: 0, moves, note: String::new() })
    }

    /// Makes the move `number` of `teller`. These two numbers determine the accounts and the amount. If `closing`, some
    /// moves take all money of an account, and accounts without money are closed.
    pub fn transfer(&self, tx: &mut Tx<'_, S>, teller: u64, number: u64, closing: bool) -> Result<(), Error> {
        let mix = (teller * 31 + number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let (from, step) = (mix % ACCOUNTS, 1 + (mix >> 8) % (ACCOUNTS - 1));
        let to = (from + step) % ACCOUNTS;
        let (mut source, mut sink) = (self.account(tx, from)?, self.account(tx, to)?);
        let all = closing && from != 0 && !mix.is_multiple_of(3);
        let cents = if all { source.cents } else { (mix >> 16) as i64 % 100 };
        let seen = (source.moves, sink.moves);
        tx.insert(&self.moves, Move { number: (teller, number), from, to, cents, seen })?;
        for (account, change) in [(&mut source, -cents), (&mut sink, cents)] {
            account.cents += change;
            account.moves += 1;
            account.note = "x".repeat((number * 7 % 90) as usize);
            if closing && account.cents == 0 {
                tx.remove(&self.accounts, &account.id)?;
            } else {
                tx.upsert(&self.accounts, account.clone())?;
            }
        }
        Ok(())
    }

    /// Checks the books. Returns the numbers of the moves of each teller.
    pub fn audit(&self, db: &Database<S>) -> BTreeMap<u64, Vec<u64>> {
        let view = db.snapshot();
        let mut accounts: BTreeMap<u64, (i64, u64)> = BTreeMap::new();
        let mut tellers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for row in view.range(&self.moves, ..) {
            tellers.entry(row.number.0).or_default().push(row.number.1);
            for (id, change, number) in [(row.from, -row.cents, row.seen.0), (row.to, row.cents, row.seen.1)] {
                let account = accounts.entry(id).or_default();
                *account = (account.0 + change, account.1 + 1);
                seen.entry(id).or_default().push(number);
            }
        }
        for (id, mut numbers) in seen {
            numbers.sort_unstable();
            let all: Vec<u64> = (0..numbers.len() as u64).collect();
            assert_eq!(numbers, all, "account {id}: a move is there without one that it has seen, or twice");
        }
        for id in 0..ACCOUNTS {
            let (cents, moves) = accounts.get(&id).copied().unwrap_or_default();
            match view.get(&self.accounts, &id) {
                Some(row) => assert_eq!((row.cents, row.moves), (cents, moves), "account {id}"),
                None => assert_eq!(cents, 0, "account {id} is missing"),
            }
        }
        let rows: Vec<&Account> = view.range(&self.accounts, ..).collect();
        assert_eq!(rows.iter().map(|row| row.cents).sum::<i64>(), 0);
        let by_cents: Vec<&Account> = view.range_by::<ByCents>(&self.accounts, ..).collect();
        assert!(by_cents.is_sorted_by_key(|row| row.cents));
        let mut again = by_cents.clone();
        again.sort_unstable_by_key(|row| row.id);
        assert_eq!(again, rows, "the index and the rows");
        let moves = view.range(&self.moves, ..).count();
        assert_eq!(view.range_by::<ByFrom>(&self.moves, ..).count(), moves);
        tellers
    }
}

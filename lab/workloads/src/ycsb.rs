//! YCSB's transactions as in DBx1000: sixteen requests each, on keys drawn by Zipf's law. A request updates or reads
//! one column, or one word of it. In a variant with reports, one transaction in a thousand reads the whole table.

use core::hint::black_box;

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_txn::Isolation;
use archipelago_txn::on::Kind;
use serde::{Deserialize, Serialize};

use crate::arena::{Arena, Client, Turn};
use crate::random::{Random, Zipf};
use crate::record::{Record, bytes};
use crate::store::{Read, Stop, Store, Way, Write};

/// Requests of a transaction.
pub const REQUESTS: usize = 16;

/// With reports, one transaction in this many is a report.
const REPORT_EVERY: u64 = 1000;

/// A row of `C` columns of 100 bytes. The first eight bytes of each column count its updates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct User<const C: usize> {
    key: u64,
    #[serde(with = "bytes")]
    columns: [[u8; 100]; C],
}

impl<const C: usize> User<C> {
    fn count(&self, column: usize) -> u64 {
        u64::from_le_bytes(self.columns[column][..8].try_into().expect("eight bytes"))
    }

    fn add(&mut self, column: usize) {
        let count = self.count(column) + 1;
        self.columns[column][..8].copy_from_slice(&count.to_le_bytes());
    }
}

impl<const C: usize> Record for User<C> {
    type Key = u64;
    type Second = u8;
    type Indexes<M: Kind> = ();
    fn key(&self) -> u64 {
        self.key
    }
    fn second(&self) -> u8 {
        0
    }
}

/// The workload's settings.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The number of rows.
    pub rows: u64,
    /// Zipf's exponent.
    pub theta: f64,
    /// Percentage of requests that update.
    pub updates: u32,
    /// How reports read the whole table.
    pub reports: Reports,
    /// Which keys are popular, and what a request reads.
    pub requests: Requests,
}

/// Which keys are popular, and what a request reads of a row. (An update always changes one word.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// Popular keys are scattered over all keys. A request adds up the 100 bytes of a column.
    Columns,
    /// As in DBx1000: the key of rank `r` is `r`, so popular rows are neighbours. A request reads one word.
    Words,
    /// As [`Words`](Self::Words); each transaction first asks for all of its rows together, by [`Read::will_use`].
    Together,
}

/// How reports, one in a thousand transactions, read the whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// There are no reports.
    None,
    /// In a transaction.
    Transactions,
    /// In a view of one moment, [`Store::view`].
    Views,
}

/// The table.
pub struct Ycsb<D: Store, const C: usize> {
    db: D,
    table: D::Table<User<C>>,
    load: Load,
    zipf: Zipf,
    /// Updates that were committed by clients that have ended. Padded, because the others read the other fields.
    updated: CachePadded<AtomicU64>,
}

impl<D: Store, const C: usize> Ycsb<D, C> {
    /// Loads the rows into an empty store.
    pub fn load(db: D, load: Load) -> Self {
        let table = db.table();
        for from in (0..load.rows).step_by(100) {
            let inserted = db.transact(|tx| {
                for key in from..load.rows.min(from + 100) {
                    let mut columns = [[b'x'; 100]; C];
                    columns.iter_mut().for_each(|column| column[..8].fill(0));
                    tx.insert(&table, User { key, columns })?;
                }
                Ok::<_, Stop>(())
            });
            inserted.expect("keys are different");
        }
        Self { db, table, load, zipf: Zipf::new(load.rows, load.theta), updated: CachePadded::default() }
    }
}

/// A request.
#[derive(Clone, Copy)]
struct Request {
    key: u64,
    column: usize,
    updates: bool,
}

struct Session<'y, D: Store, const C: usize> {
    ycsb: &'y Ycsb<D, C>,
    random: Random,
    updated: u64,
}

impl<D: Store, const C: usize> Session<'_, D, C> {
    fn requests(&mut self) -> Turn {
        let Self { ycsb, random, .. } = self;
        let requests: [Request; REQUESTS] = core::array::from_fn(|_| {
            let key = match ycsb.load.requests {
                Requests::Columns => ycsb.zipf.key(random),
                Requests::Words | Requests::Together => ycsb.zipf.draw(random),
            };
            let column = if C == 1 { 0 } else { random.within(0, C as u64 - 1) as usize };
            Request { key, column, updates: random.percent(ycsb.load.updates) }
        });
        let updates = requests.iter().filter(|request| request.updates).count() as u64;
        let mut begun = 0;
        let body = |tx: &mut D::Tx<'_>| {
            begun += 1;
            if ycsb.load.requests == Requests::Together {
                tx.will_use(&ycsb.table, &requests.map(|request| request.key))?;
            }
            let mut sum = 0;
            for Request { key, column, updates } in requests {
                if updates {
                    tx.update(&ycsb.table, &key, |row| row.add(column))?;
                } else {
                    let read = |row: &User<C>| match ycsb.load.requests {
                        Requests::Columns => row.columns[column].iter().map(|byte| u64::from(*byte)).sum(),
                        Requests::Words | Requests::Together => row.count(column),
                    };
                    sum += tx.get(&ycsb.table, &key, read)?.unwrap_or(0);
                }
            }
            Ok::<_, Stop>(sum)
        };
        let done = if updates > 0 { ycsb.db.transact(body) } else { ycsb.db.transact_read(body) };
        black_box(done.expect("nothing but conflicts is in the way"));
        self.updated += updates;
        Turn { kind: 0, begun, writes: updates > 0, rolled_back: false }
    }

    fn report(&mut self) -> Turn {
        let Ycsb { db, table, load, .. } = self.ycsb;
        let mut begun = 0;
        let done = match load.reports {
            Reports::Views => {
                begun = 1;
                db.view(|view| count(view, table))
            }
            _ => db.transact_read(|tx| {
                begun += 1;
                count(tx, table)
            }),
        };
        assert_eq!(done, Ok(load.rows), "a report is of the whole table");
        Turn { kind: 1, begun, writes: false, rolled_back: false }
    }
}

/// Reads the whole table, one byte of each row. Returns how many of these bytes still have the value with which they
/// were loaded. All of them must, since no update changes this byte.
fn count<D: Store, const C: usize>(read: &mut impl Read<D>, table: &D::Table<User<C>>) -> Result<u64, Stop> {
    let mut rows = 0;
    read.scan(table, .., Way::Up, |row| {
        rows += u64::from(black_box(row).columns[0][8] == b'x');
        true
    })?;
    Ok(rows)
}

impl<D: Store, const C: usize> Client for Session<'_, D, C> {
    fn turn(&mut self) -> Turn {
        let reports = self.ycsb.load.reports != Reports::None;
        if reports && self.random.within(1, REPORT_EVERY) == 1 { self.report() } else { self.requests() }
    }
}

impl<D: Store, const C: usize> Drop for Session<'_, D, C> {
    fn drop(&mut self) {
        // Relaxed: the sum is read after the threads were joined.
        self.ycsb.updated.fetch_add(self.updated, Ordering::Relaxed);
    }
}

impl<D: Store, const C: usize> Arena for Ycsb<D, C> {
    fn client(&self, thread: usize, seed: u64) -> Box<dyn Client + '_> {
        Box::new(Session { ycsb: self, random: Random::new(seed, thread + 1), updated: 0 })
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["requests", "report"]
    }

    /// Checks that all rows are present, and that their counts of updates add up to the number of committed updates.
    fn check_at(&self, _: Isolation) -> Result<u64, String> {
        let (mut rows, mut counted) = (0, 0);
        let shown = self.db.view(|view| {
            view.scan(&self.table, .., Way::Up, |row| {
                rows += 1;
                counted += (0..C).map(|column| row.count(column)).sum::<u64>();
                true
            })
        });
        shown.expect("a view meets no conflicts");
        let updated = self.updated.load(Ordering::Relaxed);
        if (rows, counted) == (self.load.rows, updated) {
            return Ok(0);
        }
        Err(format!("{counted} updates in {rows} rows, where {updated} were committed in {}", self.load.rows))
    }
}

#[cfg(test)]
mod tests {
    use archipelago_txn::{Hekaton, Isolation, MvRlu, NoWait, Silo, TicToc, WaitDie, on};

    use super::*;
    use crate::chosen::{Choice, Chosen};
    use crate::{Engine, Global};

    fn beside<D: Store, const C: usize>(db: D, map: Choice, reports: Reports) -> u64 {
        requesting::<D, C>(db, map, reports, Requests::Columns)
    }

    fn requesting<D: Store, const C: usize>(db: D, map: Choice, reports: Reports, requests: Requests) -> u64 {
        let load = Load { rows: 2000, theta: 0.9, updates: 20, reports, requests };
        let ycsb = map.within(|| Ycsb::<D, C>::load(db, load));
        let turns = std::thread::scope(|scope| {
            let run = |thread| {
                let mut client = ycsb.client(thread, 3);
                (0..2000).map(|_| client.turn().kind as u64).sum::<u64>()
            };
            let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || run(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        ycsb.check().unwrap();
        turns
    }

    #[test]
    fn no_update_is_lost() {
        let [hydra, euno, art] =
            [Choice::of::<on::HydraList>(), Choice::of::<on::EunoBTree>(), Choice::of::<on::Art>()];
        let reports = beside::<_, 1>(Engine::<Silo, Chosen>::serializable(), hydra, Reports::Transactions);
        assert!(reports > 0, "none of 6000 was a report");
        assert_eq!(reports, beside::<_, 10>(Engine::<TicToc, Chosen>::serializable(), euno, Reports::Views));
        let snapshots = Engine::<Silo, Chosen>::at(Isolation::Snapshot);
        assert_eq!(reports, beside::<_, 1>(snapshots, art, Reports::Transactions));
        assert_eq!(reports, beside::<_, 1>(Engine::<NoWait, Chosen>::serializable(), art, Reports::Views));
        assert_eq!(reports, beside::<_, 1>(Engine::<WaitDie, Chosen>::serializable(), hydra, Reports::Transactions));
        assert_eq!(reports, beside::<_, 1>(Engine::<Hekaton, Chosen>::serializable(), art, Reports::Transactions));
        assert_eq!(reports, beside::<_, 1>(Engine::<MvRlu, Chosen>::serializable(), euno, Reports::Transactions));
        assert_eq!(reports, beside::<_, 1>(Global::default(), hydra, Reports::Transactions));
        for requests in [Requests::Words, Requests::Together] {
            let silo = Engine::<Silo, Chosen>::serializable();
            assert_eq!(reports, requesting::<_, 1>(silo, hydra, Reports::Transactions, requests));
            assert_eq!(reports, requesting::<_, 10>(Global::default(), hydra, Reports::Transactions, requests));
        }
    }
}

//! YCSB-like transactions: 16 requests each, some of them updates, on rows that are chosen by a Zipf distribution.
//!
//!     cargo run --release -p archipelago-txn --example ycsb -- SECONDS THREADS UPDATES% THETA ROWS
//!
//! Runs all schemes, one after the other. Prints thousands of transactions a second in three settings: rows are read
//! one by one; rows are read together (`get_many`) before they are read one by one; and rows are read one by one while
//! a snapshot scans all rows.

use std::time::{Duration, Instant};

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::thread;
use archipelago_txn::{Database, Error, Hekaton, MvRlu, NoWait, Row, Scheme, Silo, Table, TicToc, WaitDie, on};

#[derive(Clone)]
struct Record {
    key: u64,
    column: [u8; 100],
}

impl Row for Record {
    type Key = u64;
    type Map = on::HydraList;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.key
    }
}

#[derive(Clone, Copy)]
struct Setting {
    time: Duration,
    threads: u64,
    updates: u64,
    theta: f64,
    rows: u64,
    together: bool,
}

/// Draws numbers below `n` by a Zipf distribution (Gray et al., Quickly Generating Billion-Record Synthetic Databases,
/// 1994).
#[derive(Clone, Copy)]
struct Zipf {
    n: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(n: u64, theta: f64) -> Self {
        let zeta = |n: u64| (1..=n).map(|i| (i as f64).powf(-theta)).sum::<f64>();
        let all = zeta(n);
        let eta = (1.0 - (2.0 / n as f64).powf(1.0 - theta)) / (1.0 - zeta(2) / all);
        Self { n: n as f64, theta, zeta: all, eta }
    }

    fn draw(&self, uniform: f64) -> u64 {
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            (self.n * (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - self.theta))) as u64
        }
    }
}

fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Runs transactions in one thread until `over` is set.
fn client<S: Scheme>(
    db: &Database<S>,
    table: &Table<Record, S>,
    setting: Setting,
    zipf: Zipf,
    seed: u64,
    over: &AtomicBool,
) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut done = 0;
    while !over.load(Ordering::Relaxed) {
        let requests: [(u64, bool); 16] = std::array::from_fn(|_| {
            let key = zipf.draw((next(&mut state) >> 11) as f64 / (1_u64 << 53) as f64);
            // Frequent numbers are scattered over the keys.
            (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) % setting.rows, next(&mut state) % 100 < setting.updates)
        });
        let sum = db.transact(|tx| {
            let mut sum = 0;
            if setting.together {
                tx.get_many(table, &requests.map(|(key, _)| key))?;
            }
            for (key, update) in requests {
                if update {
                    tx.update(table, &key, |row| row.column[0] = row.column[0].wrapping_add(1))?;
                } else if let Some(row) = tx.get(table, &key)? {
                    sum += u64::from(row.column[1]);
                }
            }
            Ok::<_, Error>(sum)
        });
        std::hint::black_box(sum.expect("only conflicts are in the way"));
        done += 1;
    }
    done
}

fn measure<S: Scheme>(setting: Setting, zipf: Zipf) {
    let db = Database::<S>::new();
    let table = db.table::<Record>();
    for key in 0..setting.rows {
        let inserted = db.transact(|tx| tx.insert(&table, Record { key, column: [1; 100] }));
        inserted.expect("keys are different");
    }
    for (together, scans) in [(false, false), (true, false), (false, true)] {
        let setting = Setting { together, ..setting };
        let over = AtomicBool::new(false);
        let (done, scanned) = (AtomicU64::new(0), AtomicU64::new(0));
        let start = Instant::now();
        thread::scope(|scope| {
            for thread in 0..setting.threads {
                let (db, table, over, done) = (&db, &table, &over, &done);
                scope.spawn(move || {
                    let mine = client(db, table, setting, zipf, thread + 1, over);
                    done.fetch_add(mine, Ordering::Relaxed);
                });
            }
            if scans {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let rows = db.snapshot().range(&table, ..).count() as u64;
                        assert_eq!(rows, setting.rows);
                        scanned.fetch_add(rows, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(setting.time);
            over.store(true, Ordering::Relaxed);
        });
        let seconds = start.elapsed().as_secs_f64();
        let thousands = |count: AtomicU64| count.into_inner() as f64 / seconds / 1e3;
        let (done, scanned) = (thousands(done), thousands(scanned));
        let how = match (together, scans) {
            (true, _) => ", rows asked for together".into(),
            (_, true) => format!(", beside scans of {scanned:.0} thousand rows/s"),
            _ => String::new(),
        };
        println!("{:13} {done:8.1} thousand transactions/s{how}", S::NAME);
    }
}

fn main() {
    let arguments: Vec<f64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let argument = |at: usize, usual: f64| arguments.get(at).copied().unwrap_or(usual);
    let setting = Setting {
        time: Duration::from_secs_f64(argument(0, 1.0)),
        threads: argument(1, 2.0) as u64,
        updates: argument(2, 20.0) as u64,
        theta: argument(3, 0.7),
        rows: (argument(4, 100_000.0) as u64).max(2),
        together: false,
    };
    let zipf = Zipf::new(setting.rows, setting.theta);
    measure::<Silo>(setting, zipf);
    measure::<TicToc>(setting, zipf);
    measure::<NoWait>(setting, zipf);
    measure::<WaitDie>(setting, zipf);
    measure::<Hekaton>(setting, zipf);
    measure::<MvRlu>(setting, zipf);
}

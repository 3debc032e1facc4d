//! Rows that own much memory on the heap: replaced rows are freed as soon as rows of the same size without such memory.

use std::sync::Mutex;
use std::thread;

use archipelago_check::hostile::{alone, limit};
use archipelago_check::watchdog::watchdog;
use archipelago_txn::{Database, Row, Scheme, on};

use super::{HEAP, settled};

const OWNED: usize = 64 << 10;
const ROWS: u64 = 20;
const THREADS: u64 = 3;

#[derive(Clone)]
struct Owner {
    key: u64,
    text: Vec<u8>,
}

impl Row for Owner {
    type Key = u64;
    type Map = on::Art;
    type Indexes = ();
    fn key(&self) -> u64 {
        self.key
    }
    fn heap_bytes(&self) -> usize {
        self.text.capacity()
    }
}

super::by_every_scheme! {
    rows_that_own_much_memory_are_freed: updates_in_turns;
}

/// Updates. (A thread that is descheduled in a transaction delays the garbage of all threads, so the threads take
/// turns.)
fn updates_in_turns<S: Scheme>() {
    let _alone = alone();
    watchdog(limit(), |_| {
        let before = HEAP.bytes();
        let db = Database::<S>::new();
        let table = db.table::<Owner>();
        let row = |key| Owner { key, text: vec![1; OWNED] };
        db.transact(|tx| (0..ROWS).try_for_each(|key| tx.insert(&table, row(key)))).expect("keys are different");
        let (live, turn) = (settled(&db) - before, Mutex::new(()));
        let (most, ()) = HEAP.most(|| {
            thread::scope(|scope| {
                let part = |thread: u64| {
                    for key in (0..50 * ROWS).map(|step| (step * THREADS + thread) % ROWS) {
                        let _turn = turn.lock().expect("no panic");
                        assert_eq!(db.transact(|tx| tx.update(&table, &key, |row| row.text[0] ^= 1)), Ok(true));
                    }
                };
                (0..THREADS).for_each(|thread| _ = scope.spawn(move || part(thread)));
            });
        });
        println!("{}: {live} bytes live, {most} more at most", S::NAME);
        assert!(most <= 2 * live, "{most} bytes beside {live} live ones");
    });
}

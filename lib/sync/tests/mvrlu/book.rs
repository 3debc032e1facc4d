//! Transactions on a few objects, recorded for the checker of snapshot isolation and serializability.

use archipelago_check::history::Recorder;
use archipelago_check::snapshot::{Action, Level, Outcome, Txn, check};
use archipelago_platform::sync::Mutex;
use archipelago_platform::thread;
use archipelago_sync::mvrlu::{Abort, ClockKind, Handle, Link, Tx};

/// The number of objects.
pub const OBJECTS: usize = 5;

pub type Object = Link<u64>;
type History = Vec<Txn<usize, u64>>;

/// Draws stamps and records transactions.
pub struct Book {
    /// The domain's clock. With the hardware clock, a snapshot may be slightly newer than the moment at which it began.
    /// So the recorded interval in which the snapshot was taken lasts until its reads and writes have ended.
    clock: ClockKind,
    stamps: Recorder<(), ()>,
    history: Mutex<History>,
}

impl Book {
    pub fn new(clock: ClockKind) -> Self {
        Self { clock, stamps: Recorder::default(), history: Mutex::default() }
    }

    /// Records one attempt at a transaction. `attempt` runs it; `act` makes its reads and writes.
    pub fn record(
        &self,
        thread: usize,
        attempt: impl FnOnce(&mut dyn FnMut(&mut Tx<'_>) -> Result<(), Abort>) -> bool,
        mut act: impl FnMut(&mut Tx<'_>, &mut Vec<Action<usize, u64>>) -> Result<(), Abort>,
    ) {
        let (before, mut begun, mut done) = (self.stamps.stamp(), 0, 0);
        let mut actions = Vec::new();
        let committed = attempt(&mut |tx| {
            begun = self.stamps.stamp();
            let result = act(tx, &mut actions);
            if self.clock == ClockKind::Hardware {
                begun = self.stamps.stamp();
            }
            done = self.stamps.stamp();
            result
        });
        let outcome = if committed { Outcome::Committed } else { Outcome::Aborted };
        let txn = Txn { thread, begin: (before, begun), end: (done, self.stamps.stamp()), outcome, actions };
        self.history.lock().unwrap().push(txn);
    }

    pub fn judge(self, level: Level) -> archipelago_check::linear::Verdict {
        check(level, &self.history.into_inner().unwrap())
    }
}

pub fn read(tx: &Tx<'_>, links: &[Object], at: usize, actions: &mut Vec<Action<usize, u64>>) {
    let value = *tx.get(links[at]);
    // The initial value 0 was written by no thread.
    actions.push(Action::Read(at, (value != 0).then_some(value)));
}

/// Reads some objects, then overwrites some of those that it has read.
pub fn act(
    tx: &mut Tx<'_>,
    links: &[Object],
    actions: &mut Vec<Action<usize, u64>>,
    mut below: impl FnMut(u64) -> u64,
    unique: u64,
) -> Result<(), Abort> {
    let (first, reads) = (below(OBJECTS as u64) as usize, 1 + below(3) as usize);
    let at = |number: usize| (first + number) % OBJECTS;
    (0..reads).for_each(|number| read(tx, links, at(number), actions));
    if below(4) == 0 {
        thread::yield_now();
    }
    for number in 0..below(reads as u64 + 1) as usize {
        let value = unique + number as u64;
        *tx.lock(links[at(number)])? = value;
        actions.push(Action::Write(at(number), value));
    }
    Ok(())
}

/// Makes one attempt by `update_serializable`: only the first attempt runs `body`. Returns whether it committed.
pub fn once_serializable(handle: &mut Handle, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<(), Abort>) -> bool {
    let mut attempts = 0;
    let done = handle.update_serializable(|tx| {
        attempts += 1;
        if attempts == 1 { body(tx) } else { Ok(()) }
    });
    done.unwrap();
    attempts == 1
}

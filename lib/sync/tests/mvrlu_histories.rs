//! Checks recorded transactions of MV-RLU and RLU. All of them must be snapshot-isolated. If serializability is
//! requested, they must be serializable; otherwise write skew must be possible.
#![cfg(not(loom))]

use archipelago_check::snapshot::{Action, Level};
use archipelago_platform::thread;
use archipelago_sync::mvrlu::{Abort, Builder, ClockKind, Collection, Domain, Handle, Tuning, Tx};
use archipelago_sync::rlu;

#[path = "mvrlu/book.rs"]
mod book;

use book::{Book, OBJECTS, Object, act, once_serializable, read};

const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn run(level: Level, clock: ClockKind, alloc: impl Fn() -> Object, register: impl Fn() -> Handle + Sync) {
    for round in 0..scaled(12, 1) as u64 {
        let links: Vec<Object> = (0..OBJECTS).map(|_| alloc()).collect();
        let book = Book::new(clock);
        thread::scope(|scope| {
            for thread in 0..3 {
                let (book, links, register) = (&book, &links, &register);
                scope.spawn(move || {
                    let (mut handle, mut random) = (register(), Random(round * 3 + thread as u64));
                    for number in 1..=scaled(100, 6) as u64 {
                        let unique = (thread as u64 + 1) << 32 | number << 8;
                        let attempt = |body: &mut dyn FnMut(&mut Tx<'_>) -> Result<(), Abort>| match level {
                            Level::Snapshot => handle.try_update(body).is_ok(),
                            Level::Serializable => once_serializable(&mut handle, body),
                        };
                        book.record(thread, attempt, |tx, actions| {
                            act(tx, links, actions, |bound| random.below(bound), unique)
                        });
                    }
                });
            }
        });
        book.judge(level).assert_ok();
        // SAFETY: the test does not use the links any more.
        register().update(|tx| links.iter().try_for_each(|link| unsafe { tx.retire(*link) })).unwrap();
    }
}

fn each_domain(level: Level) {
    let eager = || Domain::builder().tuning(Tuning { low_watermark: 1, dereference_watermark: 8, ..Tuning::default() });
    let mvrlu = |builder: Builder| {
        let domain = builder.build();
        run(level, domain.clock(), || domain.alloc(0), || domain.register());
    };
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        mvrlu(Domain::builder().clock(clock));
        mvrlu(eager().clock(clock));
        mvrlu(eager().clock(clock).collection(Collection::Background));
        for deferred in [0, 3] {
            let domain = rlu::Domain::new(clock, deferred);
            run(level, clock, || domain.alloc(0), || domain.register());
        }
    }
}

#[test]
fn transactions_are_snapshot_isolated() {
    each_domain(Level::Snapshot);
}

#[test]
fn serializable_transactions_are_serializable() {
    each_domain(Level::Serializable);
}

/// Two transactions overlap; each reads both objects and writes one.
fn skewed(domain: &Domain, serializable: bool) -> Book {
    let links = [domain.alloc(0_u64), domain.alloc(0)];
    let (book, mut one, mut two) = (Book::new(ClockKind::Logical), domain.register(), domain.register());
    let withdraw = |tx: &mut Tx<'_>, actions: &mut Vec<Action<usize, u64>>, at: usize| {
        [0, 1].iter().for_each(|number| read(tx, &links, *number, actions));
        *tx.lock(links[at])? = at as u64 + 1;
        actions.push(Action::Write(at, at as u64 + 1));
        Ok(())
    };
    let attempt = |handle: &mut Handle, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<(), Abort>| match serializable {
        true => once_serializable(handle, body),
        false => handle.try_update(body).is_ok(),
    };
    book.record(
        0,
        |body| attempt(&mut one, body),
        |tx, actions| {
            withdraw(tx, actions, 0)?;
            book.record(1, |body| attempt(&mut two, body), |tx, actions| withdraw(tx, actions, 1));
            Ok(())
        },
    );
    // SAFETY: the links are not used any more.
    one.update(|tx| links.iter().try_for_each(|link| unsafe { tx.retire(*link) })).unwrap();
    book
}

#[test]
fn write_skew_is_snapshot_isolated_and_not_serializable() {
    let domain = Domain::new();
    skewed(&domain, false).judge(Level::Snapshot).assert_ok();
    assert!(skewed(&domain, false).judge(Level::Serializable).is_violation());
    skewed(&domain, true).judge(Level::Serializable).assert_ok();
}

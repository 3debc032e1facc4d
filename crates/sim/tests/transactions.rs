//! Hardware transactions: isolation, aborts and their codes.

mod common;

use archipelago_sim::world::htm::{self, Abort};
use archipelago_sim::{Client, Config, Fault, Machine, Outcome, Report, Schedule, run, run_with, world};
use common::{Word, machine};

fn two(body: impl Fn(&[Word; 2], Client)) -> Report {
    run_with(&machine(), &Config::seeded(1), 2, || [0; 2].map(Word::new), body, drop).0.assert_done()
}

/// Lines of one page, hence line `k` in set `k % 64` of the first-level cache.
fn pages(count: usize) -> Vec<Page> {
    (0..count).map(|_| Page([const { Word::new(0) }; 64])).collect()
}

#[repr(align(4096))]
struct Page([Word; 64]);

#[test]
fn increments_are_not_lost() {
    for schedule in [Schedule::VirtualTime, Schedule::Random, Schedule::Pct { depth: 3 }] {
        let config = Config { schedule, ..Config::seeded(5) };
        let body = |words: &[Word; 2], _| {
            for _ in 0..30 {
                while htm::transaction(|| words.iter().for_each(|word| word.set(word.get() + 1))).is_err() {
                    world::work(world::random() % 2000);
                }
            }
        };
        let teardown = |words: [Word; 2]| words.map(|word| word.get());
        let (report, sums) = run_with(&machine(), &config, 6, || [0; 2].map(Word::new), body, teardown);
        assert_eq!((report.outcome, sums), (Outcome::Done, Some([180, 180])));
        assert_eq!(report.stats.tx_committed, 180);
        // PCT changes threads twice only.
        assert!(report.stats.tx_conflicts > 0 || schedule == Schedule::Pct { depth: 3 });
        assert_eq!(report.stats.tx_begun, 180 + report.stats.tx_conflicts + report.stats.tx_spurious);
    }
}

#[test]
fn plain_accesses_conflict_and_see_nothing_uncommitted() {
    let report = two(|[x, y], client| {
        if client.index == 0 {
            let result = htm::transaction(|| {
                x.set(1);
                world::work(10_000);
                y.set(1);
            });
            assert!(result.unwrap_err().is_conflict());
        } else {
            world::work(5_000);
            assert_eq!((x.get(), y.get()), (0, 0));
        }
    });
    assert_eq!((report.stats.tx_conflicts, report.stats.tx_committed), (1, 0));
    // A line that was only read conflicts with writes, and not with reads.
    for writes in [false, true] {
        two(|[x, y], client| {
            if client.index == 0 {
                let result = htm::transaction(|| {
                    x.get();
                    world::work(10_000);
                    y.set(1);
                });
                assert_eq!(result.is_err(), writes);
                assert!(result.err().is_none_or(|why| why.is_conflict() && why.may_retry()));
            } else {
                world::work(5_000);
                if writes { x.set(7) } else { assert_eq!(x.get(), 0) }
            }
        });
    }
}

#[test]
fn a_commit_happens_in_one_instant_and_wakes_spinners() {
    two(|[x, y], client| {
        if client.index == 0 {
            world::work(20_000);
            htm::transaction(|| {
                x.set(1);
                y.set(1);
            })
            .unwrap();
        } else {
            while x.get() == 0 {
                world::spin_hint();
            }
            assert_eq!(y.get(), 1);
        }
    });
}

#[test]
fn writes_must_fit_the_ways_of_a_set() {
    for (lines, fits) in [(8, true), (9, false)] {
        let body = |pages: &Vec<Page>, _| {
            let result = htm::transaction(|| pages[..lines].iter().for_each(|page| page.0[3].set(1)));
            assert_eq!(result.is_ok(), fits, "{lines}");
            assert!(result.err().is_none_or(|why| why.is_capacity() && !why.may_retry()));
            assert_eq!(pages[0].0[3].get(), u64::from(fits));
            // Reads have room elsewhere.
            htm::transaction(|| pages[..lines].iter().map(|page| page.0[3].get()).sum::<u64>()).unwrap();
        };
        run_with(&machine(), &Config::seeded(1), 1, || pages(9), body, drop).0.assert_done();
    }
}

#[test]
fn tiny_capacity_and_certain_aborts() {
    let capacity = Fault::TransactionCapacity { read_lines: 2, write_lines: 1 };
    let config = Config { faults: vec![capacity], ..Config::seeded(1) };
    let body = |pages: &Vec<Page>, _| {
        let words = &pages[0].0;
        let write = |count: usize| htm::transaction(|| words[..count].iter().for_each(|word| word.set(1)));
        let read = |count: usize| htm::transaction(|| words[..count].iter().map(Word::get).sum::<u64>());
        assert!(write(1).is_ok() && read(2).is_ok());
        assert!(write(2).unwrap_err().is_capacity() && read(3).unwrap_err().is_capacity());
    };
    run_with(&machine(), &config, 1, || pages(1), body, drop).0.assert_done();
    for (probability, expected) in [(1.0, 200), (0.5, 100), (0.0, 0)] {
        let config = Config { faults: vec![Fault::AbortTransactions { probability }], ..Config::seeded(1) };
        let body = |word: &Word, _| {
            for _ in 0..200 {
                if let Err(why) = htm::transaction(|| word.set(word.get() + 1)) {
                    assert_eq!(why, Abort(0));
                }
            }
        };
        let (report, sum) = run_with(&machine(), &config, 1, || Word::new(0), body, |word| word.get());
        assert!(report.stats.tx_spurious.abs_diff(expected) < 40, "{}", report.stats.tx_spurious);
        assert_eq!(sum.unwrap(), 200 - report.stats.tx_spurious);
    }
}

#[test]
fn the_program_aborts_with_its_own_code() {
    two(|[x, _], client| {
        if client.index != 0 {
            return;
        }
        let result = htm::transaction(|| {
            x.set(1);
            htm::abort(0x2a);
            unreachable!();
        });
        assert_eq!((result.unwrap_err().code(), x.get()), (Some(0x2a), 0));
        // Nested: the whole of it goes.
        let result: Result<(), Abort> = htm::transaction(|| {
            x.set(1);
            let _ = htm::transaction(|| htm::abort(7));
            unreachable!();
        });
        let why = result.unwrap_err();
        assert_eq!((why.code(), why.0 & Abort::NESTED != 0, x.get()), (Some(7), true, 0));
        assert!(!htm::inside());
    });
}

#[test]
fn waiting_and_the_kernel_abort() {
    two(|[x, _], client| {
        if client.index == 0 {
            for wait in [world::spin_hint, world::yield_now, world::park] {
                let result = htm::transaction(|| {
                    x.set(1);
                    wait();
                });
                assert_eq!((result, x.get()), (Err(Abort(0)), 0));
            }
        }
    });
}

#[test]
fn a_body_may_ask_whether_it_is_doomed() {
    two(|[x, y], client| {
        if client.index == 0 {
            htm::begin().unwrap();
            x.set(1);
            world::work(10_000);
            assert_eq!(x.get(), 7, "what is there, not what was written");
            assert!(htm::doomed());
            y.set(1);
            assert!(htm::end().unwrap_err().is_conflict());
            assert_eq!((x.get(), y.get()), (7, 0));
        } else {
            world::work(5_000);
            x.set(7);
        }
    });
}

#[test]
fn a_panic_undoes_what_the_transaction_did() {
    let (report, sum) = run_with(
        &machine(),
        &Config::seeded(1),
        1,
        || Word::new(0),
        |word, _| {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                htm::transaction(|| {
                    word.set(1);
                    panic!("inside");
                })
            }));
            assert!(result.is_err() && !htm::inside());
        },
        |word| word.get(),
    );
    assert_eq!((report.outcome, sum), (Outcome::Done, Some(0)));
}

#[test]
fn machines_without_transactions_say_so() {
    let machine = Machine::preset("epyc-2s-chiplets").unwrap();
    run(&machine, &Config::seeded(1), 1, |_| {
        assert!(!htm::available());
        assert_eq!(htm::transaction(|| unreachable!()), Err::<(), _>(Abort(0)));
    })
    .assert_done();
    assert!(!htm::available() && htm::begin().is_err());
}

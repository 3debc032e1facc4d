//! Tests of hardware transactions: isolation, aborts and their codes.

mod common;

#[path = "transactions/aborts.rs"]
mod aborts;
#[path = "transactions/undone.rs"]
mod undone;

use std::cell::Cell;

use archipelago_sim::world::htm::{self, Abort};
use archipelago_sim::{
    Client, Config, Fault, Machine, Outcome, Placement, Point, Report, Schedule, run, run_with, world,
};
use common::{Word, machine};

fn two(body: impl Fn(&[Word; 2], Client)) -> Report {
    run_with(&machine(), &Config::seeded(1), 2, || [0; 2].map(Word::new), body, drop).0.assert_done()
}

/// Makes pages; line `k` of a page is in set `k % 64` of the first-level cache.
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
        // This schedule of probabilistic concurrency testing (PCT) switches threads only twice.
        assert!(report.stats.tx_conflicts > 0 || schedule == Schedule::Pct { depth: 3 });
        assert_eq!(report.stats.tx_begun, 180 + report.stats.tx_aborts());
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
    // A line that was only read conflicts with writes, but not with reads.
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

/// Also without virtual time, as in set-up and tear-down, a write aborts the transaction of another thread that has read
/// the line.
#[test]
fn untimed_accesses_conflict() {
    let report = two(|[x, y], client| {
        if client.index == 0 {
            let result = htm::transaction(|| {
                x.get();
                world::work(10_000);
                y.set(1);
            });
            assert!(result.unwrap_err().is_conflict());
        } else {
            world::sleep(5_000);
            world::untimed(|| x.set(7));
        }
    });
    assert_eq!((report.stats.tx_conflicts, report.stats.tx_committed), (1, 0));
}

#[test]
fn a_commit_happens_in_one_instant_and_wakes_spinners() {
    two(|[x, y], client| {
        if client.index == 0 {
            world::work(20_000);
            // The other thread's read of `x` may happen while `y` is being fetched.
            let once = || {
                htm::transaction(|| {
                    x.set(1);
                    y.set(1);
                })
            };
            once().or_else(|_| once()).unwrap();
        } else {
            while x.get() == 0 {
                world::spin_hint();
            }
            assert_eq!(y.get(), 1);
        }
    });
}

/// Tests that a conflict is noticed even where the simulator serves a plain load together with the preceding load of
/// the same line, without another request for the line.
#[test]
fn a_load_made_together_with_another_sees_nothing_uncommitted() {
    let report = two(|words, client| {
        for turn in 0..3_000 {
            if client.index == 0 {
                let _ = htm::transaction(|| {
                    words[0].set(turn << 1 | 1);
                    world::work(turn % 300);
                    words[0].set(turn << 1);
                });
                world::work(turn % 70);
            } else {
                // Loads in succession, as fast as possible.
                for _ in 0..6 {
                    assert_eq!(words[0].get() & 1, 0, "an uncommitted value");
                }
                world::work(150);
            }
        }
    });
    assert!(report.stats.tx_conflicts > 50 && report.stats.tx_committed > 50, "{:?}", report.stats);
}

#[test]
fn threads_that_spin_on_a_line_abort_who_writes_it() {
    for schedule in [Schedule::VirtualTime, Schedule::Random] {
        let body = |[flag, other]: &[Word; 2], client: Client| {
            if client.index == 0 {
                world::sleep(30_000);
                let result = htm::transaction(|| {
                    flag.set(1);
                    // The loop is so long that the spinning thread loads the flag again.
                    (0..2_000).for_each(|_| _ = other.get());
                });
                assert!(result.unwrap_err().is_conflict());
                flag.set(2);
            } else {
                while flag.get() == 0 {
                    world::spin_hint();
                }
                assert_eq!(flag.get(), 2);
            }
        };
        let config = Config { schedule, ..Config::seeded(1) };
        run_with(&machine(), &config, 2, || [0; 2].map(Word::new), body, drop).0.assert_done();
    }
}

/// A commit waits for the lines that the transaction has written. Meanwhile other threads may request the lines that it
/// already has.
#[test]
fn a_commit_waits_for_its_stores() {
    // Runs a transaction that writes a line that its core has, and then a line of another socket. Returns the time from
    // its begin to its end, and how it ended. If `reads`, a third thread reads the first written line meanwhile.
    let attempt = |reads: bool| {
        let (took, conflicts) = (Cell::new(0), Cell::new(0));
        let body = |[near, far]: &[Word; 2], client: Client| match client.index {
            0 => {
                near.set(1);
                world::sleep(20_000);
                let began = world::now();
                let result = htm::transaction(|| {
                    near.set(2);
                    far.set(2);
                });
                took.set(world::now() - began);
                conflicts.set(u64::from(result.is_err_and(Abort::is_conflict)));
            }
            1 => far.set(1),
            _ if reads => {
                world::sleep(20_060);
                let seen = near.get();
                assert!(seen == 1 || conflicts.get() == 0, "saw {seen}");
            }
            _ => {}
        };
        let config = Config { placement: Placement::Spread, ..Config::seeded(1) };
        run_with(&machine(), &config, 3, || [0; 2].map(Word::new), body, drop).0.assert_done();
        (took.get(), conflicts.get())
    };
    let fetched = machine().latency.dirty_remote[1] as u64;
    let (took, conflicts) = attempt(false);
    assert!(took >= fetched && conflicts == 0, "{took} ns for a line {fetched} ns away");
    assert_eq!(attempt(true).1, 1);
}

#[test]
fn transactions_are_counted_by_place_code_and_line() {
    let setup = || {
        let words: Vec<Word> = (0..2).map(Word::new).collect();
        world::label((&raw const words[0]).cast(), 64, "the word");
        words
    };
    let body = |words: &Vec<Word>, client: Client| {
        let x = &words[0];
        for turn in 0..100 {
            if client.index == 0 {
                let _ = htm::transaction(|| x.set(x.get() + 1));
            } else {
                let result = htm::transaction(|| {
                    x.set(x.get() + 1);
                    if turn % 2 == 0 {
                        htm::abort(turn as u8 % 4);
                    }
                });
                assert!(turn % 2 != 0 || result.is_err());
            }
        }
    };
    let report = run_with(&machine(), &Config::seeded(1), 2, setup, body, drop).0.assert_done();
    let [first, second] = &report.tx_sites[..] else { panic!("{:?}", report.tx_sites) };
    for site in [first, second] {
        assert_eq!((&*site.file, site.counts.begun), ("lab/sim/tests/transactions.rs", 100));
        assert_eq!(site.counts.begun, site.counts.committed + site.counts.aborts());
    }
    assert!(first.line < second.line && first.codes.is_empty());
    let codes: Vec<u8> = second.codes.iter().map(|code| code.0).collect();
    assert_eq!(codes, [0, 2]);
    assert_eq!(second.codes.iter().map(|code| code.1).sum::<u64>(), second.counts.explicit);
    assert_eq!(first.counts.wasted_ps + second.counts.wasted_ps, report.stats.tx_wasted_ps);
    let [line] = &report.tx_lines[..] else { panic!("{:?}", report.tx_lines) };
    assert_eq!((line.label, line.aborts), ("the word", report.stats.tx_conflicts));
}

/// A thread loads a line, runs a transaction, and loads another line. Then it reaches the end of a spin loop's turn,
/// where it does not wait, since the first line changed during the transaction.
#[test]
fn what_changes_during_a_transaction_ends_a_wait() {
    let report = two(|[flag, other], client| {
        if client.index == 1 {
            world::work(5_000);
            return flag.set(1);
        }
        while flag.get() == 0 {
            _ = htm::transaction(|| world::work(10_000));
            other.get();
            world::spin_hint();
        }
    });
    assert_eq!(report.stats.spin_waits, 0);
}

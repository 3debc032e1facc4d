//! Tests the causes of aborts, and their codes.

use super::*;

#[test]
fn writes_must_fit_the_ways_of_a_set() {
    for (lines, fits) in [(8, true), (9, false)] {
        let body = |pages: &Vec<Page>, _| {
            let result = htm::transaction(|| pages[..lines].iter().for_each(|page| page.0[3].set(1)));
            assert_eq!(result.is_ok(), fits, "{lines}");
            assert!(result.err().is_none_or(|why| why.is_capacity() && !why.may_retry()));
            assert_eq!(pages[0].0[3].get(), u64::from(fits));
            // Reads fit in other caches.
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
        // Nested: the whole transaction is undone.
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
fn machines_without_transactions_say_so() {
    let machine = Machine::preset("epyc-2s-chiplets").unwrap();
    run(&machine, &Config::seeded(1), 1, |_| {
        assert!(!htm::available());
        assert_eq!(htm::transaction(|| unreachable!()), Err::<(), _>(Abort(0)));
    })
    .assert_done();
    assert!(!htm::available() && htm::begin().is_err());
}

#[test]
fn an_explicit_abort_takes_its_turn() {
    // The second thread's load is 5 us before the first thread's abort, so the abort is a conflict.
    two(|[x, _], client| {
        if client.index == 0 {
            let result: Result<(), Abort> = htm::transaction(|| {
                x.set(1);
                world::work(10_000);
                htm::abort(9);
                unreachable!();
            });
            assert!(result.unwrap_err().is_conflict());
        } else {
            world::work(5_000);
            assert_eq!(x.get(), 0);
        }
    });
}

#[test]
fn interrupts_strike_by_time() {
    // Both runs spend the same time in transactions: one in many short transactions, the other in a few long ones.
    let aborts = |turns: u64, ns: u64| {
        let body = |word: &Word, _: Client| {
            for _ in 0..turns {
                let _ = htm::transaction(|| {
                    word.set(1);
                    world::work(ns);
                });
            }
        };
        let config = Config { stall_ns: u64::MAX, ..Config::seeded(3) };
        let report = run_with(&machine(), &config, 1, || Word::new(0), body, drop).0.assert_done();
        let stats = report.stats;
        assert_eq!(stats.tx_begun, stats.tx_committed + stats.tx_interrupts + stats.tx_spurious);
        assert!(stats.tx_wasted_ps >= (stats.tx_interrupts + stats.tx_spurious) * ns * 1000);
        (stats.tx_interrupts, stats.tx_spurious)
    };
    // 200 ms of transactions: an interrupt every 4 ms, a spurious abort every 2 ms.
    let (short, long) = (aborts(200_000, 1_000), aborts(2_000, 100_000));
    for (ticks, others) in [short, long] {
        assert!((44..=54).contains(&ticks) && (70..=130).contains(&others), "{short:?} {long:?}");
    }
}

#[test]
fn the_first_touch_of_a_page_aborts() {
    let body = |pages: &Vec<Page>, _: Client| {
        let page = &pages[0];
        world::unmapped((&raw const *page).cast(), 4096);
        for _ in 0..3 {
            assert_eq!(htm::transaction(|| page.0[5].set(1)), Err(Abort(0)));
        }
        page.0[9].set(1);
        assert_eq!(htm::transaction(|| page.0[5].set(1)), Ok(()));
    };
    let report = run_with(&machine(), &Config::seeded(1), 1, || pages(1), body, drop).0.assert_done();
    assert_eq!((report.stats.tx_faults, report.stats.tx_committed), (3, 1));
}

/// Runs a transaction that writes or reads one line. Then `lines` further lines are read, by the transaction itself or
/// plainly by the core's other hardware thread (`sibling`). Returns whether the transaction aborted for lack of
/// capacity.
fn after_others(machine: &Machine, writes: bool, lines: usize, sibling: bool) -> bool {
    let aborted = std::cell::Cell::new(false);
    let body = |pages: &Vec<Page>, client: Client| {
        let plain = || pages[1..=lines].iter().for_each(|page| _ = page.0[3].get());
        if client.index == 0 {
            let result = htm::transaction(|| {
                if writes {
                    pages[0].0[3].set(1)
                } else {
                    _ = pages[0].0[3].get()
                }
                if sibling { world::work(1_000_000) } else { plain() }
            });
            aborted.set(result.is_err_and(|why| why.is_capacity()));
        } else {
            world::work(1_000);
            plain();
        }
    };
    let cpus = if sibling { vec![0, machine.cores()] } else { vec![0] };
    let (threads, placement) = (cpus.len(), archipelago_sim::Placement::Cpus(cpus));
    let config = Config { placement, ..Config::seeded(1) };
    run_with(machine, &config, threads, || pages(1200), body, drop).0.assert_done();
    aborted.get()
}

#[test]
fn sets_are_the_caches_of_all_accesses() {
    let quiet = |name: &str| {
        let mut machine = Machine::preset(name).unwrap();
        let tx = machine.transactions.as_mut().unwrap();
        (tx.timer, tx.spurious) = (0.0, 0.0);
        machine
    };
    let (inclusive, exclusive) = (quiet("xeon-e7-4850v3-4s"), quiet("xeon-8180-4s"));
    for sibling in [false, true] {
        // Written lines are lost with the first level, which has 8 ways.
        assert!(!after_others(&inclusive, true, 7, sibling) && after_others(&inclusive, true, 8, sibling));
        // Read lines are not lost with the first level. If the third level is inclusive, they are not lost with the
        // second either; otherwise they are lost with the second, which has 16 ways and whose sets repeat after 16
        // pages.
        assert!(!after_others(&inclusive, false, 100, sibling));
        assert!(!after_others(&exclusive, false, 239, sibling), "{sibling}");
        assert!(after_others(&exclusive, false, 300, sibling), "{sibling}");
    }
    let mut tiny = inclusive.clone();
    tiny.caches.l3.sets = 16;
    assert!(after_others(&tiny, false, 1_000, false));
}

#[test]
fn the_eighth_transaction_inside_of_others_aborts_them() {
    fn nested(depth: u32, word: &Word) -> Result<(), Abort> {
        htm::transaction(|| match depth {
            1 => word.set(word.get() + 1),
            _ => nested(depth - 1, word).unwrap(),
        })
    }
    let report = two(|words, client| {
        let word = &words[client.index];
        for (depth, result) in [(7, Ok(())), (8, Err(Abort(Abort::NESTED))), (90, Err(Abort(Abort::NESTED)))] {
            assert_eq!(nested(depth, word), result, "{depth}");
        }
        (0..8).for_each(|_| htm::begin().unwrap());
        assert!(htm::doomed());
        (0..7).for_each(|_| htm::end().unwrap());
        assert_eq!((htm::end(), word.get()), (Err(Abort(Abort::NESTED)), 1));
    });
    assert_eq!((report.stats.tx_committed, report.stats.tx_forbidden), (2, 6));
}

/// A stall takes the processor away, which is an interrupt.
#[test]
fn a_stall_aborts() {
    for schedule in [Schedule::VirtualTime, Schedule::Random, Schedule::Pct { depth: 3 }] {
        for nth in 1..=4 {
            let stall = Fault::Stall { thread: Some(0), at: Point::Access(nth), for_ns: 5_000 };
            let config = Config { schedule, faults: vec![stall], ..Config::seeded(nth) };
            let body = |word: &Word, _| {
                let result = htm::transaction(|| (0..4).for_each(|value| word.set(value)));
                assert_eq!((result, word.get()), (Err(Abort(0)), 0));
            };
            let report = run_with(&machine(), &config, 1, || Word::new(0), body, drop).0.assert_done();
            assert_eq!(report.stats.tx_interrupts, 1);
        }
    }
}

/// A closure's transaction is nested in one that was begun explicitly: an abort leaves the closure, but not the code
/// around it.
#[test]
fn closures_nest_in_what_was_begun_by_hand() {
    two(|words, client| {
        let (word, after) = (&words[client.index], Cell::new(0));
        htm::begin().unwrap();
        word.set(1);
        let inner = htm::transaction(|| {
            htm::abort(7);
            after.set(1);
        });
        assert_eq!((inner.map_err(|why| why.code()), after.get()), (Err(Some(7)), 0));
        assert!(htm::doomed() && htm::transaction(|| after.set(2)).is_err());
        assert_eq!((htm::end().unwrap_err().code(), word.get(), after.get()), (Some(7), 0, 0));
        // No state of the transaction is left.
        assert_eq!(htm::transaction(|| htm::transaction(|| word.set(3))), Ok(Ok(())));
        assert_eq!(word.get(), 3);
    });
}

/// A loop that does not check whether it is doomed ends when other threads change what it waits for, or when the run
/// ends.
#[test]
fn a_doomed_body_that_spins_lets_others_run() {
    two(|[x, y], client| {
        if client.index == 0 {
            htm::begin().unwrap();
            htm::abort(1);
            while x.get() == 0 {
                world::spin_hint();
            }
            assert_eq!(htm::end().unwrap_err().code(), Some(1));
        } else {
            world::work(50_000);
            x.set(1);
            y.set(1);
        }
    });
    let body = |word: &Word, _| {
        htm::begin().unwrap();
        htm::abort(1);
        while word.get() == 0 {
            world::spin_hint();
        }
    };
    assert_eq!(run_with(&machine(), &Config::seeded(1), 1, || Word::new(0), body, drop).0.outcome, Outcome::Stalled);
}

/// A thread's own work between accesses ([`world::pace`]) is a part of its transactions: with more of it another thread's
/// store comes before the commit.
#[test]
fn own_work_lengthens_transactions() {
    const PACE: u64 = 100_000;
    let aborts = |pace: u64| {
        let aborted = std::cell::Cell::new(false);
        let took = std::cell::Cell::new(0);
        let body = |pages: &Vec<Page>, client: Client| {
            if client.index == 0 {
                world::pace(pace);
                let before = world::now_ps();
                let result = htm::transaction(|| (0..8).for_each(|word| _ = pages[0].0[word].get()));
                took.set(world::now_ps() - before);
                aborted.set(result.is_err_and(|why| why.is_conflict()));
            } else {
                world::work(600);
                pages[0].0[0].set(1);
            }
        };
        run_with(&machine(), &Config::seeded(1), 2, || pages(1), body, drop).0.assert_done();
        (aborted.get(), took.get())
    };
    let ((without, short), (with, long)) = (aborts(0), aborts(PACE));
    assert!(!without && with, "{short} ps and {long} ps");
    assert!(short < 600_000 && long > 600_000, "{short} ps and {long} ps");
}

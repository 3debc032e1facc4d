//! Hardware transactions: isolation, aborts and their codes.

mod common;

use std::cell::Cell;

use archipelago_sim::world::htm::{self, Abort};
use archipelago_sim::{
    Client, Config, Fault, Machine, Outcome, Placement, Point, Report, Schedule, run, run_with, world,
};
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
            // The other thread's look at `x` may come while `y` is fetched.
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

/// Set-up and tear-down are outside of time, and transactions there all or nothing too.
#[test]
fn set_up_and_tear_down_undo_what_aborts() {
    let capacity = Fault::TransactionCapacity { read_lines: 8, write_lines: 1 };
    for faults in [vec![Fault::AbortTransactions { probability: 1.0 }], vec![capacity], vec![]] {
        let aborts = |pages: &Vec<Page>| {
            let [x, y] = [&pages[0].0[0], &pages[0].0[1]];
            let result = htm::transaction(|| {
                [x, y].iter().for_each(|word| word.set(word.get() + 1));
                htm::abort(5);
            });
            assert!(result.is_err() && !htm::inside());
            assert_eq!((x.get(), y.get()), (0, 0));
        };
        let setup = || {
            let pages = pages(1);
            aborts(&pages);
            pages
        };
        let config = Config { faults, ..Config::seeded(1) };
        let teardown = |pages: Vec<Page>| aborts(&pages);
        run_with(&machine(), &config, 1, setup, |_, _| {}, teardown).0.assert_done();
    }
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

/// Whether a plain load that is made together with its predecessor is noticed.
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
                // One after the other, as fast as it goes.
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
                    // Long enough for what spins to look again.
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

/// A node of plain memory that fills several lines, not from a line's beginning.
#[repr(align(64))]
struct Node([u64; 40]);

#[test]
fn announced_plain_writes_are_undone_as_a_whole() {
    use std::cell::UnsafeCell;
    for asks in [false, true] {
        let node = UnsafeCell::new(Node([0; 40]));
        let write = |flag: &Word| {
            let words = node.get().cast::<u64>();
            world::touch_mut(words.wrapping_add(3).cast_const().cast(), 30 * 8);
            // SAFETY: one OS thread, and no reference to the node lives.
            (3..33).for_each(|k| unsafe { *words.wrapping_add(k) = 7 });
            flag.get();
        };
        let body = |flag: &Word, client: Client| {
            if client.index == 0 {
                for _ in 0..2 {
                    let aborted = if asks {
                        htm::begin().unwrap();
                        write(flag);
                        world::work(20_000);
                        // Doomed meanwhile: what it writes now leaves no trace either.
                        flag.get();
                        write(flag);
                        htm::end()
                    } else {
                        htm::transaction(|| {
                            write(flag);
                            world::work(20_000);
                            flag.get();
                        })
                    };
                    assert!(aborted.unwrap_err().is_conflict());
                    // SAFETY: as above.
                    assert_eq!(unsafe { &*node.get() }.0, [0; 40]);
                }
            } else {
                for turn in 0..10 {
                    world::sleep(10_000);
                    flag.set(turn + 1);
                    // SAFETY: as above.
                    assert_eq!(unsafe { &*node.get() }.0, [0; 40]);
                }
            }
        };
        run_with(&machine(), &Config::seeded(1), 2, || Word::new(0), body, drop).0.assert_done();
    }
}

#[test]
fn an_explicit_abort_takes_its_turn() {
    // The second thread's load comes before the first one's abort, by 5 us: it is a conflict.
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

/// A commit waits for the lines that the transaction has written, and others may ask for those that it has by then.
#[test]
fn a_commit_waits_for_its_stores() {
    // The time from begin to end, when the written line is another socket's, and how it ended if a third thread reads the
    // first written line meanwhile.
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
fn interrupts_strike_by_time() {
    // As much time in transactions each: many short ones or a few long ones.
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
    // 200 ms: a tick every 4 ms, something else every 2 ms.
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

/// Lines that a thread reads plainly after a transaction of its core wrote or read one: whether that aborts.
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
    let config = Config { placement, overlap: 1, ..Config::seeded(1) };
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
        // Written lines leave with the first level: 8 ways.
        assert!(!after_others(&inclusive, true, 7, sibling) && after_others(&inclusive, true, 8, sibling));
        // Read ones don't, nor with the second, if the third is inclusive; else with the second: 16 ways
        // of sets that repeat after 16 pages.
        assert!(!after_others(&inclusive, false, 100, sibling));
        assert!(!after_others(&exclusive, false, 239, sibling), "{sibling}");
        assert!(after_others(&exclusive, false, 300, sibling), "{sibling}");
    }
    let mut tiny = inclusive.clone();
    tiny.caches.l3.sets = 16;
    assert!(after_others(&tiny, false, 1_000, false));
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
        assert_eq!((site.file, site.counts.begun), ("lab/sim/tests/transactions.rs", 100));
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

#[test]
fn captured_locals_are_undone() {
    two(|[x, y], client| {
        if client.index != 0 {
            (0..50).for_each(|turn| x.set(turn + 1));
            return;
        }
        let (mut tries, mut failures, mut list) = (0_u64, 0, [0_u64; 40]);
        let mut inside = 0;
        for turn in 0..50 {
            loop {
                let result = htm::transaction(|| {
                    tries += 1;
                    list[tries as usize % 40] = tries;
                    inside = x.get();
                    y.set(y.get() + 1);
                    if (turn + failures) % 3 == 2 {
                        htm::abort(1);
                    }
                });
                match result {
                    Ok(()) => break,
                    Err(_) => failures += 1,
                }
            }
            assert_eq!((tries, y.get()), (turn + 1, turn + 1));
            assert_eq!(list[tries as usize % 40], tries);
            assert_eq!(list[(tries as usize + 1) % 40], if tries < 40 { 0 } else { tries - 39 });
        }
        assert!(failures > 0 && inside <= 50);
    });
}

#[test]
fn an_aborted_transaction_has_started_no_thread() {
    let body = |started: &Word, _| {
        let starts = || world::spawn(None, true, Box::new(|| ())).is_ok();
        assert!(htm::transaction(starts).is_err());
        htm::begin().unwrap();
        assert!(starts());
        assert!(htm::end().is_err());
        started.set(world::slots_high_water() as u64);
    };
    let (report, started) = run_with(&machine(), &Config::seeded(1), 1, || Word::new(0), body, |word| word.peek());
    report.assert_done();
    // The client and the main thread.
    assert_eq!(started, Some(2));
}

#[test]
fn an_aborted_transaction_has_woken_no_thread() {
    const LONG: u64 = 20_000;
    let body = |sleeper: &Word, client: Client| match client.index {
        0 => {
            assert!(htm::transaction(|| world::wake(9, 1)).is_ok(), "no thread waits");
            world::sleep(LONG / 4);
            assert!(htm::transaction(|| world::wake(7, 1)).is_err());
            assert!(htm::transaction(|| world::unpark(sleeper.peek() as usize)).is_err());
        }
        1 => {
            let asked = Cell::new(0);
            let condition = || asked.replace(asked.get() + 1) < LONG;
            assert!(!world::wait_while(7, Some(LONG), condition));
            assert_eq!(asked.get(), 2, "before the wait and after its time");
        }
        _ => {
            sleeper.set(world::current().unwrap().id as u64);
            let begun = world::now();
            world::park_timeout(LONG);
            assert!(world::now() - begun >= LONG);
        }
    };
    run_with(&machine(), &Config::seeded(1), 3, || Word::new(0), body, drop).0.assert_done();
}

/// A stack's lines are no others than the heap's: some of them were shared before, or are.
#[test]
fn captured_locals_are_undone_beside_shared_words() {
    two(|[place, _], client| {
        if client.index == 0 {
            let (mine, mut beside, mut count) = (Word::new(0), [0_u64; 64], 0);
            world::touch(beside.as_ptr().cast(), size_of_val(&beside));
            place.set((&raw const mine).addr() as u64);
            for turn in 0..8 {
                let result = htm::transaction(|| {
                    beside[8 * turn] = 9;
                    count += 1;
                    world::work(2_000);
                    htm::abort(1);
                });
                assert_eq!((result.is_err(), beside[8 * turn], count), (true, 0, 0));
            }
            assert_eq!(mine.get(), 5, "what another thread wrote there stays");
        } else {
            world::work(5_000);
            assert_ne!(place.get(), 0);
            let place = core::ptr::with_exposed_provenance::<Word>(place.get() as usize);
            // SAFETY: the other client is in its loop still, by virtual time.
            unsafe { &*place }.set(5);
        }
    });
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

/// What takes a processor away is an interrupt.
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

/// A closure's transaction inside of one that was begun by hand: the closure is left, and no more.
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
        // Nothing of it is left.
        assert_eq!(htm::transaction(|| htm::transaction(|| word.set(3))), Ok(Ok(())));
        assert_eq!(word.get(), 3);
    });
}

/// A loop that doesn't ask whether it is doomed ends by what others do, or with the run.
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

/// A body that panics has destructors that run; an abort that comes meanwhile does not unwind a second time.
#[test]
fn an_abort_comes_while_the_body_panics() {
    struct Writes<'a>(&'a Word);
    impl Drop for Writes<'_> {
        fn drop(&mut self) {
            (1..20).for_each(|value| self.0.set(value));
        }
    }
    let schedules = [Schedule::VirtualTime, Schedule::Random];
    for seed in 0..40 {
        let faults = vec![Fault::AbortTransactions { probability: 1.0 }];
        let config = Config { schedule: schedules[seed as usize % 2], faults, ..Config::seeded(seed + 1) };
        let body = |word: &Word, _| {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                htm::transaction(|| {
                    let _writes = Writes(word);
                    std::panic::resume_unwind(Box::new(()));
                })
            }));
            assert!(result.is_err() || result.is_ok_and(|aborted: Result<(), _>| aborted.is_err()));
            assert_eq!((word.get(), htm::inside()), (0, false));
        };
        run_with(&machine(), &config, 1, || Word::new(0), body, drop).0.assert_done();
    }
}

/// A thread that has looked, has run a transaction, and has looked elsewhere, does not wait for the change that it has missed
/// meanwhile.
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

//! Tests what an abort undoes.

use super::*;

/// Set-up and tear-down take no virtual time, and their transactions happen completely or not at all, too.
#[test]
fn set_up_and_tear_down_undo_what_aborts() {
    let capacity = Fault::TransactionCapacity { read_lines: 8, write_lines: 1 };
    for faults in [vec![Fault::AbortTransactions { probability: 1.0 }], vec![capacity], vec![]] {
        let aborts = |pages: &Vec<Page>| {
            let [x, y] = [&pages[0].0[0], &pages[0].0[1]];
            // The last access before the transaction is to the line that the transaction accesses first.
            assert_eq!(x.get(), 0);
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

/// A node of plain memory that fills several lines. The test writes a part that does not begin at a line's beginning.
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
            // SAFETY: there is one OS thread, and no reference to the node lives.
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
                        // The transaction is doomed by now: its further writes leave no trace either.
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
    // The two threads are the client and the main thread.
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

/// The cache lines of a stack are like those of the heap: other threads have accessed some of them, or access them
/// now.
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
            // SAFETY: the other client is still in its loop, by virtual time.
            unsafe { &*place }.set(5);
        }
    });
}

/// A body panics and its destructors run. An abort that happens meanwhile does not unwind a second time.
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

//! Litmus tests of hardware transactions, with one source for both worlds. Natively they run on real threads, on
//! machines where transactions commit. In the simulated world they run under many schedules, with and without faults.
//! `ARCHIPELAGO_LITMUS=N` sets the number of schedules of each test, or multiplies the number of native rounds by N.

#![cfg(not(loom))]
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::htm::{self, Retry};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::{hint, touch, touch_mut};

type Word = CachePadded<AtomicU64>;

fn word() -> Word {
    CachePadded::new(AtomicU64::new(0))
}

fn get(word: &Word) -> u64 {
    word.load(Ordering::Relaxed)
}

fn set(word: &Word, value: u64) {
    word.store(value, Ordering::Relaxed);
}

/// Returns the value of `ARCHIPELAGO_LITMUS`.
fn wanted() -> Option<u64> {
    std::env::var("ARCHIPELAGO_LITMUS").ok()?.parse().ok()
}

/// Rounds of each thread in one run.
#[cfg(not(archipelago_sim))]
const ROUNDS: u64 = 2_000;
#[cfg(archipelago_sim)]
const ROUNDS: u64 = 3;

/// Says, once, that there are no transactions to test.
#[cfg(not(archipelago_sim))]
fn skipped() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    // Written directly: the output of tests that pass is not shown.
    ONCE.call_once(|| {
        let text = format!("SKIPPED: native transactions ({}); the virtual machine's are tested\n", htm::support());
        std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).expect("standard error takes text");
    });
}

/// Runs `body(shared, thread, round)` in `threads` threads, then `check`.
#[cfg(not(archipelago_sim))]
fn litmus<S: Sync>(threads: usize, make: impl Fn() -> S, body: impl Fn(&S, usize, u64) + Sync, check: impl Fn(&S)) {
    use archipelago_platform::thread;
    if !htm::available() {
        return skipped();
    }
    let shared = make();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (shared, body) = (&shared, &body);
            scope.spawn(move || (0..ROUNDS * wanted().unwrap_or(1)).for_each(|round| body(shared, thread, round)));
        }
    });
    check(&shared);
}

/// Runs the test under every kind of schedule, with spurious aborts and tiny capacities.
#[cfg(archipelago_sim)]
fn litmus<S>(threads: usize, make: impl Fn() -> S, body: impl Fn(&S, usize, u64), check: impl Fn(&S)) {
    use archipelago_sim::{Client, Config, Fault, Machine, Placement, Schedule, run_with};
    let machine = Machine::preset("xeon-e7-8870v3-4s").unwrap();
    let aborts = |probability| vec![Fault::AbortTransactions { probability }];
    let tiny = vec![Fault::TransactionCapacity { read_lines: 2, write_lines: 1 }];
    let faults = [aborts(0.0), aborts(0.05), aborts(0.5), aborts(1.0), tiny, vec![]];
    let schedules = wanted().unwrap_or(120);
    for seed in 0..schedules {
        let schedule = [Schedule::Random, Schedule::Pct { depth: 3 }, Schedule::VirtualTime][seed as usize % 3];
        let faults = faults[seed as usize / 3 % faults.len()].clone();
        let placement = if seed % 2 == 0 { Placement::Spread } else { Placement::Cpus(vec![0, 72, 1, 20]) };
        let config = Config { schedule, placement, faults, expected_accesses: 60, ..Config::seeded(seed + 1) };
        let body = |shared: &S, client: Client| (0..ROUNDS).for_each(|round| body(shared, client.index, round));
        run_with(&machine, &config, threads, &make, body, |shared| check(&shared)).0.assert_done();
    }
}

/// Runs `body` in a transaction; after a few failed tries, runs it under the lock.
fn with_lock<R>(lock: &Word, mut body: impl FnMut() -> R) -> R {
    let body = std::cell::RefCell::new(&mut body);
    let locked = || {
        while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            hint::spin_loop();
        }
        let result = body.borrow_mut()();
        lock.store(0, Ordering::Release);
        result
    };
    let retry = Retry { pause: 1, ..Retry::default() };
    htm::elide(retry, || get(lock) != 0, || body.borrow_mut()(), locked)
}

#[test]
fn no_update_is_lost() {
    let threads = 3;
    let body = |[lock, a, b]: &[Word; 3], _, _| {
        with_lock(lock, || {
            let sum = get(a) + 1;
            set(a, sum);
            set(b, sum);
        });
    };
    let check = |[lock, a, b]: &[Word; 3]| {
        let all = threads as u64 * if cfg!(archipelago_sim) { ROUNDS } else { ROUNDS * wanted().unwrap_or(1) };
        assert_eq!((get(lock), get(a), get(b)), (0, all, all));
    };
    litmus(threads, || [word(), word(), word()], body, check);
}

/// Strong atomicity: plain loads see all or nothing of a transaction, and never an aborted value.
#[test]
fn plain_loads_see_nothing_uncommitted() {
    let body = |[x, y]: &[Word; 2], thread, round| {
        if thread == 0 {
            let _ = htm::transaction(|| {
                set(x, 2 * round + 1);
                set(y, 2 * round + 2);
                set(x, 2 * round + 2);
                if round % 3 == 0 {
                    htm::abort::<7>();
                }
            });
        } else {
            for _ in 0..3 {
                // `y` is written together with `x` and read later, so its value is not older.
                let (first, second) = (x.load(Ordering::SeqCst), y.load(Ordering::SeqCst));
                assert!(first % 2 == 0 && second >= first, "{first} {second}");
                assert!(first == 0 || (first / 2 - 1) % 3 != 0, "an aborted value");
            }
        }
    };
    litmus(2, || [word(), word()], body, |_| ());
}

/// Strong atomicity: a transaction never overwrites a plain store that comes between its load and its store.
#[test]
fn plain_stores_are_not_overwritten() {
    let body = |[x, log]: &[Word; 2], thread, round| {
        if thread == 0 {
            let _ = htm::transaction(|| {
                let before = get(x);
                set(log, before);
                set(x, before);
            });
        } else {
            x.store(round + 1, Ordering::SeqCst);
            assert_eq!(x.load(Ordering::SeqCst), round + 1);
        }
    };
    litmus(2, || [word(), word()], body, |_| ());
}

/// Subscription: a transaction that has read the lock as free does not commit while another thread is in the section.
#[test]
fn subscription_keeps_transactions_out() {
    let body = |[lock, a, b]: &[Word; 3], thread, round| {
        if thread == 0 {
            while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                hint::spin_loop();
            }
            // The two words are inconsistent between these stores.
            set(a, get(a) + 1);
            (0..round % 4).for_each(|_| _ = get(lock));
            set(b, get(b) + 1);
            lock.store(0, Ordering::Release);
        } else {
            let seen = htm::transaction(|| {
                if get(lock) != 0 {
                    htm::abort::<{ htm::HELD }>();
                }
                (get(a), get(b))
            });
            if let Ok((a, b)) = seen {
                assert_eq!(a, b);
            }
        }
    };
    litmus(3, || [word(), word(), word()], |s, thread, round| body(s, usize::from(thread > 0), round), |_| ());
}

/// An elided section reads the lock first, so it sees no intermediate state of a section that holds the lock.
#[test]
fn elided_sections_keep_out_of_locked_ones() {
    let body = |[lock, a, b]: &[Word; 3], thread, round| {
        if thread == 0 {
            while lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                hint::spin_loop();
            }
            set(a, get(a) + 1);
            // This takes long enough for a whole transaction of another thread.
            (0..4 * (round % 4)).for_each(|_| _ = get(lock));
            set(b, get(b) + 1);
            lock.store(0, Ordering::Release);
        } else {
            let (a, b) = with_lock(lock, || (get(a), get(b)));
            assert_eq!(a, b);
        }
    };
    litmus(3, || [word(), word(), word()], body, |_| ());
}

/// Nesting is flat: an abort of an inner transaction undoes all of it, and an inner commit publishes nothing.
#[test]
fn nested_transactions_are_one() {
    let body = |words: &[[Word; 2]; 2], thread: usize, round: u64| {
        let [x, y] = &words[thread];
        let before = (get(x), get(y));
        let result = htm::transaction(|| {
            set(x, before.0 + 1);
            let inner = htm::transaction(|| {
                assert!(htm::inside());
                set(y, before.1 + 1);
                if round.is_multiple_of(2) {
                    htm::abort::<5>();
                }
            });
            assert!(inner.is_ok() && htm::inside());
        });
        assert!(!htm::inside());
        match result {
            Ok(()) => assert_eq!((get(x), get(y)), (before.0 + 1, before.1 + 1)),
            Err(why) => {
                assert_eq!((get(x), get(y)), before);
                assert!(why.code().is_none_or(|code| code == 5 && round.is_multiple_of(2)));
            }
        }
    };
    let make = || [[word(), word()], [word(), word()]];
    litmus(2, make, body, |_| ());
}

/// A reader that spins on a word sees a commit as a whole, and no earlier state of it.
#[test]
fn spinning_readers_see_commits_only() {
    let body = |[x, y, turn]: &[Word; 3], thread, round| {
        if thread == 0 {
            let (mut tries, value) = (0, 2 * round + 2);
            while tries < 20 {
                let done = htm::transaction(|| {
                    set(x, value - 1);
                    set(y, value);
                    set(x, value);
                });
                if done.is_ok() {
                    break;
                }
                tries += 1;
            }
            if tries == 20 {
                // The transaction does not commit because of the spinning thread or a fault, so plain stores are used.
                y.store(value, Ordering::Release);
                x.store(value, Ordering::Release);
            }
            while turn.load(Ordering::Acquire) <= round {
                hint::spin_loop();
            }
        } else {
            let value = 2 * round + 2;
            loop {
                let seen = x.load(Ordering::Acquire);
                assert_ne!(seen, value - 1, "an uncommitted value");
                if seen == value {
                    break;
                }
                hint::spin_loop();
            }
            assert_eq!(y.load(Ordering::Acquire), value);
            turn.store(round + 1, Ordering::Release);
        }
    };
    litmus(2, || [word(), word(), word()], body, |_| ());
}

/// A node of plain memory over several cache lines, and the words that protect it.
struct Guarded {
    lock: Word,
    node: std::cell::UnsafeCell<[u64; 24]>,
    version: Word,
}

// SAFETY: the node is accessed only in elided sections of the lock.
unsafe impl Sync for Guarded {}

/// Plain memory whose accesses are announced is never torn.
#[test]
fn nodes_are_not_torn() {
    let make = || Guarded { lock: word(), node: std::cell::UnsafeCell::new([0; 24]), version: word() };
    let body = |shared: &Guarded, thread: usize, _| {
        let node = shared.node.get();
        if thread == 0 {
            with_lock(&shared.lock, || {
                touch_mut(node, size_of::<[u64; 24]>());
                // SAFETY: this section excludes all others; a doomed transaction's accesses are undone.
                let node = unsafe { &mut *node };
                node.iter_mut().for_each(|word| *word += 1);
                set(&shared.version, node[0]);
            });
        } else {
            let copy = with_lock(&shared.lock, || {
                touch(node.cast_const(), size_of::<[u64; 24]>());
                // SAFETY: as above.
                (unsafe { *node }, get(&shared.version))
            });
            assert!(copy.0.iter().all(|&word| word == copy.1), "{copy:?}");
        }
    };
    litmus(3, make, body, |shared| {
        // SAFETY: the threads have ended.
        let node = unsafe { &*shared.node.get() };
        assert!(node.iter().all(|&word| word == get(&shared.version)));
    });
}

/// Writes to captured locals are undone with all others.
#[test]
fn captured_locals_are_undone() {
    let body = |[x, y]: &[Word; 2], thread: usize, round: u64| {
        if thread == 1 {
            return set(x, round);
        }
        let (mut count, mut trail, before) = (0_u64, [0_u64; 9], get(y));
        let mut failures = 0_u64;
        let committed = (0..12).any(|_| {
            let result = htm::transaction(|| {
                count += 1;
                trail[count as usize] = failures + 1;
                set(y, before + get(x) % 2 + 1);
                if failures < round % 3 {
                    htm::abort::<1>();
                }
            });
            failures += u64::from(result.is_err());
            result.is_ok()
        });
        assert_eq!(count, u64::from(committed));
        assert_eq!(trail.iter().sum::<u64>(), if committed { failures + 1 } else { 0 });
        assert_eq!(trail[1], if committed { failures + 1 } else { 0 });
    };
    litmus(2, || [word(), word()], body, |_| ());
}

/// A panic leaves neither effects nor an open transaction.
#[test]
fn panics_undo_and_close() {
    let body = |words: &[Word; 2], thread: usize, round: u64| {
        if !round.is_multiple_of(64) && !cfg!(archipelago_sim) {
            return;
        }
        let word = &words[thread];
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            htm::transaction(|| {
                set(word, 1);
                // Acts as a panic, without the panic hook's message.
                std::panic::resume_unwind(Box::new(()));
            })
        }));
        let _: Result<Result<(), _>, _> = result;
        assert!(!htm::inside());
        assert_eq!(get(word), 0);
    };
    litmus(2, || [word(), word()], body, |_| ());
}

/// Transactions by [`begin`](htm::begin) and [`end`](htm::end), whose body is not a closure.
#[test]
fn begun_transactions_end() {
    let body = |[x, y]: &[Word; 2], _, _| {
        let mut ended = Err(());
        for _ in 0..10 {
            if htm::begin().is_err() {
                continue;
            }
            let sum = get(x) + 1;
            set(x, sum);
            set(y, sum);
            ended = htm::end().map_err(|_| ());
            if ended.is_ok() {
                break;
            }
        }
        assert!(!htm::inside() && !htm::doomed());
        let both = htm::transaction(|| (get(x), get(y)));
        assert!(both.is_ok_and(|(x, y)| x == y) || both.is_err());
        let _ = ended;
    };
    litmus(2, || [word(), word()], body, |[x, y]| assert_eq!(get(x), get(y)));
}

/// A transaction that the program aborts returns the program's code, and leaves no effect.
#[test]
fn codes_come_back() {
    // Not simulated: it counts in all schedules.
    let codes = std::sync::atomic::AtomicU64::new(0);
    let body = |[x]: &[Word; 1], _, _| {
        let result = Retry::default().run(|| {
            set(x, 9);
            htm::abort::<0x2a>();
        });
        if let Some(code) = result.expect_err("it aborts itself").code() {
            assert_eq!(code, 0x2a);
            codes.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(get(x), 0);
    };
    litmus(1, || [word()], body, |_| ());
    assert!(
        codes.into_inner() > 0 || !(cfg!(archipelago_sim) || htm::available()),
        "no transaction has returned its code"
    );
}

/// Aborts because a lock was held are counted, too. If a body always aborts in this way, the fallback is run in the
/// end.
#[cfg(not(archipelago_sim))]
#[test]
fn an_elided_lock_that_is_held_is_counted() {
    let explicit = || htm::sites().iter().find(|site| site.0 == "an elided lock").map_or(0, |site| site.1.explicit);
    let before = explicit();
    let retry = Retry { silent: 10_000, ..Retry::default() };
    htm::elide(retry, || false, htm::abort::<{ htm::HELD }>, || ());
    if !htm::available() {
        return skipped();
    }
    assert!(explicit() > before);
}

/// A token ([`Inside`]) also aborts a body that is nested in a transaction begun by [`begin`](htm::begin).
#[test]
fn tokens_work_inside_of_what_was_begun() {
    let body = |[x]: &[Word; 1], _, _| {
        let Some(htm) = htm::Htm::get() else { return };
        if htm::begin().is_err() {
            return assert_eq!(get(x), 0);
        }
        set(x, 1);
        let inner: Result<(), _> = htm.transaction(|inside| inside.abort::<9>());
        assert!(inner.is_err() && htm::doomed(), "the simulated world goes on");
        assert!(htm::end().is_err() && get(x) == 0);
    };
    litmus(1, || [word()], body, |_| ());
}

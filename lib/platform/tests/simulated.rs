//! The platform layer in the simulator: blocking primitives, threads, thread-locals, clocks and topology. They are
//! tested inside runs, under bug-finding schedules and in virtual time, and outside runs.
#![cfg(archipelago_sim)]

#[path = "htm.rs"]
mod litmus_of_transactions;

use std::cell::{Cell, RefCell};

use archipelago_platform::atomic::{AtomicUsize, Ordering};
use archipelago_platform::clock::{ClockKind, OrderedClock};
use archipelago_platform::memory::BlockArena;
use archipelago_platform::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, OnceLock, RwLock};
use archipelago_platform::thread::{self, Pinning};
use archipelago_platform::time::{Duration, Instant, unix_time};
use archipelago_platform::topology::{CpuId, NodeId, Topology};
use archipelago_platform::{hint, htm};
use archipelago_sim::{Client, Config, Machine, Outcome, Placement, Schedule, run, run_with, world};

const SCHEDULES: [Schedule; 3] = [Schedule::VirtualTime, Schedule::Random, Schedule::Pct { depth: 3 }];

/// Runs `body` under each of [`SCHEDULES`] with 20 seeds; `check` checks the final state.
fn everywhere<S>(threads: usize, make: impl Fn() -> S, body: impl Fn(&S, Client), check: impl Fn(S)) {
    everywhere_on("xeon-e5-4620-4s", threads, make, body, check);
}

fn everywhere_on<S>(machine: &str, threads: usize, make: impl Fn() -> S, body: impl Fn(&S, Client), check: impl Fn(S)) {
    let machine = Machine::preset(machine).unwrap();
    for schedule in SCHEDULES {
        for seed in 1..=20 {
            let config = Config { schedule, placement: Placement::Spread, ..Config::seeded(seed) };
            run_with(&machine, &config, threads, &make, &body, &check).0.assert_done();
        }
    }
}

#[test]
fn mutexes_exclude() {
    let body = |mutex: &Mutex<(u32, u32)>, _: Client| {
        for _ in 0..5 {
            let mut both = mutex.lock().unwrap();
            both.0 += 1;
            world::yield_now();
            both.1 += 1;
            assert_eq!(both.0, both.1);
        }
    };
    everywhere(4, || Mutex::new((0, 0)), body, |mutex| assert_eq!(mutex.into_inner().unwrap(), (20, 20)));
}

#[test]
fn readers_share_and_writers_do_not() {
    let body = |lock: &RwLock<(u32, u32)>, client: Client| {
        for _ in 0..5 {
            if client.index == 0 {
                let mut both = lock.write().unwrap();
                both.0 += 1;
                world::yield_now();
                both.1 += 1;
            } else {
                let both = lock.read().unwrap();
                world::yield_now();
                assert_eq!(both.0, both.1);
            }
        }
    };
    everywhere(4, RwLock::default, body, |lock| assert_eq!(lock.into_inner().unwrap(), (5, 5)));
}

#[test]
fn condition_variables_lose_no_notification() {
    let body = |(queue, filled): &(Mutex<Vec<usize>>, Condvar), client: Client| {
        if client.index.is_multiple_of(2) {
            queue.lock().unwrap().push(client.index);
            filled.notify_one();
        } else {
            let mut queue = filled.wait_while(queue.lock().unwrap(), |queue| queue.is_empty()).unwrap();
            queue.pop();
        }
    };
    everywhere(6, Default::default, body, |(queue, _)| assert!(queue.into_inner().unwrap().is_empty()));
}

#[test]
fn waiting_with_a_time_out_ends() {
    let machine = Machine::preset("this-host").unwrap();
    let body = |_: Client| {
        let start = Instant::now();
        let pair = (Mutex::new(false), Condvar::new());
        let waited = pair.1.wait_timeout(pair.0.lock().unwrap(), Duration::from_micros(3)).unwrap();
        assert!(waited.1.timed_out());
        assert!(start.elapsed() >= Duration::from_micros(3));
        thread::sleep(Duration::from_micros(5));
        thread::park_timeout(Duration::from_micros(2));
        let time = start.elapsed();
        assert!(time >= Duration::from_micros(10) && time < Duration::from_micros(100), "{time:?}");
    };
    run(&machine, &Config::seeded(1), 1, body).assert_done();
}

#[test]
fn a_run_begins_with_1970() {
    let body = |_: Client| {
        let before = unix_time();
        assert!(before < Duration::from_secs(1), "{before:?}");
        thread::sleep(Duration::from_micros(50));
        let passed = unix_time() - before;
        assert!(passed >= Duration::from_micros(50) && passed < Duration::from_millis(1), "{passed:?}");
    };
    run(&Machine::preset("this-host").unwrap(), &Config::seeded(1), 1, body).assert_done();
    assert!(unix_time() > Duration::from_secs(50 * 365 * 86_400), "outside a run the time is the system's");
}

#[test]
fn barriers_keep_rounds_apart() {
    let make = || (Barrier::new(3), AtomicUsize::new(0));
    let body = |(barrier, count): &(Barrier, AtomicUsize), _: Client| {
        for round in 1..=3 {
            count.fetch_add(1, Ordering::Relaxed);
            barrier.wait();
            assert_eq!(count.load(Ordering::Relaxed), 3 * round);
            barrier.wait();
        }
    };
    everywhere(3, make, body, |(_, count)| assert_eq!(count.into_inner(), 9));
}

#[test]
fn once_cells_are_made_once_even_if_making_takes_turns() {
    let make = || (OnceLock::new(), AtomicUsize::new(0));
    let body = |(cell, made): &(OnceLock<usize>, AtomicUsize), client: Client| {
        let value = *cell.get_or_init(|| {
            world::yield_now();
            made.fetch_add(1, Ordering::Relaxed);
            client.index
        });
        assert_eq!(cell.get(), Some(&value));
        assert_eq!(cell.set(7), Err(7));
    };
    everywhere(3, make, body, |(_, made)| assert_eq!(made.into_inner(), 1));
    static LAZY: LazyLock<usize> = LazyLock::new(|| 4);
    assert_eq!(*LAZY, 4);
}

#[test]
fn threads_are_joined_parked_and_scoped() {
    let body = |count: &Arc<AtomicUsize>, client: Client| {
        let theirs = count.clone();
        let waiting = thread::Builder::new().name("waits".into()).spawn(move || {
            thread::park();
            theirs.fetch_add(1, Ordering::Relaxed);
            thread::current().id()
        });
        let waiting = waiting.unwrap();
        assert_eq!(waiting.thread().name(), Some("waits"));
        waiting.thread().unpark();
        let id = waiting.thread().id();
        assert_eq!(waiting.join().unwrap(), id);
        let mine = client.index + 1;
        let doubled = thread::scope(|scope| {
            let thread = scope.spawn(|| mine * 2);
            scope.spawn(|| count.fetch_add(1, Ordering::Relaxed));
            thread.join().unwrap()
        });
        assert_eq!(doubled, mine * 2);
        assert!(thread::spawn(|| panic!("a planted panic")).join().is_err());
    };
    everywhere(2, Default::default, body, |count| assert_eq!(count.load(Ordering::Relaxed), 4));
}

#[test]
fn a_panic_that_nobody_asks_for_fails_the_run() {
    let machine = Machine::preset("this-host").unwrap();
    let body = |_: Client| {
        drop(thread::spawn(|| {
            thread::sleep(Duration::from_nanos(100));
            panic!("a planted panic")
        }));
        thread::sleep(Duration::from_micros(100));
    };
    let report = run(&machine, &Config::seeded(1), 1, body);
    assert!(matches!(report.outcome, Outcome::Panicked { .. }), "{}", report.outcome);
}

thread::thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(1) };
    static LIST: RefCell<Vec<usize>> = RefCell::new(vec![COUNT.get()]);
}

#[test]
fn thread_locals_are_the_threads_own() {
    let body = |_: &(), client: Client| {
        COUNT.set(client.index + 5);
        world::yield_now();
        assert_eq!(COUNT.replace(0), client.index + 5);
        COUNT.set(client.index);
        LIST.with_borrow_mut(|list| list.push(9));
        world::yield_now();
        LIST.with_borrow(|list| assert_eq!(*list, [client.index, 9]));
    };
    everywhere(3, || (), body, |()| ());
    // Outside a run.
    assert_eq!(COUNT.get(), 1);
}

#[test]
fn topology_slots_and_pinning_are_the_machines() {
    let body = |_: &(), client: Client| {
        let topology = Topology::current();
        assert_eq!((topology.nodes().len(), topology.cpus().len(), topology.threads_per_core()), (4, 64, 2));
        assert!(topology.distance(NodeId(0), NodeId(2)) > topology.distance(NodeId(0), NodeId(1)));
        assert_eq!(topology.node_of(CpuId(client.cpu)), Some(NodeId(client.node)));
        assert_eq!((thread::slot().index, thread::slot().node), (client.index, client.node));
        assert_eq!(topology.node_of_current(), client.node);
        assert_eq!(thread::available_parallelism().unwrap().get(), 64);
        let far = Pinning::Spread.assign(topology, 8)[3].unwrap();
        thread::pin_current(far).unwrap();
        assert_eq!((world::current().unwrap().cpu, topology.node_of_current()), (far.0, 3));
        thread::bind_current(topology, NodeId(1)).unwrap();
        assert_eq!((thread::slot().node, topology.node_of_current()), (1, 1));
        assert!(thread::pin_current(CpuId(999)).is_err());
    };
    everywhere(2, || (), body, |()| ());
    assert_ne!(Topology::current().cpus().len(), 64);
}

#[test]
fn the_ordered_clock_is_right_under_skew() {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let clock_skew_ns = vec![0, 300, -200, 50];
    let config = Config { clock_skew_ns, placement: Placement::Spread, ..Config::seeded(3) };
    let body = |last: &Mutex<u64>, _: Client| {
        let clock = OrderedClock::shared();
        assert_eq!((clock.kind(), clock.uncertainty()), (ClockKind::Hardware, 500_001));
        for _ in 0..50 {
            let mut last = last.lock().unwrap();
            let now = clock.now();
            assert!(now > last.saturating_sub(clock.uncertainty()), "{now} {}", *last);
            *last = clock.new_after(now);
            assert_eq!(clock.is_before(now, *last), Some(true));
        }
    };
    run_with(&machine, &config, 8, || Mutex::new(0), body, drop).0.assert_done();
}

#[test]
fn memory_has_the_home_it_asked_for() {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let body = |_: Client| {
        let layout = std::alloc::Layout::from_size_align(1024, 64).unwrap();
        let arena = BlockArena::new(layout, Some(NodeId(2)));
        let blocks: Vec<_> = (0..100).map(|_| arena.alloc()).collect();
        // The first chunks are smaller than a page and are placed on the node that accesses them first.
        let far = blocks.iter().filter(|block| world::home_of(block.as_ptr().cast()) == Some(2)).count();
        assert!(far >= 90, "{far}");
        for block in blocks {
            // SAFETY: the block came from this arena and is not used any more.
            unsafe { arena.free(block) };
        }
    };
    run(&machine, &Config::seeded(1), 1, body).assert_done();
}

#[test]
fn transactions_commit_whole_or_not_at_all() {
    let machine = Machine::preset("xeon-e7-8870v3-4s").unwrap();
    let body = |words: &[AtomicUsize; 2], _: Client| {
        assert!(htm::available());
        for _ in 0..20 {
            let bump = || words.each_ref().map(|word| word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
            while htm::transaction(bump).is_err() {
                hint::spin_loop();
            }
            let read = || words.each_ref().map(|word| word.load(Ordering::Relaxed));
            if let Ok([a, b]) = htm::transaction(read) {
                assert_eq!(a, b);
            }
        }
        assert_eq!(htm::transaction(htm::abort::<3>).unwrap_err().code(), Some(3));
        assert!(!htm::inside());
    };
    let config = Config { placement: Placement::Spread, ..Config::seeded(1) };
    let check = |words: [AtomicUsize; 2]| assert_eq!(words.map(AtomicUsize::into_inner), [80, 80]);
    run_with(&machine, &config, 4, Default::default, body, check).0.assert_done();
}

/// If a function ends with a transaction, an optimizing compiler may reuse the function's frame for the callee. Then an
/// abort, which restores the stack of the function as it was at the transaction's begin, would overwrite the frame of
/// the callee.
#[test]
fn a_transaction_that_comes_last_runs_once() {
    static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    #[inline(never)]
    fn many(seed: usize) -> [usize; 32] {
        std::array::from_fn(|k| seed * k)
    }
    #[inline(never)]
    fn last(word: &AtomicUsize) {
        if many(word.load(Ordering::Relaxed)).iter().sum::<usize>() == 7 {
            return;
        }
        let _ = htm::transaction(|| {
            RUNS.fetch_add(1, Ordering::Relaxed);
            word.store(1, Ordering::Relaxed);
            htm::abort::<3>();
        });
    }
    let machine = Machine::preset("xeon-e7-8870v3-4s").unwrap();
    let body = |word: &AtomicUsize, _: Client| last(word);
    run_with(&machine, &Config::seeded(1), 1, AtomicUsize::default, body, drop).0.assert_done();
    assert_eq!(RUNS.load(Ordering::Relaxed), 1);
}

/// After a transaction aborts, no lock is left half taken and no cell half initialized.
#[test]
fn blocking_primitives_in_transactions_that_abort() {
    #[derive(Default)]
    struct Shared {
        mutex: Mutex<u64>,
        lock: RwLock<u64>,
        cell: OnceLock<u64>,
        owners: AtomicUsize,
        writes: AtomicUsize,
    }
    let body = |shared: &Shared, client: Client| {
        for _ in 0..6 {
            if client.index == 0 {
                let _ = htm::transaction(|| {
                    let _mutex = shared.mutex.lock().unwrap();
                    let _written = shared.lock.write().unwrap();
                    assert_eq!(*shared.cell.get_or_init(|| 0x0102_0304), 0x0102_0304);
                    (0..5).for_each(|_| _ = shared.writes.fetch_add(1, Ordering::Relaxed));
                    if shared.writes.load(Ordering::Relaxed) % 2 == 1 {
                        htm::abort::<1>();
                    }
                });
                continue;
            }
            let mutex = shared.mutex.lock().expect("no thread panicked");
            assert_eq!(shared.owners.fetch_add(1, Ordering::Relaxed), 0);
            shared.writes.load(Ordering::Relaxed);
            drop(shared.lock.read().expect("no thread panicked"));
            shared.owners.fetch_sub(1, Ordering::Relaxed);
            drop(mutex);
        }
    };
    let check = |shared: Shared| {
        assert!(!shared.mutex.is_poisoned() && shared.mutex.try_lock().is_ok());
        assert!(shared.lock.try_write().is_ok());
        assert!(shared.cell.get().is_none_or(|&value| value == 0x0102_0304), "{:x?}", shared.cell);
    };
    everywhere_on("xeon-e7-8870v3-4s", 3, Shared::default, body, check);
}

#[test]
fn outside_of_a_run_everything_is_native() {
    let (mutex, filled) = (Mutex::new(0), Condvar::new());
    let barrier = Barrier::new(3);
    thread::scope(|scope| {
        let waits = || {
            barrier.wait();
            *filled.wait_while(mutex.lock().unwrap(), |count| *count < 1000).unwrap()
        };
        let waiting = [scope.spawn(waits), scope.spawn(waits)];
        barrier.wait();
        for _ in 0..1000 {
            *mutex.lock().unwrap() += 1;
        }
        filled.notify_all();
        assert_eq!(waiting.map(|thread| thread.join().unwrap()), [1000, 1000]);
    });
    let unclaimed = || {
        thread::scope(|scope| {
            scope.spawn(|| panic!("a planted panic"));
        });
    };
    assert!(std::panic::catch_unwind(unclaimed).is_err());
    assert!(thread::spawn(|| Instant::now().elapsed() < Duration::from_secs(60)).join().unwrap());
    let parked = thread::spawn(thread::park);
    parked.thread().unpark();
    parked.join().unwrap();
}

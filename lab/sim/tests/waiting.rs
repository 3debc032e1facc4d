//! Tests the functions from which the platform crate is built: sleeping, parking, waiting for keys, joins, clocks,
//! thread-locals, placement and unwinding.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use archipelago_sim::world::{self, LocalValue};
use archipelago_sim::{Client, Config, Outcome, Placement, Report, Schedule, run, run_with};
use common::{Word, machine};

const SCHEDULES: [Schedule; 3] = [Schedule::VirtualTime, Schedule::Random, Schedule::Pct { depth: 3 }];

fn every(threads: usize, body: impl Fn(Client)) -> Vec<Report> {
    let run = |schedule| run(&machine(), &Config { schedule, ..Config::seeded(9) }, threads, &body).assert_done();
    SCHEDULES.into_iter().map(run).collect()
}

#[test]
fn sleepers_wake_in_order() {
    let order = RefCell::new(Vec::new());
    run(&machine(), &Config::seeded(1), 5, |client| {
        world::sleep(10_000 * (5 - client.index as u64));
        order.borrow_mut().push(client.index);
    })
    .assert_done();
    assert_eq!(order.into_inner(), [4, 3, 2, 1, 0]);
}

#[test]
fn tokens_are_kept_and_parking_times_out() {
    every(2, |client| {
        if client.index == 0 {
            // The main thread has id 0.
            let me = world::current().unwrap().id;
            world::unpark(me);
            world::park();
            let before = world::now();
            world::park_timeout(5_000);
            assert!(world::now() >= before + 5_000);
            world::park();
        } else {
            world::sleep(50_000);
            world::unpark(1);
        }
    });
}

#[test]
fn keys_make_a_mutex() {
    let (state, count) = (Cell::new(false), Cell::new(0));
    every(8, |_| {
        for _ in 0..20 {
            world::wait_while(1, None, || state.get());
            assert!(!state.replace(true), "two inside");
            let seen = count.get();
            world::sleep(100);
            count.set(seen + 1);
            state.set(false);
            world::wake(1, 1);
        }
    });
    assert_eq!(count.get(), 3 * 160);
    every(1, |_| {
        assert!(!world::wait_while(2, Some(1_000), || true), "no thread wakes it");
        assert!(world::wait_while(2, Some(1_000), || false));
        assert_eq!(world::wake(2, usize::MAX), 0);
    });
}

#[test]
fn threads_can_be_joined() {
    every(2, |_| {
        let done = Rc::new(Cell::new(false));
        let set = done.clone();
        let body = move || {
            world::sleep(10_000);
            set.set(true);
        };
        let id = world::spawn(None, false, Box::new(body)).ok().unwrap();
        assert!(!world::is_finished(id));
        world::join(id);
        assert!(done.get() && world::is_finished(id));
    });
}

#[test]
fn slots_are_dense_and_reused() {
    for schedule in SCHEDULES {
        let over = Word::new(0);
        run(&machine(), &Config { schedule, ..Config::seeded(9) }, 3, |client| {
            let me = world::current().unwrap();
            assert_eq!((me.slot, me.daemon), (client.index, false));
            while client.index != 0 && over.get() == 0 {
                world::spin_hint();
            }
            if client.index == 0 {
                for _ in 0..5 {
                    let body = || assert_eq!(world::current().unwrap().slot, 4);
                    world::join(world::spawn(None, false, Box::new(body)).ok().unwrap());
                }
                assert_eq!(world::slots_high_water(), 5);
                over.set(1);
            }
        })
        .assert_done();
    }
}

#[test]
fn locals_belong_to_a_thread_and_are_dropped_in_it() {
    static KEYS: [u8; 2] = [0; 2];
    let key = |k: usize| KEYS.as_ptr() as usize + k;
    thread_local! {
        static DROPPED: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
    }
    unsafe fn destroy(value: *mut u8) {
        // SAFETY: the value is from a box that was passed to `local_set` below.
        let value = *unsafe { Box::from_raw(value.cast::<usize>()) };
        let own = KEYS.as_ptr() as usize + value / 100;
        assert_eq!(world::local_get(own), Some(LocalValue::Destroyed));
        DROPPED.with(|dropped| dropped.borrow_mut().push((world::current().unwrap().slot, value)));
    }
    run(&machine(), &Config::seeded(1), 2, |client| {
        for k in 0..2 {
            assert_eq!(world::local_get(key(k)), Some(LocalValue::Unset));
            let value = Box::into_raw(Box::new(k * 100 + client.index)).cast();
            // SAFETY: `destroy` takes the box.
            unsafe { world::local_set(key(k), value, destroy) };
            world::sleep(1_000);
            assert_eq!(world::local_get(key(k)), Some(LocalValue::Set(value)));
        }
        world::sleep(100_000 * client.index as u64);
    })
    .assert_done();
    DROPPED.with(|dropped| assert_eq!(*dropped.borrow(), [(0, 100), (0, 0), (1, 101), (1, 1)]));
}

#[test]
fn clocks_differ_by_socket() {
    let config = Config {
        clock_skew_ns: vec![0, 500, -200],
        placement: Placement::Spread,
        until_ns: Some(20_000),
        ..Config::seeded(1)
    };
    run(&machine(), &config, 4, |client| {
        assert_eq!(world::current().unwrap().node, client.node);
        assert_eq!(client.node, client.index);
        let (mut now, mut clock) = (0, 0);
        while client.running() {
            let (before, shown, after) = (world::now_ps(), world::clock_ps(), world::now_ps());
            assert!(before > now && shown >= clock && after > before);
            (now, clock) = (after, shown);
            let skew = [0, 500_000, -200_000, 0][client.node];
            assert!(shown.checked_add_signed(-skew).is_some_and(|time| (before..=after).contains(&time)) || shown == 0);
        }
        assert!(world::now() >= 20_000);
    })
    .assert_done();
}

#[test]
fn threads_run_where_they_are_told() {
    let fill = |threads: usize| {
        let nodes = RefCell::new(vec![0; 4]);
        run(&machine(), &Config::seeded(1), threads, |client| nodes.borrow_mut()[client.node] += 1).assert_done();
        nodes.into_inner()
    };
    assert_eq!(fill(30), [28, 2, 0, 0]);
    assert_eq!(fill(112), [28; 4]);
    assert_eq!(fill(120), [36, 28, 28, 28]);
    every(1, |_| {
        let body = || assert_eq!(world::current().unwrap().node, 3);
        world::join(world::spawn(Some(3), false, Box::new(body)).ok().unwrap());
        assert!(world::pin(15) && !world::pin(112));
        assert_eq!(world::current().unwrap().node, 1);
        assert_eq!(world::machine().unwrap().cpus(), 112);
    });
}

#[test]
fn homes_are_by_first_touch_or_placed() {
    #[repr(align(4096))]
    struct Page(#[allow(dead_code)] [u8; 4096]);
    let pages: Vec<Page> = (0..3).map(|_| Page([0; 4096])).collect();
    let addr = |page: usize| (&raw const pages[page]).cast::<()>();
    run(&machine(), &Config { placement: Placement::Spread, ..Config::seeded(1) }, 2, |client| {
        if client.index == 1 {
            world::touch(addr(0), 64);
            world::set_home(addr(1), 4096, 2);
        } else {
            world::sleep(10_000);
            world::touch(addr(0), 4096);
            let before = world::stats().unwrap();
            world::touch(addr(1), 4096);
            assert_eq!(world::stats().unwrap().memory_remote - before.memory_remote, 64);
            world::touch(addr(2), 4096);
            assert_eq!([0, 1, 2].map(|page| world::home_of(addr(page)).unwrap()), [1, 2, 0]);
        }
    })
    .assert_done();
}

/// Counts the live values.
struct Counted<'a>(&'a Cell<i32>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<i32>) -> Self {
        count.set(count.get() + 1);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn unfinished_threads_unwind_and_wait_for_each_other() {
    struct Unlock<'a>(&'a Word);
    impl Drop for Unlock<'_> {
        fn drop(&mut self) {
            self.0.unlock();
        }
    }
    /// Takes a lock in its destructor while another thread holds the lock.
    struct Locks<'a>(&'a Word);
    impl Drop for Locks<'_> {
        fn drop(&mut self) {
            self.0.lock();
            self.0.unlock();
        }
    }
    for schedule in SCHEDULES {
        let alive = Cell::new(0);
        let config = Config { schedule, ..Config::seeded(4) };
        let (report, _) = run_with(
            &machine(),
            &config,
            4,
            || (Counted::new(&alive), Word::new(0)),
            |(_, word), client| {
                let _counted = Counted::new(&alive);
                if client.index == 0 {
                    word.lock();
                    let _unlock = Unlock(word);
                    world::park();
                } else {
                    world::sleep(10_000);
                    let _locks = Locks(word);
                    world::park();
                }
            },
            drop,
        );
        assert_eq!(report.outcome, Outcome::Deadlock { waiting: vec![0, 1, 2, 3] });
        assert_eq!((alive.get(), report.abandoned), (0, 0), "{schedule:?}");
    }
}

#[test]
fn a_destructor_that_waits_for_ever_is_abandoned() {
    struct Waits<'a>(&'a Word);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            while self.0.get() == 0 {
                world::spin_hint();
            }
        }
    }
    let word = Box::leak(Box::new(Word::new(0)));
    let report = run(&machine(), &Config::seeded(1), 2, |client| {
        let _waits = (client.index == 1).then(|| Waits(word));
        world::park();
    });
    // The main thread waits for this thread, but has no destructor to run itself.
    assert_eq!(report.abandoned, 1);
}

#[test]
fn set_up_and_tear_down_take_no_time() {
    let (report, end) = run_with(
        &machine(),
        &Config::seeded(1),
        2,
        || {
            let words: Vec<Word> = (0..1000).map(Word::new).collect();
            words.iter().for_each(|word| word.set(word.get() + 1));
            assert_eq!(world::now(), 0);
            words
        },
        |words, _| {
            words[0].add(1);
            assert!(world::now() < 1_000);
        },
        |words| words.iter().map(Word::get).sum::<u64>(),
    );
    assert_eq!(end, Some(1000 * 999 / 2 + 1000 + 2));
    assert!(report.assert_done().end_ns < 1_000);
}

#[test]
fn a_panic_in_the_set_up_or_the_tear_down_is_reported() {
    let run = |setup: bool| {
        let check = |now| assert!(setup != now, "planted");
        run_with(&machine(), &Config::seeded(1), 2, || check(true), |(), _| (), |()| check(false)).0
    };
    for setup in [true, false] {
        let Outcome::Panicked { thread, message, .. } = run(setup).outcome else { panic!() };
        assert_eq!((thread, message.as_str()), (2, "planted"));
    }
}

#[test]
fn outside_of_a_run_everything_is_plain() {
    let word = Word::new(1);
    word.lock_and_count_free();
    assert_eq!((world::now(), world::current(), world::local_get(1), world::stamp()), (0, None, None, 0));
    assert!(world::wait_while(1, None, || false));
    assert!(!world::wait_while(1, Some(1_000_000), || true));
    let body = world::spawn(None, true, Box::new(|| ())).unwrap_err();
    body();
    world::park();
    world::spin_hint();
    world::touch((&raw const word).cast(), 64);
    assert!(!world::active() && world::machine().is_none());
}

//! Tests whole simulations: how they end, waiting, background threads, unwinding.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use archipelago_sim::world;
use archipelago_sim::{Config, Machine, Outcome, Placement, Schedule, Variation, run, run_with};
use common::{Word, machine};

#[test]
fn counts_to_the_end() {
    for schedule in [Schedule::VirtualTime, Schedule::Random, Schedule::Pct { depth: 3 }] {
        let word = Word::new(0);
        let config = Config { schedule, ..Config::seeded(3) };
        let report = run(&machine(), &config, 8, |_| {
            for _ in 0..100 {
                word.add(1);
            }
        });
        assert_eq!(report.outcome, Outcome::Done);
        assert_eq!(word.get(), 800);
        assert!(report.end_ns > 0 && report.stats.accesses >= 800);
    }
}

#[test]
fn spinning_thread_sees_the_change() {
    for schedule in [Schedule::VirtualTime, Schedule::Random, Schedule::Pct { depth: 3 }] {
        let (flag, answer) = (Word::new(0), Word::new(0));
        let config = Config { schedule, ..Config::seeded(3) };
        let report = run(&machine(), &config, 5, |client| {
            if client.index == 0 {
                world::sleep(50_000);
                answer.set(42);
                flag.set(1);
            } else {
                while flag.get() == 0 {
                    world::spin_hint();
                }
                assert_eq!(answer.get(), 42);
            }
        });
        report.assert_done();
    }
}

#[test]
fn a_panic_is_reported() {
    let drops = Rc::new(Cell::new(0));
    struct Count(Rc<Cell<i32>>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let word = Word::new(0);
    let report = run(&machine(), &Config::seeded(1), 4, |client| {
        let _count = Count(drops.clone());
        if client.index == 2 {
            world::sleep(1000);
            panic!("number {}", client.index);
        }
        while word.get() == 0 {
            world::spin_hint();
        }
    });
    let Outcome::Panicked { thread, at_ns, message } = report.outcome else { panic!("{}", report.outcome) };
    assert_eq!((thread, message.as_str()), (2, "number 2"));
    assert!((1000..2000).contains(&at_ns));
    assert_eq!((drops.get(), report.abandoned), (4, 0));
}

#[test]
fn threads_that_panic_together_still_unwind() {
    struct Touches<'a>(&'a Word);
    impl Drop for Touches<'_> {
        fn drop(&mut self) {
            (0..100).for_each(|_| drop(Box::new(self.0.add(1))));
            world::sleep(1000);
            self.0.add(1);
        }
    }
    for schedule in [Schedule::VirtualTime, Schedule::Random, Schedule::Pct { depth: 3 }] {
        let word = Word::new(0);
        let report = run(&machine(), &Config { schedule, ..Config::seeded(1) }, 6, |_| {
            let _touches = Touches(&word);
            word.add(1);
            panic!("all of them");
        });
        assert!(matches!(report.outcome, Outcome::Panicked { .. }), "{}", report.outcome);
        assert_eq!(report.abandoned, 0);
    }
}

#[test]
fn daemons_serve_and_are_unwound() {
    let word = Word::new(0);
    let ended = Rc::new(Cell::new(false));
    struct Set(Rc<Cell<bool>>);
    impl Drop for Set {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let word: &'static Word = Box::leak(Box::new(word));
    let (report, sum) = run_with(
        &machine(),
        &Config::seeded(1),
        3,
        || {
            let set = Set(ended.clone());
            let body = move || {
                let _set = set;
                loop {
                    world::park();
                    word.add(1000);
                }
            };
            world::spawn_background(Some(1), Box::new(body)).ok().unwrap()
        },
        |&daemon, _| {
            word.add(1);
            world::unpark(daemon);
            while word.get() < 1000 {
                world::spin_hint();
            }
        },
        |_| word.get(),
    );
    assert_eq!(report.outcome, Outcome::Done);
    assert!(sum.unwrap() >= 1003);
    assert!(ended.get());
    assert_eq!(report.abandoned, 0);
}

/// When a run ends, a destructor may wait for another thread's, even by a loop that only loads the line which the main
/// thread accessed last.
#[test]
fn a_destructor_that_only_loads_is_not_alone() {
    let word: &'static Word = Box::leak(Box::new(Word::new(0)));
    struct AtLast<F: FnMut()>(F);
    impl<F: FnMut()> Drop for AtLast<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    fn daemon(at_last: impl FnMut() + 'static) {
        let parks = move || {
            let _last = AtLast(at_last);
            world::park();
        };
        world::spawn_background(None, Box::new(parks)).ok().unwrap();
    }
    let setup = || {
        daemon(|| word.set(1));
        // The thread that was made last is unwound first.
        daemon(|| while word.get() == 0 {});
    };
    let body = |_: &(), _| world::sleep(1_000);
    let (report, last) = run_with(&machine(), &Config::seeded(1), 1, setup, body, |()| word.get());
    assert_eq!((report.outcome, report.abandoned, last), (Outcome::Done, 0, Some(0)));
}

/// What follows a span without virtual time takes time, even if it is an access to the same line.
#[test]
fn time_passes_after_an_untimed_access() {
    run_with(
        &machine(),
        &Config::seeded(1),
        1,
        || Word::new(0),
        |word, _| {
            let stored = || {
                let begin = world::now_ps();
                (0..100).for_each(|value| word.set(value));
                world::now_ps() - begin
            };
            let without = world::untimed(stored);
            assert!(stored() > without + 10_000);
        },
        drop,
    )
    .0
    .assert_done();
}

#[test]
fn opposite_locks_deadlock() {
    for schedule in [Schedule::VirtualTime, Schedule::Random] {
        let (a, b) = (Word::new(0), Word::new(0));
        let config = Config { schedule, ..Config::seeded(1) };
        let report = run(&Machine::preset("xeon-8180-8s").unwrap(), &config, 2, |client| {
            let (first, second) = if client.index == 0 { (&a, &b) } else { (&b, &a) };
            first.lock();
            world::work(1000);
            world::sleep(1000);
            second.lock();
        });
        assert_eq!(report.outcome, Outcome::Deadlock { waiting: vec![0, 1] });
    }
}

#[test]
fn the_hottest_line_is_named() {
    let setup = || {
        let words = (0..20).map(|_| Word::new(0)).collect::<Vec<_>>();
        world::label((&raw const words[7]).cast(), 64, "the counter");
        words
    };
    let body = |words: &Vec<Word>, client: archipelago_sim::Client| {
        for _ in 0..50 {
            words[7].add(1);
            words[client.index].add(1);
        }
    };
    let report = run_with(&machine(), &Config::seeded(1), 6, setup, body, drop).0.assert_done();
    let (first, second) = (&report.hot_lines[0], report.hot_lines.get(1));
    assert_eq!((&*first.label, first.addr % 64), ("the counter", 0));
    assert!(second.is_none_or(|second| second.waited_ps < first.waited_ps));
    assert!(first.waited_ps <= report.stats.line_wait_ps);
}

/// Four sockets of 14 cores, two hardware threads each: CPU 56 is the second hardware thread of CPU 0's core.
#[test]
fn placements_fill_sockets_cores_or_spread() {
    let places = |placement| {
        let config = Config { placement, ..Config::seeded(1) };
        let places = RefCell::new(vec![(0, 0); 58]);
        run(&machine(), &config, 58, |client| places.borrow_mut()[client.index] = (client.cpu, client.node));
        let places = places.into_inner();
        [0, 13, 14, 28, 56].map(|client| places[client])
    };
    assert_eq!(places(Placement::Fill), [(0, 0), (13, 0), (56, 0), (14, 1), (28, 2)]);
    assert_eq!(places(Placement::Cores), [(0, 0), (13, 0), (14, 1), (28, 2), (56, 0)]);
    assert_eq!(places(Placement::Spread), [(0, 0), (17, 1), (31, 2), (7, 0), (56, 0)]);
}

#[test]
fn remote_accesses_are_counted_by_part() {
    let config = Config { placement: Placement::Spread, ..Config::seeded(1) };
    let words = || {
        let words: Vec<Word> = (0..4).map(Word::new).collect();
        words.iter().for_each(|word| word.set(7));
        words
    };
    let body = |words: &Vec<Word>, client: archipelago_sim::Client| {
        if client.node != 1 {
            return;
        }
        words[0].get();
        let part = world::part("outer");
        words[1].get();
        {
            let _part = world::part("inner");
            words[2].get();
        }
        words[3].get();
        drop(part);
        words[3].get();
    };
    let (report, _) = run_with(&machine(), &config, 4, words, body, drop);
    let report = report.assert_done();
    assert_eq!(report.parts, ["outer", "inner"]);
    assert_eq!(report.stats.remote_in[..4], [1, 2, 1, 0]);
    assert_eq!(report.stats.remote(), 4);
}

/// Memory that was filled in set-up is found in the third-level caches of its home nodes, and in no other cache.
#[test]
fn filling_leaves_lines_in_their_homes_caches() {
    let loads = |warm: bool, reader: usize| {
        let config = Config { placement: Placement::Cpus(vec![reader]), ..Config::seeded(1) };
        let setup = || {
            let words: Vec<Word> = (0..200).map(Word::new_of).collect();
            world::bind(1);
            words.iter().for_each(|word| _ = word.get());
            world::bind(0);
            if warm {
                world::warm_homes();
            }
            words
        };
        let body = |words: &Vec<Word>, _| words.iter().for_each(|word| _ = word.get());
        run_with(&machine(), &config, 1, setup, body, drop).0.assert_done().stats
    };
    let [home, other] = [1, 2].map(|node| machine().cpus_of(node).next().unwrap());
    let cold = loads(false, home);
    assert!(cold.memory_local >= 190 && cold.l3_hits < 10, "{cold:?}");
    let warm = loads(true, home);
    assert!(warm.memory_local < 10 && warm.l3_hits >= 190, "{warm:?}");
    let remote = loads(true, other);
    assert!(remote.clean_remote >= 190 && remote.memory_remote < 10, "{remote:?}");
}

/// A read-modify-write that changes nothing is counted; a load, a store and one that changes its word are not.
#[test]
fn updates_without_effect_are_counted() {
    let word = Word::new(0);
    let report = run(&machine(), &Config::seeded(1), 1, |_| {
        let at = (&raw const word).cast::<()>();
        (0..3).for_each(|_| world::update(at, 8, || ((), false)));
        (0..2).for_each(|_| world::update(at, 8, || ((), true)));
        world::store(at, 8, || false);
        world::load(at, 8, || ());
    });
    assert_eq!(report.assert_done().stats.unchanged, 3);
}

/// A run whose machine changes at the end of the set-up is a run on that machine, in every variation of the model.
#[test]
fn a_retimed_run_is_a_run_on_the_other_machine() {
    let machine = machine();
    let hash = |start: &Machine, then: Option<&Machine>| {
        let setup = || {
            let words = (0..100).map(|_| Word::new(0)).collect::<Vec<_>>();
            if let Some(machine) = then {
                world::retime(machine);
            }
            words
        };
        let body = |words: &Vec<Word>, client: archipelago_sim::Client| {
            for step in 0..100 {
                words[step].get();
                words[(step * 7 + client.index) % 5].add(1);
            }
        };
        run_with(start, &Config::seeded(1), 6, setup, body, drop).0.assert_done().hash
    };
    let direct = Variation::all().map(|variation| variation.of(&machine));
    let hashes: Vec<u64> = direct
        .map(|varied| {
            let direct = hash(&varied, None);
            assert_eq!(hash(&machine, Some(&varied)), direct);
            direct
        })
        .collect();
    assert!(hashes.iter().filter(|of| **of != hash(&machine, None)).count() > 10, "the machines differ");
}

#[test]
#[should_panic(expected = "more than their times")]
fn a_machine_of_another_structure_is_refused() {
    let machine = machine();
    let other = Machine { threads_per_core: machine.threads_per_core + 1, ..machine.clone() };
    let refused = || world::retime(&other);
    let report = run_with(&machine, &Config::seeded(1), 1, refused, |(), _| {}, drop).0;
    report.assert_done();
}

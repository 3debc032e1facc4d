//! Tests that faults happen where they should, and that runs without an end are reported with the right outcome.

mod common;

use archipelago_sim::{Client, Config, Fault, Outcome, Placement, Point, Report, Schedule, run, run_with, world};
use common::{Word, machine};

const STALL: u64 = 1_000_000;

fn config(schedule: Schedule, faults: Vec<Fault>) -> Config {
    Config { schedule, faults, ..Config::seeded(2) }
}

/// Each thread makes 100 accesses to a word of its own, and passes a named point in the middle.
fn program(config: &Config, threads: usize) -> Report {
    let words: Vec<Word> = (0..threads).map(|_| Word::new(0)).collect();
    let body = |client: Client| {
        for turn in 0..100 {
            words[client.index].add(1);
            if turn == 50 {
                world::point("the middle");
            }
        }
    };
    run(&machine(), config, threads, body).assert_done()
}

#[test]
fn a_stall_takes_its_time() {
    for schedule in [Schedule::VirtualTime, Schedule::Random] {
        assert!(program(&config(schedule, vec![]), 4).end_ns < STALL / 10);
        let stall = |thread, at| Fault::Stall { thread, at, for_ns: STALL };
        let named = |name: &str, nth| Point::Named { name: name.to_string(), nth };
        for at in [Point::Time(100), Point::Access(1), Point::Access(50), named("the middle", 1)] {
            let end = program(&config(schedule, vec![stall(Some(2), at.clone())]), 4).end_ns;
            assert!((STALL..STALL + STALL / 10).contains(&end), "{schedule:?} {at:?}: {end}");
        }
        for never in [Point::Time(10 * STALL), Point::Access(101), named("the middle", 2), named("elsewhere", 1)] {
            let end = program(&config(schedule, vec![stall(Some(2), never.clone())]), 4).end_ns;
            assert!(end < STALL / 10, "{schedule:?} {never:?}: {end}");
        }
        let end = program(&config(schedule, vec![stall(None, Point::OneIn(50))]), 1).end_ns;
        assert!((STALL..10 * STALL).contains(&end), "{end}");
        let end =
            program(&config(schedule, vec![stall(Some(0), Point::Access(3)), stall(Some(0), Point::Access(4))]), 2);
        assert!((2 * STALL..3 * STALL).contains(&end.end_ns), "{}", end.end_ns);
    }
}

#[test]
fn a_node_admits_nobody() {
    let fault = Fault::StallNode { node: 1, at_ns: 100, for_ns: STALL };
    let faulty = config(Schedule::VirtualTime, vec![fault]);
    // The first 28 threads fill node 0.
    assert!(program(&faulty, 28).end_ns < STALL / 2);
    assert!(program(&faulty, 29).end_ns >= STALL);
}

#[test]
fn a_stalled_lock_holder_keeps_the_others_waiting() {
    let held = Word::new(0);
    let stall = Fault::Stall { thread: Some(0), at: Point::Named { name: "holding".into(), nth: 1 }, for_ns: STALL };
    let report = run(&machine(), &config(Schedule::VirtualTime, vec![stall]), 8, |_| {
        held.lock();
        world::point("holding");
        held.unlock();
    });
    assert!(report.assert_done().end_ns >= STALL);
}

#[test]
fn no_progress_is_a_stall() {
    for schedule in [Schedule::VirtualTime, Schedule::Random, Schedule::Pct { depth: 2 }] {
        let word = Word::new(0);
        let config = Config { stall_ns: 200_000, ..config(schedule, vec![]) };
        let body = |_| while !word.cas(1, 2) {};
        assert_eq!(run(&machine(), &config, 3, body).outcome, Outcome::Stalled);
        let body = |_| while world::now() > 0 || word.get() == 0 {};
        assert_eq!(run(&machine(), &config, 1, body).outcome, Outcome::Stalled);
    }
}

#[test]
fn limits_end_a_run() {
    let word = Word::new(0);
    let forever = |_: Client| {
        loop {
            word.add(1);
        }
    };
    for schedule in [Schedule::VirtualTime, Schedule::Random] {
        let config = Config { limit_accesses: 5_000, ..config(schedule, vec![]) };
        let report = run(&machine(), &config, 3, forever);
        assert_eq!(report.outcome, Outcome::Stalled);
        assert!((5_000..5_010).contains(&report.stats.accesses));
        let config = Config { limit_ns: 50_000, limit_accesses: u64::MAX, ..config };
        assert_eq!(run(&machine(), &config, 3, forever).outcome, Outcome::Stalled);
    }
}

#[test]
fn everybody_waiting_is_a_deadlock() {
    for schedule in [Schedule::VirtualTime, Schedule::Random] {
        let word = Word::new(0);
        let body = |client: Client| match client.index {
            0 => world::park(),
            1 => drop(world::wait_while(7, None, || true)),
            2 => {
                while word.get() == 0 {
                    world::spin_hint();
                }
            }
            _ => word.set(0),
        };
        let report = run(&machine(), &config(schedule, vec![]), 4, body);
        assert_eq!(report.outcome, Outcome::Deadlock { waiting: vec![0, 1, 2] });
        // A background thread that sleeps repeatedly does not hide the deadlock.
        let body = |_: Client| {
            world::spawn_background(
                None,
                Box::new(|| {
                    loop {
                        world::sleep(1000);
                    }
                }),
            )
            .ok()
            .unwrap();
            world::park();
        };
        let report = run(&machine(), &config(schedule, vec![]), 1, body);
        assert_eq!(report.outcome, Outcome::Deadlock { waiting: vec![0] });
    }
}

#[test]
fn no_time_is_too_long() {
    for schedule in [Schedule::VirtualTime, Schedule::Random] {
        for at in
            [Point::Access(2), Point::Time(100), Point::OneIn(3), Point::Named { name: "the middle".into(), nth: 1 }]
        {
            let word = Word::new(0);
            let fault = Fault::Stall { thread: Some(0), at, for_ns: u64::MAX };
            let body = |_| {
                for _ in 0..50 {
                    word.add(1);
                    world::point("the middle");
                }
            };
            let report = run(&machine(), &config(schedule, vec![fault]), 2, body);
            assert!(matches!(report.outcome, Outcome::Stalled), "{:?}", report.outcome);
        }
        let never =
            [Point::Time(u64::MAX), Point::OneIn(u64::MAX)].map(|at| Fault::Stall { thread: None, at, for_ns: 1 });
        program(&config(schedule, never.to_vec()), 2);
        for long in [|| world::work(u64::MAX), || world::work(1 << 50), || world::pause(u64::MAX)] {
            let body = |_| {
                let mut last = 0;
                for _ in 0..20 {
                    (0..100).for_each(|_| long());
                    let now = world::now_ps();
                    assert!(now >= last, "{now} after {last}");
                    last = now;
                }
            };
            assert_eq!(run(&machine(), &config(schedule, vec![]), 2, body).outcome, Outcome::Stalled);
        }
        let odd = Config { jitter_ps: u64::MAX, clock_skew_ns: vec![i64::MIN, i64::MAX], ..config(schedule, vec![]) };
        let body = |_| assert!(world::clock_ps() <= world::clock_uncertainty_ps());
        run(&machine(), &odd, 2, body).assert_done();
    }
}

/// Runs a function in its destructor.
struct AtLast(fn());

impl Drop for AtLast {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn deadlines_in_destructors_pass() {
    let deadline = || {
        let end = world::now() + 1_000;
        while world::now() < end {}
    };
    let sleeps = || {
        let end = world::now() + 1_000_000;
        while world::now() < end {
            world::sleep(100_000);
        }
    };
    let waits = || assert!(!world::wait_while(7, Some(1_000), || true));
    for last in [deadline as fn(), sleeps, waits] {
        let body = |_| {
            let _last = AtLast(last);
            world::park();
        };
        let report = run(&machine(), &config(Schedule::VirtualTime, vec![]), 2, body);
        assert_eq!((report.outcome, report.abandoned), (Outcome::Deadlock { waiting: vec![0, 1] }, 0));
    }
}

#[test]
fn a_thread_that_survives_its_unwinding_is_abandoned() {
    let word: &'static Word = Box::leak(Box::new(Word::new(0)));
    let setup = || {
        let catches = || loop {
            let _ = std::panic::catch_unwind(|| word.add(1));
        };
        world::spawn_background(None, Box::new(catches)).ok().unwrap();
    };
    let body = |_: &(), _| world::sleep(1_000);
    let (report, _) = run_with(&machine(), &config(Schedule::VirtualTime, vec![]), 2, setup, body, drop);
    assert_eq!((report.outcome, report.abandoned), (Outcome::Done, 1));
}

#[test]
fn no_thread_that_is_over_is_woken() {
    // Each thread's destructor calls `wake`, but the run is over, so no thread waits for the key any more.
    let body = |client: Client| {
        let _last = AtLast(|| assert_eq!(world::wake(7, 1), 0));
        if client.index == 0 {
            world::park();
        }
        world::wait_while(7, None, || true);
    };
    let report = run(&machine(), &config(Schedule::VirtualTime, vec![]), 2, body);
    assert_eq!(report.outcome, Outcome::Deadlock { waiting: vec![0, 1] });
    // A thread waits for its own end.
    let body = |_| world::join(world::current().unwrap().id);
    let report = run(&machine(), &config(Schedule::VirtualTime, vec![]), 1, body);
    assert_eq!((report.outcome, report.abandoned), (Outcome::Deadlock { waiting: vec![0] }, 0));
}

#[test]
fn wrong_configurations_are_told_in_a_sentence() {
    let odd = |config: Config| {
        let run = || run(&machine(), &config, 2, |_| ());
        let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("a panic");
        payload.downcast_ref::<String>().cloned().unwrap_or_else(|| payload.downcast_ref::<&str>().unwrap().to_string())
    };
    let base = config(Schedule::VirtualTime, vec![]);
    let cpus = |cpus| Config { placement: Placement::Cpus(cpus), ..base.clone() };
    assert_eq!(odd(cpus(vec![])), "`placement` names no CPU");
    assert_eq!(odd(cpus(vec![0, 112])), "`placement` names CPU 112; there are 112");
    let probability = |probability| config(Schedule::VirtualTime, vec![Fault::AbortTransactions { probability }]);
    assert_eq!(odd(probability(f64::NAN)), "`probability` is NaN; it must be from 0 to 1");
    assert_eq!(odd(Config { stack_bytes: 4096, ..base.clone() }), "`stack_bytes` is 4096; the least is 32768");
    run(&machine(), &Config { stack_bytes: 32 << 10, ..base }, 2, |_| ()).assert_done();
}

/// The environment variable that is set in the child process whose stack is to overflow.
const CHILD: &str = "ARCHIPELAGO_SIM_OVERFLOW_CHILD";

/// Uses about a kilobyte of stack for each of `turns`.
fn deep(turns: u64) -> u64 {
    let frame = std::hint::black_box([turns; 128]);
    if turns == 0 { 0 } else { deep(turns - 1) + frame[5] }
}

#[test]
fn a_stack_that_overflows_is_named() {
    let config = Config { stack_bytes: 64 << 10, ..Config::seeded(1) };
    if let Ok(child) = std::env::var(CHILD) {
        let config = Config { watch: child == "watched", ..config };
        run(&machine(), &config, 3, |client| {
            _ = std::hint::black_box(deep(if client.index == 2 { 1_000 } else { 10 }))
        });
        return;
    }
    for kind in ["plain", "watched"] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.env(CHILD, kind).args(["--exact", "a_stack_that_overflows_is_named"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let named = said.contains("simulated thread 2 has overflowed its stack of 65536 bytes");
        assert!(named || cfg!(not(target_os = "linux")), "{said}");
    }
}

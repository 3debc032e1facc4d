//! Faults strike where they should, and runs without an end are called by their names.

mod common;

use archipelago_sim::{Client, Config, Fault, Outcome, Point, Report, Schedule, run, world};
use common::{Word, machine};

const STALL: u64 = 1_000_000;

fn config(schedule: Schedule, faults: Vec<Fault>) -> Config {
    Config { schedule, faults, ..Config::seeded(2) }
}

/// Each thread makes 100 accesses of its own and passes a point in the middle.
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
    // 28 threads fill node 0.
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
        // A background thread that only looks again and again doesn't hide it.
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

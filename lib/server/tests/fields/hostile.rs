//! Loads that could make clients wait, and wrong clocks. The tests count steps, not time.

use crate::ours::Ours;
use archipelago_server::db::Random;
use archipelago_server::db::fields::MET;
use archipelago_server::operation::Write;
use archipelago_server::reply::Reply;

const STEP: u32 = 500;

fn expire(ours: &mut Ours, now: u64) -> usize {
    match ours.write(&Write::Expire { now, most: STEP }) {
        Reply::Int(count) => count as usize,
        other => panic!("{other:?}"),
    }
}

/// Returns a hash of many fields that expire at one time, and fields that do not expire.
fn filled(fields: usize, stay: usize) -> Ours {
    let mut ours = Ours::default();
    let set = |ours: &mut Ours, options: &[&str], from: usize, to: usize| {
        for first in (from..to).step_by(1000) {
            let last = (first + 1000).min(to);
            let mut words: Vec<String> = ["HSETEX", "h"].iter().chain(options).map(|word| (*word).into()).collect();
            words.extend(["FIELDS".into(), (last - first).to_string()]);
            (first..last).for_each(|field| words.extend([format!("field:{field}"), "value".into()]));
            assert_eq!(ours.ask(&words, 1_000), Reply::Int(1));
        }
    };
    set(&mut ours, &["PXAT", "2000"], 0, fields);
    set(&mut ours, &[], fields, fields + stay);
    ours
}

#[test]
fn a_million_fields_that_are_due_at_once_go_step_by_step() {
    const FIELDS: usize = 1_000_000;
    let mut ours = filled(FIELDS, 10);
    assert_eq!(ours.db.expired(1_999), 0);
    assert_eq!(ours.db.expired(2_000), FIELDS);
    let digest = ours.db.digest();
    assert_eq!(ours.line("HLEN h", 2_000), ":10");
    assert_eq!(ours.line("HGET h field:3", 2_000), "nil");
    assert_eq!(ours.line("HTTL h FIELDS 1 field:3", 2_000), "[:-2]");
    assert_eq!(ours.db.digest(), digest, "reads remove nothing");
    // Each write also removes at most `MET` expired fields each time that it looks the hash up.
    for line in ["HSET h field:3 new", "HDEL h field:4", "HINCRBY h field:5 1", "HSETNX h field:6 1", "EXPIRE h 1000"] {
        let before = ours.db.expired(2_000);
        ours.line(line, 2_000);
        let taken = before - ours.db.expired(2_000);
        assert!((1..=3 * MET + 1).contains(&taken), "{line}: {taken}");
    }
    assert_eq!(ours.line("HMGET h field:3 field:4 field:5 field:6", 2_000), "[new nil 1 1]");
    // The remaining fields are removed in steps. Clients can be served between two steps.
    let (mut left, mut steps) = (ours.db.expired(2_000), 0);
    while left > 0 {
        let removed = expire(&mut ours, 2_000);
        assert!(removed <= STEP as usize);
        assert_eq!(ours.db.expired(2_000), left - removed);
        (left, steps) = (left - removed, steps + 1);
    }
    assert!(steps >= 1_990, "{steps}");
    assert_eq!(ours.line("HLEN h", 2_000), ":13");
}

#[test]
fn a_spent_hash_is_gone_at_once_and_its_memory_in_steps() {
    let mut ours = filled(20_000, 0);
    assert_eq!(ours.line("EXISTS h", 2_000), ":0");
    assert_eq!(ours.line("TYPE h", 2_000), "+none");
    let mut steps = 0;
    while ours.db.expired(2_000) > 0 {
        assert_eq!(expire(&mut ours, 2_000), STEP as usize);
        steps += 1;
    }
    assert_eq!((steps, ours.line("DBSIZE", 1_000)), (40, ":0".into()));
}

#[test]
fn ten_thousand_hashes_with_one_field_each_go_in_the_order_of_their_times() {
    let mut ours = Ours::default();
    let mut random = Random(9);
    for key in 0..10_000 {
        let at = 2_000 + random.below(1_000);
        ours.line(&format!("HSETEX h{key} PXAT {at} FIELDS 1 f {at}"), 1_000);
    }
    ours.line("HSET stays f 1", 1_000);
    let (mut gone, mut now) = (0, 2_000);
    while gone < 10_000 {
        let removed = expire(&mut ours, now);
        assert!(removed <= STEP as usize);
        gone += removed;
        if removed < STEP as usize {
            assert_eq!(ours.db.expired(now), 0);
            now += 97;
        }
    }
    assert_eq!(ours.line("DBSIZE", now), ":1");
    assert_eq!(ours.db.expired(u64::MAX), 0);
}

#[test]
fn a_clock_that_jumps_back_makes_no_replica_differ() {
    let (mut ours, mut random) = (Ours::default(), Random(4));
    for step in 0..30_000 {
        // The clock moves forward and back by hours.
        let now = [1_000, 5_000_000, 5_000_100, 0, u64::MAX / 2][random.below(5)] + random.below(200) as u64;
        let (key, field) = (random.below(4), random.below(30));
        let line = match random.below(9) {
            0 => format!("HPEXPIRE h{key} {} FIELDS 1 {field}", random.below(300)),
            1 => format!("HSET h{key} {field} {step}"),
            2 => format!("HSETEX h{key} PX {} FIELDS 2 {field} 1 x{step} 2", 1 + random.below(300)),
            3 => format!("HGETEX h{key} PX {} FIELDS 1 {field}", random.below(300)),
            4 => format!("HGETALL h{key}"),
            5 => format!("HPTTL h{key} FIELDS 2 {field} 3"),
            6 => format!("HDEL h{key} {field}"),
            7 => format!("HINCRBY h{key} {field} 1"),
            _ => {
                ours.write(&Write::Expire { now, most: 2 });
                continue;
            }
        };
        ours.line(&line, now);
        if step % 1000 == 0 {
            assert_eq!(ours.db.digest(), ours.replica.digest());
        }
    }
}

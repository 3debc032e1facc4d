//! The own-writes part: two writers have alternate keys, and each must see its own writes at once.

use archipelago_platform::thread;

use super::clock::{Clock, Deadline, Verdict};
use super::subject::{Session, Subject};
use crate::keys::BenchKey;

const WRITERS: usize = 2;

pub fn examine<K: BenchKey>(map: &dyn Subject<K>, keys: &[K], clock: Clock) -> Verdict {
    let deadline = clock.start();
    thread::scope(|scope| {
        let start = |writer| scope.spawn(move || write(map, keys, writer, deadline));
        let writers: Vec<_> = (0..WRITERS).map(start).collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("panics end the part"))
    })
}

/// Repeats rounds over the writer's keys until the deadline: inserts all, overwrites all, removes every other one.
fn write<K: BenchKey>(map: &dyn Subject<K>, keys: &[K], writer: usize, deadline: Deadline) -> Verdict {
    let (session, scans) = (&*map.session(), map.scans());
    let check = |key: &K, expected, what: &str| {
        check(session, key, expected, what)?;
        if scans { check_scan(session, key, expected, what) } else { Ok(()) }
    };
    let mine = || keys.iter().skip(writer).step_by(WRITERS).enumerate();
    for round in 0u64.. {
        for (i, key) in mine() {
            let value = (round << 32) | i as u64;
            session.insert(key, value);
            check(key, Some(value), "inserted")?;
            session.insert(key, !value);
            check(key, Some(!value), "overwritten")?;
            if i % 2 == 0 {
                session.remove(key);
                check(key, None, "removed")?;
            }
            if i % 256 == 0 && deadline.passed() {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn check<K: BenchKey>(session: &dyn Session<K>, key: &K, expected: Option<u64>, what: &str) -> Verdict {
    let (found, own) = (session.get(key), || key.readable());
    if found != expected {
        return Err(format!("get of its own key {}, just {what}, returns {found:?}, should be {expected:?}", own()));
    }
    Ok(())
}

fn check_scan<K: BenchKey>(session: &dyn Session<K>, key: &K, expected: Option<u64>, what: &str) -> Verdict {
    let own = || key.readable();
    let mut first = None;
    session.scan(key, 1, &mut |shown, value| first = Some((shown, value)));
    let scanned = first.filter(|(shown, _)| shown == key).map(|(_, value)| value);
    if scanned != expected {
        return Err(format!("scan from its own key {}, just {what}, finds {scanned:?}, should be {expected:?}", own()));
    }
    Ok(())
}

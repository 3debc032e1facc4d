//! Readers that stay: what they keep, and what they do not.

use archipelago_platform::atomic::{AtomicBool, AtomicUsize, Ordering};
use archipelago_platform::thread;
use archipelago_platform::time::Duration;
use archipelago_sync::mvrlu::{ClockKind, Collection, Domain, Handle, Link, Stats};

use super::{collect_until, eager, read, retire_all, scaled};

#[test]
fn a_stuck_reader_stops_no_writer_and_costs_one_version_per_object() {
    // All three domains are tested at the same time, because a writer whose versions wait for a reader mostly sleeps.
    thread::scope(|scope| {
        for collection in [Collection::Cooperative, Collection::Background] {
            let builder = Domain::builder().collection(collection);
            scope.spawn(move || written_beside_a_stuck_reader(builder.build(), collection));
        }
        scope.spawn(|| written_beside_a_stuck_reader(eager().build(), Collection::Cooperative));
    });
}

fn written_beside_a_stuck_reader(domain: Domain, collection: Collection) {
    let (objects, rounds) = (scaled(1_000, 4), scaled(200_000, 60));
    let links: Vec<Link<[u64; 3]>> = (0..objects).map(|number| domain.alloc([number as u64; 3])).collect();
    let (mut writer, mut stuck) = (domain.register(), domain.register());
    let change = |writer: &mut Handle, number: usize| {
        writer.update(|tx| Ok(tx.lock(links[number % objects])?[0] += 1)).unwrap();
    };
    (0..objects).for_each(|number| change(&mut writer, number * 7));
    let snapshot = stuck.read();
    let seen: Vec<u64> = links.iter().map(|link| snapshot.get(*link)[0]).collect();
    (0..rounds).for_each(|number| change(&mut writer, number * 7));
    writer.collect();
    if !cfg!(miri) {
        // For each object the version of the stuck reader and the newest version, and some versions that wait for the
        // next scan.
        let most = 2 * objects + objects / 2 + 4_096;
        let is_bounded = |stats: &Stats| stats.versions <= most;
        match collection {
            Collection::Background => collect_until(&domain, &mut writer, is_bounded),
            _ => assert!(is_bounded(&domain.stats()), "{:?} of {objects} objects", domain.stats()),
        }
    }
    let again: Vec<u64> = links.iter().map(|link| snapshot.get(*link)[0]).collect();
    assert_eq!(seen, again);
    drop(snapshot);
    assert_eq!(read(&mut stuck, links[0])[1], 0);
    retire_all(&domain, &links);
}

/// Two writers run beside a snapshot that is held; 80 % of their sections are updates. When they have ended, the memory
/// of all copies, including free blocks, decreases to at most the size of the live set plus one version per object.
#[test]
#[cfg(not(miri))]
fn a_stuck_reader_costs_no_more_than_a_second_live_set_and_a_version_per_object() {
    type Object = [u64; 8];
    const OBJECTS: usize = 60_000;
    // An object's header, domain and value; and a version's header and value, in whole cache lines.
    let (live, versions) = (OBJECTS * (16 + size_of::<Object>()), OBJECTS * 128);
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        let domain = Domain::builder().clock(clock).build();
        let links: Vec<Link<Object>> = (0..OBJECTS).map(|number| domain.alloc([number as u64; 8])).collect();
        let (mut stuck, written) = (domain.register(), AtomicUsize::new(0));
        let write = |seed: u64, rounds: usize| {
            let (mut handle, mut random) = (domain.register(), seed);
            for _ in 0..rounds {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let link = links[(random >> 33) as usize % OBJECTS];
                if random >> 32 & 0xFF < 205 {
                    handle.update(|tx| Ok(tx.lock(link)?[1] += 1)).unwrap();
                } else {
                    assert!(handle.read().get(link)[0] < OBJECTS as u64);
                }
                written.fetch_add(1, Ordering::Relaxed);
            }
        };
        write(1, OBJECTS);
        let snapshot = stuck.read();
        let sum = || links.iter().map(|link| snapshot.get(*link)[1]).fold(0, u64::wrapping_add);
        let (before, mut most) = (sum(), 0);
        thread::scope(|scope| {
            let writers = [2, 3].map(|seed| {
                let write = &write;
                scope.spawn(move || write(seed, 4 * OBJECTS))
            });
            while written.load(Ordering::Relaxed) < 9 * OBJECTS && !writers.iter().all(|writer| writer.is_finished()) {
                most = most.max(domain.stats().bytes);
                thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(sum(), before);
        // While the writers run, a thread that loses its processor inside an operation can delay pruning (the removal
        // of versions that no snapshot needs) for any length of time. So the bound is checked after the writers have
        // ended, while the reader still holds its snapshot.
        let mut sweeper = domain.register();
        (0..8).for_each(|_| sweeper.collect());
        let left = domain.stats().bytes;
        println!("at most {most}, {left} left, of {}", live + versions);
        assert!(left <= live + versions, "{left} bytes of copies beside {live} of objects");
        drop(snapshot);
        retire_all(&domain, &links);
    }
}

#[test]
fn pruning_beside_readers_of_all_ages() {
    let domain = eager().build();
    let links: Vec<Link<[u64; 2]>> = (0..4).map(|_| domain.alloc([0, 0])).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for age in [1, 7, 50, 400] {
            let (domain, links, stop) = (&domain, &links, &stop);
            scope.spawn(move || {
                let mut handle = domain.register();
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = handle.read();
                    let first = snapshot.get(links[0])[0];
                    for _ in 0..age {
                        for link in links {
                            assert_eq!(*snapshot.get(*link), [first, first]);
                        }
                        thread::yield_now();
                    }
                }
            });
        }
        let mut handle = domain.register();
        for value in 1..=scaled(20_000, 30) as u64 {
            handle.update(|tx| links.iter().try_for_each(|link| Ok(*tx.lock(*link)? = [value; 2]))).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    retire_all(&domain, &links);
}

#[test]
fn forgotten_snapshots_only_delay() {
    let domain = eager().build();
    let link = domain.alloc(0_u64);
    let (mut writer, mut forgetful) = (domain.register(), domain.register());
    core::mem::forget(forgetful.read());
    for _ in 0..100 {
        writer.update(|tx| Ok(*tx.lock(link)? += 1)).unwrap();
    }
    assert_eq!(domain.stats().active_sections, 1);
    assert_eq!(read(&mut forgetful, link), 100);
    assert_eq!(domain.stats().active_sections, 0);
    core::mem::forget(forgetful.read());
    drop(forgetful);
    drop(writer);
    retire_all(&domain, &[link]);
}

//! MV-RLU under conditions that delay collection: snapshots that are held or leaked, handles that are idle or leaked,
//! and short-lived threads. Memory stays within the live set, a version per object and snapshot, and 64 KiB per thread.
//!
//! `ARCHIPELAGO_HOSTILE_SECONDS` is used as in `hostile_mvrlu`.
#![cfg(not(any(loom, miri, archipelago_sim)))]
// `Ok(*tx.lock(link)? = value)` expresses in one line what would otherwise take three.
#![allow(clippy::unit_arg)]

use std::time::{Duration, Instant};

use archipelago_check::hostile::{Counting, alone, crowd, duration_or, longest_gap, some_try, within};
use archipelago_sync::mvrlu::{Abort, ClockKind, Collection, Domain, Handle, Link};

#[global_allocator]
static HEAP: Counting = Counting::new();

const SHARE: usize = 64 * 1024;

#[derive(Clone, Copy)]
struct Cell(Option<Link<[u64; 4]>>);

/// Stores a new object in the cell, or takes the present one out and retires it.
fn flip(handle: &mut Handle, cell: Link<Cell>, value: u64) {
    let flip = |tx: &mut archipelago_sync::mvrlu::Tx<'_>| match tx.lock(cell)?.0.take() {
        // SAFETY: only the cell has had a link to it.
        Some(old) => unsafe { tx.retire(old) },
        None => {
            // SAFETY: not used after an abort.
            let new = unsafe { tx.alloc([value; 4]) };
            tx.lock(cell).map(|cell| cell.0 = Some(new))
        }
    };
    handle.update(flip).unwrap();
}

/// Returns every cell's content in a snapshot, 0 for an empty cell.
fn contents(snapshot: &archipelago_sync::mvrlu::Snapshot<'_>, cells: &[Link<Cell>]) -> Vec<u64> {
    let content = |cell: &Link<Cell>| {
        snapshot.get(*cell).0.map_or(0, |link| {
            let object = *snapshot.get(link);
            assert_eq!(object, [object[0]; 4]);
            object[0]
        })
    };
    cells.iter().map(content).collect()
}

/// Checks that `case` takes at most `bound` bytes in some try: threads that are kept from their processors inside
/// sections need more, and without a bound every try takes megabytes.
#[track_caller]
fn bounded(name: &str, bound: usize, case: impl Fn()) {
    some_try(3, || {
        let (most, ()) = HEAP.most(&case);
        println!("{name}: {most} bytes of {bound}");
        if most <= bound { Ok(()) } else { Err(format!("{name}: {most} bytes where {bound} are allowed")) }
    });
}

/// Several threads change a table whose entries are added and removed, beside snapshots of different ages. The
/// snapshots continue to see the same contents.
#[test]
fn a_table_whose_entries_come_and_go_is_bounded_while_snapshots_are_held() {
    const CELLS: usize = 5_000;
    const THREADS: usize = 4;
    let _alone = alone();
    // `live` is the size of all cells and their contents. `version` is the size of one version of each cell: a cache
    // line and a log entry. Each snapshot keeps a version of the cell, and the mark of the cell's content. (A mark is
    // the last version of a retired object.)
    let (live, version) = (CELLS * (24 + 48), CELLS * (64 + 32));
    let bound = 2 * live + 2 * (live + 2 * version) + version + THREADS * SHARE;
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        bounded(&format!("{clock:?}"), bound, || {
            let domain = Domain::builder().clock(clock).build();
            let cells: Vec<Link<Cell>> = (0..CELLS).map(|_| domain.alloc(Cell(None))).collect();
            let mut handle = domain.register();
            cells.iter().step_by(2).for_each(|cell| flip(&mut handle, *cell, 7));
            let (mut one, mut two) = (domain.register(), domain.register());
            let first = one.read();
            let then = contents(&first, &cells);
            let change = |number: usize, end: Instant| {
                let (mut handle, mut random) = (domain.register(), number as u64 * 2 + 1);
                while Instant::now() < end {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    flip(&mut handle, cells[(random >> 33) as usize % CELLS], random | 1);
                }
            };
            crowd(THREADS, duration_or(Duration::from_millis(400)), change);
            let second = two.read();
            let later = contents(&second, &cells);
            crowd(THREADS, duration_or(Duration::from_millis(400)), change);
            assert_eq!(contents(&first, &cells), then);
            assert_eq!(contents(&second, &cells), later);
            drop((first, second));
            for cell in &cells {
                if handle.read().get(*cell).0.is_some() {
                    flip(&mut handle, *cell, 0);
                }
                // SAFETY: the cell is not used any more.
                handle.update(|tx| unsafe { tx.retire(*cell) }).unwrap();
            }
        });
    }
}

/// A leaked snapshot or handle costs as much as one that is held, and only once.
#[test]
fn what_is_forgotten_costs_a_version_per_object() {
    let _alone = alone();
    bounded("eight objects", 12 * SHARE, || {
        let domain = Domain::new();
        let links: Vec<Link<u64>> = (0..8).map(|_| domain.alloc(0)).collect();
        for _ in 0..8 {
            let mut handle = domain.register();
            for link in &links {
                handle.update(|tx| Ok(*tx.lock(*link)? += 1)).unwrap();
            }
            core::mem::forget(handle.read());
            core::mem::forget(handle);
        }
        crowd(4, duration_or(Duration::from_millis(300)), |number, end| {
            let mut handle = domain.register();
            while Instant::now() < end {
                handle.update(|tx| Ok(*tx.lock(links[number])? += 1)).unwrap();
            }
        });
        assert_eq!(domain.stats().active_sections, 8);
    });
}

/// Beside an old snapshot, transactions that only lock an object, and those that change it and abort, leave nothing.
#[test]
fn locks_and_aborts_leave_nothing_while_a_snapshot_is_held() {
    const TURNS: usize = 20_000;
    type Body = fn(&mut archipelago_sync::mvrlu::Tx<'_>, Link<[u64; 4]>, Link<[u64; 4]>) -> Result<(), Abort>;
    let locks: Body = |tx, limit, used| {
        tx.lock_const(limit)?;
        tx.lock(used).map(|used| used[0] += 1)
    };
    let aborts: Body = |tx, limit, used| {
        tx.lock(limit)?;
        tx.lock(used)?;
        Err(Abort::Conflict)
    };
    let locks_twice: Body = |tx, limit, used| {
        tx.lock_const(limit)?;
        tx.lock_const(used)?;
        tx.lock(used).map(|used| used[0] += 1)
    };
    let _alone = alone();
    for (name, body) in [("locks", locks), ("aborts", aborts), ("locks twice", locks_twice)] {
        for collection in [Collection::Cooperative, Collection::Background] {
            bounded(&format!("{name}, {collection:?}"), 2 * SHARE, || {
                let domain = Domain::builder().collection(collection).build();
                let (limit, used) = (domain.alloc([7; 4]), domain.alloc([0; 4]));
                let (mut old, mut writer) = (domain.register(), domain.register());
                let snapshot = old.read();
                (0..TURNS).for_each(|_| _ = writer.try_update(|tx| body(tx, limit, used)));
                assert_eq!((*snapshot.get(limit), *snapshot.get(used)), ([7; 4], [0; 4]));
            });
        }
    }
}

/// Beside an old snapshot, objects that are made outside transactions, linked and retired leave nothing.
#[test]
fn objects_made_outside_transactions_leave_nothing_while_a_snapshot_is_held() {
    let _alone = alone();
    for clock in [ClockKind::Logical, ClockKind::Hardware] {
        bounded(&format!("{clock:?}"), 2 * SHARE, || {
            let domain = Domain::builder().clock(clock).build();
            let cell = domain.alloc(Cell(None));
            let (mut old, mut writer) = (domain.register(), domain.register());
            let snapshot = old.read();
            for number in 0..10_000 {
                let new = domain.alloc([number; 4]);
                writer.update(|tx| Ok(tx.lock(cell)?.0 = Some(new))).unwrap();
                flip(&mut writer, cell, 0);
            }
            assert!(snapshot.get(cell).0.is_none());
        });
    }
}

/// Each thread does little work and ends. The next thread reuses its log.
#[test]
fn threads_that_come_and_go_leave_nothing() {
    let _alone = alone();
    bounded("eight objects", 8 * SHARE, || {
        let domain = Domain::new();
        let links: Vec<Link<u64>> = (0..8).map(|_| domain.alloc(0)).collect();
        let end = Instant::now() + duration_or(Duration::from_millis(500));
        let mut round = 0;
        while Instant::now() < end {
            crowd(8, Duration::ZERO, |number, _| {
                let mut handle = domain.register();
                (0..500).for_each(|_| handle.update(|tx| Ok(*tx.lock(links[number])? += 1)).unwrap());
            });
            round += 1;
        }
        assert!(domain.stats().handles == 0 && round > 0);
    });
}

/// The last versions that a handle wrote before it became idle are collected by the handles that read them.
#[test]
fn what_an_idle_handle_wrote_last_costs_readers_nothing_for_long() {
    let _alone = alone();
    let domain = Domain::new();
    let links: Vec<Link<u64>> = (0..50).map(|_| domain.alloc(0)).collect();
    let (mut idle, mut reader) = (domain.register(), domain.register());
    links.iter().for_each(|link| idle.update(|tx| Ok(*tx.lock(*link)? = 1)).unwrap());
    assert!(domain.stats().versions > 0);
    // A handle collects after 4,096 reads of copies (the dereference watermark).
    for _ in 0..500 {
        let snapshot = reader.read();
        assert!(links.iter().all(|link| *snapshot.get(*link) == 1));
    }
    assert_eq!(domain.stats().versions, 0, "copies that no thread collects");
    assert_eq!(idle.counts().commits, 50);
}

/// Returns the longest time of `collect` and `stats` while twenty threads write. Checks that the values written before
/// are readable afterwards.
fn longest_collection(time: Duration) -> Duration {
    let domain = Domain::new();
    let busy: Vec<Link<u64>> = (0..100).map(|_| domain.alloc(0)).collect();
    let (mut idle, rested): (Handle, Vec<Link<u64>>) = (domain.register(), (0..300).map(|_| domain.alloc(0)).collect());
    rested.iter().for_each(|link| idle.update(|tx| Ok(*tx.lock(*link)? = 1)).unwrap());
    let longest = crowd(21, time, |number, end| {
        let mut handle = domain.register();
        let mut longest = Duration::ZERO;
        while Instant::now() < end {
            let begun = Instant::now();
            if number < 20 {
                handle.update(|tx| Ok(*tx.lock(busy[number * 5])? += 1)).unwrap();
                continue;
            }
            handle.collect();
            assert!(domain.stats().handles >= 2);
            longest = longest.max(begun.elapsed());
        }
        longest
    });
    drop(idle);
    let mut handle = domain.register();
    let read = |handle: &mut Handle| assert!(rested.iter().all(|link| *handle.read().get(*link) == 1));
    read(&mut handle);
    longest.into_iter().max().unwrap()
}

/// `collect` and `stats` do their work, and return, under load.
#[test]
fn collecting_and_statistics_work_under_load() {
    let _alone = alone();
    some_try(5, || {
        let gap = longest_gap(20, duration_or(Duration::from_millis(300)));
        let longest = longest_collection(duration_or(Duration::from_millis(600)));
        // The factor 9 allows for three rounds. In each round the thread may lose its processor, or wait for each of
        // the domain's short locks.
        within("collect and stats", 9, longest, gap)
    });
}

/// The child process does not have the domain's collecting thread, whatever this thread was doing when the process
/// forked. The threads that make changes collect instead.
#[cfg(unix)]
#[test]
fn a_child_process_waits_for_no_thread_of_its_parent() {
    let _alone = alone();
    let domain = Domain::builder().collection(Collection::Background).build();
    let cell = domain.alloc(Cell(None));
    let flips = |handle: &mut Handle, count: u64| (0..count).for_each(|value| flip(handle, cell, value));
    let handle = domain.register();
    let both = std::cell::Cell::new(Some((domain, handle)));
    for round in 0..400 {
        // The number of changes is sometimes above the watermark at which the collecting thread is woken. So at the
        // fork the collecting thread may be working, may not have begun, or may have finished.
        let (domain, mut handle) = both.take().expect("it was put there");
        flips(&mut handle, 37 * round % 1_000);
        both.set(Some((domain, handle)));
        let child = || {
            let (domain, mut handle) = both.take().expect("it was put there");
            flips(&mut handle, if round % 40 == 0 { 20_000 } else { 1 });
            drop((handle, domain));
        };
        assert_eq!(archipelago_check::forked::in_child(child), 0, "the child of round {round}");
    }
    // SAFETY: no other thread has a link to the cell.
    both.take().expect("the children took their own").1.update(|tx| unsafe { tx.retire(cell) }).unwrap();
}

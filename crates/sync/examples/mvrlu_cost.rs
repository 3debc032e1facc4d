//! What MV-RLU costs by the piece, in nanoseconds of one thread: `cargo run --release -p archipelago-sync --example
//! mvrlu_cost`. Medians of several rounds. Then what a reader costs that is stuck for a second.

// `Ok(tx.lock(link)?[0] += 1)` says in one line what a body of three would.
#![allow(clippy::unit_arg)]

fn main() {
    #[cfg(not(loom))]
    measure::all();
}

#[cfg(not(loom))]
mod measure {
    use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
    use archipelago_platform::thread;
    use archipelago_platform::time::{Duration, Instant};
    use archipelago_sync::mvrlu::{ClockKind, Domain, Link};
    use core::hint::black_box;

    const ROUNDS: usize = 9;
    const OPERATIONS: usize = 200_000;
    const OBJECTS: usize = 1_000;

    fn median(mut work: impl FnMut(usize)) -> f64 {
        let round = |work: &mut dyn FnMut(usize)| {
            let begun = Instant::now();
            (0..OPERATIONS).for_each(&mut *work);
            begun.elapsed().as_nanos() as f64 / OPERATIONS as f64
        };
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&mut work)).collect();
        rounds.sort_by(f64::total_cmp);
        rounds[ROUNDS / 2]
    }

    fn clock(kind: ClockKind) {
        let domain = Domain::builder().clock(kind).build();
        let links: Vec<Link<[u64; 3]>> = (0..OBJECTS).map(|number| domain.alloc([number as u64; 3])).collect();
        let boxes: Vec<Box<[u64; 3]>> = (0..OBJECTS).map(|number| Box::new([number as u64; 3])).collect();
        let mut handle = domain.register();
        println!("{:?} clock", domain.clock());
        println!("  section                       {:7.2}", median(|_| drop(handle.read())));
        println!("  read of a box                 {:7.2}", median(|i| _ = black_box(boxes[i % OBJECTS][0])));
        {
            let snapshot = handle.read();
            let unversioned = median(|i| _ = black_box(snapshot.get(links[i % OBJECTS])[0]));
            println!("  read, no versions             {unversioned:7.2}");
        }
        let update = median(|i| handle.update(|tx| Ok(tx.lock(links[i % OBJECTS])?[0] += 1)).unwrap());
        println!("  update of one object          {update:7.2}");
        let two = median(|i| {
            let (one, two) = (links[i % OBJECTS], links[(i + 1) % OBJECTS]);
            handle
                .update(|tx| {
                    tx.lock(one)?[0] += 1;
                    tx.lock(two)?[0] += 1;
                    Ok(())
                })
                .unwrap();
        });
        println!("  update of two objects         {two:7.2}");
        for link in &links {
            handle.update(|tx| Ok(tx.lock(*link)?[0] += 1)).unwrap();
        }
        {
            let snapshot = handle.read();
            let versioned = median(|i| _ = black_box(snapshot.get(links[i % OBJECTS])[0]));
            println!("  read, one version             {versioned:7.2}");
        }
    }

    /// Two threads, 80 % updates of 32-byte objects, with and without a snapshot that is held all the time.
    fn stuck_reader(is_stuck: bool) {
        const HELD: usize = 10_000;
        let domain = Domain::new();
        let links: Vec<Link<[u64; 4]>> = (0..HELD).map(|number| domain.alloc([number as u64; 4])).collect();
        let (stop, done, mut most) = (AtomicBool::new(false), AtomicU64::new(0), 0);
        thread::scope(|scope| {
            for seed in 1..3 {
                let (domain, links, stop, done) = (&domain, &links, &stop, &done);
                scope.spawn(move || {
                    let (mut handle, mut random) = (domain.register(), seed);
                    while !stop.load(Ordering::Relaxed) {
                        random = 6_364_136_223_846_793_005_u64.wrapping_mul(random).wrapping_add(1);
                        let link = links[(random >> 33) as usize % HELD];
                        if random >> 32 & 0xFF < 205 {
                            handle.update(|tx| Ok(tx.lock(link)?[0] += 1)).unwrap();
                        } else {
                            black_box(handle.read().get(link)[0]);
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut reader = domain.register();
            let snapshot = is_stuck.then(|| reader.read());
            for _ in 0..100 {
                thread::sleep(Duration::from_millis(10));
                most = most.max(domain.stats().bytes);
            }
            stop.store(true, Ordering::Relaxed);
            drop(snapshot);
        });
        let (mops, live) = (done.into_inner() as f64 / 1e6, HELD * 48);
        let name = if is_stuck { "stuck for a second" } else { "not stuck" };
        println!("reader {name:<20} {mops:5.1} Mops/s, copies take {most} bytes at most, {live} in {HELD} objects");
    }

    pub fn all() {
        clock(ClockKind::Logical);
        clock(ClockKind::Hardware);
        stuck_reader(false);
        stuck_reader(true);
    }
}

//! Measures the cost of RCX's locks, and how long threads wait for them, with and without hand-over.
//!
//! `cargo run --release -p archipelago-sync --example rcx_locks -- cycle OBJECTS [TURNS [NODES]]` locks and unlocks a
//! set of objects on two imagined nodes. Two runs with different numbers of turns under `valgrind --tool=callgrind`
//! give the instructions of one turn.
//!
//! `... -- waits [SECONDS]` uses sets of one and of two among four objects on two imagined nodes, held for about 100
//! ns. The output has one line for each number of threads and each limit of successive hand-overs (0 disables
//! hand-over): the number of sets locked, in millions per second, and the longest wait, each as the median and the
//! least of five spans.
//!
//! `... -- refusals` measures how long `try_lock` takes to refuse, beside busy threads.

fn main() {
    #[cfg(not(loom))]
    measure::all();
}

#[cfg(not(loom))]
mod measure {
    use archipelago_platform::atomic::{AtomicBool, Ordering};
    use archipelago_platform::thread;
    use archipelago_platform::time::{Duration, Instant};
    use archipelago_sync::rcx::{InOrder, Padding, Rcx};
    use core::hint::black_box;

    fn two_nodes(passes: u32) -> Rcx {
        Rcx::builder().nodes(2).padding(Padding::Lines).passes(passes).build()
    }

    fn cycle(count: usize, turns: u64, nodes: usize) {
        let rcx = Rcx::builder().nodes(nodes).build();
        let objects: Vec<_> = (0..count).map(|_| rcx.object()).collect();
        let begun = Instant::now();
        let mut handles = Vec::new();
        for _ in 0..turns {
            handles.clear();
            handles.extend(objects.iter().map(|object| rcx.handle(object)));
            match &handles[..] {
                [one] => drop(black_box(rcx.lock(InOrder::one(one)))),
                _ => drop(black_box(rcx.lock(rcx.order(&mut handles)))),
            }
        }
        println!("{:.1} ns a cycle", begun.elapsed().as_nanos() as f64 / turns as f64);
    }

    fn work(steps: u32) {
        (0..steps).for_each(|step| _ = black_box(step));
    }

    /// Returns the number of sets locked, and the longest wait of any thread.
    fn contend(passes: u32, threads: usize, time: Duration) -> (u64, Duration) {
        let (rcx, stop) = (two_nodes(passes), AtomicBool::new(false));
        let objects: Vec<_> = (0..4).map(|_| rcx.object()).collect();
        let run = |seed: usize| {
            let (mut sets, mut longest, mut random) = (0, Duration::ZERO, seed as u64 + 1);
            while !stop.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let which = [random >> 33, random >> 45].map(|bits| bits as usize % 4);
                let mut handles = which.iter().map(|which| rcx.handle(&objects[*which])).collect();
                let asked = Instant::now();
                let held = rcx.lock(rcx.order(&mut handles));
                longest = longest.max(asked.elapsed());
                work(100);
                drop(held);
                work(200);
                sets += 1;
            }
            (sets, longest)
        };
        thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..threads).map(|seed| scope.spawn(move || run(seed))).collect();
            thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            let each = threads.into_iter().map(|thread| thread.join().expect("it ends"));
            each.fold((0, Duration::ZERO), |(sets, longest), (more, waited)| (sets + more, longest.max(waited)))
        })
    }

    fn waits(time: Duration) {
        println!("threads  passes  million sets a second  longest wait   of five spans, the median and the least");
        for threads in [2, 8, 32] {
            let mut seen = [0, 1, 16].map(|passes| (passes, Vec::new()));
            for _ in 0..5 {
                seen.iter_mut().for_each(|(passes, spans)| spans.push(contend(*passes, threads, time)));
            }
            for (passes, mut spans) in seen {
                let millions = |sets: u64| sets as f64 / time.as_secs_f64() / 1e6;
                spans.sort();
                let (sets, mut waits) = (spans[2].0, spans.iter().map(|span| span.1).collect::<Vec<_>>());
                waits.sort();
                println!(
                    "{threads:7} {passes:7} {:22.3} {:13.3?}   {:.3} {:.3?}",
                    millions(sets),
                    waits[2],
                    millions(spans[0].0),
                    waits[0]
                );
            }
        }
    }

    fn refusals() {
        for busy in [0, 1, 8] {
            let (rcx, stop) = (two_nodes(0), AtomicBool::new(false));
            let object = rcx.object();
            let handle = rcx.handle(&object);
            let held = rcx.lock(InOrder::one(&handle));
            thread::scope(|scope| {
                (0..busy).for_each(|_| {
                    _ = scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            work(100)
                        }
                    })
                });
                let mut times: Vec<_> = (0..101)
                    .map(|_| {
                        let begun = Instant::now();
                        assert!(rcx.try_lock(InOrder::one(&handle)).is_none());
                        begun.elapsed()
                    })
                    .collect();
                stop.store(true, Ordering::Relaxed);
                times.sort();
                println!("beside {busy} busy threads: median {:.1?}, longest {:.1?}", times[50], times[100]);
            });
            drop(held);
        }
    }

    pub fn all() {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let number = |at: usize, usual| args.get(at).map_or(usual, |text| text.parse().expect("a number"));
        match args.first().map(String::as_str) {
            Some("cycle") => cycle(number(1, 1.0) as usize, number(2, 1e6) as u64, number(3, 2.0) as usize),
            Some("waits") => waits(Duration::from_secs_f64(number(1, 0.2))),
            Some("refusals") => refusals(),
            _ => println!("cycle OBJECTS [TURNS [NODES]], waits [SECONDS] or refusals"),
        }
    }
}

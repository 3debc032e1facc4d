//! Searches for torn snapshots: `cargo run --release -p archipelago-sync --example torn_reads -- 1e9`. The argument is
//! the total number of object reads (default: 10⁷).
//!
//! Writers commit one number to eight objects at a time. The run ends with a panic if a reader sees two different
//! numbers in one snapshot, or an older number than before, or if a writer misses its own commit. The run is repeated
//! for MV-RLU (also with a collection at every opportunity) and RLU, both clocks, and 2, 3 and 4 threads, one or two of
//! which write. If the second argument is `yields`, threads yield the processor in the middle of one section in 64, for
//! machines with fewer processors than threads.

// `Ok(*tx.lock(link)? = value)` expresses in one line what would otherwise take three.
#![allow(clippy::unit_arg)]

fn main() {
    #[cfg(not(loom))]
    hunt::all();
}

#[cfg(not(loom))]
mod hunt {
    use archipelago_platform::atomic::{AtomicU64, Ordering};
    use archipelago_platform::thread;
    use archipelago_platform::time::Instant;
    use archipelago_sync::mvrlu::{self, ClockKind, Handle, Link, Tuning};
    use archipelago_sync::rlu;

    const OBJECTS: usize = 8;
    const BATCH: u64 = 1_000;

    /// One run. It ends when the readers have together made `wanted` object reads.
    struct Hunt<'h> {
        register: &'h (dyn Fn() -> Handle + Sync),
        links: [Link<u64>; OBJECTS],
        reads: AtomicU64,
        wanted: u64,
        next: AtomicU64,
        yields: bool,
    }

    impl Hunt<'_> {
        /// Yields in the middle of some sections. Returns whether it did.
        fn pause(&self, random: &mut u64) -> bool {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let pauses = self.yields && *random >> 58 == 0;
            if pauses {
                thread::yield_now();
            }
            pauses
        }

        fn goes_on(&self) -> bool {
            self.reads.load(Ordering::Relaxed) < self.wanted
        }

        fn write(&self) {
            let (mut handle, mut random) = ((self.register)(), 1);
            while self.goes_on() {
                // Drawn inside the transaction, so that numbers increase with commits.
                let draw = |tx: &mut mvrlu::Tx<'_>| {
                    let first = tx.lock(self.links[0])?;
                    let value = self.next.fetch_add(1, Ordering::Relaxed) + 1;
                    *first = value;
                    self.pause(&mut random);
                    self.links[1..].iter().try_for_each(|link| Ok(*tx.lock(*link)? = value))?;
                    Ok(value)
                };
                let value = handle.update(draw).expect("no memory cap");
                let snapshot = handle.read();
                assert!(self.links.iter().all(|link| *snapshot.get(*link) >= value), "a commit that its thread misses");
            }
        }

        fn read(&self) {
            let (mut handle, mut latest, mut random) = ((self.register)(), 0, 2);
            while self.goes_on() {
                for _ in 0..BATCH {
                    let snapshot = handle.read();
                    let seen = self.links.map(|link| *snapshot.get(link));
                    if self.pause(&mut random) {
                        assert_eq!(self.links.map(|link| *snapshot.get(link)), seen, "changed");
                    }
                    assert!(seen.iter().all(|value| *value == seen[0]), "torn: {seen:?}");
                    assert!(seen[0] >= latest, "{} after {latest}", seen[0]);
                    latest = seen[0];
                }
                self.reads.fetch_add(BATCH * OBJECTS as u64, Ordering::Relaxed);
            }
        }
    }

    fn hunt(
        name: &str,
        threads: usize,
        (wanted, yields): (u64, bool),
        alloc: impl Fn() -> Link<u64>,
        register: impl Fn() -> Handle + Sync,
    ) {
        let links = core::array::from_fn(|_| alloc());
        let begun = Instant::now();
        let hunt =
            Hunt { register: &register, links, reads: AtomicU64::new(0), wanted, next: AtomicU64::new(0), yields };
        thread::scope(|scope| {
            for number in 0..threads {
                let hunt = &hunt;
                scope.spawn(move || if number % 2 == 0 { hunt.write() } else { hunt.read() });
            }
        });
        let seconds = begun.elapsed().as_secs_f64();
        let (reads, commits) = (hunt.reads.into_inner(), hunt.next.into_inner());
        println!(
            "{name:<24} {threads} threads  {reads:>12} reads  {commits:>10} attempts to commit  {seconds:6.2} s  none torn"
        );
        // SAFETY: the links are not used any more.
        register().update(|tx| links.iter().try_for_each(|link| unsafe { tx.retire(*link) })).expect("no memory cap");
    }

    pub fn all() {
        let wanted: f64 = std::env::args().nth(1).map_or(1e7, |count| count.parse().expect("a number of reads"));
        let yields = std::env::args().nth(2).is_some_and(|word| word == "yields");
        let each = ((wanted / 18.0).ceil() as u64, yields);
        for threads in [2, 3, 4] {
            for clock in [ClockKind::Logical, ClockKind::Hardware] {
                let domain = mvrlu::Domain::builder().clock(clock).build();
                hunt(&format!("mvrlu {clock:?}"), threads, each, || domain.alloc(0), || domain.register());
                let tuning = Tuning { low_watermark: 1, dereference_watermark: 8, concurrent: true };
                let domain = mvrlu::Domain::builder().clock(clock).tuning(tuning).build();
                hunt(&format!("mvrlu eager {clock:?}"), threads, each, || domain.alloc(0), || domain.register());
                let domain = rlu::Domain::new(clock, if threads == 3 { 10 } else { 0 });
                hunt(&format!("rlu {clock:?}"), threads, each, || domain.alloc(0), || domain.register());
            }
        }
    }
}

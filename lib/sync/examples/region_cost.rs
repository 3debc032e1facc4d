//! Measures the cost of a change of two words of a page with each back end, compared with plain locks. It also contains
//! two functions to disassemble: one that uses a region, and the same transaction written by hand.
//!
//! `cargo run --release -p archipelago-sync --example region_cost -- [THREADS]`
//! `objdump -d --no-show-raw-insn target/release/examples/region_cost | sed -n '/<change_by_region>:/,/ret/p'`

use std::hint::black_box;

use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::htm::{HELD, Htm};
use archipelago_platform::thread;
use archipelago_platform::time::Instant;
use archipelago_sync::lock::{Mutex, RawTtas};
use archipelago_sync::region::{Change, Changing, Region, Stale, Var, Versioned};
use archipelago_sync::version_lock::{Version, VersionLock};

#[repr(align(128))]
struct Pair {
    lock: VersionLock,
    words: [Var; 2],
}

// SAFETY: the page's words and links are plain fields.
unsafe impl Versioned for Pair {
    fn lock(&self) -> &VersionLock {
        &self.lock
    }
}

#[derive(Clone, Copy)]
struct Count<'p>(&'p Pair);

impl Change for Count<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self, change: &mut impl Changing) -> Result<(), Stale> {
        self.0.words.iter().for_each(|word| change.set(word, change.get(word) + 1));
        Ok(())
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn change_by_region(region: &Region, pair: &Pair, at: Version) -> bool {
    region.update(pair, at, Count(pair)).is_ok()
}

#[repr(align(128))]
struct Plain {
    lock: AtomicU64,
    words: [AtomicU64; 2],
}

#[unsafe(no_mangle)]
#[inline(never)]
fn change_by_hand(htm: Htm, plain: &Plain, at: u64) -> bool {
    let body = |inside: archipelago_platform::htm::Inside| {
        if plain.lock.load(Ordering::Relaxed) != at {
            inside.abort::<HELD>();
        }
        for word in &plain.words {
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    };
    htm.transaction(body).is_ok()
}

/// Returns the nanoseconds of a thread per turn: the smallest value of several spans.
fn time(threads: usize, turn: impl Fn() + Sync) -> f64 {
    const TURNS: u32 = 200_000;
    let span = || {
        let begun = Instant::now();
        thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(|| (0..TURNS).for_each(|_| turn()))));
        begun.elapsed().as_nanos() as f64 / f64::from(TURNS)
    };
    (0..7).map(|_| span()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let threads = std::env::args().nth(1).map_or(1, |text| text.parse().expect("a number of threads"));
    let pair = Pair { lock: VersionLock::new(), words: [Var::new(0), Var::new(0)] };
    let plain = Plain { lock: AtomicU64::new(0), words: [AtomicU64::new(0), AtomicU64::new(0)] };
    let by = |region: Region| {
        time(threads, || while !change_by_region(&region, &pair, pair.lock.read_unlocked().expect("it stays")) {})
    };
    println!("{threads} threads, a change of two words, ns:");
    if let Some(htm) = Htm::get() {
        println!("  transaction by hand {:6.1}", time(threads, || while !black_box(change_by_hand(htm, &plain, 0)) {}));
        println!("  region, RTM         {:6.1}", by(Region::new()));
    }
    println!("  region, versions    {:6.1}", by(Region::by_version_locks()));
    let locked = Mutex::<RawTtas, [u64; 2]>::new([0; 2]);
    println!("  TTAS lock           {:6.1}", time(threads, || locked.lock().iter_mut().for_each(|word| *word += 1)));
}

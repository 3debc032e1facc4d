//! Measures `this-host`: the machine with which the model is compared, in its present state.
//!
//! The measurements are small and native, and take a second in all: chains of dependent loads over buffers that fit
//! each cache level, a compare-and-exchange that two threads pass back and forth, and private and contended increments.
//! Every number is the least of several tries, since other load can only increase it. Numbers that a process cannot
//! measure keep the preset's values.
//!
//! A chain has as many loads as an operation ([`OPERATION`]). A core that runs out of order begins the next operation
//! before the loads of the previous one have returned. The model makes one access after the other. So the cost of an
//! access must be its contribution to the time of many operations, not the latency of one load.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};
use std::time::Instant;

use super::{Cache, Machine};

/// The number of tries of each measurement.
const TRIES: usize = 5;

/// The number of loads in a chain: about as many as a look-up makes. The next chain depends on none of them.
const OPERATION: u64 = 8;

/// Returns the least of several times of `turns` calls, in nanoseconds per call.
fn least(turns: u64, mut step: impl FnMut(u64)) -> f64 {
    let once = |_| {
        let start = Instant::now();
        (0..turns).for_each(&mut step);
        start.elapsed().as_nanos() as f64 / turns as f64
    };
    (0..TRIES).map(once).fold(f64::INFINITY, f64::min)
}

/// Returns the time of a load in short chains of dependent loads, over a buffer of `bytes`, in an order that no
/// prefetcher follows.
fn chain(bytes: usize) -> f64 {
    let lines = bytes / 64;
    let mut order: Vec<u32> = (1..lines as u32).collect();
    let mut rng = 7;
    for k in (1..order.len()).rev() {
        order.swap(k, crate::rng::below(&mut rng, k as u64 + 1) as usize);
    }
    // The first word of each line is the number of the next line.
    let mut buffer = vec![[0_u32; 16]; lines];
    let mut at = 0;
    for next in order {
        buffer[at as usize][0] = next;
        at = next;
    }
    let (mut at, mut ends) = (0_u32, 0_u32);
    let turns = (lines as u64 * 2).clamp(100_000, 400_000);
    let time = least(turns, |turn| {
        if turn % OPERATION == 0 {
            ends ^= at;
            at = crate::rng::below(&mut rng, lines as u64) as u32;
        }
        at = buffer[at as usize][0];
    });
    black_box(ends);
    time
}

#[repr(align(128))]
struct Apart(AtomicU64);

/// Runs `body(thread, attempt)` in two threads at once. Returns the time until both have ended, in nanoseconds: the
/// least of several tries.
fn two(body: impl Fn(u64, usize) + Sync) -> f64 {
    let once = |attempt| {
        let barrier = Barrier::new(2);
        let run = |thread| {
            barrier.wait();
            let start = Instant::now();
            body(thread, attempt);
            start.elapsed().as_nanos() as f64
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(|| run(1));
            run(0).max(other.join().expect("a measurement does not panic"))
        })
    };
    (0..TRIES).map(once).fold(f64::INFINITY, f64::min)
}

/// Measures one way of a compare-and-exchange ping-pong. A thread that waits yields its processor.
fn ping_pong() -> f64 {
    const TURNS: u64 = 20_000;
    // Each try uses a word of its own.
    let words = [const { Apart(AtomicU64::new(0)) }; TRIES];
    two(|thread, attempt| {
        let word = &words[attempt];
        for turn in 0..TURNS {
            let mine = 2 * turn + thread;
            let mut patience = 0;
            while word.0.compare_exchange(mine, mine + 1, SeqCst, Relaxed).is_err() {
                patience += 1;
                if patience % 10_000 == 0 {
                    std::thread::yield_now();
                }
            }
        }
    }) / (2 * TURNS) as f64
}

/// Measures an increment of a word that two threads increment, per thread.
fn contended() -> f64 {
    const TURNS: u64 = 500_000;
    let word = Apart(AtomicU64::new(0));
    two(|_, _| (0..TURNS).for_each(|_| _ = word.0.fetch_add(1, Relaxed))) / TURNS as f64
}

/// Returns a cache of the first processor, as the kernel describes it: the last cache of a level that holds data.
fn cache(level: &str) -> Option<Cache> {
    (0..8).rev().find_map(|index| {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
            Some(std::fs::read_to_string(path).ok()?.trim().to_string())
        };
        if read("level")? != level || read("type")? == "Instruction" {
            return None;
        }
        let (sets, ways) = (read("number_of_sets")?.parse().ok()?, read("ways_of_associativity")?.parse().ok()?);
        Some(Cache { sets, ways })
    })
}

impl Machine {
    /// Returns the preset `this-host` with the numbers that can be measured here and now. Takes a second or two, on at
    /// least two idle processors. Two measurements differ, so write the result to a file ([`Machine::to_toml`]) to keep
    /// it.
    pub fn measured() -> Machine {
        let mut machine = Machine::preset("this-host").expect("a preset's name");
        let caches = &mut machine.caches;
        for (level, into) in [("1", &mut caches.l1), ("2", &mut caches.l2), ("3", &mut caches.l3)] {
            // Bits of the address select the sets of private caches.
            *into = cache(level).filter(|found| level == "3" || found.sets.is_power_of_two()).unwrap_or(*into);
        }
        let (l1, l2, l3) = (caches.l1.bytes(), caches.l2.bytes(), caches.l3.bytes());
        let word = Apart(AtomicU64::new(0));
        let increment = least(200_000, |_| _ = word.0.fetch_add(1, Relaxed));
        let latency = &mut machine.latency;
        latency.l1 = chain(l1 / 2);
        latency.l2 = chain(l2 / 2).max(latency.l1);
        latency.l3 = chain((2 * l2).min(l3 / 2)).max(latency.l2);
        latency.memory = vec![chain((4 * l3).clamp(64 << 20, 256 << 20)).max(latency.l3)];
        latency.locked = (increment - latency.l1).max(0.1);
        latency.fence = least(200_000, |turn| {
            word.0.store(turn, Relaxed);
            fence(SeqCst);
        });
        latency.pause = least(20_000, |_| spin_loop());
        latency.clock = least(100_000, |_| _ = black_box(Instant::now()));
        latency.core_to_core = ping_pong().clamp(1.0, 10_000.0);
        machine.occupancy.hold = hold(latency.core_to_core, increment, contended());
        machine.name = "this-host, measured".to_string();
        machine.sources.retain(|field, _| !field.starts_with("latency") && !field.starts_with("caches"));
        machine
    }

    /// Returns the machine as a file that [`from_toml`](Self::from_toml) reads.
    pub fn to_toml(&self) -> String {
        let cache = |cache: Cache| format!("{{ sets = {}, ways = {} }}", cache.sets, cache.ways);
        let (caches, latency, occupancy, os) = (&self.caches, &self.latency, &self.occupancy, &self.os);
        let mut text = format!(
            "name = {:?}\nsockets = {}\ncores_per_socket = {}\nthreads_per_core = {}\nhops = {:?}\nsmt_slowdown = {:?}\n",
            self.name, self.sockets, self.cores_per_socket, self.threads_per_core, self.hops, self.smt_slowdown
        );
        text += &format!(
            "\n[caches]\nl1 = {}\nl2 = {}\nl3 = {}\nl3_inclusive = {}\n",
            cache(caches.l1),
            cache(caches.l2),
            cache(caches.l3),
            caches.l3_inclusive
        );
        text += &format!(
            "\n[latency]\nl1 = {:?}\nl2 = {:?}\nl3 = {:?}\ncore_to_core = {:?}\ndirty_remote = {:?}\nclean_remote = {:?}\n\
             memory = {:?}\nlocked = {:?}\nfence = {:?}\npause = {:?}\nclock = {:?}\n",
            latency.l1,
            latency.l2,
            latency.l3,
            latency.core_to_core,
            latency.dirty_remote,
            latency.clean_remote,
            latency.memory,
            latency.locked,
            latency.fence,
            latency.pause,
            latency.clock
        );
        text += &format!(
            "\n[occupancy]\ntransfer = {:?}\nhold = {:?}\nshared_read = {:?}\nmemory = {:?}\nlink = {:?}\n\
             local_bypass = {}\nmiss_buffers = {}\n",
            occupancy.transfer,
            occupancy.hold,
            occupancy.shared_read,
            occupancy.memory,
            occupancy.link,
            occupancy.local_bypass,
            occupancy.miss_buffers
        );
        if let Some(tx) = &self.transactions {
            text += &format!(
                "\n[transactions]\nbegin = {:?}\ncommit = {:?}\nabort = {:?}\nread_lines = {}\ntimer = {:?}\n\
                 spurious = {:?}\n",
                tx.begin, tx.commit, tx.abort, tx.read_lines, tx.timer, tx.spurious
            );
        }
        text += &format!("\n[os]\ncall = {:?}\nwake = {:?}\n\n[sources]\n", os.call, os.wake);
        text + &self.sources.iter().map(|(field, source)| format!("{field:?} = {source:?}\n")).collect::<String>()
    }
}

/// Returns for how long a core keeps a line that another core wants, in nanoseconds. A transfer takes `transfer`; an
/// increment takes `own` on one core, and `both` when two cores increment the same word. In a round of two transfers
/// and two holds, each core makes one increment, and as many more as fit in the hold.
fn hold(transfer: f64, own: f64, both: f64) -> f64 {
    let room = both / own - 2.0;
    let most = 8.0 * transfer;
    if room <= 0.0 { most.min(1000.0) } else { ((2.0 * transfer - both) / room).clamp(0.0, most.min(1000.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hold_explains_contended_increments() {
        let (transfer, own, kept) = (120.0, 2.5, 85.0);
        let both = 2.0 * (transfer + kept) / (1.0 + kept / own);
        assert!((hold(transfer, own, both) - kept).abs() < 1e-6);
        assert_eq!(hold(50.0, 2.5, 100.0), 0.0, "as slow as transfers");
        assert_eq!(hold(50.0, 2.5, 5.0), 400.0, "no slower than alone");
    }

    #[test]
    fn a_measured_machine_is_a_machine_and_a_file() {
        let machine = Machine::measured();
        machine.check().unwrap();
        let latency = &machine.latency;
        assert!(latency.l1 <= latency.l2 && latency.l2 <= latency.l3 && latency.l3 <= latency.memory[0]);
        assert_eq!(Machine::from_toml(&machine.to_toml()).unwrap(), machine);
        for name in crate::machine::PRESETS {
            let preset = Machine::preset(name).unwrap();
            assert_eq!(Machine::from_toml(&preset.to_toml()).unwrap(), preset);
        }
    }
}

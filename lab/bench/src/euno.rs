//! `bench euno` and `sim euno`: Eunomia with its techniques switched on one by one, and its rivals, where many threads
//! write to few keys.
//!
//! | workload | an update | a read |
//! |---|---|---|
//! | `ycsb` | stores the value of a loaded key, drawn by Zipf's law | looks up a key drawn in the same way |
//! | `batches` | puts the next of 20 neighbouring keys, see [`Batches`] | looks up a loaded key, all alike |
//! | `shared-batches` | the same, where all threads take a region's next keys from one count | the same |
//! | `rising` | inserts the next number of a counter that all threads share | looks up one of the last numbers |
//! | `orders` | inserts (warehouse, district, next order number) in some district | looks up one of a district's last orders |
//! | `stamps` | inserts the present time | scans the last ten microseconds, ten entries at most |

use core::marker::PhantomData;
use std::process::ExitCode;

use archipelago_index::euno::{Contention, Eunomia, NarrowSkip, NarrowTree, Walks};
use archipelago_index::map::Map;
use archipelago_index::{Art, EunoBTree, EunoSkipList, HydraList, OrderedIndex, OrderedSession};
use archipelago_platform::atomic::{AtomicU64, Ordering};
use archipelago_platform::pad::CachePadded;
use archipelago_platform::time::{Duration, Instant};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::args::{Euno, Ranks, SimCommon, Timed};
use crate::choose;
use crate::failure::Failure;
use crate::harness::program::{Dice, Done, Program, Turns, from_every_node};
use crate::harness::simulated::Contender;
use crate::harness::{Cells, Command, Experiment, Known, known};
use crate::report::row::Cell;
use crate::resources;
use crate::rivals::btree::BTreeOlc;
use crate::rivals::fraser::Fraser;
use crate::rivals::htm_btree::{HtmBTree, HtmBTree16};
use crate::rivals::htm_masstree::HtmMasstree;
use crate::rivals::htm_skiplist::HtmSkipList;
use crate::rivals::masstree::Masstree;
use crate::rivals::pugh::PughSkipList;
use crate::workload::{Distribution, OpKind, Sampler, scatter};

/// Bytes of a key and its value in the index that needs the most memory, a skip list.
const ITEM: u64 = 64;

/// Workloads that draw by Zipf's law. Their instructions were counted.
pub const SKEWED: [&str; 3] = ["ycsb", "batches", "shared-batches"];

/// What threads do to a map of `count` keys.
#[derive(Clone, Copy)]
struct Work {
    workload: &'static str,
    distribution: Distribution,
    ranks: Ranks,
    count: usize,
    update_percent: u32,
    /// Whether half of the updates remove the key.
    removes: bool,
    districts: u64,
}

/// Districts of a warehouse.
const DISTRICTS: u64 = 10;
/// Low bits of a key of `stamps` that hold the thread's number, below the time.
const THREAD_BITS: u32 = 10;

impl Work {
    /// Returns the loaded key with this number.
    fn key(&self, number: u64) -> u64 {
        match self.workload {
            "orders" => self.order(number % self.districts, number / self.districts),
            "stamps" => number << THREAD_BITS,
            _ => number,
        }
    }

    /// Returns how the numbers of loaded keys are drawn.
    fn loaded(&self) -> Distribution {
        if self.workload == "ycsb" { self.distribution } else { Distribution::Uniform }
    }

    /// Returns (warehouse, district, order) as one integer.
    fn order(&self, district: u64, order: u64) -> u64 {
        (district / DISTRICTS) << 48 | (district % DISTRICTS) << 40 | order
    }

    /// Returns the number, below `count`, of the loaded key that has this rank for a thread.
    fn number(&self, rank: usize, threads: usize, thread: usize) -> usize {
        match self.ranks {
            Ranks::Scrambled => scatter(rank) % self.count,
            Ranks::Ordered | Ranks::Region => rank,
            Ranks::PerThread => dealt(rank, self.count, threads, thread),
        }
    }
}

/// Returns the number of a rank, of `count`, for a thread. A thread's popular keys are neighbours of the other threads'
/// popular keys, and are less popular with the other threads. For each thread every number has one rank.
fn dealt(rank: usize, count: usize, threads: usize, thread: usize) -> usize {
    let rows = count / threads;
    if rank >= rows * threads {
        return rank;
    }
    rank % rows * threads + (thread + rank / rows) % threads
}

/// Regions of `batches`, above the loaded keys.
const REGIONS: usize = 20;
/// Low bits of a key of `batches` that hold its place in its region.
const REGION_BITS: u32 = 40;
/// Keys that a thread of `batches` puts before it draws again.
const BATCH: u64 = 20;

/// The keys that a thread of `batches` or `shared-batches` puts, as in the program that Eunomia's authors have
/// published. The thread draws one of 20 regions by Zipf's law, and puts 20 neighbouring keys, the next of that region.
/// (The paper's §6.1: with an exponent of 0.99 the hottest tenth has 41 % of the requests, which is so of 20 things.)
///
/// Each thread of `batches` counts a region's batches by itself, as in the published program. So all threads put the
/// same keys in the same order, and meet where the foremost inserts what the others replace. The threads of
/// `shared-batches` share each region's count, as in a line that the program has in a comment. So each key is put once,
/// and threads of one region always insert side by side.
struct Batches {
    regions: Sampler,
    /// The number of batches that this thread has put, by region.
    put: [u64; REGIONS],
    next: u64,
    left: u64,
}

impl Batches {
    fn of(work: &Work) -> Self {
        Self { regions: Sampler::new(work.distribution, REGIONS), put: [0; REGIONS], next: 0, left: 0 }
    }

    /// Returns the next key. `shared` are the regions' counts if the threads share them.
    fn draw(&mut self, shared: &[CachePadded<AtomicU64>], rng: &mut SmallRng) -> u64 {
        if self.left == 0 {
            let region = self.regions.draw(rng);
            let put = shared.get(region).map_or(self.put[region], |count| count.fetch_add(1, Ordering::Relaxed));
            self.put[region] += 1;
            self.next = ((region as u64 + 1) << REGION_BITS) | (put * BATCH);
            self.left = BATCH;
        }
        self.left -= 1;
        self.next += 1;
        self.next - 1
    }
}

/// A map, and the data that threads share beside the map.
struct Shared<M> {
    map: M,
    threads: usize,
    /// The next number: one for all threads, or one for each district.
    next: Vec<CachePadded<AtomicU64>>,
    start: Instant,
}

impl<M> Shared<M> {
    fn now(&self, work: &Work) -> u64 {
        (work.count as u64 + self.start.elapsed().as_nanos() as u64) << THREAD_BITS
    }
}

/// A map under test.
trait Subject: 'static {
    type Map: OrderedIndex<u64, u64>;

    fn make() -> Self::Map;
}

/// Threads that run the workload on a subject's map.
struct Clients<S>(Work, PhantomData<fn() -> S>);

impl<S> From<Work> for Clients<S> {
    fn from(work: Work) -> Self {
        Clients(work, PhantomData)
    }
}

impl<S: Subject> Program for Clients<S> {
    type Shared = Shared<S::Map>;

    fn setup(&self, threads: usize, _: u64) -> Self::Shared {
        let (work, map) = (&self.0, S::make());
        load(work, &map);
        let (counters, next) = match work.workload {
            "orders" => (work.districts, work.count as u64 / work.districts),
            "shared-batches" => (REGIONS as u64, 0),
            "batches" => (0, 0),
            _ => (1, work.count as u64),
        };
        Shared {
            map,
            threads,
            next: (0..counters).map(|_| CachePadded::new(AtomicU64::new(next))).collect(),
            start: Instant::now(),
        }
    }

    fn body(&self, shared: &Self::Shared, turns: &mut impl Turns) {
        let (work, map, thread) = (&self.0, shared.map.pin(), turns.thread());
        let (dice, sampler) = (Dice::of(turns), Sampler::new(work.loaded(), work.count));
        let mut rng = SmallRng::seed_from_u64(turns.seed().wrapping_mul(1_000_003).wrapping_add(thread as u64));
        // Keys are drawn one by one: a few keys that are repeated would stay in the core's cache.
        let key = |rng: &mut _| work.key(work.number(sampler.draw(rng), shared.threads, thread) as u64);
        let mut batches = Batches::of(work);
        let charge = turns.charge();
        let op = |_| {
            let roll = dice.roll();
            let (updates, roll) = (batches.left > 0 || roll % 100 < u64::from(work.update_percent), roll / 100);
            charge.begins(if updates { OpKind::Update } else { OpKind::Read });
            let done = match work.workload {
                "batches" | "shared-batches" if updates => {
                    access(work, &map, batches.draw(&shared.next, &mut rng), updates, roll)
                }
                "ycsb" | "batches" | "shared-batches" => access(work, &map, key(&mut rng), updates, roll),
                "stamps" => stamp(work, shared, &map, updates, thread),
                _ => append(work, shared, &map, updates, roll),
            };
            done.unwrap_or(Done::updated(updates))
        };
        turns.go(usize::MAX, op, || ());
    }
}

/// Returns a number whose multiples, modulo `count`, are all numbers below `count`.
fn stride(count: usize) -> usize {
    fn divisor(of: usize, and: usize) -> usize {
        if and == 0 { of } else { divisor(and, of % and) }
    }
    (7919..).find(|stride| divisor(*stride, count) == 1).expect("there are many primes")
}

/// Fills the map, in scattered order, from every node in turn.
fn load(work: &Work, map: &impl OrderedIndex<u64, u64>) {
    let count = work.count;
    let stride = stride(count);
    from_every_node(64, |part| {
        let session = map.pin();
        let numbers = part * count / 64..(part + 1) * count / 64;
        numbers.for_each(|number| _ = session.insert(&work.key((number * stride % count) as u64), 1));
    });
    map.quiesce();
}

/// Runs an operation of `ycsb` or `batches`. Returns [`Done::Missed`] if a look-up did not find a key that must be
/// present.
fn access(work: &Work, map: &impl OrderedSession<u64, u64>, key: u64, updates: bool, roll: u64) -> Option<Done> {
    if !updates {
        let found = map.get(&key).is_some();
        return (!found && !work.removes).then_some(Done::Missed);
    }
    if work.removes && roll.is_multiple_of(2) {
        map.remove(&key);
    } else {
        map.insert(&key, roll);
    }
    None
}

/// Runs an operation of `rising` or `orders`, at the upper end of all keys or of a district's keys.
fn append<M>(
    work: &Work,
    shared: &Shared<M>,
    map: &impl OrderedSession<u64, u64>,
    updates: bool,
    roll: u64,
) -> Option<Done> {
    let district = roll % shared.next.len() as u64;
    let next = &shared.next[district as usize];
    let key = |order: u64| if work.workload == "orders" { work.order(district, order) } else { order };
    if updates {
        // Relaxed: the counter carries no data.
        map.insert(&key(next.fetch_add(1, Ordering::Relaxed)), roll);
    } else {
        // The last numbers counted may not be inserted yet.
        map.get(&key(next.load(Ordering::Relaxed).saturating_sub(1 + roll / 1024 % 100)));
    }
    None
}

/// Runs an operation of `stamps`, at the present time.
fn stamp<M>(
    work: &Work,
    shared: &Shared<M>,
    map: &impl OrderedSession<u64, u64>,
    updates: bool,
    thread: usize,
) -> Option<Done> {
    let now = shared.now(work);
    if updates {
        map.insert(&(now + thread as u64), 1);
    } else {
        map.scan(&now.saturating_sub(10_000 << THREAD_BITS), 10, |_, _| ());
    }
    None
}

/// Defines subjects: the name of each, its map, and the expression that makes the map.
macro_rules! subjects {
    ($($subject:ident $name:literal $map:ty, $make:expr;)*) => {
        $(
            struct $subject;

            impl Subject for $subject {
                type Map = $map;

                fn make() -> $map {
                    $make
                }
            }
        )*

        static KNOWN: &[Known<Work>] = &[$(Known::of::<Clients<$subject>>($name)),*];
    };
}

type Tree = EunoBTree<u64, u64>;
type Skip = EunoSkipList<u64, u64>;

/// The tree with 16 entries in a chunk and 16 separators in a node, as in the paper.
type Tree16 = Map<NarrowTree, u64, u64>;
type Skip16 = Map<NarrowSkip, u64, u64>;

/// Makes an index of the paper's ablation study. As in the paper, an operation is two transactions. `contention`
/// decides which chunks are partitioned; in the paper, all or none of them are.
fn part<S: Eunomia>(contention: Contention, doors: bool) -> Map<S, u64, u64> {
    Map::builder().walks(Walks::InTransactions).contention(contention).doors(doors).build()
}

subjects! {
    HtmTree "htm-btree" HtmBTree, HtmBTree::default();
    TreeSplit "btree+split" Tree, part(Contention::Never, true);
    TreeParts "btree+partition" Tree, part(Contention::Always, false);
    TreeDoors "btree+control" Tree, part(Contention::Always, true);
    TreeWhole "euno-btree" Tree, Tree::new();
    TreeWalks "euno-btree-walks" Tree, part(Contention::Adaptive, true);
    TreeLocks "euno-btree-locks" Tree, Tree::builder().transactions(false).build();
    SkipSplit "skiplist+split" Skip, part(Contention::Never, true);
    SkipParts "skiplist+partition" Skip, part(Contention::Always, false);
    SkipDoors "skiplist+control" Skip, part(Contention::Always, true);
    SkipWhole "euno-skiplist" Skip, Skip::new();
    HtmSkip "htm-skiplist" HtmSkipList, HtmSkipList::default();
    Pugh "pugh" PughSkipList, PughSkipList::default();
    Lockless "fraser" Fraser, Fraser::default();
    Olc "btree-olc" BTreeOlc<u64>, BTreeOlc::default();
    Mass "masstree-like" Masstree<u64>, Masstree::default();
    HtmMass "htm-masstree" HtmMasstree, HtmMasstree::default();
    Hydra "hydralist" HydraList<u64, u64>, HydraList::new();
    Radix "art" Art<u64, u64>, Art::new();
    HtmTree16 "htm-btree-16" HtmBTree16, HtmBTree16::default();
    TreeSplit16 "btree+split-16" Tree16, part(Contention::Never, true);
    TreeParts16 "btree+partition-16" Tree16, part(Contention::Always, false);
    TreeDoors16 "btree+control-16" Tree16, part(Contention::Always, true);
    TreeWhole16 "euno-btree-16" Tree16, Tree16::new();
    TreeWalks16 "euno-btree-walks-16" Tree16, part(Contention::Adaptive, true);
    SkipSplit16 "skiplist+split-16" Skip16, part(Contention::Never, true);
    SkipParts16 "skiplist+partition-16" Skip16, part(Contention::Always, false);
    SkipDoors16 "skiplist+control-16" Skip16, part(Contention::Always, true);
    SkipWhole16 "euno-skiplist-16" Skip16, Skip16::new();
}

/// Returns the indexes that the arguments list, in one cell (a workload with its parameters) for each workload,
/// exponent and percentage of updates.
fn cells<C: clap::Args>(args: &Euno<C>, count: usize) -> Result<Cells<Work>, Failure> {
    let names: Vec<&'static str> = KNOWN.iter().map(|known| known.name).collect();
    let named = choose::names("index", &args.index, &names)?;
    let chosen: Vec<_> = named.iter().filter_map(|name| KNOWN.iter().find(|known| known.name == *name)).collect();
    let count = args.count.unwrap_or(count);
    let mut cells = Vec::new();
    let workloads = [&SKEWED[..], &["rising", "orders", "stamps"]].concat();
    for workload in choose::names("workload", &args.workload, &workloads)? {
        let skewed = SKEWED.contains(&workload);
        for theta in args.theta.iter().take(if skewed { usize::MAX } else { 1 }) {
            let distribution = match args.ranks {
                _ if !skewed || *theta == 0.0 => Distribution::Uniform,
                Ranks::Region if workload == "ycsb" => Distribution::parse(&format!("hot:{theta}:{}", args.region))?,
                _ => Distribution::Zipf(*theta),
            };
            for &update_percent in &args.update_percent {
                let districts = DISTRICTS * args.warehouses as u64;
                let (ranks, removes) = (args.ranks, args.removes && workload == "ycsb");
                let work = Work { workload, distribution, ranks, count, update_percent, removes, districts };
                let details = match workload {
                    "ycsb" if removes => format!("{} keys, half of the updates remove", ranks.name()),
                    "ycsb" => format!("{} keys", ranks.name()),
                    "batches" | "shared-batches" => format!("{REGIONS} regions, batches of {BATCH}"),
                    "orders" => format!("{districts} districts"),
                    _ => String::new(),
                };
                let (update_percent, distribution, count) = (Some(update_percent), Some(distribution), Some(count));
                let cell = Cell { update_percent, distribution, count, details, ..Cell::of(workload) };
                cells.push((cell, work, chosen.clone()));
            }
        }
    }
    Ok(cells)
}

/// Measures and reports.
///
/// # Errors
/// If the arguments make no sense, or the report cannot be written.
pub fn run(args: &Euno<Timed>) -> Result<ExitCode, Failure> {
    let Timed { common, millis } = &args.common;
    resources::check_items(args.count.unwrap_or(0), ITEM, 0)?;
    let (cells, time) = (cells(args, 1_000_000)?, Duration::from_millis(*millis as u64));
    Command::start(common)?.run(&Experiment::of("euno", common, "btree-olc", time, cells)?)
}

/// Returns the contenders on the virtual machine (a simulator).
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &Euno<SimCommon>) -> Result<Vec<Contender>, Failure> {
    Ok(known::simulated(cells(args, 100_000)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key is loaded, also if the first stride divides the number of keys.
    #[test]
    fn every_key_is_loaded() {
        for count in [1, 1_000, 7_919, 15_838, 7_919 * 10] {
            let mut numbers: Vec<usize> = (0..count).map(|number| number * stride(count) % count).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..count), "{count} keys");
        }
        let (ranks, distribution) = (Ranks::Ordered, Distribution::Uniform);
        let (count, update_percent, removes, districts) = (15_838, 0, false, 10);
        let work = Work { workload: "ycsb", distribution, ranks, count, update_percent, removes, districts };
        let map = Art::new();
        load(&work, &map);
        let session = map.pin();
        assert!((0..count as u64).all(|number| session.get(&work.key(number)).is_some()));
    }

    /// Each thread puts the same keys of a region in the same order, batch by batch.
    #[test]
    fn batches_are_neighbours_and_every_thread_has_the_same() {
        let (ranks, distribution) = (Ranks::PerThread, Distribution::Zipf(0.99));
        let (count, update_percent, removes, districts) = (100, 50, false, 10);
        let work = Work { workload: "batches", distribution, ranks, count, update_percent, removes, districts };
        let drawn = |seed| {
            let (mut batches, mut rng) = (Batches::of(&work), SmallRng::seed_from_u64(seed));
            let keys: Vec<u64> = (0..20_000).map(|_| batches.draw(&[], &mut rng)).collect();
            assert!(keys.chunks(BATCH as usize).all(|batch| batch.windows(2).all(|two| two[1] == two[0] + 1)));
            keys
        };
        let of = |keys: &[u64], region: u64| -> Vec<u64> {
            keys.iter().copied().filter(|key| key >> REGION_BITS == region).collect()
        };
        let (one, other) = (drawn(1), drawn(2));
        for region in 1..=REGIONS as u64 {
            let (one, other) = (of(&one, region), of(&other, region));
            let both = one.len().min(other.len());
            assert!(both > 0 && one[..both] == other[..both], "region {region}");
            assert!(one.iter().copied().eq((0..one.len() as u64).map(|place| region << REGION_BITS | place)));
        }
        let hottest = of(&one, 1).len() + of(&one, 2).len();
        assert!((7_500..9_000).contains(&hottest), "the hottest tenth has {hottest} of 20,000; the paper: 41 %");
    }

    /// Threads that share the regions' counts put each key once, and no key of a region is left out.
    #[test]
    fn shared_batches_are_put_once() {
        let (ranks, distribution) = (Ranks::PerThread, Distribution::Zipf(0.99));
        let (count, update_percent, removes, districts) = (100, 50, false, 10);
        let work = Work { workload: "shared-batches", distribution, ranks, count, update_percent, removes, districts };
        let shared = Clients::<TreeWhole>::from(work).setup(2, 0).next;
        let mut threads = [1, 2].map(|seed| (Batches::of(&work), SmallRng::seed_from_u64(seed)));
        let mut keys: Vec<u64> =
            (0..20_000).map(|at| threads[at % 2].0.draw(&shared, &mut threads[at % 2].1)).collect();
        keys.sort_unstable();
        for region in keys.chunk_by(|one, other| one >> REGION_BITS == other >> REGION_BITS) {
            let first = region[0] >> REGION_BITS << REGION_BITS;
            assert!(region.iter().copied().eq(first..first + region.len() as u64));
        }
    }

    /// Each thread uses every key, and at first other keys than the others.
    #[test]
    fn every_thread_has_every_key_once() {
        for (count, threads) in [(20_000, 16), (20_000, 20), (1_000, 7), (5, 8), (8, 8), (1, 1)] {
            let mut first = Vec::new();
            for thread in 0..threads {
                let mut numbers: Vec<usize> = (0..count).map(|rank| dealt(rank, count, threads, thread)).collect();
                first.push(numbers[0]);
                numbers.sort_unstable();
                assert!(numbers.into_iter().eq(0..count), "{count} keys, thread {thread} of {threads}");
            }
            first.dedup();
            assert!(count < threads || first.len() == threads, "{first:?}");
        }
    }
}

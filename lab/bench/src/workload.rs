//! YCSB's workloads, and one more, *grow*: insertions into an index that is full already. Their operations are a stream that is made before anything is timed ([`stream`]), or are drawn one
//! by one ([`Draws`]).
//!
//! | workload | operations | keys |
//! |---|---|---|
//! | load | inserts | every key, in loading order |
//! | A | 50 % read, 50 % update | by the distribution |
//! | B | 95 % read, 5 % update | by the distribution |
//! | C | reads | by the distribution |
//! | D | 95 % read, 5 % insert | the latest inserted ones; inserts are of new keys |
//! | E | 95 % scan of 1 to 100 entries, 5 % insert | scans start by the distribution; inserts are of new keys |
//! | F | 50 % read, 50 % read-modify-write | by the distribution |
//! | grow | inserts | a fifth as many new keys as were loaded, each once |
//!
//! *Load* begins with an empty index, whose inner levels are small and in the caches. *Grow* begins with a full index at
//! rest: all maintenance that its load has left is done. Maintenance that the insertions of *grow* cause runs beside them.
//!
//! Every key that is read is in the index. Each thread has a stream of its own, and inserts keys of its own. In D, the
//! latest keys of a thread are first the keys that it inserted itself, then the keys that were loaded last. A thread
//! cannot know beforehand what the other threads will have inserted.
//!
//! A stream holds copies of its keys in the order of use. Reading the next key is therefore a sequential read, and the
//! measurement shows the index's cache misses rather than the workload's.

use core::fmt;
use std::borrow::Cow;

use archipelago_workloads::random;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Zipf};

use crate::choose::choose;
use crate::failure::Failure;

/// One of YCSB's workloads, or [`Grow`](Self::Grow).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workload {
    /// Inserts all keys.
    Load,
    /// Half of the operations update.
    A,
    /// One in twenty operations updates.
    B,
    /// Reads only.
    C,
    /// Half of the operations read, modify and write.
    F,
    /// Reads the latest keys.
    D,
    /// Scans.
    E,
    /// Inserts many keys into the full index.
    Grow,
}

impl Workload {
    /// All workloads, in the order in which they run on one index. After the load, the workloads that insert run last.
    /// So the others find the same index, whichever workloads were chosen.
    pub const ALL: [Workload; 8] =
        [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::F, Workload::D, Workload::E, Workload::Grow];

    /// Returns the name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Load => "load",
            Workload::A => "a",
            Workload::B => "b",
            Workload::C => "c",
            Workload::D => "d",
            Workload::E => "e",
            Workload::F => "f",
            Workload::Grow => "grow",
        }
    }

    /// Returns whether the workload inserts keys that were held back.
    pub fn inserts(self) -> bool {
        matches!(self, Workload::D | Workload::E | Workload::Grow)
    }

    /// Returns how many of `ops` operations to run. A scan costs as much as several look-ups, so E runs an eighth.
    pub fn share(self, ops: usize) -> usize {
        if self == Workload::E { ops.div_ceil(8) } else { ops }
    }

    /// Parses a comma-separated list, or `all`, into running order.
    ///
    /// # Errors
    /// If a name is not known.
    pub fn parse_list(list: &str) -> Result<Vec<Workload>, Failure> {
        let mut known = Workload::ALL;
        known.sort_unstable_by_key(|workload| (*workload != Workload::Load, workload.name()));
        let mut chosen = choose("workload", &list.to_ascii_lowercase(), &known, Workload::name, &[])?;
        chosen.sort_unstable();
        Ok(chosen)
    }

    fn draw(self, rng: &mut SmallRng) -> OpKind {
        let percent = rng.random_range(0..100u32);
        match self {
            Workload::A if percent < 50 => OpKind::Update,
            Workload::B if percent < 5 => OpKind::Update,
            Workload::F if percent < 50 => OpKind::Modify,
            Workload::D | Workload::E if percent < 5 => OpKind::Insert,
            Workload::Grow => OpKind::Insert,
            Workload::E => OpKind::Scan,
            _ => OpKind::Read,
        }
    }
}

/// Which of the keys are popular.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All keys are equally popular.
    Uniform,
    /// The key of rank `r` is drawn in proportion to `1 / r^s`. A hash scatters the ranks over the keys, as in YCSB.
    Zipf(f64),
    /// As `Zipf(0.99)`, but the rank is the age: the key that the thread inserted last is the most popular. Loaded keys
    /// are older, see [`Draws::of_thread`].
    Latest,
    /// As YCSB draws by default (its `zipfian` requests). The rank is one of 10^10 ranks, however many keys there are,
    /// and the hash maps several ranks to one key. So the most popular key has 3.8 % of all draws; by `Zipf(0.99)` it
    /// has 7.8 % if there are 200,000 keys.
    Ycsb,
    /// `Hot(p, n)` draws, with the probability `p` (above 0, at most 1), one of the `n` keys in the middle, and otherwise
    /// one of all keys.
    Hot(f64, usize),
}

impl Distribution {
    /// Parses `uniform`, `latest`, `ycsb`, `zipf`, `zipf:S` or `hot:P:N`.
    ///
    /// # Errors
    /// If it is none of these, `S` is not a positive finite number, `P` is not above 0 and at most 1, or `N` is 0.
    pub fn parse(text: &str) -> Result<Distribution, Failure> {
        let parsed = match *text.split(':').collect::<Vec<_>>() {
            ["uniform"] => Some(Distribution::Uniform),
            ["latest"] => Some(Distribution::Latest),
            ["ycsb"] => Some(Distribution::Ycsb),
            ["zipf"] => Some(Distribution::Zipf(0.99)),
            ["zipf", exponent] => {
                exponent.parse().ok().filter(|s| f64::is_finite(*s) && *s > 0.0).map(Distribution::Zipf)
            }
            ["hot", share, keys] => {
                let share = share.parse().ok().filter(|p| *p > 0.0 && *p <= 1.0);
                share.zip(keys.parse().ok().filter(|keys| *keys > 0)).map(|(p, keys)| Distribution::Hot(p, keys))
            }
            _ => None,
        };
        parsed.ok_or_else(|| {
            Failure::new(format!(
                "unknown distribution '{text}'; known are zipf:S (S > 0, as in zipf:0.99), hot:P:N (with the probability \
                 P > 0 one of N neighbouring keys), uniform, ycsb, latest"
            ))
        })
    }

    /// Parses a comma-separated list of distributions that need no YCSB.
    ///
    /// # Errors
    /// If [`parse`](Self::parse) fails, or one of them is `latest` or `ycsb`.
    pub fn parse_list(list: &str) -> Result<Vec<Distribution>, Failure> {
        let parse = |text: &str| match Distribution::parse(text.trim())? {
            only @ (Distribution::Latest | Distribution::Ycsb) => {
                Err(Failure::new(format!("--distribution {only} is for YCSB only; try uniform or zipf:0.99")))
            }
            distribution => Ok(distribution),
        };
        list.split(',').map(parse).collect()
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::Zipf(s) => write!(f, "zipf:{s}"),
            Distribution::Latest => f.write_str("latest"),
            Distribution::Ycsb => f.write_str("ycsb"),
            Distribution::Hot(p, keys) => write!(f, "hot:{p}:{keys}"),
        }
    }
}

/// What an operation does with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// Looks the key up.
    Read,
    /// Overwrites the key's value.
    Update,
    /// Inserts the key.
    Insert,
    /// Visits entries from the key on.
    Scan,
    /// Looks the key up, then overwrites its value.
    Modify,
}

/// One operation, without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What to do.
    pub kind: OpKind,
    /// The number of entries to visit, for a scan.
    pub span: u8,
}

/// The operations of one thread, and their keys in a vector of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream<K> {
    /// What to do.
    pub ops: Vec<Op>,
    /// The key of each operation.
    pub keys: Vec<K>,
}

/// Entries of the longest scan.
const LONGEST_SCAN: u8 = 100;

/// The operations of one thread, drawn one by one.
pub struct Draws<'a, K: Clone> {
    workload: Workload,
    distribution: Distribution,
    sampler: Sampler,
    loaded: &'a [K],
    /// The number of loaded keys after the one that counts as the newest.
    after: usize,
    fresh: Cow<'a, [K]>,
    /// How many of the fresh keys have been inserted.
    inserted: usize,
    /// Makes a key that was never made before, when the fresh keys have run out.
    unseen: Option<fn(&mut SmallRng) -> K>,
    rng: SmallRng,
}

impl<'a, K: Clone> Draws<'a, K> {
    /// Draws operations of `workload` over `loaded`, inserting from `fresh`. If `fresh` runs out, further inserts
    /// become reads (in E, scans).
    pub fn new(
        workload: Workload,
        distribution: Distribution,
        loaded: &'a [K],
        fresh: &'a [K],
        seed: u64,
    ) -> Draws<'a, K> {
        let distribution = if workload == Workload::D { Distribution::Latest } else { distribution };
        Draws {
            workload,
            distribution,
            sampler: Sampler::new(distribution, loaded.len()),
            loaded,
            after: 0,
            fresh: Cow::Borrowed(fresh),
            inserted: 0,
            unseen: None,
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// Gives this thread, one of `threads`, a part of the loaded keys as its latest ones in D. Otherwise the threads,
    /// until they have inserted many keys, would all read the same loaded key most. (So it is where a trace of YCSB's
    /// operations is divided among the threads, as in Index-Microbench.)
    pub fn of_thread(mut self, thread: usize, threads: usize) -> Self {
        self.after = self.loaded.len() * thread / threads;
        self
    }

    /// Makes a further key by `unseen` for each insert after `fresh` has run out.
    pub fn without_end(mut self, unseen: fn(&mut SmallRng) -> K) -> Self {
        self.unseen = Some(unseen);
        self
    }

    /// Returns the next operation and its key.
    pub fn draw(&mut self) -> (Op, &K) {
        let rng = &mut self.rng;
        let mut kind = self.workload.draw(rng);
        if kind == OpKind::Insert && self.inserted == self.fresh.len() {
            match self.unseen {
                Some(unseen) => self.fresh.to_mut().push(unseen(rng)),
                None => kind = if self.workload == Workload::E { OpKind::Scan } else { OpKind::Read },
            }
        }
        let span = if kind == OpKind::Scan { rng.random_range(1..=LONGEST_SCAN) } else { 0 };
        let key = if kind == OpKind::Insert {
            self.inserted += 1;
            &self.fresh[self.inserted - 1]
        } else {
            let item = self.sampler.draw(rng);
            choose_key(self.distribution, item, self.loaded, self.after, &self.fresh[..self.inserted])
        };
        (Op { kind, span }, key)
    }
}

/// Draws `ops` operations.
pub fn stream<K: Clone>(mut draws: Draws<'_, K>, ops: usize) -> Stream<K> {
    let mut made = Stream { ops: Vec::with_capacity(ops), keys: Vec::with_capacity(ops) };
    for _ in 0..ops {
        let (op, key) = draws.draw();
        made.ops.push(op);
        made.keys.push(key.clone());
    }
    made
}

/// Draws one of a number of items, of which the first is the most popular, if not said otherwise. All workloads use
/// this sampler.
#[derive(Clone, Copy, Debug)]
pub enum Sampler {
    /// All items are equally popular.
    Uniform(usize),
    /// The item of rank `r` is drawn in proportion to `1 / r^s`.
    Zipf(Zipf<f64>, usize),
    /// The popular items are scattered over all items.
    Ycsb(random::Zipf, usize),
    /// With this probability, one of the items of a region; otherwise one of all items.
    Hot { share: f64, first: usize, keys: usize, items: usize },
}

impl Sampler {
    /// Makes a sampler of `items` items, at least one.
    pub fn new(distribution: Distribution, items: usize) -> Sampler {
        let zipf = |s| Zipf::new(items as f64, s).expect("at least one thing and a positive exponent");
        match distribution {
            Distribution::Uniform => Sampler::Uniform(items),
            Distribution::Zipf(s) => Sampler::Zipf(zipf(s), items),
            Distribution::Latest => Sampler::Zipf(zipf(0.99), items),
            Distribution::Ycsb => Sampler::Ycsb(random::Zipf::ycsb(), items),
            Distribution::Hot(share, keys) => {
                let keys = keys.min(items);
                Sampler::Hot { share, first: (items - keys) / 2, keys, items }
            }
        }
    }

    /// Draws an item's number, from 0 to below the number of items.
    #[inline]
    pub fn draw(&self, rng: &mut SmallRng) -> usize {
        match self {
            Sampler::Uniform(items) => rng.random_range(0..*items),
            // A rank is an integer from 1 to the number of items; the minimum guards against rounding errors.
            Sampler::Zipf(zipf, items) => (zipf.sample(rng) as usize).min(*items) - 1,
            Sampler::Ycsb(zipf, items) => scatter(zipf.rank(rng.random()) as usize) % items,
            Sampler::Hot { share, first, keys, .. } if rng.random_bool(*share) => first + rng.random_range(0..*keys),
            Sampler::Hot { items, .. } => rng.random_range(0..*items),
        }
    }
}

/// Returns the key of an item that [`Sampler::draw`] has drawn. `after` is as in [`Draws`].
fn choose_key<'a, K>(
    distribution: Distribution,
    item: usize,
    loaded: &'a [K],
    after: usize,
    inserted: &'a [K],
) -> &'a K {
    match distribution {
        Distribution::Uniform | Distribution::Ycsb | Distribution::Hot(..) => &loaded[item],
        Distribution::Zipf(_) => &loaded[scatter(item) % loaded.len()],
        Distribution::Latest => match item.checked_sub(inserted.len()) {
            None => &inserted[inserted.len() - 1 - item],
            Some(age) => &loaded[(2 * loaded.len() - 1 - age - after) % loaded.len()],
        },
    }
}

/// Hashes a rank by FNV-1a over its eight bytes, as YCSB does.
pub fn scatter(rank: usize) -> usize {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    (rank as u64).to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, mix) as usize
}

#[cfg(test)]
mod tests;

//! Tests every rival against a model, and its histories with the linearizability checker.

use core::hash::Hash;
use std::collections::BTreeMap;

use archipelago_check::history::Recorder;
use archipelago_check::linear::DEFAULT_STEPS;
use archipelago_check::map::{MapOp, MapRet, check_map};
use archipelago_check::workload::{self, Choice, Mix, OpKind};
use archipelago_index::OrderedSession;
use archipelago_platform::thread;
use rand::RngExt;

use crate::contender::BenchIndex;
use crate::keys::{self, BenchKey};
use crate::rivals::btree::LONGEST;

pub fn words(count: u64) -> Vec<u64> {
    (0..count).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect()
}

pub fn strings(count: usize) -> Vec<Vec<u8>> {
    let mut keys = keys::emails(count, 0, 1).loaded;
    keys.extend([Vec::new(), vec![0], vec![0, 0], vec![0xff; 300]]);
    keys
}

/// Makes strings that fit into rivals with keys in place, the longest ones and zeros at the end among them.
pub fn short_strings(count: usize) -> Vec<Vec<u8>> {
    let mut keys = strings(count);
    keys.retain(|key| key.len() <= LONGEST);
    keys.extend([30, 31, 32, LONGEST - 1, LONGEST].map(|len| vec![0; len]));
    keys.extend([vec![0xff; LONGEST - 1], vec![0xff; LONGEST]]);
    keys
}

/// Makes keys of which many share their first 8, 16 or 24 bytes, with lengths around these numbers.
pub fn nested(count: usize) -> Vec<Vec<u8>> {
    let key = |n: usize| {
        let len = [6, 7, 8, 9, 10, 15, 16, 17, 24, 25][n % 10];
        let mut key = vec![b'a' + (n / 10 % 2) as u8; len];
        key[len - 1] = (n / 20) as u8;
        key
    };
    let mut keys: Vec<_> = (0..count).map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Returns the size of a test natively, or under Miri, where tests have to be smaller.
pub const fn scaled(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

pub fn agrees_with_a_model<K: BenchKey, I: BenchIndex<K>>(keys: &[K], check: impl Fn(&mut I)) {
    let mut rng = workload::rng(1, 0);
    let mut tree = I::empty();
    let mut model = BTreeMap::new();
    // The tree grows, shrinks and grows again, so that its number of levels changes in both directions.
    for (phase, removes) in [10_u32, 90, 30].into_iter().enumerate() {
        step_by_step::<K, I>(&tree.pin(), keys, &mut model, phase, removes, &mut rng);
        check(&mut tree);
    }
}

fn step_by_step<K: BenchKey, I: BenchIndex<K>>(
    session: &I::Session<'_>,
    keys: &[K],
    model: &mut BTreeMap<K, u64>,
    phase: usize,
    removes: u32,
    rng: &mut workload::Rng,
) {
    for step in 0..keys.len() * 6 {
        let (key, value) = (&keys[rng.random_range(0..keys.len())], (phase * 1_000_000 + step) as u64);
        match rng.random_range(0..100_u32) {
            dice if dice < removes => assert_eq!(session.remove(key), model.remove(key)),
            dice if dice < 93 => assert_eq!(session.insert(key, value), model.insert(key.clone(), value)),
            93..96 => {
                let old = session.update(key, |old| old ^ 1);
                assert_eq!(old, model.get_mut(key).map(|value| core::mem::replace(value, *value ^ 1)));
            }
            dice if dice < 98 || !I::SCANS => assert_eq!(session.get(key), model.get(key).copied()),
            _ => {
                let (mut seen, limit) = (Vec::new(), rng.random_range(0..90));
                session.scan(key, limit, |key, value| seen.push((K::from_shown(key), *value)));
                let expected: Vec<_> =
                    model.range(key..).take(limit).map(|(key, value)| (key.clone(), *value)).collect();
                assert_eq!(seen, expected);
            }
        }
    }
}

/// Lets threads grow and shrink the tree while others look up and scan. The checker judges every operation.
pub fn history<K: BenchKey + Hash, I: BenchIndex<K>>(
    pool: &[K],
    (threads, ops): (usize, usize),
    mixes: &[Mix],
    seed: u64,
    check: impl Fn(&mut I),
) {
    let scene = Scene::<K, I>::new(pool);
    thread::scope(|scope| {
        for number in 0..threads {
            let scene = &scene;
            scope.spawn(move || scene.act(pool, number, ops, mixes, seed));
        }
    });
    scene.judge(pool, check);
}

/// A tree that contains a third of a pool's keys, and the recorder of the threads' operations.
struct Scene<K, I> {
    tree: I,
    initial: BTreeMap<K, u64>,
    recorder: Recorder<MapOp<K, u64>, MapRet<K, u64>>,
}

impl<K: BenchKey + Hash, I: BenchIndex<K>> Scene<K, I> {
    fn new(pool: &[K]) -> Self {
        let tree = I::empty();
        let mut initial = BTreeMap::new();
        for (at, key) in pool.iter().enumerate().filter(|(at, _)| at % 3 == 0) {
            tree.pin().insert(key, at as u64);
            initial.insert(key.clone(), at as u64);
        }
        Scene { tree, initial, recorder: Recorder::new() }
    }

    /// Runs one thread's operations.
    fn act(&self, pool: &[K], number: usize, ops: usize, mixes: &[Mix], seed: u64) {
        let (mut log, session) = (self.recorder.log(), self.tree.pin());
        let (mut rng, choice) = (workload::rng(seed, number), Choice::zipf(pool.len(), 0.5));
        for step in 0..ops * mixes.len() {
            let key = pool[choice.next(&mut rng)].clone();
            let value = (number << 32 | step) as u64;
            let op = match mixes[step / ops].next(&mut rng) {
                OpKind::Get => MapOp::Get(key),
                OpKind::Insert => MapOp::Insert(key, value),
                OpKind::Update => MapOp::Update(key, value),
                OpKind::Remove => MapOp::Remove(key),
                OpKind::Scan if !I::SCANS => MapOp::Get(key),
                OpKind::Scan => MapOp::Scan(key, rng.random_range(1..40)),
            };
            log.record(op, |op| perform(&session, op));
        }
    }

    fn judge(self, pool: &[K], check: impl Fn(&mut I)) {
        let Scene { mut tree, initial, recorder } = self;
        {
            let mut log = recorder.log();
            pool.iter().for_each(|key| _ = log.record(MapOp::Get(key.clone()), |op| perform(&tree.pin(), op)));
        }
        check_map(&initial, &recorder.finish(), DEFAULT_STEPS).assert_ok();
        check(&mut tree);
    }
}

fn perform<K: BenchKey>(session: &impl OrderedSession<K, u64>, op: &MapOp<K, u64>) -> MapRet<K, u64> {
    match op {
        MapOp::Get(key) => MapRet::Value(session.get(key)),
        MapOp::Insert(key, value) => MapRet::Value(session.insert(key, *value)),
        MapOp::Update(key, value) => MapRet::Value(session.update(key, |_| *value)),
        MapOp::Remove(key) => MapRet::Value(session.remove(key)),
        MapOp::Scan(from, limit) => {
            let mut seen = Vec::new();
            session.scan(from, *limit, |key, value| seen.push((K::from_shown(key), *value)));
            MapRet::Entries(seen)
        }
        MapOp::ScanRev(..) => unreachable!("never drawn"),
    }
}

/// Tests a rival with `u64` keys: against a model; natively, its histories; on the virtual machine (a simulator), its
/// histories under many schedules. In these schedules, transactions abort sometimes, always, never, or for lack
/// of room.
pub fn check_rival<I: BenchIndex<u64>>(keys: &[u64], check: impl Fn(&mut I)) {
    let few = scaled(keys.len(), 150);
    agrees_with_a_model::<u64, I>(&keys[..few], &check);
    for round in 0..scaled(6, 1) as u64 {
        history::<u64, I>(&words(6), (3, scaled(300, 15)), &[Mix::EVEN], round, &check);
        history::<u64, I>(&words(scaled(400, 40) as u64), (4, scaled(600, 20)), &[GROW, SHRINK], round, &check);
    }
    #[cfg(archipelago_sim)]
    {
        let pool = &words(60);
        let act = |scene: &Scene<u64, I>, client: archipelago_sim::Client| {
            scene.act(pool, client.index, 8, &[GROW, SHRINK], archipelago_sim::world::random());
        };
        let begin = || Scene::<u64, I>::new(pool);
        archipelago_check::simulated::explore_transactions(
            120,
            |_| Vec::new(),
            begin,
            act,
            |scene| scene.judge(pool, &check),
        );
    }
}

/// Tests histories of few keys, integers and strings with common beginnings, under random schedules of the simulator.
#[cfg(archipelago_sim)]
pub fn hunt_histories<W: BenchIndex<u64>, B: BenchIndex<Vec<u8>>>(of_words: fn(&mut W), of_bytes: fn(&mut B)) {
    use archipelago_sim::{Machine, hunt, run};
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let (words, nested) = (words(90), nested(40));
    hunt(300, |config| {
        run(&machine, &config, 1, |_| match config.seed % 2 {
            0 => history(&words, (4, 12), &[GROW, SHRINK], config.seed, of_words),
            _ => history(&nested, (4, 12), &[GROW, SHRINK], config.seed, of_bytes),
        })
    });
}

pub const GROW: Mix = Mix { get: 3, insert: 8, update: 2, remove: 2, scan: 2 };
pub const SHRINK: Mix = Mix { get: 3, insert: 2, update: 2, remove: 8, scan: 2 };

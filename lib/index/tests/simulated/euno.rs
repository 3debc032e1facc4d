//! `EunoBTree` and `EunoSkipList` on machines whose hardware transactions never abort, sometimes abort, always abort,
//! or abort when they write too much. There are runs in which changes are transactions, runs in which walks (the ways
//! down to a chunk) are transactions, too, and runs with version locks. Meanwhile chunks (the leaves) are split,
//! merged, scattered (new keys go to several parts of a chunk) and joined again. Each history is checked, and each map
//! at its end.

use super::Shared;
use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_check::linear::DEFAULT_STEPS;
use archipelago_check::map::{MapOp, MapRet, check_map};
use archipelago_check::pops::{PopOp, Whole};
use archipelago_check::simulated::explore_transactions;
use archipelago_index::euno::{Contention, Eunomia, NarrowSkip, NarrowTree, SLOTS, Skip, Tree, Walks};
use archipelago_index::map::{Builder, Kind, Map};
use archipelago_index::{EunoBTree, points};
use archipelago_sim::{Client, Config, Fault, Machine, Placement, Point, Schedule, run_with, world};

const OPS: u64 = 12;

/// The number of entries of a full chunk.
const FULL_CHUNK: u64 = SLOTS as u64;

/// The number of entries of a full chunk in the paper's geometry.
const NARROW: u64 = 16;

/// The parameters of a run: the number of entries of a full chunk; the number of keys that are inserted in ascending
/// order before the run, and their distance; how many keys of each chunk are kept; the range of keys used; and how many
/// of twelve operations insert and how many remove.
#[derive(Clone, Copy)]
struct Scene {
    chunk: u64,
    ascending: u64,
    distance: u64,
    kept: u64,
    used: (u64, u64),
    inserts: u64,
    removes: u64,
}

/// A chunk with room for one more entry, which is soon split by keys that are inserted among its own keys or above
/// them.
const fn full(chunk: u64) -> Scene {
    Scene { chunk, ascending: chunk - 1, distance: 2, kept: chunk, used: (2 * chunk - 20, 40), inserts: 6, removes: 1 }
}
/// Keys for two full chunks and one more entry, which are distributed over three chunks.
const fn beside(chunk: u64) -> Scene {
    Scene { ascending: 2 * chunk + 1, used: (2 * chunk - 30, 40), ..full(chunk) }
}
/// Two chunks that fit into one after an entry or two have been removed, so that they are merged.
const fn sparse(chunk: u64) -> Scene {
    let each = chunk / 4 + 1;
    let used = (each / 2, chunk + each / 2);
    Scene { chunk, ascending: 2 * chunk, distance: 1, kept: each, used, inserts: 1, removes: 7 }
}

const FULL: Scene = full(FULL_CHUNK);
const BESIDE: Scene = beside(FULL_CHUNK);
const SPARSE: Scene = sparse(FULL_CHUNK);

fn shared<S: Kind>(scene: Scene, map: Map<S, u64, u64>) -> Shared<Map<S, u64, u64>> {
    let session = map.pin();
    let key = |number: u64| number * scene.distance;
    (0..scene.ascending).for_each(|number| _ = session.insert(key(number), 1_000_000 + number));
    let goes = |number: &u64| number % scene.chunk >= scene.kept;
    (0..scene.ascending).filter(goes).for_each(|number| _ = session.remove(&key(number)));
    let before = session.iter().collect();
    Shared { index: map, recorder: Recorder::new(), before }
}

fn client<S: Kind>(scene: Scene, shared: &Shared<Map<S, u64, u64>>, client: Client) {
    let map = shared.index.pin();
    let mut log = shared.recorder.log();
    let (first, keys) = scene.used;
    for i in 0..OPS {
        let (mut key, value) = (first + world::random() % keys, client.index as u64 * 1000 + i);
        let act = world::random() % 12;
        if act < scene.removes && scene.removes > scene.inserts {
            // Most keys are already removed, so one of the remaining keys is used.
            key = key / scene.chunk * scene.chunk + key % scene.kept;
        }
        match act {
            n if n < scene.removes => log.record(MapOp::Remove(key), |_| MapRet::Value(map.remove(&key))),
            n if n < scene.removes + scene.inserts => {
                log.record(MapOp::Insert(key, value), |_| MapRet::Value(map.insert(key, value)))
            }
            8 => log.record(MapOp::Update(key, value), |_| MapRet::Value(map.update(&key, |_| value))),
            11 => log.record(MapOp::Scan(key, 8), |_| {
                let mut seen = Vec::new();
                map.scan(&key, 8, |key, value| seen.push((key, *value)));
                MapRet::Entries(seen)
            }),
            _ => log.record(MapOp::Get(key), |_| MapRet::Value(map.get(&key))),
        };
    }
}

fn judge<S: Kind>(shared: Shared<Map<S, u64, u64>>) {
    shared.index.check_invariants();
    check_map(&shared.before, &shared.recorder.finish(), DEFAULT_STEPS).assert_ok();
}

/// The parts of an operation that run in hardware transactions.
#[derive(Clone, Copy)]
enum Way {
    Changes,
    ChangesAndWalks,
    Nothing,
}

use Way::{Changes, ChangesAndWalks, Nothing};

impl Way {
    fn map<S: Eunomia>(self) -> Builder<S, u64, u64> {
        let walks = if let ChangesAndWalks = self { Walks::InTransactions } else { Walks::ByVersions };
        Map::builder().transactions(!matches!(self, Nothing)).walks(walks)
    }

    fn tree(self) -> Builder<Tree, u64, u64> {
        self.map()
    }

    fn list(self) -> Builder<Skip, u64, u64> {
        self.map()
    }
}

/// The map is a skip list, whose towers are made and removed together with its chunks.
#[test]
fn histories_of_a_skip_list_are_linearizable() {
    for way in [Changes, ChangesAndWalks, Nothing] {
        for scene in [FULL, BESIDE, SPARSE] {
            let make = || shared(scene, way.list().build());
            explore_transactions(100, |_| vec![], make, |shared, it| client(scene, shared, it), judge);
        }
    }
}

fn explore(scene: Scene, contention: Contention, way: Way, faults: impl Fn(u64) -> Vec<Fault>) {
    explore_of::<Tree>(scene, contention, way, faults);
}

fn explore_of<S: Eunomia>(scene: Scene, contention: Contention, way: Way, faults: impl Fn(u64) -> Vec<Fault>) {
    let make = || shared(scene, way.map::<S>().contention(contention).build());
    explore_transactions(100, faults, make, |shared, it| client(scene, shared, it), judge);
}

#[test]
fn histories_are_linearizable_with_transactions() {
    for scene in [FULL, BESIDE, SPARSE] {
        for contention in [Contention::Never, Contention::Always] {
            explore(scene, contention, Changes, |_| vec![]);
        }
    }
}

#[test]
fn histories_are_linearizable_with_walks_in_transactions() {
    for scene in [FULL, BESIDE, SPARSE] {
        for contention in [Contention::Never, Contention::Always] {
            explore(scene, contention, ChangesAndWalks, |_| vec![]);
        }
    }
}

#[test]
fn histories_are_linearizable_by_version_locks() {
    for scene in [FULL, BESIDE, SPARSE] {
        for contention in [Contention::Never, Contention::Always] {
            explore(scene, contention, Nothing, |_| vec![]);
        }
    }
}

/// With the paper's geometry, inner nodes are split here, too.
#[test]
fn histories_of_narrow_pages_are_linearizable() {
    for way in [Changes, ChangesAndWalks, Nothing] {
        for scene in [full(NARROW), beside(NARROW), sparse(NARROW)] {
            explore_of::<NarrowTree>(scene, Contention::Always, way, |_| vec![]);
            explore_of::<NarrowTree>(Scene { ascending: 300, ..scene }, Contention::Adaptive, way, |_| vec![]);
        }
        explore_of::<NarrowSkip>(beside(NARROW), Contention::Adaptive, way, |_| vec![]);
    }
}

/// Threads stop in the middle of splits and merges, and others work on the unfinished results.
#[test]
fn histories_are_linearizable_beside_stalled_splits_and_merges() {
    let stall = |name: &str, seed: u64| Fault::Stall {
        thread: None,
        at: Point::Named { name: name.to_owned(), nth: 1 + seed % 2 },
        for_ns: 50_000,
    };
    for way in [Changes, ChangesAndWalks, Nothing] {
        explore(FULL, Contention::Always, way, |seed| vec![stall(points::CHUNK_SPLIT, seed)]);
        explore(BESIDE, Contention::Adaptive, way, |seed| vec![stall(points::CHUNK_SPLIT, seed)]);
        explore(SPARSE, Contention::Adaptive, way, |seed| vec![stall(points::MERGED, seed)]);
        explore(FULL, Contention::Adaptive, way, |seed| vec![stall(points::FOUND, seed)]);
    }
}

/// Chunks are scattered and joined at any moment.
#[test]
fn histories_are_linearizable_while_chunks_scatter() {
    for way in [Changes, ChangesAndWalks, Nothing] {
        let make = || shared(FULL, way.tree().build());
        let client = |shared: &Shared<EunoBTree<u64, u64>>, it: Client| match it.index {
            0 => (0..4).for_each(|_| shared.index.flip_chunks()),
            _ => client(FULL, shared, it),
        };
        explore_transactions(100, |_| vec![], make, client, judge);
    }
}

/// Chunks are moved at any moment, including scattered ones.
#[test]
fn histories_are_linearizable_while_chunks_move() {
    for way in [Changes, ChangesAndWalks, Nothing] {
        for (scene, contention) in [(FULL, Contention::Always), (SPARSE, Contention::Adaptive)] {
            let make = || shared(scene, way.tree().contention(contention).build());
            let client = |shared: &Shared<EunoBTree<u64, u64>>, it: Client| match it.index {
                0 => (0..4).for_each(|_| shared.index.move_chunks()),
                _ => client(scene, shared, it),
            };
            explore_transactions(60, |_| vec![], make, client, judge);
        }
    }
}

/// Maps a number below 112 to a key in one of two sparse chunks, so that pops merge the chunks and continue in the
/// merged chunk.
fn popped(number: u64) -> u64 {
    number / 56 * FULL_CHUNK + number % 56
}

/// Pops from both ends, while other threads insert and remove, and while chunks become empty and are merged.
fn pops<S: Kind>(make: impl Fn() -> Map<S, u64, u64>) {
    let before = (0..112).filter(|number| number % 2 == 0).fold(0_u128, |all, number| all | 1 << number);
    let setup = || {
        let map = make();
        let session = map.pin();
        (0..2 * FULL_CHUNK).for_each(|key| _ = session.insert(key, key));
        let even = || (0..112).filter(|number| number % 2 == 0);
        session.retain(|key, _| even().any(|number| popped(number) == key));
        even().for_each(|number| _ = session.insert(popped(number), number));
        drop(session);
        (map, Recorder::new())
    };
    let client = |(map, recorder): &(Map<S, u64, u64>, Recorder<PopOp, Option<u64>>), _: Client| {
        let (map, mut log) = (map.pin(), recorder.log());
        for _ in 0..OPS {
            let number = world::random() % 112;
            let key = popped(number);
            let value = |entry: Option<(u64, u64)>| entry.map(|(_, number)| number);
            match world::random() % 8 {
                0 => log.record(PopOp::Insert(number), |_| map.insert(key, number)),
                1 => log.record(PopOp::Get(number), |_| map.get(&key)),
                2 => log.record(PopOp::Remove(number), |_| map.remove(&key)),
                3..6 => log.record(PopOp::First, |_| value(map.pop_first())),
                _ => log.record(PopOp::Last, |_| value(map.pop_last())),
            };
        }
    };
    let end = |(map, recorder): (Map<S, u64, u64>, Recorder<PopOp, Option<u64>>)| {
        map.check_invariants();
        linear::check(&Whole(before), recorder.finish().entries()).assert_ok();
    };
    explore_transactions(60, |_| vec![], setup, client, end);
}

#[test]
fn pops_are_linearizable() {
    for way in [Changes, ChangesAndWalks, Nothing] {
        for contention in [Contention::Never, Contention::Always] {
            pops(|| way.tree().contention(contention).build());
        }
        pops(|| way.list().build());
    }
}

/// Twenty threads use a map in which a few keys are popular. Half of the operations are look-ups. The others insert and
/// remove popular keys or, if `rising`, insert ascending keys at the upper end. Returns the bytes that contention adds,
/// and all bytes of the map.
fn contended(make: impl FnOnce() -> EunoBTree<u64, u64>, rising: bool) -> (usize, usize) {
    const KEYS: u64 = 20_000;
    let make = || {
        let map = make();
        (0..KEYS).for_each(|number| _ = map.pin().insert(number.wrapping_mul(7_919) % KEYS * 2, number));
        map
    };
    let body = |map: &EunoBTree<u64, u64>, it: Client| {
        let session = map.pin();
        for turn in 0..400 {
            // A quarter of the requests use only the first quarter of the keys, a sixteenth only the first sixteenth,
            // and so on.
            let range = KEYS >> (2 * (world::random().trailing_zeros().min(12) / 2));
            let key = world::random() % range * 2 + u64::from(!rising);
            match world::random() % 4 {
                0 | 1 => _ = session.get(&key),
                _ if rising => _ = session.insert(KEYS * 2 + turn * 20 + it.index as u64, turn),
                2 => _ = session.insert(key, turn),
                _ => _ = session.remove(&key),
            }
        }
    };
    let mut bytes = (0, 0);
    let config = Config { schedule: Schedule::VirtualTime, placement: Placement::Spread, ..Config::seeded(1) };
    let machine = Machine::preset("xeon-e5-2650v3-2s").expect("it is a preset");
    let end = |map: EunoBTree<u64, u64>| {
        map.check_invariants();
        bytes = (map.contention_bytes(), map.bytes());
    };
    run_with(&machine, &config, 20, make, body, end).0.assert_done();
    bytes
}

/// The Eunomia paper states 5.64 %.
#[test]
fn what_contention_adds_is_six_percent_of_a_map_at_most() {
    for (transactions, rising) in [(true, false), (true, true), (false, true)] {
        let (added, all) = contended(|| EunoBTree::builder().transactions(transactions).build(), rising);
        println!("transactions {transactions}, rising {rising}: {added} of {all} bytes");
        assert!(added > 0, "no chunk was contended");
        assert!(added * 100 <= all * 6, "{added} of {all} bytes");
    }
}

//! `EunoBTree` on a machine with transactions, which abort never, now and then, always, or for lack of room; and by version
//! locks. Chunks split, merge, scatter and are joined under way; each history is checked, and each map at its end.

use super::Shared;
use archipelago_check::history::Recorder;
use archipelago_check::linear::DEFAULT_STEPS;
use archipelago_check::map::{MapOp, MapRet, check_map};
use archipelago_check::simulated::explore_transactions;
use archipelago_index::euno::Contention;
use archipelago_index::map::{Kind, Map};
use archipelago_index::{EunoBTree, EunoSkipList, points};
use archipelago_sim::{Client, Fault, Point, world};

const OPS: u64 = 12;

/// Keys before, keys used, and of twelve operations how many insert and how many remove.
#[derive(Clone, Copy)]
struct Scene {
    ascending: u64,
    kept: fn(u64) -> bool,
    used: (u64, u64),
    inserts: u64,
    removes: u64,
}

/// A chunk to the brim: it splits.
const FULL: Scene = Scene { ascending: 54, kept: |_| true, used: (40, 24), inserts: 6, removes: 1 };
/// Two chunks that fit into one when they have lost an entry or two: they merge.
const SPARSE: Scene = Scene { ascending: 110, kept: |number| number % 55 < 14, used: (8, 64), inserts: 1, removes: 7 };

fn shared<S: Kind>(scene: Scene, map: Map<S, u64, u64>) -> Shared<Map<S, u64, u64>> {
    let session = map.pin();
    (0..scene.ascending).for_each(|number| _ = session.insert(number, 1_000_000 + number));
    (0..scene.ascending).filter(|number| !(scene.kept)(*number)).for_each(|number| _ = session.remove(&number));
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
        if act < scene.removes && scene.ascending > 100 {
            // Most keys are gone already.
            key = key / 55 * 55 + key % 14;
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

/// A skip list, whose towers come and go with its chunks.
#[test]
fn histories_of_a_skip_list_are_linearizable() {
    for transactions in [true, false] {
        for scene in [FULL, SPARSE] {
            let make = || shared(scene, EunoSkipList::builder().transactions(transactions).build());
            explore_transactions(100, |_| vec![], make, |shared, it| client(scene, shared, it), judge);
        }
    }
}

fn explore(scene: Scene, contention: Contention, transactions: bool, faults: impl Fn(u64) -> Vec<Fault>) {
    let make = || shared(scene, EunoBTree::builder().contention(contention).transactions(transactions).build());
    explore_transactions(100, faults, make, |shared, it| client(scene, shared, it), judge);
}

#[test]
fn histories_are_linearizable_with_transactions() {
    for scene in [FULL, SPARSE] {
        for contention in [Contention::Never, Contention::Always] {
            explore(scene, contention, true, |_| vec![]);
        }
    }
}

#[test]
fn histories_are_linearizable_by_version_locks() {
    for scene in [FULL, SPARSE] {
        for contention in [Contention::Never, Contention::Always] {
            explore(scene, contention, false, |_| vec![]);
        }
    }
}

/// Threads stand still in the middle of splits and merges, and others work on what these have half done.
#[test]
fn histories_are_linearizable_beside_stalled_splits_and_merges() {
    let stall = |name: &str, seed: u64| Fault::Stall {
        thread: None,
        at: Point::Named { name: name.to_owned(), nth: 1 + seed % 2 },
        for_ns: 50_000,
    };
    for transactions in [true, false] {
        explore(FULL, Contention::Always, transactions, |seed| vec![stall(points::CHUNK_SPLIT, seed)]);
        explore(SPARSE, Contention::Adaptive, transactions, |seed| vec![stall(points::MERGED, seed)]);
        explore(FULL, Contention::Adaptive, transactions, |seed| vec![stall(points::FOUND, seed)]);
    }
}

/// Chunks are scattered and joined at any moment.
#[test]
fn histories_are_linearizable_while_chunks_scatter() {
    for transactions in [true, false] {
        let make = || shared(FULL, EunoBTree::builder().transactions(transactions).build());
        let client = |shared: &Shared<EunoBTree<u64, u64>>, it: Client| match it.index {
            0 => (0..4).for_each(|_| shared.index.flip_chunks()),
            _ => client(FULL, shared, it),
        };
        explore_transactions(100, |_| vec![], make, client, judge);
    }
}

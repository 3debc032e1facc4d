//! Tests `BLinkTree` in the simulator. Some tests check histories from many schedules in which pages are split,
//! balanced and merged. Others stop a thread at a critical point of the protocol ([`points`]).

use super::stalls::stalled_at;
use super::{OPS, Shared, THREADS, judge};
use archipelago_check::history::Recorder;
use archipelago_check::map::{MapOp, MapRet};
use archipelago_index::blink::{
    BLinkSession, Builder, Central, CohortWp, Granular, InnerReplicas, Latched, LogFed, Mirrored, Pages, Policy,
};
use archipelago_index::{BLinkTree, points};
use archipelago_platform::topology::Topology;
use archipelago_sim::{Client, Config, Fault, Machine, Point, hunt, run_with, world};
use archipelago_sync::version_lock::VersionLock;

type Small = Pages<512>;
type Tree = BLinkTree<u64, u64, Small>;

/// The number of entries of a full page.
const FULL: u64 = 28;

/// Makes a tree of full pages of consecutive keys.
fn full(pages: u64) -> Tree {
    (0..pages * FULL).map(|key| (key, 10 * key)).collect()
}

fn remove_all<P: Policy>(map: &BLinkSession<'_, u64, u64, P>, keys: impl IntoIterator<Item = u64>) {
    keys.into_iter().for_each(|key| assert_eq!(map.remove(&key), Some(10 * key)));
}

/// Makes a tree of `FIRST` full pages, followed by four pages that a few removals make underfull. With 26 full pages
/// there is a level of two pages between root and leaves.
fn thin<P: Policy, const FIRST: u64>(nodes: usize) -> Shared<BLinkTree<u64, u64, P>> {
    let index: BLinkTree<u64, u64, P> = Builder::default().topology(Topology::synthetic(nodes, 4)).build();
    let map = index.pin();
    (0..(FIRST + 4) * FULL).for_each(|key| _ = map.insert(key, 10 * key));
    remove_all(&map, (FIRST * FULL..(FIRST + 4) * FULL).filter(|key| key % FULL >= 8));
    let before = map.iter().collect();
    drop(map);
    Shared { index, recorder: Recorder::new(), before }
}

/// Runs a client that at first mostly removes keys, and later mostly inserts keys, in a few pages.
fn client<P: Policy, const FIRST: u64>(shared: &Shared<BLinkTree<u64, u64, P>>, client: Client) {
    let map = shared.index.pin();
    let mut log = shared.recorder.log();
    for i in 0..2 * OPS {
        let key = (FIRST + world::random() % 4) * FULL + world::random() % 12;
        let value = client.index as u64 * 1000 + i;
        let limit = 1 + world::random() as usize % 12;
        let (inserts, removes) = if i < OPS { (2, 7) } else { (7, 2) };
        match world::random() % 13 {
            n if n < inserts => log.record(MapOp::Insert(key, value), |_| MapRet::Value(map.insert(key, value))),
            n if n < inserts + removes => log.record(MapOp::Remove(key), |_| MapRet::Value(map.remove(&key))),
            9 => log.record(MapOp::Update(key, value), |_| MapRet::Value(map.update(&key, |_| value))),
            10 => log.record(MapOp::Get(key), |_| MapRet::Value(map.get(&key))),
            11 => log.record(MapOp::Scan(key, limit), |_| {
                let mut seen = Vec::new();
                map.scan(&key, limit, |key, value| seen.push((key, *value)));
                MapRet::Entries(seen)
            }),
            _ => log.record(MapOp::ScanRev(key, limit), |_| {
                let mut seen = Vec::new();
                map.scan_rev(&key, limit, |key, value| seen.push((key, *value)));
                MapRet::Entries(seen)
            }),
        };
    }
}

fn explore<P: Policy>(seeds: u64, nodes: usize, faults: &[Fault]) {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    hunt(seeds, |config| {
        let config = Config { expected_accesses: 4_000, faults: faults.to_vec(), ..config };
        let check = BLinkTree::<u64, u64, P>::check_invariants;
        run_with(&machine, &config, THREADS, || thin::<P, 0>(nodes), client::<P, 0>, |shared| judge(shared, check)).0
    });
}

/// Explores as [`explore`] does, while one thread moves all pages three times.
fn explore_moving<P: Policy, const FIRST: u64>(seeds: u64, nodes: usize) {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let body = |shared: &Shared<BLinkTree<u64, u64, P>>, it: Client| match it.index {
        0 => (0..3).for_each(|_| shared.index.move_pages()),
        _ => client::<P, FIRST>(shared, it),
    };
    hunt(seeds, |config| {
        let config = Config { expected_accesses: 4_000, ..config };
        let check = BLinkTree::<u64, u64, P>::check_invariants;
        run_with(&machine, &config, THREADS, || thin::<P, FIRST>(nodes), body, |shared| judge(shared, check)).0
    });
}

/// Explores as [`explore`] does, in a tree of three levels.
fn explore_higher<P: Policy>(seeds: u64, nodes: usize) {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    hunt(seeds, |config| {
        let config = Config { expected_accesses: 4_000, ..config };
        let check = BLinkTree::<u64, u64, P>::check_invariants;
        let judge = |shared| judge(shared, check);
        run_with(&machine, &config, THREADS, || thin::<P, 26>(nodes), client::<P, 26>, judge).0
    });
}

#[test]
fn the_tree_is_linearizable_in_many_schedules() {
    explore::<Small>(600, 1, &[]);
    explore::<Small>(300, 4, &[]);
}

#[test]
fn the_tree_is_linearizable_while_pages_move() {
    explore_moving::<Small, 0>(200, 1);
    explore_moving::<Small, 0>(50, 4);
    explore_moving::<Small, 26>(60, 1);
    explore_moving::<Latched<512, CohortWp, true>, 0>(60, 1);
    explore_moving::<Mirrored<Small>, 0>(60, 4);
    explore_moving::<LogFed<Small>, 0>(60, 4);
    explore_moving::<InnerReplicas<Small>, 26>(100, 4);
}

#[test]
fn latched_reads_are_linearizable_in_many_schedules() {
    explore::<Latched<512, CohortWp, true>>(200, 1, &[]);
}

#[test]
fn coarse_latches_are_linearizable_in_many_schedules() {
    explore::<Granular<Latched<512, CohortWp, true>, 1>>(150, 1, &[]);
    explore_higher::<Granular<Latched<512, Central, true>, 1>>(100, 1);
    explore_higher::<Granular<Latched<512, Central, false>, 2>>(100, 4);
}

/// Checks that reads never have to restart: while a reader has the latch of a page, or of the page above, no thread
/// changes the page.
fn never_starts_anew<P: Policy>(seeds: u64) {
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let body = |shared: &Shared<BLinkTree<u64, u64, P>>, client: Client| {
        let map = shared.index.pin();
        for i in 0..2 * OPS {
            let key = (26 + world::random() % 4) * FULL + world::random() % 12;
            match world::random() % if i < OPS { 5 } else { 12 } {
                0 | 1 => _ = map.get(&key),
                2..5 => _ = map.remove(&key),
                _ => _ = map.insert(key, client.index as u64),
            }
        }
    };
    hunt(seeds, |config| {
        let config = Config { expected_accesses: 4_000, ..config };
        let none = |shared: Shared<BLinkTree<u64, u64, P>>| assert_eq!(shared.index.retries(), 0);
        run_with(&machine, &config, THREADS, || thin::<P, 26>(1), body, none).0
    });
}

#[test]
fn readers_with_latches_never_start_anew() {
    never_starts_anew::<Latched<512, Central, true>>(60);
    never_starts_anew::<Granular<Latched<512, Central, true>, 1>>(100);
    never_starts_anew::<Granular<Latched<512, Central, true>, 2>>(60);
    never_starts_anew::<Granular<Latched<512, Central, true>, { usize::MAX }>>(30);
}

#[test]
fn an_insertion_whose_latch_is_another_before_it_is_taken() {
    type Coarse = BLinkTree<u64, u64, Granular<Latched<512, Central, false>, 1>>;
    // There are as many leaves as the root has room for, and they have even keys.
    let make = || (0..FULL * FULL).map(|key| (2 * key, key)).collect::<Coarse>();
    let last = 2 * FULL * FULL - 3;
    let insert = |tree: &Coarse| assert_eq!(tree.pin().insert(last, 7), None);
    // The first leaf is split, and so is the root. Now leaves are under the latches of a new level.
    let quick = |tree: &Coarse| assert_eq!(tree.pin().insert(1, 5), None);
    stalled_at((points::LATCHING, 1), make, insert, quick, |tree: &Coarse| {
        assert_eq!((tree.levels(), tree.pin().get(&last)), (3, Some(7)));
        tree.check_invariants();
    });
}

#[test]
fn replicas_are_linearizable_in_many_schedules() {
    explore::<Mirrored<Small>>(300, 4, &[]);
}

#[test]
fn replicas_fed_from_a_log_are_linearizable_in_many_schedules() {
    explore::<LogFed<Small>>(300, 4, &[]);
    explore::<LogFed<Latched<512, CohortWp, true>>>(50, 2, &[]);
}

#[test]
fn copies_of_inner_pages_are_linearizable_in_many_schedules() {
    explore::<InnerReplicas<Small>>(200, 4, &[]);
    explore_higher::<InnerReplicas<Small>>(300, 4);
    explore_higher::<InnerReplicas<Latched<512, CohortWp, true>>>(50, 2);
}

/// Makes a map that is laid out for four nodes, with consecutive keys.
fn on_four_nodes<P: Policy>(pages: u64) -> BLinkTree<u64, u64, P> {
    let tree = Builder::default().topology(Topology::synthetic(4, 4)).build();
    let map = BLinkTree::pin(&tree);
    (0..pages * FULL).for_each(|key| _ = map.insert(key, 10 * key));
    drop(map);
    tree
}

/// A value that a thread has seen in one replica is seen in all replicas from then on.
#[test]
fn a_replica_that_is_changed_before_the_others() {
    type Fed = BLinkTree<u64, u64, LogFed<Small>>;
    let insert = |tree: &Fed| assert_eq!(tree.pin().insert(5 * FULL, 1), None);
    let get = |tree: &Fed| assert_eq!(tree.pin().get(&(5 * FULL)), Some(1));
    stalled_at((points::REPLAYED, 1), || on_four_nodes(1), insert, get, Fed::check_invariants);
}

#[test]
fn the_tree_survives_stalled_latch_holders() {
    let stall = |thread, nth| Fault::Stall {
        thread: Some(thread),
        at: Point::Named { name: VersionLock::HELD.to_owned(), nth },
        for_ns: 50_000,
    };
    explore::<Small>(100, 1, &[stall(0, 1), stall(1, 3), stall(2, 5)]);
}

#[test]
fn a_look_up_whose_page_loses_its_lower_keys() {
    let get = |tree: &Tree| assert_eq!(tree.pin().get(&FULL), Some(10 * FULL));
    // The first page gets entries of the second page.
    let quick = |tree: &Tree| remove_all(&tree.pin(), 0..FULL - 6);
    stalled_at((points::ENTERING, 1), || full(3), get, quick, Tree::check_invariants);
}

#[test]
fn a_walk_to_the_left_whose_page_loses_its_upper_keys() {
    let scan = |tree: &Tree| {
        let mut seen = Vec::new();
        tree.pin().scan_rev(&(FULL + 1), 3 * FULL as usize, |key, _| seen.push(key));
        assert_eq!(seen, (0..FULL + 2).rev().collect::<Vec<_>>());
    };
    // Between the visits of the two pages, the second page becomes underfull and gets entries of the first page.
    let quick = |tree: &Tree| remove_all(&tree.pin(), FULL + 2..2 * FULL - 4);
    // The descent to the second page passes `ENTERING` once. So the thread stops at the second passage, on its way to
    // the first page.
    stalled_at((points::ENTERING, 2), || full(2), scan, quick, Tree::check_invariants);
}

#[test]
fn a_walk_to_the_left_past_a_page_that_came_between() {
    let scan = |tree: &Tree| {
        let mut seen = Vec::new();
        tree.pin().scan_rev(&(2 * FULL + 1), 3 * FULL as usize, |key, _| seen.push(key));
        seen.retain(|key| key.is_multiple_of(2));
        assert_eq!(seen, (0..=FULL).map(|key| 2 * key).rev().collect::<Vec<_>>());
    };
    // The first page is split.
    let quick = |tree: &Tree| assert_eq!(tree.pin().insert(1, 1), None);
    stalled_at((points::ENTERING, 2), full_of_even, scan, quick, Tree::check_invariants);
}

#[test]
fn a_look_up_whose_page_is_merged_away() {
    let make = || {
        let tree = full(3);
        remove_all(&tree.pin(), (1..3).flat_map(|page| page * FULL + 8..(page + 1) * FULL));
        tree
    };
    let get = |tree: &Tree| assert_eq!(tree.pin().get(&(2 * FULL + 1)), Some(20 * FULL + 10));
    let quick = |tree: &Tree| remove_all(&tree.pin(), FULL..FULL + 2);
    stalled_at((points::ENTERING, 1), make, get, quick, Tree::check_invariants);
}

/// Makes three full pages of even keys, so that a key can be inserted in the middle of a page.
fn full_of_even() -> Tree {
    (0..3 * FULL).map(|key| (2 * key, 20 * key)).collect()
}

#[test]
fn keys_behind_a_split_that_the_level_above_does_not_know() {
    let insert = |tree: &Tree| assert_eq!(tree.pin().insert(3 * FULL + 1, 7), None);
    let look = |tree: &Tree| {
        let map = tree.pin();
        (0..3 * FULL).for_each(|key| assert_eq!(map.get(&(2 * key)), Some(20 * key)));
        // This key is in the new page.
        assert_eq!(map.insert(4 * FULL - 1, 5), None);
        assert_eq!(map.remove(&(4 * FULL - 2)), Some(40 * FULL - 20));
        assert_eq!(map.scan(&0, usize::MAX, |_, _| ()), 3 * FULL as usize + 1);
        assert_eq!(map.scan_rev(&u64::MAX, usize::MAX, |_, _| ()), 3 * FULL as usize + 1);
    };
    stalled_at((points::SPLIT, 1), full_of_even, insert, look, Tree::check_invariants);
}

#[test]
fn an_insertion_whose_page_is_split_before_it_is_latched() {
    // This key belongs to the upper half of the second page, which another thread moves to a new page.
    let insert = |tree: &Tree| assert_eq!(tree.pin().insert(4 * FULL - 1, 7), None);
    let quick = |tree: &Tree| assert_eq!(tree.pin().insert(2 * FULL + 1, 5), None);
    stalled_at((points::LATCHING, 1), full_of_even, insert, quick, |tree: &Tree| {
        assert_eq!(tree.pin().get(&(4 * FULL - 1)), Some(7));
        tree.check_invariants();
    });
}

#[test]
fn a_removal_whose_page_loses_its_lower_keys_before_it_is_latched() {
    let remove = |tree: &Tree| assert_eq!(tree.pin().remove(&FULL), Some(10 * FULL));
    let quick = |tree: &Tree| remove_all(&tree.pin(), 0..FULL - 6);
    stalled_at(
        (points::LATCHING, 1),
        || full(3),
        remove,
        quick,
        |tree: &Tree| {
            assert_eq!(tree.pin().get(&FULL), None);
            tree.check_invariants();
        },
    );
}

/// A look-up stops while it uses a full page. The page is merged with its neighbour. Then new pages are filled. At some
/// moment one of them has been changed as often as the merged page, so it has the same version as the merged page had.
#[test]
fn a_page_is_not_used_again_under_a_reader() {
    // There is one node, so that a thread may reuse pages that another thread has freed. There are so many pages that
    // the allocator keeps the memory block from which they come.
    let make = || {
        let tree: Tree = Builder::default().topology(Topology::synthetic(1, 4)).build();
        tree.pin().extend((0..30 * FULL).map(|key| (key, 10 * key)));
        tree
    };
    let key = 21 * FULL + 1;
    let get = |tree: &Tree| assert_eq!(tree.pin().get(&key), Some(10 * key));
    for more in 0..2 * FULL {
        let quick = |tree: &Tree| {
            let map = tree.pin();
            remove_all(&map, (20 * FULL..22 * FULL).filter(|&other| other != key));
            (1_000..1_000 + more).for_each(|key| _ = map.insert(key, 10 * key));
        };
        stalled_at((points::FOUND, 1), make, get, quick, Tree::check_invariants);
    }
}

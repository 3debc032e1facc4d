//! `EunoBTree`: one thread stops in the middle of a section that a version protects, and another thread changes the
//! data that the first one has read. (A leaf of the tree, a chunk, is scattered when it is contended: new keys go to
//! one of its parts.)

use super::stalls::{stall, stalled_at, two_threads};
use archipelago_index::euno::Contention;
use archipelago_index::{EunoBTree, points};
use archipelago_sim::Fault;
use archipelago_sync::region::Region;

type Tree = EunoBTree<u64, u64>;

/// Makes a tree with version locks; each value is ten times its key.
fn tree(keys: impl IntoIterator<Item = u64>) -> Tree {
    let tree = EunoBTree::builder().transactions(false).build();
    insert_all(&tree, keys);
    tree
}

fn insert_all(tree: &Tree, keys: impl IntoIterator<Item = u64>) {
    let map = tree.pin();
    keys.into_iter().for_each(|key| assert_eq!(map.insert(key, 10 * key), None));
}

/// A thread that inserts a key has not found it. Then the chunk is scattered, and another thread inserts the key into a
/// part.
#[test]
fn an_insertion_into_a_chunk_that_is_scattered_meanwhile() {
    let slow = |tree: &Tree| _ = tree.pin().upsert(&5, 50);
    let quick = |tree: &Tree| {
        tree.flip_chunks();
        insert_all(tree, [5]);
    };
    stalled_at((points::ADDING, 1), || tree([1, 9]), slow, quick, Tree::check_invariants);
}

/// A look-up did not find its key in the chunk's own slots. Before it searches the part, the neighbouring chunk is
/// merged into the chunk, and the parts' entries are moved to the chunk's own slots.
#[test]
fn a_look_up_whose_key_leaves_its_part() {
    // A third of each chunk is left, and one more key, which is in a part.
    let make = || {
        let tree = EunoBTree::builder().transactions(false).contention(Contention::Always).build();
        insert_all(&tree, 0..3 * FULL);
        tree.pin().retain(|key, _| key % 3 == 0);
        insert_all(&tree, [1]);
        tree
    };
    let get = |tree: &Tree| assert_eq!(tree.pin().get(&1), Some(10));
    let quick = |tree: &Tree| tree.pin().retain(|key, _| key % 24 == 0 || key < FULL);
    stalled_at((points::PART, 1), make, get, quick, Tree::check_invariants);
}

/// A thread has split a chunk, and has found the path to the node above it, but has not locked this node. Then another
/// thread splits other chunks until this node is split, too, and is no longer the node above the chunk.
#[test]
fn a_split_whose_node_is_split_meanwhile() {
    const CHUNKS: u64 = 30;
    // The keys are inserted in order, so that chunks are full; there are enough chunks for several nodes.
    let make = || tree((0..150 * FULL).map(|number| 100 * number));
    let moved = 100 * (CHUNKS * FULL + FULL / 2) + 1;
    let slow = |tree: &Tree| insert_all(tree, [moved]);
    let quick = |tree: &Tree| {
        insert_all(tree, (0..(CHUNKS - 1) * FULL).flat_map(|number| [100 * number + 30, 100 * number + 60]));
    };
    let check = |tree: &Tree| {
        tree.check_invariants();
        let map = tree.pin();
        for key in (0..150 * FULL).map(|number| 100 * number).chain([moved]) {
            assert_eq!(map.get(&key), Some(10 * key));
        }
    };
    stalled_at((points::DOWN, 2), make, slow, quick, check);
}

/// A thread has merged the root's last two children, and has not locked the remaining child yet. Then another thread
/// splits a chunk below this child, so the first thread finds the child changed.
#[test]
fn a_root_whose_only_child_changes_meanwhile() {
    let make = || tree((0..150 * FULL).map(|number| 100 * number));
    let rest = |removed: u64| 100 * (150 * FULL - 1 - removed);
    let least = tree([]).stats().layers;
    // The removal after which the root takes over its only child's content.
    let last = {
        let tree = make();
        (0..)
            .find(|&removed| {
                assert!(tree.pin().delete(&rest(removed)));
                tree.stats().layers == least
            })
            .unwrap()
    };
    let make = || {
        let tree = make();
        (0..last).for_each(|removed| assert!(tree.pin().delete(&rest(removed))));
        tree
    };
    let slow = |tree: &Tree| assert!(tree.pin().delete(&rest(last)));
    let quick = |tree: &Tree| insert_all(tree, (0..FULL).map(|number| 100 * number + 50));
    stalled_at((points::LOWERED, 1), make, slow, quick, Tree::check_invariants);
}

/// The number of entries of a full chunk.
const FULL: u64 = archipelago_index::euno::SLOTS as u64;

/// A thread has found the key that it removes next. Another thread adds a key to the same part, and stops in the
/// middle. This second thread uses locks, since its writes exceed a transaction's capacity. The first thread's
/// transaction has enough capacity, and continues.
#[test]
fn a_removal_beside_an_insertion_into_the_same_part() {
    let faults = [stall(0, (points::REMOVING, 1)), stall(1, (Region::WRITING, 1))];
    let small = Fault::TransactionCapacity { read_lines: 500, write_lines: 1 };
    // The keys are in four parts, and in slots in different cache lines, so that some pairs conflict.
    for (new, old) in (100..108).flat_map(|new| (1..13).map(move |old| (new, old))) {
        let make = || {
            let tree: Tree = EunoBTree::builder().contention(Contention::Always).build();
            insert_all(&tree, 1..13);
            tree
        };
        let remove = |tree: &Tree| assert_eq!(tree.pin().remove(&old), Some(10 * old));
        let insert = |tree: &Tree| insert_all(tree, [new]);
        let check = |tree: &Tree| {
            tree.check_invariants();
            let map = tree.pin();
            assert_eq!((map.get(&new), map.get(&old), map.len()), (Some(10 * new), None, 12));
        };
        let faults = faults.iter().cloned().chain([small.clone()]).collect();
        two_threads("xeon-e7-8870v3-4s", faults, make, remove, insert, check);
    }
}

/// A scan has copied a scattered chunk's own entries. Before it reads the parts, a key is removed from the chunk, and
/// inserted again into a part.
#[test]
fn a_scan_beside_a_key_that_comes_back() {
    // The keys are in four parts. The scan has not read some of these parts yet when it stops.
    for key in 1..13 {
        let make = || {
            let tree = EunoBTree::builder().build();
            insert_all(&tree, 1..13);
            tree.flip_chunks();
            tree
        };
        let scan = |tree: &Tree| {
            let mut seen = Vec::new();
            tree.pin().scan(&0, 100, |key, _| seen.push(key));
            assert!(seen.into_iter().eq(1..13));
        };
        let quick = |tree: &Tree| {
            assert_eq!(tree.pin().remove(&key), Some(10 * key));
            insert_all(tree, [key]);
        };
        two_threads(TRANSACTIONS, vec![stall(0, (points::PART, 1))], make, scan, quick, Tree::check_invariants);
    }
}

/// A machine with hardware transactions.
const TRANSACTIONS: &str = "xeon-e7-8870v3-4s";

/// Makes a tree with twelve keys in the parts of a chunk.
fn in_parts() -> Tree {
    let tree: Tree = EunoBTree::builder().contention(Contention::Always).build();
    insert_all(&tree, 1..13);
    tree
}

/// A look-up has found its key in a part, and reads the value next. A transaction removes the key, and moves the part's
/// last entry to the key's slot.
#[test]
fn a_look_up_beside_a_removal_from_its_part() {
    for key in 1..13 {
        let get = |tree: &Tree| assert!([None, Some(10 * key)].contains(&tree.pin().get(&key)));
        let quick = |tree: &Tree| assert_eq!(tree.pin().remove(&key), Some(10 * key));
        let faults = vec![stall(0, (points::FOUND, 2))];
        two_threads(TRANSACTIONS, faults, in_parts, get, quick, Tree::check_invariants);
    }
}

/// A key was found in a part. Before its value is replaced, the key is removed, and the part's last entry is moved to
/// its slot. The test runs with transactions, and with version locks.
#[test]
fn a_replacement_beside_a_removal_from_its_part() {
    for key in 1..13 {
        let put = |tree: &Tree| _ = tree.pin().upsert(&key, 7);
        let quick = |tree: &Tree| assert_eq!(tree.pin().remove(&key), Some(10 * key));
        let check = |tree: &Tree| {
            tree.check_invariants();
            let map = tree.pin();
            assert!((1..13).all(|it| map.get(&it) == Some(if it == key { 7 } else { 10 * it })));
        };
        stalled_at((points::REPLACING, 1), in_parts, put, quick, check);
        two_threads(TRANSACTIONS, vec![stall(0, (points::REPLACING, 1))], in_parts, put, quick, check);
    }
}

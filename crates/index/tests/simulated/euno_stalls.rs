//! `EunoBTree`: one thread stops in the middle of what a version protects, and another changes what it was looking at.

use super::stalls::{stall, stalled_at, two_threads};
use archipelago_index::euno::Contention;
use archipelago_index::{EunoBTree, points};
use archipelago_sim::Fault;
use archipelago_sync::region::Region;

type Tree = EunoBTree<u64, u64>;

/// A tree under version locks; each value is ten times its key.
fn tree(keys: impl IntoIterator<Item = u64>) -> Tree {
    let tree = EunoBTree::builder().transactions(false).build();
    insert_all(&tree, keys);
    tree
}

fn insert_all(tree: &Tree, keys: impl IntoIterator<Item = u64>) {
    let map = tree.pin();
    keys.into_iter().for_each(|key| assert_eq!(map.insert(key, 10 * key), None));
}

/// A key was not there. Then its chunk is scattered, and the key comes into a part.
#[test]
fn an_insertion_into_a_chunk_that_is_scattered_meanwhile() {
    let slow = |tree: &Tree| _ = tree.pin().upsert(&5, 50);
    let quick = |tree: &Tree| {
        tree.flip_chunks();
        insert_all(tree, [5]);
    };
    stalled_at((points::ADDING, 1), || tree([1, 9]), slow, quick, Tree::check_invariants);
}

/// A look-up did not find its key in the chunk's own slots. Before it has looked into the part, the key moves there.
#[test]
fn a_look_up_whose_key_leaves_its_part() {
    let make = || {
        let tree = tree([1, 9]);
        tree.flip_chunks();
        insert_all(&tree, [5]);
        tree
    };
    let get = |tree: &Tree| assert_eq!(tree.pin().get(&5), Some(50));
    stalled_at((points::PART, 1), make, get, Tree::flip_chunks, Tree::check_invariants);
}

/// A chunk was split, and a way was found to the node above it, as far as that node. Then so many other chunks are split that
/// the node is, too, and is the one above no more.
#[test]
fn a_split_whose_node_is_split_meanwhile() {
    const CHUNKS: u64 = 30;
    // In order, so that chunks are full; enough for several nodes.
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

/// Entries of a full chunk.
const FULL: u64 = 116;

/// A thread adds a key to a part under locks, as a transaction has no room for what it writes; another takes a key out of the part
/// meanwhile, in a transaction, which has.
#[test]
fn a_removal_beside_an_insertion_into_the_same_part() {
    let faults = vec![stall(0, (Region::WRITING, 1)), Fault::TransactionCapacity { read_lines: 500, write_lines: 1 }];
    for (new, old) in (100..108).flat_map(|new| (1..13).map(move |old| (new, old))) {
        let make = || {
            let tree: Tree = EunoBTree::builder().contention(Contention::Always).build();
            insert_all(&tree, 1..13);
            tree
        };
        let check = |tree: &Tree| {
            tree.check_invariants();
            let map = tree.pin();
            assert_eq!((map.get(&new), map.get(&old), map.len()), (Some(10 * new), None, 12));
        };
        let remove = |tree: &Tree| assert_eq!(tree.pin().remove(&old), Some(10 * old));
        two_threads("xeon-e7-8870v3-4s", faults.clone(), make, |tree| insert_all(tree, [new]), remove, check);
    }
}

//! The sets on the virtual machine: many schedules that natural ones never take, threads that are stalled anywhere, and every
//! history checked.
#![cfg(archipelago_sim)]

use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_check::simulated::{explore, explore_with, stall};
use archipelago_sets::{
    CitrusTree, FraserSkipList, HarrisList, Hash, List, Mechanism, OverMvRlu, OverRcu, OverRlu, Set, SetSession, Tree,
    points,
};
use archipelago_sim::{Client, SimAlloc, world};
use archipelago_sync::mvrlu::{self, ClockKind, Tuning};

#[path = "set/promised.rs"]
mod promised;

use promised::{Op, Promise, Promised, Ret, draw, perform};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// An MV-RLU domain that collects at every occasion.
fn eager(clock: ClockKind) -> mvrlu::Builder {
    let tuning = Tuning { low_watermark: 1, dereference_watermark: 4, concurrent: true };
    mvrlu::Domain::builder().clock(clock).tuning(tuning)
}

fn linearizable<S: Set>(promise: Promise, make: impl Fn() -> S) {
    let setup = || (make(), Recorder::<Op, Ret>::new());
    let client = |(set, recorder): &(S, Recorder<Op, Ret>), client: Client| {
        let (mut session, mut log) = (set.session(), recorder.log());
        for number in 0..10 {
            let unique = (client.index as u64) << 32 | number;
            let op = draw(|bound| world::random() % bound, promise, unique);
            log.record(op, |op| perform(&mut session, op));
        }
    };
    let end = |(set, recorder): (S, Recorder<Op, Ret>)| {
        drop(set);
        linear::check(&Promised, recorder.finish().entries()).assert_ok();
    };
    explore(100, setup, client, end);
}

fn each_structure<M: Mechanism<1> + Mechanism<2>>(make: impl Fn(usize) -> M) {
    linearizable(Promise::Ordered, || List::over(make(1)));
    linearizable(Promise::Hashed, || Hash::over(make(3), 3));
    linearizable(Promise::Ordered, || Tree::over(make(1)));
}

#[test]
fn sets_over_mvrlu_are_linearizable_in_many_schedules() {
    each_structure(|_| OverMvRlu::with(eager(ClockKind::Logical)));
    each_structure(|_| OverMvRlu::with(eager(ClockKind::Hardware)));
}

#[test]
fn sets_over_rlu_are_linearizable_in_many_schedules() {
    each_structure(|_| OverRlu::with(ClockKind::Logical, 0));
    each_structure(|_| OverRlu::with(ClockKind::Hardware, 2));
}

#[test]
fn sets_over_rcu_are_linearizable_in_many_schedules() {
    linearizable(Promise::Ordered, List::<OverRcu>::default);
    linearizable(Promise::Hashed, || Hash::<OverRcu>::with_buckets(3));
    linearizable(Promise::Ordered, Tree::<OverRcu>::default);
}

#[test]
fn rivals_are_linearizable_in_many_schedules() {
    linearizable(Promise::Rival, HarrisList::default);
    linearizable(Promise::Rival, || HarrisList::with_buckets(3));
    linearizable(Promise::Rival, CitrusTree::default);
    linearizable(Promise::Rival, FraserSkipList::default);
}

/// All threads at one key, some nodes with several levels: what the list asserts before it retires a node.
#[test]
fn a_skip_list_retires_no_node_that_is_linked() {
    let client = |list: &FraserSkipList, client: Client| {
        let mut session = list.session();
        for _ in 0..12 {
            if (world::random() + client.index as u64).is_multiple_of(2) {
                session.insert(7, 0);
            } else {
                session.remove(7);
            }
        }
    };
    explore(3_000, FraserSkipList::default, client, drop);
}

/// An insertion has found a null link and stands still. Meanwhile the link holds the successor of a node above, and is null
/// again once that node is removed; but the key belongs elsewhere then.
#[test]
fn an_insertion_into_a_citrus_tree_ends_where_its_key_is_looked_for() {
    let setup = || {
        let tree = CitrusTree::default();
        assert!([50, 20, 90].iter().all(|key| tree.session().insert(*key, *key)));
        tree
    };
    let client = |tree: &CitrusTree, client: Client| {
        let mut session = tree.session();
        match client.index {
            0 => assert!(session.insert(60, 60)),
            1 => {
                world::work(2_000);
                assert!(session.insert(70, 70));
                assert_eq!(session.remove(50), Some(50));
            }
            _ => {}
        }
    };
    let end = |tree: CitrusTree| {
        let mut session = tree.session();
        assert_eq!([20, 50, 60, 70, 90].map(|key| session.get(key)), [Some(20), None, Some(60), Some(70), Some(90)]);
        assert_eq!(session.range(0, 100).len(), 4);
    };
    explore_with(200, |_| vec![stall(0, points::FOUND, 1)], setup, client, end);
}

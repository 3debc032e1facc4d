//! Tests the sets on the virtual machine (a simulator), under many schedules that do not occur naturally, with threads
//! that are stalled anywhere. Every history is checked.
#![cfg(archipelago_sim)]

use archipelago_check::growth::{assert_flat, costs};
use archipelago_check::history::Recorder;
use archipelago_check::linear;
use archipelago_check::simulated::{THREADS, explore, explore_transactions, explore_with, stall};
use archipelago_sets::{
    AllReaders, AllSections, Citrus, CitrusTree, CountedCitrusTree, CountedReaders, FraserSkipList, HarrisList, Hash,
    HazardList, List, Mechanism, OverMvRlu, OverRcu, OverRcuHmcs, OverRcuKilobyte, OverRcx, OverRcxStriped,
    OverRcxSuccessors, OverRcxSuccessorsKilobyte, OverRlu, OverRluKilobyte, OverVersioned, PredicateCitrusTree, RcuHtm,
    RcuHtmOneLock, ReadersOfKeys, Set, SetSession, SkipList, SynchronousCitrusTree, Tree, Waiting, points,
};
use archipelago_sim::{Client, Fault, Point, SimAlloc, world};
use archipelago_sync::mvrlu::{self, ClockKind, Tuning};
use archipelago_sync::rcx::{self, Rcx, Striped};
use archipelago_sync::region::Region;

#[path = "set/promised.rs"]
mod promised;

use promised::{Op, Promise, Promised, Ret, draw, perform};

#[global_allocator]
static ALLOC: SimAlloc = SimAlloc;

/// Returns the builder of an MV-RLU domain that collects garbage at every opportunity.
fn eager(clock: ClockKind) -> mvrlu::Builder {
    let tuning = Tuning { low_watermark: 1, dereference_watermark: 4, concurrent: true };
    mvrlu::Domain::builder().clock(clock).tuning(tuning)
}

/// A function that runs a program under many schedules.
type Explore<'e, S> = &'e dyn Fn(&dyn Fn() -> S, &dyn Fn(&S, Client), &dyn Fn(S));

type Recorded<S> = (S, Recorder<Op, Ret>);

fn linearizable<S: Set>(promise: Promise, make: impl Fn() -> S) {
    linearizable_by(promise, make, &|setup, client, end| explore(100, setup, client, end));
}

fn linearizable_by<S: Set>(promise: Promise, make: impl Fn() -> S, explore: Explore<'_, Recorded<S>>) {
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
    explore(&setup, &client, &end);
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
    linearizable(Promise::Ordered, List::<OverRluKilobyte>::default);
}

/// Threads stall anywhere, where their versions are in the chains and nothing is decided, and where their commit is
/// decided and its versions have no epoch.
#[test]
fn sets_over_versioned_programming_are_linearizable_in_many_schedules() {
    fn run<S: Set>(promise: Promise, make: impl Fn() -> S) {
        let faults = |seed: u64| {
            let named = |name: &str| Point::Named { name: name.to_owned(), nth: 1 + seed / 4 % 5 };
            let (thread, at) = match seed % 4 {
                0 => return vec![],
                1 => (None, Point::OneIn(100)),
                2 => (Some(seed as usize % THREADS), named(points::PUT)),
                _ => (Some(seed as usize / 4 % THREADS), named(points::APPENDED)),
            };
            vec![Fault::Stall { thread, at, for_ns: 20_000 }]
        };
        linearizable_by(promise, make, &|setup, client, end| explore_with(200, faults, setup, client, end));
    }
    for kept in [1, 3, 1024] {
        run(Promise::Ordered, || List::over(OverVersioned::keeping(kept)));
        run(Promise::Hashed, || Hash::over(OverVersioned::keeping(kept), 3));
        run(Promise::Ordered, || Tree::over(OverVersioned::keeping(kept)));
    }
}

#[test]
fn sets_over_rcu_are_linearizable_in_many_schedules() {
    linearizable(Promise::Ordered, List::<OverRcu>::default);
    linearizable(Promise::Hashed, || Hash::<OverRcu>::with_buckets(3));
    linearizable(Promise::Ordered, Tree::<OverRcu>::default);
    linearizable(Promise::Ordered, List::<OverRcuKilobyte>::default);
}

#[test]
fn rivals_are_linearizable_in_many_schedules() {
    linearizable(Promise::Rival, HarrisList::default);
    linearizable(Promise::Rival, || HarrisList::with_buckets(3));
    linearizable(Promise::Rival, HazardList::default);
    linearizable(Promise::Rival, || HazardList::with_buckets(3));
    linearizable(Promise::Rival, || HazardList::default().as_published());
    linearizable(Promise::Rival, CitrusTree::default);
    linearizable(Promise::Rival, PredicateCitrusTree::default);
    linearizable(Promise::Rival, CountedCitrusTree::default);
    linearizable(Promise::Rival, SynchronousCitrusTree::default);
    linearizable(Promise::Rival, FraserSkipList::default);
}

/// All threads use one key, with some nodes of several levels. The list itself asserts that it retires no linked node.
#[test]
fn a_skip_list_retires_no_node_that_is_linked() {
    retires_what_is_unlinked::<false>(3_000);
    retires_what_is_unlinked::<true>(1_000);
}

fn retires_what_is_unlinked<const SHARED: bool>(schedules: u64) {
    let client = |list: &SkipList<SHARED>, client: Client| {
        let mut session = list.session();
        for _ in 0..12 {
            if (world::random() + client.index as u64).is_multiple_of(2) {
                session.insert(7, 0);
            } else {
                session.remove(7);
            }
        }
    };
    explore(schedules, SkipList::default, client, drop);
}

/// Checks histories while transactions abort, and while threads stall: anywhere, where an update is decided and nothing
/// is locked, or where everything is locked.
fn linearizable_with_transactions<S: Set>(promise: Promise, make: impl Fn() -> S) {
    let faults = |seed: u64| {
        let named = |name: &str| Point::Named { name: name.to_owned(), nth: 1 + seed / 4 % 5 };
        let (thread, at) = match seed % 4 {
            0 => return vec![],
            1 => (None, Point::OneIn(300)),
            2 => (Some(seed as usize % THREADS), named(points::DECIDED)),
            _ => (Some(seed as usize / 4 % THREADS), named(rcx::points::HELD)),
        };
        vec![Fault::Stall { thread, at, for_ns: 20_000 }]
    };
    linearizable_by(promise, make, &|setup, client, end| explore_transactions(48, faults, setup, client, end));
}

fn each_side_by_side<M: Mechanism<1> + Mechanism<2>>(make: impl Fn() -> M) {
    linearizable_with_transactions(Promise::Rival, || List::over(make()));
    linearizable_with_transactions(Promise::Rival, || Hash::over(make(), 3));
    linearizable_with_transactions(Promise::Rival, || Tree::over(make()));
}

#[test]
fn sets_over_rcx_are_linearizable_however_transactions_end() {
    each_side_by_side(OverRcx::default);
}

#[test]
fn sets_over_rcx_as_published_are_linearizable_however_transactions_end() {
    each_side_by_side(OverRcxSuccessors::default);
    each_side_by_side(OverRcxSuccessorsKilobyte::default);
}

#[test]
fn sets_over_rcx_are_linearizable_with_hand_over() {
    each_side_by_side(|| OverRcx::over(Rcx::builder().passes(3).build()));
}

#[test]
fn sets_over_striped_rcx_are_linearizable_however_transactions_end() {
    let few = |nodes, _| Striped::with_stripes(nodes, 5);
    each_side_by_side(|| OverRcxStriped::over(Rcx::builder().build_with(few)));
}

#[test]
fn sets_over_rcu_htm_are_linearizable_however_transactions_end() {
    each_side_by_side(RcuHtm::default);
    each_side_by_side(RcuHtmOneLock::default);
    each_side_by_side(|| RcuHtm::over(Region::by_version_locks()));
}

/// A removal reads the left link of its node's successor, and reads all of the successor's links later. A key that is
/// inserted in between stays, whether it is below the successor or beside the way to it.
#[test]
fn a_removal_that_looks_twice_loses_no_key() {
    fn run<M: Mechanism<2>>(make: impl Fn() -> M, keys: &[u64], new: u64) {
        let setup = || {
            let tree = Tree::over(make());
            assert!(keys.iter().all(|key| tree.session().insert(*key, *key)));
            tree
        };
        let client = |tree: &Tree<M>, client: Client| match client.index {
            0 => assert_eq!(tree.session().remove(50), Some(50)),
            1 => assert!(tree.session().insert(new, new)),
            _ => {}
        };
        let end = |tree: Tree<M>| {
            let mut session = tree.session();
            assert_eq!((session.get(new), session.get(50)), (Some(new), None));
            assert_eq!(session.range(0, 100).len(), keys.len());
        };
        explore_with(150, |_| vec![], setup, client, end);
    }
    for (keys, new) in [(&[50, 20, 80][..], 70), (&[50, 20, 95, 80], 70), (&[50, 20, 95, 80], 97)] {
        run(OverRcx::default, keys, new);
        run(|| RcuHtm::over(Region::by_version_locks()), keys, new);
    }
}

#[test]
fn sets_over_fine_grained_and_hierarchical_locks_are_linearizable_in_many_schedules() {
    linearizable(Promise::Rival, || List::over(OverRcx::over(Rcx::fine_grained().build())));
    linearizable(Promise::Rival, || Tree::over(OverRcx::over(Rcx::fine_grained().build())));
    linearizable(Promise::Ordered, List::<OverRcuHmcs>::default);
    linearizable(Promise::Ordered, Tree::<OverRcuHmcs>::default);
}

/// An insertion has found a null link and stalls. Meanwhile the link holds the successor of a node above, and becomes
/// null again when that node is removed. By then the key belongs elsewhere.
#[test]
fn an_insertion_into_a_citrus_tree_ends_where_its_key_is_looked_for() {
    an_insertion_ends_where_its_key_is_looked_for::<AllReaders>();
    an_insertion_ends_where_its_key_is_looked_for::<ReadersOfKeys>();
    an_insertion_ends_where_its_key_is_looked_for::<CountedReaders>();
    an_insertion_ends_where_its_key_is_looked_for::<AllSections>();
}

fn an_insertion_ends_where_its_key_is_looked_for<W: Waiting>() {
    let setup = || {
        let tree = Citrus::<W>::default();
        assert!([50, 20, 90].iter().all(|key| tree.session().insert(*key, *key)));
        tree
    };
    let client = |tree: &Citrus<W>, client: Client| {
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
    let end = |tree: Citrus<W>| {
        let mut session = tree.session();
        assert_eq!([20, 50, 60, 70, 90].map(|key| session.get(key)), [Some(20), None, Some(60), Some(70), Some(90)]);
        assert_eq!(session.range(0, 100).len(), 4);
    };
    explore_with(200, |_| vec![stall(0, points::FOUND, 1)], setup, client, end);
}

/// Beside updates of even keys, a range is strictly ascending and contains every odd key, all of which stay. Look-ups
/// of several keys find them, too.
fn ranges_hold<S: Set>(make: impl Fn() -> S) {
    const KEYS: u64 = 12;
    let setup = || {
        let set = make();
        // The tree is deep enough for nodes to have successors far below.
        assert!([6, 1, 11, 8, 3, 9, 7, 2, 5, 10, 4].into_iter().all(|key| set.session().insert(key, key)));
        set
    };
    let client = |set: &S, client: Client| {
        let mut session = set.session();
        for round in 0..8 {
            let key = 2 + world::random() % (KEYS / 2 - 1) * 2;
            match (client.index, round % 2) {
                (0, _) => promised::check_range(&session.range(0, KEYS), (1..KEYS).step_by(2)),
                (1, 0) => {
                    let keys: Vec<u64> = (1..KEYS).step_by(2).collect();
                    let found: Vec<u64> = session.get_many(&keys).into_iter().flatten().collect();
                    assert_eq!(found, keys);
                }
                (_, 0) => _ = session.insert(key, key),
                _ => _ = session.remove(key),
            }
        }
    };
    let faults = |seed: u64| match seed % 2 {
        0 => vec![],
        _ => vec![Fault::Stall { thread: Some(0), at: Point::OneIn(20), for_ns: 5_000 }],
    };
    explore_transactions(150, faults, setup, client, drop);
}

#[test]
fn ranges_are_ascending_and_have_all_that_stays() {
    fn over<M: Mechanism<1> + Mechanism<2>>(make: impl Fn() -> M) {
        ranges_hold(|| Tree::over(make()));
        ranges_hold(|| List::over(make()));
    }
    over(OverRcx::default);
    over(OverRcxStriped::default);
    over(|| OverRcx::over(Rcx::fine_grained().build()));
    over(|| RcuHtm::over(Region::by_version_locks()));
    over(RcuHtm::default);
    over(RcuHtmOneLock::default);
    over(OverRcu::default);
    over(|| OverMvRlu::with(eager(ClockKind::Logical)));
    over(|| OverRlu::with(ClockKind::Logical, 0));
    over(|| OverVersioned::keeping(3));
    ranges_hold(CitrusTree::default);
    ranges_hold(PredicateCitrusTree::default);
    ranges_hold(CountedCitrusTree::default);
    ranges_hold(SynchronousCitrusTree::default);
    ranges_hold(HarrisList::default);
    ranges_hold(HazardList::default);
    ranges_hold(FraserSkipList::default);
}

/// The cost of operations depends on the set's size only, not on how many operations came before: versions, logs and
/// garbage do not accumulate.
fn costs_no_history<S: Set>(name: &str, make: impl Fn() -> S) {
    let churn = |set: &S, operations| {
        let mut session = set.session();
        for number in 0..operations {
            let key = number * 7 % 16;
            if number / 16 % 2 == 0 {
                assert!(session.insert(key, number))
            } else {
                assert!(session.remove(key).is_some())
            }
            assert_eq!(session.get(key).is_some(), number / 16 % 2 == 0);
        }
        operations
    };
    assert_flat(name, costs(500, |_| make(), churn), 100.0);
}

/// For trees and skip lists: an operation on a random key costs about the same in a set that is sixteen times as large.
fn costs_no_more_when_larger<S: Set>(name: &str, make: impl Fn() -> S) {
    let scattered = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8;
    let setup = |size| {
        let set = make();
        let mut session = set.session();
        (0..size).for_each(|number| assert!(session.insert(scattered(number), number)));
        drop(session);
        set
    };
    let work = |set: &S, size| {
        let mut session = set.session();
        for number in 0..size {
            assert_eq!(session.remove(scattered(number)), Some(number));
            assert!(session.insert(scattered(size + number), number));
        }
        size
    };
    assert_flat(name, costs(500, setup, work), 100.0);
}

/// An update over RLU copies the whole of a node of 1,024 bytes, and a search reads one line of each node.
#[test]
fn updates_over_rlu_copy_whole_nodes() {
    /// Returns the accesses of a look-up of the last of 16 keys, and of a key's removal from the front and insertion.
    fn cost<M: Mechanism<1>>() -> [f64; 2] {
        let setup = || {
            let list = List::<M>::default();
            (0..16).for_each(|key| assert!(list.session().insert(key, key)));
            list
        };
        let look = |list: &List<M>, operations: u64| {
            let mut session = list.session();
            (0..operations).for_each(|_| assert_eq!(session.get(15), Some(15)));
            operations
        };
        let change = |list: &List<M>, operations: u64| {
            let mut session = list.session();
            (0..operations).for_each(|_| assert!(session.remove(0).is_some() && session.insert(0, 0)));
            operations
        };
        [costs(200, |_| setup(), look)[0], costs(200, |_| setup(), change)[0]]
    }
    let ([look, change], [great_look, great_change]) = (cost::<OverRlu>(), cost::<OverRluKilobyte>());
    println!("small nodes: {look}, {change}; nodes of 1,024 bytes: {great_look}, {great_change}");
    // A removal and an insertion make a node of 16 lines. Each copies a node of 16 lines, and writes it back.
    assert!(great_look <= look && great_change >= change + 6.0 * 15.0);
}

#[test]
fn costs_grow_with_no_set() {
    costs_no_history("a list over RCU", List::<OverRcu>::default);
    costs_no_history("a list over RLU", || List::over(OverRlu::with(ClockKind::Logical, 2)));
    costs_no_history("a list over MV-RLU", || List::over(OverMvRlu::with(mvrlu::Domain::builder())));
    costs_no_history("a list over Versioned Programming", List::<OverVersioned>::default);
    costs_no_history("a list over RCX", || List::over(OverRcx::default()));
    costs_no_history("a list over RCU-HTM", || List::over(RcuHtm::default()));
    costs_no_history("Harris's list", HarrisList::default);
    costs_no_history("Michael's list", HazardList::default);
    costs_no_history("a hash table over MV-RLU", || Hash::over(OverMvRlu::with(mvrlu::Domain::builder()), 3));
    costs_no_more_when_larger("a tree over RCU", Tree::<OverRcu>::default);
    costs_no_more_when_larger("a tree over MV-RLU", || Tree::over(OverMvRlu::with(mvrlu::Domain::builder())));
    costs_no_more_when_larger("a tree over Versioned Programming", Tree::<OverVersioned>::default);
    costs_no_more_when_larger("a tree over RCX", || Tree::over(OverRcx::default()));
    costs_no_more_when_larger("Citrus", CitrusTree::default);
    costs_no_more_when_larger("Citrus over predicate RCU", PredicateCitrusTree::default);
    costs_no_more_when_larger("Citrus over counted sections", CountedCitrusTree::default);
    costs_no_more_when_larger("Citrus that waits by counters", SynchronousCitrusTree::default);
    costs_no_more_when_larger("Fraser's skip list", FraserSkipList::default);
}

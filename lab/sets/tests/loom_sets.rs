//! Tests the sets under the weak memory model, in their smallest interesting configurations.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p archipelago-sets --profile model --test loom_sets --target-dir target/loom`
//!
//! A node's key and value have a witness (`platform::watch`). It ends the run if a thread reads a node that was not
//! published to it, or that is freed during the read. The wait for readers in a Citrus tree is tested in
//! `simulated_sets.rs`, because loom does not terminate for two loops that wait for each other's steps.
#![cfg(loom)]

use archipelago_platform::model::model;
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_sets::{
    CitrusTree, CountedCitrusTree, FraserSkipList, HarrisList, List, OverRcu, OverVersioned, PredicateCitrusTree, Set,
    SetSession, SynchronousCitrusTree, SynchronousRcu, Tree,
};

/// Fills a set and runs two threads on it, in all schedules with at most this many preemptions.
fn beside<S: Set + Default + 'static>(
    preemptions: usize,
    keys: &'static [u64],
    one: fn(&mut S::Session<'_>),
    other: fn(&mut S::Session<'_>),
    end: fn(&mut S::Session<'_>),
) {
    model(preemptions, move || {
        let set = Arc::new(S::default());
        keys.iter().for_each(|key| assert!(set.session().insert(*key, key * 10)));
        let running = {
            let set = set.clone();
            thread::spawn(move || one(&mut set.session()))
        };
        other(&mut set.session());
        running.join().unwrap();
        end(&mut set.session());
    });
}

/// Two threads insert and remove neighbours, and look them up.
fn neighbours<S: Set + Default + 'static>(preemptions: usize) {
    beside::<S>(
        preemptions,
        &[5],
        |session| {
            assert_eq!(session.remove(5), Some(50));
            // Key 5 stays absent. The other thread may have inserted key 3 before it meanwhile.
            assert_eq!(session.get(5), None);
        },
        |session| {
            assert!(session.insert(3, 30));
            assert!(matches!(session.get(5), None | Some(50)));
        },
        |session| assert_eq!((session.get(3), session.get(5)), (Some(30), None)),
    );
}

/// Two threads insert the same key, and one of them then removes it. The removal returns the value of the insertion
/// that succeeded before.
fn rivals<S: Set + Default + 'static>(preemptions: usize) {
    beside::<S>(
        preemptions,
        &[],
        |session| _ = session.insert(1, 10),
        |session| {
            let mine = session.insert(1, 20);
            let removed = session.remove(1);
            assert!(removed == Some(10) && !mine || removed == Some(20) && mine);
        },
        |session| assert!(matches!(session.get(1), None | Some(10))),
    );
}

/// One thread sees the other's operations in their order.
fn in_order<S: Set + Default + 'static>(preemptions: usize) {
    beside::<S>(
        preemptions,
        &[5],
        |session| {
            assert!(session.insert(3, 30));
            assert_eq!(session.remove(5), Some(50));
        },
        |session| {
            if session.get(5).is_none() {
                assert_eq!(session.get(3), Some(30));
            }
        },
        |session| assert_eq!((session.get(3), session.get(5)), (Some(30), None)),
    );
}

/// A reader on its way to the successor of a removed node finds the successor.
fn on_the_way<S: Set + Default + 'static>(preemptions: usize) {
    beside::<S>(
        preemptions,
        &[50, 20, 90, 70],
        |session| assert_eq!(session.get(70), Some(700)),
        |session| assert_eq!(session.remove(50), Some(500)),
        |session| assert_eq!((session.get(70), session.get(50)), (Some(700), None)),
    );
}

#[test]
fn harris_list() {
    neighbours::<HarrisList>(3);
    rivals::<HarrisList>(3);
    in_order::<HarrisList>(3);
}

#[test]
fn skip_list() {
    neighbours::<FraserSkipList>(2);
    rivals::<FraserSkipList>(2);
    in_order::<FraserSkipList>(2);
}

#[test]
fn list_over_rcu() {
    rivals::<List<OverRcu>>(2);
    in_order::<List<OverRcu>>(2);
}

/// A move is seen whole or not at all. A reader sees it if the reader's update comes after the move.
fn at_once<S: Set + Default + 'static>(preemptions: usize) {
    beside::<S>(
        preemptions,
        &[5],
        |session| assert!(session.move_key(5, 3)),
        |session| {
            let found = session.get_many(&[3, 5]);
            assert!(found == [None, Some(50)] || found == [Some(50), None]);
        },
        |session| assert_eq!((session.get(3), session.get(5)), (Some(50), None)),
    );
}

/// Both threads change the same node. None of the changes is lost, and each thread's later snapshot has its own.
fn both<S: Set + Default + 'static>(preemptions: usize) {
    beside::<S>(
        preemptions,
        &[],
        |session| assert!(session.insert(1, 10) && session.get(1) == Some(10)),
        |session| assert!(session.insert(2, 20) && session.get(2) == Some(20)),
        |session| assert_eq!((session.get(1), session.get(2)), (Some(10), Some(20))),
    );
}

#[test]
fn list_over_versioned_programming() {
    rivals::<List<OverVersioned>>(2);
    in_order::<List<OverVersioned>>(2);
    at_once::<List<OverVersioned>>(2);
    both::<List<OverVersioned>>(2);
}

#[test]
fn list_over_rcu_that_waits() {
    rivals::<List<SynchronousRcu>>(2);
    in_order::<List<SynchronousRcu>>(2);
}

#[test]
fn tree_over_rcu() {
    on_the_way::<Tree<OverRcu>>(2);
}

#[test]
fn citrus() {
    rivals::<CitrusTree>(2);
    in_order::<CitrusTree>(2);
}

#[test]
fn citrus_over_predicate_rcu() {
    rivals::<PredicateCitrusTree>(2);
    in_order::<PredicateCitrusTree>(2);
    in_order::<CountedCitrusTree>(2);
    in_order::<SynchronousCitrusTree>(2);
}

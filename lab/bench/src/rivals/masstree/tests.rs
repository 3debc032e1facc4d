//! Tests the tree against a model, and its histories with the linearizability checker.

use archipelago_check::workload::Mix;

use super::*;
use crate::rivals::tests::{GROW, SHRINK, agrees_with_a_model, history, nested, scaled, strings, words};

fn check<K>(tree: &mut Masstree<K>) {
    tree.check_invariants();
}

#[test]
fn it_agrees_with_a_model() {
    agrees_with_a_model(&words(scaled(3_000, 200) as u64), check::<u64>);
    agrees_with_a_model(&strings(scaled(1_500, 100)), check::<Vec<u8>>);
    agrees_with_a_model(&nested(scaled(2_000, 100)), check::<Vec<u8>>);
}

/// New layers are made only for keys with a common beginning.
#[test]
fn keys_that_begin_alike_have_layers() {
    let mut tree = Masstree::<Vec<u8>>::default();
    let key = |n: u8, len: usize| [vec![b'k'; len - 1], vec![n]].concat();
    (0..10).for_each(|n| _ = tree.pin().insert(&key(n, 8), 1));
    assert_eq!(tree.check_invariants(), (1, 10));
    (0..10).for_each(|n| _ = tree.pin().insert(&key(n, 40), 2));
    // There are four layers below the first; the ten long keys differ in the last layer only.
    assert_eq!(tree.check_invariants(), (5, 20));
    assert_eq!(tree.pin().insert(&key(3, 40), 3), Some(2));
    (0..10).for_each(|n| _ = tree.pin().remove(&key(n, 40)));
    assert_eq!(tree.check_invariants(), (5, 10));
    tree.domain.drain_all();
    assert_eq!(tree.domain.stats().pending, 0);
}

const TURNS: [Mix; 4] = [GROW, SHRINK, GROW, SHRINK];

#[test]
fn histories_are_linearizable() {
    for round in 0..scaled(8, 1) as u64 {
        history(&words(6), (3, scaled(400, 20)), &[Mix::EVEN], round, check::<u64>);
        history(&words(scaled(400, 60) as u64), (4, scaled(1_000, 30)), &TURNS, round, check::<u64>);
        history(&strings(scaled(300, 30)), (4, scaled(500, 20)), &TURNS, round, check::<Vec<u8>>);
        history(&nested(scaled(300, 30)), (4, scaled(500, 20)), &TURNS, round, check::<Vec<u8>>);
    }
}

/// The same test under random schedules of the simulator. The keys are few and have common beginnings, so most
/// operations are close to a split or a new layer.
#[cfg(archipelago_sim)]
#[test]
fn schedules_find_nothing() {
    crate::rivals::tests::hunt_histories(check::<u64>, check::<Vec<u8>>);
}

/// A look-up finds the entry of its own key or none, even if another key takes over the entry's slot meanwhile.
#[cfg(archipelago_sim)]
#[test]
fn no_schedule_with_two_preemptions_takes_one_entry_for_another() {
    use archipelago_sim::{Config, Machine, run_with, search};
    let machine = Machine::preset("xeon-e5-4620-4s").unwrap();
    let setup = || {
        let tree = Masstree::<u64>::default();
        (0..3).for_each(|key| _ = tree.pin().insert(&key, 10 + key));
        tree
    };
    let found = search(&Config::seeded(1), 2, 100_000, |config| {
        let body = |tree: &Masstree<u64>, client: archipelago_sim::Client| {
            let session = tree.pin();
            match client.index {
                0 => assert!(matches!(session.get(&1), None | Some(11))),
                _ => {
                    assert_eq!(session.remove(&1), Some(11));
                    assert_eq!(session.insert(&7, 17), None);
                }
            }
        };
        run_with(&machine, config, 2, setup, body, |mut tree| check(&mut tree)).0
    });
    assert!(found.complete && found.failure.is_none(), "{found:?}");
}

/// A writer locks no node of the layers above its key's last part. If it did, it would wait here for its own lock.
#[cfg(archipelago_sim)]
#[test]
fn writers_lock_nothing_on_their_way() {
    use archipelago_sim::{Config, Machine, run};
    let key = |last: u8| [vec![b'k'; 20], vec![last]].concat();
    let body = |_| {
        let tree = Masstree::<Vec<u8>>::default();
        let session = tree.pin();
        (1..3).for_each(|last| _ = session.insert(&key(last), 1));
        assert!(tree.root.writer.lock());
        assert_eq!(session.insert(&key(3), 3), None);
        assert_eq!(session.insert(&key(1), 4), Some(1));
        assert_eq!(session.update(&key(3), |old| old + 1), Some(3));
        assert_eq!(session.remove(&key(2)), Some(1));
        tree.root.writer.unlock_unchanged();
    };
    run(&Machine::preset("xeon-e5-4620-4s").unwrap(), &Config::seeded(1), 1, body).assert_done();
}

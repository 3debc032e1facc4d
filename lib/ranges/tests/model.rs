//! Compares the results of random sequences of operations with those of an array of points, and checks that concurrent
//! histories are linearizable.
#![cfg(not(archipelago_sim))]

mod flat;

use archipelago_check::history::Recorder;
use archipelago_check::linear::{self, Model};
use archipelago_ranges::RangeMap;
use flat::{Flat, Op, POINTS, Points, Ret, draw, perform, several_leaves};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// Returns a generator of random numbers that are the same in every run.
fn numbers(seed: u8) -> impl FnMut(u64) -> u64 {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    move |bound| random.next_u64() % bound
}

fn answers_as_an_array(mut points: Points, map: &RangeMap<u16, u8>, seed: u8) {
    let (mut random, model) = (numbers(seed), Flat(Vec::new()));
    for _ in 0..if cfg!(miri) { 100 } else { 5_000 } {
        let op = draw(&mut random);
        let ret = perform(map, &op);
        // Without concurrent changes the lowest gap is the only correct answer.
        if let Op::InsertInGap(size, alignment, within, _) = &op {
            let Some(_) = model.step(&points, &Op::FindGap(*size, *alignment, within.clone()), &ret) else {
                panic!("{op:?} was answered with {ret:?} in {points:?}");
            };
        }
        points =
            model.step(&points, &op, &ret).unwrap_or_else(|| panic!("{op:?} was answered with {ret:?} in {points:?}"));
        map.check_invariants();
    }
}

#[test]
fn any_sequence_answers_as_an_array_of_points() {
    for seed in 0..if cfg!(miri) { 1 } else { 16 } {
        answers_as_an_array(vec![0; usize::from(POINTS)], &RangeMap::new(), seed);
        let (points, map) = several_leaves();
        answers_as_an_array(points, &map, 100 + seed);
    }
}

#[test]
fn the_smallest_type_of_points_has_the_same_ends() {
    let map = RangeMap::<u8, char>::new();
    map.insert(0..255, 'a');
    map.remove(100..101);
    let pinned = map.pin();
    assert_eq!(pinned.find_gap(1, 0, 0..255), Some(100..101));
    assert_eq!(pinned.next_range(100), Some((101..255, &'a')));
    assert_eq!((pinned.next_range(255), pinned.get(255)), (None, None));
}

fn is_linearizable(threads: u8, operations: usize, seed: u8) {
    let (points, map) = several_leaves();
    let recorder = Recorder::<Op, Ret>::new();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (map, recorder) = (&map, &recorder);
            scope.spawn(move || {
                let (mut log, mut random) = (recorder.log(), numbers(seed.wrapping_mul(31).wrapping_add(thread)));
                for _ in 0..operations {
                    log.record(draw(&mut random), |op| perform(map, op));
                }
            });
        }
    });
    map.check_invariants();
    linear::check(&Flat(points), recorder.finish().entries()).assert_ok();
}

#[test]
fn concurrent_histories_are_linearizable() {
    for seed in 0..if cfg!(miri) { 1 } else { 40 } {
        is_linearizable(2, if cfg!(miri) { 20 } else { 400 }, seed);
        is_linearizable(6, if cfg!(miri) { 4 } else { 60 }, seed);
    }
}

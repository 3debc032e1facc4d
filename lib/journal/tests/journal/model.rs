//! Random sequences of operations, with restarts and power losses in between. A recovery delivers a prefix of each
//! lane's appended records, with all durable ones.

use crate::common::{Told, open, small};
use archipelago_journal::{Options, Policy, Simulated};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Append(u32),
    Wait(u32),
    Sync,
    Retire(u32),
    Reopen,
    Restart,
    PowerLoss(u64),
    Close,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        12 => (0..3u32).prop_map(Op::Append),
        4 => (0..3u32).prop_map(Op::Wait),
        1 => Just(Op::Sync),
        2 => (0..3u32).prop_map(Op::Retire),
        1 => Just(Op::Reopen),
        1 => Just(Op::Restart),
        2 => any::<u64>().prop_map(Op::PowerLoss),
        3 => Just(Op::Close),
    ];
    prop::collection::vec(op, 1..80)
}

fn run(ops: &[Op], lanes: usize, epochs: bool, policy: Policy) {
    let options = Options { lanes, epochs, policy, ..small() };
    let mut disk = Simulated::new();
    let mut told = Told::new(lanes);
    let (mut journal, recovery, _) = open(&disk, &options).unwrap();
    let mut epoch = recovery.next_epoch;
    for op in ops {
        match *op {
            Op::Append(lane) => {
                told.append(&journal, lane % lanes as u32, epoch + u64::from(lane)).unwrap();
            }
            Op::Wait(lane) if !epochs => {
                let position = journal.end(lane % lanes as u32);
                told.wait(&journal, position).unwrap();
            }
            Op::Sync => {
                journal.sync().unwrap();
                if !epochs {
                    told.durable = told.appended.iter().map(Vec::len).collect();
                }
            }
            Op::Retire(lane) if !epochs => told.retire(&journal, lane % lanes as u32).unwrap(),
            Op::Close if epochs => {
                told.close(&journal, epoch).unwrap();
                epoch += 1;
            }
            Op::Reopen | Op::Restart | Op::PowerLoss(_) => {
                match *op {
                    Op::Reopen => {
                        journal.close().unwrap();
                        told.durable = told.appended.iter().map(Vec::len).collect();
                    }
                    Op::Restart => disk = disk.restarted(),
                    Op::PowerLoss(seed) => disk = disk.power_loss(seed),
                    _ => unreachable!(),
                }
                let (opened, recovery, delivered) = open(&disk, &options).unwrap();
                (journal, epoch) = (opened, recovery.next_epoch);
                match epochs {
                    true => told.recovered_epochs(&delivered, &recovery),
                    false => told.recovered(&delivered),
                }
            }
            Op::Wait(_) | Op::Retire(_) | Op::Close => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_lane(ops in ops()) {
        run(&ops, 1, false, Policy::Always);
    }

    #[test]
    fn three_lanes(ops in ops()) {
        run(&ops, 3, false, Policy::Always);
    }

    #[test]
    fn three_lanes_with_epochs(ops in ops()) {
        run(&ops, 3, true, Policy::Always);
    }
}

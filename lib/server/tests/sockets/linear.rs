//! Concurrent histories over real sockets are linearizable, with a log and without.

use crate::client::{Client, started};
use archipelago_check::history::Recorder;
use archipelago_check::linear::DEFAULT_STEPS;
use archipelago_check::map::{MapOp, MapRet, check_map};
use archipelago_server::config::{Appendonly, Settings};
use archipelago_server::db::Random;
use std::collections::BTreeMap;
use std::thread;

pub fn history(settings: Settings, operations: usize) {
    let server = started(settings);
    let recorder = Recorder::new();
    thread::scope(|scope| {
        for number in 0..4_usize {
            let (recorder, address) = (&recorder, server.address());
            scope.spawn(move || {
                let (mut client, mut log) = (Client::new(address), recorder.log());
                let mut random = Random(number as u64);
                for turn in 0..operations {
                    let key = random.below(4) as u64;
                    let value = (number * operations + turn) as u64;
                    let (op, line) = match random.below(8) {
                        0..4 => (MapOp::Get(key), format!("GET k{key}")),
                        4..7 => (MapOp::Insert(key, value), format!("SET k{key} {value} GET")),
                        _ => (MapOp::Remove(key), format!("GETDEL k{key}")),
                    };
                    log.record(op, |_| MapRet::Value(client.ask(&line).parse::<u64>().ok()));
                }
            });
        }
    });
    check_map(&BTreeMap::new(), &recorder.finish(), DEFAULT_STEPS).assert_ok();
}

#[test]
fn without_a_log() {
    history(Settings { loops: 2, ..Settings::default() }, 3_000);
}

#[test]
fn with_a_log_that_is_synced() {
    let directory = std::env::temp_dir().join(format!("archipelago-server-linear-{}", std::process::id()));
    let settings =
        Settings { loops: 2, directory: directory.clone(), appendonly: Appendonly::Always, ..Settings::default() };
    history(settings, 1_000);
    std::fs::remove_dir_all(directory).unwrap();
}

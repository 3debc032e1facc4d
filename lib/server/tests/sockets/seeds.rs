//! The seed of the hash function: new directories get one of their own, recoveries keep it, old directories have none.

use crate::client::Client;
use crate::durable::{call, settings, values};
use archipelago_journal::{CheckpointWriter, Disk, Fault, Simulated, read_checkpoint};
use archipelago_server::config::{Appendonly, Settings};
use archipelago_server::db::Db;
use archipelago_server::db::hashing::Hashing;
use archipelago_server::log::Store;
use archipelago_server::operation::{Input, Read, Write, put_bytes, put_number};
use archipelago_server::reply::Reply;
use archipelago_server::server::Server;
use std::path::Path;
use std::sync::Arc;

const APPENDONLY: [Appendonly; 3] = [Appendonly::No, Appendonly::EverySecond, Appendonly::Always];

/// Returns a disk with an empty directory.
fn disk() -> Simulated {
    let disk = Simulated::new();
    disk.create_directory(Path::new("/data")).unwrap();
    disk
}

fn open(disk: &Simulated, appendonly: Appendonly) -> Store {
    Store::open(Arc::new(disk.clone()), Path::new("/data"), appendonly).unwrap().0
}

fn start(disk: &Simulated, appendonly: Appendonly) -> Server {
    Server::start_on(&Settings { appendonly, ..settings() }, Arc::new(disk.clone())).unwrap()
}

fn write(store: &Store, line: &str) -> Reply {
    store.write_many(&mut store.handle(), vec![Write::Call(call(line))]).remove(0).reply
}

fn hashing(store: &Store) -> Hashing {
    store.db().inspect(0, Db::hashing).unwrap()
}

/// Returns the keys and the members of a set in the order of their hashes.
fn order(server: &Server) -> String {
    let mut client = Client::new(server.address());
    [client.ask("SCAN 0 COUNT 1000"), client.ask("SSCAN set 0 COUNT 1000")].join(" ")
}

#[test]
fn each_directory_keeps_a_seed_of_its_own() {
    let mut orders = Vec::new();
    for appendonly in APPENDONLY {
        let disk = disk();
        let server = start(&disk, appendonly);
        let mut client = Client::new(server.address());
        for key in 0..40 {
            client.ask(&format!("SET {key} 1"));
            client.ask(&format!("SADD set a{key} b{key} c{key}"));
            client.ask("SPOP set");
        }
        client.ask("SAVE");
        if appendonly != Appendonly::No {
            (0..10).for_each(|_| _ = client.ask("SPOP set"));
        }
        let before = order(&server);
        drop(client);
        server.stop().unwrap();
        for _ in 0..2 {
            let later = start(&disk, appendonly);
            assert_eq!(order(&later), before, "{appendonly:?}");
            later.stop().unwrap();
        }
        orders.push(before.split(' ').filter(|word| word.len() < 3).map(str::to_owned).collect::<Vec<_>>());
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2], "two directories have one seed");
}

/// Rewrites a snapshot in version 1, which has no seed.
fn make_old(disk: &Simulated) {
    let path = Path::new("/data/snapshot");
    let mut records = Vec::new();
    read_checkpoint(disk, path, |record| records.push(record.to_vec())).unwrap();
    let mut head = Input(&records[0]);
    assert_eq!(head.number(), Some(2));
    let (place, time, state) = (head.number().unwrap(), head.number().unwrap(), head.bytes().unwrap());
    let (state, seed) = state.split_last_chunk::<8>().unwrap();
    assert_eq!(*seed, [0; 8]);
    let mut old = Vec::new();
    [1, place, time].into_iter().for_each(|number| put_number(number, &mut old));
    put_bytes(state, &mut old);
    records[0] = old;
    let mut writer = CheckpointWriter::create(Arc::new(disk.clone()), path).unwrap();
    records.iter().for_each(|record| writer.record(record).unwrap());
    writer.commit().unwrap();
}

#[test]
fn an_old_directory_keeps_its_order() {
    for (appendonly, snapshot) in
        APPENDONLY.into_iter().flat_map(|appendonly| [(appendonly, false), (appendonly, true)])
    {
        if appendonly == Appendonly::No && !snapshot {
            continue;
        }
        let disk = disk();
        let store = open(&disk, appendonly);
        for key in 0..40 {
            write(&store, &format!("SET {key} 1"));
            write(&store, &format!("SADD set a{key} b{key} c{key}"));
            write(&store, "SPOP set");
        }
        if snapshot {
            store.snapshot(1).unwrap();
            make_old(&disk);
        }
        store.sync().unwrap();
        let size = store.handle().read(&Read::Call(call("DBSIZE"))).unwrap().reply;
        assert_eq!((hashing(&store), size), (Hashing::default(), Reply::Int(41)));
        let before = store.db().replica_snapshot(0).unwrap();
        drop(store);
        for _ in 0..2 {
            let store = open(&disk, appendonly);
            store.seed(9).unwrap();
            assert_eq!(hashing(&store), Hashing::default());
            let mut expected = before.clone();
            while expected.serial() < store.db().inspect(0, Db::serial).unwrap() {
                expected.write(&Write::UnwatchAll);
            }
            assert_eq!(store.db().inspect(0, Db::digest).unwrap(), expected.digest(), "{appendonly:?} {snapshot}");
        }
        // Without keys, nothing depends on the seed.
        let store = open(&disk, appendonly);
        write(&store, "FLUSHALL");
        store.seed(9).unwrap();
        assert_eq!(hashing(&store), Hashing::seeded(9));
    }
}

/// The number of transactions of [`run`].
const ROUNDS: u64 = 8;

fn round() -> Write {
    let calls = ["INCR a", "INCR b", "SADD set 1 b c d e f 4", "SPOP set 2", "SADD late x"].map(call).into();
    Write::Exec { calls, watched: Vec::new(), now: 1 }
}

/// Starts with seed 11 and changes keys until the disk fails. Returns the number of acknowledged transactions.
fn run(disk: &Simulated) -> u64 {
    let opened = Store::open(Arc::new(disk.clone()), Path::new("/data"), Appendonly::Always);
    let Ok((store, _)) = opened else { return 0 };
    if store.seed(11).is_err() {
        return 0;
    }
    let mut told = 0;
    for step in 0..ROUNDS {
        let outcomes = store.write_many(&mut store.handle(), vec![round()]);
        told += u64::from(matches!(outcomes[0].reply, Reply::Array(_)));
        if step == 4 {
            let _ = store.snapshot(step);
        }
    }
    told
}

#[test]
fn power_may_fail_at_every_call_around_the_seed() {
    let whole = Simulated::new();
    assert_eq!(run(&whole), ROUNDS);
    let calls = whole.calls().len();
    let (mut kept, mut lost) = (0, 0);
    for at in 0..calls {
        let disk = Simulated::new();
        disk.fail_at(at, Fault::PowerLoss);
        let told = run(&disk);
        for choice in 0..4 {
            let later = disk.power_loss(choice);
            let store = open(&later, Appendonly::Always);
            store.seed(12).unwrap();
            let (rounds, same) = values(&store);
            assert!(rounds >= told && rounds == same, "{told} {rounds} {same} after call {at}");
            let hashing = hashing(&store);
            match hashing.seed() {
                11 => kept += 1,
                12 => lost += usize::from(rounds == 0),
                _ => panic!("no seed after call {at}"),
            }
            assert!(rounds == 0 || hashing == Hashing::seeded(11), "another seed after call {at}");
            let mut expected = Db::hashed(hashing);
            (0..rounds).for_each(|_| _ = expected.write(&round()));
            while expected.serial() < store.db().inspect(0, Db::serial).unwrap() {
                expected.write(&Write::UnwatchAll);
            }
            assert_eq!(store.db().inspect(0, Db::digest).unwrap(), expected.digest(), "after call {at}");
        }
    }
    assert!(kept > 20 && lost > 5, "{kept} {lost}");
}

#[test]
fn replicas_have_one_seed() {
    let store = Store::open_on(Arc::new(Simulated::new()), Path::new("/data"), Appendonly::No, 3).unwrap().0;
    store.seed(13).unwrap();
    for key in 0..200 {
        write(&store, &format!("SADD set m{key}"));
        write(&store, &format!("SET k{key} 1"));
        if key % 3 == 0 {
            write(&store, "SPOP set");
        }
    }
    let state = |replica| store.db().inspect(replica, |db| (db.hashing(), db.serial(), db.digest())).unwrap();
    assert_eq!(state(0).0, Hashing::seeded(13));
    assert!(state(0) == state(1) && state(1) == state(2));
}

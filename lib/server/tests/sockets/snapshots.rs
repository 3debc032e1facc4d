//! Snapshots, and the shortening of the log.

use crate::client::{Client, request};
use crate::durable::{call, values};
use archipelago_journal::{Call, Disk, DiskFile, DiskLock, Fault, Simulated};
use archipelago_server::config::{Appendonly, Settings};
use archipelago_server::log::Store;
use archipelago_server::operation::Write;
use archipelago_server::reply::Reply;
use archipelago_server::server::Server;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

fn open(disk: &Simulated) -> Result<Store, String> {
    // The segments are so short that each snapshot makes some of them superfluous.
    let store = Store::open_with(Arc::new(disk.clone()), Path::new("/data"), Appendonly::Always, 600, 0)?.0;
    store.seed(7).map(|()| store)
}

fn digest(store: &Store) -> u64 {
    store.db().inspect(0, |db| db.digest()).unwrap()
}

fn write(store: &Store, lines: &[&str]) -> Vec<Reply> {
    let batch = lines.iter().map(|line| Write::Call(call(line))).collect();
    store.write_many(&mut store.handle(), batch).into_iter().map(|outcome| outcome.reply).collect()
}

/// Returns the number of the log's segments.
fn segments(disk: &Simulated) -> usize {
    disk.list(Path::new("/data")).unwrap().iter().filter(|name| !name.starts_with("snap")).count()
}

/// Increments keys, with snapshots between, until the disk fails. Returns the number of acknowledged increments.
fn count(disk: &Simulated) -> u64 {
    let mut told = 0;
    let Ok(store) = open(disk) else { return 0 };
    let mut handle = store.handle();
    for step in 0..12 {
        let calls = vec![call("INCR a"), call("INCR b"), call("SADD set 1 b c 4 e f"), call("SPOP set")];
        let outcomes = store.write_many(&mut handle, vec![Write::Exec { calls, watched: Vec::new(), now: 1 }]);
        told += u64::from(matches!(&outcomes[0].reply, Reply::Array(_)));
        if step % 4 == 2 {
            let _ = store.snapshot(step + 1);
        }
    }
    told
}

#[test]
fn power_may_fail_at_every_call_of_a_snapshot() {
    let whole = Simulated::new();
    assert_eq!(count(&whole), 12);
    let calls = whole.calls().len();
    assert!(calls > 60, "{calls} calls are too few");
    for at in 0..calls {
        let disk = Simulated::new();
        disk.fail_at(at, Fault::PowerLoss);
        let told = count(&disk);
        for seed in 0..4 {
            let later = disk.power_loss(seed);
            let store = open(&later).unwrap_or_else(|error| panic!("after call {at}: {error}"));
            let (a, b) = values(&store);
            assert_eq!(a, b, "half of a transaction, after call {at}");
            assert!(a >= told, "{told} were acknowledged and {a} are left, after call {at}");
            let before = digest(&store);
            drop(store);
            // The recovered state is recovered again, then also from a snapshot.
            let store = open(&later).unwrap();
            let again = digest(&store);
            assert_ne!(before, again, "the start counts as an operation");
            store.snapshot(99).unwrap();
            assert_eq!(values(&store), (a, b));
        }
    }
}

#[test]
fn streams_whose_last_identifier_was_set_back_are_readable() {
    let disk = Simulated::new();
    let store = open(&disk).unwrap();
    let made = [
        // 3-0 is added behind 5-0, which is deleted.
        &["XADD s 1-0 a b", "XADD s 5-0 a b", "XDEL s 5-0", "XSETID s 1-0", "XADD s 3-0 a b"][..],
        // 5-0 keeps the node when its last live entry is trimmed, and 0-2 precedes both.
        &["XADD t 1-0 a b", "XADD t 5-0 a b", "XDEL t 5-0", "XTRIM t MINID = 3-0", "XSETID t 0-1", "XADD t 0-2 a b"],
    ];
    let replies = write(&store, &made.concat());
    assert!(!replies.iter().any(Reply::is_error), "{replies:?}");
    let look = |store: &Store| {
        let asked =
            ["XRANGE s - +", "XRANGE s 3-0 3-0", "XRANGE t - +", "XRANGE t 0-2 0-2", "XLEN t", "XINFO STREAM s"];
        write(store, &asked)
    };
    let before = look(&store);
    assert!(matches!(&before[3], Reply::Array(found) if found.len() == 1), "{:?}", before[3]);
    store.snapshot(1).unwrap();
    drop(store);
    let store = open(&disk.restarted()).expect("the snapshot is readable");
    assert_eq!(look(&store), before);
    assert_eq!(write(&store, &["XDEL t 0-2", "XADD s 4-0 a b", "XLEN s"])[0], Reply::Int(1));
}

#[test]
fn a_call_may_fail_and_the_snapshot_before_stays() {
    for fault in [Fault::Io, Fault::NoSpace, Fault::Short, Fault::Interrupted] {
        let disk = Simulated::new();
        let store = open(&disk).unwrap();
        write(&store, &["SET a 1", "SET b 1"]);
        store.snapshot(1).unwrap();
        write(&store, &["SET a 2", "SET b 2"]);
        let from = disk.calls().len();
        store.snapshot(2).unwrap();
        let calls = disk.calls().len() - from;
        for at in 0..calls {
            let disk = Simulated::new();
            let store = open(&disk).unwrap();
            write(&store, &["SET a 1", "SET b 1"]);
            store.snapshot(1).unwrap();
            write(&store, &["SET a 2", "SET b 2"]);
            disk.fail_at(disk.calls().len() + at, fault);
            let made = store.snapshot(2);
            let harmless = matches!(fault, Fault::Short | Fault::Interrupted);
            // The journal syncs no bytes that are synced already. So the last call may be left out, and then the fault
            // does not occur.
            assert!(made.is_err() || harmless || at + 1 >= calls, "{fault:?} at call {at} of {calls} was not told");
            assert_eq!(store.snapshots().unwrap().status().failure.is_some(), made.is_err());
            assert_eq!(values(&store), (2, 2));
            drop(store);
            let store = open(&disk.restarted()).unwrap();
            assert_eq!(values(&store), (2, 2), "{fault:?} at call {at}: {made:?}");
        }
    }
}

#[test]
fn a_recovery_from_a_snapshot_is_the_same_database() {
    let disk = Simulated::new();
    let store = open(&disk).unwrap();
    for round in 0..300 {
        let lines = [
            format!("SADD s{} {round} x{round} y{round}", round % 7),
            format!("SPOP s{}", round % 5),
            format!("HSET h{} f{round} {round}", round % 3),
            format!("ZADD z {round} m{round}"),
            format!("SET e{round} {round} PX 100000"),
        ];
        write(&store, &lines.each_ref().map(String::as_str));
        if round == 200 {
            let before = segments(&disk);
            store.snapshot(7).unwrap();
            assert!(segments(&disk) < before / 4, "{} of {before} files are left", segments(&disk));
        }
    }
    write(&store, &["SPOP s1 3", "SPOP s2 2"]);
    let live = store.db().replica_snapshot(0).unwrap();
    drop(store);
    let (mut expected, later) = (live, open(&disk.restarted()).unwrap());
    expected.write(&Write::UnwatchAll);
    assert_eq!(digest(&later), expected.digest());
    assert_eq!(later.snapshots().unwrap().status().time, 7);
}

#[test]
fn changes_go_on_while_a_snapshot_is_made() {
    let disk = Simulated::new();
    let store = open(&disk).unwrap();
    for round in 0..200 {
        let lines: Vec<String> = (0..100).map(|key| format!("SET k{round}:{key} {}", "v".repeat(40))).collect();
        write(&store, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for time in 1..=5 {
                store.snapshot(time).unwrap();
            }
            done.store(true, SeqCst);
        });
        let mut writes = 0;
        while !done.load(SeqCst) {
            let lines = [format!("INCR k{}:7", writes % 300), format!("DEL k{}:8", writes % 200), "INCR a".into()];
            write(&store, &lines.each_ref().map(String::as_str));
            writes += 1;
        }
        assert!(writes > 5, "{writes} changes are too few");
    });
    let mut expected = store.db().replica_snapshot(0).unwrap();
    drop(store);
    expected.write(&Write::UnwatchAll);
    assert_eq!(digest(&open(&disk.restarted()).unwrap()), expected.digest());
}

#[test]
fn damage_is_refused_with_file_and_offset() {
    let disk = Simulated::new();
    let store = open(&disk).unwrap();
    write(&store, &["SET a 1", "SET b 1"]);
    store.snapshot(1).unwrap();
    drop(store);
    let path = Path::new("/data/snapshot");
    let (length, mut refusals) = (disk.open(path).unwrap().length().unwrap(), 0);
    for at in 0..length {
        let damaged = disk.restarted();
        let file = damaged.open(path).unwrap();
        let mut byte = [0];
        file.read(at, &mut byte).unwrap();
        file.write(at, &[byte[0] ^ 0x10]).unwrap();
        match open(&damaged) {
            Err(refused) => {
                assert!(refused.contains("/data/snapshot") && refused.contains("backup"), "{refused}");
                refusals += 1;
            }
            Ok(store) => assert_eq!(values(&store), (1, 1), "byte {at} was believed"),
        }
    }
    // Some bytes of the header have no meaning.
    assert!(refusals + 8 > length, "{refusals} of {length} bytes were missed");
    // A snapshot whose log is missing is refused as well.
    let without = disk.restarted();
    for name in without.list(Path::new("/data")).unwrap() {
        if name != "snapshot" {
            without.remove(&Path::new("/data").join(name)).unwrap();
        }
    }
    let refused = open(&without).err().unwrap();
    assert!(refused.contains("--appendonly no"), "{refused}");
    let alone = Store::open(Arc::new(without), Path::new("/data"), Appendonly::No).unwrap().0;
    assert_eq!(values(&alone), (1, 1));
}

#[test]
fn the_log_reaches_as_far_as_the_snapshot() {
    let disk = Simulated::new();
    let open = |disk: &Simulated| Store::open(Arc::new(disk.clone()), Path::new("/data"), Appendonly::EverySecond);
    let (store, _) = open(&disk).unwrap();
    write(&store, &["SET a 1", "SET b 1"]);
    store.snapshot(1).unwrap();
    write(&store, &["SET a 2"]);
    for seed in 0..20 {
        let (later, _) = open(&disk.power_loss(seed)).unwrap_or_else(|error| panic!("{error}"));
        let (a, b) = values(&later);
        assert!((1..=2).contains(&a) && b == 1, "{a} {b}");
    }
}

#[test]
fn without_a_log_a_snapshot_is_what_is_kept() {
    let disk = Simulated::new();
    let open = || Store::open(Arc::new(disk.clone()), Path::new("/data"), Appendonly::No).unwrap().0;
    disk.create_directory(Path::new("/data")).unwrap();
    let store = open();
    write(&store, &["SET a 5", "SET b 6"]);
    store.snapshot(3).unwrap();
    write(&store, &["SET a 7"]);
    drop(store);
    assert_eq!(values(&open()), (5, 6));
    let syncs = disk.calls().iter().filter(|call| matches!(call, Call::Sync | Call::SyncDirectory)).count();
    assert_eq!(syncs, 2, "the file and its directory");
}

fn settings(appendonly: Appendonly) -> Settings {
    Settings { address: ([127, 0, 0, 1], 0).into(), directory: "/data".into(), appendonly, ..Settings::default() }
}

/// Waits until `INFO` contains `what`.
fn until(client: &mut Client, what: &str) {
    for _ in 0..500 {
        if client.ask("INFO persistence").contains(what) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} did not come about: {}", client.ask("INFO persistence"));
}

#[test]
fn commands_make_snapshots() {
    for appendonly in [Appendonly::No, Appendonly::EverySecond, Appendonly::Always] {
        let disk = Simulated::new();
        disk.create_directory(Path::new("/data")).unwrap();
        let server = Server::start_on(&settings(appendonly), Arc::new(disk.clone())).unwrap();
        let mut client = Client::new(server.address());
        let began: u64 = client.ask("LASTSAVE")[1..].parse().unwrap();
        assert_eq!(client.ask("SET a 1"), "+OK");
        assert!(client.ask("INFO persistence").contains("rdb_last_save_time:0\r\n"));
        assert_eq!(client.ask("SAVE"), "+OK");
        assert!(client.ask("INFO persistence").contains("rdb_changes_since_last_save:0\r\n"));
        assert!(client.ask("LASTSAVE")[1..].parse::<u64>().unwrap() >= began);
        assert_eq!(client.ask("SET a 2"), "+OK");
        assert_eq!(client.ask("BGSAVE"), "+Background saving started");
        until(&mut client, "rdb_changes_since_last_save:0\r\nrdb_bgsave_in_progress:0\r\n");
        assert_eq!(client.ask("SET b 3"), "+OK");
        assert_eq!(client.ask("BGREWRITEAOF"), "+Background append only file rewriting started");
        until(&mut client, "rdb_changes_since_last_save:0\r\nrdb_bgsave_in_progress:0\r\n");
        assert_eq!(client.ask("BGSAVE NOW"), "-ERR syntax error");
        // When the end of a snapshot is reported, the next snapshot may begin.
        for _ in 0..200 {
            assert_eq!(client.ask("SAVE"), "+OK");
        }
        assert_eq!(client.ask("SET c 4"), "+OK");
        server.stop().unwrap();
        let later = Server::start_on(&settings(appendonly), Arc::new(disk.restarted())).unwrap();
        let kept = if appendonly == Appendonly::No { "2 3 $-1" } else { "2 3 4" };
        assert_eq!(Client::new(later.address()).ask("MGET a b c"), kept);
    }
}

/// A snapshot contains the watched keys.
#[test]
fn keys_of_clients_that_are_gone_are_not_watched() {
    for leave in ["RESET", "DISCARD", "a new start"] {
        let disk = Simulated::new();
        disk.create_directory(Path::new("/data")).unwrap();
        let watched = || {
            let mut found = false;
            let part = |bytes: &[u8]| found |= bytes.windows(7).any(|bytes| bytes == b"watched");
            archipelago_journal::read_checkpoint(&disk, Path::new("/data/snapshot"), part).unwrap();
            found
        };
        let mut server = Server::start_on(&settings(Appendonly::No), Arc::new(disk.clone())).unwrap();
        let mut client = Client::new(server.address());
        for line in ["WATCH watched", "MULTI"] {
            client.ask(line);
        }
        let mut other = Client::new(server.address());
        assert_eq!(other.ask("SAVE"), "+OK");
        assert!(watched());
        if leave == "a new start" {
            server.stop().unwrap();
            server = Server::start_on(&settings(Appendonly::No), Arc::new(disk.clone())).unwrap();
            other = Client::new(server.address());
        } else {
            client.ask(leave);
        }
        assert_eq!(other.ask("SAVE"), "+OK");
        assert!(!watched(), "{leave}");
    }
}

#[test]
fn an_end_saves_if_it_is_asked_to() {
    for (points, shutdown, kept) in [
        ("", "SHUTDOWN", "$-1"),
        ("", "SHUTDOWN SAVE", "1"),
        ("900 1", "SHUTDOWN", "1"),
        ("900 1", "SHUTDOWN NOSAVE", "$-1"),
    ] {
        let disk = Simulated::new();
        disk.create_directory(Path::new("/data")).unwrap();
        let server = Server::start_on(&settings(Appendonly::No), Arc::new(disk.clone())).unwrap();
        let mut client = Client::new(server.address());
        assert_eq!(client.call(&["CONFIG", "SET", "save", points]).unwrap(), "+OK");
        assert_eq!(client.ask("SET a 1"), "+OK");
        client.send(&request(&shutdown.split(' ').collect::<Vec<_>>())).unwrap();
        server.wait().unwrap();
        let later = Server::start_on(&settings(Appendonly::No), Arc::new(disk.restarted())).unwrap();
        assert_eq!(Client::new(later.address()).ask("GET a"), kept, "save {points:?}, {shutdown}");
    }
}

/// The end of the server waits for the snapshot's thread, which has steps left after the snapshot was cancelled.
#[test]
fn an_end_may_come_while_a_snapshot_is_made() {
    for appendonly in [Appendonly::No, Appendonly::Always] {
        let disk = Simulated::new();
        disk.create_directory(Path::new("/data")).unwrap();
        let server = Server::start_on(&settings(appendonly), Arc::new(disk.clone())).unwrap();
        let mut client = Client::new(server.address());
        let value = "x".repeat(8_000_000);
        for key in ["a", "b", "c"] {
            assert_eq!(client.call(&["SET", key, &value]).unwrap(), "+OK");
        }
        assert!(client.ask("BGSAVE").starts_with('+'));
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(server.stop()));
        end.recv_timeout(Duration::from_secs(300)).expect("the server ends").unwrap();
    }
}

#[test]
fn a_log_that_outgrows_the_data_begins_anew() {
    let disk = Simulated::new();
    let server = Server::start_on(&settings(Appendonly::Always), Arc::new(disk.clone())).unwrap();
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("CONFIG SET auto-aof-rewrite-min-size 10kb"), "+OK");
    for _ in 0..300 {
        assert!(client.ask("INCR a").starts_with(':'));
    }
    until(&mut client, "rdb_last_bgsave_status:ok\r\naof_rewrite_in_progress:0");
    for _ in 0..500 {
        if !client.ask("INFO persistence").contains("rdb_last_save_time:0\r\n") {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no snapshot was made: {}", client.ask("INFO persistence"));
}

#[test]
fn a_disk_without_room_for_a_snapshot_leaves_the_one_before() {
    let disk = Simulated::new();
    let server = Server::start_on(&settings(Appendonly::Always), Arc::new(disk.clone())).unwrap();
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("SET a 1"), "+OK");
    assert_eq!(client.ask("SAVE"), "+OK");
    assert_eq!(client.call(&["SET", "a", &"x".repeat(60_000)]).unwrap(), "+OK");
    disk.set_capacity(Some(disk.used() + 2_000));
    assert!(client.ask("SAVE").starts_with("-ERR"));
    assert!(client.ask("INFO persistence").contains("rdb_last_bgsave_status:err"));
    assert_eq!(client.ask("SET b 2"), "+OK", "the log has room yet");
    drop(server);
    disk.set_capacity(None);
    let later = Server::start_on(&settings(Appendonly::Always), Arc::new(disk.restarted())).unwrap();
    let mut client = Client::new(later.address());
    assert_eq!((client.ask("STRLEN a").as_str(), client.ask("GET b").as_str()), (":60000", "2"));
    assert_eq!(client.ask("SAVE"), "+OK");
}

/// A simulated disk whose renames panic while the flag is set.
struct Panics(Simulated, AtomicBool);

impl Disk for Panics {
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.create_directory(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        assert!(!self.1.load(SeqCst), "a planted panic");
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.sync_directory(directory)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.0.lock(path)
    }
}

#[test]
fn a_panic_of_a_snapshot_is_told_as_its_failure() {
    for appendonly in [Appendonly::No, Appendonly::Always] {
        let disk = Arc::new(Panics(Simulated::new(), AtomicBool::new(false)));
        disk.create_directory(Path::new("/data")).unwrap();
        let server = Server::start_on(&settings(appendonly), disk.clone()).unwrap();
        let mut client = Client::new(server.address());
        assert_eq!(client.ask("SET a 1"), "+OK");
        disk.1.store(true, SeqCst);
        assert!(client.ask("SAVE").starts_with("-ERR making a snapshot has panicked"));
        let failed = "rdb_bgsave_in_progress:0\r\n";
        assert!(client.ask("INFO persistence").contains(failed));
        assert!(client.ask("INFO persistence").contains("rdb_last_bgsave_status:err"));
        disk.1.store(false, SeqCst);
        assert_eq!(client.ask("SAVE"), "+OK");
        disk.1.store(true, SeqCst);
        assert_eq!(client.ask("BGSAVE"), "+Background saving started");
        until(&mut client, "rdb_last_bgsave_status:err");
        until(&mut client, failed);
        // The last snapshot panics as well.
        assert_eq!(client.call(&["CONFIG", "SET", "save", "900 1"]).unwrap(), "+OK");
        assert!(server.stop().unwrap_err().contains("has panicked"));
    }
}

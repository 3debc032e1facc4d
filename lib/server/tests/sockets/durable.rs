//! The state after a crash: power losses at every call of the disk, processes that are killed, syncs that fail.

use crate::client::{Client, request, started};
use archipelago_journal::{Call, Fault, Simulated};
use archipelago_server::args::Args;
use archipelago_server::command;
use archipelago_server::config::{Appendonly, Settings};
use archipelago_server::db::Db;
use archipelago_server::log::Store;
use archipelago_server::operation::{self, Read, Write};
use archipelago_server::reply::Reply;
use archipelago_server::server::Server;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

pub fn call(line: &str) -> operation::Call {
    let args: Args = line.split(' ').collect();
    operation::Call {
        command: command::find(&args[0]).unwrap(),
        args,
        db: 0,
        now: 1,
        seed: 1,
        wishes: 0,
        rights: None,
        deadline: None,
    }
}

fn open(disk: &Simulated) -> Result<Store, String> {
    let store = Store::open(Arc::new(disk.clone()), Path::new("/data"), Appendonly::Always)?.0;
    store.seed(7).map(|()| store)
}

/// Returns the values of two keys that change together.
pub fn values(store: &Store) -> (u64, u64) {
    let mut handle: archipelago_replicate::Handle<Db> = store.handle();
    let mut value = |key: &str| match handle.read(&Read::Call(call(&format!("GET {key}")))).unwrap().reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap().parse().unwrap(),
        _ => 0,
    };
    (value("a"), value("b"))
}

/// Increments until the disk fails. Returns the number of acknowledged increments, and the highest value that a reader saw.
fn count(disk: &Simulated) -> (u64, u64) {
    let (mut told, mut seen) = (0, 0);
    let Ok(store) = open(disk) else { return (0, 0) };
    let mut handle = store.handle();
    for _ in 0..12 {
        let both = vec![call("INCR a"), call("INCR b")];
        let outcomes = store.write_many(&mut handle, vec![Write::Exec { calls: both, watched: Vec::new(), now: 1 }]);
        match &outcomes[0].reply {
            Reply::Array(both) => assert_eq!(both[..], [Reply::Int(told as i64 + 1), Reply::Int(told as i64 + 1)]),
            refused => {
                assert!(matches!(refused, Reply::Error(fault) if fault.0.starts_with("MISCONF")), "{refused:?}");
                seen = seen.max(values(&store).0);
                continue;
            }
        }
        told += 1;
        seen = seen.max(values(&store).0);
    }
    (told, seen)
}

#[test]
fn power_may_fail_at_every_call() {
    let whole = Simulated::new();
    assert_eq!(count(&whole), (12, 12));
    let calls = whole.calls().len();
    assert!(calls > 30, "{calls} calls are too few");
    for at in 0..calls {
        let disk = Simulated::new();
        disk.fail_at(at, Fault::PowerLoss);
        let (told, seen) = count(&disk);
        for seed in 0..4 {
            let later = disk.power_loss(seed);
            let store = open(&later).unwrap();
            let (a, b) = values(&store);
            assert_eq!(a, b, "half of a transaction, after call {at}");
            assert!(a >= told, "{told} were acknowledged and {a} are left, after call {at}");
            assert!(a >= seen, "a reader has seen {seen} and {a} are left, after call {at}");
        }
    }
}

/// Returns settings of two loops with a log in a simulated directory, synced before each answer.
pub fn settings() -> Settings {
    Settings {
        address: ([127, 0, 0, 1], 0).into(),
        directory: "/data".into(),
        appendonly: Appendonly::Always,
        loops: 2,
        ..Settings::default()
    }
}

#[test]
fn after_a_failed_sync_changes_are_refused_and_reads_go_on() {
    let disk = Simulated::new();
    let server = Server::start_on(&settings(), Arc::new(disk.clone())).unwrap();
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("SET a 1"), "+OK");
    disk.fail_next(Call::Sync, Fault::Io);
    for _ in 0..3 {
        assert!(client.ask("SET a 2").starts_with("-MISCONF"));
        assert_eq!(client.ask("GET a"), "1");
    }
    assert!(client.ask("INFO persistence").contains("aof_last_write_status:err"));
    assert!(server.stop().is_err(), "what is not synced is told");
}

#[test]
fn a_full_disk_refuses_changes_until_there_is_room() {
    let disk = Simulated::new();
    let server = Server::start_on(&settings(), Arc::new(disk.clone())).unwrap();
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("INCR a"), ":1");
    disk.set_capacity(Some(disk.used()));
    assert!(client.ask("INCR a").starts_with("-MISCONF"));
    assert!(client.ask("INCR a").starts_with("-MISCONF"));
    assert_eq!(client.ask("GET a"), "1");
    disk.set_capacity(None);
    // The first of the refused changes was in the journal already, and its error said that it may come about.
    let mut after = client.ask("INCR a");
    while after.starts_with("-MISCONF") {
        after = client.ask("INCR a");
    }
    let left: u64 = after[1..].parse().unwrap();
    server.stop().unwrap();
    let later = Server::start_on(&settings(), Arc::new(disk.restarted())).unwrap();
    assert_eq!(Client::new(later.address()).ask("GET a"), left.to_string());
}

#[test]
fn a_directory_has_one_server() {
    let disk = Simulated::new();
    let server = Server::start_on(&settings(), Arc::new(disk.clone())).unwrap();
    let refused = Server::start_on(&settings(), Arc::new(disk.clone())).err().unwrap();
    assert!(refused.contains("another server's"), "{refused}");
    server.stop().unwrap();
    let refused =
        Server::start_on(&Settings { appendonly: Appendonly::No, ..settings() }, Arc::new(disk)).err().unwrap();
    assert!(refused.contains("has a log"), "{refused}");
}

const DIRECTORY: &str = "ARCHIPELAGO_SERVER_DIRECTORY";

/// Runs a server in a process of its own, until it is killed: part of the test below. Does nothing without the variable.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let server = started(Settings { directory: directory.into(), ..settings() });
    println!("\nlistening on {}", server.address());
    server.wait().unwrap();
}

/// Starts a child process. Returns the process and the address on which its server listens.
pub fn spawn(directory: &Path) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "durable::child", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| line.strip_prefix("listening on ")?.parse().ok());
    // The test harness reports a test that has run for a minute, and fails if its output is not read.
    thread::spawn(move || lines.for_each(drop));
    (child, address.expect("it says where it listens"))
}

/// Sends requests until the child is killed. The answers are numbers that never fall.
fn until_killed(address: SocketAddr, line: &str, highest: &AtomicU64, end: &AtomicBool) {
    let Ok(mut client) = Client::try_new(address) else { return };
    let words: Vec<&str> = line.split(' ').collect();
    while !end.load(SeqCst) {
        let Ok(answer) = client.call(&words) else { return };
        let number = answer.trim_start_matches(':').parse().unwrap_or(0);
        highest.fetch_max(number, SeqCst);
    }
}

/// Waits until the condition holds, but no longer than a client waits for an answer.
pub fn until(holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn killed_servers_lose_nothing() {
    let kills: u64 = std::env::var("ARCHIPELAGO_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20);
    let directory = std::env::temp_dir().join(format!("archipelago-server-kill-{}", std::process::id()));
    let highest = [const { AtomicU64::new(0) }; 2];
    for kill in 0..=kills {
        let (mut child, address) = spawn(&directory);
        let mut client = Client::new(address);
        let before = highest.each_ref().map(|highest| highest.load(SeqCst));
        for (key, known) in ["a", "b"].iter().zip(before) {
            let there: u64 = client.ask(&format!("GET {key}")).parse().unwrap_or(0);
            assert!(there >= known, "{key} was {known} for its writer or a reader, and is {there} after kill {kill}");
        }
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            for (key, highest) in ["a", "b"].iter().zip(&highest) {
                let end = &end;
                scope.spawn(move || until_killed(address, &format!("INCR {key}"), highest, end));
                scope.spawn(move || until_killed(address, &format!("GET {key}"), highest, end));
            }
            // Snapshots are made without pause, so that kills hit all of their steps.
            scope.spawn(|| until_killed(address, "SAVE", &AtomicU64::new(0), &end));
            // In each life of the server, its clients see new values, however long a sync of this disk takes.
            until(|| highest.iter().zip(before).all(|(highest, before)| highest.load(SeqCst) > before));
            thread::sleep(Duration::from_millis(15 + kill * 7 % 40));
            child.kill().unwrap();
            child.wait().unwrap();
            end.store(true, SeqCst);
        });
    }
    assert!(highest.iter().all(|highest| highest.load(SeqCst) > kills), "they had nothing to lose");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_change_that_is_too_long_is_refused_alone() {
    let set = |value: String| {
        let args: Args = ["SET", "a", &value].iter().collect();
        Write::Call(operation::Call { args, ..call("SET a 1") })
    };
    let disk = Simulated::new();
    for appendonly in [Appendonly::EverySecond, Appendonly::Always] {
        let store = Store::open(Arc::new(disk.clone()), Path::new("/data"), appendonly).unwrap().0;
        let batch = vec![set("1".into()), set("x".repeat(65 << 20)), set("3".into())];
        let outcomes = store.write_many(&mut store.handle(), batch);
        assert_eq!((&outcomes[0].reply, &outcomes[2].reply), (&Reply::OK, &Reply::OK));
        assert!(
            matches!(&outcomes[1].reply, Reply::Error(fault) if fault.0.starts_with("ERR the log does not take it")),
            "{:?}",
            outcomes[1].reply
        );
        assert_eq!(values(&store).0, 3);
    }
    assert_eq!(values(&open(&disk).unwrap()).0, 3);
}

/// Asks until the answer is an error for a change that was not appended.
fn until_refused(client: &mut Client, line: &str) {
    let is_refused = |answer: &str| answer.starts_with("-MISCONF") && !answer.ends_with("may come about.");
    while !is_refused(&client.ask(line)) {}
}

#[test]
fn a_refused_transaction_is_discarded() {
    let disk = Simulated::new();
    let server = Server::start_on(&settings(), Arc::new(disk.clone())).unwrap();
    let (mut client, mut other) = (Client::new(server.address()), Client::new(server.address()));
    for line in ["WATCH a", "MULTI", "SET b 1", "SELECT 3"] {
        client.ask(line);
    }
    other.ask("WATCH a");
    disk.set_capacity(Some(disk.used()));
    until_refused(&mut other, "SET x 1");
    let refused = client.ask("EXEC");
    assert!(refused.starts_with("-EXECABORT Transaction discarded because of: MISCONF "), "{refused}");
    assert_eq!(client.ask("EXEC"), "-ERR EXEC without MULTI");
    assert_eq!(client.ask("GET b"), "$-1");
    assert_eq!(other.ask("UNWATCH"), "+OK", "the client watches nothing any more");
    disk.set_capacity(None);
    while other.ask("SET a 2") != "+OK" {}
    // Neither client watches the changed key any more, and the first client is still in its old database.
    for client in [&mut client, &mut other] {
        client.ask("MULTI");
        client.ask("SET b 2");
        assert_eq!(client.ask("EXEC"), "+OK");
    }
    assert_eq!(other.ask("GET b"), "2");
}

#[test]
fn tracking_that_the_log_refuses_does_not_count() {
    for appendonly in [Appendonly::Always, Appendonly::EverySecond] {
        let disk = Simulated::new();
        let settings = Settings { appendonly, ..settings() };
        let server = Server::start_on(&settings, Arc::new(disk.clone())).unwrap();
        let (mut client, mut other) = (Client::new(server.address()), Client::new(server.address()));
        disk.fail_next(Call::Sync, Fault::Io);
        while !other.ask("SET a 1").starts_with("-MISCONF") {}
        client.ask("HELLO 3");
        (0..14).for_each(|_| _ = client.answer().unwrap());
        assert!(client.ask("CLIENT TRACKING ON").starts_with("-MISCONF"), "{appendonly:?}");
        assert!(client.ask("CLIENT TRACKINGINFO").starts_with("%"));
        let told: Vec<String> = (0..6).map(|_| client.answer().unwrap()).collect();
        assert!(told.contains(&"~1".to_owned()) && told.contains(&"off".to_owned()), "{told:?}");
        assert!(other.ask("INFO clients").contains("tracking_clients:0"));
        assert!(server.stop().is_err());
    }
}

#[test]
fn clients_that_are_served_together_share_syncs() {
    let disk = Simulated::new();
    let server = Server::start_on(&settings(), Arc::new(disk.clone())).unwrap();
    let mut pusher = Client::new(server.address());
    let mut waiting: Vec<Client> = (0..50).map(|_| Client::new(server.address())).collect();
    for (place, client) in waiting.iter_mut().enumerate() {
        client.send(&request(&["BLPOP", "list", "0"])).unwrap();
        while !pusher.ask("INFO clients").contains(&format!("blocked_clients:{}\r\n", place + 1)) {}
    }
    let syncs = || disk.calls().iter().filter(|call| **call == Call::Sync).count();
    let before = syncs();
    let elements: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let words: Vec<&str> = ["RPUSH", "list"].into_iter().chain(elements.iter().map(String::as_str)).collect();
    assert_eq!(pusher.call(&words).unwrap(), ":50");
    for (client, element) in waiting.iter_mut().zip(&elements) {
        assert_eq!(client.answer().unwrap(), format!("list {element}"));
    }
    let took = syncs() - before;
    assert!(took <= 8, "{took} syncs for 50 clients");
}

#[test]
fn events_that_the_log_refused_are_listened_to_when_they_are_set_again() {
    let disk = Simulated::new();
    let server = Server::start_on(&settings(), Arc::new(disk.clone())).unwrap();
    let (mut client, mut listener) = (Client::new(server.address()), Client::new(server.address()));
    listener.ask("SUBSCRIBE __keyevent@0__:set __keyevent@0__:keymiss");
    listener.answer().unwrap();
    disk.set_capacity(Some(disk.used()));
    until_refused(&mut client, "SET x 1");
    until_refused(&mut client, "CONFIG SET notify-keyspace-events KEAm");
    disk.set_capacity(None);
    while client.ask("DEL x") != ":0" {}
    assert_eq!(client.ask("CONFIG SET notify-keyspace-events KEAm"), "+OK");
    assert_eq!(client.ask("SET a 1"), "+OK");
    assert_eq!(listener.answer().unwrap(), "message __keyevent@0__:set a");
    assert_eq!(client.ask("GET none"), "$-1");
    assert_eq!(listener.answer().unwrap(), "message __keyevent@0__:keymiss none");
}

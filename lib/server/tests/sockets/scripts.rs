//! Scripts: two replicas agree, and a log restores their effects.

use crate::client::{Client, server, started};
use crate::durable;
use archipelago_journal::{Disk, Fault, Simulated};
use archipelago_server::config::{Appendonly, Settings};
use archipelago_server::deadline::Deadline;
use archipelago_server::log::Store;
use archipelago_server::operation::{self, Write};
use archipelago_server::reply::Reply;
use archipelago_server::server::Server;
use archipelago_server::stops::{CallId, Entry, Stops};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BODY: &str = "for i = 1, 5 do redis.call('rpush', KEYS[1], math.random(1000), redis.call('time')[2]) end \
     redis.call('sadd', 's', 'a', 'b', 'c', 'd') redis.call('rpush', KEYS[1], redis.call('spop', 's')) \
     redis.call('incr', 'count') return redis.call('no such')";

#[test]
fn replicas_and_a_log_agree_on_scripts() {
    let disk = Simulated::new();
    let settings = Settings { replicas: 2, ..durable::settings() };
    let server = Server::start_on(&settings, Arc::new(disk.clone())).unwrap();
    let mut clients = [Client::new(server.address()), Client::new(server.address())];
    let digest = clients[0].call(&["SCRIPT", "LOAD", BODY]).unwrap();
    for round in 0..20 {
        let answer = clients[round % 2].ask(&format!("EVALSHA {digest} 1 l"));
        assert!(answer.starts_with("-ERR Unknown Redis command called from script script: "), "{answer}");
    }
    let there = clients.each_mut().map(|client| client.ask("LRANGE l 0 -1"));
    assert_eq!(there[0], there[1]);
    let left = clients.each_mut().map(|client| client.ask("SMEMBERS s"));
    assert_eq!(left[0], left[1]);
    let long =
        clients.each_mut().map(|client| client.call(&["EVAL_RO", "return redis.call('get', 'count')", "0"]).unwrap());
    assert_eq!(long, ["20", "20"]);
    assert_eq!(clients[1].ask("SCRIPT FLUSH"), "+OK");
    assert!(clients[0].ask(&format!("EVALSHA {digest} 1 l")).starts_with("-NOSCRIPT"));
    server.stop().unwrap();
    let later = Server::start_on(&settings, Arc::new(disk.restarted())).unwrap();
    let mut client = Client::new(later.address());
    assert_eq!(client.ask("LRANGE l 0 -1"), there[0]);
    assert_eq!(client.ask("SMEMBERS s"), left[0]);
    later.stop().unwrap();
}

#[test]
fn scripts_end_by_time_and_the_server_goes_on() {
    let disk = Simulated::new();
    let settings = Settings { replicas: 2, parameters: vec![("lua-time-limit", "20".into())], ..durable::settings() };
    let server = Server::start_on(&settings, Arc::new(disk.clone())).unwrap();
    let mut clients = [Client::new(server.address()), Client::new(server.address())];
    assert_eq!(clients[0].ask("CONFIG GET busy-reply-threshold"), "busy-reply-threshold 20");
    let late = "-ERR Script stopped: it ran longer than a script may script: ";
    let endless = "while true do redis.pcall('incr', 'n') end";
    for round in 0..4 {
        let answer = clients[round % 2].call(&["EVAL", endless, "0"]).unwrap();
        assert!(answer.starts_with(late), "{answer}");
        let there = clients.each_mut().map(|client| client.ask("GET n"));
        assert_eq!(there[0], there[1]);
    }
    let reads = "#!lua flags=no-writes\nwhile true do redis.call('keys', '*') end";
    assert!(clients[0].call(&["EVAL", reads, "0"]).unwrap().starts_with(late));
    let n = clients[1].ask("GET n");
    assert_eq!(clients[0].ask("CONFIG SET busy-reply-threshold 0"), "+OK");
    assert_eq!(clients[0].ask("CONFIG GET lua-time-limit"), "lua-time-limit 0");
    assert_eq!(clients[0].ask("CONFIG SET lua-time-limit 5000"), "+OK");
    assert_eq!(clients[0].call(&["EVAL", "return 1", "0"]).unwrap(), ":1");
    server.stop().unwrap();
    let later = Server::start_on(&settings, Arc::new(disk.restarted())).unwrap();
    assert_eq!(Client::new(later.address()).ask("GET n"), n);
    later.stop().unwrap();
}

/// Returns a transaction of two scripts, each with this time limit.
fn long(limit: Duration) -> Write {
    let script = |key: &str| {
        let body = format!("for i = 1, 2000 do redis.call('incr', '{key}') end");
        let args = ["eval", &body, "0"].iter().collect();
        let deadline = Some(Arc::new(Deadline::new(limit)));
        operation::Call { args, deadline, ..durable::call("eval x 0") }
    };
    Write::Exec { calls: vec![script("a"), script("b")], watched: Vec::new(), now: 1 }
}

fn open(disk: &Simulated, appendonly: Appendonly) -> Result<Store, String> {
    let store = Store::open_on(Arc::new(disk.clone()), Path::new("/data"), appendonly, 2)?.0;
    store.seed(7).map(|()| store)
}

/// Carries out a transaction of scripts. Returns `false` if the transaction was refused with MISCONF. Otherwise returns
/// whether each script ended by itself or by its time limit.
fn run(store: &Store, write: Write) -> bool {
    let outcome = store.write_many(&mut store.handle(), vec![write]).remove(0);
    match &outcome.reply {
        Reply::Array(both) => both.iter().all(|reply| match reply {
            Reply::Error(fault) => fault.0.starts_with("ERR Script stopped: it ran longer"),
            whole => *whole == Reply::Null,
        }),
        refused => {
            assert!(matches!(refused, Reply::Error(fault) if fault.0.starts_with("MISCONF")), "{refused:?}");
            false
        }
    }
}

#[test]
fn power_may_fail_at_every_call_of_a_stop() {
    let count = |disk: &Simulated, limit| {
        let Ok(store) = open(disk, Appendonly::Always) else { return (0, 0) };
        let mut told = (0, 0);
        for _ in 0..3 {
            if run(&store, long(limit)) {
                told = durable::values(&store);
            }
        }
        told
    };
    // The limit is doubled until a script on this machine makes a change before it is stopped.
    let mut limit = Duration::from_micros(400);
    let mut whole = Simulated::new();
    while count(&whole, limit) == (0, 0) {
        assert!(limit < Duration::from_secs(10), "they were stopped before they began");
        (limit, whole) = (2 * limit, Simulated::new());
    }
    let calls = whole.calls().len();
    assert!(calls > 60, "{calls} calls are too few");
    for at in 0..calls {
        let disk = Simulated::new();
        disk.fail_at(at, Fault::PowerLoss);
        let told = count(&disk, limit);
        for later in [disk.power_loss(0), disk.power_loss(1), disk.power_loss(at as u64 + 2), disk.restarted()] {
            let store = open(&later, Appendonly::Always).unwrap_or_else(|error| panic!("after call {at}: {error}"));
            let values = durable::values(&store);
            assert!(values.0 >= told.0 && values.1 >= told.1, "{told:?} became {values:?} after call {at}");
            drop(store);
            assert_eq!(durable::values(&open(&later, Appendonly::Always).unwrap()), values, "after call {at}");
        }
    }
}

#[test]
fn a_stop_that_cannot_be_kept_ends_all_changes() {
    let disk = Simulated::new();
    let store = open(&disk, Appendonly::Always).unwrap();
    assert!(run(&store, long(Duration::from_micros(300))));
    // The fourth of the next calls fails. The four calls are a write and a sync of the log, and a write and a sync of
    // the first script's entry.
    let script = long(Duration::ZERO);
    let calls = disk.calls().len();
    disk.fail_at(calls + 3, Fault::Io);
    assert!(!run(&store, script));
    assert!(store.trouble().is_some() && store.sync().is_err());
    let values = durable::values(&store);
    for _ in 0..2 {
        let outcome = store.write_many(&mut store.handle(), vec![Write::Call(durable::call("INCR a"))]).remove(0);
        assert!(matches!(&outcome.reply, Reply::Error(fault) if fault.0.starts_with("MISCONF")));
        assert_eq!(durable::values(&store), values, "reads go on");
    }
}

/// Adds an entry for the script whose record in the log ends at `place`.
fn note(disk: &Simulated, place: u64, entry: Entry) {
    Stops::open(Arc::new(disk.clone()), Path::new("/data")).unwrap().note(CallId { record: place, number: 0 }, entry);
}

fn counts_to_a_thousand() -> Write {
    let args = ["eval", "for i = 1, 1000 do redis.call('incr', 'a') end", "0"].iter().collect();
    Write::Call(operation::Call { args, ..durable::call("eval x 0") })
}

fn write(store: &Store, write: Write) -> u64 {
    store.write_many(&mut store.handle(), vec![write]);
    store.appended()
}

#[test]
fn a_script_that_ran_when_the_process_ended_is_not_carried_out() {
    let disk = Simulated::new();
    let store = open(&disk, Appendonly::Always).unwrap();
    let place = write(&store, counts_to_a_thousand());
    write(&store, Write::Call(durable::call("INCR b")));
    write(&store, counts_to_a_thousand());
    drop(store);
    assert_eq!(durable::values(&open(&disk.restarted(), Appendonly::Always).unwrap()), (2_000, 1));
    let ended = disk.restarted();
    note(&ended, place, Entry::Running);
    for _ in 0..2 {
        assert_eq!(durable::values(&open(&ended, Appendonly::Always).unwrap()), (1_000, 1));
    }
    let stopped = disk.restarted();
    note(&stopped, place, Entry::Running);
    note(&stopped, place, Entry::Stopped(500));
    // A torn entry was not synced, so no client has seen its script's effects.
    let directory = Path::new("/data/stopped");
    let segments = stopped.list(directory).unwrap().into_iter().filter(|name| name.ends_with(".segment"));
    let last = directory.join(segments.max().unwrap());
    let torn = stopped.restarted();
    // A process that ends writes a mark after the last entry. The damage cuts off this mark and some bytes before it.
    torn.damage(&last, |bytes| bytes.truncate(bytes.len() - 40));
    for _ in 0..2 {
        let (a, b) = durable::values(&open(&stopped, Appendonly::Always).unwrap());
        assert!((1_300..1_500).contains(&a) && b == 1, "calls are most of the points: {a} and {b}");
    }
    assert_eq!(durable::values(&open(&torn, Appendonly::Always).unwrap()), (1_000, 1));
}

#[test]
fn stops_of_what_a_power_failure_took_hold_for_nothing_else() {
    let disk = Simulated::new();
    let store = open(&disk, Appendonly::EverySecond).unwrap();
    let place = write(&store, counts_to_a_thousand());
    let lost = disk.power_loss(0);
    drop(store);
    note(&lost, place, Entry::Stopped(10));
    let store = open(&lost, Appendonly::EverySecond).unwrap();
    assert_eq!(durable::values(&store), (0, 0), "it was synced meanwhile");
    assert_eq!(write(&store, counts_to_a_thousand()), place, "the place is given again");
    drop(store);
    assert_eq!(durable::values(&open(&lost, Appendonly::EverySecond).unwrap()), (1_000, 0));
}

#[test]
fn scripts_publish_once_however_many_replicas_run_them() {
    let server = started(Settings { loops: 2, replicas: 2, ..Settings::default() });
    let (mut hears, mut client) = (Client::new(server.address()), Client::new(server.address()));
    assert_eq!(hears.ask("SUBSCRIBE news"), "subscribe news :1");
    assert_eq!(hears.ask("PSUBSCRIBE n?ws"), "psubscribe n?ws :2");
    assert_eq!(hears.ask("SSUBSCRIBE news"), "ssubscribe news :1");
    let text = "redis.call('set', KEYS[1], 'v') redis.call('publish', 'news', ARGV[1]) return redis.call('spublish', 'news', 'of a shard')";
    // A script gets 0 as the number of receivers, because no replica knows this number.
    assert_eq!(client.call(&["EVAL", text, "1", "k", "one"]).unwrap(), ":0");
    // A script in a transaction may publish, but a script that may only read may not.
    client.ask("MULTI");
    client.call(&["EVAL", "return redis.call('publish', 'news', 'two')", "0"]).unwrap();
    assert_eq!(client.ask("EXEC"), ":0");
    assert!(
        client.call(&["EVAL_RO", "return redis.call('publish', 'news', 'x')", "0"]).unwrap().contains("not allowed")
    );
    let many = "for at = 1, 30 do redis.call('publish', 'none', ('x'):rep(1000000)) end";
    assert!(client.call(&["EVAL", many, "0"]).unwrap().contains("too many messages"));
    client.ask("PUBLISH news last");
    for expected in [
        "message news one",
        "pmessage n?ws news one",
        "smessage news of a shard",
        "message news two",
        "pmessage n?ws news two",
        "message news last",
        "pmessage n?ws news last",
    ] {
        assert_eq!(hears.answer().unwrap(), expected);
    }
    server.stop().unwrap();
}

#[test]
fn a_script_may_ask_what_its_user_may_do() {
    let server = started(Settings::default());
    let mut client = Client::new(server.address());
    client.ask("ACL SETUSER reader on nopass ~a* +get +eval +publish &news");
    client.ask("AUTH reader x");
    for (call, may) in
        [("'get', 'abc'", ":1"), ("'get', 'b'", "$-1"), ("'set', 'a', 'b'", "$-1"), ("'publish', 'news', ''", ":1")]
    {
        let text = format!("return redis.acl_check_cmd({call})");
        assert_eq!(client.call(&["EVAL", &text, "0"]).unwrap(), may, "{call}");
    }
    let denied = client.call(&["EVAL", "return redis.call('publish', 'other', 'x')", "0"]).unwrap();
    assert!(denied.contains("can't publish to the channel"), "{denied}");
    server.stop().unwrap();
}

/// Lua 5.1's `pcall` pushes its own result next to the function's results, and uses the stack's reserve for it.
#[test]
fn protected_calls_may_return_much() {
    let server = server(1);
    let mut client = Client::new(server.address());
    for (body, answer) in [
        ("return select('#', pcall(unpack, {}, 1, 100))", ":101"),
        ("local function f() return pcall(f) end f() return 1", ":1"),
        ("local function f() return xpcall(f, f) end f() return 1", ":1"),
    ] {
        assert_eq!(client.call(&["EVAL", body, "0"]).unwrap(), answer, "{body}");
    }
}

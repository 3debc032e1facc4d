//! Servers on several NUMA nodes. The nodes are synthetic: each node has a replica of the database and event loops of its
//! own, and all nodes share this machine's memory and processors.

use std::collections::BTreeSet;
use std::env;
use std::path::PathBuf;
use std::process::{self, Command};
use std::time::SystemTime;

use archipelago_platform::topology::Topology;
use archipelago_server::config::{Appendonly, Settings};

use crate::client::{Client, request, server};
use crate::{linear, several};

const NODES: &str = "ARCHIPELAGO_SERVER_NODES";

#[test]
fn two_nodes() {
    on_nodes(2);
}

#[test]
fn four_nodes() {
    on_nodes(4);
}

/// Runs [`child`] in a process of its own, because a process reads its topology once.
fn on_nodes(nodes: usize) {
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["--exact", "nodes::child", "--nocapture"]);
    child.env(NODES, nodes.to_string()).env("ARCHIPELAGO_TOPOLOGY", format!("{nodes}x1x1"));
    let done = child.output().unwrap();
    let [said, told] = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(done.status.success() && said.contains("1 passed"), "{said}{told}");
}

/// The tests of a process with its own topology. Does nothing without the variable.
#[test]
fn child() {
    let Some(nodes) = env::var(NODES).ok().and_then(|nodes| nodes.parse().ok()) else { return };
    assert_eq!(Topology::current().nodes().len(), nodes);
    each_loop_reads_the_replica_of_its_node(nodes);
    loops_agree(nodes);
    clients_wait_for_those_of_other_nodes(nodes);
    let loops = nodes;
    several::undisturbed(Settings { loops, ..Settings::default() }, 800);
    linear::history(Settings { loops, ..Settings::default() }, 1_500);
    let directory: PathBuf = env::temp_dir().join(format!("archipelago-server-nodes-{}", process::id()));
    let logged =
        Settings { loops, directory: directory.clone(), appendonly: Appendonly::Always, ..Settings::default() };
    linear::history(logged, 300);
    std::fs::remove_dir_all(directory).unwrap();
}

/// Returns a client on each loop: the server deals connections to its loops in turn.
fn on_each_loop(address: std::net::SocketAddr, loops: usize) -> Vec<Client> {
    (0..loops).map(|_| Client::new(address)).collect()
}

/// A replica records only the uses of keys by its own clients.
fn each_loop_reads_the_replica_of_its_node(nodes: usize) {
    let server = server(2 * nodes);
    let mut clients = on_each_loop(server.address(), 2 * nodes);
    assert!(clients[0].ask("INFO replication").contains(&format!("replicas:{nodes}\r\n")));
    assert_eq!(clients[0].ask("CONFIG SET maxmemory-policy allkeys-lfu"), "+OK");
    for user in 0..2 * nodes {
        let key = format!("key{user}");
        clients[0].ask(&format!("SET {key} 1"));
        let minute = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 60;
        // When a minute begins, counts of uses decay.
        let uses = loop {
            let before = minute();
            (0..10).for_each(|_| assert_eq!(clients[user].ask(&format!("GET {key}")), "1"));
            let uses: Vec<String> = clients.iter_mut().map(|it| it.ask(&format!("OBJECT FREQ {key}"))).collect();
            if minute() == before {
                break uses;
            }
        };
        let fresh = &uses[(user + 1) % (2 * nodes)];
        for (at, count) in uses.iter().enumerate() {
            assert_eq!(count != fresh, at % nodes == user % nodes, "used by {user}: {uses:?}");
        }
    }
}

/// A client on any loop sees at once what a client on another loop was told.
fn loops_agree(nodes: usize) {
    const LIBRARY: &str =
        "#!lua name=l\nredis.register_function('add', function(k, a) return redis.call('RPUSH', k[1], a[1]) end)";
    let server = server(2 * nodes);
    let mut clients = on_each_loop(server.address(), 2 * nodes);
    assert_eq!(clients[1].call(&["FUNCTION", "LOAD", LIBRARY]).unwrap(), "l");
    let script = "return redis.call('SET', KEYS[1], ARGV[1])";
    for round in 0..360 {
        let number = &round.to_string()[..];
        let (change, look): (&[&str], &[&str]) = match round % 12 {
            0 => (&["SET", "string", number], &["GET", "string"]),
            1 => (&["RPUSH", "list", number], &["LRANGE", "list", "0", "-1"]),
            2 => (&["SADD", "set", number, "a", "b"], &["SMEMBERS", "set"]),
            3 => (&["SPOP", "set"], &["SMEMBERS", "set"]),
            4 => (&["HSET", "hash", number, number], &["HGETALL", "hash"]),
            5 => (&["ZADD", "zset", number, number], &["ZRANGE", "zset", "0", "-1", "WITHSCORES"]),
            6 => (&["XADD", "stream", "*", "field", number], &["XRANGE", "stream", "-", "+"]),
            7 => (&["PFADD", "counts", number], &["PFCOUNT", "counts"]),
            8 => (&["EVAL", script, "1", "scripted", number], &["GET", "scripted"]),
            9 => (&["FCALL", "add", "1", "list", number], &["LRANGE", "list", "0", "-1"]),
            10 => (&["RENAME", "string", "renamed"], &["KEYS", "*"]),
            _ => (&["DEL", "renamed"], &["DBSIZE"]),
        };
        let told = clients[round % (2 * nodes)].call(change).unwrap();
        assert!(!told.starts_with('-'), "{change:?}: {told}");
        let seen: BTreeSet<String> = clients.iter_mut().map(|client| client.call(look).unwrap()).collect();
        assert_eq!(seen.len(), 1, "after {change:?}: {seen:?}");
    }
    for key in ["list", "set", "hash", "zset", "stream", "counts", "scripted"] {
        let seen: BTreeSet<String> = clients.iter_mut().map(|client| client.ask(&format!("DUMP {key}"))).collect();
        assert!(seen.len() == 1 && !seen.contains("$-1"), "{key}: {seen:?}");
    }
}

fn clients_wait_for_those_of_other_nodes(nodes: usize) {
    let server = server(nodes);
    let mut clients = on_each_loop(server.address(), nodes);
    let mut other = Client::new(server.address());
    for waiting in 0..nodes {
        let pusher = (waiting + 1) % nodes;
        clients[waiting].send(&request(&["BLPOP", "list", "0"])).unwrap();
        while !other.ask("INFO clients").contains("blocked_clients:1\r\n") {}
        assert_eq!(clients[pusher].ask("RPUSH list a"), ":1");
        assert_eq!(clients[waiting].answer().unwrap(), "list a");
        assert_eq!(clients[waiting].ask("SUBSCRIBE news"), "subscribe news :1");
        assert_eq!(clients[pusher].ask("PUBLISH news b"), ":1");
        assert_eq!(clients[waiting].answer().unwrap(), "message news b");
        assert_eq!(clients[waiting].ask("UNSUBSCRIBE news"), "unsubscribe news :0");
    }
}

//! Keys that expire and that no client accesses afterwards.

use crate::client::{Client, request, started};
use archipelago_journal::Simulated;
use archipelago_server::config::{Appendonly, Settings};
use archipelago_server::server::Server;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

fn fill(client: &mut Client, keys: usize, millis: &str) {
    let mut all = Vec::new();
    (0..keys).for_each(|key| all.extend(request(&["SET", &format!("key:{key}"), "value", "PX", millis])));
    client.send(&all).unwrap();
    (0..keys).for_each(|_| assert_eq!(client.answer().unwrap(), "+OK"));
}

/// Waits until the database has this number of keys.
fn until(client: &mut Client, keys: &str) {
    for _ in 0..600 {
        if client.ask("DBSIZE") == keys {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    panic!("there are {} keys, not {keys}", client.ask("DBSIZE"));
}

#[test]
fn what_has_expired_goes_although_no_client_asks_for_it() {
    let server = started(Settings::default());
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("SET stays 1 EX 1000"), "+OK");
    assert_eq!(client.ask("SET other 1"), "+OK");
    fill(&mut client, 20_000, "100");
    until(&mut client, ":2");
    assert_eq!(client.ask("SELECT 3"), "+OK");
    fill(&mut client, 100, "10");
    until(&mut client, ":0");
    server.stop().unwrap();
}

#[test]
fn the_log_hears_of_expiry_only_where_something_expired() {
    let settings = Settings {
        address: ([127, 0, 0, 1], 0).into(),
        directory: Path::new("/data").into(),
        appendonly: Appendonly::Always,
        ..Settings::default()
    };
    let disk = Simulated::new();
    let server = Server::start_on(&settings, Arc::new(disk.clone())).unwrap();
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("SET stays 1 EX 1000"), "+OK");
    let calls = disk.calls().len();
    // The sleep lasts several ticks, at each of which the server checks the key's expiry time.
    sleep(Duration::from_millis(450));
    assert_eq!(disk.calls().len(), calls, "nothing has expired, and the disk was used");
    fill(&mut client, 300, "50");
    until(&mut client, ":1");
    assert!(disk.calls().len() > calls);
    server.stop().unwrap();
    let later = Server::start_on(&settings, Arc::new(disk.restarted())).unwrap();
    assert_eq!(Client::new(later.address()).ask("DBSIZE"), ":1");
}

#[test]
fn fields_that_are_due_go_although_no_client_asks_for_them() {
    let server = started(Settings::default());
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("HSET stays f 1 g 2"), ":2");
    assert_eq!(client.ask("HPEXPIRE stays 100000 FIELDS 1 f"), ":1");
    let fields: Vec<String> = (0..6_000).map(|field| format!("{field} value")).collect();
    let line = format!("HSETEX many PX 100000 FIELDS 6000 {}", fields.join(" "));
    assert_eq!(client.ask(&line), ":1");
    assert!(client.ask("INFO keyspace").contains("subexpiry=2"));
    // The fields become due only after both keys have been seen in the count.
    assert_eq!(client.ask("HPEXPIRE stays 30 FIELDS 1 f"), ":1");
    let fields: Vec<String> = (0..6_000).map(|field| field.to_string()).collect();
    let told = client.ask(&format!("HPEXPIRE many 100 FIELDS 6000 {}", fields.join(" ")));
    assert_eq!(told, vec![":1"; 6_000].join(" "));
    until(&mut client, ":1");
    assert_eq!(client.ask("HGETALL stays"), "g 2");
    assert!(client.ask("INFO keyspace").contains("subexpiry=0"));
    assert_eq!(client.ask("OBJECT ENCODING stays"), "listpack", "the field is gone, not only out of sight");
    server.stop().unwrap();
}

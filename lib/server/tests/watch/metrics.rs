//! Metrics over HTTP.

use crate::client::{Client, server};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

fn get(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: here\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the value of a metric.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("archipelago_{name} ")));
    line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
}

#[test]
fn counts_are_told_as_prometheus_reads_them() {
    let mut server = server(2);
    let address = server.tell_metrics(([127, 0, 0, 1], 0).into()).unwrap();
    let mut clients = [Client::new(server.address()), Client::new(server.address())];
    for client in &mut clients {
        (0..10).for_each(|key| _ = client.ask(&format!("SET k{key} 1 EX 1000")));
        client.ask("LPUSH k0 x");
        client.ask("GET k0");
    }
    // A replica applies changes when a client of its node asks for something.
    clients.iter_mut().for_each(|client| _ = client.ask("GET k0"));
    let answer = get(address, "GET /metrics");
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", text.len())));
    assert_eq!(value(text, "connected_clients"), 2.0);
    assert_eq!(value(text, "requests_total"), 26.0);
    assert_eq!(value(text, "command_calls_total{command=\"set\"}"), 20.0);
    assert_eq!(value(text, "command_failures_total{command=\"lpush\"}"), 2.0);
    assert_eq!(value(text, "keys{db=\"0\"}"), 10.0);
    assert_eq!(value(text, "keys_expiring{db=\"0\"}"), 10.0);
    let without_clients = (value(text, "replicas") - 2.0).max(0.0);
    assert!(value(text, "replica_lag_changes") <= without_clients * value(text, "changes_total"));
    assert!(value(text, "resident_bytes") > 1e6);
    // Each bucket includes the counts of all smaller buckets. The last bucket counts all requests.
    let buckets = text.lines().filter(|line| line.starts_with("archipelago_request_seconds_bucket"));
    let counts: Vec<u64> = buckets.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    assert!(counts.is_sorted() && counts.last() == Some(&26), "{counts:?}");
    assert_eq!(value(text, "request_seconds_count"), 26.0);
    // Each metric has its type once, before its values.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let of = ["_bucket", "_sum", "_count"].iter().fold(name, |name, end| name.strip_suffix(end).unwrap_or(name));
        assert_eq!(text.matches(&format!("# TYPE {of} ")).count(), 1, "{line}");
    }
}

#[test]
fn a_page_and_what_is_none() {
    let mut server = server(1);
    let address = server.tell_metrics(([127, 0, 0, 1], 0).into()).unwrap();
    assert!(get(address, "GET /").contains("<title>archipelago</title>"));
    let head = get(address, "HEAD /");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"));
    assert!(get(address, "GET /other").starts_with("HTTP/1.1 404 "));
    assert!(get(address, "POST /metrics").starts_with("HTTP/1.1 405 "));
    // Connections without a request prevent neither other requests nor the server's end.
    let silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(get(address, "GET /metrics").starts_with("HTTP/1.1 200 OK"));
    server.stop().unwrap();
    drop(silent);
}

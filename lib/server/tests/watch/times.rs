//! Slow commands, counts of commands, and `MONITOR`.

use crate::client::{Client, server, started};
use archipelago_server::config::{DebugAccess, Settings};

#[test]
fn slow_commands_are_logged_with_their_words() {
    let server = server(2);
    let mut client = Client::new(server.address());
    client.ask("CLIENT SETNAME me");
    client.ask("CONFIG SET slowlog-log-slower-than 0");
    client.ask("SET a 1");
    client.ask("GET a");
    let long = "w".repeat(200);
    client.call(&["SET", "b", &long]).unwrap();
    let many: Vec<String> = ["DEL".to_owned()].into_iter().chain((0..40).map(|key| format!("k{key}"))).collect();
    client.call(&many.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    for line in ["MULTI", "SADD set 1", "CLIENT ID", "EXEC"] {
        client.ask(line);
    }
    client.ask("CONFIG SET slowlog-log-slower-than -1");
    let log = client.ask("SLOWLOG GET -1");
    // The last entry comes first. Commands of the server in a transaction are not logged.
    let [exec, sadd] = [" EXEC ... (commands: 2) 127.0.0.1:", " SADD set 1 127.0.0.1:"].map(|line| log.find(line));
    assert!(exec.is_some() && exec < sadd && !log.contains(" CLIENT ID "), "{log}");
    assert!(log.contains(" SET a 1 127.0.0.1:") && log.contains(" GET a 127.0.0.1:"), "{log}");
    assert!(log.contains(&format!("SET b {}... (72 more bytes)", "w".repeat(128))), "{log}");
    assert!(log.contains(" k29 ... (10 more arguments) 127.0.0.1:"), "{log}");
    assert!(log.contains(" me"), "{log}");
    let count: usize = client.ask("SLOWLOG LEN")[1..].parse().unwrap();
    assert!(count >= 5);
    assert!(client.ask("SLOWLOG GET 1").starts_with(&format!(":{} ", count - 1)), "the last is first");
    client.ask("CONFIG SET slowlog-max-len 2");
    assert_eq!(client.ask("SLOWLOG LEN"), ":2");
    assert_eq!(client.ask("SLOWLOG RESET"), "+OK");
    assert_eq!(client.ask("SLOWLOG LEN"), ":0");
    client.ask("GET a");
    assert_eq!(client.ask("SLOWLOG LEN"), ":0", "nothing is logged when the limit is negative");
    assert_eq!(client.ask("SLOWLOG GET -2"), "-ERR count should be greater than or equal to -1");
}

#[test]
fn latency_is_sampled_and_told() {
    let server = started(Settings { debug: DebugAccess::Yes, ..Settings::default() });
    let mut client = Client::new(server.address());
    assert!(client.ask("LATENCY DOCTOR").contains("not monitored"));
    client.ask("CONFIG SET latency-monitor-threshold 300");
    // No other command lasts so long, unless the server gets no processor for this time.
    client.ask("DEBUG SLEEP 0.5");
    let latest = client.ask("LATENCY LATEST");
    assert!(latest.starts_with("command :"), "{latest}");
    assert!(client.ask("LATENCY HISTORY command").starts_with(':'));
    assert!(client.ask("LATENCY DOCTOR").contains("- command: 1 seconds"));
    assert!(client.ask("LATENCY GRAPH command").starts_with("command - high"));
    assert_eq!(client.ask("LATENCY GRAPH none"), "-ERR No samples available for event 'none'");
    assert_eq!(client.ask("LATENCY RESET none command"), ":1");
    assert_eq!(client.ask("LATENCY LATEST"), "");
}

#[test]
fn commands_are_counted() {
    let server = server(2);
    let mut clients = [Client::new(server.address()), Client::new(server.address())];
    for client in &mut clients {
        (0..10).for_each(|_| _ = client.ask("GET a"));
        client.ask("LPUSH list 1");
        client.ask("INCR list");
    }
    let client = &mut clients[0];
    let info = client.ask("INFO commandstats");
    let row = |name: &str| info.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:"))).unwrap().to_owned();
    assert!(row("get").starts_with("cmdstat_get:calls=20,usec="), "{info}");
    assert!(row("lpush").starts_with("cmdstat_lpush:calls=2,"), "{info}");
    assert!(row("incr").ends_with("rejected_calls=0,failed_calls=2"), "{info}");
    assert!(client.ask("LATENCY HISTOGRAM GET").starts_with("get calls :20 histogram_usec "));
    assert!(client.ask("INFO latencystats").contains("latency_percentiles_usec_get:p50="));
    let default = client.ask("INFO");
    for section in ["Server", "Clients", "Memory", "Persistence", "Stats", "Replication", "CPU", "Keyspace"] {
        assert!(default.contains(&format!("# {section}\r\n")), "{section}");
    }
    assert!(!default.contains("# Commandstats") && client.ask("INFO everything").contains("# Commandstats"));
    let two = client.ask("INFO server cpu");
    assert!(two.contains("# Server") && two.contains("# CPU") && !two.contains("# Stats"));
    assert_eq!(client.ask("CONFIG RESETSTAT"), "+OK");
    assert!(!client.ask("INFO commandstats").contains("cmdstat_get"));
}

#[test]
fn a_monitor_sees_all_requests_but_passwords() {
    let server = server(2);
    let (mut monitor, mut client) = (Client::new(server.address()), Client::new(server.address()));
    assert_eq!(monitor.ask("MONITOR"), "+OK");
    client.ask("AUTH secret");
    client.ask("CONFIG GET port");
    client.ask("ACL SETUSER u >secret");
    client.call(&["SET", "a b", "\"\n\u{1}"]).unwrap();
    let seen = monitor.answer().unwrap();
    let (time, rest) = seen.split_once(' ').unwrap();
    assert!(time.starts_with('+') && time.split_once('.').unwrap().1.len() == 6, "{seen}");
    assert!(rest.starts_with("[0 127.0.0.1:") && rest.ends_with("] \"SET\" \"a b\" \"\\\"\\n\\x01\""), "{seen}");
    assert!(client.ask("CLIENT LIST").contains("flags=O"));
    client.ask("CLIENT ID");
    assert_eq!(monitor.answer().unwrap().rsplit_once("] ").unwrap().1, "\"CLIENT\" \"ID\"");
    // After the answer to `RESET` no more lines arrive, not even for earlier requests.
    (0..100).for_each(|_| client.send(&crate::client::request(&["GET", "a"])).unwrap());
    let mut line = monitor.ask("RESET");
    while line != "+RESET" {
        line = monitor.answer().unwrap();
    }
    assert_eq!(monitor.ask("PING"), "+PONG");
}

#[test]
fn the_slow_log_has_no_passwords() {
    let server = server(1);
    let mut client = Client::new(server.address());
    client.ask("CONFIG SET slowlog-log-slower-than 0");
    for (line, shown) in [
        ("AUTH default secret", "AUTH (redacted) (redacted)"),
        ("HELLO 2 AUTH default secret SETNAME me", "HELLO 2 AUTH (redacted) (redacted) SETNAME me"),
        ("ACL SETUSER u >secret", "ACL SETUSER (redacted) (redacted)"),
        ("CONFIG SET maxmemory 0 requirepass secret", "CONFIG SET maxmemory 0 requirepass (redacted)"),
        ("ACL GETUSER u", "ACL GETUSER u"),
    ] {
        client.ask(line);
        let log = client.ask("SLOWLOG GET 1");
        assert!(log.contains(&format!(" {shown} 127.0.0.1:")), "{line}: {log}");
    }
}

//! Long reads run outside of their event loop. Answers come in order nevertheless.

use archipelago_server::config::{Appendonly, Settings};

use crate::client::{Client, request, started};

/// A read of this number of keys is too long for a loop.
const KEYS: usize = 20_000;

fn fill(client: &mut Client) {
    let mut all = Vec::new();
    for number in 0..KEYS {
        all.extend(request(&["SET", &format!("key:{number}"), "1"]));
        all.extend(request(&["ZADD", "z", &number.to_string(), &format!("member:{number}")]));
    }
    client.send(&all).unwrap();
    (0..2 * KEYS).for_each(|_| _ = client.answer().unwrap());
}

/// One client sends long reads, short reads and changes alternately in one run of bytes. Other clients of the loop send
/// requests meanwhile.
fn answers_come_in_order(settings: Settings) {
    let server = started(settings);
    let (mut one, mut other) = (Client::new(server.address()), Client::new(server.address()));
    fill(&mut one);
    let mut all = Vec::new();
    for round in 0..20 {
        for line in [format!("SET n {round}"), "KEYS *".into(), "GET n".into(), "ZRANGE z 0 -1".into(), "INCR n".into()]
        {
            all.extend(request(&line.split(' ').collect::<Vec<_>>()));
        }
    }
    one.send(&all).unwrap();
    for round in 0..20 {
        assert_eq!(other.ask("ZRANK z member:77"), ":77");
        assert_eq!(one.answer().unwrap(), "+OK");
        assert_eq!(one.answer().unwrap().split(' ').count(), KEYS + 2);
        assert_eq!(one.answer().unwrap(), round.to_string());
        assert_eq!(one.answer().unwrap().split(' ').count(), KEYS);
        assert_eq!(one.answer().unwrap(), format!(":{}", round + 1));
        assert_eq!(other.ask("SET key:7 2"), "+OK");
        // In a transaction the long read is part of the transaction.
        assert_eq!(other.ask("MULTI"), "+OK");
        assert_eq!(other.ask("ZRANGE z 0 -1"), "+QUEUED");
        assert_eq!(other.ask("EXEC").split(' ').count(), KEYS);
    }
    assert_eq!(one.ask("DBSIZE"), format!(":{}", KEYS + 2));
}

#[test]
fn answers_come_in_order_beside_other_clients() {
    for (loops, replicas) in [(1, 0), (1, 2), (2, 3)] {
        answers_come_in_order(Settings { loops, replicas, ..Settings::default() });
    }
}

#[test]
fn clients_leave_and_servers_end_during_long_reads() {
    let directory = std::env::temp_dir().join(format!("archipelago-long-{}", std::process::id()));
    let settings =
        Settings { replicas: 2, directory: directory.clone(), appendonly: Appendonly::Always, ..Settings::default() };
    let server = started(settings);
    let mut writer = Client::new(server.address());
    fill(&mut writer);
    for _ in 0..50 {
        let mut client = Client::new(server.address());
        client.send(&request(&["KEYS", "*"]).repeat(10)).unwrap();
        client.send(&request(&["SET", "last", "1"])).unwrap();
    }
    assert_eq!(writer.ask("SET a b"), "+OK");
    while !writer.ask("INFO clients").contains("connected_clients:1\r\n") {}
    writer.send(&request(&["KEYS", "*"]).repeat(10)).unwrap();
    server.stop().unwrap();
    std::fs::remove_dir_all(directory).unwrap();
}

//! Client-side caches: which clients are told that a key changed.

use crate::client::{Client, server, started};
use archipelago_server::config::{Appendonly, Settings};
use std::collections::BTreeMap;
use std::thread;

/// Returns a RESP3 client that tracks keys.
fn tracking(address: std::net::SocketAddr, words: &str) -> Client {
    let mut client = Client::new(address);
    three(&mut client);
    assert_eq!(client.ask(&format!("CLIENT TRACKING ON{words}")), "+OK");
    client
}

/// Sends `HELLO 3`. Reads its answer, which is a map.
fn three(client: &mut Client) {
    assert!(client.ask("HELLO 3").starts_with("%"));
    (0..14).for_each(|_| _ = client.answer().unwrap());
}

#[test]
fn a_key_is_told_once_each_time_it_was_read() {
    let server = server(2);
    let mut other = Client::new(server.address());
    let mut client = tracking(server.address(), "");
    for line in ["SET a 1", "SET b 1"] {
        other.ask(line);
    }
    assert_eq!(client.ask("GET a"), "1");
    for line in ["SET b 2", "SET a 2", "SET a 3"] {
        other.ask(line);
    }
    assert_eq!(client.answer().unwrap(), "invalidate a");
    assert_eq!(client.ask("PING"), "+PONG", "the second change is not told");
    assert_eq!(client.ask("MGET a b none"), "3 2 _");
    other.ask("DEL a none");
    assert_eq!(client.answer().unwrap(), "invalidate a");
    other.ask("SET none 1");
    assert_eq!(client.answer().unwrap(), "invalidate none");
    other.ask("FLUSHALL");
    assert_eq!(client.answer().unwrap(), "invalidate _");
    // Keys that a transaction reads are tracked, too. An expiry counts as a change.
    client.ask("MULTI");
    client.ask("GET x");
    assert_eq!(client.ask("EXEC"), "_");
    // The times are long enough to be read before they end.
    other.ask("SET x 1 PX 500");
    assert_eq!(client.answer().unwrap(), "invalidate x");
    client.ask("GET x");
    assert_eq!(client.answer().unwrap(), "invalidate x", "it has expired");
    other.ask("HSET h f 1 g 2");
    client.ask("HGET h f");
    other.ask("HPEXPIRE h 500 FIELDS 1 f");
    assert_eq!(client.answer().unwrap(), "invalidate h");
    client.ask("HGET h f");
    assert_eq!(client.answer().unwrap(), "invalidate h", "a field has expired");
    assert_eq!(client.ask("HMGET h f g"), "_ 2");
    // Commands that are operations of the log read keys, too.
    other.ask("SET s 1");
    let script = ["EVAL", "return redis.call('get', KEYS[1])", "1", "s"];
    other.ask("XADD x:s 1-1 f v");
    assert_eq!(client.call(&script).unwrap(), "1");
    other.ask("SET s 2");
    assert_eq!(client.answer().unwrap(), "invalidate s");
    for (reads, key, changes) in [
        ("PFCOUNT p", "p", "PFADD p a"),
        ("XREAD BLOCK 10 STREAMS x:s 0", "x:s", "XADD x:s 2-1 f v"),
        ("MEMORY USAGE s", "s", "SET s 3"),
    ] {
        for within in [false, true] {
            other.ask("DEL p");
            if within {
                client.ask("MULTI");
            }
            client.ask(reads);
            if within {
                client.ask("EXEC");
            }
            // The answer is a map, whose parts are read one by one.
            (0..if key == "x:s" { 2 } else { 0 }).for_each(|_| _ = client.answer().unwrap());
            other.ask(&changes.replace("2-1", if within { "3-1" } else { "2-1" }));
            assert_eq!(client.answer().unwrap(), format!("invalidate {key}"), "{reads}");
        }
    }
    // A client's own changes are reported to it after their answers.
    client.ask("GET a");
    assert_eq!(client.ask("SET a 1"), "+OK");
    assert_eq!(client.answer().unwrap(), "invalidate a");
    client.ask("GET a");
    assert_eq!(client.ask("CLIENT TRACKING OFF"), "+OK");
    other.ask("SET a 2");
    assert_eq!(client.ask("PING"), "+PONG");
    assert!(other.ask("INFO clients").contains("tracking_clients:0"));
}

#[test]
fn modes() {
    let server = server(2);
    let mut other = Client::new(server.address());
    let mut broadcast = tracking(server.address(), " BCAST PREFIX user: PREFIX item: NOLOOP");
    other.ask("MSET user:1 a user:2 b none c");
    assert_eq!(broadcast.answer().unwrap(), "invalidate user:1 user:2");
    assert_eq!(broadcast.ask("SET item:1 x"), "+OK");
    other.ask("SET item:2 x");
    assert_eq!(broadcast.answer().unwrap(), "invalidate item:2");
    assert!(broadcast.ask("CLIENT TRACKING ON BCAST PREFIX user").contains("overlaps with an existing prefix 'user:'"));
    let mut all = tracking(server.address(), " BCAST");
    other.ask("SET anything 1");
    assert_eq!(all.answer().unwrap(), "invalidate anything");

    let mut opt_in = tracking(server.address(), " OPTIN");
    opt_in.ask("GET a");
    assert_eq!(opt_in.ask("CLIENT CACHING YES"), "+OK");
    opt_in.ask("GET b");
    opt_in.ask("GET c");
    other.ask("MSET a 1 b 1 c 1");
    assert_eq!(opt_in.answer().unwrap(), "invalidate b");
    assert_eq!(opt_in.ask("PING"), "+PONG");
    assert!(opt_in.ask("CLIENT CACHING NO").contains("only valid when tracking is enabled in OPTOUT mode"));

    let mut opt_out = tracking(server.address(), " OPTOUT");
    opt_out.ask("CLIENT CACHING NO");
    opt_out.ask("GET a");
    opt_out.ask("GET b");
    other.ask("MSET a 2 b 2");
    assert_eq!(opt_out.answer().unwrap(), "invalidate b");
    assert_eq!(opt_out.ask("PING"), "+PONG");

    let mut plain = Client::new(server.address());
    assert_eq!(plain.ask("CLIENT TRACKING ON BCAST OPTIN"), "-ERR OPTIN and OPTOUT are not compatible with BCAST");
    assert_eq!(plain.ask("CLIENT TRACKING ON OPTOUT OPTIN"), "-ERR You can't specify both OPTIN mode and OPTOUT mode");
    assert_eq!(plain.ask("CLIENT TRACKING ON PREFIX a"), "-ERR PREFIX option requires BCAST mode to be enabled");
    assert_eq!(plain.ask("CLIENT TRACKING ON REDIRECT 999"), "-ERR The client ID you want redirect to does not exist");
    assert!(plain.ask("CLIENT CACHING YES").contains("only when the client is in tracking mode"));
    assert_eq!(plain.ask("CLIENT GETREDIR"), ":-1");
    assert_eq!(plain.ask("CLIENT TRACKINGINFO"), "flags off redirect :-1 prefixes ");
}

/// Reads the messages that the server has sent to a client so far.
fn told(client: &mut Client) -> Vec<String> {
    client.send(&crate::client::request(&["PING"])).unwrap();
    std::iter::from_fn(|| Some(client.answer().unwrap()).filter(|answer| answer != "+PONG")).collect()
}

/// The invalidations are those of redis-server 7.0.15. `CLIENT CACHING` takes a transaction, from `MULTI` on, as one
/// command. `CLIENT CACHING` within a transaction counts for the commands of the transaction after it.
#[test]
fn caching_is_for_one_command_or_transaction() {
    let server = server(2);
    let mut other = Client::new(server.address());
    for (mode, lines, expected) in [
        ("OPTIN", "CLIENT CACHING YES;CLIENT ID;GET a;GET b", "a"),
        ("OPTIN", "CLIENT CACHING YES;NOSUCH;GET a", ""),
        ("OPTIN", "CLIENT CACHING YES;WATCH a;GET a", ""),
        ("OPTIN", "CLIENT CACHING YES;MULTI;GET a;GET b;EXEC", "a b"),
        ("OPTIN", "CLIENT CACHING YES;MULTI;GET a;EXEC;GET b", "a"),
        ("OPTIN", "CLIENT CACHING YES;MULTI;DISCARD;GET a", ""),
        ("OPTIN", "CLIENT CACHING YES;MULTI;NOSUCH;EXEC;GET a", ""),
        ("OPTIN", "MULTI;CLIENT CACHING YES;GET a;GET b;EXEC", "a b"),
        ("OPTIN", "MULTI;GET a;CLIENT CACHING YES;SET c 1;GET b;EXEC", "b"),
        ("OPTIN", "MULTI;CLIENT CACHING NO;GET a;EXEC", ""),
        ("OPTIN", "CLIENT CACHING YES;MULTI;CLIENT CACHING NO;GET a;EXEC", "a"),
        ("OPTIN", "MULTI;CLIENT CACHING YES;PING;EXEC;GET a", ""),
        ("OPTIN", "MULTI;CLIENT CACHING YES;DISCARD;GET a", ""),
        ("OPTOUT", "CLIENT CACHING NO;GET a;GET b", "b"),
        ("OPTOUT", "MULTI;CLIENT CACHING NO;GET a;GET b;EXEC", ""),
        ("OPTOUT", "MULTI;GET a;CLIENT CACHING NO;GET b;EXEC", "a"),
        ("OPTOUT", "MULTI;CLIENT CACHING NO;EXEC;GET a", "a"),
        ("OPTOUT", "CLIENT CACHING NO;MULTI;GET a;EXEC;GET b", "b"),
    ] {
        other.ask("MSET a 1 b 1");
        let mut client = tracking(server.address(), &format!(" {mode}"));
        for line in lines.split(';') {
            client.ask(line);
        }
        for line in ["SET a 3", "SET b 3"] {
            other.ask(line);
        }
        let keys = told(&mut client);
        let keys: Vec<&str> = keys.iter().map(|told| told.strip_prefix("invalidate ").unwrap()).collect();
        assert_eq!(keys.join(" "), expected, "{mode}: {lines}");
    }
}

#[test]
fn another_client_hears_in_its_place() {
    let server = server(2);
    let (mut hearing, mut client, mut other) =
        (Client::new(server.address()), Client::new(server.address()), Client::new(server.address()));
    let id = hearing.ask("CLIENT ID")[1..].to_owned();
    assert_eq!(hearing.ask("SUBSCRIBE __redis__:invalidate"), "subscribe __redis__:invalidate :1");
    assert_eq!(client.ask(&format!("CLIENT TRACKING ON REDIRECT {id}")), "+OK");
    assert_eq!(client.ask("CLIENT GETREDIR"), format!(":{id}"));
    client.ask("GET a");
    other.ask("SET a 1");
    assert_eq!(hearing.answer().unwrap(), "message __redis__:invalidate a");
    other.ask("FLUSHALL");
    assert_eq!(hearing.answer().unwrap(), "message __redis__:invalidate $-1");
    three(&mut client);
    drop(hearing);
    while other.ask("CLIENT LIST").lines().count() > 2 {}
    client.ask("GET a");
    other.ask("SET a 2");
    assert_eq!(client.answer().unwrap(), format!("tracking-redir-broken :{id}"));
}

#[test]
fn the_table_of_keys_is_bounded() {
    let server = server(1);
    let mut other = Client::new(server.address());
    other.ask("CONFIG SET tracking-table-max-keys 10");
    let mut client = tracking(server.address(), "");
    // A message may come before or after the next answer, so the loop counts both until all have arrived.
    (0..25).for_each(|key| client.send(&crate::client::request(&["GET", &format!("k{key}")])).unwrap());
    let (mut forgotten, mut answers) = (0, 0);
    while answers < 25 || forgotten < 15 {
        match client.answer().unwrap() {
            told if told.starts_with("invalidate k") => forgotten += 1,
            _ => answers += 1,
        }
    }
    assert!(other.ask("INFO stats").contains("tracking_total_keys:10\r\n"));
}

/// Returns the answer to a request. Keys that are reported as changed before the answer are removed from the cache.
fn answer(client: &mut Client, line: &str, cache: &mut BTreeMap<String, String>) -> String {
    client.send(&crate::client::request(&line.split(' ').collect::<Vec<_>>())).unwrap();
    loop {
        let told = client.answer().unwrap();
        match told.strip_prefix("invalidate ") {
            Some(key) => _ = cache.remove(key),
            None => return told,
        }
    }
}

/// Three clients cache what they read and remove what is reported as changed, while another client writes. At the end no
/// cache is stale.
fn caches_are_not_stale(settings: Settings, rounds: usize) {
    let server = started(settings);
    let address = server.address();
    let keys = ["a", "b", "c"];
    let readers: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn(move || {
                let mut client = tracking(address, "");
                let mut cache: BTreeMap<String, String> = BTreeMap::new();
                let mut last = "_".to_owned();
                // The reader ends when it has read "done" from the key "end", which is written last.
                for turn in 0.. {
                    if cache.get("end").is_some_and(|value| value == "done") {
                        break;
                    }
                    let key = if turn % 4 == 3 { "end" } else { keys[turn % 4] };
                    let get = format!("GET {key}");
                    let lines = if turn % 8 == 5 { vec!["MULTI", &get, "EXEC"] } else { vec![&*get] };
                    lines.into_iter().for_each(|line| last = answer(&mut client, line, &mut cache));
                    cache.insert(key.to_owned(), last.clone());
                }
                // All messages that were sent before this answer have arrived.
                answer(&mut client, "PING", &mut cache);
                cache
            })
        })
        .collect();
    let mut writer = Client::new(address);
    for round in 0..rounds {
        writer.ask(&format!("SET {} {round}", keys[round % 3]));
    }
    writer.ask("SET end done");
    for reader in readers {
        for (key, value) in reader.join().unwrap() {
            assert_eq!(value, writer.ask(&format!("GET {key}")), "a cache has another value of {key}");
        }
    }
}

#[test]
fn no_cache_is_stale() {
    caches_are_not_stale(Settings { loops: 2, ..Settings::default() }, 5_000);
}

#[test]
fn no_cache_is_stale_with_a_log_that_is_synced() {
    with_a_log("caching", |settings| caches_are_not_stale(settings, 300));
}

/// Runs a test with settings of a server that syncs its log before it answers.
fn with_a_log(name: &str, test: impl FnOnce(Settings)) {
    let directory = std::env::temp_dir().join(format!("archipelago-server-{name}-{}", std::process::id()));
    test(Settings { loops: 2, directory: directory.clone(), appendonly: Appendonly::Always, ..Settings::default() });
    std::fs::remove_dir_all(directory).unwrap();
}

/// A change may be carried out between the recording of a transaction's keys and the transaction. The change's message
/// then precedes the transaction's answer. The next change must be reported, too.
#[test]
fn a_transaction_behind_a_change_is_told_of_the_next_one() {
    with_a_log("behind", |settings| {
        let server = started(settings);
        let mut client = tracking(server.address(), "");
        let mut writer = Client::new(server.address());
        for round in 0..100 {
            let script = ["EVAL", "return redis.call('get', KEYS[1])", "1", "b"];
            let reads = if round % 2 == 0 { &["EXEC"][..] } else { &script };
            if round % 2 == 0 {
                assert_eq!(answer(&mut client, "MULTI", &mut BTreeMap::new()), "+OK");
                assert_eq!(answer(&mut client, "GET b", &mut BTreeMap::new()), "+QUEUED");
            }
            writer.send(&crate::client::request(&["SET", "b", &format!("{round}x")])).unwrap();
            // The change and the operation meet at different moments of a sync.
            (0..round % 40 * 1000).for_each(|_| std::hint::spin_loop());
            client.send(&crate::client::request(reads)).unwrap();
            while client.answer().unwrap() == "invalidate b" {}
            assert_eq!(writer.answer().unwrap(), "+OK");
            assert_eq!(writer.ask(&format!("SET b {round}y")), "+OK");
            // This message belongs to either of the two changes, since the writer may be answered before the first
            // change's message is sent.
            assert_eq!(client.answer().unwrap(), "invalidate b");
        }
    });
}

/// The answer to a wait that ends without an element comes from no operation of the log. From then on, each message is
/// sent once.
#[test]
fn the_end_of_a_wait_without_an_element_ends_the_repetition() {
    let server = server(2);
    let mut client = tracking(server.address(), "");
    let mut other = Client::new(server.address());
    let id = client.ask("CLIENT ID")[1..].to_owned();
    for (round, unblocks) in [false, true].into_iter().enumerate() {
        let wait = if unblocks { "0" } else { "20" };
        client.send(&crate::client::request(&["XREAD", "BLOCK", wait, "STREAMS", "x", "$"])).unwrap();
        while unblocks && other.ask(&format!("CLIENT UNBLOCK {id}")) != ":1" {}
        assert_eq!(client.answer().unwrap(), "_");
        // The key was read, so its change is reported.
        other.ask(&format!("XADD x {}-1 f v", 1 + round));
        assert_eq!(client.answer().unwrap(), "invalidate x");
        // A repeated message would follow the answer to the next request.
        assert_eq!([client.ask("PING"), client.ask("PING")], ["+PONG", "+PONG"], "unblocked: {unblocks}");
    }
}

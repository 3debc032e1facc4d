//! A limit of memory.

use crate::client::{Client, server, started};
use archipelago_check::hostile::some_try;
use archipelago_journal::Simulated;
use archipelago_server::config::{Appendonly, Settings};
use archipelago_server::server::Server;
use std::sync::Arc;
use std::time::Duration;

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

fn info(client: &mut Client, name: &str) -> u64 {
    let text = client.ask("INFO all");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap()
}

/// Sets a limit, and waits until it is in force.
fn limit(client: &mut Client, bytes: &str, policy: &str) {
    assert_eq!(client.ask(&format!("CONFIG SET maxmemory {bytes} maxmemory-policy {policy}")), "+OK");
    for _ in 0..500 {
        let text = client.ask("INFO all");
        if text.contains("used_memory_dataset:") && !text.contains("used_memory_dataset:0\r\n") {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the limit did not come into force: {}", client.ask("INFO all"));
}

#[test]
fn without_a_policy_changes_are_refused_and_others_go_on() {
    let server = started(Settings::default());
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("SET first 1"), "+OK");
    let code = "#!lua name=lib\n\
        local function set(keys) return redis.call('set', keys[1], 'v') end\n\
        redis.register_function('set', set)\n\
        redis.register_function{function_name='force', callback=set, flags={'allow-oom'}}\n\
        redis.register_function{function_name='get', flags={'no-writes'}, callback=function(keys)\n\
          return redis.call('get', keys[1]) end}";
    assert_eq!(client.call(&["FUNCTION", "LOAD", code]).unwrap(), "lib");
    let mut other = Client::new(server.address());
    assert_eq!((other.ask("MULTI"), other.ask("SET queued 1")), ("+OK".into(), "+QUEUED".into()));
    limit(&mut client, "100kb", "noeviction");
    let value = "v".repeat(1_000);
    let fill = |client: &mut Client| (0..500).find(|key| client.ask(&format!("SET key:{key} {value}")) == OOM);
    let stopped = fill(&mut client).expect("the limit was reached");
    assert!((60..110).contains(&stopped), "{stopped} keys of a kilobyte came into 100 kilobytes");
    assert_eq!(client.ask("GET first"), "1");
    assert_eq!(client.ask("LPUSH list x"), OOM);
    assert_eq!(client.ask("FCALL set 1 a"), OOM);
    assert_eq!(client.ask("FCALL get 1 first"), "1");
    assert_eq!(client.ask("FCALL force 1 forced"), "+OK");
    assert_eq!(client.call(&["FUNCTION", "LOAD", "REPLACE", code]).unwrap(), OOM);
    let script = client.call(&["EVAL", "return redis.call('set', 'a', 'b')", "0"]).unwrap();
    assert!(script.starts_with(OOM), "{script}");
    assert_eq!(
        (client.ask("MULTI"), client.ask("FCALL set 1 a"), client.ask("EXEC")),
        ("+OK".into(), "+QUEUED".into(), OOM.into())
    );
    assert_eq!((client.ask("MULTI"), client.ask("SET a 1")), ("+OK".into(), OOM.into()));
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    let discarded = "-EXECABORT Transaction discarded because of: ";
    assert_eq!(other.ask("EXEC"), format!("{discarded}{}", &OOM[1..]));
    assert_eq!((other.ask("EXISTS queued"), other.ask("EXEC")), (":0".into(), "-ERR EXEC without MULTI".into()));
    assert_eq!((other.ask("MULTI"), other.ask("GET first")), ("+OK".into(), "+QUEUED".into()));
    assert_eq!(other.ask("EXEC now"), format!("{discarded}wrong number of arguments for 'exec' command"));
    assert_eq!(other.ask("EXEC"), "-ERR EXEC without MULTI");
    assert_eq!(client.ask("EXPIRE first 100"), ":1");
    for key in 0..40 {
        assert_eq!(client.ask(&format!("DEL key:{key}")), ":1");
    }
    assert_eq!(client.ask("SET a 1"), "+OK", "there is room at once");
    // Only keys that expire may be evicted. There is one such key, and evicting it is not enough.
    limit(&mut client, "20kb", "volatile-lru");
    for _ in 0..500 {
        if client.ask("SET b 1") == OOM && client.ask("EXISTS first") == ":0" {
            assert_eq!(info(&mut client, "evicted_keys"), 1);
            assert_eq!(client.ask("CONFIG SET maxmemory 0"), "+OK");
            for _ in 0..500 {
                if client.ask("SET b 1") == "+OK" {
                    return server.stop().unwrap();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{}", client.ask("INFO all"));
}

#[test]
fn limits_and_snapshots_are_set_at_the_start() {
    let set = |name, value: &str| (name, value.to_owned());
    let parameters = vec![set("maxmemory", "100kb"), set("maxmemory-policy", "allkeys-lru"), set("save", "900 1")];
    let disk = Simulated::new();
    // The directory does not exist yet.
    let directory = "/data".into();
    let settings = Settings { address: ([127, 0, 0, 1], 0).into(), parameters, directory, ..Settings::default() };
    let server = Server::start_on(&settings, Arc::new(disk.clone())).unwrap();
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("CONFIG GET maxmemory"), "maxmemory 102400");
    for key in 0..600 {
        assert_eq!(client.ask(&format!("SET key:{key} {}", "v".repeat(1_000))), "+OK");
    }
    // The limit comes into force after a short time.
    for _ in 0..500 {
        if info(&mut client, "evicted_keys") > 0 && info(&mut client, "used_memory_dataset") <= 100 << 10 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = client.ask("DBSIZE");
    assert!((60..110).contains(&left[1..].parse::<u64>().unwrap()), "{left}");
    server.stop().unwrap();
    let later = Server::start_on(&settings, Arc::new(disk.restarted())).unwrap();
    assert_eq!(Client::new(later.address()).ask("DBSIZE"), left, "a snapshot is made at the end");
    let wrong = Settings { parameters: vec![set("maxmemory", "lots")], ..settings };
    let refused = Server::start_on(&wrong, Arc::new(Simulated::new())).err().unwrap();
    assert!(refused.contains("--maxmemory"), "{refused}");
}

#[test]
fn a_directory_for_snapshots_is_made_at_the_start_or_refused() {
    let parent = std::env::temp_dir().join(format!("archipelago-save-{}", std::process::id()));
    std::fs::create_dir(&parent).unwrap();
    std::fs::write(parent.join("file"), "").unwrap();
    let address = ([127, 0, 0, 1], 0).into();
    let start = |name: &str, save: &str| {
        let parameters = vec![("save", save.to_owned())];
        let directory = parent.join(name);
        Server::start(&Settings { address, parameters, directory, ..Settings::default() })
    };
    start("new", "").unwrap().stop().unwrap();
    assert!(!parent.join("new").exists(), "nothing is to be saved");
    let server = start("new", "900 1").unwrap();
    assert!(parent.join("new").is_dir());
    server.stop().unwrap();
    let refused = start("file/new", "900 1").err().unwrap();
    assert!(refused.contains("file/new"), "{refused}");
    std::fs::remove_dir_all(&parent).unwrap();
}

#[test]
fn usage_is_what_the_limit_counts() {
    let server = started(Settings::default());
    let mut client = Client::new(server.address());
    let keys = ["SET a 1", "SET b 1 EX 1000", "HSET c f 1 g 2", "RPUSH d x y z", "SADD e 1 2 3", "XADD f * a b"];
    keys.iter().for_each(|line| assert!(!client.ask(line).starts_with('-')));
    limit(&mut client, "100mb", "noeviction");
    let usage =
        |client: &mut Client, key| client.ask(&format!("MEMORY USAGE {key} SAMPLES 0"))[1..].parse::<u64>().unwrap();
    let sum: u64 = ["a", "b", "c", "d", "e", "f"].map(|key| usage(&mut client, key)).iter().sum();
    assert_eq!(sum, info(&mut client, "used_memory_dataset"));
    assert!(client.ask("MEMORY STATS").contains(&format!("keys.count :6 dataset.bytes :{sum} db.0")));
    client.ask(&format!("SET a {}", "v".repeat(1_000)));
    assert!(usage(&mut client, "a") > 1_000);
    assert_eq!(client.ask("MEMORY USAGE none"), "$-1");
}

#[test]
fn keys_go_until_the_rest_is_below_the_limit() {
    for (policy, appendonly) in [
        ("allkeys-lru", Appendonly::No),
        ("allkeys-lfu", Appendonly::Always),
        ("allkeys-random", Appendonly::EverySecond),
        ("volatile-ttl", Appendonly::Always),
    ] {
        let disk = Simulated::new();
        let settings = Settings {
            address: ([127, 0, 0, 1], 0).into(),
            directory: "/data".into(),
            appendonly,
            loops: 2,
            ..Settings::default()
        };
        let server = Server::start_on(&settings, Arc::new(disk.clone())).unwrap();
        let mut client = Client::new(server.address());
        assert_eq!(client.ask("SET first 1 EX 1000000"), "+OK");
        limit(&mut client, "100kb", policy);
        for key in 0..600 {
            let set = format!("SET key:{key} {} EX {}", "v".repeat(1_000), 10_000 + key);
            assert_eq!(client.ask(&set), "+OK", "{policy}");
            assert!(info(&mut client, "used_memory_dataset") <= 100 << 10);
        }
        let left: u64 = client.ask("DBSIZE")[1..].parse().unwrap();
        assert!((60..110).contains(&left), "{policy}: {left} keys");
        assert_eq!(info(&mut client, "evicted_keys"), 601 - left);
        // Any key that is left: with "allkeys-random" the last key may be gone.
        let key = client.ask("RANDOMKEY");
        let expected = if policy == "allkeys-lfu" { ":" } else { "-ERR" };
        assert!(client.ask(&format!("OBJECT FREQ {key}")).starts_with(expected), "{policy}, {key}");
        if policy == "volatile-ttl" {
            assert_eq!(client.ask("GET first"), "1", "others expire sooner");
        }
        server.stop().unwrap();
        if appendonly != Appendonly::No {
            let later = Server::start_on(&settings, Arc::new(disk.restarted())).unwrap();
            let mut client = Client::new(later.address());
            assert_eq!(client.ask("DBSIZE"), format!(":{left}"), "what was evicted stays away");
            // The log contains the LFU policy if it was in force. The settings of this start have another policy.
            let asks = (0..500).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                client.ask(&format!("OBJECT FREQ {key}")).starts_with("-ERR An LFU maxmemory policy is not selected")
            });
            assert!(asks, "{policy}: the policy of the last start is in force");
        }
    }
}

/// `RESTORE` sets what the policy records, and ignores what another policy would record.
#[test]
fn restored_keys_are_as_old_and_as_used_as_they_are_said_to_be() {
    let server = server(1);
    let mut client = Client::new(server.address());
    // The payload of the string "v".
    let payload = b"\x00\x01v\x0a\x00";
    let crc = crc::Crc::<u64>::new(&crc::CRC_64_REDIS).checksum(payload).to_le_bytes();
    let restore = |client: &mut Client, option: &str, value: &str| {
        let words: [&[u8]; 7] =
            [b"RESTORE", b"k", b"0", &[&payload[..], &crc].concat(), b"REPLACE", option.as_bytes(), value.as_bytes()];
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        words.iter().for_each(|word| bytes.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat()));
        client.send(&bytes).unwrap();
        client.answer().unwrap()
    };
    for (policy, asked, option, value, expected) in [
        ("allkeys-lru", "IDLETIME", "IDLETIME", "1000", ":100"),
        ("allkeys-lru", "IDLETIME", "FREQ", "100", ":0"),
        ("allkeys-lfu", "FREQ", "FREQ", "100", ":100"),
        ("allkeys-lfu", "FREQ", "FREQ", "0", ":0"),
        ("allkeys-lfu", "FREQ", "IDLETIME", "1000000", ":5"),
    ] {
        client.ask(&format!("CONFIG SET maxmemory-policy {policy}"));
        // A second, or a minute, may end between the two commands.
        some_try(3, || {
            client.ask("DEL k");
            assert_eq!(restore(&mut client, option, value), "+OK");
            let told = client.ask(&format!("OBJECT {asked} k"));
            let is_told = told.starts_with(expected);
            if is_told { Ok(()) } else { Err(format!("{policy}, {option} {value}: {told}")) }
        });
    }
    assert!(restore(&mut client, "FREQ", "256").starts_with("-ERR Invalid FREQ value"));
}

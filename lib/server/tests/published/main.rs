//! The published clients redis-rs and fred get the answers that they expect.

mod asynchronous;

use archipelago_server::server::{Server, Settings};
use redis::{Commands, Connection};

fn server() -> Server {
    Server::start(&Settings { address: ([127, 0, 0, 1], 0).into(), loops: 2, ..Settings::default() }).unwrap()
}

fn connect(server: &Server, protocol: &str) -> Connection {
    let client = redis::Client::open(format!("redis://{}/?protocol={protocol}", server.address())).unwrap();
    client.get_connection().unwrap()
}

#[test]
fn values_of_all_types_in_both_protocols() {
    let server = server();
    for protocol in ["resp2", "resp3"] {
        let mut client = connect(&server, protocol);
        let _: () = redis::cmd("FLUSHALL").query(&mut client).unwrap();
        let _: () = client.set("string", b"a\0b\r\n".to_vec()).unwrap();
        assert_eq!(client.get::<_, Vec<u8>>("string").unwrap(), b"a\0b\r\n");
        assert_eq!(client.get::<_, Option<String>>("none").unwrap(), None);
        assert_eq!(client.incr::<_, _, i64>("number", 41).unwrap(), 41);
        let _: () = client.hset_multiple("hash", &[("a", 1), ("b", 2)]).unwrap();
        let hash: std::collections::BTreeMap<String, i64> = client.hgetall("hash").unwrap();
        assert_eq!(hash, [("a".to_owned(), 1), ("b".to_owned(), 2)].into());
        assert_eq!(client.rpush::<_, _, usize>("list", &["x", "y"]).unwrap(), 2);
        assert_eq!(client.lrange::<_, Vec<String>>("list", 0, -1).unwrap(), ["x", "y"]);
        assert_eq!(client.sadd::<_, _, usize>("set", &["m"]).unwrap(), 1);
        assert!(client.sismember::<_, _, bool>("set", "m").unwrap());
        assert_eq!(client.zadd::<_, _, _, usize>("zset", "m", 1.5).unwrap(), 1);
        let zset: Vec<(String, f64)> = client.zrange_withscores("zset", 0, -1).unwrap();
        assert_eq!(zset, [("m".to_owned(), 1.5)], "{protocol}");
        let wrong = client.incr::<_, _, i64>("list", 1).unwrap_err();
        assert_eq!(wrong.code(), Some("WRONGTYPE"), "{protocol}");
        let mut keys: Vec<String> = client.scan().unwrap().map(Result::unwrap).collect();
        keys.sort();
        assert_eq!(keys, ["hash", "list", "number", "set", "string", "zset"], "{protocol}");
    }
}

#[test]
fn pipelines_and_transactions_that_try_again() {
    let server = server();
    let mut client = connect(&server, "resp2");
    let (a, b): (i64, i64) =
        redis::pipe().atomic().set("n", 1).ignore().incr("n", 1).incr("n", 1).query(&mut client).unwrap();
    assert_eq!((a, b), (2, 3));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let mut client = connect(&server, "resp3");
            std::thread::spawn(move || {
                for _ in 0..200 {
                    let _: Vec<i64> = redis::transaction(&mut client, &["n"], |client, pipe| {
                        let number: i64 = client.get("n")?;
                        pipe.set("n", number + 1).ignore().get("n").query(client)
                    })
                    .unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(client.get::<_, i64>("n").unwrap(), 403, "no update is lost");
}

#[test]
fn messages_and_events() {
    let server = server();
    let (mut listener, mut client) = (connect(&server, "resp2"), connect(&server, "resp2"));
    let _: () = redis::cmd("CONFIG").arg(&["SET", "notify-keyspace-events", "E$"]).query(&mut client).unwrap();
    let mut subscriptions = listener.as_pubsub();
    subscriptions.subscribe("news").unwrap();
    subscriptions.psubscribe("__keyevent@0__:*").unwrap();
    assert_eq!(client.publish::<_, _, usize>("news", "hello").unwrap(), 1);
    let _: () = client.set("k", 1).unwrap();
    let message = subscriptions.get_message().unwrap();
    assert_eq!((message.get_channel_name(), message.get_payload::<String>().unwrap().as_str()), ("news", "hello"));
    let event = subscriptions.get_message().unwrap();
    assert_eq!(
        (event.get_channel_name(), event.get_payload::<String>().unwrap().as_str()),
        ("__keyevent@0__:set", "k")
    );
}

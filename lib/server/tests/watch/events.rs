//! Keyspace events are those of Redis 7.0.15. Its answers are recorded.
//!
//! `ARCHIPELAGO_RECORD=1` runs the installed `redis-server` and records the answers again.

use crate::client::{Client, request, server};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs, thread, time::Duration};

/// Commands of all families. Each family has commands that change something, commands that change nothing, and commands that
/// empty a key.
const COMMANDS: &str = "
SET s 1|SET s 2 EX 100|SET s 3 NX|SET s 3 KEEPTTL|SET s 3 GET|SETNX s 1|SETNX n 1|SETEX s 100 v|PSETEX s 100000 v
GETSET s 5|GETDEL n|GETEX s EX 50|GETEX s PERSIST|GETEX s|INCR s|INCRBY s 2|DECR s|DECRBY s 2|INCRBYFLOAT f 1.5|APPEND s x
SETRANGE s 0 ab|SETRANGE none 0 |MSET a 1 b 2|MSETNX a 1 c 2|MSETNX c 1 d 2|SETBIT bits 7 1|BITOP OR dst bits a
BITOP OR dst none1 none2|BITFIELD bits SET u8 0 5 INCRBY u8 0 1|BITFIELD bits GET u8 0
SETBIT bits 7 0|SETBIT bits 20 0|SETBIT bits 20 0|BITFIELD bits SET u8 0 6|BITFIELD bits INCRBY u8 0 0|BITFIELD bits SET u8 24 0
BITFIELD bits SET u8 0 6 SET u8 0 7|BITFIELD bits OVERFLOW FAIL SET u8 40 256
EXPIRE a 100|EXPIRE none 100|EXPIRE a -1|PEXPIREAT b 1|PERSIST s|EXPIRE s 100|PERSIST s|DEL c d none|UNLINK s
SET from v|RENAME from to|RENAME to to|SET other v|RENAME other to|RENAMENX to new|SET to x|RENAMENX new to|COPY new copied
COPY new copied|COPY new copied REPLACE|COPY new far DB 1|MOVE new 2|MOVE none 2|TOUCH to none|TYPE to|OBJECT ENCODING to
HSET h f 1 g 2|HSET h f 1|HSETNX h f 1|HSETNX h n 1|HINCRBY h f 1|HINCRBYFLOAT h f 1.5|HDEL h none|HDEL h g n|HDEL h f
HMSET h a 1|DEL h
LPUSH l 1 2 3|RPUSH l 4|LPUSHX l 0|RPUSHX none 1|LPOP l|RPOP l|LPOP l 1|LSET l 0 x|LINSERT l BEFORE x y|LINSERT l BEFORE none y
LREM l 0 none|LREM l 0 x|LTRIM l 0 0|LTRIM l 5 6|RPUSH l 1 2 3|RPOPLPUSH l m|LMOVE l m LEFT RIGHT|LMOVE l m LEFT RIGHT
LMOVE m m LEFT RIGHT|RPOPLPUSH none m|LMPOP 2 none m LEFT COUNT 10|RPUSH l 1|BLPOP l 0|RPUSH l 1|BLMOVE l m LEFT LEFT 0
BRPOPLPUSH m l 0|BLMPOP 0 1 l LEFT
SADD t 1 2 3|SADD t 1|SREM t none|SREM t 1|SMOVE t u 2|SMOVE t u none|SPOP u|SADD u 1 2 3|SPOP u 2|SPOP u 5
SINTERSTORE x t t|SINTERSTORE x t none|SUNIONSTORE x t t|SDIFFSTORE x t t|SDIFFSTORE x t t|SREM t 3
ZADD z 1 a 2 b 3 c|ZADD z 1 a|ZADD z 5 a|ZADD z XX 5 none|ZADD z INCR 1 a|ZINCRBY z 1 b|ZREM z none|ZREM z a|ZPOPMIN z
ZPOPMAX z|ZPOPMAX z|ZADD z 1 a 2 b 3 c 4 d 5 e|ZREMRANGEBYSCORE z 1 1|ZREMRANGEBYRANK z 0 0|ZREMRANGEBYLEX z [c [c
ZREMRANGEBYSCORE z 100 200|ZUNIONSTORE y 1 z|ZINTERSTORE y 2 z none|ZDIFFSTORE y 1 z|ZRANGESTORE y z 0 -1|ZRANGESTORE y z 9 10
ZMPOP 1 z MIN COUNT 10|ZADD z 1 a|BZPOPMIN z 0|ZADD z 1 a|BZPOPMAX z 0|ZADD z 1 a|BZMPOP 0 1 z MAX
GET miss|MGET miss1 to miss2|EXISTS miss|STRLEN miss|HGET miss f|LLEN miss|SCARD miss|ZSCORE miss a|TTL miss|GETRANGE miss 0 1
HGETALL miss|LRANGE miss 0 1|SMEMBERS miss|SINTER miss to2|ZRANGE miss 0 1|ZUNION 2 miss1 miss2|BITCOUNT miss|GETBIT miss 0
GETEX miss|GETDEL miss|GETSET miss2 v|SET miss3 v GET|COPY miss x|ZRANGESTORE x miss 0 1|SUNIONSTORE x miss|RENAME miss x
SDIFFSTORE x miss miss5|ZUNIONSTORE x 2 miss miss6|LPOP miss|SREM miss a|SETNX miss7 1|INCR miss8|LMOVE miss x LEFT LEFT
SWAPDB 0 1|SELECT 1|GET miss|SET s 1|FLUSHDB|SELECT 0|SET e 1 PX 1000|WAITED e|FLUSHALL
MULTI|SET tx 1|INCR tx|DEL tx|EXEC|MULTI|SET tx 1|DISCARD";

/// Returns the events of each command, one line each, after the command's line.
fn heard(address: std::net::SocketAddr) -> String {
    let (mut client, mut listener, mut end) = (Client::new(address), Client::new(address), Client::new(address));
    assert_eq!(client.ask("CONFIG SET notify-keyspace-events KEAnm"), "+OK");
    listener.ask("PSUBSCRIBE __key*");
    let mut all = String::new();
    for line in COMMANDS.split(['|', '\n']).filter(|line| !line.is_empty()) {
        let line = if line == "WAITED e" {
            thread::sleep(Duration::from_millis(1_050));
            "DEL e"
        } else {
            line
        };
        client.ask(line);
        end.call(&["PUBLISH", "__keyend", ""]).unwrap();
        all += &format!("> {line}\n");
        loop {
            let message = listener.answer().unwrap();
            let message = message.strip_prefix("pmessage __key* ").unwrap();
            if message.starts_with("__keyend") {
                break;
            }
            all += &format!("{message}\n");
        }
    }
    all
}

struct Redis(Child);

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn events_are_those_of_redis() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/watch/events.txt");
    if env::var_os("ARCHIPELAGO_RECORD").is_some() {
        let port = 17_000 + std::process::id() % 10_000;
        let mut redis = Command::new("redis-server");
        redis.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"]).stdout(Stdio::null());
        let _redis = Redis(redis.spawn().expect("redis-server is installed"));
        let address = ([127, 0, 0, 1], port as u16).into();
        while Client::try_new(address).is_err() {
            thread::sleep(Duration::from_millis(20));
        }
        fs::write(&path, heard(address)).unwrap();
    }
    let recorded = fs::read_to_string(&path).expect("answers are recorded");
    let ours = heard(server(2).address());
    let (theirs, ours): (Vec<&str>, Vec<&str>) = (recorded.split("\n> ").collect(), ours.split("\n> ").collect());
    assert_eq!(theirs.len(), ours.len());
    let differ: Vec<_> = theirs.iter().zip(&ours).filter(|(theirs, ours)| theirs != ours).collect();
    assert!(differ.is_empty(), "theirs, ours:\n{differ:#?}");
}

#[test]
fn only_the_classes_that_were_asked_for_are_told() {
    let server = server(1);
    let (mut client, mut listener) = (Client::new(server.address()), Client::new(server.address()));
    assert!(client.ask("CONFIG SET notify-keyspace-events q").contains("Invalid event class character"));
    for (classes, expected) in
        [("Kl", "__keyspace@0__:l lpush"), ("E$x", "__keyevent@0__:set s"), ("Kg", "__keyspace@0__:s del")]
    {
        assert_eq!(client.ask(&format!("CONFIG SET notify-keyspace-events {classes}")), "+OK");
        listener.ask("PSUBSCRIBE __key*");
        for line in ["LPUSH l 1", "SET s 1", "DEL s", "PUBLISH __keyend end"] {
            client.ask(line);
        }
        assert_eq!(listener.answer().unwrap(), format!("pmessage __key* {expected}"), "{classes}");
        assert_eq!(listener.answer().unwrap(), "pmessage __key* __keyend end", "{classes}");
    }
    assert_eq!(client.call(&["CONFIG", "SET", "notify-keyspace-events", ""]).unwrap(), "+OK");
    client.ask("SET s 1");
    client.ask("PUBLISH __keyend end");
    assert_eq!(listener.answer().unwrap(), "pmessage __key* __keyend end");
}

/// The events of changes that two loops make to one key are received in the order of the changes.
#[test]
fn all_hear_events_in_the_order_of_the_log() {
    let server = server(2);
    let address = server.address();
    let mut listener = Client::new(address);
    listener.ask("CONFIG SET notify-keyspace-events K$g");
    listener.ask("SUBSCRIBE __keyspace@0__:k");
    let rounds = 3_000;
    let writer = |set: bool| {
        move || {
            let mut client = Client::new(address);
            let line = if set { request(&["SETNX", "k", "1"]) } else { request(&["DEL", "k"]) };
            (0..rounds).filter(|_| client.send(&line).and_then(|()| client.answer()).unwrap() == ":1").count()
        }
    };
    // Each change succeeds only after the other, so the events alternate.
    let threads = [thread::spawn(writer(true)), thread::spawn(writer(false))];
    let [set, deleted] = threads.map(|thread| thread.join().unwrap());
    for turn in 0..set + deleted {
        let expected = ["message __keyspace@0__:k set", "message __keyspace@0__:k del"][turn % 2];
        assert_eq!(listener.answer().unwrap(), expected, "event {turn}");
    }
}

#[test]
fn commands_of_the_server_are_answered_in_transactions() {
    let server = server(2);
    let (mut client, mut listener) = (Client::new(server.address()), Client::new(server.address()));
    listener.ask("SUBSCRIBE news");
    client.ask("MULTI");
    for line in
        ["SET a 1", "PUBLISH news hello", "CLIENT SETNAME me", "INCR a", "CONFIG SET slowlog-max-len 5", "SUBSCRIBE x"]
    {
        assert_eq!(client.ask(line), "+QUEUED");
    }
    assert_eq!(client.ask("EXEC"), "+OK :1 +OK :2 +OK subscribe x :1");
    assert_eq!(listener.answer().unwrap(), "message news hello");
    let mut other = Client::new(server.address());
    assert!(other.ask("CLIENT LIST").contains("name=me"));
    // If a transaction is not carried out, its `PUBLISH` is not either.
    other.ask("WATCH a");
    Client::new(server.address()).ask("SET a 2");
    other.ask("MULTI");
    other.ask("PUBLISH news lost");
    assert_eq!(other.ask("EXEC"), "*-1");
    other.ask("PUBLISH news found");
    assert_eq!(listener.answer().unwrap(), "message news found");
}

/// A RESP2 client would take a message after its last unsubscription for an answer.
#[test]
fn no_message_comes_behind_the_end_of_a_subscription() {
    let server = server(2);
    let address = server.address();
    let publisher = thread::spawn(move || {
        let mut client = Client::new(address);
        while client.ask("GET end") != "1" {
            (0..50).for_each(|_| client.send(&request(&["PUBLISH", "news", "x"])).unwrap());
            (0..50).for_each(|_| _ = client.answer().unwrap());
        }
    });
    let mut clients = [Client::new(address), Client::new(address)];
    for turn in 0..400 {
        let client = &mut clients[turn % 2];
        let (begin, end) =
            if turn % 4 < 2 { ("SUBSCRIBE news", "UNSUBSCRIBE news") } else { ("PSUBSCRIBE n*", "PUNSUBSCRIBE n*") };
        client.ask(begin);
        client.send(&request(&end.split(' ').collect::<Vec<_>>())).unwrap();
        while !client.answer().unwrap().contains("unsubscribe") {}
        assert_eq!(client.ask("GET none"), "$-1", "turn {turn}");
    }
    clients[0].ask("SET end 1");
    publisher.join().unwrap();
}

#[test]
fn a_transaction_begins_and_ends_to_listen() {
    let server = server(2);
    let mut clients: Vec<Client> = (0..2).map(|_| Client::new(server.address())).collect();
    let [client, other] = &mut clients[..] else { unreachable!() };
    other.ask("CONFIG SET notify-keyspace-events KEA");
    for line in [
        "CLIENT TRACKING ON",
        "CLIENT TRACKING OFF",
        "CONFIG SET hll-sparse-max-bytes 2000",
        "CONFIG SET maxmemory 1gb",
    ] {
        client.ask("MULTI");
        client.ask("INCR a");
        assert_eq!(client.ask(line), "+QUEUED");
        assert!(client.ask("EXEC").ends_with(" +OK"), "{line}");
        assert_eq!(other.ask("SET b 1"), "+OK");
    }
    // The change of the setting is in force once the transaction is answered.
    other.ask("CONFIG SET maxmemory 0");
    other.ask("CONFIG SET notify-keyspace-events \"\"");
    let (mut listener, mut maker) = (Client::new(server.address()), Client::new(server.address()));
    listener.ask("SUBSCRIBE __keyevent@0__:set");
    maker.ask("MULTI");
    maker.ask("CONFIG SET notify-keyspace-events KEA");
    assert_eq!(maker.ask("EXEC"), "+OK");
    maker.ask("SET c 1");
    assert_eq!(listener.answer().unwrap(), "message __keyevent@0__:set c");
}

/// Reads until the connection ends. Panics if it does not.
fn until_ended(client: &mut Client) {
    let error = loop {
        if let Err(error) = client.answer() {
            break error.kind();
        }
    };
    use std::io::ErrorKind::{ConnectionReset, UnexpectedEof};
    assert!(matches!(error, ConnectionReset | UnexpectedEof), "it is connected: {error}");
}

/// The events of one operation take bounded memory, and so do their messages. A client that would miss events is ended,
/// even if it has no message of those that were left out.
#[test]
fn clients_that_would_miss_events_are_ended() {
    let server = server(1);
    let mut client = Client::new(server.address());
    let mut news = Client::new(server.address());
    news.ask("SUBSCRIBE news");
    client.ask("CONFIG SET notify-keyspace-events KEA");
    client.call(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0"]).unwrap();
    let key = "k".repeat(1000);
    let mut sets = |times: &str, lines: &[&str]| {
        let mut listeners: Vec<Client> = lines.iter().map(|_| Client::new(server.address())).collect();
        listeners.iter_mut().zip(lines).for_each(|(listener, line)| _ = listener.ask(line));
        let script = "for number = 1, ARGV[1] do redis.call('set', KEYS[1], 'v') end";
        client.call(&["EVAL", script, "1", &key, times]).unwrap();
        client.ask("PUBLISH news 1");
        assert_eq!(news.answer().unwrap(), "message news 1", "it listens to no events");
        listeners
    };
    // Each event takes a kilobyte. The listener gets no messages, so the memory of the events alone exceeds the limit.
    sets("20000", &["SUBSCRIBE __keyevent@0__:del"]).iter_mut().for_each(until_ended);
    // Here the events stay within the limit, and their messages exceed it.
    let lines = ["SUBSCRIBE __keyevent@0__:del", "PSUBSCRIBE *", "PSUBSCRIBE __key*@0__:*"];
    sets("14000", &lines).iter_mut().for_each(until_ended);
    // Here both stay within the limit.
    for listener in &mut sets("1000", &lines)[1..] {
        (0..2000).for_each(|_| assert!(listener.answer().unwrap().starts_with("pmessage ")));
    }
}

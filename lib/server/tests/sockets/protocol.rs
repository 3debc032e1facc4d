//! The answers of redis-server 7.0.15 to the same commands, byte for byte: in RESP2, and in RESP3 after `HELLO 3`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use archipelago_server::config::{Appendonly, DebugAccess};
use archipelago_server::server::{Server, Settings};

use crate::client::{Client, request, started};

/// Returns the words of a line. A word between quotes may contain blanks.
fn words(line: &str) -> Vec<&str> {
    let quoted = line.split('"').enumerate();
    quoted.flat_map(|(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }).collect()
}

/// Compares answers with a file. A line of the file has requests, a tab, and the expected answers. Semicolons separate
/// requests, which are sent at once. A bar in the answers stands for a line end.
fn compare(protocol: &str, file: &str) {
    let server = started(Settings { loops: 1, debug: DebugAccess::Local, ..Settings::default() });
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let lines = file.lines().map(|line| line.split_once('\t').expect("a tab is between them"));
    stream.write_all(&request(&["HELLO", protocol])).unwrap();
    let mut hello = vec![0; 1_024];
    let length = stream.read(&mut hello).unwrap();
    assert!(hello[..length].starts_with(if protocol == "3" { b"%7\r\n" } else { b"*14\r\n" }));
    let mut wrong = Vec::new();
    for (command, expected) in lines {
        let requests: Vec<u8> = command.split(';').flat_map(|one| request(&words(one))).collect();
        stream.write_all(&requests).unwrap();
        // The answer to this request marks the end of the answers before it.
        stream.write_all(&request(&["ECHO", "end of this answer"])).unwrap();
        let (mut answer, end) = (Vec::new(), b"$18\r\nend of this answer\r\n");
        while !answer.ends_with(end) {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        answer.truncate(answer.len() - end.len());
        let answer = String::from_utf8_lossy(&answer).replace("\r\n", "|");
        if answer != expected {
            wrong.push(format!("{command}\n  here  {answer}\n  Redis {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    server.stop().unwrap();
}

#[test]
fn resp3_is_as_redis_has_it() {
    compare("3", include_str!("resp3.txt"));
}

/// The answer to a refused request comes after the answers to earlier changes, which wait for the end of a round.
#[test]
fn answers_come_in_the_order_of_requests_and_are_those_of_redis() {
    compare("2", include_str!("resp2.txt"));
}

/// Returns all bytes that the server sends to a client that sends `bytes` and then waits.
fn sent_for(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the server ends the connection");
    String::from_utf8_lossy(&all).replace("\r\n", "|")
}

/// The answers are those of Redis. With a log, changes are unanswered when the next request is read.
#[test]
fn a_malformed_request_is_told_behind_the_answers_before_it() {
    let folder = std::env::temp_dir().join(format!("archipelago-malformed-{}", std::process::id()));
    for appendonly in [Appendonly::No, Appendonly::Always] {
        let server = started(Settings { appendonly, directory: folder.clone(), ..Settings::default() });
        for (bytes, expected) in [
            ("SET a b\r\nSET a b\r\n*1\r\n:1\r\nGET a\r\n", "+OK|+OK|-ERR Protocol error: expected '$', got ':'|"),
            ("SET a b\r\n*+1\r\n", "+OK|-ERR Protocol error: invalid multibulk length|"),
            (
                "MULTI\r\nSET a b\r\nEXEC\r\n*1\r\n$01\r\n",
                "+OK|+QUEUED|*1|+OK|-ERR Protocol error: invalid bulk length|",
            ),
            ("WATCH a\r\nGET \"a\r\n", "+OK|-ERR Protocol error: unbalanced quotes in request|"),
            ("BLPOP none 0.1\r\n*x\r\n", "*-1|-ERR Protocol error: invalid multibulk length|"),
        ] {
            assert_eq!(sent_for(&server, bytes.as_bytes()), expected, "{bytes}");
        }
        server.stop().unwrap();
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// The answer is that of Redis, which writes such texts as strings of C.
#[test]
fn a_text_in_an_error_ends_at_a_zero_byte() {
    let server = started(Settings::default());
    let mut client = Client::new(server.address());
    let told = client.call(&["foo\0bar", "a\0b", "", "\0", "c"]).unwrap();
    assert_eq!(told, "-ERR unknown command 'foo', with args beginning with: 'a' '' '' 'c'");
    server.stop().unwrap();
}

/// Returns what the server sends after `HELLO 3` to a client that sends these lines.
fn sent_in_resp3(server: &Server, lines: &str) -> String {
    let all = sent_for(server, format!("HELLO 3\r\n{}\r\n", lines.replace(';', "\r\n")).as_bytes());
    all.split_once("modules|*0|").expect("HELLO's answer ends so").1.to_owned()
}

/// As in Redis, a client's message to itself comes before the answer to `PUBLISH`. In Redis it comes within the answer to
/// `EXEC`, here before the answer.
#[test]
fn own_messages_come_before_the_answer() {
    let folder = std::env::temp_dir().join(format!("archipelago-own-{}", std::process::id()));
    for appendonly in [Appendonly::No, Appendonly::Always] {
        let server = started(Settings { appendonly, directory: folder.clone(), ..Settings::default() });
        for (lines, expected) in [
            (
                "SUBSCRIBE a;PUBLISH a hi;SET k 1;PUBLISH a ho;UNSUBSCRIBE a;PUBLISH a no;RESET;QUIT",
                ">3|$9|subscribe|$1|a|:1|>3|$7|message|$1|a|$2|hi|:1|+OK|>3|$7|message|$1|a|$2|ho|:1|\
                 >3|$11|unsubscribe|$1|a|:0|:0|+RESET|+OK|",
            ),
            (
                "PSUBSCRIBE a*;SSUBSCRIBE s;PUBLISH ab hi;SPUBLISH s hi;PUBLISH s no;QUIT",
                ">3|$10|psubscribe|$2|a*|:1|>3|$10|ssubscribe|$1|s|:1|>4|$8|pmessage|$2|a*|$2|ab|$2|hi|:1|\
                 >3|$8|smessage|$1|s|$2|hi|:1|:0|+OK|",
            ),
            (
                "SUBSCRIBE a;CLIENT REPLY OFF;PUBLISH a hi;CLIENT REPLY ON;PING;QUIT",
                ">3|$9|subscribe|$1|a|:1|>3|$7|message|$1|a|$2|hi|+OK|+PONG|+OK|",
            ),
            (
                "SUBSCRIBE a;MULTI;PING;PUBLISH a hi;SET k 1;EXEC;PING;UNSUBSCRIBE a;QUIT",
                ">3|$9|subscribe|$1|a|:1|+OK|+QUEUED|+QUEUED|+QUEUED|>3|$7|message|$1|a|$2|hi|*3|+PONG|:1|+OK|+PONG|\
                 >3|$11|unsubscribe|$1|a|:0|+OK|",
            ),
        ] {
            assert_eq!(sent_in_resp3(&server, lines), expected, "{lines}");
        }
        // The confirmation of the subscription comes first.
        let mut client = Client::new(server.address());
        for line in ["MULTI", "SUBSCRIBE a", "PUBLISH a hi"] {
            client.ask(line);
        }
        assert_eq!(client.ask("EXEC"), "subscribe a :1 :1");
        assert_eq!(client.answer().unwrap(), "message a hi");
        server.stop().unwrap();
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Two clients publish to a channel that both listen to. Both receive all messages in one order.
#[test]
fn own_messages_do_not_overtake() {
    let server = started(Settings { loops: 2, ..Settings::default() });
    let subscribed = std::sync::Arc::new(std::sync::Barrier::new(2));
    let heard = [0, 1].map(|number| {
        let (address, subscribed) = (server.address(), subscribed.clone());
        std::thread::spawn(move || {
            let mut client = Client::new(address);
            client.ask("HELLO 3");
            // The answer is a map of seven pairs.
            (0..14).for_each(|_| _ = client.answer().unwrap());
            assert_eq!(client.ask("SUBSCRIBE c"), "subscribe c :1");
            subscribed.wait();
            let publish = |turn| request(&["PUBLISH", "c", &format!("{number}-{turn}")]);
            client.send(&(0..500).flat_map(publish).collect::<Vec<u8>>()).unwrap();
            let answers = std::iter::from_fn(|| client.answer().ok());
            answers.filter(|answer| answer.starts_with("message c")).take(1_000).collect::<Vec<_>>()
        })
    });
    let [one, other] = heard.map(|thread| thread.join().unwrap());
    assert_eq!(one.len(), 1_000);
    assert_eq!(one, other);
}

/// A page in a browser may make the browser send arbitrary bytes to this machine. The browser's own lines come first.
#[test]
fn a_browser_is_not_listened_to() {
    let server = started(Settings::default());
    let mut client = Client::new(server.address());
    for first in ["POST / HTTP/1.1", "GET / HTTP/1.1\r\nHost: a"] {
        let sent = sent_for(&server, format!("{first}\r\n\r\nSET a b\r\n").as_bytes());
        assert!(!sent.contains("+OK"), "{sent}");
        assert_eq!(client.ask("GET a"), "$-1");
    }
    server.stop().unwrap();
}

#[test]
fn a_client_that_was_killed_is_in_no_list() {
    let server = started(Settings { loops: 2, ..Settings::default() });
    let (mut one, mut other) = (Client::new(server.address()), Client::new(server.address()));
    other.ask("CLIENT SETNAME other");
    let id = other.ask("CLIENT ID")[1..].to_owned();
    // There are two loops. The other client's loop ends it when it processes the letter.
    assert_eq!(one.ask(&format!("CLIENT KILL ID {id}")), ":1");
    assert!(!one.ask("CLIENT LIST").contains("name=other"));
    assert!(other.call(&["PING"]).is_err());
    server.stop().unwrap();
}

#[test]
fn commands_of_the_session_are_counted() {
    let server = started(Settings::default());
    let mut client = Client::new(server.address());
    for line in ["WATCH a", "MULTI", "EXEC", "WATCH a", "UNWATCH", "SELECT 1", "SELECT x", "DISCARD"] {
        client.ask(line);
    }
    let told = client.ask("INFO commandstats");
    for (name, calls, failed) in
        [("watch", 2, 0), ("multi", 1, 0), ("exec", 1, 0), ("unwatch", 1, 0), ("select", 2, 1), ("discard", 1, 1)]
    {
        let line = told.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:"))).unwrap_or_default();
        assert!(line.contains(&format!(":calls={calls},")), "{name}: {line}");
        assert!(line.contains(&format!("failed_calls={failed}")), "{name}: {line}");
    }
    server.stop().unwrap();
}

#[test]
fn monitors_see_what_scripts_call() {
    let server = started(Settings::default());
    let (mut monitor, mut client) = (Client::new(server.address()), Client::new(server.address()));
    assert_eq!(monitor.ask("MONITOR"), "+OK");
    let body = "redis.call('select', 3) redis.pcall('nosuch') redis.call('set', KEYS[1], '1') return redis.call('get', KEYS[1])";
    assert_eq!(client.call(&["EVAL", body, "1", "key"]).unwrap(), "1");
    client.ask("GET key");
    let mut seen = || monitor.answer().unwrap().split_once(' ').unwrap().1.to_owned();
    assert!(seen().contains("\"EVAL\""));
    assert_eq!(seen(), "[3 lua] \"set\" \"key\" \"1\"");
    assert_eq!(seen(), "[3 lua] \"get\" \"key\"");
    assert!(seen().ends_with("\"GET\" \"key\""));
    server.stop().unwrap();
}

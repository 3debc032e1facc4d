//! Clients that list each other, pause, wait and are unblocked.

use crate::client::{Client, request, server, started};
use archipelago_server::config::{DebugAccess, Settings};
use std::thread;
use std::time::Duration;

fn number(client: &mut Client) -> String {
    client.ask("CLIENT ID")[1..].to_owned()
}

/// Asks for the list of clients until it is as expected, or many times, and returns the last list. What the list shows
/// of a client is stored at the end of a round of the client's loop. The client may have its answers before that.
fn list_when(client: &mut Client, line: &str, expected: impl Fn(&str) -> bool) -> String {
    for _ in 0..1_000 {
        let list = client.ask(line);
        if expected(&list) {
            return list;
        }
        thread::sleep(Duration::from_millis(1));
    }
    client.ask(line)
}

#[test]
fn lists_and_kills_have_filters() {
    let server = server(2);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::new(server.address())).collect();
    let ids: Vec<String> = clients.iter_mut().map(number).collect();
    clients[1].ask("SUBSCRIBE news");
    clients[2].ask("SELECT 3");
    clients[2].ask("CLIENT SETNAME third");
    clients[2].ask("MULTI");
    clients[2].ask("GET a");
    let list = list_when(&mut clients[0], "CLIENT LIST", |list| list.contains(" multi=1 "));
    assert_eq!(list.lines().count(), 4, "{list}");
    let third = list.lines().find(|line| line.contains("name=third")).unwrap();
    assert!(
        third.contains(&format!("id={} ", ids[2])) && third.contains(" flags=x db=3 ") && third.contains(" multi=1 "),
        "{third}"
    );
    let subscriber = list_when(&mut clients[0], "CLIENT LIST TYPE pubsub", |list| list.contains(" sub=1 "));
    assert!(
        subscriber.starts_with(&format!("id={} ", ids[1]))
            && subscriber.contains("flags=P")
            && subscriber.contains(" sub=1 ")
    );
    assert_eq!(clients[0].ask("CLIENT LIST TYPE pubsub").lines().count(), 1);
    assert_eq!(clients[0].ask(&format!("CLIENT LIST ID {} {} 999", ids[0], ids[3])).lines().count(), 2);
    assert!(clients[0].ask("CLIENT INFO").contains("cmd=client user=default redir=-1 resp=2"));
    assert_eq!(clients[0].ask("CLIENT LIST TYPE what"), "-ERR Unknown client type 'what'");
    assert_eq!(clients[0].ask("CLIENT KILL TYPE pubsub"), ":1");
    assert!(clients[1].answer().is_err(), "it is ended");
    assert_eq!(clients[0].ask(&format!("CLIENT KILL ID {} TYPE pubsub", ids[3])), ":0");
    assert_eq!(clients[0].ask("CLIENT KILL TYPE normal"), ":2");
    assert_eq!(clients[0].ask("CLIENT KILL 1.2.3.4:5"), "-ERR No such client");
    assert_eq!(clients[0].ask("CLIENT KILL SKIPME no TYPE normal"), ":1");
    assert!(clients[0].answer().is_err(), "it ended itself");
}

#[test]
fn a_client_that_waits_is_let_go_once() {
    let server = server(2);
    let (mut waiting, mut other) = (Client::new(server.address()), Client::new(server.address()));
    let id = number(&mut waiting);
    for (how, answer) in
        [("", "*-1"), (" TIMEOUT", "*-1"), (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")]
    {
        waiting.send(&request(&["BLPOP", "list", "0"])).unwrap();
        while !other.ask("INFO clients").contains("blocked_clients:1") {}
        assert_eq!(other.ask(&format!("CLIENT UNBLOCK {id}{how}")), ":1");
        assert_eq!(other.ask(&format!("CLIENT UNBLOCK {id}{how}")), ":0");
        assert_eq!(waiting.answer().unwrap(), answer);
    }
    // The client no longer waits, so a new element stays in the list.
    assert_eq!(other.ask("RPUSH list a"), ":1");
    assert_eq!(other.ask("LLEN list"), ":1");
    assert_eq!(waiting.ask("PING"), "+PONG");
    assert_eq!(
        other.ask(&format!("CLIENT UNBLOCK {id} WHAT")),
        "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"
    );
}

#[test]
fn waiting_clients_go_on_with_what_others_make() {
    let server = server(2);
    let (mut waiting, mut other) = (Client::new(server.address()), Client::new(server.address()));
    let mut blocked = |line: &str, waiting: &mut Client, makes: &[&str]| {
        waiting.send(&request(&line.split(' ').collect::<Vec<_>>())).unwrap();
        while !other.ask("INFO clients").contains("blocked_clients:1") {}
        makes.iter().for_each(|line| _ = other.ask(line));
        let answer = waiting.answer().unwrap();
        other.ask("FLUSHALL");
        answer
    };
    assert_eq!(blocked("BLPOP a b 0", &mut waiting, &["RPUSH b 1"]), "b 1");
    assert_eq!(blocked("BLPOP a 0", &mut waiting, &["RPUSH b 1", "RENAME b a"]), "a 1");
    assert_eq!(blocked("BLPOP a 0", &mut waiting, &["RPUSH b 1", "COPY b a"]), "a 1");
    assert_eq!(blocked("BLPOP a 0", &mut waiting, &["SELECT 1", "RPUSH a 1", "MOVE a 0", "SELECT 0"]), "a 1");
    assert_eq!(blocked("BLPOP a 0", &mut waiting, &["SELECT 1", "RPUSH a 1", "SELECT 0", "SWAPDB 0 1"]), "a 1");
    assert_eq!(blocked("BLPOP a 0", &mut waiting, &["SET a 1", "DEL a", "ZADD a 1 m", "DEL a", "LPUSH a x"]), "a x");
    assert_eq!(blocked("BZPOPMIN a 0", &mut waiting, &["ZADD b 1 m", "ZUNIONSTORE a 1 b"]), "a m 1");
    assert_eq!(blocked("BLMOVE a b LEFT RIGHT 0", &mut waiting, &["MULTI", "RPUSH a 1 2", "LPOP a", "EXEC"]), "2");
    assert_eq!(blocked("BLPOP a 0", &mut waiting, &["MULTI", "RPUSH a 1", "DEL a", "EXEC", "RPUSH a 2"]), "a 2");
    // In a transaction no command waits.
    other.ask("MULTI");
    other.ask("BLPOP none 0");
    assert_eq!(other.ask("EXEC"), "*-1");
}

#[test]
fn clients_are_told_that_they_wait_in_vain() {
    let server = server(2);
    let (mut waiting, mut other) = (Client::new(server.address()), Client::new(server.address()));
    let mut blocked = |line: &str, makes: &[&str]| {
        for line in ["SELECT 0", "FLUSHALL", "SET dst x", "XGROUP CREATE s g $ MKSTREAM"] {
            other.ask(line);
        }
        waiting.send(&request(&line.split(' ').collect::<Vec<_>>())).unwrap();
        while !other.ask("INFO clients").contains("blocked_clients:1") {}
        makes.iter().for_each(|line| _ = other.ask(line));
        (waiting.answer().unwrap(), other.ask("LRANGE src 0 -1"))
    };
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    for line in ["BLMOVE src dst LEFT LEFT 0", "BRPOPLPUSH src dst 0"] {
        assert_eq!(blocked(line, &["RPUSH src e"]), (wrong.into(), "e".into()), "{line}");
    }
    // While the source has another type, the client waits on.
    assert_eq!(blocked("BLMOVE src dst LEFT LEFT 0", &["DEL dst", "SADD src e", "DEL src", "RPUSH src f"]).0, "f");
    let gone = "-UNBLOCKED the stream key no longer exists";
    let no_group = "-NOGROUP the consumer group this client was blocked on no longer exists";
    for (makes, told) in [
        (&["DEL s"][..], gone),
        (&["UNLINK s"], gone),
        (&["SET s x"], gone),
        (&["FLUSHALL"], gone),
        (&["FLUSHDB"], gone),
        (&["SWAPDB 0 1"], gone),
        (&["MOVE s 1"], gone),
        (&["RENAME s t"], gone),
        (&["RPUSH l a", "RENAME l s"], gone),
        (&["PEXPIRE s 1"], gone),
        (&["XGROUP DESTROY s g"], no_group),
        (&["MULTI", "DEL s", "XADD s 1-0 a b", "EXEC"], no_group),
        (&["SELECT 1", "XADD s 1-0 a b", "SWAPDB 0 1"], no_group),
    ] {
        assert_eq!(blocked("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", makes).0, told, "{makes:?}");
    }
}

/// One client waits for a list, another for a group's entries of a stream, both at the same key. If the stream is
/// deleted, the second client is told so, and the first client continues to wait.
#[test]
fn clients_that_wait_for_other_types_go_on() {
    let server = server(2);
    let [mut list, mut consumer, mut other] = [(); 3].map(|()| Client::new(server.address()));
    list.send(&request(&["BLPOP", "k", "0"])).unwrap();
    while !other.ask("INFO clients").contains("blocked_clients:1") {}
    other.ask("XGROUP CREATE k g $ MKSTREAM");
    consumer.send(&request(&["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "k", ">"])).unwrap();
    while !other.ask("INFO clients").contains("blocked_clients:2") {}
    assert_eq!(other.ask("DEL k"), ":1");
    assert!(consumer.answer().unwrap().starts_with("-UNBLOCKED"));
    assert_eq!(other.ask("RPUSH k a"), ":1");
    assert_eq!(list.answer().unwrap(), "k a");
}

/// If a client has got nothing, and a command that is served after it fills one of its keys, the server looks at the
/// client again.
#[test]
fn one_waiting_client_fills_the_key_of_another() {
    let server = server(2);
    let [mut pops, mut moves, mut other] = [(); 3].map(|()| Client::new(server.address()));
    pops.send(&request(&["BLPOP", "first", "last", "0"])).unwrap();
    while !other.ask("INFO clients").contains("blocked_clients:1") {}
    moves.send(&request(&["BLMOVE", "middle", "last", "LEFT", "RIGHT", "0"])).unwrap();
    while !other.ask("INFO clients").contains("blocked_clients:2") {}
    for line in ["MULTI", "RPUSH first a", "DEL first", "RPUSH middle b"] {
        other.ask(line);
    }
    assert_eq!(other.ask("EXEC"), ":1 :1 :1");
    assert_eq!(moves.answer().unwrap(), "b");
    assert_eq!(pops.answer().unwrap(), "last b");
}

#[test]
fn a_pause_holds_writes_or_all() {
    let server = server(2);
    let (mut client, mut other) = (Client::new(server.address()), Client::new(server.address()));
    assert_eq!(client.ask("CLIENT PAUSE 100000000 WRITE"), "+OK");
    assert_eq!(other.ask("GET a"), "$-1");
    other.send(&request(&["SET", "a", "1"])).unwrap();
    assert_eq!(client.ask("GET a"), "$-1");
    assert_eq!(client.ask("CLIENT UNPAUSE"), "+OK");
    assert_eq!(other.answer().unwrap(), "+OK");
    assert_eq!(client.ask("GET a"), "1");
    assert_eq!(client.ask("CLIENT PAUSE 50"), "+OK");
    assert_eq!(other.ask("GET a"), "1");
    assert_eq!(client.ask("CLIENT PAUSE -1"), "-ERR timeout is negative");
    assert_eq!(client.ask("CLIENT PAUSE 5 SOME"), "-ERR CLIENT PAUSE mode must be WRITE or ALL");
}

#[test]
fn a_pause_of_writes_holds_all_that_may_write() {
    let server = server(1);
    let (mut client, mut other) = (Client::new(server.address()), Client::new(server.address()));
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    for words in [
        &["PFCOUNT", "h"][..],
        &["EVAL", "return redis.call('set', 'a', '1')", "0"],
        &["FUNCTION", "LOAD", library],
        &["FCALL", "f", "0"],
    ] {
        client.ask("CLIENT PAUSE 100000000 WRITE");
        other.send(&request(words)).unwrap();
        // The one loop looks at both clients in each round.
        (0..10).for_each(|_| _ = client.ask("PING"));
        let counts = client.ask("INFO commandstats");
        assert!(
            !counts.contains(&format!("cmdstat_{}", words[0].to_lowercase())),
            "{words:?} was carried out: {counts}"
        );
        client.ask("CLIENT UNPAUSE");
        assert!(!other.answer().unwrap().starts_with('-'), "{words:?}");
    }
}

/// As in Redis, a pause of writes holds an `EXEC` only if one of the transaction's commands may write.
#[test]
fn a_pause_of_writes_lets_transactions_read() {
    let server = server(1);
    let (mut client, mut other) = (Client::new(server.address()), Client::new(server.address()));
    for (line, writes) in [("GET a", false), ("PFCOUNT h", true), ("PUBLISH c m", true), ("SET a 1", true)] {
        other.ask("MULTI");
        other.ask("GET a");
        other.ask(line);
        client.ask("CLIENT PAUSE 100000000 WRITE");
        other.send(&request(&["EXEC"])).unwrap();
        if !writes {
            assert_eq!(other.answer().unwrap(), "$-1 $-1", "{line}");
        } else {
            // The one loop looks at both clients in each round.
            (0..10).for_each(|_| _ = client.ask("PING"));
            assert!(client.ask("CLIENT LIST").contains(" multi=2 "), "{line} was carried out");
        }
        client.ask("CLIENT UNPAUSE");
        if writes {
            assert!(other.answer().unwrap().starts_with("$-1 "), "{line}");
        }
    }
}

#[test]
fn answers_are_left_out_as_asked() {
    let server = server(1);
    let mut client = Client::new(server.address());
    let send = |client: &mut Client, line: &str| client.send(&request(&line.split(' ').collect::<Vec<_>>())).unwrap();
    send(&mut client, "CLIENT REPLY SKIP");
    send(&mut client, "SET a 1");
    assert_eq!(client.ask("GET a"), "1");
    send(&mut client, "CLIENT REPLY OFF");
    send(&mut client, "SET a 2");
    send(&mut client, "GET a");
    assert_eq!(client.ask("CLIENT REPLY ON"), "+OK");
    assert_eq!(client.ask("GET a"), "2");
    for line in ["MULTI", "INCR a", "CLIENT ID"] {
        client.ask(line);
    }
    send(&mut client, "CLIENT REPLY SKIP");
    assert_eq!(client.answer().unwrap(), "+QUEUED");
    assert_eq!(client.ask("DISCARD"), "+OK");
}

#[test]
fn subscriptions_are_confirmed_without_answers() {
    let server = server(1);
    let (mut client, mut other) = (Client::new(server.address()), Client::new(server.address()));
    let send = |client: &mut Client, line: &str| client.send(&request(&line.split(' ').collect::<Vec<_>>())).unwrap();
    send(&mut client, "CLIENT REPLY OFF");
    send(&mut client, "HELLO 3");
    assert_eq!(client.ask("SUBSCRIBE news sport"), "subscribe news :1");
    assert_eq!(client.answer().unwrap(), "subscribe sport :2");
    assert_eq!(other.ask("PUBLISH sport goal"), ":1");
    assert_eq!(client.answer().unwrap(), "message sport goal");
    assert_eq!(client.ask("UNSUBSCRIBE news"), "unsubscribe news :1");
    assert_eq!(client.ask("PUNSUBSCRIBE"), "punsubscribe _ :1");
    assert_eq!(client.ask("CLIENT REPLY ON"), "+OK");
    send(&mut client, "CLIENT REPLY SKIP");
    assert_eq!(client.ask("SUBSCRIBE a b"), "subscribe a :2");
    assert_eq!(client.answer().unwrap(), "subscribe b :3");
    assert_eq!(client.ask("PING"), "+PONG", "the subscription was what was skipped");
}

#[test]
fn a_monitor_does_not_begin_in_a_transaction() {
    let server = server(1);
    let mut client = Client::new(server.address());
    for line in ["MULTI", "SET a 1", "MONITOR", "GET a"] {
        client.ask(line);
    }
    assert_eq!(client.ask("EXEC"), "+OK -ERR MONITOR isn't allowed for DENY BLOCKING client 1");
    assert_eq!(client.ask("PING"), "+PONG", "no request is announced");
    assert_eq!(client.ask("MONITOR"), "+OK");
}

#[test]
fn pauses_have_a_range() {
    let server = server(1);
    let mut client = Client::new(server.address());
    for (millis, answer) in [
        ("9223372036854775807", "-ERR timeout is out of range"),
        ("9223372036854775000", "-ERR timeout is out of range"),
        ("9223372036854775808", "-ERR timeout is not an integer or out of range"),
        ("-1", "-ERR timeout is negative"),
        ("0", "+OK"),
    ] {
        assert_eq!(client.ask(&format!("CLIENT PAUSE {millis} WRITE")), answer);
    }
    assert_eq!(client.ask("SET a 1"), "+OK", "no pause has begun");
}

#[test]
fn resets_and_small_commands() {
    let server = server(1);
    let mut client = Client::new(server.address());
    client.ask("CLIENT SETNAME me");
    client.ask("SELECT 2");
    client.ask("MULTI");
    assert_eq!(client.ask("RESET"), "+RESET");
    assert_eq!(client.ask("CLIENT GETNAME"), "$-1");
    assert!(client.ask("CLIENT INFO").contains(" db=0 "));
    assert_eq!(client.ask("WAIT 0 0"), ":0");
    assert_eq!(client.ask("WAIT 1 10"), ":0");
    assert_eq!(client.ask("WAIT 1 -1"), "-ERR timeout is negative");
    assert!(client.ask("LOLWUT").contains("Redis ver. 7.0.15"));
    assert!(
        client.ask("DEBUG SLEEP 0").starts_with("-ERR DEBUG command not allowed. If the enable-debug-command option")
    );
    assert!(client.ask("CONFIG SET enable-debug-command yes").ends_with("can't set immutable config"));
    let server = started(Settings { debug: DebugAccess::Local, ..Settings::default() });
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("CONFIG GET enable-debug-command"), "enable-debug-command local");
    assert_eq!(client.ask("DEBUG SLEEP 0"), "+OK");
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 0"), "+OK");
    assert_eq!(client.ask("DEBUG SET-ACTIVE-EXPIRE 1"), "+OK");
    assert!(client.ask("DEBUG SEGFAULT").starts_with("-ERR unknown subcommand"));
    for command in ["CLIENT", "SLOWLOG", "LATENCY", "COMMAND", "CONFIG", "DEBUG", "PUBSUB", "OBJECT"] {
        assert!(client.ask(&format!("{command} HELP")).starts_with(&format!("+{command} <subcommand>")), "{command}");
        // Redis's `DEBUG` has no table of subcommands.
        let what = if command == "DEBUG" { " or wrong number of arguments for" } else { "" };
        let error = format!("-ERR unknown subcommand{what} 'WHAT'. Try {command} HELP.");
        assert_eq!(client.ask(&format!("{command} WHAT")), error);
    }
    assert_eq!(client.ask("CLIENT GETNAME me"), "-ERR wrong number of arguments for 'client|getname' command");
    assert_eq!(client.ask("COMMAND GETKEYS MSET a 1 b 2"), "a b");
    assert_eq!(client.ask("COMMAND GETKEYS PING x"), "-ERR The command has no key arguments");
    assert_eq!(client.ask("COMMAND GETKEYS SET a"), "-ERR Invalid number of arguments specified for command");
    assert_eq!(client.ask("COMMAND LIST FILTERBY PATTERN ZRANGEBYL*"), "zrangebylex");
    assert!(client.ask("COMMAND LIST FILTERBY ACLCAT list").contains("lmpop"));
    assert_eq!(client.ask("COMMAND DOCS GET"), "get since 1.0.0 group string");
    assert!(client.ask("COMMAND INFO GET NONE").starts_with("get :2 +readonly +fast :1 :1 :1"));
}

#[test]
fn a_group_may_be_named_like_the_option() {
    let server = server(1);
    let (mut waiting, mut other) = (Client::new(server.address()), Client::new(server.address()));
    other.ask("XGROUP CREATE s streams $ MKSTREAM");
    waiting.send(&request(&["XREADGROUP", "GROUP", "streams", "c", "BLOCK", "0", "STREAMS", "s", ">"])).unwrap();
    while !other.ask("INFO clients").contains("blocked_clients:1") {}
    assert_eq!(other.ask("XADD s 1-1 f v"), "1-1");
    assert_eq!(waiting.answer().unwrap(), "s 1-1 f v");
}

#[test]
fn nothing_is_served_to_a_client_that_was_killed() {
    let server = server(1);
    let (mut waiting, mut other) = (Client::new(server.address()), Client::new(server.address()));
    let id = number(&mut waiting);
    waiting.send(&request(&["BLPOP", "list", "0"])).unwrap();
    while !other.ask("INFO clients").contains("blocked_clients:1") {}
    other.send(&[request(&["CLIENT", "KILL", "ID", &id]), request(&["RPUSH", "list", "a"])].concat()).unwrap();
    assert_eq!((other.answer().unwrap(), other.answer().unwrap()), (":1".into(), ":1".into()));
    assert_eq!(other.ask("LRANGE list 0 -1"), "a");
    assert!(waiting.answer().is_err(), "it is ended");
}

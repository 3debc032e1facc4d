//! Libraries of functions. They are part of the database, so replicas, logs and snapshots contain them.

use crate::client::{Client, request, started};
use crate::durable::{self, spawn};
use archipelago_check::hostile::some_try;
use archipelago_journal::Simulated;
use archipelago_server::config::Settings;
use archipelago_server::server::Server;
use std::sync::Arc;

fn load(client: &mut Client, name: &str, body: &str) -> String {
    client.call(&["FUNCTION", "LOAD", "REPLACE", &format!("#!lua name={name}\n{body}")]).unwrap()
}

/// A library of two functions: one increments a key, the other returns the key's value.
const COUNTS: &str = "redis.register_function('count', function(keys) return redis.call('incr', keys[1]) end) \
     redis.register_function{function_name='counted', flags={'no-writes'}, callback=function(keys) \
     return redis.call('get', keys[1]) end}";

fn settings() -> Settings {
    Settings { replicas: 2, ..durable::settings() }
}

#[test]
fn replicas_a_log_and_a_snapshot_agree_on_libraries() {
    let disk = Simulated::new();
    let server = Server::start_on(&settings(), Arc::new(disk.clone())).unwrap();
    let mut clients = [Client::new(server.address()), Client::new(server.address())];
    assert_eq!(load(&mut clients[0], "counts", COUNTS), "counts");
    assert!(clients[1].ask("INFO memory").contains("number_of_functions:2\r\nnumber_of_libraries:1\r\n"));
    for round in 1..=20 {
        let [one, other] = &mut clients;
        let (one, other) = if round % 2 == 0 { (one, other) } else { (other, one) };
        assert_eq!(one.ask("FCALL count 1 n"), format!(":{round}"));
        assert_eq!(other.ask("FCALL counted 1 n"), round.to_string());
        assert_eq!(other.ask("FCALL_RO COUNTED 1 n"), round.to_string());
    }
    assert!(clients[1].ask("FCALL_RO count 1 n").starts_with("-ERR Can not execute a script with write flag"));
    // The requests are sent in one run of bytes, and then in a transaction.
    let lines = ["FCALL count 1 n", "FCALL counted 1 n", "INCR n", "FCALL counted 1 n", "FCALL nothing 0"];
    let lines = lines.map(|line| request(&line.split(' ').collect::<Vec<_>>()));
    clients[0].send(&lines.concat()).unwrap();
    let answers: Vec<String> = (0..5).map(|_| clients[0].answer().unwrap()).collect();
    assert_eq!(answers, [":21", "21", ":22", "22", "-ERR Function not found"]);
    for line in ["MULTI", "FCALL count 1 n", "FUNCTION DELETE counts", "FCALL count 1 n", "FUNCTION LIST"] {
        clients[0].ask(line);
    }
    assert_eq!(clients[0].ask("EXEC"), ":23 +OK -ERR Function not found ");
    assert_eq!(load(&mut clients[1], "counts", COUNTS), "counts");
    assert_eq!(clients[0].ask("FUNCTION NOTHING"), "-ERR unknown subcommand 'NOTHING'. Try FUNCTION HELP.");
    let there = clients.each_mut().map(|client| client.ask("FUNCTION LIST WITHCODE"));
    assert_eq!(there[0], there[1]);
    assert!(there[0].contains("no-writes") && there[0].contains("redis.register_function('count'"), "{}", there[0]);
    // The libraries are recovered from the log alone, and from a snapshot with later changes in the log.
    let alone = Server::start_on(&settings(), Arc::new(disk.restarted()));
    assert_eq!(Client::new(alone.unwrap().address()).ask("FUNCTION LIST WITHCODE"), there[0]);
    assert_eq!(clients[0].ask("SAVE"), "+OK");
    assert_eq!(load(&mut clients[0], "later", "redis.register_function('later', function() return 1 end)"), "later");
    let there = clients[1].ask("FUNCTION LIST WITHCODE");
    server.stop().unwrap();
    let later = Server::start_on(&settings(), Arc::new(disk.restarted())).unwrap();
    let mut client = Client::new(later.address());
    assert_eq!(client.ask("FUNCTION LIST WITHCODE"), there);
    assert_eq!(client.ask("FCALL count 1 n"), ":24");
    assert_eq!(client.ask("FUNCTION STATS"), "running_script $-1 engines LUA libraries_count :2 functions_count :3");
    assert_eq!(client.ask("FLUSHALL"), "+OK");
    assert_eq!(client.ask("FCALL later 0"), ":1", "they are no keys");
    later.stop().unwrap();
}

#[test]
fn libraries_survive_kills() {
    let directory = std::env::temp_dir().join(format!("archipelago-functions-kill-{}", std::process::id()));
    let (mut kept, mut payload) = (String::new(), String::new());
    for kill in 0..4 {
        let (mut child, address) = spawn(&directory);
        let mut client = Client::new(address);
        assert_eq!(client.ask("FUNCTION LIST WITHCODE"), kept, "after kill {kill}");
        match kill {
            0 => assert_eq!(load(&mut client, "counts", COUNTS), "counts"),
            1 => assert_eq!(client.ask("SAVE"), "+OK"),
            2 => {
                assert_eq!(client.ask("BGREWRITEAOF"), "+Background append only file rewriting started");
                while client.ask("INFO persistence").contains("aof_rewrite_in_progress:1") {}
                payload = client.ask("FUNCTION DUMP");
                assert_eq!(client.ask("FUNCTION FLUSH"), "+OK");
            }
            _ => assert_eq!(client.ask("FCALL count 1 n"), "-ERR Function not found"),
        }
        kept = client.ask("FUNCTION LIST WITHCODE");
        assert_eq!(kept.is_empty(), kill > 1);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(payload.contains("register_function"));
    std::fs::remove_dir_all(directory).unwrap();
}

/// Returns settings of a server without a time limit for scripts: the duration of scripts depends on the machine.
fn without_time(loops: usize) -> Settings {
    let parameters = vec![("lua-time-limit", "0".into())];
    Settings { loops, replicas: 2, parameters, ..Settings::default() }
}

/// Returns a function that runs for about a second and then carries out `after`.
fn slow(flags: &str, after: &str) -> String {
    format!(
        "redis.register_function{{function_name='slow', flags={{{flags}}}, callback=function(keys) \
         for n = 1, 20000000 do local x = n * n end {after} end}}"
    )
}

#[test]
fn a_function_that_reads_runs_beside_changes() {
    some_try(5, || {
        let server = started(without_time(1));
        let had_ended = changes_beside_a_slow_function(&server);
        server.stop().unwrap();
        if had_ended { Err("the function had ended before the changes".into()) } else { Ok(()) }
    });
}

/// Returns whether the function had ended when the changes were made. Either they waited for it, or this process did
/// not get a processor meanwhile.
fn changes_beside_a_slow_function(server: &Server) -> bool {
    let (mut slowly, mut writer) = (Client::new(server.address()), Client::new(server.address()));
    assert_eq!(load(&mut writer, "lib", &slow("'no-writes'", "return redis.call('get', 'n')")), "lib");
    slowly.send(&request(&["FCALL", "slow", "0"])).unwrap();
    while !writer.ask("CLIENT LIST").contains("cmd=fcall") {}
    for number in 1..=10 {
        assert_eq!(writer.ask("INCR n"), format!(":{number}"));
    }
    // If the function has not ended yet, the changes did not wait for it. The function returns a value that the key had
    // at some moment since the function's start.
    let had_ended = writer.ask("INFO commandstats").contains("cmdstat_fcall:");
    let seen = slowly.answer().unwrap();
    assert!(seen == "$-1" || (1..=10).any(|number| seen == number.to_string()), "{seen}");
    had_ended
}

#[test]
fn a_function_that_is_replaced_while_it_waits_for_a_thread_is_a_change() {
    some_try(5, || {
        let server = started(without_time(1));
        let answers = replaced_while_it_waits(&server);
        server.stop().unwrap();
        match [answers.0.as_str(), answers.1.as_str()] {
            ["changed", "b"] => Ok(()),
            // This process did not get a processor until the thread was free again.
            ["read", "$-1"] => Err("it was replaced only after it had run".into()),
            _ => panic!("{answers:?}"),
        }
    });
}

/// Returns the answers to a function that is replaced while the only thread for it is busy, and to a read after it.
fn replaced_while_it_waits(server: &Server) -> (String, String) {
    let mut clients = [(); 3].map(|()| Client::new(server.address()));
    let [busy, waits, writer] = &mut clients;
    let read = "redis.register_function{function_name='f', flags={'no-writes'}, callback=function() return 'read' end}";
    let change = "redis.register_function('f', function() redis.call('set', 'a', 'b') return 'changed' end)";
    assert_eq!(load(writer, "lib", read), "lib");
    assert_eq!(load(writer, "slow", &slow("'no-writes'", "return 1")), "slow");
    assert_eq!((waits.ask("FCALL f 0"), waits.ask("PING")), ("read".into(), "+PONG".into()));
    // The only thread for long reads is busy on the last replica. Changes continue.
    let mut called = |clients: usize| loop {
        let list = writer.ask("CLIENT LIST");
        // A client that already has the answer to `FCALL` has `GET` as its command.
        if list.matches("cmd=fcall").count() + list.matches("cmd=get").count() >= clients {
            break;
        }
    };
    busy.send(&request(&["FCALL", "slow", "0"])).unwrap();
    called(1);
    waits.send(&[request(&["FCALL", "f", "0"]), request(&["GET", "a"])].concat()).unwrap();
    called(2);
    assert_eq!(load(writer, "lib", change), "lib");
    let answers = (waits.answer().unwrap(), waits.answer().unwrap());
    assert_eq!(busy.answer().unwrap(), ":1");
    assert_eq!(waits.ask("FCALL f 0"), "changed");
    answers
}

/// Returns the resident memory of this process, in bytes. The server runs in this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn hostile_libraries_harm_nobody() {
    let server = started(without_time(2));
    let (mut hostile, mut other) = (Client::new(server.address()), Client::new(server.address()));
    assert_eq!(load(&mut other, "counts", COUNTS), "counts");
    let before = resident();
    let endless = load(&mut hostile, "counts", "while true do end");
    assert!(endless.contains("more instructions than a script may"), "{endless}");
    let long = format!("redis.register_function('f', redis.log) --{}", "x".repeat(100_000_000));
    assert!(load(&mut hostile, "long", &long).contains("may take 64 MiB"));
    let late =
        "local api = redis redis.register_function('late', function() return api.register_function('x', api.log) end)";
    assert_eq!(load(&mut hostile, "late", late), "late");
    assert!(hostile.ask("FCALL late 0").contains("can only be called on FUNCTION LOAD"));
    let globals =
        "redis.register_function('bad', function() redis.call = nil string.rep = 1 table.concat = 1 _G = nil end)";
    assert_eq!(load(&mut hostile, "bad", globals), "bad");
    assert!(hostile.ask("FCALL bad 0").contains("readonly"));
    let many = "for n = 1, 10000 do redis.register_function('f' .. n, function() return n end) end";
    assert_eq!(load(&mut hostile, "many", many), "many");
    assert_eq!(hostile.ask("FCALL f10000 0"), ":10000");
    for at in 0..200 {
        let payload = "x".repeat(at);
        assert!(hostile.call(&["FUNCTION", "RESTORE", &payload, "FLUSH"]).unwrap().starts_with("-ERR DUMP payload"));
    }
    assert_eq!(other.ask("FCALL count 1 n"), ":1");
    assert_eq!(other.ask("FUNCTION STATS").split(' ').nth(5), Some(":4"));
    assert!(resident() < before + (1 << 30), "memory grew from {before} to {}", resident());
    server.stop().unwrap();
}

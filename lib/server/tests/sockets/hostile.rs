//! Hostile clients, and other clients beside them.

use crate::client::{Client, request, server, started};
use archipelago_server::config::Appendonly;
use archipelago_server::server::{Server, Settings};
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// Returns the resident memory of this process, in bytes. The server runs in this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

const ALONE: &str = "ARCHIPELAGO_SERVER_ALONE";

/// Returns whether this process runs the named test alone. If not, runs it in a process of its own: `resident` is then
/// not about the memory of other tests.
fn alone(name: &str) -> bool {
    if std::env::var(ALONE).is_ok() {
        return true;
    }
    let mut own = Command::new(std::env::current_exe().unwrap());
    own.args(["--exact", name, "--nocapture"]).env(ALONE, "1");
    // The GNU C library keeps up to 64 MiB of freed memory for each thread, unless a threshold is set: then it returns
    // all blocks above the threshold to the system at once.
    own.env("MALLOC_MMAP_THRESHOLD_", "131072");
    let done = own.output().unwrap();
    let [said, told] = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(done.status.success() && said.contains("1 passed"), "{said}{told}");
    false
}

#[test]
fn a_client_that_reads_nothing_stops_itself_only() {
    if !alone("hostile::a_client_that_reads_nothing_stops_itself_only") {
        return;
    }
    let server = server(1);
    let (mut slow, mut other) = (Client::new(server.address()), Client::new(server.address()));
    let value = "v".repeat(10_000);
    slow.call(&["SET", "big", &value]).unwrap();
    let before = resident();
    // A million requests are 22 MB, and their answers are 10 GB. The server processes requests only while answers are
    // read.
    let pipeline = request(&["GET", "big"]).repeat(10_000);
    let (mut sent, mut refused) = (0, 0);
    while sent < 100 * pipeline.len() && refused < 200 {
        match slow.stuff(&pipeline[sent % pipeline.len()..]) {
            0 => {
                refused += 1;
                assert_eq!(other.ask("PING"), "+PONG");
            }
            more => sent += more,
        }
    }
    assert!(refused == 200, "the server took all {sent} bytes of a client that reads nothing");
    assert!(resident() < before + (64 << 20), "memory grew from {before} to {}", resident());
    // All requests are answered once the client reads.
    for _ in 0..1000 {
        assert_eq!(slow.answer().unwrap().len(), value.len());
    }
}

#[test]
fn a_length_announces_nothing() {
    if !alone("hostile::a_length_announces_nothing") {
        return;
    }
    let server = server(1);
    let before = resident();
    let mut clients: Vec<Client> = (0..50).map(|_| Client::new(server.address())).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let announced: [&[u8]; 3] =
            [b"*2\r\n$3\r\nGET\r\n$536870912\r\nabc", b"*1048576\r\n$3\r\nGET\r\n", b"*1000000000\r\n$3\r\nGET\r\n"];
        client.send(announced[number % 3]).unwrap();
    }
    assert_eq!(Client::new(server.address()).ask("PING"), "+PONG");
    assert!(resident() < before + (64 << 20), "memory grew from {before} to {}", resident());
}

#[test]
fn idle_clients_cost_little_and_are_counted() {
    let server = started(Settings { loops: 2, clients: 200, ..Settings::default() });
    let mut clients: Vec<Client> = (0..200).map(|_| Client::new(server.address())).collect();
    assert!(clients.iter_mut().all(|client| client.ask("PING") == "+PONG"));
    let mut more = Client::new(server.address());
    assert_eq!(more.answer().unwrap(), "-ERR max number of clients reached");
    assert!(more.answer().is_err(), "it is ended");
    assert!(clients[0].ask("INFO clients").contains("connected_clients:200"));
    // Clients that are gone make room for others.
    clients.truncate(100);
    while !clients[0].ask("INFO clients").contains("connected_clients:100") {}
    assert_eq!(Client::new(server.address()).ask("PING"), "+PONG");
}

const CROWD: &str = "ARCHIPELAGO_SERVER_CROWD";

/// The part of the test below that runs in its own process, with as many descriptors as the system allows. Does nothing
/// without the variable.
#[test]
fn crowd() {
    let Ok(directory) = std::env::var(CROWD) else { return };
    let (mut child, address) = crate::durable::spawn(std::path::Path::new(&directory));
    let resident = || {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", child.id())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = resident();
    let mut other = Client::new(address);
    let mut connected = |count: usize| {
        let expected = format!("connected_clients:{count}\r\n");
        while !other.ask("INFO clients").contains(&expected) {}
    };
    let mut clients = Vec::new();
    for number in 1..=9_990 {
        clients.push(TcpStream::connect(address).unwrap());
        // The system drops connections that arrive faster than the server accepts them, and each dropped connection is
        // retried after a second.
        if number % 64 == 0 {
            connected(1 + number);
        }
    }
    // A third of the clients sends nothing, a third sends part of a request, a third sends one request.
    for (number, client) in clients.iter_mut().enumerate() {
        let said: &[u8] = [&b""[..], b"*2\r\n$3\r\nGET\r\n$5\r\nab", b"PING\r\n"][number % 3];
        client.write_all(said).unwrap();
    }
    connected(9_991);
    (0..1_000).for_each(|number| assert_eq!(other.ask("INCR n"), format!(":{}", number + 1)));
    let each = resident().saturating_sub(before) / clients.len();
    assert!(each < 16 << 10, "a client that is idle takes {each} bytes");
    drop(clients);
    while !other.ask("INFO clients").contains("connected_clients:1\r\n") {}
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn ten_thousand_idle_clients_disturb_nobody() {
    let directory = std::env::temp_dir().join(format!("archipelago-server-crowd-{}", std::process::id()));
    let done = Command::new("sh")
        .args(["-c", "ulimit -n $(ulimit -Hn) && exec \"$0\" --exact hostile::crowd --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(CROWD, &directory)
        .output()
        .unwrap();
    std::fs::remove_dir_all(directory).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn malformed_requests_end_their_client() {
    let server = server(1);
    let mut client = Client::new(server.address());
    client.send(b"*1\r\n:1\r\n").unwrap();
    assert_eq!(client.answer().unwrap(), "-ERR Protocol error: expected '$', got ':'");
    assert!(client.answer().is_err());
}

#[test]
fn a_password_comes_first() {
    let server = started(Settings { password: Some("secret".into()), ..Settings::default() });
    let mut client = Client::new(server.address());
    assert_eq!(client.ask("GET a"), "-NOAUTH Authentication required.");
    assert!(client.ask("AUTH wrong!").starts_with("-WRONGPASS"));
    assert!(client.ask("HELLO 3").starts_with("-NOAUTH"));
    assert_eq!(client.ask("AUTH secret"), "+OK");
    assert_eq!(client.ask("SET a 1"), "+OK");
}

/// Waits until the server has this many clients, including the one that asks. Ends the test if this takes minutes.
fn until_there_are(server: &Server, clients: usize) {
    let mut client = Client::new(server.address());
    let line = format!("connected_clients:{clients}\r\n");
    for _ in 0..60_000 {
        if client.ask("INFO clients").contains(&line) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("{}", client.ask("CLIENT LIST"));
}

/// Waits until the server has no other clients.
fn until_alone(server: &Server) {
    until_there_are(server, 1);
}

#[test]
fn a_client_that_has_ended_its_requests_gets_all_answers() {
    let directory = std::env::temp_dir().join(format!("archipelago-server-halves-{}", std::process::id()));
    for appendonly in [Appendonly::No, Appendonly::Always] {
        let server = started(Settings { loops: 2, appendonly, directory: directory.clone(), ..Settings::default() });
        let mut client = Client::new(server.address());
        let value = "v".repeat(10_000);
        let mut requests = request(&["SET", "big", &value]);
        for line in ["MULTI", "INCR n", "EXEC", "WATCH n", "EVAL return{1,2} 0"] {
            requests.extend(request(&line.split(' ').collect::<Vec<_>>()));
        }
        // The answers exceed the buffers of both sockets, so the server sees the end of the requests long before it has
        // sent the answers.
        requests.extend(request(&["GET", "big"]).repeat(2_000));
        requests.extend([request(&["INCR", "n"]), b"*2\r\n$3\r\nGET\r\n$5\r\nab".to_vec()].concat());
        client.send(&requests).unwrap();
        client.end_requests();
        for expected in ["+OK", "+OK", "+QUEUED", ":1", "+OK", ":1 :2"] {
            assert_eq!(client.answer().unwrap(), expected);
        }
        (0..2_000).for_each(|_| assert!(client.answer().unwrap() == value));
        assert_eq!(client.answer().unwrap(), ":2");
        assert!(client.answer().is_err(), "the other direction is ended, too");
        // As in Redis, a client that has ended its requests does not wait for a key.
        let mut waiting = Client::new(server.address());
        waiting.send(&request(&["BLPOP", "list", "0"])).unwrap();
        waiting.end_requests();
        assert!(waiting.answer().is_err());
        until_alone(&server);
        let mut other = Client::new(server.address());
        assert_eq!([other.ask("RPUSH list a"), other.ask("LLEN list")], [":1", ":1"]);
        server.stop().unwrap();
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// The number of bytes that are sent of an incomplete request.
const UNFINISHED: usize = 8 << 20;

/// Returns four clients. For each the server must keep something: half of a request, unread answers, a transaction, or
/// a place in the queue of a key.
fn burdens(server: &Server) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..4).map(|_| Client::new(server.address())).collect();
    clients[0].send(format!("*2\r\n$3\r\nGET\r\n${}\r\n", 2 * UNFINISHED).as_bytes()).unwrap();
    clients[0].send(&vec![b'x'; UNFINISHED]).unwrap();
    clients[1].send(&request(&["GET", "big"]).repeat(200)).unwrap();
    assert_eq!(clients[2].ask("MULTI"), "+OK");
    assert_eq!(clients[2].call(&["SET", "never", &"x".repeat(UNFINISHED)]).unwrap(), "+QUEUED");
    clients[3].send(&request(&["BLPOP", "list", "1000000"])).unwrap();
    clients
}

#[test]
fn a_client_that_vanishes_leaves_nothing() {
    if !alone("hostile::a_client_that_vanishes_leaves_nothing") {
        return;
    }
    let server = server(2);
    Client::new(server.address()).call(&["SET", "big", &"v".repeat(100_000)]).unwrap();
    until_alone(&server);
    let before = resident();
    for round in 0..16 {
        burdens(&server).into_iter().for_each(Client::vanish);
        until_alone(&server);
        // The clients of all rounds together need more than 256 MiB.
        assert!(resident() < before + (64 << 20), "{round}: memory grew from {before} to {}", resident());
    }
    let mut other = Client::new(server.address());
    assert!(other.ask("INFO clients").contains("blocked_clients:0\r\n"));
    assert_eq!([other.ask("RPUSH list a"), other.ask("LLEN list"), other.ask("EXISTS never")], [":1", ":1", ":0"]);
}

#[test]
fn a_client_that_does_nothing_for_ever_is_ended_if_there_is_a_timeout() {
    if !alone("hostile::a_client_that_does_nothing_for_ever_is_ended_if_there_is_a_timeout") {
        return;
    }
    let server = server(2);
    let mut other = Client::new(server.address());
    other.call(&["SET", "big", &"v".repeat(100_000)]).unwrap();
    let before = resident();
    let mut silent: Vec<Vec<Client>> = (0..8).map(|_| burdens(&server)).collect();
    assert_eq!(other.ask("CONFIG SET timeout 1"), "+OK");
    drop(other);
    // As in Redis, clients that wait for a key are not idle, so they continue to wait.
    until_there_are(&server, 9);
    assert!(resident() < before + (64 << 20), "memory grew from {before} to {}", resident());
    for clients in &mut silent {
        let mut waiting = clients.pop().unwrap();
        assert_eq!(Client::new(server.address()).ask("RPUSH list a"), ":1");
        assert_eq!(waiting.answer().unwrap(), "list a");
    }
    until_alone(&server);
    for client in silent.iter_mut().flatten() {
        while client.answer().is_ok() {}
    }
}

//! Commands that act on the connection, most of them in transactions: the answers of redis-server 7.0.15 byte for byte.
//!
//! A line of `sessions.txt` has requests, a tab, and everything that redis-server sends for them. Semicolons separate the
//! requests. They are sent at once on a new connection, and the client then closes its direction of the connection. If
//! this server's answers differ by choice, another tab and these answers follow. [The server's
//! documentation](../../../../docs/mechanisms/server.md) lists these differences. Lines that begin with `#` are comments.
//!
//! With redis-server, the recorded answers are compared with redis-server's own. `ARCHIPELAGO_RECORD=1` records them
//! again.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use archipelago_server::server::{Server, Settings};

use crate::theirs::{Theirs, request};

/// What a session needs to be like the first: no keys, scripts and users of earlier sessions.
const BEGIN: &str = "FLUSHALL;SCRIPT FLUSH;ACL DELUSER u";

/// Returns the words of a request. A word between quotes may contain blanks.
fn words(line: &str) -> Vec<Vec<u8>> {
    let quoted = line.split('"').enumerate();
    let words = quoted.flat_map(|(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() });
    words.map(|word| word.as_bytes().to_vec()).collect()
}

/// Replaces what differs from one connection to another: the number of the client in the answer to `HELLO`, and the time
/// and the address in a line for a monitor.
fn masked(answers: &str) -> String {
    let line = |line: &str, before: Option<&str>| match before {
        Some("id") if line.starts_with(':') => ":<id>".to_owned(),
        _ => match line.split_once(" [").zip(line.split_once("] ")) {
            Some(((time, from), (_, words))) if time.starts_with('+') && time.contains('.') => {
                format!("+<time> [{} <peer>] {words}", from.split(' ').next().unwrap_or_default())
            }
            _ => line.to_owned(),
        },
    };
    let lines: Vec<&str> = answers.split("\r\n").collect();
    let before = |at: usize| at.checked_sub(1).map(|at| lines[at]);
    let lines: Vec<String> = lines.iter().enumerate().map(|(at, each)| line(each, before(at))).collect();
    lines.join("|")
}

/// Sends requests, and returns everything that the server sends until it closes the connection.
fn session<S: Read + Write>(mut stream: S, line: &str, end: impl FnOnce(&S) -> io::Result<()>) -> String {
    let requests: Vec<u8> = line.split(';').flat_map(|one| request(&words(one))).collect();
    stream.write_all(&requests).expect("the server listens");
    // The server may have closed the connection already.
    let _ = end(&stream);
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).expect("the server closes the connection");
    masked(&String::from_utf8(answers).expect("answers are texts"))
}

fn of_theirs(theirs: &Theirs, line: &str) -> String {
    session(theirs.connect(), line, |stream| stream.shutdown(Shutdown::Write))
}

fn of_ours(server: &Server, line: &str) -> String {
    let stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a duration");
    session(stream, line, |stream| stream.shutdown(Shutdown::Write))
}

#[test]
fn sessions_are_answered_as_redis_answers_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/sessions.txt");
    let file = fs::read_to_string(&path).expect("there are recorded answers");
    let theirs = Theirs::start_or("the recorded answers to sessions are compared");
    let settings = Settings { address: ([127, 0, 0, 1], 0).into(), loops: 1, ..Settings::default() };
    let server = Server::start(&settings).expect("there is a free port");
    let (mut record, mut wrong, mut lines) = (String::new(), Vec::new(), 0);
    for line in file.lines() {
        let mut parts = line.split('\t');
        let (requests, recorded, other) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        if requests.starts_with('#') {
            record += &format!("{line}\n");
            continue;
        }
        lines += 1;
        let expected = match &theirs {
            None => recorded.expect("it is recorded").to_owned(),
            Some(theirs) => {
                of_theirs(theirs, BEGIN);
                of_theirs(theirs, requests)
            }
        };
        of_ours(&server, BEGIN);
        let here = of_ours(&server, requests);
        let chosen = other.unwrap_or(&expected);
        record += &format!("{requests}\t{expected}");
        record += &other.filter(|other| **other != *expected).map(|other| format!("\t{other}")).unwrap_or_default();
        record.push('\n');
        if here != chosen {
            wrong.push(format!("{requests}\n  here     {here}\n  expected {chosen}"));
        }
    }
    if theirs.is_some() && env::var_os("ARCHIPELAGO_RECORD").is_some() {
        fs::write(&path, &record).expect("the record can be written");
    } else {
        assert_eq!(record, file, "redis-server answers as it did");
    }
    assert!(wrong.is_empty(), "{} of {lines} differ:\n{}", wrong.len(), wrong.join("\n"));
    server.stop().expect("it has no log");
}

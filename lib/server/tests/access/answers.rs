//! The answers are those of Redis 7.0.15, which are recorded.
//!
//! `ARCHIPELAGO_RECORD=1` runs the installed `redis-server` and records the answers again.

use crate::client::{Client, server};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, thread, time::Duration};

/// Requests of three clients. The first letter of a line is the client: `a` is the user `default`; `b` and `c` authenticate
/// as other users.
const REQUESTS: &str = include_str!("requests.txt");

/// Sends all requests. Returns requests and answers as text.
fn asked(address: SocketAddr) -> String {
    let mut clients = [(); 3].map(|()| Client::new(address));
    let mut all = String::new();
    for line in REQUESTS.lines().filter(|line| !line.is_empty()) {
        let (who, request) = line.split_once(' ').unwrap();
        let words: Vec<String> = request.split(' ').map(|word| word.replace('_', " ")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let answer = clients[(who.as_bytes()[0] - b'a') as usize].call(&words);
        all += &format!("> {line}\n{}\n", answer.map_or_else(|_| "ended".into(), |answer| unnumbered(&answer)));
    }
    all
}

/// Hides the client's number in the answer to `HELLO`. The number in Redis's answer also counts the clients that started the
/// recording.
fn unnumbered(answer: &str) -> String {
    let mut words: Vec<&str> = answer.split(' ').collect();
    if let Some(place) = words.iter().position(|word| *word == "id").filter(|_| words[0] == "server") {
        words[place + 1] = "N";
    }
    words.join(" ")
}

fn recorded() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/access/answers.txt")
}

fn record() {
    let port = 20_000 + std::process::id() % 20_000;
    let mut theirs = Command::new("redis-server")
        .args(["--save", "", "--bind", "127.0.0.1", "--port", &port.to_string()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let address = ([127, 0, 0, 1], port as u16).into();
    while Client::try_new(address).is_err() {
        thread::sleep(Duration::from_millis(20));
    }
    fs::write(recorded(), asked(address)).unwrap();
    theirs.kill().unwrap();
    theirs.wait().unwrap();
}

#[test]
fn answers_are_those_of_redis() {
    if env::var_os("ARCHIPELAGO_RECORD").is_some() {
        record();
    }
    let ours = asked(server(2).address());
    let theirs = fs::read_to_string(recorded()).unwrap();
    let pairs = ours.split("> ").zip(theirs.split("> "));
    let differences: Vec<String> = pairs
        .filter(|(ours, theirs)| ours != theirs)
        .map(|(ours, theirs)| format!("{ours}  Redis: {theirs}"))
        .collect();
    assert!(differences.is_empty() && ours.len() == theirs.len(), "{}", differences.join("\n"));
}

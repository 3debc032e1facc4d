//! Resident memory per key, compared with redis-server, for loads like `DEBUG POPULATE` of each type.
//!
//! `cargo run --release -p archipelago-server --example memory -- [KEYS [COMMAND WORDS…]]`. KEYS is the number of keys of
//! each load (1,000,000 by default). COMMAND starts the server to be measured. A port is appended to its words
//! (`target/release/archipelago serve --port`). By default the server is this program. Needs Linux and `redis-server`.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use archipelago_server::server::{Server, Settings};

/// A load: its name, and a function that returns the words of the command for key number `n`.
type Load = (&'static str, fn(u64) -> Vec<String>);

fn words(first: &[&str], rest: impl Iterator<Item = String>) -> Vec<String> {
    first.iter().map(|word| (*word).to_owned()).chain(rest).collect()
}

fn key(number: u64) -> String {
    format!("key:{number}")
}

/// Returns ten small items that differ from key to key.
fn items(number: u64) -> impl Iterator<Item = String> {
    (0..10).map(move |item| format!("item:{}", number * 10 + item))
}

const LOADS: &[Load] = &[
    ("strings of 3 bytes", |n| words(&["SET", &key(n), "abc"], std::iter::empty())),
    ("strings as DEBUG POPULATE", |n| words(&["SET", &key(n), &format!("value:{n}")], std::iter::empty())),
    ("strings of 16 bytes", |n| words(&["SET", &key(n), &format!("{n:0>15}x")], std::iter::empty())),
    ("strings of 100 bytes", |n| words(&["SET", &key(n), &"x".repeat(100)], std::iter::empty())),
    ("integers", |n| words(&["SET", &key(n), &n.to_string()], std::iter::empty())),
    ("strings that expire", |n| words(&["SET", &key(n), "abc", "EX", &(100_000 + n).to_string()], std::iter::empty())),
    ("hashes of 10 fields", |n| {
        words(&["HSET", &key(n)], items(n).enumerate().flat_map(|(at, item)| [format!("field:{at}"), item]))
    }),
    ("lists of 10 items", |n| words(&["RPUSH", &key(n)], items(n))),
    ("sets of 10 items", |n| words(&["SADD", &key(n)], items(n))),
    ("sets of 10 integers", |n| words(&["SADD", &key(n)], (0..10).map(|at| (n * 7 + at * 1001).to_string()))),
    ("sorted sets of 10 items", |n| {
        words(&["ZADD", &key(n)], items(n).enumerate().flat_map(|(at, item)| [at.to_string(), item]))
    }),
    ("one sorted set", |n| words(&["ZADD", "zset", &n.to_string(), &format!("member:{n}")], std::iter::empty())),
    ("one set", |n| words(&["SADD", "set", &format!("member:{n}")], std::iter::empty())),
    ("one hash", |n| words(&["HSET", "hash", &format!("field:{n}"), &format!("value:{n}")], std::iter::empty())),
    ("one list", |n| words(&["RPUSH", "list", &format!("item:{n}")], std::iter::empty())),
];

/// A server in a process of its own, and a connection to it.
struct Served(Child, TcpStream);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Served {
    fn start(command: &[String]) -> Result<Self, String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.map_err(|error| error.to_string())?.port();
        let mut process = Command::new(&command[0]);
        process.args(&command[1..]).arg(port.to_string()).stdout(Stdio::null());
        let mut child = process.spawn().map_err(|error| format!("{}: {error}", command[0]))?;
        for _ in 0..500 {
            std::thread::sleep(Duration::from_millis(10));
            if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
                return Ok(Self(child, stream));
            }
        }
        let _ = child.kill();
        Err(format!("{} does not listen", command[0]))
    }

    /// Returns the resident memory of the server in kilobytes, as the system reports it.
    fn resident(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/status", self.0.id());
        let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).ok_or("no VmRSS".into())
    }

    fn fill(&self, keys: u64, load: fn(u64) -> Vec<String>) -> std::io::Result<()> {
        let mut answers = BufReader::new(self.1.try_clone()?);
        let mut requests = BufWriter::new(&self.1);
        let mut line = String::new();
        for from in (0..keys).step_by(500) {
            let to = keys.min(from + 500);
            for number in from..to {
                let words = load(number);
                write!(requests, "*{}\r\n", words.len())?;
                words.iter().try_for_each(|word| write!(requests, "${}\r\n{word}\r\n", word.len()))?;
            }
            requests.flush()?;
            for _ in from..to {
                line.clear();
                answers.read_line(&mut line)?;
                if !line.starts_with(['+', ':']) {
                    return Err(std::io::Error::other(line));
                }
            }
        }
        Ok(())
    }
}

fn measure(command: &[String], keys: u64, load: fn(u64) -> Vec<String>) -> Result<f64, String> {
    let served = Served::start(command)?;
    let before = served.resident()?;
    served.fill(keys, load).map_err(|error| error.to_string())?;
    Ok((served.resident()? - before) * 1024.0 / keys as f64)
}

fn serve(port: u16) -> Result<(), String> {
    let settings = Settings { address: ([127, 0, 0, 1], port).into(), ..Settings::default() };
    Server::start(&settings)?.wait()
}

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, word, port] = &args[..]
        && word == "--serve"
    {
        return serve(port.parse().map_err(|_| "a port is a number")?);
    }
    let keys = args.get(1).map_or(Ok(1_000_000), |keys| keys.parse()).map_err(|_| "KEYS is a number")?;
    let ours = if args.len() > 2 { args[2..].to_vec() } else { vec![args[0].clone(), "--serve".into()] };
    let theirs = ["redis-server", "--save", "", "--appendonly", "no", "--port"].map(str::to_owned);
    println!("| {keys} keys or items | ours, bytes each | Redis, bytes each | ours ÷ Redis |\n|---|---:|---:|---:|");
    for (name, load) in LOADS {
        let (ours, theirs) = (measure(&ours, keys, *load)?, measure(&theirs, keys, *load)?);
        println!("| {name} | {ours:.0} | {theirs:.0} | {:.2} |", ours / theirs);
    }
    Ok(())
}

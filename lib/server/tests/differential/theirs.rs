//! The system's `redis-server`, on a socket in a folder of its own, and its answers.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

/// An answer in RESP2.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum Answer {
    Null,
    NullArray,
    Status(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Array(Vec<Answer>),
}

/// Reads the next answer from a stream.
pub fn parse(input: &mut impl BufRead) -> Option<Answer> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line).ok()?;
    let line = String::from_utf8_lossy(line.strip_suffix(b"\r\n")?).into_owned();
    let (sign, rest) = line.split_at(1);
    Some(match (sign, rest) {
        ("+", _) => Answer::Status(rest.into()),
        ("-", _) => Answer::Error(rest.into()),
        (":", _) => Answer::Int(rest.parse().ok()?),
        ("$", "-1") => Answer::Null,
        ("*", "-1") => Answer::NullArray,
        ("$", _) => {
            let mut bytes = vec![0; rest.parse::<usize>().ok()? + 2];
            input.read_exact(&mut bytes).ok()?;
            bytes.truncate(bytes.len() - 2);
            Answer::Bulk(bytes)
        }
        ("*", _) => Answer::Array((0..rest.parse().ok()?).map(|_| parse(input)).collect::<Option<_>>()?),
        _ => return None,
    })
}

pub struct Theirs {
    server: Child,
    /// The folder in which it saves files.
    pub folder: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Returns a number for each server of this process.
fn next() -> usize {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    STARTED.fetch_add(1, Relaxed)
}

impl Theirs {
    /// Starts a server. If redis-server 7.0 is not installed, returns `None`, and reports what is done instead. The
    /// report is written to the standard error directly: the harness shows what `println!` prints only if the test
    /// fails.
    pub fn start_or(instead: &str) -> Option<Self> {
        let theirs = Self::start();
        if theirs.is_none() {
            let line = format!("\n!!! redis-server 7.0 is not installed: {instead} !!!\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        theirs
    }

    fn start() -> Option<Self> {
        let version = Command::new("redis-server").arg("--version").output().ok()?;
        if !String::from_utf8_lossy(&version.stdout).contains("v=7.0.") {
            return None;
        }
        let folder = env::temp_dir().join(format!("archipelago-differential-{}-{}", std::process::id(), next()));
        fs::create_dir_all(&folder).ok()?;
        let socket = folder.join("socket");
        let settings = ["--port", "0", "--save", "", "--appendonly", "no", "--enable-debug-command", "local"];
        // The limit of this server. In Redis it is 512 by default.
        let limit = ["--hash-max-listpack-entries", "128"];
        let mut command = Command::new("redis-server");
        command
            .args(settings)
            .args(limit)
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = command.spawn().ok()?;
        let stream =
            (0..200).find_map(|_| UnixStream::connect(&socket).inspect_err(|_| sleep(Duration::from_millis(20))).ok());
        let stream = BufReader::new(stream.expect("redis-server listens"));
        Some(Self { server, folder, stream })
    }

    /// Returns a new connection. Reads fail after 30 seconds.
    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.join("socket")).expect("redis-server listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a duration");
        stream
    }

    pub fn ask(&mut self, command: &[Vec<u8>]) -> Answer {
        self.stream.get_mut().write_all(&request(command)).expect("redis-server listens");
        parse(&mut self.stream).expect("redis-server answers")
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the bytes of a request.
pub fn request(command: &[Vec<u8>]) -> Vec<u8> {
    let mut request = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        request.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        request.extend_from_slice(argument);
        request.extend_from_slice(b"\r\n");
    }
    request
}

/// Appends the bytes of an answer.
pub fn bytes(answer: &Answer, out: &mut Vec<u8>) {
    let mut line = |text: String| out.extend_from_slice(text.as_bytes());
    match answer {
        Answer::Null => line("$-1\r\n".into()),
        Answer::NullArray => line("*-1\r\n".into()),
        Answer::Status(text) => line(format!("+{text}\r\n")),
        Answer::Error(text) => line(format!("-{text}\r\n")),
        Answer::Int(number) => line(format!(":{number}\r\n")),
        Answer::Bulk(content) => {
            line(format!("${}\r\n", content.len()));
            out.extend_from_slice(content);
            out.extend_from_slice(b"\r\n");
        }
        Answer::Array(all) => {
            line(format!("*{}\r\n", all.len()));
            all.iter().for_each(|one| bytes(one, out));
        }
    }
}

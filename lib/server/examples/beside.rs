//! Compares this server with Debian's `redis-server`, under the same load from the same client on the loopback interface:
//! `cargo run --release -p archipelago-server --features lua --example beside -- cpu|many|tails|always [RUNS [LOOPS
//! [OURS]]]`.
//!
//! Each figure is the median of RUNS (5) runs. The runs of the two servers alternate. With `many`, this server has LOOPS
//! event loops (2), and Redis as many I/O threads. OURS is another program to be started instead of this one, as `OURS
//! serve --port …`. A server's processor time is that of all its threads, from `/proc/PID/task/*/schedstat`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use archipelago_server::server::{Appendonly, Server, Settings};

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize| args.get(at).map(String::as_str);
    if word(0) == Some("serve") {
        return serve(&args[1..]);
    }
    let number = |at| word(at).and_then(|word| word.parse::<usize>().ok());
    let bench = Bench { runs: number(1).unwrap_or(5), loops: number(2).unwrap_or(2), ours: word(3).map(PathBuf::from) };
    match word(0) {
        Some("cpu") => bench.cpu(),
        Some("many") => bench.many(),
        Some("tails") => bench.tails(),
        Some("always") => bench.always(),
        _ => return Err("say cpu, many, tails or always".into()),
    }
    Ok(())
}

/// Runs the server. The arguments are the port, the number of event loops, the directory for the data, and `always` if
/// every change is to be synced to disk.
fn serve(args: &[String]) -> Result<(), String> {
    let [port, loops, directory, appendonly] = args else { return Err("four arguments".into()) };
    let number = |text: &String| text.parse::<u16>().map_err(|error| error.to_string());
    let settings = Settings {
        address: ([127, 0, 0, 1], number(port)?).into(),
        loops: number(loops)?.into(),
        directory: directory.into(),
        appendonly: if appendonly == "always" { Appendonly::Always } else { Appendonly::No },
        ..Settings::default()
    };
    Server::start(&settings)?.wait()
}

/// A server in a process of its own, with a directory of its own.
struct Running {
    child: Child,
    port: u16,
    directory: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Running {
    fn connect(&self) -> Connection {
        Connection::to(self.port).expect("the server listens")
    }

    /// Returns the processor time of the server's threads, in nanoseconds.
    fn cpu(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("Linux has tasks");
        let ran = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        tasks.filter_map(|task| ran(task.ok()?)).sum()
    }
}

/// A client that sends several requests and then reads their answers.
struct Connection {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    line: Vec<u8>,
}

impl Connection {
    fn to(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::with_capacity(1 << 18, stream.try_clone()?), stream, line: Vec::new() })
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes requests");
    }

    /// Reads an answer. Returns its first line.
    fn skip(&mut self) -> &[u8] {
        self.line.clear();
        self.reader.read_until(b'\n', &mut self.line).expect("the server answers");
        let number = std::str::from_utf8(&self.line[1..]).ok().and_then(|text| text.trim_end().parse::<i64>().ok());
        match (self.line[0], number) {
            (b'$', Some(length @ 0..)) => {
                let mut rest = (&mut self.reader).take(length as u64 + 2);
                std::io::copy(&mut rest, &mut std::io::sink()).expect("the server answers");
            }
            (b'*', Some(count)) => (0..count).for_each(|_| _ = self.skip()),
            (b'-', _) => panic!("{}", String::from_utf8_lossy(&self.line)),
            _ => {}
        }
        &self.line
    }

    /// Reads `lines` lines of answers without parsing them. The less processor time the client needs, the more is left for
    /// the server.
    fn take_lines(&mut self, mut lines: usize) {
        while lines > 0 {
            let bytes = self.reader.fill_buf().expect("the server answers");
            assert!(!bytes.is_empty() && bytes[0] != b'-', "{}", String::from_utf8_lossy(bytes));
            let there = bytes.iter().filter(|&&byte| byte == b'\n').count();
            // The client sends the next requests only after these answers, so no bytes of later answers are read.
            assert!(there <= lines, "the server answers what it was asked");
            lines -= there;
            let taken = bytes.len();
            self.reader.consume(taken);
        }
    }

    /// Sends requests in groups of a thousand.
    fn fill(&mut self, count: usize, request: impl Fn(usize) -> Vec<u8>) {
        for first in (0..count).step_by(1000) {
            let numbers = first..count.min(first + 1000);
            self.send(&numbers.clone().flat_map(&request).collect::<Vec<u8>>());
            numbers.for_each(|_| _ = self.skip());
        }
    }

    fn ask(&mut self, words: &[&str]) {
        self.send(&request(words));
        self.skip();
    }
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    bytes
}

/// Returns a request with this command, for a key or a member that is derived from `number`.
fn made(command: &str, number: usize) -> Vec<u8> {
    // Pseudo-random numbers, the same for both servers.
    let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let (key, member) = (format!("key:{}", number % 100_000), format!("member:{}", number % 10_000));
    match command {
        "SET" => request(&["SET", &key, "value:0123456789"]),
        "GET" => request(&["GET", &key]),
        "ZRANK" => request(&["ZRANK", "zset", &member]),
        "ZINCRBY" => request(&["ZINCRBY", "zset", "1", &member]),
        "HSET" => request(&["HSET", "hash", &member, "value:0123456789"]),
        "LRANGE" => request(&["LRANGE", "hundred", "0", "-1"]),
        "ZRANGE" => request(&["ZRANGE", "zset", "5000", "5099"]),
        _ => request(&["LPUSH", "list", "value:0123456789"]),
    }
}

/// Returns the number of lines of the command's answer.
fn lines(command: &str) -> usize {
    match command {
        "GET" | "ZINCRBY" => 2,
        "LRANGE" | "ZRANGE" => 201,
        _ => 1,
    }
}

/// The connections are divided among `threads` client threads. In each round every connection of a thread sends a pipeline
/// of requests, and then every connection reads its answers. Returns the duration of all rounds, and the client threads'
/// processor time in seconds.
fn drive(
    threads: usize,
    connections: &mut [Connection],
    command: &str,
    pipeline: usize,
    requests: usize,
) -> (Duration, f64) {
    let batches: Vec<Vec<u8>> =
        (0..256).map(|batch| (0..pipeline).flat_map(|at| made(command, batch * pipeline + at)).collect()).collect();
    let batches = &batches;
    let rounds = requests / pipeline / connections.len();
    let of_thread = connections.len().div_ceil(threads);
    let began = Instant::now();
    let cpu = thread::scope(|scope| {
        let part = |connections: &mut [Connection]| {
            for round in 0..rounds {
                for (number, connection) in connections.iter_mut().enumerate() {
                    connection.send(&batches[(round + number * 7) % batches.len()]);
                }
                for connection in connections.iter_mut() {
                    connection.take_lines(pipeline * lines(command));
                }
            }
            thread_cpu()
        };
        let parts: Vec<_> = connections.chunks_mut(of_thread).map(|mine| scope.spawn(move || part(mine))).collect();
        parts.into_iter().map(|part| part.join().expect("the server answers")).sum()
    });
    (began.elapsed(), cpu)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Bench {
    runs: usize,
    loops: usize,
    ours: Option<PathBuf>,
}

impl Bench {
    /// Starts a server: `redis-server` with the arguments `redis`, or this server if `redis` is `None`.
    fn start(&self, redis: Option<&[&str]>, loops: usize, always: bool) -> Running {
        static NUMBER: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
        // Another run of this program, or a server that one has left, does not get in the way.
        let port = 17_000 + (std::process::id() % 350) as u16 * 40 + NUMBER.fetch_add(1, Relaxed);
        let directory = std::env::temp_dir().join(format!("archipelago-beside-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).expect("there is room for files");
        let (shown, port_text, loops) = (directory.display().to_string(), port.to_string(), loops.to_string());
        let fsync = if always { "always" } else { "no" };
        let appends = if always { "yes" } else { "no" };
        let own = std::env::current_exe().expect("this program has a name");
        let (program, mut args) = match (redis, &self.ours) {
            (Some(_), _) => {
                (Path::new("redis-server"), vec!["--save", "", "--appendonly", appends, "--appendfsync", fsync])
            }
            (None, Some(ours)) => (ours.as_path(), vec!["serve", "--loops", &loops, "--appendonly", fsync]),
            (None, None) => (own.as_path(), vec!["serve", &port_text, &loops, &shown, fsync]),
        };
        if redis.is_some() || self.ours.is_some() {
            args.extend(["--port", &port_text, "--dir", &shown]);
        }
        args.extend(redis.unwrap_or_default());
        let child = Command::new(program).args(args).stdout(Stdio::null()).spawn().expect("it starts");
        let running = Running { child, port, directory };
        while Connection::to(port).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
        running
    }

    /// Starts both servers and fills them with the same data.
    fn both(&self, redis: &[&str], loops: usize, always: bool) -> [Running; 2] {
        let servers = [self.start(None, loops, always), self.start(Some(redis), loops, always)];
        for server in &servers {
            let mut connection = server.connect();
            connection.fill(100_000, |key| request(&["SET", &format!("key:{key}"), "value:0123456789"]));
            connection.fill(10_000, |member| request(&["ZADD", "zset", "1", &format!("member:{member}")]));
            connection.fill(100, |_| request(&["LPUSH", "hundred", "value:0123456789"]));
        }
        servers
    }

    /// Returns the medians of a figure of both servers. The runs of the servers alternate. The first run of each fills
    /// the caches and is not counted.
    fn medians(&self, servers: &[Running; 2], mut measure: impl FnMut(&Running) -> f64) -> [f64; 2] {
        let mut values = [Vec::new(), Vec::new()];
        for run in 0..=self.runs {
            for which in 0..2 {
                let value = measure(&servers[which]);
                if run > 0 {
                    values[which].push(value);
                }
            }
        }
        values.map(median)
    }

    fn row(name: &str, [ours, redis]: [f64; 2], unit: &str) {
        println!("{name:28} {ours:12.3} {redis:12.3} {unit:10} {:6.2}", ours / redis);
    }

    /// Measures the servers' processor time with one connection.
    fn cpu(&self) {
        println!("{:28} {:>12} {:>12} {:10} ratio", "", "ours", "redis", "");
        let servers = self.both(&[], 1, false);
        for pipeline in [1, 16] {
            for command in ["SET", "GET", "ZINCRBY", "ZRANK", "HSET", "LPUSH"] {
                let requests = if pipeline == 1 { 20_000 } else { 200_000 };
                let values = self.medians(&servers, |server| {
                    let mut connection = [server.connect()];
                    let before = server.cpu();
                    drive(1, &mut connection, command, pipeline, requests);
                    let took = server.cpu() - before;
                    connection[0].ask(&["DEL", "list"]);
                    took as f64 / requests as f64 / 1000.0
                });
                Self::row(&format!("{command}, pipelines of {pipeline}"), values, "s/million");
            }
        }
    }

    /// Measures requests per second with 50 connections. The measurement is made twice: with a single-threaded Redis,
    /// and with a Redis that has I/O threads. The client has a thread for each processor that the loops leave, and at
    /// most eight. The output includes the share of time that the client's threads ran. If this share is close to 1, the
    /// client is the limit.
    fn many(&self) {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.saturating_sub(self.loops).clamp(1, 8);
        let io_threads = self.loops.to_string();
        println!("{:28} {:>12} {:>12} {:10} ratio, share of {threads} client threads", "", "ours", "redis", "");
        for redis in [&[][..], &["--io-threads", &io_threads, "--io-threads-do-reads", "yes"]] {
            println!("redis-server {}", redis.join(" "));
            let servers = self.both(redis, self.loops, false);
            for (command, pipeline, requests) in [
                ("GET", 1, 100_000),
                ("SET", 1, 100_000),
                ("GET", 16, 800_000),
                ("SET", 16, 800_000),
                ("ZINCRBY", 16, 400_000),
                ("LRANGE", 16, 80_000),
                ("ZRANGE", 16, 80_000),
            ] {
                let (mut ran, mut all) = (0.0, 0.0);
                let values = self.medians(&servers, |server| {
                    let mut connections: Vec<Connection> = (0..50).map(|_| server.connect()).collect();
                    let (took, cpu) = drive(threads, &mut connections, command, pipeline, requests);
                    let took = took.as_secs_f64();
                    (ran, all) = (ran + cpu, all + took * threads as f64);
                    requests as f64 / took / 1000.0
                });
                Self::row(&format!("{command}, pipelines of {pipeline}"), values, &format!("k/s {:.2}", ran / all));
            }
        }
    }

    /// Measures the time that one client waits while another client sends long requests.
    fn tails(&self) {
        println!("{:28} {:>12} {:>12} {:10} ratio", "p99.9 of GET beside", "ours", "redis", "");
        let spin = "local n = 0 for i = 1, 90000000 do n = n + 1 end return n";
        let longs: [(&str, &[&str]); 4] = [
            ("nothing", &[]),
            ("KEYS *, a million keys", &["KEYS", "*"]),
            ("ZRANGE of 100,000", &["ZRANGE", "big", "0", "-1"]),
            ("a script of a second", &["EVAL_RO", spin, "0"]),
        ];
        let servers = self.both(&[], 2, false);
        for server in &servers {
            let mut connection = server.connect();
            connection.fill(1_000_000, |key| request(&["SET", &format!("key:{key}"), "value"]));
            connection
                .fill(100_000, |member| request(&["ZADD", "big", &format!("{member}"), &format!("member:{member}")]));
        }
        for (name, long) in longs {
            Self::row(name, self.medians(&servers, |server| waits(server, long)), "ms");
        }
    }

    /// Measures synced changes per second with 50 connections, and the time that a reader waits meanwhile.
    fn always(&self) {
        println!("{:28} {:>12} {:>12} {:10} ratio", "", "ours", "redis", "");
        let servers = self.both(&[], 2, true);
        let values = self.medians(&servers, |server| {
            let mut connections: Vec<Connection> = (0..50).map(|_| server.connect()).collect();
            20.0 / drive(1, &mut connections, "SET", 1, 20_000).0.as_secs_f64()
        });
        Self::row("SET, synced", values, "k/s");
        println!("p99.9 of GET beside");
        for (name, long) in [("nothing", &[][..]), ("synced SETs of other keys", &["SET", "other", "value"])] {
            Self::row(name, self.medians(&servers, |server| waits(server, long)), "ms");
        }
    }
}

/// Returns the processor time of this thread since its start, in seconds.
fn thread_cpu() -> f64 {
    let ran = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    ran.split(' ').next().and_then(|ran| ran.parse::<f64>().ok()).expect("Linux tells") / 1e9
}

/// Returns the 99.9th percentile of a client's waiting time in milliseconds, over four seconds, while another client
/// sends long requests. The client sends a request every half millisecond. The waiting time counts from the moment at
/// which the request was due. So if a server answers nothing for a second, two thousand requests count, not one. The
/// requests that are not sent within the four seconds, because earlier answers were late, count as waiting until the end.
fn waits(server: &Running, long: &[&str]) -> f64 {
    const COUNT: u32 = 8000;
    const EVERY: Duration = Duration::from_micros(500);
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        if !long.is_empty() {
            let end = &end;
            scope.spawn(move || {
                let mut connection = server.connect();
                while !end.load(Relaxed) {
                    connection.ask(long);
                }
            });
        }
        let mut connection = server.connect();
        let began = Instant::now();
        let mut waited = Vec::new();
        for number in 0..COUNT {
            let due = began + number * EVERY;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if began.elapsed() <= COUNT * EVERY {
                connection.send(&made("GET", number as usize));
                connection.skip();
            }
            waited.push(due.elapsed());
        }
        end.store(true, Relaxed);
        waited.sort();
        waited[waited.len() * 999 / 1000].as_secs_f64() * 1000.0
    })
}

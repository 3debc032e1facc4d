//! Metrics over HTTP: `/metrics` for Prometheus, and a page for people at `/`.
//!
//! Each thread counts in its own row. The rows are added up when metrics are requested. A library for metrics would own the
//! counters and share them between threads. Without it, only the text format below remains to be written.
//!
//! # Limits
//! At most [`ASKING`] connections are served at a time: enough for a scraper and the browsers of a few people. (A
//! browser may open connections before it has a request for them.) Each connection has a thread and may send one
//! request of at most [`HEAD`] bytes within [`PATIENCE`]. The page loads nothing from other servers.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};
use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};
use core::fmt::{Display, Write as _};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::info;
use super::shared::{Shared, lock};
use super::stats::{BUCKETS, Sum};
use crate::pubsub::SubscriptionKind;

/// The maximum number of connections at a time. Further connections are closed.
const ASKING: usize = 8;
/// The maximum size of a request in bytes.
const HEAD: usize = 8 << 10;
/// The maximum time for a request, and for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval at which the thread checks for connections and for the server's end.
const LOOK: Duration = Duration::from_millis(20);

const PAGE: &str = include_str!("page.html");

/// Answers requests until the server ends.
pub fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    let asking = Arc::new(AtomicUsize::new(0));
    while !shared.stop.load(Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(LOOK);
            continue;
        };
        if asking.load(Relaxed) >= ASKING {
            continue;
        }
        asking.fetch_add(1, Relaxed);
        let (shared, asks) = (shared.clone(), asking.clone());
        let run = move || {
            // An error is ignored: the client has left, or sent no request.
            let _ = answer(stream, &shared);
            asks.fetch_sub(1, Relaxed);
        };
        if thread::Builder::new().name("asked".into()).spawn(run).is_err() {
            asking.fetch_sub(1, Relaxed);
        }
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let mut room = [0; 1024];
        match stream.read(&mut room)? {
            0 => return Ok(()),
            count => head.extend_from_slice(&room[..count]),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split(' ');
    let (status, kind, body) = match (words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some("/metrics")) => ("200 OK", "text/plain; version=0.0.4", text(shared)),
        (Some("GET" | "HEAD"), Some("/")) => ("200 OK", "text/html; charset=utf-8", PAGE.to_owned()),
        (Some("GET" | "HEAD"), _) => ("404 Not Found", "text/plain", "There are / and /metrics.\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "Only GET.\n".to_owned()),
    };
    let sent = if head.starts_with("HEAD ") { "" } else { &*body };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'self' 'unsafe-inline'\r\nConnection: close\r\n\r\n{sent}",
        body.len(),
    )
}

/// Metrics in the text format of Prometheus.
struct Text(String);

impl Text {
    /// Writes the name, type and meaning of a metric, which precede its values.
    fn about(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP archipelago_{name} {help}\n# TYPE archipelago_{name} {kind}\n");
    }

    fn value(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "archipelago_{name}{labels} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.about(name, "counter", help);
        self.value(name, "", value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.about(name, "gauge", help);
        self.value(name, "", value);
    }
}

/// Returns all metrics.
fn text(shared: &Shared) -> String {
    let mut text = Text(String::new());
    let counts = &shared.counts;
    text.gauge("uptime_seconds", "Since the start.", shared.since.elapsed().as_secs());
    text.gauge("connected_clients", "Clients.", lock(&shared.clients).len());
    text.gauge("blocked_clients", "Clients that wait for keys.", shared.waiting());
    text.gauge("tracking_clients", "Clients that hear which keys change.", shared.tracking.clients());
    text.gauge(
        "pubsub_channels",
        "Channels with subscribers.",
        lock(&shared.hub).channels(SubscriptionKind::Channel).count(),
    );
    text.gauge("resident_bytes", "Resident memory.", info::resident());
    text.counter("connections_total", "Connections so far.", counts.connections.load(Relaxed));
    text.counter("connections_rejected_total", "Connections that were refused.", counts.rejected.load(Relaxed));
    text.counter("requests_total", "Requests so far.", counts.commands.load(Relaxed));
    commands(&mut text, shared);
    replicas(&mut text, shared);
    keys(&mut text, shared);
    text.counter("log_appended_bytes_total", "Bytes appended to the durable log.", shared.store.appended());
    let trouble = u8::from(shared.store.trouble().is_some());
    text.gauge("log_failed", "1 when the durable log refuses changes, for good.", trouble);
    text.0
}

/// Formats a count of a command.
type Shown = fn(&Sum) -> String;

fn commands(text: &mut Text, shared: &Shared) {
    let all: Vec<_> = shared.stats.all().collect();
    let rows: [(&str, &str, Shown); 3] = [
        ("command_calls_total", "Calls of a command.", |sum| sum.calls.to_string()),
        ("command_failures_total", "Calls that were answered with an error.", |sum| sum.failed.to_string()),
        ("command_seconds_total", "Time of all calls; a change has its share of its batch.", |sum| {
            (sum.nanos as f64 / 1e9).to_string()
        }),
    ];
    for (name, help, of) in rows {
        text.about(name, "counter", help);
        for (command, sum) in &all {
            text.value(name, &format!("{{command=\"{}\"}}", command.name), of(sum));
        }
    }
    let (mut buckets, mut nanos) = ([0; BUCKETS], 0);
    for (_, sum) in &all {
        nanos += sum.nanos;
        buckets.iter_mut().zip(sum.buckets).for_each(|(all, one)| *all += one);
    }
    text.about("request_seconds", "histogram", "Times of commands.");
    let mut seen = 0;
    for (bucket, count) in buckets.iter().enumerate() {
        seen += count;
        // The last bucket contains all longer times.
        let most = if bucket + 1 == BUCKETS { "+Inf".to_owned() } else { ((1_u64 << bucket) as f64 / 1e6).to_string() };
        text.value("request_seconds_bucket", &format!("{{le=\"{most}\"}}"), seen);
    }
    text.value("request_seconds_sum", "", nanos as f64 / 1e9);
    text.value("request_seconds_count", "", seen);
}

fn replicas(text: &mut Text, shared: &Shared) {
    let (stats, replicas) = (shared.store.db().stats(), shared.store.db().replicas() as u64);
    text.gauge("replicas", "Replicas of the database, one a node.", replicas);
    text.counter("changes_total", "Changes so far.", stats.writes);
    text.counter("batches_total", "Batches in which they came.", stats.batches);
    // The counts are read one after the other while threads change them, so the difference is approximate.
    let lag = (stats.writes * replicas).saturating_sub(stats.applied);
    text.gauge("replica_lag_changes", "Changes that replicas have not applied yet, over all replicas.", lag);
    text.gauge("replica_slowest", "The replica that is furthest behind.", stats.slowest_replica);
    text.gauge("memory_log_entries", "Changes in the log in memory.", stats.log_in_use);
    text.gauge("memory_log_bytes", "Memory of that log.", stats.log_bytes);
    text.counter("memory_log_waits_total", "Times that there was no room in it.", stats.room_waits);
}

fn keys(text: &mut Text, shared: &Shared) {
    let counted = |db: &crate::db::Db| -> Vec<(usize, usize)> {
        db.spaces.iter().map(|space| (space.keys.len(), space.volatile)).collect()
    };
    let spaces = shared.store.db().inspect(0, counted).unwrap_or_default();
    for (name, help, volatile) in [("keys", "Keys.", false), ("keys_expiring", "Keys with a time to expire at.", true)]
    {
        text.about(name, "gauge", help);
        for (at, (all, expiring)) in spaces.iter().enumerate().filter(|(_, (all, _))| *all > 0) {
            text.value(name, &format!("{{db=\"{at}\"}}"), if volatile { expiring } else { all });
        }
    }
}

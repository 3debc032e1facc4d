//! `INFO`.

use archipelago_platform::atomic::Ordering::{Acquire, Relaxed};
use core::fmt::Write as _;
use std::fs;

use super::shared::{Shared, lock};
use crate::args::Args;
use crate::db::Db;

/// Sections that are included only if a request names them, or contains `all` or `everything`.
const MORE: [&str; 2] = ["Commandstats", "Latencystats"];

/// Returns the text of the sections that a request names, or of the default sections.
pub fn text(shared: &Shared, args: &Args) -> String {
    let named = |name: &str| args.from(1).any(|word| word.eq_ignore_ascii_case(name.as_bytes()));
    let all = named("all") || named("everything");
    let default = args.len() == 1 || named("default") || all;
    let mut text = String::new();
    for (name, body) in sections(shared) {
        if if MORE.contains(&name) { all || named(name) } else { default || named(name) } {
            let _ = write!(text, "{}# {name}\r\n{body}", if text.is_empty() { "" } else { "\r\n" });
        }
    }
    text
}

/// Returns one line for each name and value.
fn lines(all: &[(&str, &dyn core::fmt::Display)]) -> String {
    all.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "{name}:{value}\r\n");
        text
    })
}

/// Returns the resident memory of this process in bytes; 0 if the operating system does not report it.
pub fn resident() -> u64 {
    let pages =
        fs::read_to_string("/proc/self/statm").ok().and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Returns the processor time of this process in seconds: in the operating system, and in the program.
fn processor() -> (f64, f64) {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = text.rsplit(')').next().unwrap_or("").split(' ').skip(12).take(2);
    let ticks: Vec<f64> = rest.map(|ticks| ticks.parse().unwrap_or(0.0) / 100.0).collect();
    (ticks.get(1).copied().unwrap_or(0.0), ticks.first().copied().unwrap_or(0.0))
}

/// Returns a number of bytes in a form for people.
pub fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let mut unit = 0;
    let mut size = bytes as f64;
    while size >= 1024.0 && unit + 1 < units.len() {
        (size, unit) = (size / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes}B") } else { format!("{size:.2}{}", units[unit]) }
}

fn sections(shared: &Shared) -> Vec<(&'static str, String)> {
    let config = |name: &str| shared.config.get(name);
    let uptime = shared.since.elapsed().as_secs();
    let server = lines(&[
        ("redis_version", &"7.0.15"),
        ("redis_mode", &"standalone"),
        ("server_name", &"archipelago"),
        ("archipelago_version", &env!("CARGO_PKG_VERSION")),
        ("os", &std::env::consts::OS),
        ("arch_bits", &usize::BITS),
        ("multiplexing_api", &"mio"),
        ("process_id", &std::process::id()),
        ("tcp_port", &shared.address.port()),
        ("server_time_usec", &(super::now() * 1000)),
        ("uptime_in_seconds", &uptime),
        ("uptime_in_days", &(uptime / 86_400)),
        ("hz", &10),
        ("io_threads", &shared.mail.len()),
    ]);
    // The length is read in a statement of its own, so that the lock is released: `waiting` acquires a lock that must
    // be acquired before this one.
    let connected = lock(&shared.clients).len();
    let clients = lines(&[
        ("connected_clients", &connected),
        ("cluster_connections", &0),
        ("maxclients", &config("maxclients")),
        ("blocked_clients", &shared.waiting()),
        ("tracking_clients", &shared.tracking.clients()),
    ]);
    let log = config("appendonly") != "no";
    let persistence = lines(&[
        ("loading", &0),
        ("async_loading", &0),
        ("aof_enabled", &u8::from(log)),
        ("aof_last_write_status", &if shared.store.trouble().is_some() { "err" } else { "ok" }),
    ]) + &shared.snapshots_info();
    let (system, user) = processor();
    vec![
        ("Server", server),
        ("Clients", clients),
        ("Memory", memory(shared)),
        ("Persistence", persistence),
        ("Stats", stats(shared)),
        ("Replication", replication(shared)),
        ("CPU", format!("used_cpu_sys:{system:.6}\r\nused_cpu_user:{user:.6}\r\n")),
        ("Commandstats", commands(shared)),
        ("Errorstats", String::new()),
        ("Latencystats", latencies(shared)),
        ("Cluster", lines(&[("cluster_enabled", &0)])),
        ("Keyspace", keyspace(shared)),
    ]
}

fn memory(shared: &Shared) -> String {
    let (bytes, most) = (resident(), shared.config.get("maxmemory"));
    let of_functions = |db: &Db| (db.functions.counts(), db.functions.bytes());
    let ((libraries, functions), code) = shared.store.db().inspect(0, of_functions).unwrap_or_default();
    lines(&[
        ("used_memory", &bytes),
        ("used_memory_human", &human(bytes)),
        ("used_memory_rss", &bytes),
        ("used_memory_rss_human", &human(bytes)),
        ("used_memory_dataset", &shared.counted()),
        ("used_memory_functions", &code),
        ("number_of_functions", &functions),
        ("number_of_libraries", &libraries),
        ("maxmemory", &most),
        ("maxmemory_human", &human(most.parse().unwrap_or(0))),
        ("maxmemory_policy", &shared.config.get("maxmemory-policy")),
        ("mem_fragmentation_ratio", &"1.00"),
        ("mem_allocator", &"system"),
    ])
}

fn stats(shared: &Shared) -> String {
    let counts = &shared.counts;
    let tracked = shared.tracking.tracked();
    let hub = lock(&shared.hub);
    let errors: u64 = shared.stats.all().map(|(_, sum)| sum.failed + sum.rejected).sum();
    lines(&[
        ("total_connections_received", &counts.connections.load(Relaxed)),
        ("total_commands_processed", &counts.commands.load(Relaxed)),
        ("rejected_connections", &counts.rejected.load(Relaxed)),
        ("tls_failed_handshakes", &counts.unsecured.load(Acquire)),
        ("tls_last_failure", &lock(&counts.last_unsecured).clone()),
        ("total_error_replies", &errors),
        ("evicted_keys", &shared.room.evicted()),
        ("pubsub_channels", &hub.channels(crate::pubsub::SubscriptionKind::Channel).count()),
        ("pubsub_patterns", &hub.patterns()),
        ("pubsubshard_channels", &hub.channels(crate::pubsub::SubscriptionKind::Shard).count()),
        ("tracking_total_keys", &tracked.keys),
        ("tracking_total_items", &tracked.items),
        ("tracking_total_prefixes", &tracked.prefixes),
    ])
}

fn replication(shared: &Shared) -> String {
    lines(&[
        ("role", &"master"),
        ("connected_slaves", &0),
        ("master_failover_state", &"no-failover"),
        ("master_repl_offset", &0),
        ("replicas", &shared.store.db().replicas()),
    ])
}

fn commands(shared: &Shared) -> String {
    shared.stats.all().fold(String::new(), |mut text, (command, sum)| {
        let micros = sum.nanos / 1000;
        let each = sum.nanos as f64 / 1000.0 / sum.calls.max(1) as f64;
        let _ = write!(
            text,
            "cmdstat_{}:calls={},usec={micros},usec_per_call={each:.2},rejected_calls={},failed_calls={}\r\n",
            command.name, sum.calls, sum.rejected, sum.failed
        );
        text
    })
}

fn latencies(shared: &Shared) -> String {
    let called = shared.stats.all().filter(|(_, sum)| sum.calls > 0);
    called.fold(String::new(), |mut text, (command, sum)| {
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| sum.percentile(share));
        let _ =
            write!(text, "latency_percentiles_usec_{}:p50={p50}.000,p99={p99}.000,p99.9={p999}.000\r\n", command.name);
        text
    })
}

fn keyspace(shared: &Shared) -> String {
    let keys = |db: &crate::db::Db| {
        let spaces = db.spaces.iter().enumerate().filter(|(_, space)| !space.keys.is_empty());
        let told = spaces.map(|(at, space)| {
            let (keys, volatile, dated) = (space.keys.len(), space.volatile, space.dated);
            format!("db{at}:keys={keys},expires={volatile},avg_ttl=0,subexpiry={dated}\r\n")
        });
        told.collect()
    };
    shared.store.db().inspect(0, keys).unwrap_or_default()
}

//! `INFO`, and a client's line.

use archipelago_platform::atomic::Ordering::Relaxed;
use core::fmt::Write as _;

use super::shared::{Card, Shared, lock};

/// A client's line in `CLIENT LIST`.
pub fn client(card: &Card) -> String {
    let name = String::from_utf8_lossy(&lock(&card.name)).into_owned();
    format!(
        "id={} addr={} name={name} age={} loop={}\n",
        card.owner.id,
        card.peer,
        card.since.elapsed().as_secs(),
        card.owner.at
    )
}

/// The sections: all, or the one of this name.
pub fn text(shared: &Shared, section: Option<&[u8]>) -> String {
    let all = section
        .is_none_or(|name| [&b"all"[..], b"default", b"everything"].iter().any(|all| name.eq_ignore_ascii_case(all)));
    let mut text = String::new();
    for (name, body) in sections(shared) {
        if all || section.is_some_and(|section| section.eq_ignore_ascii_case(name.as_bytes())) {
            let _ = write!(text, "{}# {name}\r\n{body}", if text.is_empty() { "" } else { "\r\n" });
        }
    }
    text
}

fn sections(shared: &Shared) -> Vec<(&'static str, String)> {
    let counts = &shared.counts;
    let uptime = shared.since.elapsed().as_secs();
    let log = !shared.config.get("appendonly").eq("no");
    let trouble = if shared.store.trouble().is_some() { "err" } else { "ok" };
    let server = format!(
        "redis_version:7.0.15\r\nredis_mode:standalone\r\nserver_name:archipelago\r\narchipelago_version:{}\r\nos:{}\r\nprocess_id:{}\r\ntcp_port:{}\r\nuptime_in_seconds:{uptime}\r\nio_threads:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::process::id(),
        shared.address.port(),
        shared.mail.len(),
    );
    let clients = format!(
        "connected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:{}\r\n",
        lock(&shared.clients).len(),
        shared.config.get("maxclients"),
        shared.waiting(),
    );
    let persistence = format!("loading:0\r\naof_enabled:{}\r\naof_last_write_status:{trouble}\r\n", u8::from(log))
        + &shared.snapshots_info();
    let stats = format!(
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\nrejected_connections:{}\r\npubsub_patterns:{}\r\n",
        counts.connections.load(Relaxed),
        counts.commands.load(Relaxed),
        counts.rejected.load(Relaxed),
        lock(&shared.hub).patterns(),
    );
    let stats = stats + &shared.room_info();
    let replicas = format!("role:master\r\nconnected_slaves:0\r\nreplicas:{}\r\n", shared.store.db().replicas());
    let keys = |db: &crate::db::Db| {
        let spaces = db.spaces.iter().enumerate().filter(|(_, space)| !space.keys.is_empty());
        spaces
            .map(|(at, space)| format!("db{at}:keys={},expires={},avg_ttl=0\r\n", space.keys.len(), space.volatile))
            .collect()
    };
    let keyspace: String = shared.store.db().inspect(0, keys).unwrap_or_default();
    vec![
        ("Server", server),
        ("Clients", clients),
        ("Persistence", persistence),
        ("Stats", stats),
        ("Replication", replicas),
        ("Keyspace", keyspace),
    ]
}

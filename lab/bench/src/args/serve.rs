//! `serve`

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::parse::count;

/// When changes are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Appendonly {
    /// Never: what is in memory ends with the process
    No,
    /// Within a second of the answer
    Everysec,
    /// Before anyone sees them
    Always,
}

/// Which clients may call DEBUG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DebugAccess {
    /// No client
    No,
    /// Clients on the same machine
    Local,
    /// Every client whose user may call it
    Yes,
}

/// What is asked of clients about certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthClients {
    /// They have to
    Yes,
    /// They are not asked for any
    No,
    /// They may; one that is shown has to be right
    Optional,
}

/// TLS, as Redis names its parts.
#[derive(Clone, Debug, Args)]
pub struct Tls {
    /// Where to speak TLS; with --port 0 besides, nothing else is spoken
    #[arg(long, value_name = "PORT", requires_all = ["tls_cert_file", "tls_key_file"])]
    pub tls_port: Option<u16>,
    /// The server's certificate, and those between it and an authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    pub tls_cert_file: Option<PathBuf>,
    /// Its private key, not encrypted (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    pub tls_key_file: Option<PathBuf>,
    /// The authorities of clients' certificates (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    pub tls_ca_cert_file: Option<PathBuf>,
    /// What is asked of clients about certificates
    #[arg(long, value_enum, default_value = "yes")]
    pub tls_auth_clients: AuthClients,
}

/// `serve`
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// Where to listen; 0: wherever there is room, or nowhere with --tls-port
    #[arg(long, default_value_t = 6379)]
    pub port: u16,
    /// The address to listen at
    #[arg(long, default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// Where the log is
    #[arg(long, default_value = "archipelago-data")]
    pub dir: PathBuf,
    /// An RDB file of Redis up to 8.0 to begin with
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
    /// An RDB file to write at the end, which Redis 7.0 reads
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// When changes are on the disk
    #[arg(long, value_enum, default_value = "no")]
    pub appendonly: Appendonly,
    /// Event loops [default: one per processor]
    #[arg(long, value_parser = count)]
    pub loops: Option<usize>,
    /// Copies of the database: with two on one node, long reads hold up no change [default: one per NUMA node]
    #[arg(long, value_parser = count)]
    pub replicas: Option<usize>,
    /// What clients have to say first; without it only clients of this machine are let in
    #[arg(long)]
    pub requirepass: Option<String>,
    /// The port that speaks TLS
    #[command(flatten)]
    pub tls: Tls,
    /// Where users are read from, and written to by ACL SAVE
    #[arg(long, value_name = "FILE")]
    pub aclfile: Option<std::path::PathBuf>,
    /// How much the keys of one replica may take, as 100mb or 2gb [default: as much as there is]
    #[arg(long, value_name = "BYTES")]
    pub maxmemory: Option<String>,
    /// What goes when that is reached: noeviction, allkeys-lru, volatile-ttl, … [default: noeviction]
    #[arg(long, value_name = "POLICY")]
    pub maxmemory_policy: Option<String>,
    /// When snapshots are made: seconds and changes, as "900 1 60 10000"; also at the end [default: never by itself]
    #[arg(long, value_name = "POINTS")]
    pub save: Option<String>,
    /// Where to tell metrics: http://ADDRESS/metrics for Prometheus, and a page at http://ADDRESS/
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// The most clients at a time
    #[arg(long, value_parser = count, default_value = "10k")]
    pub maxclients: usize,
    /// Which clients may call DEBUG. Such a client can delay other clients
    #[arg(long, value_enum, default_value = "no")]
    pub enable_debug_command: DebugAccess,
}

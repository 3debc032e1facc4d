//! The arguments of `serve`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::parse::count;

/// When changes are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Appendonly {
    /// Never: changes are in memory only and end with the process
    No,
    /// Within a second after the answer
    Everysec,
    /// Before any client sees the change
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

/// What the server requires of clients about certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthClients {
    /// Clients must show a certificate
    Yes,
    /// Clients are not asked for a certificate
    No,
    /// Clients may show a certificate; if they do, it must be valid
    Optional,
}

/// TLS, with Redis's option names.
#[derive(Clone, Debug, Args)]
pub struct Tls {
    /// The port for TLS; together with --port 0 the server speaks TLS only
    #[arg(long, value_name = "PORT", requires_all = ["tls_cert_file", "tls_key_file"])]
    pub tls_port: Option<u16>,
    /// The server's certificate, and the intermediate certificates up to an authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    pub tls_cert_file: Option<PathBuf>,
    /// The private key of the server's certificate, not encrypted (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    pub tls_key_file: Option<PathBuf>,
    /// The authorities of clients' certificates (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_port")]
    pub tls_ca_cert_file: Option<PathBuf>,
    /// Require certificates of clients, or not
    #[arg(long, value_enum, default_value = "yes")]
    pub tls_auth_clients: AuthClients,
}

/// The arguments of `serve`.
#[derive(Clone, Debug, Args)]
pub struct Serve {
    /// The port to listen on; 0: any free port, or none if --tls-port is given
    #[arg(long, default_value_t = 6379)]
    pub port: u16,
    /// The address to listen at
    #[arg(long, default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// The folder of the log
    #[arg(long, default_value = "archipelago-data")]
    pub dir: PathBuf,
    /// An RDB file of Redis up to 8.0 that is loaded at the start
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
    /// An RDB file that is written at the end, in the format of Redis 7.0
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// When changes are on the disk
    #[arg(long, value_enum, default_value = "no")]
    pub appendonly: Appendonly,
    /// Event loops [default: one per processor]
    #[arg(long, value_parser = count)]
    pub loops: Option<usize>,
    /// Replicas of the database. With two replicas on one node, long reads delay no changes [default: one per NUMA
    /// node]
    #[arg(long, value_parser = count)]
    pub replicas: Option<usize>,
    /// The password that clients must send first. If no password is set, only clients of this machine are accepted
    #[arg(long)]
    pub requirepass: Option<String>,
    /// The options of TLS.
    #[command(flatten)]
    pub tls: Tls,
    /// The file from which users are read, and to which ACL SAVE writes them
    #[arg(long, value_name = "FILE")]
    pub aclfile: Option<std::path::PathBuf>,
    /// The most memory that the keys of one replica may take, as 100mb or 2gb [default: no limit]
    #[arg(long, value_name = "BYTES")]
    pub maxmemory: Option<String>,
    /// Which keys are evicted at that limit: noeviction, allkeys-lru, volatile-ttl, … [default: noeviction]
    #[arg(long, value_name = "POLICY")]
    pub maxmemory_policy: Option<String>,
    /// When snapshots are made: seconds and changes, as "900 1 60 10000"; a last snapshot at the end [default: no
    /// snapshots]
    #[arg(long, value_name = "POINTS")]
    pub save: Option<String>,
    /// The address that serves metrics: http://ADDRESS/metrics for Prometheus, and a page at http://ADDRESS/
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// The most clients at a time
    #[arg(long, value_parser = count, default_value = "10k")]
    pub maxclients: usize,
    /// Which clients may call DEBUG. Such a client can delay other clients
    #[arg(long, value_enum, default_value = "no")]
    pub enable_debug_command: DebugAccess,
}

//! Settings of TLS, as Redis names them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use archipelago_platform::time::Duration;

use super::Settings;

/// Whether clients show certificates: `tls-auth-clients`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthClients {
    /// They have to.
    #[default]
    Yes,
    /// They may; one that is shown has to be right.
    Optional,
    /// They are not asked for any.
    No,
}

/// Where TLS is spoken, and with which certificates. All files are PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Where it listens: `tls-port`.
    pub address: SocketAddr,
    /// The server's certificate, and those between it and an authority: `tls-cert-file`.
    pub certificate: PathBuf,
    /// Its private key, not encrypted: `tls-key-file`.
    pub key: PathBuf,
    /// The authorities of clients' certificates: `tls-ca-cert-file`.
    pub authorities: Option<PathBuf>,
    /// Whether clients show certificates.
    pub clients: AuthClients,
    /// How long a client may take to agree on keys.
    pub patience: Duration,
    /// There is no port without TLS.
    pub only: bool,
}

impl Tls {
    /// How long a client may take to agree on keys, if nothing else is set.
    pub const PATIENCE: Duration = Duration::from_secs(10);
}

/// The parameters of `CONFIG`.
pub fn parameters(settings: &Settings) -> [(&'static str, String); 5] {
    let tls = settings.tls.as_ref();
    let path = |path: Option<&Path>| path.map(|path| path.display().to_string()).unwrap_or_default();
    let clients = match tls.map_or(AuthClients::Yes, |tls| tls.clients) {
        AuthClients::Yes => "yes",
        AuthClients::Optional => "optional",
        AuthClients::No => "no",
    };
    [
        ("tls-port", tls.map_or(0, |tls| tls.address.port()).to_string()),
        ("tls-cert-file", path(tls.map(|tls| &*tls.certificate))),
        ("tls-key-file", path(tls.map(|tls| &*tls.key))),
        ("tls-ca-cert-file", path(tls.and_then(|tls| tls.authorities.as_deref()))),
        ("tls-auth-clients", clients.into()),
    ]
}

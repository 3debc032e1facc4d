//! Settings of TLS, with the names of Redis's parameters.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use archipelago_platform::time::Duration;

use super::Settings;

/// Whether clients present certificates: `tls-auth-clients`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthClients {
    /// A client must present a valid certificate.
    #[default]
    Yes,
    /// A client may present a certificate. If it does, the certificate must be valid.
    Optional,
    /// Clients are not asked for certificates.
    No,
}

/// The address and the certificates for TLS. All files are PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The address on which the server listens for TLS. Its port is `tls-port`.
    pub address: SocketAddr,
    /// The server's certificate and the certificates between it and an authority: `tls-cert-file`.
    pub certificate: PathBuf,
    /// The private key of the server's certificate, not encrypted: `tls-key-file`.
    pub key: PathBuf,
    /// The authorities that sign clients' certificates: `tls-ca-cert-file`.
    pub authorities: Option<PathBuf>,
    /// Whether clients present certificates.
    pub clients: AuthClients,
    /// The maximum duration of a handshake.
    pub patience: Duration,
    /// Whether the server has no port without TLS.
    pub only: bool,
}

impl Tls {
    /// The default for the maximum duration of a handshake.
    pub const PATIENCE: Duration = Duration::from_secs(10);
}

/// Returns the parameters of `CONFIG`.
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

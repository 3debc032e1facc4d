//! Authorities, the certificates that they sign, and clients that present them.

use archipelago_server::config::Settings;
use archipelago_server::config::tls::{AuthClients, Tls};
use archipelago_server::server::Server;
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::client::request;

/// Whether a certificate has expired.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    Yes,
    No,
}

/// A certificate and its private key.
pub type Shown = (Certificate, KeyPair);

/// An authority that signs certificates, with files of its own.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    own: Certificate,
    pub directory: PathBuf,
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Authority {
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key).unwrap();
        let unique = format!("archipelago-tls-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let directory = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&directory).unwrap();
        let authority = Self { issuer: Issuer::new(params, key), own, directory };
        let (certificate, key) = authority.sign("localhost", Expired::No);
        let files =
            [("server.crt", certificate.pem()), ("server.key", key.serialize_pem()), ("ca.crt", authority.own.pem())];
        files.iter().for_each(|(name, text)| std::fs::write(authority.directory.join(name), text).unwrap());
        authority
    }

    fn sign(&self, name: &str, expired: Expired) -> Shown {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        if expired == Expired::Yes {
            (params.not_before, params.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 1, 1));
        }
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Signs a client's certificate.
    pub fn client(&self, expired: Expired) -> Shown {
        self.sign("client", expired)
    }

    /// Returns settings with a server certificate of this authority. Clients' certificates are checked against this
    /// authority, too.
    pub fn settings(&self, clients: AuthClients) -> Tls {
        Tls {
            address: ([127, 0, 0, 1], 0).into(),
            certificate: self.directory.join("server.crt"),
            key: self.directory.join("server.key"),
            authorities: Some(self.directory.join("ca.crt")),
            clients,
            patience: Tls::PATIENCE,
            only: false,
        }
    }

    /// Connects a client that trusts this authority.
    pub fn connect(
        &self,
        server: &Server,
        shown: Option<Shown>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Secure {
        let mut roots = RootCertStore::empty();
        roots.add(self.own.der().clone()).unwrap();
        let versions = if versions.is_empty() { rustls::DEFAULT_VERSIONS } else { versions };
        let config = ClientConfig::builder_with_protocol_versions(versions).with_root_certificates(roots);
        let config = match shown {
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                config.with_client_auth_cert(vec![CertificateDer::clone(certificate.der())], key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(server.tls_address().unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Secure(StreamOwned::new(tls, socket))
    }
}

/// Returns a server with a plain port and a port for TLS.
pub fn secure_server(authority: &Authority, clients: AuthClients) -> Server {
    server_of(authority.settings(clients)).unwrap()
}

/// Returns a server with a plain port and a port with these settings for TLS.
pub fn server_of(tls: Tls) -> Result<Server, String> {
    Server::start(&Settings { address: ([127, 0, 0, 1], 0).into(), loops: 2, tls: Some(tls), ..Settings::default() })
}

/// A connection with TLS.
pub struct Secure(pub StreamOwned<ClientConnection, TcpStream>);

impl Secure {
    /// Reads `count` bytes of answers.
    pub fn exactly(&mut self, count: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a request. Returns the bytes of one read.
    pub fn ask(&mut self, words: &[&str]) -> std::io::Result<Vec<u8>> {
        self.0.write_all(&request(words))?;
        let mut bytes = vec![0; 4096];
        let count = self.0.read(&mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

//! TLS with *rustls*, without blocking: for event loops.
//!
//! # Limits
//! | contents | bytes |
//! |---|---|
//! | incomplete records, and messages of the handshake | 64 KiB |
//! | decrypted bytes that were not read yet | 16 KiB: one record |
//! | encrypted bytes that wait for the socket | [`WAITING`], plus the record that exceeds it |
//!
//! A client that sends empty records is read at most [`RECORDS`] times before other clients are processed.
//!
//! Sessions are not resumed. So a certificate is checked at each connection, and no connection is accepted after the
//! client's certificate has expired. The cost is small, because connections of this protocol are few and long.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use archipelago_platform::sync::Arc;
use mio::net::TcpStream;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{Error, InvalidMessage, RootCertStore, ServerConfig, ServerConnection};

use super::wire::Got;
use crate::config::tls::{AuthClients, Tls};
use crate::log::Refusal;

/// The number of encrypted bytes that may wait for the socket. Above it, no more plain bytes are accepted.
const WAITING: usize = 64 << 10;
/// The number of reads of the socket before other clients are processed.
const RECORDS: usize = 16;

/// The server's settings for TLS: its certificate, and the checks of clients' certificates.
pub type Terms = ServerConfig;

/// Reads the files of the settings.
///
/// # Errors
/// The file that is wrong, and the reason.
pub fn load(tls: &Tls) -> Result<Arc<Terms>, Refusal> {
    let certificates = certificates("--tls-cert-file", &tls.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| unreadable("--tls-key-file", &tls.key, &error))?;
    let wrong = |error: Error| format!("--tls-cert-file {} and its key do not do: {error}", tls.certificate.display());
    let mut terms = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_client_cert_verifier(verifier(tls)?)
        .with_single_cert(certificates, key)
        .map_err(wrong)?;
    terms.session_storage = Arc::new(NoServerSessionStorage {});
    terms.send_tls13_tickets = 0;
    Ok(Arc::new(terms))
}

fn unreadable(option: &str, path: &Path, error: &dyn core::fmt::Display) -> Refusal {
    format!("cannot read {option} {}: {error}", path.display())
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Refusal> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = read.map_err(|error| unreadable(option, path, &error))?;
    if all.is_empty() {
        return Err(unreadable(option, path, &"there is no certificate in it"));
    }
    Ok(all)
}

/// Returns the verifier of clients' certificates.
fn verifier(tls: &Tls) -> Result<Arc<dyn ClientCertVerifier>, Refusal> {
    if tls.clients == AuthClients::No {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let path = tls.authorities.as_ref().ok_or(
        "clients have to show certificates, and there is no --tls-ca-cert-file to judge them by. Name one, or say --tls-auth-clients no",
    )?;
    let option = "--tls-ca-cert-file";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(option, path)? {
        roots.add(certificate).map_err(|error| unreadable(option, path, &error))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()));
    let builder = if tls.clients == AuthClients::Optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| unreadable(option, path, &error))
}

/// A socket that notes whether a read has emptied it.
struct Draining<'a> {
    tcp: &'a mut TcpStream,
    drained: bool,
}

impl Read for Draining<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = self.tcp.read(room)?;
        self.drained = count < room.len();
        Ok(count)
    }
}

/// The state of TLS of one connection.
pub struct Session {
    tls: ServerConnection,
    /// The number of decrypted bytes that were not read yet.
    left: usize,
    /// Whether the last read emptied the socket.
    drained: bool,
    /// The error of the handshake, if it failed.
    failure: Option<String>,
}

impl Session {
    /// Creates the state of a new connection.
    pub fn new(terms: &Arc<Terms>) -> io::Result<Self> {
        let mut tls = ServerConnection::new(terms.clone()).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(WAITING));
        Ok(Self { tls, left: 0, drained: false, failure: None })
    }

    pub fn is_shaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    pub fn is_flushed(&self) -> bool {
        !self.tls.wants_write()
    }

    /// Reads plain bytes, after completing the handshake.
    ///
    /// The end of the socket without a closing message of TLS counts as a normal end, as without TLS. If bytes are missing,
    /// the last request is incomplete and is not carried out.
    pub fn read(&mut self, tcp: &mut TcpStream, room: &mut [u8]) -> io::Result<Got> {
        for _ in 0..RECORDS {
            match self.tls.reader().read(room) {
                Ok(0) => return Ok(Got::End),
                Ok(count) => {
                    self.left -= count;
                    return Ok(Got::Bytes(count, self.left > 0 || !self.drained));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Got::End),
                Err(error) => return Err(error),
            }
            self.receive(tcp)?;
        }
        Ok(Got::Later)
    }

    /// Reads the socket once.
    fn receive(&mut self, tcp: &mut TcpStream) -> io::Result<()> {
        let mut socket = Draining { tcp, drained: false };
        let count = self.tls.read_tls(&mut socket)?;
        self.drained = socket.drained;
        match self.tls.process_new_packets() {
            Ok(state) => self.left = state.plaintext_bytes_to_read(),
            Err(error) => return Err(self.refuse(tcp, &error)),
        }
        if count == 0 && self.is_shaking() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // Bytes that the socket does not accept now are sent at the next event.
        self.flush(tcp).or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) })
    }

    /// Reports the client's error to the client.
    fn refuse(&mut self, tcp: &mut TcpStream, error: &Error) -> io::Error {
        self.failure = Some(error.to_string());
        let plain = *error == Error::InvalidMessage(InvalidMessage::InvalidContentType) && self.is_shaking();
        // An error is ignored, because the connection ends in any case.
        let _ = if plain { tcp.write(b"-ERR This port speaks TLS only\r\n").map(|_| ()) } else { self.flush(tcp) };
        ErrorKind::InvalidData.into()
    }

    /// Accepts plain bytes to send, unless too many encrypted bytes wait for the socket.
    pub fn write(&mut self, tcp: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(tcp)?;
        match self.tls.writer().write(bytes)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => match self.flush(tcp) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
                _ => Ok(count),
            },
        }
    }

    pub fn flush(&mut self, tcp: &mut TcpStream) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(tcp) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn close(&mut self, tcp: &mut TcpStream) -> Option<String> {
        let shaking = self.is_shaking();
        if self.failure.is_none() {
            self.tls.send_close_notify();
            let _ = self.flush(tcp);
        }
        shaking.then(|| self.failure.take().unwrap_or_else(|| "the client went, or took too long".into()))
    }
}

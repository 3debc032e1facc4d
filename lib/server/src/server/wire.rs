//! A client's socket, with TLS or without.

use std::io::{self, Read as _, Write as _};

use archipelago_platform::sync::Arc;
use mio::net::TcpStream;

use super::tls::{Session, Terms};

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    /// This number of bytes was read; the flag tells whether more may be available now.
    Bytes(usize, bool),
    /// The other side sends no more bytes.
    End,
    /// No bytes yet. The read did enough work, so that other clients come first.
    Later,
}

/// A socket that never blocks. An operation that would block returns `WouldBlock`.
pub struct Wire {
    tcp: TcpStream,
    tls: Option<Box<Session>>,
}

impl Wire {
    /// Creates the wire of a new connection. If `terms` are given, the connection uses TLS.
    ///
    /// # Errors
    /// The error of TLS about the terms.
    pub fn new(tcp: TcpStream, terms: Option<&Arc<Terms>>) -> io::Result<Self> {
        let tls = terms.map(Session::new).transpose()?.map(Box::new);
        Ok(Self { tcp, tls })
    }

    /// Returns the source of events.
    pub fn source(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }

    /// Returns whether the handshake of TLS is incomplete.
    pub fn is_shaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_shaking())
    }

    /// Reads once.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<Got> {
        match &mut self.tls {
            Some(tls) => tls.read(&mut self.tcp, room),
            // If fewer bytes than requested were read, no more bytes are available. Later bytes, and an unannounced end,
            // cause another event.
            None => self.tcp.read(room).map(|count| match count {
                0 => Got::End,
                _ => Got::Bytes(count, count == room.len()),
            }),
        }
    }

    /// Accepts bytes to send. Returns their number.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.write(&mut self.tcp, bytes),
            None => self.tcp.write(bytes),
        }
    }

    /// Sends accepted bytes that were not sent yet.
    pub fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&mut self.tcp))
    }

    /// Returns whether all accepted bytes were sent.
    pub fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_flushed())
    }

    /// Announces that no more bytes follow. Returns the error of the handshake, if it failed.
    pub fn close(&mut self) -> Option<String> {
        self.tls.as_mut().and_then(|tls| tls.close(&mut self.tcp))
    }
}

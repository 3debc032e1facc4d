//! A client's socket, with TLS or without.

use std::io::{self, Read as _, Write as _};

use archipelago_platform::sync::Arc;
use mio::net::TcpStream;

use super::tls::{Session, Terms};

/// What a read has brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Got {
    /// So many bytes, and whether there may be more now.
    Bytes(usize, bool),
    /// The other side writes no more.
    End,
    /// Nothing yet, after enough work that others come first.
    Later,
}

/// A socket that waits for nothing: what would have to wait is `WouldBlock`.
pub struct Wire {
    tcp: TcpStream,
    tls: Option<Box<Session>>,
}

impl Wire {
    /// Of a new connection; with terms it speaks TLS.
    ///
    /// # Errors
    /// What TLS says of the terms.
    pub fn new(tcp: TcpStream, terms: Option<&Arc<Terms>>) -> io::Result<Self> {
        let tls = terms.map(Session::new).transpose()?.map(Box::new);
        Ok(Self { tcp, tls })
    }

    /// What events come from.
    pub fn source(&mut self) -> &mut TcpStream {
        &mut self.tcp
    }

    /// Returns whether keys are still to be agreed on.
    pub fn is_shaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_shaking())
    }

    /// Reads once.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<Got> {
        match &mut self.tls {
            Some(tls) => tls.read(&mut self.tcp, room),
            // Fewer bytes than there was room for are all that there were: the next ones, and an end that was not announced,
            // are an event of their own.
            None => self.tcp.read(room).map(|count| match count {
                0 => Got::End,
                _ => Got::Bytes(count, count == room.len()),
            }),
        }
    }

    /// Takes bytes to send. Returns how many.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.write(&mut self.tcp, bytes),
            None => self.tcp.write(bytes),
        }
    }

    /// Sends what was taken.
    pub fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&mut self.tcp))
    }

    /// Returns whether all that was taken was sent.
    pub fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_flushed())
    }

    /// Says that nothing more comes. Returns why no keys were agreed on, if none were.
    pub fn close(&mut self) -> Option<String> {
        self.tls.as_mut().and_then(|tls| tls.close(&mut self.tcp))
    }
}

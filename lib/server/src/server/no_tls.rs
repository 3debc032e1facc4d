//! The replacement for `tls` without the feature `tls`. Its types have no values.

use std::io;

use archipelago_platform::sync::Arc;
use mio::net::TcpStream;

use super::wire::Got;
use crate::config::tls::Tls;
use crate::log::Refusal;

/// The settings of TLS. There are none.
pub enum Terms {}

/// A connection with TLS. There are none.
pub enum Session {}

pub fn load(_: &Tls) -> Result<Arc<Terms>, Refusal> {
    Err("this program was built without TLS: build it with the feature `tls`".into())
}

impl Session {
    pub fn new(terms: &Arc<Terms>) -> io::Result<Self> {
        match **terms {}
    }

    pub fn is_shaking(&self) -> bool {
        match *self {}
    }

    pub fn is_flushed(&self) -> bool {
        match *self {}
    }

    pub fn read(&mut self, _: &mut TcpStream, _: &mut [u8]) -> io::Result<Got> {
        match *self {}
    }

    pub fn write(&mut self, _: &mut TcpStream, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub fn flush(&mut self, _: &mut TcpStream) -> io::Result<()> {
        match *self {}
    }

    pub fn close(&mut self, _: &mut TcpStream) -> Option<String> {
        match *self {}
    }
}

//! A minimal client: sends words, returns answers as text.

use archipelago_server::server::{Server, Settings};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Returns a server on the loopback interface, on any free port.
pub fn server(loops: usize) -> Server {
    started(Settings { loops, ..Settings::default() })
}

/// Returns a server with these settings, on the loopback interface and any free port.
pub fn started(settings: Settings) -> Server {
    Server::start(&Settings { address: ([127, 0, 0, 1], 0).into(), ..settings }).unwrap()
}

/// Returns a request's bytes.
pub fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    bytes
}

/// A connection. Reads fail after ten seconds, so that a test ends if its server does not answer.
pub struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self::try_new(address).unwrap()
    }

    pub fn try_new(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self { reader: BufReader::new(stream.try_clone()?), stream })
    }

    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Ends the direction from this client to the server.
    pub fn end_requests(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Ends the connection with a reset. A machine that has restarted answers the same, because it no longer knows the
    /// connection.
    pub fn vanish(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Sends as many bytes as possible without blocking. Returns their number.
    pub fn stuff(&mut self, bytes: &[u8]) -> usize {
        self.stream.set_nonblocking(true).unwrap();
        let sent = self.stream.write(bytes).unwrap_or(0);
        self.stream.set_nonblocking(false).unwrap();
        sent
    }

    /// Returns the next answer as flat text: lines and bulk strings joined by blanks.
    pub fn answer(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        match (line.as_bytes()[0], line[1..].parse::<i64>()) {
            (b'$', Ok(length)) if length >= 0 => {
                let mut bytes = vec![0; length as usize + 2];
                self.reader.read_exact(&mut bytes)?;
                bytes.truncate(length as usize);
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            (b'*' | b'>', Ok(count)) if count >= 0 => {
                Ok((0..count).map(|_| self.answer()).collect::<Result<Vec<_>, _>>()?.join(" "))
            }
            _ => Ok(line.to_owned()),
        }
    }

    pub fn call(&mut self, words: &[&str]) -> std::io::Result<String> {
        self.send(&request(words))?;
        self.answer()
    }

    /// Returns the answer to a request. Panics if the connection has ended.
    pub fn ask(&mut self, line: &str) -> String {
        self.call(&line.split(' ').collect::<Vec<_>>()).unwrap()
    }
}

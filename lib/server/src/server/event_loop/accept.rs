//! New connections: they are refused, or dealt out to the loops in turn.

use std::io;

use archipelago_platform::atomic::Ordering::Relaxed;
use archipelago_platform::sync::Arc;
use archipelago_platform::time::{Duration, Instant};
use mio::net::TcpStream;
use mio::{Interest, Token};
use socket2::{SockRef, TcpKeepalive};

use super::{Loop, TICK};
use crate::blocked::Owner;
use crate::server::access::Identity;
use crate::server::client::Client;
use crate::server::shared::{Card, Letter, lock};
use crate::server::wire::Wire;

/// The maximum number of connections accepted in a row.
const ACCEPTS: usize = 64;
/// The answer to a connection that is refused: in plain text, and as an alert of TLS (`access_denied`, `internal_error`).
type Refused = (&'static str, &'static [u8]);
const PROTECTED: Refused = (
    "-DENIED Running in protected mode: no password is set, so that only clients of this machine are let in. Start with --requirepass to let in others.\r\n",
    &[21, 3, 3, 0, 2, 2, 49],
);
const CROWDED: Refused = ("-ERR max number of clients reached\r\n", &[21, 3, 3, 0, 2, 2, 80]);

/// Makes the kernel probe a connection that was silent for this time, and end it if nothing answers: without probes a
/// connection whose other side has vanished stays for ever. As in Redis, there are three probes, at intervals of a
/// third of this time.
fn keep_alive(stream: &TcpStream, seconds: u64) {
    if seconds > 0 {
        let interval = Duration::from_secs((seconds / 3).max(1));
        let probes =
            TcpKeepalive::new().with_time(Duration::from_secs(seconds)).with_interval(interval).with_retries(3);
        let _ = SockRef::from(stream).set_tcp_keepalive(&probes);
    }
}

impl Loop {
    pub(super) fn accept(&mut self) {
        self.accepts = false;
        (0..self.listeners.len()).for_each(|number| self.accept_at(number));
    }

    fn accept_at(&mut self, number: usize) {
        for _ in 0..ACCEPTS {
            let (listener, secure) = &self.listeners[number];
            match listener.accept() {
                Ok((stream, _)) => self.deal(stream, *secure),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                }
                // There are no descriptors or there is no memory; both may be available later. The connection stays in the
                // queue, so an immediate retry would repeat without end.
                Err(_) => {
                    self.accept_again = Some(Instant::now() + TICK);
                    return;
                }
            }
        }
        self.accepts = true;
    }

    /// Passes a connection to the next loop in turn.
    fn deal(&mut self, stream: TcpStream, secure: bool) {
        let to = self.next_loop % self.shared.mail.len();
        self.next_loop += 1;
        if to == self.number {
            self.admit(stream, secure);
        } else {
            self.shared.post(to, Letter::Client(stream, secure));
        }
    }

    pub(super) fn admit(&mut self, mut stream: TcpStream, secure: bool) {
        let _ = stream.set_nodelay(true);
        keep_alive(&stream, self.shared.config.get("tcp-keepalive").parse().unwrap_or(0));
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
        let shared = &self.shared;
        let open = shared.acl.is_open();
        let most = shared.config.get("maxclients").parse().unwrap_or(usize::MAX);
        let refusal = if open && shared.config.get("protected-mode") == "yes" && !peer.ip().to_canonical().is_loopback()
        {
            Some(&PROTECTED)
        } else if lock(&shared.clients).len() >= most {
            Some(&CROWDED)
        } else {
            None
        };
        let id = shared.counts.connections.fetch_add(1, Relaxed) + 1;
        if let Some((plain, alert)) = refusal {
            shared.counts.rejected.fetch_add(1, Relaxed);
            let _ = io::Write::write(&mut stream, if secure { alert } else { plain.as_bytes() });
            return;
        }
        let terms = shared.terms.as_ref().filter(|_| secure);
        let Ok(mut wire) = Wire::new(stream, terms) else { return };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        if self.poll.registry().register(wire.source(), Token(slot), Interest::READABLE | Interest::WRITABLE).is_err() {
            self.free.push(slot);
            return;
        }
        let owner = Owner { at: self.number, slot, id };
        let card = Arc::new(Card::new(owner, peer, local));
        lock(&shared.clients).insert(id, card.clone());
        if secure {
            self.shaking.push_back((Instant::now() + shared.patience, owner));
        }
        let mut client = Client::new(wire, card, Identity::new(&self.shared.acl), open);
        client.session = self.session();
        self.clients[slot] = Some(client);
        self.wake(slot);
    }
}

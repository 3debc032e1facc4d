//! Sockets: event loops, one a core.
//!
//! A loop reads what its clients sent, and works in rounds: the changes at the head of each client's queue are one batch
//! of the combiner ([`Handle::write_many`]), then come the reads behind them, on the replica of the loop's node, until the
//! queues are empty. Answers of a client come in the order of its requests.
//!
//! Sockets are those of the standard library, behind `mio`: the door of `archipelago_platform` has no network.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::{SystemTime, UNIX_EPOCH};

use archipelago_platform::sync::Arc;
use archipelago_platform::thread;
use archipelago_replicate::{Handle, Replicated};
use mio::net::{TcpListener as Listener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::args::Args;
use crate::command::{self, flag};
use crate::db::{Db, Random};
use crate::operation::Write;
use crate::reply::{Fault, Reply};
use crate::resp::{Malformed, Parser};
use crate::session::{Moment, Session, Step};

const LISTENER: Token = Token(usize::MAX);

/// A server's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub address: SocketAddr,
    /// Event loops.
    pub loops: usize,
}

/// A server that listens.
pub struct Server {
    address: SocketAddr,
    loops: Vec<thread::JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Listens, and starts the loops.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(settings: &Settings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.address)?;
        listener.set_nonblocking(true)?;
        let db = Arc::new(Replicated::new(Db::default));
        let start = |number| {
            let (listener, handle) = (Listener::from_std(listener.try_clone()?), db.handle());
            let run = move || Loop::new(listener, handle, number)?.run();
            thread::Builder::new().name(format!("loop-{number}")).spawn(run)
        };
        let loops = (0..settings.loops.max(1) as u64).map(start).collect::<io::Result<_>>()?;
        Ok(Self { address: listener.local_addr()?, loops })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the loops to end.
    ///
    /// # Errors
    /// What ended a loop.
    pub fn wait(self) -> io::Result<()> {
        self.loops.into_iter().try_for_each(|each| each.join().expect("a loop does not panic"))
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as u64)
}

struct Client {
    stream: TcpStream,
    parser: Parser,
    session: Session,
    /// A request that waits for the changes before it.
    held: Option<Args>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Ends when the output is written.
    ends: bool,
}

struct Loop {
    poll: Poll,
    listener: Listener,
    handle: Handle<Db>,
    clients: HashMap<usize, Client>,
    next: usize,
    random: Random,
}

impl Loop {
    fn new(mut listener: Listener, handle: Handle<Db>, number: u64) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self { poll, listener, handle, clients: HashMap::new(), next: 0, random: Random(now() ^ number << 56) })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            let mut readable = Vec::new();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    Token(token) => readable.push(token),
                }
            }
            readable.retain(|token| self.clients.get_mut(token).is_some_and(Client::receive));
            self.serve(&readable);
            for token in &readable {
                if self.clients.get_mut(token).is_some_and(Client::send) {
                    self.end(*token);
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(_) => return Ok(()),
            };
            let _ = stream.set_nodelay(true);
            let token = self.next;
            self.next += 1;
            self.poll.registry().register(&mut stream, Token(token), Interest::READABLE | Interest::WRITABLE)?;
            let (parser, session) = (Parser::default(), Session::default());
            let client =
                Client { stream, parser, session, held: None, input: Vec::new(), output: Vec::new(), ends: false };
            self.clients.insert(token, client);
        }
    }

    fn end(&mut self, token: usize) {
        if let Some(mut client) = self.clients.remove(&token)
            && let Step::Write(operation) = client.session.unwatch()
        {
            let _ = self.handle.write(operation);
        }
    }

    /// Carries out what these clients sent, in rounds.
    fn serve(&mut self, tokens: &[usize]) {
        let mut active = tokens.to_vec();
        while !active.is_empty() {
            let (mut batch, mut owners) = (Vec::new(), Vec::new());
            active.retain(|token| self.round(*token, &mut batch, &mut owners));
            self.commit(batch, &owners);
        }
    }

    /// Takes requests of a client: changes into the batch, reads while the client has no change in it. Returns whether
    /// there may be more.
    fn round(&mut self, token: usize, batch: &mut Vec<Write>, owners: &mut Vec<usize>) -> bool {
        let Some(client) = self.clients.get_mut(&token) else { return false };
        let mut waits = false;
        let mut taken = 0;
        let more = loop {
            let args = match client.held.take().map_or_else(|| client.parse(&mut taken), |args| Ok(Some(args))) {
                Ok(Some(args)) => args,
                Ok(None) => break false,
                Err(malformed) => {
                    Reply::Error(Fault::made(malformed.0)).encode(client.session.protocol, &mut client.output);
                    client.ends = true;
                    break false;
                }
            };
            // A request behind a change waits for the next round unless it is a change, too.
            if waits && command::find(&args[0]).is_none_or(|command| !command.has(flag::WRITE)) {
                client.held = Some(args);
                break true;
            }
            let moment = Moment { now: now(), seed: self.random.next(), wishes: 0 };
            let reply = match client.session.accept(args, moment) {
                Step::Reply(reply) => reply,
                Step::Read(read) => match self.handle.read(&read) {
                    Ok(outcome) => outcome.reply,
                    Err(poisoned) => Reply::Error(Fault::made(format!("ERR {poisoned}"))),
                },
                Step::Write(write) => {
                    let last = Session::must_wait(&write);
                    batch.push(write);
                    owners.push(token);
                    waits = true;
                    if last {
                        break true;
                    }
                    continue;
                }
                Step::Server(command, _) => {
                    Reply::Error(Fault::made(format!("ERR unknown command '{}'", command.name)))
                }
                Step::Close(reply) => {
                    client.ends = true;
                    reply
                }
            };
            reply.encode(client.session.protocol, &mut client.output);
            if client.ends {
                break false;
            }
        };
        client.input.drain(..taken);
        more
    }

    /// Carries out the batch, and answers.
    fn commit(&mut self, batch: Vec<Write>, owners: &[usize]) {
        if batch.is_empty() {
            return;
        }
        let special: Vec<Option<Write>> =
            batch.iter().map(|write| Session::must_wait(write).then(|| write.clone())).collect();
        let outcomes = match self.handle.write_many(batch) {
            Ok(outcomes) => outcomes,
            Err(poisoned) => {
                let text = format!("ERR {poisoned}");
                for owner in owners {
                    if let Some(client) = self.clients.get_mut(owner) {
                        Reply::Error(Fault::made(text.clone())).encode(client.session.protocol, &mut client.output);
                    }
                }
                return;
            }
        };
        for ((owner, write), mut outcome) in owners.iter().zip(special).zip(outcomes) {
            let Some(client) = self.clients.get_mut(owner) else { continue };
            let reply = match write {
                Some(write) => client.session.answer(&write, &mut outcome),
                None => outcome.reply,
            };
            reply.encode(client.session.protocol, &mut client.output);
        }
    }
}

impl Client {
    /// The next request, of what is behind the first `taken` bytes.
    fn parse(&mut self, taken: &mut usize) -> Result<Option<Args>, Malformed> {
        let (args, bytes) = self.parser.take(&self.input[*taken..])?;
        *taken += bytes;
        Ok(args)
    }

    /// Reads what has come. Returns whether the connection is still there.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.ends = true;
                    return true;
                }
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ends |= error.kind() != io::ErrorKind::WouldBlock;
                    return true;
                }
            }
        }
    }

    /// Writes what it can. Returns whether the connection is to end.
    fn send(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => _ = self.output.drain(..count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
        self.ends
    }
}

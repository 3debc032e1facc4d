//! Sockets: event loops, each bound to a NUMA node.
//!
//! | module | contents |
//! |---|---|
//! | [`event_loop`] | accepts clients, reads requests in rounds, hands changes on as one batch |
//! | [`client`] | a client, its input and output buffers, and their limits |
//! | [`wire`], [`tls`] | a client's socket, with TLS or without |
//! | [`aside`] | long reads, in threads of their own |
//! | [`room`] | chooses keys to evict when memory is short |
//! | [`saver`] | snapshots, on request and by time |
//! | [`access`] | authentication and permissions of clients |
//! | [`commands`], [`info`], [`clients`], [`catalog`], [`debug`] | commands of the connection and of the server; [`help`](crate::command::help) |
//! | [`requests`] | reads, and the records that are kept of requests |
//! | [`transaction`] | reads and records inside `MULTI` |
//! | [`events`], [`tracking`] | the receivers of changes: keyspace events, client-side caches |
//! | [`stats`], [`slow`], [`monitor`] | counts of commands and their durations |
//! | [`metrics`] | the same figures over HTTP, for Prometheus and for people |
//! | [`params`] | parameters of these modules |
//! | [`shared`] | messages between event loops, the thread that waits for the disk, clients that wait for keys |
//!
//! The sockets are those of the standard library, driven through `mio`: `archipelago_platform` has no network.

mod access;
mod aside;
mod catalog;
mod client;
mod clients;
pub mod commands;
mod debug;
mod event_loop;
mod events;
mod info;
pub mod lacking;
mod metrics;
mod monitor;
pub mod params;
mod requests;
mod room;
pub mod saver;
mod shared;
mod slow;
mod stats;
#[cfg_attr(not(feature = "tls"), path = "server/no_tls.rs")]
mod tls;
mod tracking;
mod transaction;
mod wire;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use archipelago_journal::{Disk, DiskLock, Real, Recovery};
use archipelago_platform::atomic::Ordering::Relaxed;
use archipelago_platform::sync::Arc;
use archipelago_platform::topology::Topology;
use archipelago_platform::{thread, time};
use mio::net::TcpListener as Listener;
use mio::{Poll, Waker};

use crate::config::Config;
pub use crate::config::{Appendonly, Settings};
use crate::log::{Refusal, Store};
use crate::rdb::files::{self, Imported};
use event_loop::{LETTERS, Loop};
use shared::{Mailbox, Shared};

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    loops: Vec<thread::JoinHandle<io::Result<()>>>,
    writer: Option<thread::JoinHandle<()>>,
    metrics: Option<thread::JoinHandle<()>>,
    readers: Vec<thread::JoinHandle<()>>,
    recovery: Option<Recovery>,
    imported: Option<Imported>,
    /// The lock of the server's directory.
    _lock: Option<Box<dyn DiskLock>>,
}

impl Server {
    /// Reads the log, listens, and starts the event loops.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what to do.
    pub fn start(settings: &Settings) -> Result<Self, Refusal> {
        Self::start_on(settings, Arc::new(Real))
    }

    /// Starts a server as [`start`](Self::start) does, on another disk. For tests.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_on(settings: &Settings, disk: Arc<dyn Disk>) -> Result<Self, Refusal> {
        let mut settings = settings.clone();
        let terms = settings.tls.as_ref().map(tls::load).transpose()?;
        let listeners = listen(&mut settings)?;
        let lock = match settings.appendonly {
            Appendonly::No => None,
            _ => Some(lock(&*disk, &settings.directory)?),
        };
        let (store, recovery) =
            Store::open_on(disk.clone(), &settings.directory, settings.appendonly, settings.replicas)?;
        store.seed(secret())?;
        let load = |path| files::import(&store, path, now());
        let imported = settings.load.as_deref().map(load).transpose()?;
        let waits = store.waits();
        let starting = |error: io::Error| format!("cannot start an event loop: {error}");
        let polls = (0..settings.loops.max(1)).map(|_| {
            let poll = Poll::new()?;
            let mailbox = Mailbox::new(Waker::new(poll.registry(), LETTERS)?);
            Ok((poll, mailbox))
        });
        let (polls, mail): (Vec<Poll>, _) =
            polls.collect::<io::Result<Vec<_>>>().map_err(starting)?.into_iter().unzip();
        let config = Config::new(&settings);
        for (name, value) in &settings.parameters {
            config.set(name, value).map_err(|what| format!("{what}: --{name} takes what CONFIG SET {name} does"))?;
        }
        if settings.appendonly == Appendonly::No && !config.get("save").is_empty() {
            make(&*disk, &settings.directory)?;
        }
        let mut shared = Shared::new(store, config, mail, settings.address);
        if let Some(tls) = &settings.tls {
            (shared.terms, shared.patience) = (terms, tls.patience);
        }
        let shared = Arc::new(shared);
        if let Some(path) = &settings.aclfile {
            shared.load_users(&path.display().to_string())?;
        }
        let mut server = Self {
            shared: shared.clone(),
            loops: Vec::new(),
            writer: None,
            metrics: None,
            readers: Vec::new(),
            recovery,
            imported,
            _lock: lock,
        };
        if waits {
            let shared = shared.clone();
            let writer = thread::Builder::new().name("log".into()).spawn(move || shared.run());
            server.writer = Some(writer.map_err(starting)?);
        }
        for number in 0..settings.loops.max(1) {
            let shared = shared.clone();
            let reader = thread::Builder::new().name(format!("reader-{number}")).spawn(move || shared.read_aside());
            server.readers.push(reader.map_err(starting)?);
        }
        let mut listeners = Some(listeners);
        for (number, poll) in polls.into_iter().enumerate() {
            let (shared, listeners) = (shared.clone(), listeners.take().unwrap_or_default());
            let run = move || {
                let topology = Topology::current();
                let node = number % topology.nodes().len();
                // If the operating system refuses the binding, the loop runs on any processor.
                let _ = thread::bind_current(topology, archipelago_platform::topology::NodeId(node));
                Loop::new(poll, listeners, shared, number).run()
            };
            server.loops.push(thread::Builder::new().name(format!("loop-{number}")).spawn(run).map_err(starting)?);
        }
        Ok(server)
    }

    /// Serves metrics over HTTP without a password: `/metrics` for Prometheus, and a page at `/`. Returns the address on
    /// which it listens.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what to do.
    pub fn tell_metrics(&mut self, address: SocketAddr) -> Result<SocketAddr, Refusal> {
        let telling =
            |error: io::Error| format!("cannot tell metrics at {address}: {error}. Choose another with --metrics");
        let (listener, address) = bind(address).map_err(telling)?;
        let shared = self.shared.clone();
        let serve = move || metrics::serve(&listener, &shared);
        self.metrics = Some(thread::Builder::new().name("metrics".into()).spawn(serve).map_err(telling)?);
        Ok(address)
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Returns the address on which the server listens for TLS, if it does.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.shared.terms.as_ref()?;
        let port = self.shared.config.get("tls-port").parse().ok()?;
        Some(SocketAddr::new(self.shared.address.ip(), port))
    }

    /// Returns what was read from the log at the start, if there is a log.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// Returns what was read from an RDB file at the start, if one was loaded.
    pub fn imported(&self) -> Option<Imported> {
        self.imported
    }

    /// Stops the server like [`stop`](Self::stop), and writes the database into an RDB file. Redis 7.0 reads the file,
    /// or 7.4 if fields of hashes expire.
    ///
    /// # Errors
    /// A sentence that says what failed.
    pub fn export(mut self, path: &Path) -> Result<(), Refusal> {
        let ended = self.end();
        files::export(&self.shared.store, path).and(ended)
    }

    /// Returns whether the server was asked to end, or one of its event loops has ended.
    pub fn is_ending(&self) -> bool {
        self.shared.stop.load(Relaxed) || self.loops.iter().any(thread::JoinHandle::is_finished)
    }

    /// Stops the server. Requests that are being processed are answered, and their changes are synced.
    ///
    /// # Errors
    /// A sentence that says what failed.
    pub fn stop(mut self) -> Result<(), Refusal> {
        self.end()
    }

    /// Waits until `SHUTDOWN` was requested, then stops the server.
    ///
    /// # Errors
    /// A sentence that says what failed.
    pub fn wait(self) -> Result<(), Refusal> {
        while !self.is_ending() {
            thread::sleep(core::time::Duration::from_millis(50));
        }
        self.stop()
    }

    fn end(&mut self) -> Result<(), Refusal> {
        self.shared.end();
        let mut ended = Ok(());
        for each in self.loops.drain(..) {
            let done = each.join().map_err(|_| "an event loop has panicked".to_owned());
            ended = ended.and(done.and_then(|done| done.map_err(|error| error.to_string())));
        }
        if let Some(metrics) = self.metrics.take() {
            ended = ended.and(metrics.join().map_err(|_| "the thread of metrics has panicked".to_owned()));
        }
        self.shared.aside.end();
        for each in self.readers.drain(..) {
            ended = ended.and(each.join().map_err(|_| "a thread for long reads has panicked".to_owned()));
        }
        if let Some(writer) = self.writer.take() {
            self.shared.last_job();
            ended = ended.and(writer.join().map_err(|_| "the log's thread has panicked".to_owned()));
        }
        ended = ended.and(self.shared.end_snapshots());
        ended.and(self.shared.store.sync())
    }
}

/// Ends the server's threads.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Listens on the addresses of the settings, and stores the actual addresses in the settings. Returns each listener with
/// whether it is for TLS.
fn listen(settings: &mut Settings) -> Result<Vec<(Listener, bool)>, Refusal> {
    let mut listeners = Vec::new();
    let only = settings.tls.as_ref().is_some_and(|tls| tls.only);
    let plain = (!only).then_some((&mut settings.address, false, "--port"));
    let secure = settings.tls.as_mut().map(|tls| (&mut tls.address, true, "--tls-port"));
    for (address, secure, option) in plain.into_iter().chain(secure) {
        let (listener, there) = bind(*address)
            .map_err(|error| format!("cannot listen on {address}: {error}. Choose another with {option} or --bind"))?;
        *address = there;
        listeners.push((Listener::from_std(listener), secure));
    }
    if let Some(tls) = settings.tls.as_ref().filter(|_| only) {
        settings.address = tls.address;
    }
    Ok(listeners)
}

/// Creates the directory, if it does not exist.
fn make(disk: &dyn Disk, directory: &Path) -> Result<(), Refusal> {
    let shown = directory.display();
    disk.create_directory(directory)
        .map_err(|error| format!("cannot make {shown}: {error}. Make its parent, or choose another with --dir"))
}

/// Creates the directory, if it does not exist, and locks it.
fn lock(disk: &dyn Disk, directory: &Path) -> Result<Box<dyn DiskLock>, Refusal> {
    make(disk, directory)?;
    let shown = directory.display();
    disk.lock(&directory.join("server.lock")).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            format!("{shown} is another server's: stop that one, or choose another with --dir")
        }
        _ => format!("cannot lock {shown}: {error}"),
    })
}

/// Returns a random number other than 0. The keys of the standard library's hash function come from the operating
/// system.
fn secret() -> u64 {
    RandomState::new().build_hasher().finish().max(1)
}

#[cfg(test)]
thread::thread_local! {
    /// How often this thread has called [`now`].
    static CLOCK_READS: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// Returns the time, in milliseconds since 1970.
fn now() -> u64 {
    #[cfg(test)]
    CLOCK_READS.set(CLOCK_READS.get() + 1);
    time::unix_time().as_millis() as u64
}

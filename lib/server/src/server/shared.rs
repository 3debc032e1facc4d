//! What all loops share, and the letters between them.

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use archipelago_platform::sync::{Condvar, Mutex, MutexGuard};
use archipelago_platform::time::Instant;
use archipelago_replicate::Handle;
use mio::Waker;
use mio::net::TcpStream;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use archipelago_platform::sync::Arc;

use super::now;
use super::room::Room;
use super::saver::Saver;
use crate::blocked::{Blocked, Key, Owner, keys};
use crate::command::flag;
use crate::config::Config;
use crate::db::{Db, Outcome};
use crate::log::Store;
use crate::operation::{Call, Write};
use crate::pubsub::Hub;
use crate::reply::Reply;

/// Bytes of messages that may wait at a loop before publishers wait, too.
const MAIL: usize = 16 << 20;

/// A message, as RESP2 and as RESP3.
pub type Encoded = Arc<(Vec<u8>, Vec<u8>)>;

/// A letter to a loop.
pub enum Letter {
    /// A new connection.
    Client(TcpStream),
    /// What became of changes.
    Answers(Vec<(Owner, Verdict)>),
    /// A message for subscribers: its bytes in both protocols.
    Message(Vec<Owner>, Encoded),
    /// A client is to end.
    Kill(Owner),
}

/// What became of a change.
pub enum Verdict {
    /// It was carried out.
    Done(Outcome),
    /// The client waits for keys, for this number of milliseconds (0: for ever), and is then answered with this.
    Blocks(u64, Reply),
}

/// A loop's letters.
pub struct Mailbox {
    letters: Mutex<(Vec<Letter>, usize)>,
    waker: Waker,
}

impl Mailbox {
    /// One of which letters wake a loop.
    pub fn new(waker: Waker) -> Self {
        Self { letters: Mutex::default(), waker }
    }

    fn post(&self, letter: Letter, bytes: usize) {
        let mut letters = lock(&self.letters);
        let first = letters.0.is_empty();
        letters.0.push(letter);
        letters.1 += bytes;
        drop(letters);
        // A loop takes all letters after it was woken, so the first of them is the one to wake it.
        if first {
            let _ = self.waker.wake();
        }
    }

    /// Takes all letters.
    pub fn take(&self) -> Vec<Letter> {
        core::mem::take(&mut *lock(&self.letters)).0
    }
}

/// A client as others see it.
pub struct Card {
    /// Which client.
    pub owner: Owner,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// Since when.
    pub since: Instant,
    /// Its name.
    pub name: Mutex<Vec<u8>>,
}

impl Card {
    /// Of a client that has just come.
    pub fn new(owner: Owner, peer: SocketAddr) -> Self {
        Self { owner, peer, since: Instant::now(), name: Mutex::default() }
    }
}

/// Counts for `INFO`.
#[derive(Default)]
pub struct Counts {
    /// Connections ever.
    pub connections: AtomicU64,
    /// Connections that were refused.
    pub rejected: AtomicU64,
    /// Requests.
    pub commands: AtomicU64,
}

/// A batch for the thread that writes with `always`.
type Job = (Vec<Option<Owner>>, Vec<Write>);

/// What all loops share.
pub struct Shared {
    /// The database.
    pub store: Store,
    /// Settings.
    pub config: Config,
    /// Each loop's letters.
    pub mail: Vec<Mailbox>,
    /// Subscriptions.
    pub hub: Mutex<Hub>,
    /// Clients by their numbers.
    pub clients: Mutex<BTreeMap<u64, Arc<Card>>>,
    /// Counts.
    pub counts: Counts,
    /// When it began.
    pub since: Instant,
    /// Where it listens.
    pub address: SocketAddr,
    /// Says that all is to end.
    pub stop: AtomicBool,
    /// The limit of memory.
    pub room: Room,
    /// Makes snapshots.
    pub saver: Mutex<Saver>,
    /// What `SHUTDOWN` said of a last snapshot.
    pub last_save: Mutex<Option<bool>>,
    /// Clients that wait for keys.
    blocked: Mutex<Blocked>,
    jobs: Mutex<(Vec<Job>, bool)>,
    work: Condvar,
}

/// Locks. Nothing panics while one of the server's locks is held.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it is locked")
}

impl Shared {
    /// Of a server that begins.
    pub fn new(store: Store, config: Config, mail: Vec<Mailbox>, address: SocketAddr) -> Self {
        Self {
            store,
            config,
            mail,
            address,
            hub: Mutex::default(),
            clients: Mutex::default(),
            counts: Counts::default(),
            since: Instant::now(),
            stop: AtomicBool::new(false),
            room: Room::default(),
            saver: Mutex::default(),
            last_save: Mutex::default(),
            blocked: Mutex::default(),
            jobs: Mutex::default(),
            work: Condvar::new(),
        }
    }

    /// Sends a letter.
    pub fn post(&self, to: usize, letter: Letter) {
        let bytes = if let Letter::Message(_, body) = &letter { body.0.len() + body.1.len() + 64 } else { 0 };
        self.mail[to].post(letter, bytes);
    }

    /// Returns whether publishers are to wait, since a loop has too many messages to take.
    pub fn is_full(&self) -> bool {
        self.mail.iter().any(|mailbox| lock(&mailbox.letters).1 > MAIL)
    }

    /// Asks all loops to end.
    pub fn end(&self) {
        self.stop.store(true, Relaxed);
        self.mail.iter().for_each(|mailbox| _ = mailbox.waker.wake());
    }

    /// Clients that wait for keys.
    pub fn waiting(&self) -> usize {
        lock(&self.blocked).len()
    }

    /// Lets a client that waits go. Returns whether it waited.
    pub fn unblock(&self, id: u64) -> bool {
        lock(&self.blocked).remove(id)
    }

    /// Hands a batch to the thread of [`run`](Self::run).
    pub fn submit(&self, owners: Vec<Option<Owner>>, batch: Vec<Write>) {
        lock(&self.jobs).0.push((owners, batch));
        self.work.notify_one();
    }

    /// Ends [`run`](Self::run) once it has done what was submitted.
    pub fn last_job(&self) {
        lock(&self.jobs).1 = true;
        self.work.notify_one();
    }

    /// Carries out what loops submit, one batch of all that is there after the other: they share a sync.
    pub fn run(&self) {
        let mut handle = self.store.handle();
        loop {
            let mut jobs = lock(&self.jobs);
            while jobs.0.is_empty() && !jobs.1 {
                jobs = self.work.wait(jobs).expect("nothing panics while it is locked");
            }
            let all = core::mem::take(&mut jobs.0);
            drop(jobs);
            if all.is_empty() {
                return;
            }
            let (mut owners, mut batch) = (Vec::new(), Vec::new());
            for (some, more) in all {
                owners.extend(some);
                batch.extend(more);
            }
            let (verdicts, ready) = self.carry_out(&mut handle, &owners, batch);
            let mut letters: BTreeMap<usize, Vec<(Owner, Verdict)>> = BTreeMap::new();
            for (owner, verdict) in verdicts {
                letters.entry(owner.at).or_default().push((owner, verdict));
            }
            for (at, answers) in letters {
                self.post(at, Letter::Answers(answers));
            }
            self.serve(&mut handle, ready);
        }
    }

    /// Carries out changes. Returns what became of those that have an owner, in order, and the keys to [`serve`](Self::serve)
    /// after the owners were told.
    pub fn carry_out(
        &self,
        handle: &mut Handle<Db>,
        owners: &[Option<Owner>],
        batch: Vec<Write>,
    ) -> (Vec<(Owner, Verdict)>, Vec<Key>) {
        let blocking: Vec<(usize, Call)> =
            batch.iter().enumerate().filter_map(|(at, write)| Some((at, blocking(write)?.clone()))).collect();
        let mut outcomes = self.store.write_many(handle, batch);
        self.make_room(handle);
        let mut ready: Vec<Key> = Vec::new();
        for outcome in &mut outcomes {
            if let Some(effects) = &mut outcome.effects {
                ready.append(&mut effects.ready);
            }
        }
        let mut verdicts: Vec<Option<Verdict>> =
            outcomes.into_iter().map(|outcome| Some(Verdict::Done(outcome))).collect();
        for (at, call) in blocking {
            let Some(Verdict::Done(Outcome { reply: nothing @ (Reply::Null | Reply::NullArray), .. })) = &verdicts[at]
            else {
                continue;
            };
            if let (Some(owner), Some(millis)) = (owners[at], timeout(&call)) {
                verdicts[at] = Some(Verdict::Blocks(millis, nothing.clone()));
                ready.extend(keys(&call));
                lock(&self.blocked).register(owner, call);
            }
        }
        let told = owners.iter().zip(verdicts).filter_map(|(owner, verdict)| Some(((*owner)?, verdict?)));
        (told.collect(), ready)
    }

    /// Carries out the commands of clients that wait for these keys.
    pub fn serve(&self, handle: &mut Handle<Db>, ready: Vec<Key>) {
        if ready.is_empty() {
            return;
        }
        let mut blocked = lock(&self.blocked);
        let mut ready: VecDeque<Key> = ready.into();
        while let Some(key) = ready.pop_front() {
            let mut ticket = 0;
            while let Some((next, owner, call)) = blocked.next(&key, ticket) {
                ticket = next;
                let again = Write::Call(Call { now: now(), ..call.clone() });
                let Some(mut outcome) = self.store.write_many(handle, vec![again]).pop() else { return };
                match &outcome.reply {
                    // Others may ask for what is behind another place of a stream, or for another type.
                    Reply::Error(fault) if fault.0.starts_with("WRONGTYPE") => continue,
                    Reply::Null | Reply::NullArray if call.command.name.starts_with('x') => continue,
                    Reply::Null | Reply::NullArray => break,
                    _ => {}
                }
                if let Some(effects) = &mut outcome.effects {
                    ready.extend(effects.ready.drain(..));
                }
                blocked.remove(owner.id);
                self.post(owner.at, Letter::Answers(vec![(owner, Verdict::Done(outcome))]));
            }
        }
    }
}

/// The call of a change that may have to wait.
pub fn blocking(write: &Write) -> Option<&Call> {
    match write {
        Write::Call(call) if call.command.has(flag::BLOCKING) && timeout(call).is_some() => Some(call),
        _ => None,
    }
}

/// How long a blocking call waits, in milliseconds; 0: for ever. Returns `None` if it does not wait.
pub fn timeout(call: &Call) -> Option<u64> {
    let args = &call.args;
    let place = match call.command.name {
        "blmpop" | "bzmpop" => 1,
        "xread" | "xreadgroup" => (1..args.len()).find(|at| args.is(*at, "BLOCK"))? + 1,
        _ => args.len() - 1,
    };
    let number: f64 = core::str::from_utf8(args.get(place)?).ok()?.parse().ok()?;
    let unit = if call.command.name.starts_with('x') { 1.0 } else { 1000.0 };
    (number >= 0.0).then_some((number * unit).ceil() as u64)
}

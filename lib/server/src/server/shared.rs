//! The state that all event loops share, and the letters (messages) between them.

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use archipelago_platform::sync::{Condvar, Mutex, MutexGuard};
use archipelago_platform::time::{Duration, Instant};
use archipelago_replicate::Handle;
use mio::Waker;
use mio::net::TcpStream;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use archipelago_platform::sync::Arc;

use super::aside::Aside;
use super::clients::{Pause, Shown};
use super::events::{Aftermath, Events, Ready};
use super::monitor::Monitors;
use super::now;
use super::params::Output;
use super::room::Room;
use super::saver::Saver;
use super::slow::{Slow, Suspect};
use super::stats::Stats;
use super::tls::Terms;
use super::tracking::Tracking;
use crate::acl::{Acl, DEFAULT};
use crate::blocked::rounds::{Others, Rounds};
use crate::blocked::{Blocked, Key, Owner, keys, wants_streams};
use crate::command::{self, Command, flag};
use crate::config::Config;
use crate::config::tls::Tls;
use crate::db::{DATABASES, Db, Outcome};
use crate::log::{Store, may_come_about};
use crate::operation::{Call, Read, Write, wish};
use crate::pubsub::{Hub, SubscriptionKind};
use crate::reply::{Fault, Reply};

/// The number of bytes of messages that may wait at a loop. Above it, publishers wait.
const MAIL: usize = 16 << 20;
/// The number of bytes of messages that may wait at a loop. Above it, events are lost.
const OVERFLOW: usize = 4 * MAIL;

/// A message in the bytes of RESP2 and of RESP3.
pub type Encoded = Arc<(Vec<u8>, Vec<u8>)>;

/// A kind of subscription, and the name of a channel or a pattern.
pub type Subscription = (SubscriptionKind, Vec<u8>);

/// A message to an event loop.
pub enum Letter {
    /// A new connection, and whether it speaks TLS.
    Client(TcpStream, bool),
    /// Results of clients' operations.
    Answers(Vec<(Owner, Verdict)>),
    /// A message for clients: its bytes in both protocols, and the subscription of these clients, or `None` for clients that
    /// receive all requests. A client that has unsubscribed meanwhile gets no message, because the client would take the
    /// message for an answer.
    Message(Vec<Owner>, Encoded, Option<Arc<Subscription>>),
    /// Keys that a client caches are stale: the message about it in both protocols.
    Invalidate(Owner, (Vec<u8>, Vec<u8>)),
    /// Users have changed.
    Access,
    /// A client is to be ended.
    Kill(Owner),
    /// A client is unblocked. It is answered with an error, or as after its timeout.
    Unblocked(Owner, bool),
}

/// The result of a client's operation.
pub enum Verdict {
    /// The operation was carried out.
    Done(Outcome),
    /// The client waits for keys, for this number of milliseconds; 0 means without end.
    Blocks(u64),
    /// The result of a long read, and its duration.
    Read(Box<(Call, Outcome, Duration)>),
    /// The client's messages to itself are in its output, so that its answer may follow them.
    Heard,
}

/// The letters that wait for a loop, and the waker of the loop.
pub struct Mailbox {
    letters: Mutex<(Vec<Letter>, usize)>,
    waker: Waker,
}

impl Mailbox {
    /// Creates an empty mailbox. Letters wake the loop through `waker`.
    pub fn new(waker: Waker) -> Self {
        Self { letters: Mutex::default(), waker }
    }

    fn post(&self, letter: Letter, bytes: usize) {
        let mut letters = lock(&self.letters);
        let first = letters.0.is_empty();
        letters.0.push(letter);
        letters.1 += bytes;
        drop(letters);
        // A woken loop takes all letters, so only the first letter needs to wake it.
        if first {
            let _ = self.waker.wake();
        }
    }

    /// Takes all letters.
    pub fn take(&self) -> Vec<Letter> {
        core::mem::take(&mut *lock(&self.letters)).0
    }
}

/// The state of a client that other threads may read.
pub struct Card {
    /// The client's loop, slot and number.
    pub owner: Owner,
    /// The client's address.
    pub peer: SocketAddr,
    /// The server's address of the connection.
    pub local: SocketAddr,
    /// The time of the connection.
    pub since: Instant,
    /// The client's name.
    pub name: Mutex<Vec<u8>>,
    /// The name of the client's user.
    pub user: Mutex<Vec<u8>>,
    /// The state that the client's loop stores after each round.
    pub shown: Shown,
}

impl Card {
    /// Returns the card of a new client.
    pub fn new(owner: Owner, peer: SocketAddr, local: SocketAddr) -> Self {
        Self {
            owner,
            peer,
            local,
            since: Instant::now(),
            name: Mutex::default(),
            user: Mutex::new(DEFAULT.to_vec()),
            shown: Shown::default(),
        }
    }
}

/// Counts for `INFO`.
#[derive(Default)]
pub struct Counts {
    /// Connections accepted since the start.
    pub connections: AtomicU64,
    /// Connections that were refused.
    pub rejected: AtomicU64,
    /// Requests processed.
    pub commands: AtomicU64,
    /// Connections of TLS whose handshake failed.
    pub unsecured: AtomicU64,
    /// The error of the last failed handshake.
    pub last_unsecured: Mutex<String>,
}

/// A batch for the thread that waits for the disk (`always`).
type Job = (Vec<Option<Owner>>, Vec<Write>);

/// The state that all event loops share.
pub struct Shared {
    /// The database.
    pub store: Store,
    /// Parameters of `CONFIG`.
    pub config: Config,
    /// Users.
    pub acl: Acl,
    /// The mailbox of each loop.
    pub mail: Vec<Mailbox>,
    /// The classes of events that clients listen to.
    pub events: Events,
    /// Commands that took long.
    pub slow: Slow,
    /// Counts of commands, with a row for each thread. The last row is for the thread of [`run`](Self::run).
    pub stats: Stats,
    /// Clients that receive all requests.
    pub monitors: Monitors,
    /// A pause by `CLIENT PAUSE`.
    pub pause: Pause,
    /// Limits on unsent bytes of clients.
    pub limits: Output,
    /// Client-side caches.
    pub tracking: Tracking,
    /// Subscriptions.
    pub hub: Mutex<Hub>,
    /// Clients by their numbers.
    pub clients: Mutex<BTreeMap<u64, Arc<Card>>>,
    /// Scripts that clients have loaded.
    #[cfg(feature = "lua")]
    pub scripts: crate::script::table::Scripts,
    /// Counts for `INFO`.
    pub counts: Counts,
    /// The time of the server's start.
    pub since: Instant,
    /// The address on which the server listens.
    pub address: SocketAddr,
    /// The settings for connections of TLS.
    pub terms: Option<Arc<Terms>>,
    /// The maximum duration of a handshake of TLS.
    pub patience: Duration,
    /// The queue of long reads.
    pub aside: Aside,
    /// Whether the server is to end.
    pub stop: AtomicBool,
    /// The limit of memory.
    pub room: Room,
    /// The thread that makes snapshots.
    pub saver: Mutex<Saver>,
    /// The argument of `SHUTDOWN` about a last snapshot, if there was one.
    pub last_save: Mutex<Option<bool>>,
    /// Whether expired keys are left in the database.
    pub no_expiry: AtomicBool,
    /// Clients that wait for keys.
    blocked: Mutex<Blocked>,
    /// Operations that the log has refused and that the first loop tries again.
    owed: Mutex<Vec<Write>>,
    jobs: Mutex<(Vec<Job>, bool)>,
    work: Condvar,
}

/// Locks a mutex. Nothing panics while one of the server's locks is held.
///
/// To prevent deadlocks, a thread that holds a lock acquires only locks that come later in this list:
///
/// 1. the order of events ([`Shared::in_order`]),
/// 2. `blocked`: [`Shared::serve`] holds it while it checks a client's rights, carries out the client's command and sends
///    the messages that follow,
/// 3. the tables of tracking, the subscriptions, the set of monitors: never two of them,
/// 4. `clients`, and the chooser of keys to evict: never both,
/// 5. a [`Card`]'s `name` or `user`, a loop's letters, the refused operations, the settings, the users, the log of
///    refusals: no lock is acquired after one of these.
///
/// A guard in an expression lives until the end of the statement. If the value is then passed to a call that acquires
/// another lock, or the same lock again, the value is read in a statement of its own.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it is locked")
}

impl Shared {
    /// Returns the state of a new server.
    pub fn new(store: Store, config: Config, mail: Vec<Mailbox>, address: SocketAddr) -> Self {
        let stats = Stats::new(mail.len() + 1);
        let shared = Self {
            store,
            config,
            acl: Acl::default(),
            mail,
            address,
            terms: None,
            patience: Tls::PATIENCE,
            slow: Slow::default(),
            stats,
            monitors: Monitors::default(),
            pause: Pause::default(),
            limits: Output::default(),
            events: Events::default(),
            tracking: Tracking::default(),
            hub: Mutex::default(),
            clients: Mutex::default(),
            #[cfg(feature = "lua")]
            scripts: crate::script::table::Scripts::default(),
            counts: Counts::default(),
            since: Instant::now(),
            aside: Aside::default(),
            stop: AtomicBool::new(false),
            room: Room::default(),
            saver: Mutex::default(),
            last_save: Mutex::default(),
            no_expiry: AtomicBool::new(false),
            blocked: Mutex::default(),
            owed: Mutex::default(),
            jobs: Mutex::default(),
            work: Condvar::new(),
        };
        shared.configure_all();
        shared.configure("requirepass");
        shared
    }

    /// Posts a letter to the loop `to`.
    pub fn post(&self, to: usize, letter: Letter) {
        let bytes = match &letter {
            Letter::Message(_, body, _) => body.0.len() + body.1.len() + 64,
            Letter::Invalidate(_, body) => body.0.len() + body.1.len() + 64,
            _ => 0,
        };
        self.mail[to].post(letter, bytes);
    }

    /// Returns whether publishers must wait, because too many messages wait for some loop.
    pub fn is_full(&self) -> bool {
        self.has_mail(MAIL)
    }

    /// Returns whether so many messages wait for some loop that a batch may add no more events.
    pub fn overflows(&self) -> bool {
        self.has_mail(OVERFLOW)
    }

    fn has_mail(&self, bytes: usize) -> bool {
        self.mail.iter().any(|mailbox| lock(&mailbox.letters).1 > bytes)
    }

    /// Asks all loops to end.
    pub fn end(&self) {
        self.stop.store(true, Relaxed);
        self.mail.iter().for_each(|mailbox| _ = mailbox.waker.wake());
    }

    /// Returns the number of clients that wait for keys.
    pub fn waiting(&self) -> usize {
        lock(&self.blocked).len()
    }

    /// Removes a client from the queues of keys. Returns whether the client waited.
    pub fn unblock(&self, id: u64) -> bool {
        lock(&self.blocked).remove(id)
    }

    /// Hands a batch to the thread of [`run`](Self::run).
    pub fn submit(&self, owners: Vec<Option<Owner>>, batch: Vec<Write>) {
        lock(&self.jobs).0.push((owners, batch));
        self.work.notify_one();
    }

    /// Ends [`run`](Self::run) after it has carried out all batches that were submitted.
    pub fn last_job(&self) {
        lock(&self.jobs).1 = true;
        self.work.notify_one();
    }

    /// Carries out the batches that loops submit. All batches that wait at a time are carried out as one and share a sync.
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
            let order = self.in_order();
            let (verdicts, aftermath) = self.carry_out(&mut handle, &owners, batch);
            let mut letters: BTreeMap<usize, Vec<(Owner, Verdict)>> = BTreeMap::new();
            for (owner, verdict) in verdicts {
                letters.entry(owner.at).or_default().push((owner, verdict));
            }
            for (at, answers) in letters {
                self.post(at, Letter::Answers(answers));
            }
            self.tell(&aftermath);
            drop(order);
            self.serve(&mut handle, aftermath.ready);
        }
    }

    /// Carries out changes. Returns, in order, the results of the changes that have an owner, and the consequences that must
    /// be handled after the owners have the results.
    pub fn carry_out(
        &self,
        handle: &mut Handle<Db>,
        owners: &[Option<Owner>],
        batch: Vec<Write>,
    ) -> (Vec<(Owner, Verdict)>, Aftermath) {
        let blocking: Vec<(usize, Call)> =
            batch.iter().enumerate().filter_map(|(at, write)| Some((at, blocking(write)?.clone()))).collect();
        let suspects = self.slow.suspects(&batch);
        let ends: Vec<(usize, Write)> =
            batch.iter().enumerate().filter_map(|(at, write)| Some((at, self.end_of(write)?))).collect();
        let commands: Vec<Option<&'static Command>> = batch.iter().map(commanded).collect();
        let began = Instant::now();
        let mut outcomes = self.store.write_many(handle, batch);
        self.timed(owners, &commands, &outcomes, suspects, began.elapsed());
        let refused = ends
            .into_iter()
            .filter(|(at, _)| matches!(&outcomes[*at].reply, Reply::Error(fault) if !may_come_about(fault)));
        refused.for_each(|(_, write)| match write {
            Write::Listen { what, begins: true } => self.events.forget(what),
            write => self.owe(write),
        });
        let (mut aftermath, mut others) = (Aftermath::default(), BTreeMap::new());
        self.make_room(handle).into_iter().for_each(|effects| aftermath.add(None, effects));
        for (at, (outcome, owner)) in outcomes.iter_mut().zip(owners).enumerate() {
            if let Some(mut effects) = outcome.effects.take() {
                others.extend(effects.again.take().map(|args| (at, args)));
                aftermath.add(*owner, *effects);
            }
        }
        // Nearly every batch evicts nothing, and then leaves the line that all loops share alone.
        if aftermath.evicted > 0 {
            self.room.count_evicted(aftermath.evicted);
        }
        let mut verdicts: Vec<Option<Verdict>> =
            outcomes.into_iter().map(|outcome| Some(Verdict::Done(outcome))).collect();
        for (at, mut call) in blocking {
            let Some(Verdict::Done(Outcome { reply: Reply::Null | Reply::NullArray, .. })) = &verdicts[at] else {
                continue;
            };
            if let Some(args) = others.remove(&at) {
                call.args = args;
            }
            if let (Some(owner), Some(millis)) = (owners[at], timeout(&call)) {
                verdicts[at] = Some(Verdict::Blocks(millis));
                let mut blocked = lock(&self.blocked);
                // `CLIENT KILL` removes a client from the list, and then from the queues. If the client is no longer in
                // the list, it is not registered in the queues, because nothing would remove it later.
                if lock(&self.clients).contains_key(&owner.id) {
                    aftermath.ready.keys.extend(keys(&call));
                    blocked.register(owner, call);
                }
            }
        }
        let told = owners.iter().zip(verdicts).filter_map(|(owner, verdict)| Some(((*owner)?, verdict?)));
        (told.collect(), aftermath)
    }

    /// Returns the part of an operation that the server must handle if the log refuses the operation. If this part ends
    /// watches or listening, it must be carried out later, because the server's own counts already assume it. If it
    /// begins listening to events, the server must forget it. (If a client begins to track keys, the client gets the
    /// error, and its loop forgets the tracking.)
    fn end_of(&self, write: &Write) -> Option<Write> {
        match write {
            _ if !self.store.has_log() => None,
            Write::Exec { watched, .. } | Write::Unwatch { watched } if !watched.is_empty() => {
                Some(Write::Unwatch { watched: watched.clone() })
            }
            Write::Listen { what, begins } if !begins || *what != wish::CHANGES => Some(write.clone()),
            _ => None,
        }
    }

    /// Adds an operation that is to be carried out later, by the first loop.
    pub fn owe(&self, write: Write) {
        lock(&self.owed).push(write);
    }

    /// Returns the operations that the log has refused and that are to be tried again.
    pub fn owed(&self) -> Vec<Write> {
        core::mem::take(&mut *lock(&self.owed))
    }

    /// Counts the commands of a batch. If the batch took long, logs the suspects, or if there are none, all commands.
    fn timed(
        &self,
        owners: &[Option<Owner>],
        commands: &[Option<&'static Command>],
        outcomes: &[Outcome],
        suspects: Vec<Suspect>,
        took: Duration,
    ) {
        // If a thread waits for the disk, most of the time is the sync of the log, which belongs to no command.
        let took = if self.store.waits() { self.store.applied() } else { took };
        let share = took / commands.len().max(1) as u32;
        for ((owner, command), outcome) in owners.iter().zip(commands).zip(outcomes) {
            if let (Some(owner), Some(command)) = (owner, command) {
                let thread = if self.store.waits() { self.mail.len() } else { owner.at };
                self.stats.note(thread, command, share, outcome.reply.is_error());
            }
        }
        if !self.slow.is_slow(took) {
            return;
        }
        let card = |at: usize| owners[at].and_then(|owner| lock(&self.clients).get(&owner.id).cloned());
        if suspects.is_empty() {
            for (at, command) in commands.iter().enumerate().filter_map(|(at, command)| Some((at, (*command)?))) {
                self.slow.tell(card(at).as_ref(), command, None, took);
            }
        }
        for (at, command, args) in suspects {
            self.slow.tell(card(at).as_ref(), command, Some(&args), took);
        }
    }

    /// Carries out the commands of clients that wait for these keys.
    pub fn serve(&self, handle: &mut Handle<Db>, ready: Ready) {
        if ready.keys.is_empty() && ready.replaced == 0 {
            return;
        }
        let _order = self.in_order();
        let mut blocked = lock(&self.blocked);
        let mut keys = ready.keys;
        keys.extend(replaced(&blocked, handle, ready.replaced));
        let mut rounds = Rounds::new(keys);
        loop {
            let (batch, refused) = rounds.next(&blocked, |owner, call| self.refusal_of(owner.id, call));
            for (owner, fault) in refused {
                blocked.remove(owner.id);
                self.post_outcome(owner, Reply::Error(fault).into());
            }
            if batch.is_empty() && rounds.is_over() {
                return;
            }
            let again = batch.iter().map(|(_, call)| Write::Call(Call { now: now(), ..call.clone() })).collect();
            let outcomes = self.store.write_many(handle, again);
            for ((owner, call), mut outcome) in batch.into_iter().zip(outcomes) {
                // Removing an expired key is an effect, even if the client gets nothing.
                let (mut aftermath, mut error) = (Aftermath::default(), None);
                if let Some(mut effects) = outcome.effects.take() {
                    error = effects.unblocks.take();
                    aftermath.add(Some(owner), *effects);
                }
                rounds.add(core::mem::take(&mut aftermath.ready.keys));
                match verdict(&call, error, &mut outcome.reply) {
                    Some(others) => rounds.waits_on(owner.id, others),
                    None => {
                        blocked.remove(owner.id);
                        self.post_outcome(owner, outcome);
                    }
                }
                self.tell(&aftermath);
            }
        }
    }

    fn post_outcome(&self, owner: Owner, outcome: Outcome) {
        self.post(owner.at, Letter::Answers(vec![(owner, Verdict::Done(outcome))]));
    }
}

/// Looks at the reply to a blocked client's repeated command. `error` is the error that ends the wait, if there is one.
/// Returns `None` if the client is answered, and otherwise whether the clients after it may get something.
fn verdict(call: &Call, error: Option<Fault>, reply: &mut Reply) -> Option<Others> {
    match (error, &mut *reply) {
        (Some(error), Reply::Error(_)) => {
            *reply = Reply::Error(error);
            None
        }
        // Other clients of the queue may wait for another type of value.
        (_, Reply::Error(fault)) => fault.0.starts_with("WRONGTYPE").then_some(Others::May),
        // Other clients of the queue may wait for another position of the stream.
        (_, Reply::Null | Reply::NullArray) if wants_streams(call) => Some(Others::May),
        (_, Reply::Null | Reply::NullArray) => Some(Others::MayNot),
        _ => None,
    }
}

/// Returns the keys of replaced databases whose waiting clients may continue: keys that exist, and keys at which a client
/// waits for a stream, which may be gone. O(keys that clients wait for).
fn replaced(blocked: &Blocked, handle: &mut Handle<Db>, databases: u16) -> Vec<Key> {
    let mut exists = |(db, key): &Key| {
        let command = command::find(b"exists").expect("it is a command");
        let args = [&b"exists"[..], key].into_iter().collect();
        let call = Call { command, args, db: *db, now: now(), seed: 0, wishes: 0, rights: None, deadline: None };
        handle.read(&Read::Call(call)).is_ok_and(|outcome| outcome.reply != Reply::Int(0))
    };
    let all = (0..DATABASES).filter(|db| databases >> db & 1 == 1).flat_map(|db| blocked.keys_of(db));
    all.filter(|(key, streams)| *streams || exists(key)).map(|(key, _)| key.clone()).collect()
}

/// Returns the command of a change that a client requested.
fn commanded(write: &Write) -> Option<&'static Command> {
    match write {
        Write::Call(call) => Some(call.command),
        Write::Exec { .. } => command::find(b"exec"),
        _ => None,
    }
}

/// Returns the call of a change that may have to wait.
pub fn blocking(write: &Write) -> Option<&Call> {
    match write {
        Write::Call(call) if call.command.has(flag::BLOCKING) && timeout(call).is_some() => Some(call),
        _ => None,
    }
}

/// Returns the timeout of a blocking call in milliseconds; 0 means no timeout. Returns `None` if the call does not
/// wait.
pub fn timeout(call: &Call) -> Option<u64> {
    let args = &call.args;
    let place = match call.command.name {
        "blmpop" | "bzmpop" => 1,
        "xread" | "xreadgroup" => return crate::family::streams::block(args),
        _ => args.len() - 1,
    };
    crate::family::lists::timeout(args.get(place)?).ok()
}

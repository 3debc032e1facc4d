//! What all loops share, and the letters between them.

use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use archipelago_platform::sync::{Condvar, Mutex, MutexGuard};
use archipelago_platform::time::{Duration, Instant};
use archipelago_replicate::Handle;
use mio::Waker;
use mio::net::TcpStream;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use archipelago_platform::sync::Arc;

use super::aside::Aside;
use super::clients::{Pause, Shown};
use super::events::{Aftermath, Events};
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
use crate::blocked::{Blocked, Key, Owner, keys};
use crate::command::{self, Command, flag};
use crate::config::Config;
use crate::config::tls::Tls;
use crate::db::{Db, Outcome};
use crate::log::Store;
use crate::operation::{Call, Write};
use crate::pubsub::{Hub, Kind};
use crate::reply::Reply;

/// Bytes of messages that may wait at a loop before publishers wait, too.
const MAIL: usize = 16 << 20;

/// A message, as RESP2 and as RESP3.
pub type Encoded = Arc<(Vec<u8>, Vec<u8>)>;

/// A kind of subscription, and a channel or pattern.
pub type Subscription = (Kind, Vec<u8>);

/// A letter to a loop.
pub enum Letter {
    /// A new connection, and whether it speaks TLS.
    Client(TcpStream, bool),
    /// What became of changes.
    Answers(Vec<(Owner, Verdict)>),
    /// A message for subscribers: its bytes in both protocols, and what they subscribe to; none: they see all requests. One
    /// that has ceased to by now takes no message, which it would take for an answer.
    Message(Vec<Owner>, Encoded, Option<Arc<Subscription>>),
    /// Keys that a client's cache has are stale: what it is told of them in both protocols.
    Invalidate(Owner, (Vec<u8>, Vec<u8>)),
    /// Users have changed.
    Access,
    /// A client is to end.
    Kill(Owner),
    /// A client waits no longer: it is answered with an error, or as after its time.
    Unblocked(Owner, bool),
}

/// What became of a change.
pub enum Verdict {
    /// It was carried out.
    Done(Outcome),
    /// The client waits for keys, for this number of milliseconds (0: for ever).
    Blocks(u64),
    /// What became of a long read, and how long it took.
    Read(Box<(Call, Outcome, Duration)>),
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
    /// Where it came in.
    pub local: SocketAddr,
    /// Since when.
    pub since: Instant,
    /// Its name.
    pub name: Mutex<Vec<u8>>,
    /// Its user's name.
    pub user: Mutex<Vec<u8>>,
    /// What its loop shows of it.
    pub shown: Shown,
}

impl Card {
    /// Of a client that has just come.
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
    /// Connections ever.
    pub connections: AtomicU64,
    /// Connections that were refused.
    pub rejected: AtomicU64,
    /// Requests.
    pub commands: AtomicU64,
    /// Connections of TLS that came to no agreement on keys.
    pub unsecured: AtomicU64,
    /// What became of the last of them.
    pub last_unsecured: Mutex<String>,
}

/// A batch for the thread that writes with `always`.
type Job = (Vec<Option<Owner>>, Vec<Write>);

/// What all loops share.
pub struct Shared {
    /// The database.
    pub store: Store,
    /// Settings.
    pub config: Config,
    /// Users.
    pub acl: Acl,
    /// Each loop's letters.
    pub mail: Vec<Mailbox>,
    /// Who listens to events.
    pub events: Events,
    /// What took long.
    pub slow: Slow,
    /// How often commands came. The last thread is the one of [`run`](Self::run).
    pub stats: Stats,
    /// Who sees all requests.
    pub monitors: Monitors,
    /// A pause of clients.
    pub pause: Pause,
    /// Limits on what waits for clients.
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
    /// Counts.
    pub counts: Counts,
    /// When it began.
    pub since: Instant,
    /// Where it listens.
    pub address: SocketAddr,
    /// What is agreed on with clients of TLS.
    pub terms: Option<Arc<Terms>>,
    /// How long they may take to do so.
    pub patience: Duration,
    /// Long reads.
    pub aside: Aside,
    /// Says that all is to end.
    pub stop: AtomicBool,
    /// The limit of memory.
    pub room: Room,
    /// Makes snapshots.
    pub saver: Mutex<Saver>,
    /// What `SHUTDOWN` said of a last snapshot.
    pub last_save: Mutex<Option<bool>>,
    /// Expired keys are not looked for.
    pub no_expiry: AtomicBool,
    /// Clients that wait for keys.
    blocked: Mutex<Blocked>,
    jobs: Mutex<(Vec<Job>, bool)>,
    work: Condvar,
}

/// Locks. Nothing panics while one of the server's locks is held.
///
/// One that holds a lock takes only those behind it in this list, so that no two wait for each other:
///
/// 1. the order of events ([`Shared::in_order`]),
/// 2. `blocked`: [`Shared::serve`] holds it while it asks what a client may do, carries out its command and tells of it,
/// 3. the tables of tracking, and the hub of subscriptions: never both,
/// 4. `clients`, and what chooses keys for the limit of memory: never both,
/// 5. a [`Card`]'s `name` or `user`, a loop's letters, those of settings, of users and of the log of refusals: nothing is
///    locked behind one of these.
///
/// A guard in a statement's expression is held to the end of the statement: where one of these locks is read for a call that
/// takes another, or the same again, the reading is a statement of its own.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics while it is locked")
}

impl Shared {
    /// Of a server that begins.
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
            jobs: Mutex::default(),
            work: Condvar::new(),
        };
        shared.configure_all();
        shared.configure("requirepass");
        shared
    }

    /// Sends a letter.
    pub fn post(&self, to: usize, letter: Letter) {
        let bytes = match &letter {
            Letter::Message(_, body, _) => body.0.len() + body.1.len() + 64,
            Letter::Invalidate(_, body) => body.0.len() + body.1.len() + 64,
            _ => 0,
        };
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

    /// Carries out changes. Returns what became of those that have an owner, in order, and what is to be done after the owners
    /// were told.
    pub fn carry_out(
        &self,
        handle: &mut Handle<Db>,
        owners: &[Option<Owner>],
        batch: Vec<Write>,
    ) -> (Vec<(Owner, Verdict)>, Aftermath) {
        let blocking: Vec<(usize, Call)> =
            batch.iter().enumerate().filter_map(|(at, write)| Some((at, blocking(write)?.clone()))).collect();
        let suspects = self.slow.suspects(&batch);
        let commands: Vec<Option<&'static Command>> = batch.iter().map(commanded).collect();
        let began = Instant::now();
        let mut outcomes = self.store.write_many(handle, batch);
        self.timed(owners, &commands, &outcomes, suspects, began.elapsed());
        let (mut aftermath, mut others) = (Aftermath::default(), BTreeMap::new());
        self.make_room(handle).into_iter().for_each(|effects| aftermath.add(None, effects));
        for (at, (outcome, owner)) in outcomes.iter_mut().zip(owners).enumerate() {
            if let Some(mut effects) = outcome.effects.take() {
                others.extend(effects.again.take().map(|args| (at, args)));
                aftermath.add(*owner, *effects);
            }
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
                aftermath.ready.extend(keys(&call));
                lock(&self.blocked).register(owner, call);
            }
        }
        let told = owners.iter().zip(verdicts).filter_map(|(owner, verdict)| Some(((*owner)?, verdict?)));
        (told.collect(), aftermath)
    }

    /// Counts the commands of a batch, and tells if it took long.
    fn timed(
        &self,
        owners: &[Option<Owner>],
        commands: &[Option<&'static Command>],
        outcomes: &[Outcome],
        suspects: Vec<Suspect>,
        took: Duration,
    ) {
        // With a thread of its own, the log's sync is most of the time, and of no command.
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
            self.slow.tell(card(at).as_ref(), command, args.as_ref(), took);
        }
    }

    /// Carries out the commands of clients that wait for these keys.
    pub fn serve(&self, handle: &mut Handle<Db>, ready: Vec<Key>) {
        if ready.is_empty() {
            return;
        }
        let _order = self.in_order();
        let mut blocked = lock(&self.blocked);
        let mut ready: VecDeque<Key> = ready.into();
        while let Some(key) = ready.pop_front() {
            let mut ticket = 0;
            while let Some((next, owner, call)) = blocked.next(&key, ticket) {
                ticket = next;
                if let Some(fault) = self.refusal_of(owner.id, call) {
                    blocked.remove(owner.id);
                    let outcome = Outcome { reply: Reply::Error(fault), effects: None };
                    self.post(owner.at, Letter::Answers(vec![(owner, Verdict::Done(outcome))]));
                    continue;
                }
                let again = Write::Call(Call { now: now(), ..call.clone() });
                let Some(mut outcome) = self.store.write_many(handle, vec![again]).pop() else { return };
                // A key that has expired is an effect, too, when there is nothing for the client.
                let mut aftermath = Aftermath::default();
                if let Some(effects) = outcome.effects.take() {
                    aftermath.add(Some(owner), *effects);
                }
                ready.extend(aftermath.ready.drain(..));
                // Others may ask for what is behind another place of a stream, or for another type.
                let others_may = match &outcome.reply {
                    Reply::Error(fault) => fault.0.starts_with("WRONGTYPE").then_some(true),
                    Reply::Null | Reply::NullArray => Some(call.command.name.starts_with('x')),
                    _ => None,
                };
                if others_may.is_none() {
                    blocked.remove(owner.id);
                    self.post(owner.at, Letter::Answers(vec![(owner, Verdict::Done(outcome))]));
                }
                self.tell(&aftermath);
                if others_may == Some(false) {
                    break;
                }
            }
        }
    }
}

/// The command of a change that a client asked for.
fn commanded(write: &Write) -> Option<&'static Command> {
    match write {
        Write::Call(call) => Some(call.command),
        Write::Exec { .. } => command::find(b"exec"),
        _ => None,
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
        "xread" | "xreadgroup" => return crate::family::streams::block(args),
        _ => args.len() - 1,
    };
    crate::family::lists::timeout(args.get(place)?).ok()
}

//! `CLIENT`: lists, ends, pauses and unblocks clients, and sets their options.

use std::collections::BTreeSet;

use archipelago_platform::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use archipelago_platform::time::{Duration, Instant};

use super::client::{Client, Listens, Mute};
use super::event_loop::Loop;
use super::shared::{Card, Letter, lock};
use super::tracking::Mode;
use crate::args::Args;
use crate::command::{self, Command, Run, catalog, help};
use crate::family::parse;
use crate::operation::{Write, wish};
use crate::reply::{Fault, Protocol, Reply, fault};
use crate::session::Session;

/// The state of a client that other threads read. The client's loop stores it after each round. The values may belong to
/// different moments.
#[derive(Default)]
pub struct Shown {
    /// The time at which bytes were last received or sent, in milliseconds since 1970.
    last: AtomicU64,
    /// The number of the last command plus one; 0 if there was none.
    command: AtomicUsize,
    db: AtomicU32,
    three: AtomicBool,
    /// Bits of [`FLAGS`].
    flags: AtomicU32,
    /// The number of queued commands plus one, while a transaction is being queued; otherwise 0.
    queued: AtomicUsize,
    subscriptions: [AtomicUsize; 3],
    input: AtomicUsize,
    output: AtomicUsize,
    redirect: AtomicU64,
}

/// The letters of the flags in `CLIENT LIST`, one for each bit.
const FLAGS: &[u8] = b"PxbtBeO";
const PUBSUB: u32 = 1;
const QUEUES: u32 = 1 << 1;
const BLOCKED: u32 = 1 << 2;
const TRACKING: u32 = 1 << 3;
const BROADCAST: u32 = 1 << 4;
const NO_EVICT: u32 = 1 << 5;
const MONITOR: u32 = 1 << 6;

impl Client {
    /// Stores the state that other threads read.
    pub fn show(&self) {
        let shown = &self.card.shown;
        shown.last.store(self.last, Relaxed);
        shown.command.store(self.command.map_or(0, |command| command.number() + 1), Relaxed);
        shown.db.store(self.session.db, Relaxed);
        shown.three.store(self.session.protocol == Protocol::Resp3, Relaxed);
        shown.queued.store(self.session.queued().map_or(0, |count| count + 1), Relaxed);
        shown.output.store(self.waiting(), Relaxed);
        shown.input.store(self.unread(), Relaxed);
        let mut flags = if self.session.queued().is_some() { QUEUES } else { 0 };
        flags |= if self.blocked.is_some() { BLOCKED } else { 0 };
        flags |= if self.no_evict { NO_EVICT } else { 0 };
        flags |= if self.monitors { MONITOR } else { 0 };
        if let Some(mode) = &self.tracking {
            flags |= TRACKING | if mode.broadcast { BROADCAST } else { 0 };
            shown.redirect.store(mode.redirect, Relaxed);
        }
        if !self.subscriptions.is_empty() || shown.flags.load(Relaxed) & PUBSUB != 0 {
            flags |= if self.subscriptions.is_empty() { 0 } else { PUBSUB };
            for (shown, count) in shown.subscriptions.iter().zip(self.subscriptions.counts()) {
                shown.store(count, Relaxed);
            }
        }
        shown.flags.store(flags, Relaxed);
    }
}

/// Returns a client's line in `CLIENT LIST`.
pub fn line(card: &Card) -> String {
    let shown = &card.shown;
    let name = String::from_utf8_lossy(&lock(&card.name)).into_owned();
    let user = String::from_utf8_lossy(&lock(&card.user)).into_owned();
    let flags = shown.flags.load(Relaxed);
    let mut letters: String =
        (0..FLAGS.len()).filter(|bit| flags >> bit & 1 == 1).map(|bit| FLAGS[bit] as char).collect();
    if letters.is_empty() {
        letters.push('N');
    }
    let command = shown.command.load(Relaxed).checked_sub(1).and_then(|number| command::all().nth(number));
    let (input, output) = (shown.input.load(Relaxed), shown.output.load(Relaxed));
    let [sub, psub, ssub] = [0, 1, 2].map(|place: usize| shown.subscriptions[place].load(Relaxed));
    let idle = super::now().saturating_sub(shown.last.load(Relaxed)) / 1000;
    let redirect = if flags & TRACKING == 0 { -1 } else { shown.redirect.load(Relaxed) as i64 };
    format!(
        "id={} addr={} laddr={} fd={} name={name} age={} idle={idle} flags={letters} db={} sub={sub} psub={psub} ssub={ssub} \
         multi={} qbuf={input} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl={output} oll=0 omem={output} \
         tot-mem={} events={} cmd={} user={user} redir={redirect} resp={} loop={}\n",
        card.owner.id,
        card.peer,
        card.local,
        card.owner.slot,
        card.since.elapsed().as_secs(),
        shown.db.load(Relaxed),
        shown.queued.load(Relaxed) as i64 - 1,
        input + output + size_of::<Client>(),
        if output > 0 { "rw" } else { "r" },
        command.map_or("NULL", |command| command.name),
        if shown.three.load(Relaxed) { 3 } else { 2 },
        card.owner.at,
    )
}

/// The filter of `CLIENT LIST` and `CLIENT KILL`.
#[derive(Default)]
struct Filter {
    ids: BTreeSet<u64>,
    pubsub: Option<bool>,
    nobody: bool,
    address: Option<Vec<u8>>,
    local: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
}

impl Filter {
    fn kind(&mut self, word: &[u8]) -> Result<(), Fault> {
        match word.to_ascii_lowercase().as_slice() {
            b"normal" => self.pubsub = Some(false),
            b"pubsub" => self.pubsub = Some(true),
            b"master" | b"replica" | b"slave" => self.nobody = true,
            _ => return Err(Fault::made(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(word)))),
        }
        Ok(())
    }

    fn means(&self, card: &Card) -> bool {
        let is =
            |wanted: &Option<Vec<u8>>, there: String| wanted.as_ref().is_none_or(|wanted| *wanted == there.as_bytes());
        let pubsub = card.shown.flags.load(Relaxed) & PUBSUB != 0;
        !self.nobody
            && (self.ids.is_empty() || self.ids.contains(&card.owner.id))
            && self.pubsub.is_none_or(|wanted| wanted == pubsub)
            && is(&self.address, card.peer.to_string())
            && is(&self.local, card.local.to_string())
            && is(&self.user, String::from_utf8_lossy(&lock(&card.user)).into_owned())
    }
}

fn number(text: &[u8], what: &'static str) -> Result<u64, Fault> {
    let bad = Fault::new(what);
    parse::integer(text).ok().and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0).ok_or(bad)
}

/// A pause by `CLIENT PAUSE`.
#[derive(Default)]
pub struct Pause {
    /// The end of the pause, in milliseconds since 1970.
    until: AtomicU64,
    /// Whether only changes are paused.
    writes_only: AtomicBool,
}

impl Pause {
    /// Returns whether the pause includes the time `now`, in milliseconds since 1970.
    pub fn is_on(&self, now: u64) -> bool {
        self.until.load(Relaxed) > now
    }

    /// Returns whether a request must wait for the end of the pause.
    pub fn holds(&self, session: &Session, args: &Args) -> bool {
        self.until.load(Relaxed) > 0
            && self.is_on(super::now())
            && (!self.writes_only.load(Relaxed)
                || command::find(&args[0]).is_some_and(|command| match command.name {
                    "exec" => session.calls().iter().any(|call| may_write(call.command, &call.args)),
                    _ => may_write(command, args),
                }))
    }
}

/// Returns whether a request may write or publish.
fn may_write(command: &'static Command, args: &Args) -> bool {
    // Scripts and `PFCOUNT` may write without the flag `WRITE`; of `FUNCTION`, some subcommands write.
    matches!(command.run, Run::Write(_))
        || matches!(command.name, "publish" | "spublish")
        || catalog::row(command, args).flatten().is_some_and(|row| row.has("write"))
}

impl Loop {
    /// Carries out `CLIENT`. Returns whether the client's next request may be processed.
    pub(super) fn client_command(&mut self, client: &mut Client, command: &'static Command, args: &Args) -> bool {
        let word = args[1].to_ascii_uppercase();
        if word == b"TRACKING" && args.len() > 2 {
            return match self.track(client, args) {
                Ok(writes) => self.listen(client, writes),
                Err(fault) => {
                    client.answer(&Reply::Error(fault));
                    true
                }
            };
        }
        let reply = self.client_part(client, command, &word, args).unwrap_or_else(Reply::Error);
        client.answer(&reply);
        true
    }

    fn client_part(
        &mut self,
        client: &mut Client,
        command: &'static Command,
        word: &[u8],
        args: &Args,
    ) -> Result<Reply, Fault> {
        let card = client.card.clone();
        Ok(match (word, args.len()) {
            (b"ID", 2) => Reply::Int(card.owner.id as i64),
            (b"GETNAME", 2) => match &**lock(&card.name) {
                [] => Reply::Null,
                name => Reply::bulk(name),
            },
            (b"SETNAME", 3) => {
                named(&args[2])?;
                *lock(&card.name) = args[2].to_vec();
                Reply::OK
            }
            (b"SETINFO", 4) | (b"NO-TOUCH", 3) => Reply::OK,
            (b"NO-EVICT", 3) => {
                client.no_evict = switch(&args[2])?;
                Reply::OK
            }
            (b"INFO", 2) => {
                client.show();
                Reply::Text(line(&card))
            }
            (b"LIST", _) => {
                client.show();
                self.list(args)?
            }
            (b"KILL", 3..) => self.kill(client, args)?,
            (b"UNBLOCK", 3 | 4) => self.unblock(args)?,
            (b"PAUSE", 3 | 4) => self.pause(args)?,
            (b"UNPAUSE", 2) => {
                self.shared.pause.until.store(0, Relaxed);
                Reply::OK
            }
            (b"REPLY", 3) => {
                client.mute = match args[2].to_ascii_uppercase().as_slice() {
                    b"ON" => Mute::Off,
                    b"OFF" => Mute::All,
                    b"SKIP" if client.mute == Mute::All => Mute::All,
                    // The answer to this command is the first one suppressed. As in Redis, the second one is that of the
                    // next request: in a transaction not that of the next command.
                    b"SKIP" if client.in_transaction => Mute::Next(1),
                    b"SKIP" => Mute::Next(2),
                    _ => return Err(fault::SYNTAX),
                };
                client.skips_next |= client.in_transaction && args.is(2, "SKIP");
                Reply::OK
            }
            (b"GETREDIR", 2) => Reply::Int(client.tracking.as_ref().map_or(-1, |mode| mode.redirect as i64)),
            (b"TRACKINGINFO", 2) => self.tracking_info(client),
            (b"CACHING", 3) => {
                client.caching = Some(caching(client.tracking.as_ref(), &args[2])?);
                Reply::OK
            }
            (b"HELP", 2) => help::of("client"),
            _ => return Err(help::wrong(command, args)),
        })
    }

    fn list(&self, args: &Args) -> Result<Reply, Fault> {
        let mut filter = Filter::default();
        match args.len() {
            2 => {}
            4 if args.is(2, "TYPE") => filter.kind(&args[3])?,
            4.. if args.is(2, "ID") => {
                for id in args.from(3) {
                    filter.ids.insert(number(id, "ERR Invalid client ID")?);
                }
            }
            _ => return Err(fault::SYNTAX),
        }
        let clients = lock(&self.shared.clients);
        let meant = clients.values().filter(|card| filter.means(card));
        Ok(Reply::Text(meant.map(|card| line(card)).collect()))
    }

    /// Carries out `CLIENT KILL address`, or `CLIENT KILL` with filters.
    fn kill(&mut self, client: &mut Client, args: &Args) -> Result<Reply, Fault> {
        let (mut filter, mut spares) = (Filter::default(), args.len() > 3);
        if args.len() == 3 {
            filter.address = Some(args[2].to_vec());
        } else if args.len().is_multiple_of(2) {
            for at in (2..args.len()).step_by(2) {
                let value = &args[at + 1];
                match args[at].to_ascii_uppercase().as_slice() {
                    b"ID" => {
                        filter.ids.insert(number(value, "ERR client-id should be greater than 0")?);
                    }
                    b"TYPE" => filter.kind(value)?,
                    b"ADDR" => filter.address = Some(value.to_vec()),
                    b"LADDR" => filter.local = Some(value.to_vec()),
                    b"USER" if self.shared.acl.user(value).is_none() => {
                        let name = String::from_utf8_lossy(value);
                        return Err(Fault::made(format!("ERR No such user '{name}'")));
                    }
                    b"USER" => filter.user = Some(value.to_vec()),
                    b"SKIPME" if value.eq_ignore_ascii_case(b"yes") => spares = true,
                    b"SKIPME" if value.eq_ignore_ascii_case(b"no") => spares = false,
                    _ => return Err(fault::SYNTAX),
                }
            }
        } else {
            return Err(fault::SYNTAX);
        }
        let (mut killed, mut others) = (0, Vec::new());
        // The clients are removed from the list before the answer, although their loops have not ended them yet.
        lock(&self.shared.clients).retain(|_, card| {
            if !filter.means(card) {
                return true;
            }
            let own = card.owner.id == client.card.owner.id;
            if own && spares {
                return true;
            }
            killed += 1;
            if own {
                client.ends = true;
            } else {
                others.push(card.owner);
            }
            own
        });
        for owner in others {
            // The client leaves the queues of keys now, so changes after the answer serve other clients.
            self.shared.unblock(owner.id);
            self.shared.post(owner.at, Letter::Kill(owner));
        }
        match (args.len(), killed) {
            (3, 0) => Err(Fault::new("ERR No such client")),
            (3, _) => Ok(Reply::OK),
            _ => Ok(Reply::Int(killed)),
        }
    }

    /// Carries out `CLIENT UNBLOCK`. A client's wait can be ended by this command, by its timeout, or by a change that
    /// fills a key. Only one of them can remove the client from the queues, and this one determines the answer.
    fn unblock(&mut self, args: &Args) -> Result<Reply, Fault> {
        let error = match args.get(3).map(<[u8]>::to_ascii_uppercase).as_deref() {
            None | Some(b"TIMEOUT") => false,
            Some(b"ERROR") => true,
            _ => return Err(Fault::new("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        };
        let id = u64::try_from(parse::integer(&args[2])?).unwrap_or(0);
        let owner = lock(&self.shared.clients).get(&id).map(|card| card.owner);
        let waited = owner.filter(|_| self.shared.unblock(id));
        if let Some(owner) = waited {
            self.shared.post(owner.at, Letter::Unblocked(owner, error));
        }
        Ok(Reply::Int(waited.is_some().into()))
    }

    fn pause(&mut self, args: &Args) -> Result<Reply, Fault> {
        let bad = Fault::new("ERR timeout is not an integer or out of range");
        let millis = u64::try_from(parse::integer_or(&args[2], bad)?);
        let millis = millis.map_err(|_| Fault::new("ERR timeout is negative"))?;
        let now = super::now();
        if millis > (i64::MAX as u64).saturating_sub(now) {
            return Err(Fault::new("ERR timeout is out of range"));
        }
        let writes_only = match args.get(3).map(<[u8]>::to_ascii_uppercase).as_deref() {
            None | Some(b"ALL") => false,
            Some(b"WRITE") => true,
            _ => return Err(Fault::new("ERR CLIENT PAUSE mode must be WRITE or ALL")),
        };
        let pause = &self.shared.pause;
        // Of two pauses that overlap, the stricter kind and the later end apply.
        let harder = pause.is_on(now) && !pause.writes_only.load(Relaxed);
        pause.writes_only.store(writes_only && !harder, Relaxed);
        pause.until.fetch_max(now + millis, Relaxed);
        Ok(Reply::OK)
    }

    fn track(&mut self, client: &mut Client, args: &Args) -> Result<Vec<Write>, Fault> {
        let mut mode = mode(args, |id| lock(&self.shared.clients).contains_key(&id))?;
        let owner = client.card.owner;
        if !switch(&args[2])? {
            self.shared.tracking.end(owner.id);
            client.caching = None;
            return Ok(client.tracking.take().map(|_| listen(false)).into_iter().collect());
        }
        allowed(&mode, client.tracking.as_ref())?;
        if mode.broadcast {
            let before = client.tracking.as_ref().map_or(&[][..], |before| &before.prefixes[..]);
            apart(&mode.prefixes, before)?;
            // If no prefix is given, the empty prefix is taken, as in Redis. It overlaps with every later prefix.
            if mode.prefixes.is_empty() {
                mode.prefixes.push(Vec::new());
            }
            mode.prefixes.extend_from_slice(before);
            mode.prefixes.sort();
            mode.prefixes.dedup();
        }
        self.shared.tracking.begin(owner, mode.clone());
        let begins = client.tracking.replace(mode).is_none();
        Ok(begins.then(|| listen(true)).into_iter().collect())
    }

    fn tracking_info(&self, client: &Client) -> Reply {
        let Some(mode) = &client.tracking else {
            return info(vec!["off"], -1, &[]);
        };
        let mut flags = vec!["on"];
        let mut say = |is: bool, word| flags.extend(is.then_some(word));
        say(mode.broadcast, "bcast");
        say(mode.opt_in, "optin");
        say(mode.opt_in && client.caching == Some(true), "caching-yes");
        say(mode.opt_out, "optout");
        say(mode.opt_out && client.caching == Some(false), "caching-no");
        say(mode.no_loop, "noloop");
        say(self.shared.tracking.is_broken(client.card.owner.id), "broken_redirect");
        info(flags, mode.redirect as i64, &mode.prefixes)
    }

    /// Carries out the operations `writes`, which make the database record effects of changes, or stop recording them.
    /// The answer is sent after the operations, and is an error if the log refuses the last of them. A command in a
    /// transaction is an exception: it is answered before, since its answer has a place among the transaction's
    /// answers. Returns whether the client's next request may be processed.
    pub(super) fn listen(&mut self, client: &mut Client, writes: Vec<Write>) -> bool {
        let (answered, mut owners) = (client.in_transaction || writes.is_empty(), vec![None; writes.len()]);
        if answered {
            client.answer(&Reply::OK);
        }
        let (Some(last), Some(write)) = (owners.last_mut(), writes.last()) else { return true };
        let tracks = matches!(write, Write::Listen { what: wish::CHANGES, begins: true });
        let owner = client.card.owner;
        *last = Some(owner);
        client.waits += 1;
        client.listens.push(Listens { tracks, answered });
        // If the outcome is not known yet, the client's reads wait for it.
        if let Some(outcome) = self.commit_of(owner, (owners, writes)) {
            client.listened(&self.shared, &outcome.reply);
        }
        true
    }
}

/// Checks a client's name.
pub fn named(name: &[u8]) -> Result<(), Fault> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(());
    }
    Err(Fault::new("ERR Client names cannot contain spaces, newlines or special characters."))
}

/// Returns the operation that begins or ends a client's tracking.
pub fn listen(begins: bool) -> Write {
    Write::Listen { what: wish::CHANGES, begins }
}

fn info(flags: Vec<&str>, redirect: i64, prefixes: &[Vec<u8>]) -> Reply {
    Reply::Map(vec![
        Reply::bulk("flags"),
        Reply::Set(flags.into_iter().map(Reply::bulk).collect()),
        Reply::bulk("redirect"),
        Reply::Int(redirect),
        Reply::bulk("prefixes"),
        Reply::bulks(prefixes),
    ])
}

/// Checks that no given prefix overlaps with a prefix that the client has `before`, or with another given prefix. Two
/// prefixes overlap if one is the beginning of the other.
fn apart(given: &[Vec<u8>], before: &[Vec<u8>]) -> Result<(), Fault> {
    let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    for (at, one) in given.iter().enumerate() {
        let with =
            |others: &[Vec<u8>], what| others.iter().find(|other| overlap(one, other)).cloned().map(|it| (what, it));
        let found = with(before, "an existing prefix").or_else(|| with(&given[at + 1..], "another provided prefix"));
        if let Some((what, other)) = found {
            let shown = |prefix: &[u8]| String::from_utf8_lossy(prefix).into_owned();
            return Err(Fault::made(format!(
                "ERR Prefix '{}' overlaps with {what} '{}'. Prefixes for a single client must not overlap.",
                shown(one),
                shown(&other)
            )));
        }
    }
    Ok(())
}

fn switch(word: &[u8]) -> Result<bool, Fault> {
    match word.to_ascii_uppercase().as_slice() {
        b"ON" => Ok(true),
        b"OFF" => Ok(false),
        _ => Err(fault::SYNTAX),
    }
}

/// Parses the options of `CLIENT TRACKING`. `exists` tells whether there is a client with a number.
fn mode(args: &Args, exists: impl Fn(u64) -> bool) -> Result<Mode, Fault> {
    let (mut mode, mut at) = (Mode::default(), 3);
    while at < args.len() {
        match args[at].to_ascii_uppercase().as_slice() {
            b"REDIRECT" if at + 1 < args.len() => {
                at += 1;
                if mode.redirect != 0 {
                    return Err(Fault::new("ERR A client can only redirect to a single other client"));
                }
                let id = u64::try_from(parse::integer(&args[at])?).ok().filter(|id| exists(*id));
                mode.redirect = id.ok_or(Fault::new("ERR The client ID you want redirect to does not exist"))?;
            }
            b"PREFIX" if at + 1 < args.len() => {
                at += 1;
                mode.prefixes.push(args[at].to_vec());
            }
            b"BCAST" => mode.broadcast = true,
            b"OPTIN" => mode.opt_in = true,
            b"OPTOUT" => mode.opt_out = true,
            b"NOLOOP" => mode.no_loop = true,
            _ => return Err(fault::SYNTAX),
        }
        at += 1;
    }
    Ok(mode)
}

/// Checks that the options of a mode go together, and go with those that the client has `before`.
fn allowed(mode: &Mode, before: Option<&Mode>) -> Result<(), Fault> {
    if !mode.broadcast && !mode.prefixes.is_empty() {
        return Err(Fault::new("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if before.is_some_and(|before| before.broadcast != mode.broadcast) {
        return Err(Fault::new(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with \
             a different mode.",
        ));
    }
    if mode.broadcast && (mode.opt_in || mode.opt_out) {
        return Err(Fault::new("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if mode.opt_in && mode.opt_out {
        return Err(Fault::new("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    if before.is_some_and(|before| mode.opt_in && before.opt_out || mode.opt_out && before.opt_in) {
        return Err(Fault::new(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it \
             with a different mode.",
        ));
    }
    Ok(())
}

/// Parses the argument of `CLIENT CACHING` of a client that tracks keys in this mode.
pub fn caching(mode: Option<&Mode>, word: &[u8]) -> Result<bool, Fault> {
    let Some(mode) = mode.filter(|mode| mode.opt_in || mode.opt_out) else {
        return Err(Fault::new(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ));
    };
    match word.to_ascii_uppercase().as_slice() {
        b"YES" if mode.opt_in => Ok(true),
        b"YES" => Err(Fault::new("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")),
        b"NO" if mode.opt_out => Ok(false),
        b"NO" => Err(Fault::new("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")),
        _ => Err(fault::SYNTAX),
    }
}

/// The time that a loop sleeps while a request waits for a condition that wakes no loop.
pub const MOMENT: Duration = Duration::from_millis(1);

/// The time since which a client's output has been above the soft limit.
pub type Since = Option<Instant>;

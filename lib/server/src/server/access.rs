//! Authentication and permissions of clients, and the commands for them.
//!
//! Permissions are checked in three places: by the event loop for each request ([`Loop::refusal_of`]); again for each
//! command of a transaction when `EXEC` carries it out ([`Loop::refuse_calls`]); and for a client that waits for keys when
//! it is served ([`Shared::refusal_of`]). When users change, each loop checks all of its clients again
//! ([`Loop::look_again`]). It ends a client whose user was removed, and a client with a subscription that is no longer
//! allowed.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use archipelago_platform::sync::Arc;

use super::client::Client;
use super::event_loop::Loop;
use super::shared::{Card, Letter, Shared, lock};
use super::{clients, now};
use crate::acl::check::{Denied, runs_script};
use crate::acl::log::Entry;
use crate::acl::user::User;
use crate::acl::{Acl, DEFAULT, is_name, units};
use crate::args::Args;
use crate::command::{self, Command, category, help};
use crate::family::parse;
use crate::operation::{Call, Write};
use crate::reply::{Answer, Fault, Reply};

/// A client's user, as it was when the client last looked its user up.
pub struct Identity {
    user: Arc<User>,
    generation: u64,
    /// Whether the client has authenticated, or needed no authentication when it connected.
    said: bool,
}

impl Identity {
    /// Returns the identity of a new client.
    pub fn new(acl: &Acl) -> Self {
        let generation = acl.generation();
        let user = acl.user(DEFAULT).unwrap_or_else(|| Arc::new(User::none()));
        Self { said: user.on && user.nopass, user, generation }
    }

    /// Returns the user's rights, or `None` if the user may do everything.
    fn rights(&self) -> Option<Arc<User>> {
        (!self.user.is_all).then(|| self.user.clone())
    }

    /// Returns whether the client may send commands that need authentication.
    pub fn is_known(&self, acl: &Acl) -> bool {
        self.said || acl.is_open()
    }
}

/// The user name in a client's card (the data that other threads may read) after the client's user was removed. No user may
/// have this name.
const GONE: &[u8] = b"\0";

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.";
const BITS: &str =
    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096";

impl Shared {
    /// Adds a refusal to the log of refusals.
    fn note_refusal(&self, card: &Card, (reason, object): (&'static str, Vec<u8>), multi: bool, user: Vec<u8>) {
        let context = if multi { "multi" } else { "toplevel" };
        let entry = Entry { reason, context, object, user, client: clients::line(card), at: now() };
        self.acl.log.note(entry, self.config.get("acllog-max-len").parse().unwrap_or(usize::MAX));
    }

    /// Checks a call of a client that waits for keys. Returns the error if the client's user may no longer make the call.
    pub fn refusal_of(&self, id: u64, call: &Call) -> Option<Fault> {
        let card = lock(&self.clients).get(&id).cloned()?;
        let name = lock(&card.user).clone();
        let Some(user) = self.acl.user(&name) else {
            return Some(Denied::Command(call.command.name.to_owned()).fault());
        };
        user.check(call.command, &call.args).err().map(|denied| {
            self.note_refusal(&card, denied.logged(), false, name);
            denied.fault()
        })
    }

    /// Asks all event loops to check their clients again.
    fn users_changed(&self) {
        (0..self.mail.len()).for_each(|to| self.post(to, Letter::Access));
    }

    fn file(&self) -> Result<String, Fault> {
        Some(self.config.get("aclfile")).filter(|path| !path.is_empty()).ok_or(Fault::new(NO_FILE))
    }

    /// Reads the file of users. Returns the names of the users that are gone.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn load_users(&self, path: &str) -> Result<Vec<Vec<u8>>, String> {
        let text = fs::read(path).map_err(|error| format!("Error loading ACLs, opening file '{path}': {error}"))?;
        self.acl.load(&text, path)
    }
}

impl Loop {
    /// Looks the client's user up again, if any user has changed. Ends the client if its user was removed, or if it has a
    /// subscription that is no longer allowed.
    pub(super) fn look(&self, client: &mut Client) {
        let generation = self.shared.acl.generation();
        if client.identity.generation == generation {
            return;
        }
        let name = lock(&client.card.user).clone();
        match self.shared.acl.user(&name) {
            Some(user) => (client.identity.user, client.identity.generation) = (user, generation),
            None => client.ends = true,
        }
        client.known = client.identity.is_known(&self.shared.acl);
        let user = &client.identity.user;
        client.ends |= client.subscriptions.iter().any(|(kind, name)| !user.may_hear(kind, name));
    }

    /// Looks up the users of all clients again.
    pub(super) fn look_again(&mut self) {
        for slot in 0..self.clients.len() {
            if let Some(mut client) = self.clients[slot].take() {
                self.look(&mut client);
                // A client that waits for a key is not answered any more: it is removed at once.
                client.dead |= client.ends && client.blocked.is_some();
                self.clients[slot] = Some(client);
                self.wake(slot);
            }
        }
    }

    /// Checks a request. Returns the error if it is not allowed.
    pub(super) fn refusal_of(&self, client: &mut Client, args: &Args) -> Option<Fault> {
        client.session.rights = client.identity.rights();
        if client.identity.user.is_all {
            return None;
        }
        let command = command::find(&args[0]).filter(|command| command.takes(args.len()))?;
        let denied = client.identity.user.check(command, args).err()?;
        let multi = client.session.queued().is_some();
        let user = lock(&client.card.user).clone();
        self.shared.note_refusal(&client.card, denied.logged(), multi, user);
        Some(denied.fault())
    }

    /// Gives the scripts of a transaction the client's current rights. Replaces the transaction's commands that are no
    /// longer allowed by commands that answer with an error. A `SELECT` that is replaced selects nothing.
    pub(super) fn refuse_calls(&self, client: &mut Client, write: &mut Write) {
        let Write::Exec { calls, .. } = write else { return };
        for call in calls.iter_mut().filter(|call| runs_script(call.command)) {
            call.rights = client.identity.rights();
        }
        if client.identity.user.is_all {
            return;
        }
        let mut selects = false;
        for call in calls.iter_mut() {
            // An `EVALSHA` has become an `EVAL`. The permission is that of the name in the request.
            let asked = command::find(&call.args[0]).unwrap_or(call.command);
            let Err(denied) = client.identity.user.check(asked, &call.args) else { continue };
            let text = later(&denied);
            // The name is cloned in a statement of its own, so that its lock is released before `note_refusal` takes it
            // again.
            let user = lock(&client.card.user).clone();
            self.shared.note_refusal(&client.card, denied.logged(), true, user);
            call.command = command::find(b"refused").expect("it is in the registry");
            call.args = [&b"refused"[..], text.as_bytes()].into_iter().collect();
            selects |= asked.name == "select";
        }
        if selects {
            client.session.select_again(calls);
        }
    }

    /// Carries out `AUTH`, and the `AUTH` option of `HELLO`. Without a name, the user is `default`.
    pub(super) fn auth(&mut self, client: &mut Client, password: &[u8], name: Option<&[u8]>) -> Reply {
        let acl = &self.shared.acl;
        if name.is_none() && acl.user(DEFAULT).is_some_and(|user| user.nopass) {
            return Reply::Error(Fault::new(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
            ));
        }
        let name = name.unwrap_or(DEFAULT);
        let before = lock(&client.card.user).clone();
        // The generation is read before the user, so the next look notices any later change.
        let mut generation = acl.generation();
        let mut user = acl.authenticate(name, password);
        if user.is_some() {
            *lock(&client.card.user) = name.to_vec();
            // `ACL DELUSER` changes the generation and then looks through the cards. Either `DELUSER` finds this name in the
            // card, or the new generation is seen here. Otherwise the client would stay authenticated as a user who was
            // created anew under the same name with another password.
            let now = acl.generation();
            if now != generation {
                (generation, user) = (now, acl.authenticate(name, password));
            }
        }
        let Some(user) = user else {
            *lock(&client.card.user) = before;
            let multi = client.session.queued().is_some();
            self.shared.note_refusal(&client.card, ("auth", b"auth".to_vec()), multi, name.to_vec());
            return Reply::Error(Fault::new("WRONGPASS invalid username-password pair or user is disabled."));
        };
        client.identity = Identity { user, generation, said: true };
        client.known = true;
        Reply::OK
    }

    /// Resets a client to a new client's identity.
    pub(super) fn forget_user(&self, client: &mut Client) {
        client.identity = Identity::new(&self.shared.acl);
        *lock(&client.card.user) = DEFAULT.to_vec();
        client.known = client.identity.said;
    }

    /// Ends the clients of users that were removed: of users with the names for which `is_gone` returns `true`.
    fn users_gone(&self, client: &mut Client, is_gone: impl Fn(&[u8]) -> bool) {
        // A user that is created anew under this name is another user. Until the client's loop ends the client, its card has a
        // name that no user may have.
        for card in lock(&self.shared.clients).values() {
            let mut name = lock(&card.user);
            let gone = is_gone(&name);
            if gone {
                *name = GONE.to_vec();
            }
            drop(name);
            if gone && card.owner != client.card.owner {
                self.shared.post(card.owner.at, Letter::Kill(card.owner));
            }
            client.ends |= gone && card.owner == client.card.owner;
        }
    }

    /// Carries out `ACL`.
    pub(super) fn acl(&mut self, client: &mut Client, command: &Command, args: &Args) -> Answer {
        let acl = &self.shared.acl;
        match (args[1].to_ascii_uppercase().as_slice(), args.len()) {
            (b"WHOAMI", 2) => Ok(Reply::bulk(&*lock(&client.card.user))),
            (b"USERS", 2) => Ok(Reply::bulks(acl.names())),
            (b"LIST", 2) => Ok(Reply::bulks(acl.lines())),
            (b"GETUSER", 3) => Ok(acl.user(&args[2]).map_or(Reply::Null, |user| told(&user))),
            (b"CAT", 2) => Ok(Reply::bulks(category::NAMES)),
            (b"CAT", 3) => members(&args[2]),
            (b"SETUSER", 3..) => {
                if !is_name(&args[2]) {
                    return Err(Fault::new("ERR Usernames can't contain spaces or null characters"));
                }
                acl.set(&args[2], args.from(3)).map_err(|what| Fault::made(format!("ERR {what}")))?;
                self.shared.users_changed();
                Ok(Reply::OK)
            }
            (b"DELUSER", 3..) => {
                if args.from(2).any(|name| name == DEFAULT) {
                    return Err(Fault::new("ERR The 'default' user cannot be removed"));
                }
                let count = acl.remove(args.from(2));
                self.users_gone(client, |name| args.from(2).any(|removed| removed == name));
                Ok(Reply::count(count))
            }
            (b"GENPASS", 2 | 3) => password(args.get(2)),
            (b"LOG", 2) => Ok(acl.log.told(10, now())),
            (b"LOG", 3) if args.is(2, "RESET") => {
                acl.log.clear();
                Ok(Reply::OK)
            }
            (b"LOG", 3) => Ok(acl.log.told(usize::try_from(parse::integer(&args[2])?).unwrap_or(0), now())),
            (b"DRYRUN", 4..) => dry_run(acl, args),
            (b"LOAD", 2) => {
                let path = self.shared.file()?;
                let gone = self.shared.load_users(&path).map_err(|what| Fault::made(format!("ERR {what}")))?;
                self.users_gone(client, |name| gone.iter().any(|removed| removed == name));
                self.shared.users_changed();
                Ok(Reply::OK)
            }
            (b"SAVE", 2) => {
                let path = self.shared.file()?;
                let saved = save(Path::new(&path), &acl.lines());
                saved
                    .map(|()| Reply::OK)
                    .map_err(|error| Fault::made(format!("ERR There was an error trying to save the ACLs: {error}")))
            }
            (b"HELP", 2) => Ok(help::of("acl")),
            _ => Err(help::wrong(command, args)),
        }
    }
}

/// Returns the error of `EXEC` for a command that was allowed when it was queued and is no longer allowed.
fn later(denied: &Denied) -> String {
    let reason = match denied {
        Denied::Command(_) => "no permission to execute the command or subcommand",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Pattern(_) => return denied.fault().0.into_owned(),
    };
    format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {reason}"
    )
}

/// Returns a user in the format of `ACL GETUSER`.
fn told(user: &User) -> Reply {
    let selector = |at: usize| {
        let selector = &user.selectors[at];
        [
            ("commands", Reply::bulk(selector.commands())),
            ("keys", Reply::bulk(selector.key_rules())),
            ("channels", Reply::bulk(selector.channel_rules())),
        ]
    };
    let map = |pairs: Vec<(&str, Reply)>| {
        Reply::Map(pairs.into_iter().flat_map(|(name, value)| [Reply::bulk(name), value]).collect())
    };
    let others = (1..user.selectors.len()).map(|at| map(selector(at).into())).collect();
    let mut pairs = vec![
        ("flags", Reply::Set(user.flags().into_iter().map(Reply::bulk).collect())),
        ("passwords", Reply::bulks(user.passwords())),
    ];
    pairs.extend(selector(0));
    pairs.push(("selectors", Reply::Array(others)));
    map(pairs)
}

/// Returns the names of a category's commands and subcommands.
fn members(name: &[u8]) -> Answer {
    let unknown = || Fault::made(format!("ERR Unknown category '{}'", String::from_utf8_lossy(name)));
    let bit = units::category(name).ok_or_else(unknown)?;
    let whole = |unit: &&units::Unit| unit.part.is_some() || units::of(unit.command).is_some_and(|all| all.len() == 1);
    let all = units::all().iter().filter(whole).filter(|unit| unit.categories & bit != 0);
    Ok(Reply::bulks(all.map(units::Unit::name)))
}

fn dry_run(acl: &Acl, args: &Args) -> Answer {
    let shown = |at: usize| String::from_utf8_lossy(&args[at]).into_owned();
    let user = acl.user(&args[2]).ok_or_else(|| Fault::made(format!("ERR User '{}' not found", shown(2))))?;
    let command =
        command::find(&args[3]).ok_or_else(|| Fault::made(format!("ERR Command '{}' not found", shown(3))))?;
    let call: Args = args.from(3).collect();
    if !command.takes(call.len()) {
        return Err(crate::session::wrong_number(command.name));
    }
    Ok(user.check(command, &call).map_or_else(|denied| Reply::bulk(denied.told()), |()| Reply::OK))
}

/// Returns a password of random bits from the operating system.
fn password(bits: Option<&[u8]>) -> Answer {
    let bits = bits.map_or(Ok(256), parse::integer)?;
    let bits = usize::try_from(bits).ok().filter(|bits| (1..=4096).contains(bits)).ok_or(Fault::new(BITS))?;
    let mut bytes = vec![0; bits.div_ceil(8)];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Fault::made(format!("ERR the system has no random numbers: {error}")))?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Reply::bulk(&digits[..bits.div_ceil(4)]))
}

/// Replaces the file atomically: writes and syncs a new file, then renames it to `path`.
fn save(path: &Path, lines: &[Vec<u8>]) -> io::Result<()> {
    let beside = path.with_extension("acl-new");
    let mut file = fs::File::create(&beside)?;
    for line in lines {
        file.write_all(line)?;
        file.write_all(b"\n")?;
    }
    file.sync_all()?;
    fs::rename(&beside, path)
}

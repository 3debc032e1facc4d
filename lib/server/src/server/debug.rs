//! The subcommands of `DEBUG` that test suites use, `WAIT`, and the end of a client's tracking and monitoring.

use archipelago_platform::atomic::Ordering::Relaxed;
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};

use super::client::{Client, Mute};
use super::clients;
use super::event_loop::Loop;
use super::now;
use crate::args::Args;
use crate::command::{Command, help};
use crate::family::parse;
use crate::reply::{Fault, Reply};
use crate::session::{Moment, Session, Step};

const REFUSED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it \
from a local connection, otherwise you need to set this option in the configuration file, and then restart the server.";

impl Loop {
    /// Returns whether a client may call `DEBUG`.
    fn may_debug(&self, client: &Client) -> bool {
        match self.shared.config.get("enable-debug-command").as_str() {
            "local" => client.card.peer.ip().to_canonical().is_loopback(),
            access => access == "yes",
        }
    }

    /// Carries out `DEBUG`. It has only the subcommands that test suites use.
    pub(super) fn debug(&mut self, client: &Client, command: &Command, args: &Args) -> Result<Reply, Fault> {
        if !self.may_debug(client) {
            return Err(Fault::new(REFUSED));
        }
        match (args[1].to_ascii_uppercase().as_slice(), args.len()) {
            // Redis stops as a whole. Here only the connections of one event loop wait.
            (b"SLEEP", 3) => {
                // As in Redis, a text that is no number means 0.
                let seconds = parse::float(&args[2]).unwrap_or(0.0).clamp(0.0, 60.0);
                thread::sleep(Duration::from_secs_f64(seconds));
                Ok(Reply::OK)
            }
            (b"SET-ACTIVE-EXPIRE", 3) => {
                self.shared.no_expiry.store(&args[2] == b"0", Relaxed);
                Ok(Reply::OK)
            }
            (b"OBJECT", 3) => self.described(client.session.db, &args[2]),
            (b"JMAP", 2) => Ok(Reply::OK),
            (b"HELP", 2) => Ok(help::of("debug")),
            _ => Err(help::wrong(command, args)),
        }
    }

    /// Returns the line of `DEBUG OBJECT` for a key. The address and the time since the last use are
    /// always 0.
    fn described(&mut self, db: u32, key: &[u8]) -> Result<Reply, Fault> {
        let mut session = Session::default();
        session.db = db;
        let mut ask = |words: &[&[u8]]| match session
            .accept(words.iter().collect(), Moment { now: now(), ..Moment::default() })
        {
            Step::Read(read) => self.handle.read(&read).map_or(Reply::Null, |outcome| outcome.reply),
            _ => Reply::Null,
        };
        let (Reply::Bulk(encoding), Reply::Bulk(dump)) = (ask(&[b"object", b"encoding", key]), ask(&[b"dump", key]))
        else {
            return Err(Fault::new("ERR no such key"));
        };
        // The length without the type, the version and the checksum.
        let (encoding, bytes) = (String::from_utf8_lossy(&encoding), dump.len().saturating_sub(11));
        let line =
            format!("Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{bytes} lru:0 lru_seconds_idle:0");
        Ok(Reply::Line(line.into_bytes()))
    }

    /// Carries out `WAIT`. There are no followers, so the answer is always 0. It comes at the timeout, or at once if
    /// the command waits for no follower or is in a transaction.
    pub(super) fn wait(&mut self, client: &mut Client, args: &Args) -> bool {
        let numbers = parse::integer(&args[1]).and_then(|followers| {
            let bad = Fault::new("ERR timeout is not an integer or out of range");
            let millis = u64::try_from(parse::integer_or(&args[2], bad)?);
            Ok((followers, millis.map_err(|_| Fault::new("ERR timeout is negative"))?))
        });
        let (followers, millis) = match numbers {
            Ok(numbers) => numbers,
            Err(fault) => {
                client.answer(&Reply::Error(fault));
                return true;
            }
        };
        if followers <= 0 || client.in_transaction {
            client.answer(&Reply::Int(0));
            return true;
        }
        let until = (millis > 0).then(|| Instant::now() + Duration::from_millis(millis.min(1 << 40)));
        client.blocked = Some((until, Reply::Int(0)));
        client.sleeps = true;
        self.deadlines.extend(until.map(|until| (until, client.card.owner.slot)));
        false
    }

    /// Ends the client's tracking, monitoring and options. Its subscriptions remain.
    pub(super) fn stop_listening(&mut self, client: &mut Client) {
        let owner = client.card.owner;
        (client.caching, client.no_evict) = (None, false);
        // As in Redis, `CLIENT REPLY SKIP` still suppresses the answer to `RESET`.
        if client.mute == Mute::All {
            client.mute = Mute::Off;
        }
        if core::mem::take(&mut client.monitors) {
            self.shared.monitors.set(owner, false);
        }
        if client.tracking.take().is_some() {
            self.shared.tracking.end(owner.id);
            self.commit((vec![None], vec![clients::listen(false)]));
        }
    }
}

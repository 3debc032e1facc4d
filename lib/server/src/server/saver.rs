//! Snapshots on a thread of their own. A snapshot is made by command, by the pairs in `save`, and when the log has outgrown
//! the data.

use archipelago_platform::sync::{Arc, Mutex};
use archipelago_platform::thread;
use archipelago_platform::time::{Duration, Instant};

use super::client::Client;
use super::event_loop::Loop;
use super::now;
use super::shared::{Letter, Shared, Verdict, lock};
use crate::args::Args;
use crate::blocked::Owner;
use crate::command::{Command, category, flag};
use crate::config::keeping;
use crate::db::Outcome;
use crate::reply::{Fault, Reply, fault};
use crate::snapshot::Status;
use flag::{ADMIN, FAST, NO_MULTI, NOSCRIPT};

/// The commands' rows in the registry.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::session("save", 1, ADMIN | NOSCRIPT | NO_MULTI, 0),
    Command::session("bgsave", -1, ADMIN | NOSCRIPT, 0),
    Command::session("bgrewriteaof", 1, ADMIN | NOSCRIPT, 0),
    Command::session("lastsave", 1, FAST, category::ADMIN | category::DANGEROUS),
];

/// The time after a failed snapshot until the next automatic attempt.
const AGAIN: Duration = Duration::from_secs(60);

/// The thread that makes a snapshot, and the time at which the last snapshot began.
#[derive(Default)]
pub struct Saver {
    thread: Option<thread::JoinHandle<()>>,
    /// True while the thread makes a snapshot. The thread clears the flag before it ends.
    /// [`Store::snapshot`](crate::log::Store::snapshot) returns a panic during the snapshot as an error. After any other
    /// panic the flag stays set, but the thread has finished.
    runs: bool,
    tried: Option<Instant>,
}

impl Saver {
    fn is_busy(&self) -> bool {
        self.runs && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Starts a thread that makes a snapshot with `make` and then passes the result to `tell`. Returns `false` if the
    /// thread was not started: a snapshot is being made, or the system refuses a thread. `place` returns the saver of
    /// `of`.
    fn begin<S: Send + Sync + 'static, T>(
        of: Arc<S>,
        place: fn(&S) -> &Mutex<Self>,
        make: impl FnOnce(&S) -> T + Send + 'static,
        tell: impl FnOnce(&S, T) + Send + 'static,
    ) -> bool {
        let shared = of.clone();
        let mut saver = lock(place(&shared));
        if saver.is_busy() {
            return false;
        }
        let run = move || {
            let made = make(&of);
            // The flag is cleared before the result is passed on, because the client's next request may be for another
            // snapshot.
            lock(place(&of)).runs = false;
            tell(&of, made);
        };
        saver.tried = Some(Instant::now());
        saver.thread = thread::Builder::new().name("snapshot".into()).spawn(run).ok();
        saver.runs = saver.thread.is_some();
        saver.runs
    }
}

/// Returns the time, in seconds since 1970.
fn seconds() -> u64 {
    now() / 1000
}

impl Shared {
    fn saved(&self) -> Status {
        self.store.snapshots().map(crate::snapshot::Snapshots::status).unwrap_or_default()
    }

    fn saves(&self) -> bool {
        lock(&self.saver).is_busy()
    }

    /// Starts a snapshot, and answers `owner` at its end. Returns `false` if the snapshot was not started: another one
    /// is being made, or the system refuses a thread.
    fn begin_snapshot(self: &Arc<Self>, owner: Option<Owner>) -> bool {
        let make = |shared: &Self| match shared.store.snapshot(seconds()) {
            Ok(()) => Reply::OK,
            Err(failure) => Reply::Error(Fault::made(format!("ERR {failure}"))),
        };
        let tell = move |shared: &Self, reply| {
            if let Some(owner) = owner {
                let outcome = Outcome { reply, effects: None };
                shared.post(owner.at, Letter::Answers(vec![(owner, Verdict::Done(outcome))]));
            }
        };
        Saver::begin(self.clone(), |shared| &shared.saver, make, tell)
    }

    /// Starts a snapshot if the settings ask for one.
    pub fn save_on_time(self: &Arc<Self>) {
        if self.saves() {
            return;
        }
        let status = self.saved();
        let tried = lock(&self.saver).tried;
        if status.failure.is_some() && tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
            return;
        }
        let appended = self.store.appended().saturating_sub(status.place);
        let changes = self.changes(&status);
        let since = seconds().saturating_sub(status.time.max(seconds().saturating_sub(self.since.elapsed().as_secs())));
        if keeping::is_outgrown(&self.config, appended, status.bytes) || keeping::is_due(&self.config, since, changes) {
            self.begin_snapshot(None);
        }
    }

    /// Returns the number of operations since the last snapshot.
    fn changes(&self, status: &Status) -> u64 {
        self.store.db().inspect(0, |db| db.serial()).unwrap_or(0).saturating_sub(status.serial)
    }

    /// Cancels a snapshot that is being made, and makes a last one if the settings or `SHUTDOWN` ask for it. No event loop
    /// may run any more.
    ///
    /// # Errors
    /// The reason why the last snapshot failed.
    pub fn end_snapshots(&self) -> Result<(), String> {
        let Some(snapshots) = self.store.snapshots() else { return Ok(()) };
        snapshots.cancel(true);
        // The handle is taken in a statement of its own, so that the lock is free while this function waits: the thread
        // locks the saver before it ends.
        let thread = lock(&self.saver).thread.take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        snapshots.cancel(false);
        let points = !self.config.get("save").is_empty();
        // The request is taken, so that it counts only once, because the server may be ended twice.
        let asked = lock(&self.last_save).replace(false);
        if asked.unwrap_or(points) { self.store.snapshot(seconds()) } else { Ok(()) }
    }

    /// Returns the lines of `INFO` about snapshots.
    pub fn snapshots_info(&self) -> String {
        let status = self.saved();
        let running = u8::from(self.saves());
        let outcome = if status.failure.is_some() { "err" } else { "ok" };
        format!(
            "rdb_changes_since_last_save:{}\r\nrdb_bgsave_in_progress:{running}\r\nrdb_last_save_time:{}\r\n\
             rdb_last_bgsave_status:{outcome}\r\naof_rewrite_in_progress:{running}\r\naof_last_bgrewrite_status:{outcome}\r\n\
             aof_current_size:{}\r\naof_base_size:{}\r\n",
            self.changes(&status),
            status.time,
            self.store.appended().saturating_sub(status.place) + status.bytes,
            status.bytes,
        )
    }
}

impl Loop {
    /// Carries out `SAVE`, `BGSAVE`, `BGREWRITEAOF`, `LASTSAVE`. Returns whether the client's next request may be processed.
    pub(super) fn snapshots(&mut self, client: &mut Client, command: &Command, args: &Args) -> bool {
        let reply = match command.name {
            "lastsave" => {
                Reply::Int(self.shared.saved().time.max(seconds() - self.shared.since.elapsed().as_secs()) as i64)
            }
            "save" if self.shared.begin_snapshot(Some(client.card.owner)) => {
                // The client is blocked like a client that waits for a key, without a timeout. Other clients continue.
                client.blocked = Some((None, Reply::OK));
                return false;
            }
            "bgsave" if args.len() > 2 || (args.len() == 2 && !args.is(1, "SCHEDULE")) => Reply::Error(fault::SYNTAX),
            "bgsave" if self.shared.begin_snapshot(None) => Reply::Status("Background saving started"),
            "bgrewriteaof" if self.shared.begin_snapshot(None) => {
                Reply::Status("Background append only file rewriting started")
            }
            "bgrewriteaof" => Reply::Error(Fault::new("ERR Background append only file rewriting already in progress")),
            _ => Reply::Error(Fault::new("ERR Background save already in progress")),
        };
        client.answer(&reply);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn the_next_snapshot_may_begin_once_the_end_is_told() {
        let saver = Arc::new(Mutex::new(Saver::default()));
        let (made, makes) = mpsc::channel::<()>();
        let (tells, told) = mpsc::channel();
        let (ends, end) = mpsc::channel::<()>();
        let begin = |make: mpsc::Receiver<()>, tell: mpsc::Sender<()>, end: mpsc::Receiver<()>| {
            let tell = move |_: &Mutex<Saver>, ()| {
                tell.send(()).unwrap();
                let _ = end.recv();
            };
            Saver::begin(saver.clone(), |saver| saver, move |_| _ = make.recv(), tell)
        };
        let nothing = || (mpsc::channel().1, mpsc::channel().0, mpsc::channel().1);
        assert!(begin(makes, tells, end));
        let (make, tell, other) = nothing();
        assert!(!begin(make, tell, other), "one is under way");
        drop(made);
        told.recv().unwrap();
        // The thread still exists: it waits until `ends` is dropped.
        assert!(!lock(&saver).is_busy(), "its end was told");
        drop(ends);
    }
}

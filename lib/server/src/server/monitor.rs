//! `MONITOR`: clients that receive all requests.
//!
//! A request is shown when it is processed; commands of a transaction are shown when they are queued. Commands for
//! administrators are not shown. `AUTH` and `HELLO` are not shown, because they may contain passwords. Commands that a
//! script calls are shown after the script has ended, if the script may change the database. A monitor is ended when
//! its unsent messages exceed the limits of subscribers.

use archipelago_platform::atomic::{AtomicUsize, Ordering::Relaxed};
use archipelago_platform::sync::{Arc, Mutex};
use archipelago_platform::time;
use core::fmt::{Display, Write as _};
use std::collections::BTreeSet;

use super::client::Client;
use super::shared::{Letter, Shared, lock};
use crate::args::Args;
use crate::blocked::Owner;
use crate::command::{self, Command, catalog, flag};
use crate::operation::wish;

/// The clients that receive all requests.
#[derive(Default)]
pub struct Monitors {
    count: AtomicUsize,
    all: Mutex<BTreeSet<Owner>>,
}

impl Monitors {
    /// Adds or removes a client.
    pub fn set(&self, owner: Owner, on: bool) {
        let mut all = lock(&self.all);
        if on {
            all.insert(owner);
        } else {
            all.remove(&owner);
        }
        self.count.store(all.len(), Relaxed);
    }
}

impl Shared {
    /// Returns whether any client receives all requests.
    pub fn is_monitored(&self) -> bool {
        self.monitors.count.load(Relaxed) > 0
    }

    /// Returns the bits of [`wish`] that operations need so that commands of scripts can be shown.
    pub fn shown_wishes(&self) -> u8 {
        if self.is_monitored() { wish::CALLS } else { 0 }
    }

    /// Sends a request to all monitors.
    pub fn show(&self, client: &Client, args: &Args) {
        if !self.is_monitored() {
            return;
        }
        let hides = |command: &'static Command| {
            // Of some commands, only some subcommands are for administrators.
            let row = catalog::row(command, args).flatten();
            command.has(flag::ADMIN)
                || matches!(command.name, "auth" | "hello")
                || row.is_none_or(|row| row.has("admin"))
        };
        if command::find(&args[0]).is_none_or(hides) {
            return;
        }
        self.show_line(line(client.session.db, client.card.peer, args));
    }

    /// Sends a command that a script has called to all monitors.
    pub fn show_call(&self, db: u32, args: &Args) {
        self.show_line(line(db, "lua", args));
    }

    fn show_line(&self, line: String) {
        let line = line.into_bytes();
        let body = Arc::new((line.clone(), line));
        for owner in lock(&self.monitors.all).iter() {
            self.post(owner.at, Letter::Message(vec![*owner], body.clone(), None));
        }
    }
}

fn line(db: u32, from: impl Display, args: &Args) -> String {
    let since = time::unix_time();
    let (seconds, micros) = (since.as_secs(), since.subsec_micros());
    let mut line = format!("+{seconds}.{micros:06} [{db} {from}]");
    for word in args.from(0) {
        line.push_str(" \"");
        for byte in word {
            let _ = match byte {
                b'"' | b'\\' => write!(line, "\\{}", char::from(*byte)),
                b'\n' => write!(line, "\\n"),
                b'\r' => write!(line, "\\r"),
                b'\t' => write!(line, "\\t"),
                7 => write!(line, "\\a"),
                8 => write!(line, "\\b"),
                b' '..=b'~' => write!(line, "{}", char::from(*byte)),
                other => write!(line, "\\x{other:02x}"),
            };
        }
        line.push('"');
    }
    line + "\r\n"
}

//! The scripts that a server knows by their digests.

use std::collections::HashMap;

use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_platform::sync::{Arc, Mutex, MutexGuard};
use archipelago_platform::time::Duration;

use super::state;
use crate::args::Args;
use crate::command::{self, Command, help};
use crate::deadline::{Deadline, LIMIT};
use crate::family::generic::unknown_subcommand;
use crate::reply::{Answer, Fault, Reply};

/// Scripts by the digests of their texts, in lower case, and how long any may run. Clones share them.
#[derive(Clone, Debug)]
pub struct Scripts {
    known: Arc<Mutex<HashMap<String, Arc<[u8]>>>>,
    /// In milliseconds; 0: without a limit of time.
    limit: Arc<AtomicU64>,
}

impl Default for Scripts {
    fn default() -> Self {
        Self { known: Arc::default(), limit: Arc::new(AtomicU64::new(LIMIT)) }
    }
}

/// The SHA-1 of bytes, in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    sha1_smol::Sha1::from(bytes).digest().to_string()
}

impl Scripts {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<[u8]>>> {
        self.known.lock().expect("nothing panics while it is locked")
    }

    /// How long scripts may run from now on, in milliseconds; 0: without a limit of time.
    pub fn limit(&self, millis: u64) {
        self.limit.store(millis, Relaxed);
    }

    /// That of a call, if there is any.
    pub fn deadline(&self) -> Option<Arc<Deadline>> {
        match self.limit.load(Relaxed) {
            0 => None,
            millis => Some(Arc::new(Deadline::new(Duration::from_millis(millis)))),
        }
    }

    /// Makes `EVAL` of an `EVALSHA`, and `EVAL_RO` of the `EVAL` of a script that says that it only reads. Remembers the text of
    /// an `EVAL`. What is not known stays an `EVALSHA`, which is answered with an error.
    pub fn resolve(&self, command: &'static Command, args: Args) -> (&'static Command, Args) {
        let (command, args) = self.with_text(command, args);
        match command.name {
            "eval" if state::only_reads(&args[1]) => (command::find(b"eval_ro").unwrap_or(command), args),
            _ => (command, args),
        }
    }

    fn with_text(&self, command: &'static Command, args: Args) -> (&'static Command, Args) {
        let name = match command.name {
            "eval" | "eval_ro" => {
                // The error for a text that does not compile is the operation's.
                let _ = self.load(&args[1]);
                return (command, args);
            }
            "evalsha" => "eval",
            "evalsha_ro" => "eval_ro",
            _ => return (command, args),
        };
        let digits = String::from_utf8_lossy(&args[1]).to_ascii_lowercase();
        let Some(body) = self.lock().get(&digits).cloned() else { return (command, args) };
        // The name stays the one that was asked for: what its user may is asked of that.
        let words = [&args[0], &body].into_iter().chain(args.from(2));
        (command::find(name.as_bytes()).expect("it is there with its digest"), words.collect())
    }

    fn load(&self, text: &[u8]) -> Result<String, Fault> {
        let digits = digest(text);
        if !self.lock().contains_key(&digits) {
            state::check(text)?;
            self.lock().insert(digits.clone(), text.into());
        }
        Ok(digits)
    }

    /// `SCRIPT`.
    ///
    /// # Errors
    /// If the text does not compile or the arguments make no sense.
    pub fn command(&self, args: &Args) -> Answer {
        match (args[1].to_ascii_uppercase().as_slice(), args.len()) {
            (b"LOAD", 3) => self.load(&args[2]).map(Reply::bulk),
            (b"EXISTS", 3..) => {
                let known = self.lock();
                let is = |digits: &[u8]| known.contains_key(&String::from_utf8_lossy(digits).to_ascii_lowercase());
                Ok(Reply::Array(args.from(2).map(|digits| Reply::Int(is(digits).into())).collect()))
            }
            (b"FLUSH", 2) => Ok(self.flush()),
            (b"FLUSH", 3) if args.is(2, "SYNC") || args.is(2, "ASYNC") => Ok(self.flush()),
            (b"FLUSH", _) => Err(Fault::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
            // No script runs while a loop takes requests, and one that runs ends by its limits.
            (b"KILL", 2) => Err(Fault::new("NOTBUSY No scripts in execution right now.")),
            (b"LOAD" | b"EXISTS" | b"KILL", _) => Err(crate::session::wrong_number(&format!(
                "script|{}",
                String::from_utf8_lossy(&args[1]).to_ascii_lowercase()
            ))),
            (b"DEBUG", 3) if args.is(2, "NO") => Ok(Reply::OK),
            (b"DEBUG", 3) if args.is(2, "YES") || args.is(2, "SYNC") => {
                Err(Fault::new("ERR there is no debugger of scripts"))
            }
            (b"DEBUG", _) => Err(Fault::new("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
            (b"HELP", _) => Ok(help::of("script")),
            _ => Err(unknown_subcommand(args)),
        }
    }

    fn flush(&self) -> Reply {
        self.lock().clear();
        Reply::OK
    }
}

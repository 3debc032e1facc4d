//! The table of scripts that a server knows, by their digests.

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

/// The known scripts by the digests of their texts (digits in lower case), and the time limit of scripts. Clones share
/// both.
#[derive(Clone, Debug)]
pub struct Scripts {
    known: Arc<Mutex<HashMap<String, Arc<[u8]>>>>,
    /// The time limit in milliseconds. 0 means no limit.
    limit: Arc<AtomicU64>,
}

impl Default for Scripts {
    fn default() -> Self {
        Self { known: Arc::default(), limit: Arc::new(AtomicU64::new(LIMIT)) }
    }
}

/// Returns the SHA-1 digest of bytes in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    sha1_smol::Sha1::from(bytes).digest().to_string()
}

impl Scripts {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<[u8]>>> {
        self.known.lock().expect("nothing panics while it is locked")
    }

    /// Sets the time limit of scripts that begin later, in milliseconds. 0 means no limit.
    pub fn limit(&self, millis: u64) {
        self.limit.store(millis, Relaxed);
    }

    /// Returns the deadline for a call that begins now. Returns `None` if there is no time limit.
    pub fn deadline(&self) -> Option<Arc<Deadline>> {
        match self.limit.load(Relaxed) {
            0 => None,
            millis => Some(Arc::new(Deadline::new(Duration::from_millis(millis)))),
        }
    }

    /// Replaces `EVALSHA` by `EVAL` and the script's text, and `EVALSHA_RO` by `EVAL_RO`. Replaces `EVAL` by `EVAL_RO`
    /// if the script says that it only reads. Remembers the texts of `EVAL` and `EVAL_RO` that compile. A command with
    /// an unknown digest is not replaced: its reply is an error.
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
                // An error in compiling is ignored here, because the operation reports the error.
                let _ = self.load(&args[1]);
                return (command, args);
            }
            "evalsha" => "eval",
            "evalsha_ro" => "eval_ro",
            _ => return (command, args),
        };
        let digits = String::from_utf8_lossy(&args[1]).to_ascii_lowercase();
        let Some(body) = self.lock().get(&digits).cloned() else { return (command, args) };
        // The name in the request does not change, because the user's rights are checked for that name.
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

    /// Carries out `SCRIPT`.
    ///
    /// # Errors
    /// Returns an error if the text does not compile or the arguments are invalid.
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
            // A running script is ended by its limits, not by this command.
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

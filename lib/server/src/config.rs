//! A server's settings: the values of `serve`'s arguments, and the parameters of `CONFIG`.

pub mod keeping;
pub mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;

use archipelago_platform::sync::{Mutex, MutexGuard};

use crate::db::hash::{LONGEST_PACKED, MOST_PACKED};
use crate::db::set::MOST_INTEGERS;
use crate::db::stream::{NODE_BYTES, NODE_ENTRIES};
use crate::family::glob;

/// When changes become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Appendonly {
    /// There is no log: changes in memory are lost when the process ends.
    #[default]
    No,
    /// A change is answered at once, and synced to the disk within a second.
    EverySecond,
    /// A change is synced to the disk before its answer is sent and before any reader sees it.
    Always,
}

/// Which clients may call `DEBUG`. A client that may call it can delay other clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugAccess {
    /// No client.
    #[default]
    No,
    /// Clients on the same machine.
    Local,
    /// Every client whose user may call it.
    Yes,
}

/// A server's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address on which the server listens.
    pub address: SocketAddr,
    /// The number of event loops; 0 means 1.
    pub loops: usize,
    /// The number of copies of the database; 0 means one for each NUMA node. A long read blocks only the copy that it reads.
    pub replicas: usize,
    /// The directory of the server's files.
    pub directory: PathBuf,
    /// When changes become durable.
    pub appendonly: Appendonly,
    /// The password that `AUTH` requires, if any.
    pub password: Option<String>,
    /// The file from which users are read. `ACL SAVE` writes it.
    pub aclfile: Option<PathBuf>,
    /// The maximum number of clients connected at a time.
    pub clients: usize,
    /// Which clients may call `DEBUG`.
    pub debug: DebugAccess,
    /// An RDB file that is loaded at the start.
    pub load: Option<PathBuf>,
    /// Parameters of `CONFIG SET`, with their values in the format of `CONFIG SET`.
    pub parameters: Vec<(&'static str, String)>,
    /// The settings of TLS, if the server speaks it. Needs the feature `tls`.
    pub tls: Option<tls::Tls>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            address: ([127, 0, 0, 1], 6379).into(),
            loops: 1,
            replicas: 0,
            directory: PathBuf::from("."),
            appendonly: Appendonly::No,
            password: None,
            aclfile: None,
            clients: 10_000,
            debug: DebugAccess::No,
            load: None,
            parameters: Vec::new(),
            tls: None,
        }
    }
}

/// The parameters of `CONFIG`. All event loops read them, and `CONFIG SET` changes some of them.
#[derive(Debug)]
pub struct Config {
    values: Mutex<Vec<(&'static str, String)>>,
}

/// Two names of the same parameter: the newer name, then the older.
const SAME: [&str; 2] = ["busy-reply-threshold", "lua-time-limit"];

/// Limits up to which values are packed into one allocation, by the names of Redis's parameters. `CONFIG GET` reports them;
/// they cannot be changed.
const FORMS: &[(&str, u64)] = &[
    ("hash-max-listpack-entries", MOST_PACKED as u64),
    ("hash-max-listpack-value", LONGEST_PACKED as u64),
    ("hash-max-ziplist-entries", MOST_PACKED as u64),
    ("hash-max-ziplist-value", LONGEST_PACKED as u64),
    ("set-max-intset-entries", MOST_INTEGERS as u64),
    ("stream-node-max-bytes", NODE_BYTES as u64),
    ("stream-node-max-entries", NODE_ENTRIES as u64),
    ("zset-max-listpack-entries", MOST_PACKED as u64),
    ("zset-max-listpack-value", LONGEST_PACKED as u64),
    ("zset-max-ziplist-entries", MOST_PACKED as u64),
    ("zset-max-ziplist-value", LONGEST_PACKED as u64),
];

/// Parameters that have an effect in Redis and none in this server, with Redis's default values. `CONFIG SET` accepts and
/// stores values for them.
const MOOT: &[(&str, &str)] = &[
    ("active-expire-effort", "1"),
    ("activedefrag", "no"),
    ("activerehashing", "yes"),
    ("aof-rewrite-incremental-fsync", "yes"),
    ("dynamic-hz", "yes"),
    ("hz", "10"),
    ("jemalloc-bg-thread", "yes"),
    ("lazyfree-lazy-eviction", "no"),
    ("lazyfree-lazy-expire", "no"),
    ("lazyfree-lazy-server-del", "no"),
    ("lazyfree-lazy-user-del", "no"),
    ("lazyfree-lazy-user-flush", "no"),
    ("list-compress-depth", "0"),
    ("no-appendfsync-on-rewrite", "no"),
    ("rdb-save-incremental-fsync", "yes"),
    ("rdbcompression", "yes"),
    ("replica-lazy-flush", "no"),
    ("replica-priority", "100"),
    ("replica-read-only", "yes"),
    ("replica-serve-stale-data", "yes"),
];

/// Parameters of Redis's features that this server lacks. Their values are empty and cannot be changed.
const NOT_THERE: &[&str] = &["replicaof", "slaveof", "unixsocket", "masterauth"];

/// Checks a new value of a parameter in `MOOT`: it must be of the same kind as the value before.
fn moot(value: &str, before: &str) -> Result<String, String> {
    match before {
        "yes" | "no" => yes_or_no(value),
        _ => keeping::within(value, 0, i32::MAX.into()),
    }
}

/// Checks a value that is `yes` or `no`, in any case. Returns it in lower case.
pub fn yes_or_no(value: &str) -> Result<String, String> {
    let lower = value.to_ascii_lowercase();
    if matches!(&*lower, "yes" | "no") { Ok(lower) } else { Err("argument must be 'yes' or 'no'".into()) }
}

impl Config {
    /// Returns the parameters that follow from the settings.
    pub fn new(settings: &Settings) -> Self {
        let appendfsync = if settings.appendonly == Appendonly::Always { "always" } else { "everysec" };
        let debug = match settings.debug {
            DebugAccess::No => "no",
            DebugAccess::Local => "local",
            DebugAccess::Yes => "yes",
        };
        // If the server listens for TLS only, `address` is the address for TLS.
        let plain = if settings.tls.as_ref().is_some_and(|tls| tls.only) { 0 } else { settings.address.port() };
        let mut values = vec![
            ("acl-pubsub-default", "resetchannels".into()),
            ("aclfile", settings.aclfile.as_ref().map(|path| path.display().to_string()).unwrap_or_default()),
            ("acllog-max-len", "128".into()),
            ("appendfsync", appendfsync.into()),
            ("appendonly", if settings.appendonly == Appendonly::No { "no" } else { "yes" }.into()),
            ("bind", settings.address.ip().to_string()),
            ("databases", crate::db::DATABASES.to_string()),
            ("enable-debug-command", debug.into()),
            ("dir", settings.directory.display().to_string()),
            ("io-threads", settings.loops.to_string()),
            ("maxclients", settings.clients.to_string()),
            ("port", plain.to_string()),
            ("protected-mode", "yes".into()),
            ("proto-max-bulk-len", crate::resp::LONGEST_BULK.to_string()),
            ("requirepass", settings.password.clone().unwrap_or_default()),
            ("tcp-keepalive", "300".into()),
            ("timeout", "0".into()),
        ];
        values.push(("cluster-enabled", "no".into()));
        values.extend(NOT_THERE.iter().map(|name| (*name, String::new())));
        values.extend(MOOT.iter().map(|(name, value)| (*name, (*value).to_owned())));
        values.extend(FORMS.iter().map(|(name, value)| (*name, value.to_string())));
        values.extend(tls::parameters(settings));
        values.extend(keeping::PARAMETERS.iter().map(|(name, value)| (*name, (*value).to_owned())));
        values.extend(crate::server::params::PARAMETERS.iter().map(|(name, value)| (*name, (*value).to_owned())));
        Self { values: Mutex::new(values) }
    }

    fn values(&self) -> MutexGuard<'_, Vec<(&'static str, String)>> {
        self.values.lock().expect("nothing panics while it is locked")
    }

    /// Returns the value of a parameter; empty if there is no such parameter.
    pub fn get(&self, name: &str) -> String {
        self.values().iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// Returns the parameters whose names match a pattern.
    pub fn matching(&self, pattern: &[u8]) -> Vec<(&'static str, String)> {
        let pattern = pattern.to_ascii_lowercase();
        self.values().iter().filter(|(name, _)| glob::fits(&pattern, name.as_bytes())).cloned().collect()
    }

    /// Changes a parameter.
    ///
    /// # Errors
    /// The reason, if the parameter does not exist or cannot be changed, or if the value is invalid.
    pub fn set(&self, name: &str, value: &str) -> Result<(), String> {
        self.set_all(&[(name.into(), value.into())])
    }

    /// Changes parameters: all of them, or none.
    ///
    /// # Errors
    /// The reason why the first wrong pair is wrong.
    pub fn set_all(&self, pairs: &[(String, String)]) -> Result<(), String> {
        let mut values = self.values();
        let mut after = values.clone();
        for (at, (name, value)) in pairs.iter().enumerate() {
            Self::change(&mut after, name, value)?;
            if pairs[..at].iter().any(|(before, _)| before.eq_ignore_ascii_case(name)) {
                return Err(format!("CONFIG SET failed (possibly related to argument '{name}') - duplicate parameter"));
            }
        }
        *values = after;
        Ok(())
    }

    fn change(values: &mut [(&'static str, String)], name: &str, value: &str) -> Result<(), String> {
        let found = values.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let (known, old) =
            found.ok_or_else(|| format!("Unknown option or number of arguments for CONFIG SET - '{name}'"))?;
        let failed = |what| format!("CONFIG SET failed (possibly related to argument '{name}') - {what}");
        let checked = keeping::checked(known, value).or_else(|| crate::server::params::check(known, value, old));
        let is_moot = MOOT.iter().any(|(name, _)| name == known);
        let checked = checked.or_else(|| is_moot.then(|| moot(value, old)));
        let checked = checked.unwrap_or_else(|| Err("can't set immutable config".into())).map_err(failed)?;
        let names = if SAME.contains(known) { &SAME[..] } else { &[*known] };
        let all = values.iter_mut().filter(|(name, _)| names.contains(name));
        all.for_each(|(_, value)| value.clone_from(&checked));
        Ok(())
    }
}

//! A server's settings: what `serve`'s arguments and `CONFIG` name.

pub mod keeping;
pub mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;

use archipelago_platform::sync::{Mutex, MutexGuard};

use crate::db::hash::{LONGEST_PACKED, MOST_PACKED};
use crate::db::set::MOST_INTEGERS;
use crate::db::stream::{NODE_BYTES, NODE_ENTRIES};
use crate::family::glob;

/// When changes are durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Appendonly {
    /// There is no log: what is in memory ends with the process.
    #[default]
    No,
    /// Changes are answered at once and synced within a second.
    EverySecond,
    /// Neither the writer nor a reader sees a change before its sync.
    Always,
}

/// Which clients may call `DEBUG`, by which a client can hold up others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugAccess {
    /// No client.
    #[default]
    No,
    /// Clients of the same machine.
    Local,
    /// Every client whose user may call it.
    Yes,
}

/// A server's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub address: SocketAddr,
    /// Event loops; 0 counts as 1.
    pub loops: usize,
    /// Copies of the database, of which long reads hold up one; 0: one a NUMA node.
    pub replicas: usize,
    /// Where its files are.
    pub directory: PathBuf,
    /// When changes are durable.
    pub appendonly: Appendonly,
    /// What `AUTH` asks for.
    pub password: Option<String>,
    /// Where users are read from, and written to by `ACL SAVE`.
    pub aclfile: Option<PathBuf>,
    /// The most clients at a time.
    pub clients: usize,
    /// Which clients may call `DEBUG`.
    pub debug: DebugAccess,
    /// An RDB file to begin with.
    pub load: Option<PathBuf>,
    /// Parameters of `CONFIG SET`, with their values as it reads them.
    pub parameters: Vec<(&'static str, String)>,
    /// Where TLS is spoken, if it is: needs the feature `tls`.
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

/// What `CONFIG SET` may change, and what all loops read.
#[derive(Debug)]
pub struct Config {
    values: Mutex<Vec<(&'static str, String)>>,
}

/// Names of one parameter: the older after the newer.
const SAME: [&str; 2] = ["busy-reply-threshold", "lua-time-limit"];

/// What is packed into one allocation, by the names of Redis's parameters: told, and fixed.
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

/// What Redis has a choice of and this server has not, with Redis's values: taken and told, and nothing changes.
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

/// What Redis tells of what is not there: fixed.
const NOT_THERE: &[&str] = &["replicaof", "slaveof", "unixsocket", "masterauth"];

/// A value of a moot parameter: of the kind that it had.
fn moot(value: &str, before: &str) -> Result<String, String> {
    match (before, value) {
        ("yes" | "no", "yes" | "no") => Ok(value.into()),
        ("yes" | "no", _) => Err("argument must be 'yes' or 'no'".into()),
        _ => keeping::within(value, 0, i32::MAX.into()),
    }
}

impl Config {
    /// What the settings say.
    pub fn new(settings: &Settings) -> Self {
        let appendfsync = if settings.appendonly == Appendonly::Always { "always" } else { "everysec" };
        let debug = match settings.debug {
            DebugAccess::No => "no",
            DebugAccess::Local => "local",
            DebugAccess::Yes => "yes",
        };
        // Where nothing listens but TLS, the address is that of TLS.
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

    /// A parameter's value; empty if there is none.
    pub fn get(&self, name: &str) -> String {
        self.values().iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// The parameters whose names match a pattern.
    pub fn matching(&self, pattern: &[u8]) -> Vec<(&'static str, String)> {
        let pattern = pattern.to_ascii_lowercase();
        self.values().iter().filter(|(name, _)| glob::fits(&pattern, name.as_bytes())).cloned().collect()
    }

    /// Changes a parameter.
    ///
    /// # Errors
    /// What is wrong, if it cannot be changed or the value is none.
    pub fn set(&self, name: &str, value: &str) -> Result<(), String> {
        self.set_all(&[(name.into(), value.into())])
    }

    /// Changes parameters: all of them, or none.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be changed.
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

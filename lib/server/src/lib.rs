//! A server of Redis's protocol over node replication.
//!
//! | module | what | knows of |
//! |---|---|---|
//! | [`args`] | a command's arguments: one allocation of bytes | nothing |
//! | [`resp`] | requests from bytes, with limits | `args` |
//! | [`reply`] | answers, and their bytes in RESP2 and RESP3 | nothing |
//! | [`command`] | the registry: name, arity, flags, key positions, categories, function | `family`, `db` |
//! | [`operation`] | what enters the log: a command with its time, seed and database; its binary encoding | `command` |
//! | [`acl`] | users, and what each of them may do | `command` |
//! | [`db`] | the sequential database: tables, values, expiry, versions of watched keys | `operation`, `reply` |
//! | [`family`] | the commands themselves, one file a family | `db` |
//! | [`session`] | a client's state without its socket: database, protocol, `MULTI` queue; a request to a [`session::Step`] | `operation` |
//! | [`rdb`] | files and payloads as Redis has them: read and written | `db` |
//! | `script` (feature `lua`) | scripts and functions in Lua: one operation each | `db`, `command` |
//! | [`deadline`], [`stops`] | where replicas stop a script that runs too long; what a log's recovery knows of it | nothing |
//! | [`log`], [`snapshot`] | changes on their way to the disk and the replicas; what lets the log begin anew | `db`, `operation` |
//! | [`server`] | sockets: event loops, batches to the combiner | all of them |
//!
//! [`db::Db`] knows nothing of threads or sockets. All that an operation must not ask for itself is in it: the time, the
//! seed of its randomness, the number of the client's database. So replicas, a log on disk and a follower agree byte for
//! byte.

pub mod acl;
pub mod args;
pub mod blocked;
pub mod command;
pub mod config;
pub mod db;
pub mod deadline;
pub mod family;
pub mod log;
pub mod operation;
pub mod pubsub;
pub mod rdb;
pub mod reply;
pub mod resp;
#[cfg(feature = "lua")]
pub mod script;
pub mod server;
pub mod session;
pub mod snapshot;
pub mod stops;

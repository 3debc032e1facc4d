//! A server of Redis's protocol over node replication. Each NUMA node has a replica of the database. A shared log of
//! operations keeps the replicas equal: each replica carries out the same operations in the same order.
//!
//! | module | contents | depends on |
//! |---|---|---|
//! | [`args`] | the arguments of a command, in one allocation | nothing |
//! | [`resp`] | parses requests from bytes, within limits | `args` |
//! | [`reply`] | answers, and their bytes in RESP2 and RESP3 | nothing |
//! | [`command`] | the registry of commands: name, arity, flags, key positions, categories, function | `family`, `db` |
//! | [`operation`] | an entry of the replicas' log: a command with its time, random seed and database; its binary encoding | `command` |
//! | [`acl`] | users, and the requests that each user may make | `command` |
//! | [`db`] | the sequential database: tables, values, expiry, versions of watched keys | `operation`, `reply` |
//! | [`family`] | the functions of the commands, one file for each family of commands | `db` |
//! | [`session`] | a client's state without its socket: database, protocol, `MULTI` queue; turns a request into a [`session::Step`] | `operation` |
//! | [`rdb`] | reads and writes Redis's files and payloads | `db` |
//! | `script` (feature `lua`) | scripts and functions in Lua; each run is one operation | `db`, `command` |
//! | [`deadline`], [`stops`] | the point at which all replicas stop a script that runs too long; the journal that keeps these points for a recovery | nothing |
//! | [`log`], [`snapshot`] | the path of changes to the disk and to the replicas; the snapshots, which replace the older part of the log | `db`, `operation` |
//! | [`server`] | sockets: event loops that hand batches of changes to node replication | all other modules |
//!
//! [`db::Db`] knows neither threads nor sockets. An operation contains everything that would differ between two replicas:
//! the time, the random seed, the number of the client's database. Therefore replicas, the log on the disk and a follower of
//! the log agree byte for byte.

#![forbid(unsafe_code)]

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

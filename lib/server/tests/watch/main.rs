//! Information about the server, for people and clients: events, other clients, caches, slow commands, metrics.

mod caching;
#[allow(dead_code, reason = "some of it is for the other program")]
#[path = "../sockets/client.rs"]
mod client;
mod clients;
mod events;
mod metrics;
mod times;

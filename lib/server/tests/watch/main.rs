//! What people and clients see of the server: events, each other, caches, what is slow.

mod caching;
#[allow(dead_code, reason = "some of it is for the other program")]
#[path = "../sockets/client.rs"]
mod client;
mod clients;
mod events;
mod metrics;
mod times;

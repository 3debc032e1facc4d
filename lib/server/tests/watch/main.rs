//! What people and clients observe of the server: events, other clients, caches, slow commands.

mod caching;
#[allow(dead_code, reason = "some of it is for the other program")]
#[path = "../sockets/client.rs"]
mod client;
mod clients;
mod events;
mod metrics;
mod times;

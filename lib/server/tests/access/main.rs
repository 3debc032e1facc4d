//! Access control: users, compared with Redis 7.0.15, and clients that try to bypass it.

mod answers;
#[allow(dead_code, reason = "some of it is for the other programs")]
#[path = "../sockets/client.rs"]
mod client;
mod hostile;

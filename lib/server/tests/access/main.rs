//! Who may do what: users, asked as Redis 7.0.15 was, and clients that try to get around them.

mod answers;
#[allow(dead_code, reason = "some of it is for the other programs")]
#[path = "../sockets/client.rs"]
mod client;
mod hostile;

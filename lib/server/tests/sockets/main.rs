//! The server over real sockets.

mod client;
mod durable;
mod hostile;
mod linear;
mod streams;
mod waiting;

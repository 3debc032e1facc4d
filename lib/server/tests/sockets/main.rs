//! The server over real sockets.

mod client;
mod durable;
mod expiry;
mod functions;
mod hostile;
mod hyperloglogs;
mod linear;
mod long;
mod nodes;
mod protocol;
mod room;
mod scripts;
mod seeds;
mod several;
mod snapshots;
mod streams;
mod waiting;

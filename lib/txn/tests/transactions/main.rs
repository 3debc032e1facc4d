//! The guarantees of transactions, with one thread and with several, for every scheme (kind of concurrency control).
#![cfg(not(archipelago_sim))]

mod alone;
mod anomalies;
mod beside;
#[path = "../common/book.rs"]
mod book;
mod destructors;
mod histories;
mod hostile;
mod limit;
mod lives;
mod locks;
mod model;
#[path = "../common/schemes.rs"]
mod schemes;
mod versions;

use schemes::by_every_scheme;

//! Node replication and combining: sequential structures made concurrent, black-box.

#[allow(dead_code)]
mod board;
#[cfg_attr(loom, allow(dead_code))]
mod cell;
#[allow(dead_code)]
mod log;

//! Node replication and combining: sequential structures made concurrent, black-box.

#[cfg_attr(loom, allow(dead_code))]
mod cell;
#[allow(dead_code)]
mod log;

//! The commands of the database. Each family of commands has one file.
//!
//! A file has the table of its family's commands and the functions that carry them out. A function parses its
//! arguments, looks its keys up and changes them, in the same order as Redis. This order decides which of several
//! errors is reported. Arguments are parsed inside the operation and not before it, because some commands check the
//! key's type before they parse.

pub mod bits;
pub mod connection;
pub mod cost;
pub mod fields;
pub mod generic;
pub mod geo;
pub mod glob;
pub mod groups;
pub mod hashes;
pub mod hyperloglogs;
pub mod lists;
pub mod memory;
pub mod parse;
pub mod payloads;
pub mod sets;
pub mod sort;
pub mod streams;
pub mod strings;
pub mod xinfo;
pub mod zjoins;
pub mod zranges;
pub mod zsets;

use crate::command::Command;

/// The command tables of all families.
pub const TABLES: &[&[Command]] = &[
    connection::COMMANDS,
    generic::COMMANDS,
    strings::COMMANDS,
    bits::COMMANDS,
    hashes::COMMANDS,
    fields::COMMANDS,
    lists::COMMANDS,
    sets::COMMANDS,
    zsets::COMMANDS,
    zranges::COMMANDS,
    zjoins::COMMANDS,
    streams::COMMANDS,
    groups::COMMANDS,
    xinfo::COMMANDS,
    hyperloglogs::COMMANDS,
    memory::COMMANDS,
    payloads::COMMANDS,
    sort::COMMANDS,
    geo::COMMANDS,
    #[cfg(feature = "lua")]
    crate::script::COMMANDS,
];

//! The commands, one file a family.
//!
//! A file has the family's table and its functions. A function reads its arguments, looks at its keys and changes them, in
//! the order in which Redis does so, since that order decides which error comes first: arguments are parsed inside the
//! operation and not before, because whether the key's type is asked first depends on the command.

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

/// The tables of all families.
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

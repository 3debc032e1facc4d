//! The `archipelago` command.

fn main() {}

//! Small programs to start from. Each runs in a second or two and says what it did:
//!
//! | program | what it shows |
//! |---|---|
//! | `cargo run --release --example memtable` | the memtable of a log-structured store: versions of keys in a `HydraList`, reads at a sequence number, a flush while writers go on |
//! | `cargo run --release --example cache` | a bounded cache of pages: one thread renders, the others wait, and all pages of a site are dropped when it changes |
//! | `cargo run --release --example leader_board` | a leader board that no concurrent map could be, over `Replicated` |
//! | `cargo run --release --example accounts` | transfers between accounts over MV-RLU, audited by snapshots that no writer waits for |
//! | `cargo run --release --example bank` | a bank with a log, killed again and again: an auditor finds every acknowledged move |
//! | `cargo run --release --example order_book` | an exchange's order book: three tables changed together, price and time by an index, audits of snapshots |

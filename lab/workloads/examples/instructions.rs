//! Runs TPC-C's transactions, one type after another, so that callgrind counts their instructions. Each type has a
//! function of its own:
//!
//!     cargo build --release -p archipelago-workloads --example instructions
//!     valgrind --tool=callgrind --toggle-collect='*instructions::run*' --callgrind-out-file=/dev/null \
//!         target/release/examples/instructions payment 2000
//!
//! (Use `delivery 10`: more deliveries would find no new orders.) callgrind prints the instructions as `Collected`.
//! Divided by the number of transactions, they are the instructions of one transaction, including the drawing of its
//! input. The store is Silo over HydraList, with one thread and one warehouse of a hundredth of the full size.

use archipelago_txn::{Silo, on};
use archipelago_workloads::tpcc::{Scale, Terminal, Tpcc, TransactionType};
use archipelago_workloads::{Arena, Engine};

type Ours = Engine<Silo, on::HydraList>;

#[inline(never)]
fn run(terminal: &mut Terminal<'_, Ours>, kind: TransactionType, count: usize) {
    (0..count).for_each(|_| _ = terminal.run(kind));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tpcc = Tpcc::load(Ours::serializable(), Scale::SMALL, 1, 1);
    let named = arguments.first().and_then(|name| tpcc.kinds().iter().position(|kind| kind == name));
    let (Some(kind), Some(Ok(count))) = (named, arguments.get(1).map(|count| count.parse())) else {
        eprintln!("usage: instructions KIND COUNT; the kinds are {}", tpcc.kinds().join(", "));
        std::process::exit(2);
    };
    let mut terminal = tpcc.terminal(0, 1);
    // The mix runs first, and its instructions are collected before those of the chosen kind. It leaves orders for
    // Delivery and for Order-Status.
    run_mix(&mut terminal);
    run(&mut terminal, TransactionType::ALL[kind], count);
    tpcc.check().expect("the twelve conditions hold");
}

/// Runs a thousand transactions in the specification's mix.
fn run_mix(terminal: &mut Terminal<'_, Ours>) {
    (0..1000).for_each(|_| _ = archipelago_workloads::Client::turn(terminal));
}

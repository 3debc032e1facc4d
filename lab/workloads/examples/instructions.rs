//! Instructions of TPC-C's transactions, one type after another, for callgrind to count. Each type has a function of its own:
//!
//!     cargo build --release -p archipelago-workloads --example instructions
//!     valgrind --tool=callgrind --toggle-collect='*instructions::run*' --callgrind-out-file=/dev/null \
//!         target/release/examples/instructions payment 2000
//!
//! (`delivery 10`: more would find nothing to deliver.) What callgrind prints as `Collected`, divided by the number of transactions, is what one takes: with drawing its input, by Silo
//! over HydraList, on one warehouse of a hundredth of its size, by one thread.

use archipelago_txn::{Silo, on};
use archipelago_workloads::tpcc::{Kind, Scale, Terminal, Tpcc};
use archipelago_workloads::{Arena, Engine};

type Ours = Engine<Silo, on::HydraList>;

#[inline(never)]
fn run(terminal: &mut Terminal<'_, Ours>, kind: Kind, count: usize) {
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
    // What a first transaction sets up is no part of the others; and orders to deliver and to ask for are there.
    run_mix(&mut terminal);
    run(&mut terminal, Kind::ALL[kind], count);
    tpcc.check().expect("the twelve conditions hold");
}

/// A thousand transactions as the specification mixes them.
fn run_mix(terminal: &mut Terminal<'_, Ours>) {
    (0..1000).for_each(|_| _ = archipelago_workloads::Client::turn(terminal));
}

//! What an experiment's structures need of memory, so that a count beyond it is an error of one line and not the end of
//! the process.

use archipelago_sim::Machine;

use crate::args::{Sim, SimNr, SimSets, SimYcsb};
use crate::failure::Failure;
use crate::resources;

/// Bytes per item with the model's records of its lines, estimated, not measured.
const YCSB: u64 = 600;
/// Beside it, of a byte string.
const STRING: u64 = 200;
const SET: u64 = 400;
const BUCKET: u64 = 150;
/// An item of a sequential structure; node replication has one for each node.
const ITEM: u64 = 350;

/// Whether the experiment's structures fit into the memory that is available.
///
/// # Errors
/// If they don't.
pub fn check(what: &Sim, machine: &Machine) -> Result<(), Failure> {
    let (count, needed) = match what {
        Sim::Ycsb(args) => (args.count(), ycsb(args)),
        Sim::Sets(args) => (args.count(), sets(args)),
        Sim::Nr(args) => (args.most_items(), nr(args, machine)),
        _ => return Ok(()),
    };
    let Some(available) = resources::available_bytes() else { return Ok(()) };
    if needed <= available {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(Failure::new(format!(
        "{count} items need about {:.1} GiB of memory with the model of their lines, {:.1} GiB are available; try a \
         smaller --count{}",
        gib(needed),
        gib(available),
        if matches!(what, Sim::Sets(_)) { " (or --buckets)" } else { "" },
    )))
}

fn ycsb(args: &SimYcsb) -> u64 {
    let each = if args.keys == "email" { YCSB + STRING } else { YCSB };
    (args.count() as u64).saturating_mul(each)
}

fn sets(args: &SimSets) -> u64 {
    let buckets = args.buckets.unwrap_or(args.count() / 10) as u64;
    (args.count() as u64).saturating_mul(SET).saturating_add(buckets.saturating_mul(BUCKET))
}

fn nr(args: &SimNr, machine: &Machine) -> u64 {
    (args.most_items() as u64).saturating_mul(ITEM * machine.sockets as u64)
}

//! Estimates the memory that an experiment's structures need. If a count needs too much memory, the command reports an
//! error of one line instead of being killed.

use archipelago_sim::Machine;

use crate::args::{NrWork, SetsWork, Sim, SimYcsb};
use crate::failure::Failure;
use crate::{resources, txn};

/// Bytes per item, including the model's records of its cache lines. The numbers are estimates, not measurements.
const YCSB: u64 = 600;
/// Further bytes of a key that is a byte string.
const STRING: u64 = 200;
const SET: u64 = 400;
/// A cached record of 1,000 bytes.
const CACHED: u64 = 5_000;
/// A row, with its versions, of the largest table except TPC-C's.
const ROW: u64 = 6_000;
const BUCKET: u64 = 150;
/// An item of a sequential structure, in each replica. Node replication has one replica per node.
const ITEM: u64 = 350;

/// Checks that the experiment's structures fit into the available memory, with this many threads at most. To be called
/// before the contenders are made, since some of them allocate.
///
/// # Errors
/// If they do not fit.
pub fn check(what: &Sim, machine: &Machine, threads: usize) -> Result<(), Failure> {
    if let Sim::Txn(args) = what {
        txn::check_simulated(args, threads)?;
    }
    let (count, needed) = match what {
        Sim::Ycsb(args) => ycsb(args),
        Sim::Euno(args) => (args.count.unwrap_or(0), (args.count.unwrap_or(0) as u64).saturating_mul(YCSB)),
        Sim::Sets(args) => (args.work.count, sets(&args.work)),
        Sim::Cache(args) => (args.count.unwrap_or(0), (args.count.unwrap_or(0) as u64).saturating_mul(CACHED)),
        Sim::Txn(args) => (args.count.unwrap_or(0), (args.count.unwrap_or(0) as u64).saturating_mul(ROW)),
        Sim::Nr(args) => (args.work.most_items(), nr(&args.work, machine)),
        _ => return Ok(()),
    };
    let more = if matches!(what, Sim::Sets(_)) { " (or --buckets)" } else { "" };
    let items = format!("{count} items, with the model of their lines,");
    resources::check_memory(needed, &items, &format!("a smaller --count{more}"))
}

/// Returns the largest number of keys, and the bytes that it needs.
fn ycsb(args: &SimYcsb) -> (usize, u64) {
    let each = if args.keys == "email" { YCSB + STRING } else { YCSB };
    let most = args.counts().into_iter().max().unwrap_or(0);
    (most, (most as u64).saturating_mul(each))
}

fn sets(work: &SetsWork) -> u64 {
    let buckets = work.buckets.unwrap_or(work.count / 10) as u64;
    (work.count as u64).saturating_mul(SET).saturating_add(buckets.saturating_mul(BUCKET))
}

fn nr(work: &NrWork, machine: &Machine) -> u64 {
    (work.most_items() as u64).saturating_mul(ITEM * machine.sockets as u64)
}

//! `sim ycsb --stall`: stops threads at points where this is most harmful.

use archipelago_sim::{Fault, Point};
use archipelago_sync::version_lock::VersionLock;

use crate::args::{SimYcsb, Warm};
use crate::failure::Failure;

/// The warm-up in microseconds that `--warm auto` means if threads are stopped.
pub const WARM_BEFORE_FAULTS: u64 = 50;

/// Returns the faults of `--stall`: which threads stop, and where.
///
/// # Errors
/// If the name is not known.
pub fn faults(args: &SimYcsb) -> Result<Vec<Fault>, Failure> {
    let Some(stall) = &args.stall else { return Ok(Vec::new()) };
    let warm = match args.common.warm {
        Warm::Auto => WARM_BEFORE_FAULTS,
        Warm::Micros(micros) => micros,
    };
    // The stall lasts until the end of the run, however long the measurement is.
    let (warm, all) = (warm * 1000, (warm + args.common.micros.max(args.common.patience)) * 1000);
    match stall.as_str() {
        // Background threads have the numbers after those of the clients and the set-up.
        "updater" => Ok((1..=64)
            .flat_map(|behind| args.common.threads.iter().map(move |threads| threads + behind))
            .map(|slot| Fault::Stall { thread: Some(slot), at: Point::Time(warm), for_ns: all })
            .collect()),
        "lock-holder" => {
            let name = VersionLock::HELD.to_owned();
            Ok(vec![Fault::Stall {
                thread: Some(0),
                at: Point::Named { name, nth: 100 },
                for_ns: args.common.micros * 500,
            }])
        }
        other => Err(Failure::new(format!("--stall {other} is not known; known are updater, lock-holder"))),
    }
}

//! `sim sets`: list, hash table and search tree over RCU, RLU and MV-RLU, as in the thesis's figures 3.4 to 3.8.

use archipelago_platform::time::Duration;

use super::{Cell, Contender};
use crate::args::SimSets;
use crate::failure::Failure;
use crate::sets::contenders::select;
use crate::sets::drive::{Simulation, Spec};
use crate::workload::Distribution;

/// The structures and mechanisms that the arguments name.
///
/// # Errors
/// If a name is not known.
pub fn contenders(args: &SimSets) -> Result<Vec<Contender>, Failure> {
    let distribution = Distribution::parse(&args.distribution)?;
    if distribution == Distribution::Latest {
        return Err(Failure::new("sets have no latest key; try --distribution uniform or zipf:0.99"));
    }
    let chosen = select(&args.structure, &args.mechanism)?;
    let mut contenders = Vec::new();
    for structure in ["list", "hash", "tree"] {
        for &update_percent in &args.update_percent {
            for contender in chosen.iter().filter(|contender| contender.structure == structure) {
                let (simulate, items) = (contender.simulate, args.count());
                let scan = if structure == "hash" { 0 } else { args.scan };
                let buckets = match structure {
                    "hash" => args.buckets.unwrap_or(items.div_ceil(10)),
                    // Only a list is filled in order, which would make a tree a list.
                    "tree" => 1,
                    _ => 0,
                };
                let program = Box::new(move |machine: &_, config: &archipelago_sim::Config, setting: &_, threads| {
                    let (stuck_reader, time, seed) = (false, Duration::ZERO, config.seed);
                    let spec =
                        Spec { items, buckets, update_percent, distribution, scan, threads, stuck_reader, time, seed };
                    simulate(&Simulation { spec: &spec, machine, config, setting })
                });
                let reads = if scan > 0 { format!(", ranges of {scan}") } else { String::new() };
                let workload = format!("{structure}{reads}");
                let cell = Cell {
                    update_percent: Some(update_percent),
                    distribution: Some(distribution),
                    count: Some(items),
                    details: if structure == "hash" { format!("{buckets} buckets") } else { String::new() },
                    ..Cell::default()
                };
                contenders.push(Contender { name: contender.mechanism.to_owned(), workload, cell, program });
            }
        }
    }
    Ok(contenders)
}

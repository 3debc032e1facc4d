//! `sim sets`: list, hash table and search tree over RCU, RLU and MV-RLU, as in Mathew's thesis, figures 3.4 to 3.8.

use super::contenders::select;
use super::{STRUCTURES, distribution, spec};
use crate::args::SimSets;
use crate::failure::Failure;
use crate::harness::simulated::Contender;
use crate::report::row::Cell;

/// The structures and mechanisms that the arguments name.
///
/// # Errors
/// If a name is not known.
pub fn simulated(args: &SimSets) -> Result<Vec<Contender>, Failure> {
    let distribution = distribution(&args.work.distribution)?;
    let chosen = select(&args.structure, &args.mechanism)?;
    let mut contenders = Vec::new();
    for structure in STRUCTURES {
        for &update_percent in &args.work.update_percent {
            let spec = spec(structure, &args.work, update_percent, distribution);
            let reads = if spec.scan > 0 { format!(", ranges of {}", spec.scan) } else { String::new() };
            let details = if structure == "hash" { format!("{} buckets", spec.buckets) } else { String::new() };
            let cell = Cell {
                workload: format!("{structure}{reads}"),
                update_percent: Some(update_percent),
                distribution: Some(distribution),
                count: Some(args.work.count),
                details,
                ..Cell::default()
            };
            for contender in chosen.iter().filter(|contender| contender.structure == structure) {
                let (name, program) = (contender.mechanism.to_owned(), (contender.simulate)(spec.clone()));
                contenders.push(Contender { name, cell: cell.clone(), program });
            }
        }
    }
    Ok(contenders)
}

//! `machine`: what the library sees of the machine, for people and for the head of reports.

use archipelago_platform::htm;
use archipelago_platform::machine::Machine;
use archipelago_platform::topology::Topology;

use crate::failure::Failure;

/// Checks that the environment describes no impossible machine. Must come before anything that asks for the topology,
/// which could then only panic.
///
/// # Errors
/// If `ARCHIPELAGO_TOPOLOGY` has a value that is no topology, or `ARCHIPELAGO_HTM` one that it can't have.
pub fn check_environment() -> Result<(), Failure> {
    htm::from_env().map_err(Failure::new)?;
    Topology::from_env().map(drop).map_err(|error| Failure::new(format!("ARCHIPELAGO_TOPOLOGY: {error}")))
}

/// The machine in a few lines.
pub fn describe() -> String {
    Machine::detect().to_string().trim_end().to_owned()
}

//! `machine`: what the library detects of the machine, for people and for the head of reports.

use archipelago_platform::htm;
use archipelago_platform::machine::Machine;
use archipelago_platform::topology::Topology;

use crate::failure::Failure;

/// Checks that the environment variables describe a possible machine. Must be called before the topology is asked for,
/// since asking for an invalid topology panics.
///
/// # Errors
/// If `ARCHIPELAGO_TOPOLOGY` is no valid topology, or `ARCHIPELAGO_HTM` is no valid value.
pub fn check_environment() -> Result<(), Failure> {
    htm::from_env().map_err(Failure::new)?;
    Topology::from_env().map(drop).map_err(|error| Failure::new(format!("ARCHIPELAGO_TOPOLOGY: {error}")))
}

/// Returns a description of the machine in a few lines.
pub fn describe() -> String {
    Machine::detect().to_string().trim_end().to_owned()
}

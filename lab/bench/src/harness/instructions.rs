//! Charges instructions between accesses to shared memory. The virtual machine (a simulator) sees none of these
//! instructions. The file `instructions.toml` has the number of instructions for each contender's operations, and says
//! how they were counted; `sim --instructions` charges their time.
//!
//! The machine charges each access to shared memory itself, so one instruction per access is subtracted. The other
//! instructions take time, at a given number of instructions per cycle. All of the time is charged in one piece when
//! the operation ends: an operation that is repeated, or waits for other threads, is charged once.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use archipelago_sim::Machine;
use serde::Deserialize;

use crate::failure::Failure;

/// Cycles of a first-level cache hit in all presets. They give the length of a machine's cycle.
const HIT_CYCLES: f64 = 4.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counted {
    contender: BTreeMap<String, Operations>,
}

/// Instructions and accesses of operations that read, and of operations that update.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operations {
    read: Operation,
    update: Operation,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operation {
    instructions: f64,
    /// Accesses to shared memory.
    accesses: f64,
}

static COUNTED: LazyLock<Counted> =
    LazyLock::new(|| toml::from_str(include_str!("instructions.toml")).expect("the file in the source is right"));

/// Nanoseconds that the instructions of a read and of an update take, without their accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    read: u64,
    update: u64,
}

impl Charge {
    /// Returns the charge for a contender's operations at this many instructions per cycle.
    ///
    /// # Errors
    /// If its instructions were not counted.
    pub fn of(name: &str, machine: &Machine, per_cycle: f64) -> Result<Charge, Failure> {
        let Operations { read, update } = COUNTED.contender.get(name).ok_or_else(|| {
            let known: Vec<&str> = COUNTED.contender.keys().map(String::as_str).collect();
            Failure::new(format!("--instructions: those of {name} were not counted; counted are {}", known.join(", ")))
        })?;
        let cycle = machine.latency.l1 / HIT_CYCLES;
        let [read, update] = [read, update].map(|operation| {
            ((operation.instructions - operation.accesses).max(0.0) / per_cycle * cycle).round() as u64
        });
        Ok(Charge { read, update })
    }

    /// Returns the charge for an update, or for a read.
    pub fn ns(self, updates: bool) -> u64 {
        if updates { self.update } else { self.read }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_charged_what_is_no_access() {
        let machine = Machine::preset("xeon-e5-2650v3-2s").unwrap();
        for (name, operations) in &COUNTED.contender {
            let charge = Charge::of(name, &machine, 1.0).unwrap();
            for (updates, operation) in [(false, &operations.read), (true, &operations.update)] {
                let cycles = operation.instructions - operation.accesses;
                assert!(cycles > 0.0 && operation.accesses >= 1.0, "{name}: an access is an instruction");
                // The charge is the time of these cycles at 2.3 GHz, within half a nanosecond.
                assert!((charge.ns(updates) as f64 - cycles / 2.3).abs() <= 0.5, "{name}");
            }
            let half = Charge::of(name, &machine, 2.0).unwrap();
            assert!(charge.ns(true).abs_diff(2 * half.ns(true)) <= 1, "twice as many in a cycle take half as long");
        }
        let failure = Charge::of("unheard-of", &machine, 1.0).unwrap_err().to_string();
        assert!(failure.contains("were not counted; counted are"), "{failure}");
    }
}

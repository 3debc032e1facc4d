//! Charges instructions between accesses to shared memory. The virtual machine (a simulator) sees none of these
//! instructions. The file `instructions.toml` has the number of instructions for each contender's operations, and says
//! how they were counted; `sim --instructions` charges their time.
//!
//! The machine charges each access to shared memory itself, so one instruction per access is subtracted. The other
//! instructions take time, at a given number of instructions per cycle. All of the time is charged in one piece when
//! the operation ends: an operation that is repeated, or waits for other threads, is charged once, and every scan is
//! charged as one of average length.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use archipelago_sim::Machine;
use serde::Deserialize;

use crate::failure::Failure;
use crate::workload::OpKind;

/// Cycles of a first-level cache hit in all presets. They give the length of a machine's cycle.
const HIT_CYCLES: f64 = 4.0;

/// Each experiment's table: contenders' operations.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    euno: Table,
    ints: Table,
    emails: Table,
}

type Table = BTreeMap<String, Operations>;

/// Instructions and accesses of each kind of operation. An experiment without scans, or without inserts apart from
/// updates, has none of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operations {
    read: Operation,
    update: Operation,
    insert: Option<Operation>,
    scan: Option<Operation>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Operation {
    instructions: f64,
    /// Accesses to shared memory.
    accesses: f64,
}

static TABLES: LazyLock<Tables> =
    LazyLock::new(|| toml::from_str(include_str!("instructions.toml")).expect("the file in the source is right"));

/// An experiment whose instructions were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// `euno`, workload `ycsb`.
    Euno,
    /// `ycsb`, integer keys.
    Ints,
    /// `ycsb`, e-mail addresses.
    Emails,
}

impl Counted {
    fn table(self) -> &'static Table {
        match self {
            Counted::Euno => &TABLES.euno,
            Counted::Ints => &TABLES.ints,
            Counted::Emails => &TABLES.emails,
        }
    }
}

/// The instructions that are charged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instructions {
    /// How many of them a cycle executes.
    pub per_cycle: f64,
    /// The experiment.
    pub counted: Counted,
}

/// Nanoseconds that the instructions of each kind of operation take, without their accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    read: u64,
    update: u64,
    insert: u64,
    scan: u64,
}

impl Charge {
    /// Returns the charge for a contender's operations.
    ///
    /// # Errors
    /// If its instructions were not counted.
    pub fn of(name: &str, machine: &Machine, instructions: Instructions) -> Result<Charge, Failure> {
        let table = instructions.counted.table();
        let counts = table.get(name).ok_or_else(|| {
            let known: Vec<&str> = table.keys().map(String::as_str).collect();
            Failure::new(format!("--instructions: those of {name} were not counted; counted are {}", known.join(", ")))
        })?;
        let cycle = machine.latency.l1 / HIT_CYCLES;
        let ns = |operation: Operation| {
            let cycles = (operation.instructions - operation.accesses).max(0.0) / instructions.per_cycle;
            (cycles * cycle).round() as u64
        };
        let [insert, scan] = [counts.insert, counts.scan].map(|operation| operation.map_or(0, ns));
        Ok(Charge { read: ns(counts.read), update: ns(counts.update), insert, scan })
    }

    /// Returns the charge for an operation of this kind.
    pub fn ns(self, kind: OpKind) -> u64 {
        match kind {
            OpKind::Read => self.read,
            OpKind::Update => self.update,
            OpKind::Insert => self.insert,
            OpKind::Scan => self.scan,
            OpKind::Modify => self.read + self.update,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_charged_what_is_no_access() {
        let machine = Machine::preset("xeon-e5-2650v3-2s").unwrap();
        for counted in [Counted::Euno, Counted::Ints, Counted::Emails] {
            let at = |name: &str, per_cycle| Charge::of(name, &machine, Instructions { per_cycle, counted });
            for (name, operations) in counted.table() {
                let charge = at(name, 1.0).unwrap();
                let Operations { read, update, insert, scan } = operations;
                assert_eq!((insert.is_some(), scan.is_some()), (counted != Counted::Euno, counted != Counted::Euno));
                let kinds = [
                    (OpKind::Read, Some(*read)),
                    (OpKind::Update, Some(*update)),
                    (OpKind::Insert, *insert),
                    (OpKind::Scan, *scan),
                ];
                for (kind, operation) in kinds.into_iter().filter_map(|(kind, operation)| Some((kind, operation?))) {
                    let cycles = operation.instructions - operation.accesses;
                    assert!(cycles > 0.0 && operation.accesses >= 1.0, "{name}, {kind:?}: an access is an instruction");
                    // The charge is the time of these cycles at 2.3 GHz, within half a nanosecond.
                    assert!((charge.ns(kind) as f64 - cycles / 2.3).abs() <= 0.5, "{name}, {kind:?}");
                }
                assert_eq!(charge.ns(OpKind::Modify), charge.ns(OpKind::Read) + charge.ns(OpKind::Update));
                let half = at(name, 2.0).unwrap().ns(OpKind::Update);
                assert!(
                    charge.ns(OpKind::Update).abs_diff(2 * half) <= 1,
                    "twice as many in a cycle take half as long"
                );
            }
            let failure = at("unheard-of", 1.0).unwrap_err().to_string();
            assert!(failure.contains("were not counted; counted are"), "{failure}");
        }
    }
}

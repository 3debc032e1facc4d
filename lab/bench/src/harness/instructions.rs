//! Charges instructions between accesses to shared memory. The virtual machine (a simulator) sees none of these
//! instructions. The file `instructions.toml` has the number of instructions for each contender's operations, and says
//! how they were counted; `sim --instructions` charges their time.
//!
//! The machine charges each access to shared memory itself, so one instruction per access is subtracted. The other
//! instructions take time, at a given number of instructions per cycle. This time is distributed evenly over the
//! operation's accesses: after each access the thread works for its part. So instructions lengthen transactions and
//! critical sections as on a real machine, and an operation that is repeated, or scans more entries, executes more of
//! them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use archipelago_platform::SIMULATED;
use archipelago_sim::{Machine, world};
use serde::Deserialize;

use crate::failure::Failure;
use crate::workload::OpKind;

/// Cycles of a first-level cache hit in all presets. They give the length of a machine's cycle.
const HIT_CYCLES: f64 = 4.0;

/// Each experiment's table: contenders' operations.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Tables {
    euno: Table,
    ints: Table,
    emails: Table,
    pqueue: Table,
    dictionary: Table,
    sorted_set: Table,
    server: Table,
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
    /// `euno`, workload `ycsb`. The puts of `batches` are charged as its updates.
    Euno,
    /// `ycsb`, integer keys.
    Ints,
    /// `ycsb`, e-mail addresses.
    Emails,
    /// `nr`, workload `pqueue`.
    Queue,
    /// `nr`, workload `dictionary`.
    Dictionary,
    /// `nr`, workload `sorted-set`.
    SortedSet,
    /// `nr`, workload `server`.
    Server,
}

impl Counted {
    fn table(self) -> &'static Table {
        match self {
            Counted::Euno => &TABLES.euno,
            Counted::Ints => &TABLES.ints,
            Counted::Emails => &TABLES.emails,
            Counted::Queue => &TABLES.pqueue,
            Counted::Dictionary => &TABLES.dictionary,
            Counted::SortedSet => &TABLES.sorted_set,
            Counted::Server => &TABLES.server,
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

/// Picoseconds that a thread works after each access of an operation, by the operation's kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    read: u64,
    update: u64,
    insert: u64,
    scan: u64,
    modify: u64,
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
        let ps = |operation: Operation| {
            let between = (operation.instructions / operation.accesses - 1.0).max(0.0);
            (between / instructions.per_cycle * cycle * 1000.0).round() as u64
        };
        let [insert, scan] = [counts.insert, counts.scan].map(|operation| operation.map_or(0, ps));
        let modify = Operation {
            instructions: counts.read.instructions + counts.update.instructions,
            accesses: counts.read.accesses + counts.update.accesses,
        };
        Ok(Charge { read: ps(counts.read), update: ps(counts.update), insert, scan, modify: ps(modify) })
    }

    /// Returns the work after each access of an operation of this kind, in picoseconds.
    pub fn ps(self, kind: OpKind) -> u64 {
        match kind {
            OpKind::Read => self.read,
            OpKind::Update => self.update,
            OpKind::Insert => self.insert,
            OpKind::Scan => self.scan,
            OpKind::Modify => self.modify,
        }
    }

    /// Tells the virtual machine that the calling thread begins an operation of this kind.
    #[inline]
    pub fn begins(self, kind: OpKind) {
        if SIMULATED {
            world::pace(self.ps(kind));
        }
    }

    /// Tells the virtual machine that the calling thread's next accesses belong to no operation.
    #[inline]
    pub fn ends() {
        if SIMULATED {
            world::pace(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_charged_what_is_no_access() {
        let machine = Machine::preset("xeon-e5-2650v3-2s").unwrap();
        let of_nr = [Counted::Queue, Counted::Dictionary, Counted::SortedSet, Counted::Server];
        for counted in [Counted::Euno, Counted::Ints, Counted::Emails].into_iter().chain(of_nr) {
            let at = |name: &str, per_cycle| Charge::of(name, &machine, Instructions { per_cycle, counted });
            for (name, operations) in counted.table() {
                let charge = at(name, 1.0).unwrap();
                let Operations { read, update, insert, scan } = operations;
                let of_maps = [Counted::Ints, Counted::Emails].contains(&counted);
                // A hash table has no scans.
                assert_eq!((insert.is_some(), scan.is_some()), (of_maps, of_maps && name != "cuckoo-like"), "{name}");
                let kinds = [
                    (OpKind::Read, Some(*read)),
                    (OpKind::Update, Some(*update)),
                    (OpKind::Insert, *insert),
                    (OpKind::Scan, *scan),
                ];
                for (kind, operation) in kinds.into_iter().filter_map(|(kind, operation)| Some((kind, operation?))) {
                    let cycles = operation.instructions - operation.accesses;
                    assert!(cycles > 0.0 && operation.accesses >= 1.0, "{name}, {kind:?}: an access is an instruction");
                    // The charges of all accesses are the time of these cycles at 2.3 GHz, within half a picosecond each.
                    let all = charge.ps(kind) as f64 * operation.accesses;
                    assert!((all - cycles / 2.3e-3).abs() <= 0.5 * operation.accesses, "{name}, {kind:?}");
                }
                let [least, most] = [charge.read.min(charge.update), charge.read.max(charge.update)];
                assert!((least..=most).contains(&charge.ps(OpKind::Modify)), "{name}: a read, then an update");
                let half = at(name, 2.0).unwrap().ps(OpKind::Update);
                assert!(
                    charge.ps(OpKind::Update).abs_diff(2 * half) <= 1,
                    "twice as many in a cycle take half as long"
                );
            }
            let failure = at("unheard-of", 1.0).unwrap_err().to_string();
            assert!(failure.contains("were not counted; counted are"), "{failure}");
        }
    }
}

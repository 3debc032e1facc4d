//! The permitted values of a machine's numbers, and machines from TOML files.
//!
//! One list ([`Machine::numbers`]) contains every number with its range. The check uses it, and so does the code that
//! prints a machine.

use std::fmt;

use super::Machine;
use crate::memory::MAX_CORES;

/// The most lines of all caches of a level together. It limits the simulator's own memory, which is four bytes per
/// line.
const MAX_LINES: usize = 1 << 28;

/// One number of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// The field's name as in a file: `latency.l3`. An element of a list has its index: `latency.memory.1`.
    pub field: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The least allowed value.
    pub least: f64,
    /// The greatest allowed value.
    pub greatest: f64,
}

/// Why a machine is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError {
    /// The field that is wrong; empty if the file is not TOML.
    pub field: String,
    message: String,
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for MachineError {}

pub(super) fn error(field: impl Into<String>, message: impl Into<String>) -> MachineError {
    MachineError { field: field.into(), message: message.into() }
}

/// Returns the name of the field whose value is at a position of a TOML file.
fn field_at(text: &str, at: usize) -> String {
    let mut lines = text[..at.min(text.len())].lines().rev();
    let line = lines.by_ref().find(|line| line.contains('=')).unwrap_or_default();
    let table = lines.map(str::trim).find_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
    let key = |part: &str| part.split('=').next().unwrap_or_default().trim().to_string();
    let inner = line.contains('{').then(|| line.rsplit(['{', ',']).next().map(key)).flatten();
    [table.map(str::to_string), Some(key(line)), inner].into_iter().flatten().collect::<Vec<_>>().join(".")
}

impl Machine {
    /// Returns every number of the machine, with its name and range.
    pub fn numbers(&self) -> Vec<Number> {
        let mut numbers = Vec::new();
        let mut add = |field: &str, value: f64, unit, least, greatest| {
            numbers.push(Number { field: field.to_string(), value, unit, least, greatest });
        };
        add("sockets", self.sockets as f64, "", 1.0, 16.0);
        add("cores_per_socket", self.cores_per_socket as f64, "", 1.0, MAX_CORES as f64);
        add("threads_per_core", self.threads_per_core as f64, "", 1.0, 8.0);
        for (from, row) in self.hops.iter().enumerate() {
            for (to, &hops) in row.iter().enumerate() {
                let (least, greatest) = if from == to { (0.0, 0.0) } else { (1.0, 8.0) };
                add(&format!("hops.{from}.{to}"), f64::from(hops), "links", least, greatest);
            }
        }
        add("smt_slowdown", self.smt_slowdown, "times", 1.0, 8.0);
        add("overlap", self.overlap, "misses", 1.0, 64.0);
        for (name, cache) in [("l1", self.caches.l1), ("l2", self.caches.l2), ("l3", self.caches.l3)] {
            add(&format!("caches.{name}.sets"), cache.sets as f64, "", 1.0, f64::from(1 << 24));
            add(&format!("caches.{name}.ways"), cache.ways as f64, "", 1.0, 64.0);
        }
        let latency = &self.latency;
        for (name, value) in [("l1", latency.l1), ("l2", latency.l2), ("l3", latency.l3)] {
            add(&format!("latency.{name}"), value, "ns", 0.1, 1000.0);
        }
        add("latency.core_to_core", latency.core_to_core, "ns", 1.0, 10_000.0);
        for (name, list, first) in [
            ("dirty_remote", &latency.dirty_remote, 1),
            ("clean_remote", &latency.clean_remote, 1),
            ("memory", &latency.memory, 0),
        ] {
            for (hops, &value) in list.iter().enumerate().skip(first) {
                add(&format!("latency.{name}.{hops}"), value, "ns", 1.0, 10_000.0);
            }
        }
        for (name, value) in
            [("locked", latency.locked), ("fence", latency.fence), ("pause", latency.pause), ("clock", latency.clock)]
        {
            add(&format!("latency.{name}"), value, "ns", 0.1, 10_000.0);
        }
        let occupancy = &self.occupancy;
        add("occupancy.transfer", occupancy.transfer, "of the latency", 0.0, 4.0);
        for (name, value) in [
            ("hold", occupancy.hold),
            ("shared_read", occupancy.shared_read),
            ("memory", occupancy.memory),
            ("link", occupancy.link),
        ] {
            add(&format!("occupancy.{name}"), value, "ns", 0.0, 1000.0);
        }
        add("occupancy.local_bypass", f64::from(occupancy.local_bypass), "requests", 0.0, 100.0);
        add("occupancy.miss_buffers", occupancy.miss_buffers as f64, "", 1.0, 1000.0);
        if let Some(tx) = self.transactions {
            for (name, value) in [("begin", tx.begin), ("commit", tx.commit), ("abort", tx.abort)] {
                add(&format!("transactions.{name}"), value, "ns", 0.0, 10_000.0);
            }
            add("transactions.read_lines", tx.read_lines as f64, "lines", 1.0, f64::from(1 << 24));
            add("transactions.timer", tx.timer, "ns", 0.0, 1e12);
            add("transactions.spurious", tx.spurious, "ns", 0.0, 1e12);
        }
        add("os.call", self.os.call, "ns", 0.0, 1e6);
        add("os.wake", self.os.wake, "ns", 0.0, 1e9);
        numbers
    }

    /// Checks that the model can run on this machine.
    ///
    /// # Errors
    /// Returns the first field whose value is not permitted, with the permitted values.
    pub fn check(&self) -> Result<(), MachineError> {
        for Number { field, value, unit, least, greatest } in self.numbers() {
            if !(least..=greatest).contains(&value) {
                let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
                return Err(error(
                    &field,
                    format!("`{field}` is {value}; it must be from {least} to {greatest}{unit}"),
                ));
            }
        }
        if self.cores() > MAX_CORES {
            let (cores, most) = (self.cores(), MAX_CORES / self.sockets);
            let message = format!(
                "`cores_per_socket` makes {cores} cores; with {} sockets it must be from 1 to {most}",
                self.sockets
            );
            return Err(error("cores_per_socket", message));
        }
        let sockets = self.sockets;
        if self.hops.len() != sockets || self.hops.iter().any(|row| row.len() != sockets) {
            return Err(error("hops", format!("`hops` must have {sockets} rows of {sockets} numbers, one per socket")));
        }
        for (from, row) in self.hops.iter().enumerate() {
            for (to, &hops) in row.iter().enumerate() {
                let back = self.hops[to][from];
                if hops != back {
                    let message = format!("`hops.{from}.{to}` is {hops}; it must be {back}, as `hops.{to}.{from}`");
                    return Err(error(format!("hops.{from}.{to}"), message));
                }
            }
        }
        for (name, cache, count) in [
            ("l1", self.caches.l1, self.cores()),
            ("l2", self.caches.l2, self.cores()),
            ("l3", self.caches.l3, sockets),
        ] {
            let (field, most) = (format!("caches.{name}.sets"), MAX_LINES / (cache.ways * count));
            if cache.sets > most {
                let message = format!(
                    "`{field}` is {}; with {} ways in {count} caches it must be from 1 to {most}",
                    cache.sets, cache.ways
                );
                return Err(error(field, message));
            }
        }
        for (name, cache) in [("l1", self.caches.l1), ("l2", self.caches.l2)] {
            if !cache.sets.is_power_of_two() {
                let (field, sets) = (format!("caches.{name}.sets"), cache.sets);
                let message = format!("`{field}` is {sets}; it must be a power of two from 1 to {}", 1 << 24);
                return Err(error(field, message));
            }
        }
        let farthest = usize::from(self.hops.iter().flatten().copied().max().unwrap_or(0));
        for (name, list) in [
            ("dirty_remote", &self.latency.dirty_remote),
            ("clean_remote", &self.latency.clean_remote),
            ("memory", &self.latency.memory),
        ] {
            if list.len() <= farthest {
                let (field, least, has) = (format!("latency.{name}"), farthest + 1, list.len());
                let message =
                    format!("`{field}` has {has} numbers; it must have at least {least}, for 0 to {farthest} links");
                return Err(error(field, message));
            }
        }
        Ok(())
    }

    /// Makes a machine from the text of a TOML file, whose fields are those of [`Machine`]; times are in nanoseconds.
    ///
    /// # Errors
    /// Returns the first error in the text: a missing or unknown field, a value of the wrong type, or a value out of
    /// its range.
    pub fn from_toml(text: &str) -> Result<Machine, MachineError> {
        let machine: Machine = toml::from_str(text).map_err(|wrong| {
            // The library's message names a missing or unknown field in backticks. A message that begins with "invalid"
            // names the value instead, so the field is found by the position.
            let value = wrong.message().starts_with("invalid");
            let written = wrong.span().filter(|_| value).map(|span| field_at(text, span.start));
            let named = |field: &String| format!("`{field}`: ");
            let (prefix, named) = (written.as_ref().map_or(String::new(), named), wrong.message().split('`').nth(1));
            let field = written.unwrap_or(named.unwrap_or_default().to_string());
            let place = wrong.span().map_or(String::new(), |span| {
                let line = 1 + text[..span.start.min(text.len())].matches('\n').count();
                format!(" (line {line})")
            });
            error(field, format!("{prefix}{}{place}", wrong.message()))
        })?;
        machine.check()?;
        Ok(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("example.toml");

    fn wrong(from: &str, to: &str) -> MachineError {
        assert!(FILE.contains(from), "{from}");
        Machine::from_toml(&FILE.replacen(from, to, 1)).unwrap_err()
    }

    #[test]
    fn a_good_file_is_read() {
        let machine = Machine::from_toml(FILE).unwrap();
        assert_eq!((machine.sockets, machine.cpus()), (2, 32));
        assert_eq!(machine.latency.memory, [90.0, 150.0]);
        assert!(machine.transactions.is_none());
    }

    #[test]
    fn errors_name_the_field_and_the_range() {
        let error = wrong("l3 = 20.0", "l3 = -1.0");
        assert_eq!(error.field, "latency.l3");
        assert_eq!(error.to_string(), "`latency.l3` is -1; it must be from 0.1 to 1000 ns");
        let error = wrong("transfer = 0.7", "transfer = 7.0");
        assert_eq!(error.to_string(), "`occupancy.transfer` is 7; it must be from 0 to 4 of the latency");
        let error = wrong("memory = [90.0, 150.0]", "memory = [90.0]");
        assert_eq!(error.to_string(), "`latency.memory` has 1 numbers; it must have at least 2, for 0 to 1 links");
        assert_eq!(wrong("[[0, 1], [1, 0]]", "[[0, 1]]").field, "hops");
        assert_eq!(wrong("[[0, 1], [1, 0]]", "[[0, 1], [0, 0]]").field, "hops.1.0");
        assert_eq!(wrong("cores_per_socket = 8", "cores_per_socket = 200").field, "cores_per_socket");
        assert_eq!(wrong("l1 = { sets = 64", "l1 = { sets = 65").field, "caches.l1.sets");
        let error = wrong("l1 = { sets = 64", "l1 = { sets = 16777216");
        assert_eq!((error.field.as_str(), error.to_string().lines().count()), ("caches.l1.sets", 1));
        assert_eq!(wrong("[[0, 1], [1, 0]]", "[[0, 1], [2, 0]]").field, "hops.0.1");
    }

    #[test]
    fn values_of_a_wrong_kind_are_told_by_their_field() {
        for (from, to, field) in [
            ("sockets = 2", "sockets = -1", "sockets"),
            ("sockets = 2", "sockets = nan", "sockets"),
            ("l3 = 20.0", "l3 = \"20\"", "latency.l3"),
            ("memory = [90.0, 150.0]", "memory = [90.0, true]", "latency.memory"),
            ("[[0, 1], [1, 0]]", "[\n  [0, 1],\n  [300, 0]]", "hops"),
            ("l1 = { sets = 64", "l1 = { sets = -64", "caches.l1.sets"),
        ] {
            let error = wrong(from, to);
            assert_eq!(error.field, field);
            assert!(error.to_string().starts_with(&format!("`{field}`: invalid")), "{error}");
        }
    }

    #[test]
    fn unknown_and_missing_fields_are_named() {
        let error = wrong("threads_per_core = 2", "threads_per_score = 2");
        assert_eq!(error.field, "threads_per_score");
        assert!(error.to_string().contains("line 5"), "{error}");
        assert_eq!(wrong("pause = 40.0\n", "").field, "pause");
        assert!(Machine::from_toml("sockets = = 2").is_err());
    }
}

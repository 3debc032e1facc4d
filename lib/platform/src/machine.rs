//! A summary of the machine, for the command-line tool and for the heads of reports.

use core::fmt;

use crate::clock::{ClockKind, OrderedClock};
use crate::cpu::{self, Features};
use crate::htm;
use crate::memory;
use crate::topology::Topology;

/// The machine on which the process runs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The topology in use: [`Topology::current`].
    pub topology: Topology,
    /// The real topology, if the one in use is synthetic.
    pub real_topology: Option<Topology>,
    /// Features of the processor and the kernel.
    pub features: Features,
    /// The first CPU's caches, nearest first. Empty if the operating system does not report them.
    pub caches: Vec<Cache>,
    /// The kind of the ordered clock.
    pub clock_kind: ClockKind,
    /// The reason why the ordered clock is logical, if it is.
    pub clock_reason: Option<&'static str>,
    /// The ordered clock's uncertainty in ticks.
    pub clock_uncertainty: u64,
    /// The ordered clock's rate in ticks per microsecond, `None` for a logical clock.
    pub clock_ticks_per_microsecond: Option<f64>,
    /// Whether hardware transactions work, and the reason if not.
    pub transactions: htm::Support,
    /// Memory of the machine in bytes.
    pub memory_total: Option<u64>,
    /// Memory that is available without swapping, in bytes.
    pub memory_available: Option<u64>,
}

/// One cache of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size in bytes.
    pub bytes: u64,
    /// The number of CPUs that share the cache.
    pub shared_by: usize,
}

impl Machine {
    /// Collects the summary. The first call measures the ordered clock, which takes some milliseconds.
    ///
    /// # Panics
    /// If `ARCHIPELAGO_TOPOLOGY` or `ARCHIPELAGO_HTM` has an invalid value.
    pub fn detect() -> Machine {
        let topology = Topology::current().clone();
        let clock = OrderedClock::shared();
        Machine {
            real_topology: topology.is_synthetic().then(|| Topology::machine().clone()),
            topology,
            features: cpu::features().clone(),
            caches: caches(),
            clock_kind: clock.kind(),
            clock_reason: clock.why_logical(),
            clock_uncertainty: clock.uncertainty(),
            clock_ticks_per_microsecond: clock.ticks_per_microsecond(),
            transactions: htm::support(),
            memory_total: memory::total_bytes(),
            memory_available: memory::available_bytes(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "processor: {}", self.features)?;
        writeln!(f, "topology: {}", self.topology)?;
        writeln!(f, "hardware threads per core: {}", self.topology.threads_per_core())?;
        if let Some(real) = &self.real_topology {
            writeln!(f, "beneath it: {real}")?;
        }
        for Cache { level, kind, bytes, shared_by } in &self.caches {
            writeln!(f, "cache: L{level} {kind}, {} KiB, for {shared_by} CPU(s)", bytes >> 10)?;
        }
        write!(f, "clock: ")?;
        match (self.clock_kind, self.clock_ticks_per_microsecond) {
            (ClockKind::Hardware, Some(rate)) => {
                let (ticks, nanos) = (self.clock_uncertainty, self.clock_uncertainty as f64 * 1e3 / rate);
                writeln!(f, "processor's counter, {rate:.0} ticks/us, uncertainty {ticks} ticks ({nanos:.0} ns)")?;
            }
            _ => {
                let why = self.clock_reason.map_or(String::new(), |why| format!(": {why}"));
                writeln!(f, "logical (a shared counter){why}")?;
            }
        }
        writeln!(f, "hardware transactions: {}", self.transactions)?;
        let mebibytes =
            |bytes: Option<u64>| bytes.map_or("unknown".to_string(), |bytes| format!("{} MiB", bytes >> 20));
        write!(f, "memory: {}, of which {} available", mebibytes(self.memory_total), mebibytes(self.memory_available))
    }
}

fn caches() -> Vec<Cache> {
    if cfg!(any(miri, not(target_os = "linux"))) {
        return Vec::new();
    }
    let mut caches: Vec<Cache> = (0..16).map_while(cache).collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// Returns the first CPU's cache to which Linux gives the number `index`.
fn cache(index: usize) -> Option<Cache> {
    let read = |file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
        std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
    };
    let sharers = |map: String| map.chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum::<u32>();
    Some(Cache {
        level: read("level")?.parse().ok()?,
        kind: read("type")?,
        bytes: read("size")?.strip_suffix('K')?.parse::<u64>().ok()? << 10,
        shared_by: read("shared_cpu_map").map_or(1, sharers) as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_everything() {
        let text = Machine::detect().to_string();
        for part in ["processor:", "topology:", "node 0", "clock:", "hardware transactions: ", "memory:"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }
}

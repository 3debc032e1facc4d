//! Measures this machine, and makes a machine of the model (the simulator's description of a machine) from the results.

use archipelago_platform::memory::available_bytes;
use archipelago_platform::topology::CpuId;
use archipelago_platform::{cpu, htm};
use archipelago_sim::Machine;
use archipelago_sim::machine::PRESETS;

use super::effort::Effort;
use super::memory::{self, Loads};
use super::places::{Core, Places, cache};
use super::{lines, own};
use crate::failure::Failure;

/// A machine, and measurements for which the model has no number.
pub struct Calibrated {
    /// The machine.
    pub machine: Machine,
    /// One sentence for each such measurement, without a full stop.
    pub beside: Vec<String>,
}

/// Measures this machine. `say` is called with the name of each part when it begins.
///
/// # Errors
/// If a thread cannot be started or pinned to its CPU, or if a number is outside the model's range.
pub fn measure(places: &Places, loads: Loads, effort: Effort, say: impl Fn(&str)) -> Result<Calibrated, Failure> {
    let mut draft = Draft::new(places, loads, effort);
    say("caches and memory …");
    draft.caches();
    draft.chains()?;
    say("what one core does …");
    draft.own()?;
    say("lines that cores hand over …");
    draft.within_a_group()?;
    draft.between_groups()?;
    say("memory that many cores read …");
    draft.controllers()?;
    draft.complete()
}

/// Returns the preset that is most similar to this machine: first by the processor's maker, then by the number of
/// sockets, then by the number of cores per socket. The preset `this-host` is not considered.
fn nearest(model: &str, places: &Places) -> Machine {
    let distance = |machine: &Machine| {
        let maker = if machine.name.starts_with("epyc") { "AMD" } else { "Intel" };
        let (sockets, cores) = (places.groups.len(), places.cores_per_group());
        (!model.contains(maker), machine.sockets.abs_diff(sockets), machine.cores_per_socket.abs_diff(cores))
    };
    let presets = PRESETS.iter().filter(|name| **name != "this-host").filter_map(|name| Machine::preset(name));
    presets.min_by_key(distance).expect("there are presets")
}

/// A machine whose numbers are being measured. At first they are the preset's.
struct Draft<'a> {
    places: &'a Places,
    loads: Loads,
    effort: Effort,
    preset: Machine,
    machine: Machine,
    beside: Vec<String>,
    /// The nanoseconds of a locked increment of a line that is in the core's first-level cache.
    increment: f64,
}

/// The range to which measured times are limited, in nanoseconds: what the model allows for most of its times.
const TIMES: (f64, f64) = (0.1, 10_000.0);

/// Rounds to hundredths; further digits are noise.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn time(ns: f64, least: f64) -> f64 {
    rounded(ns.clamp(least.max(TIMES.0), TIMES.1))
}

impl<'a> Draft<'a> {
    fn new(places: &'a Places, loads: Loads, effort: Effort) -> Self {
        let model = &cpu::features().model;
        let preset = nearest(model, places);
        let model = if model.is_empty() { "unknown processor" } else { model };
        let (sockets, cores_per_socket) = (places.groups.len(), places.cores_per_group());
        let threads_per_core = places.threads_per_core.min(8);
        let name = format!("{model}, {sockets} x {cores_per_socket} x {threads_per_core}, calibrated");
        let machine =
            Machine { name, sockets, cores_per_socket, threads_per_core, hops: places.hops.clone(), ..preset.clone() };
        let mut draft = Draft { places, loads, effort, preset, machine, beside: Vec::new(), increment: 0.0 };
        draft.machine.sources.clear();
        draft.note("sockets", "the kernel: groups of cores that share a third level and a node");
        let all: usize = places.groups.iter().map(Vec::len).sum();
        draft.note(
            "cores_per_socket",
            &format!("the kernel: {all} cores in all; the model has 256 at the most, as many in each group"),
        );
        draft.note("threads_per_core", "the kernel");
        draft.note("hops", "the kernel: ranks of its distances, with one link more between groups of a node");
        draft
    }

    /// Records how a number, or all numbers of a list or table, were measured.
    fn note(&mut self, field: &str, how: &str) {
        self.machine.sources.insert(field.to_owned(), format!("measured: {how}"));
    }

    fn first(&self) -> Core {
        self.places.groups[0][0]
    }

    fn caches(&mut self) {
        let caches = &mut self.machine.caches;
        for (level, into) in [("1", &mut caches.l1), ("2", &mut caches.l2), ("3", &mut caches.l3)] {
            if let Some(found) = cache(self.places.groups[0][0].cpu, level) {
                *into = found;
                self.machine.sources.insert(format!("caches.l{level}"), "measured: the kernel".to_owned());
            }
        }
    }

    /// Returns `bytes`, limited to the effort's largest buffer and a quarter of the available memory; at least 1 MiB.
    fn room(&self, bytes: usize) -> usize {
        let available = available_bytes().map_or(usize::MAX, |bytes| bytes as usize / 4);
        bytes.min(self.effort.largest).min(available).max(1 << 20)
    }

    fn chain(&self, reader: CpuId, home: Core, bytes: usize) -> Result<f64, Failure> {
        memory::chain(reader, home, bytes, self.loads, self.effort)
    }

    fn chains(&mut self) -> Result<(), Failure> {
        let (home, caches) = (self.first(), self.machine.caches);
        let (l1, l2, l3) = (caches.l1.bytes(), caches.l2.bytes(), caches.l3.bytes());
        let sizes = [l1 / 2, l2 / 2, (4 * l2).min(l3 / 2)];
        let mut least = TIMES.0;
        for (level, bytes) in sizes.into_iter().enumerate() {
            least = time(self.chain(home.cpu, home, bytes)?, least).min(1000.0);
            let latency = &mut self.machine.latency;
            *[&mut latency.l1, &mut latency.l2, &mut latency.l3][level] = least;
            self.note(
                &format!("latency.l{}", level + 1),
                &format!("a chain of dependent loads over {} KiB", bytes >> 10),
            );
        }
        let bytes = self.room((4 * l3).max(256 << 20));
        for hops in 0..=self.places.farthest() {
            let pair = if hops == 0 { Some((0, 0)) } else { self.places.pair(hops) };
            let Some((from, to)) = pair else { continue };
            let (reader, home) = (self.places.groups[from][0], self.places.groups[to][0]);
            let ns = time(self.chain(reader.cpu, home, bytes)?, least.max(1.0));
            put(&mut self.machine.latency.memory, hops, ns);
            let how =
                format!("a chain of dependent loads over {} MiB, misses of address translation in it", bytes >> 20);
            self.note(&format!("latency.memory.{hops}"), &how);
        }
        let group = memory::neighbours(home, bytes, self.effort)?;
        let most = self.machine.occupancy.miss_buffers as f64;
        self.machine.overlap = rounded(overlap(self.machine.latency.memory[0], group, most));
        let how = "neighbouring lines of memory take together, where each group's address depends on the group before";
        self.note("overlap", &format!("{group:.0} ns that {} {how}; {most} at most", memory::GROUP));
        Ok(())
    }

    fn own(&mut self) -> Result<(), Failure> {
        let found = own::own(self.first().cpu, self.effort)?;
        self.increment = found.increment;
        let latency = &mut self.machine.latency;
        latency.locked = time(found.increment - latency.l1, TIMES.0);
        latency.fence = time(found.fence, TIMES.0);
        latency.pause = time(found.pause, TIMES.0);
        latency.clock = time(found.clock, TIMES.0);
        self.machine.os.call = rounded(found.call.clamp(0.0, 1e6));
        self.note("latency.locked", "an increment of a line that the core has, less a first-level hit");
        self.note("latency.fence", "a store and a full fence");
        self.note("latency.pause", "one turn");
        self.note("latency.clock", "one reading");
        self.note("os.call", "yielding to nobody");
        if let Some(siblings) = self.places.siblings {
            self.machine.smt_slowdown = rounded(own::slowdown(siblings, self.effort)?.clamp(1.0, 8.0));
            self.note(
                "smt_slowdown",
                "four chains of multiplications and first-level loads, on one and on two hardware threads",
            );
        }
        let cpus = self.places.cpus(|_| true);
        if let [first, second, ..] = cpus[..] {
            self.machine.os.wake = rounded(own::wake([first, second], self.effort)?);
            self.note("os.wake", "a parked thread on another core, from the call to its first instruction, median");
        }
        Ok(())
    }

    fn within_a_group(&mut self) -> Result<(), Failure> {
        let cpus: Vec<CpuId> = self.places.groups[0].iter().map(|core| core.cpu).collect();
        let [first, second, ..] = cpus[..] else { return Ok(()) };
        let transfer = time(lines::ping_pong([first, second], self.effort)?, 1.0);
        self.machine.latency.core_to_core = transfer;
        self.note("latency.core_to_core", "one way of a line that goes back and forth by compare-and-exchange");
        let all = lines::increments(&cpus, self.effort)?;
        self.machine.occupancy.hold = rounded(hold(transfer, self.increment, all));
        self.note(
            "occupancy.hold",
            &format!("increments of one line by {} cores, {all:.1} ns from one to the next", cpus.len()),
        );
        self.beside.push(rate("increments of one line by all cores of a group", cpus.len(), all));
        if cpus.len() > 2 {
            let [two, more] = [&cpus[..2], &cpus[..]].map(|cpus| lines::broadcast(cpus, self.effort));
            let (two, more) = (two?, more?);
            self.machine.occupancy.shared_read = rounded(((more - two) / (cpus.len() - 2) as f64).clamp(0.0, 1000.0));
            let how = format!("a store is seen by 1 reader after {two:.0} ns, by {} after {more:.0}", cpus.len() - 1);
            self.note("occupancy.shared_read", &how);
        }
        Ok(())
    }

    fn between_groups(&mut self) -> Result<(), Failure> {
        for hops in 1..=self.places.farthest() {
            let Some((from, to)) = self.places.pair(hops) else { continue };
            let (here, there) = (self.places.groups[from][0].cpu, &self.places.groups[to]);
            let ns = time(lines::ping_pong([here, there[0].cpu], self.effort)?, 1.0);
            put(&mut self.machine.latency.dirty_remote, hops, ns);
            let how = "one way of a line that goes back and forth by compare-and-exchange";
            self.note(&format!("latency.dirty_remote.{hops}"), how);
            if let [writer, witness, ..] = there[..] {
                let ns = time(lines::unchanged([here, writer.cpu, witness.cpu], self.effort)?, 1.0);
                put(&mut self.machine.latency.clean_remote, hops, ns);
                let how = "a chain of loads of lines that one core there has written and another one has read";
                self.note(&format!("latency.clean_remote.{hops}"), how);
            }
        }
        let all = self.places.cpus(|_| true);
        if self.places.groups.len() > 1 {
            let increment = lines::increments(&all, self.effort)?;
            self.beside.push(rate("increments of one line by all cores", all.len(), increment));
            let seen = lines::broadcast(&all, self.effort)?;
            self.beside.push(format!(
                "a store has been seen by the other {} cores after {seen:.0} ns (median)",
                all.len() - 1
            ));
        }
        Ok(())
    }

    fn controllers(&mut self) -> Result<(), Failure> {
        let home = self.first();
        let stream = |cpus: &[CpuId]| {
            let bytes = (2 * self.machine.caches.l3.bytes() / cpus.len()).clamp(8 << 20, 64 << 20);
            memory::stream(cpus, home, self.room(bytes * cpus.len()) / cpus.len(), self.effort)
        };
        let near = self.places.cpus(|core| core.node == home.node);
        let groups = self.places.groups.iter().filter(|group| group[0].node == home.node).count();
        let line = stream(&near)?;
        let others = self.places.cpus(|core| core.node != home.node);
        let from_others = (!others.is_empty()).then(|| stream(&others)).transpose()?;
        // For the link, only the cores of the nearest other node read, so that the lines cross the links of one pair of
        // nodes.
        let beyond = (1..=self.places.farthest()).filter_map(|hops| self.places.pair(hops)).find_map(|(from, to)| {
            let [a, b] = [from, to].map(|group| self.places.groups[group][0].node);
            (a == home.node && b != a).then(|| self.places.cpus(|core| core.node == b))
        });
        let link = beyond.map(|cpus| Ok::<_, Failure>((cpus.len(), stream(&cpus)?))).transpose()?;
        // A node's memory controllers serve all of its groups. In the model each group has a memory of its own, so each
        // gets its part of the node's bandwidth.
        self.machine.occupancy.memory = rounded((line * groups as f64).clamp(0.01, 1000.0));
        let how = "which is more than the controller takes where they are too few to keep it busy";
        self.note(
            "occupancy.memory",
            &format!("{} cores of a node of {groups} group(s) read its memory, {how}", near.len()),
        );
        if let Some((cores, ns)) = link {
            self.machine.occupancy.link = rounded(ns.clamp(0.01, 1000.0));
            let how = "which is more than the link takes where they are too few to keep it busy";
            self.note("occupancy.link", &format!("{cores} cores of another node read a node's memory, {how}"));
        }
        if let Some(ns) = from_others {
            self.beside.push(format!(
                "{} cores of all other nodes read lines of one node's memory, {ns:.2} ns from one to the next",
                others.len()
            ));
        }
        Ok(())
    }

    /// Completes the machine: numbers that were not measured stay those of the preset, and get a source that says so.
    /// Lists by number of hops are extended by their last number. If transactions do not work on this machine, the
    /// result has none; if they do and the preset has none, they are those of `xeon-8180-4s`.
    fn complete(mut self) -> Result<Calibrated, Failure> {
        if !htm::support().works() {
            self.machine.transactions = None;
        } else if self.machine.transactions.is_none() {
            self.machine.transactions = Machine::preset("xeon-8180-4s").and_then(|machine| machine.transactions);
        }
        let (latency, farthest) = (&mut self.machine.latency, usize::from(self.places.farthest()));
        for list in [&mut latency.dirty_remote, &mut latency.clean_remote, &mut latency.memory] {
            let last = list.last().copied().expect("every preset's list has a number");
            list.resize(list.len().max(farthest + 1), last);
        }
        let name = &self.preset.name;
        for number in self.machine.numbers() {
            if self.machine.source(&number.field).is_none() {
                let there = self.preset.source(&number.field).unwrap_or("its last number");
                let source = format!("guessed: as preset {name}, where it is: {there}");
                self.machine.sources.insert(number.field, source);
            }
        }
        self.machine.check().map_err(|error| Failure::new(format!("the model has no such machine: {error}")))?;
        Ok(Calibrated { machine: self.machine, beside: self.beside })
    }
}

/// Puts a time into a list that is indexed by the number of hops. A list that is too short is filled up with this time.
fn put(list: &mut Vec<f64>, hops: u8, ns: f64) {
    let at = usize::from(hops);
    list.resize(list.len().max(at + 1), ns);
    list[at] = ns;
}

fn rate(what: &str, cores: usize, ns: f64) -> String {
    format!("{what} ({cores}): {:.1} million a second", 1000.0 / ns)
}

/// Returns how many misses a core overlaps, at most `most`, if one miss takes `alone` and a group of neighbouring lines
/// takes `group`. From a group's third miss on, the model charges `alone` divided by this number.
fn overlap(alone: f64, group: f64, most: f64) -> f64 {
    let further = (group - 2.0 * alone) / (memory::GROUP - 2) as f64;
    if further <= 0.0 { most } else { (alone / further).clamp(1.0, most) }
}

/// Returns for how long a core keeps a line for which others wait (the *hold*), in nanoseconds. A transfer takes
/// `transfer`, an increment by a core that has the line takes `own`, and `apart` is the measured time between
/// successive increments while several cores increment the line. Each time that a core gets the line, it makes one
/// increment, and as many more as fit into the hold. So `apart` is (transfer + hold) / (1 + hold / own). The result is
/// the hold that solves this equation.
fn hold(transfer: f64, own: f64, apart: f64) -> f64 {
    let most = (8.0 * transfer).min(1000.0);
    let room = apart / own - 1.0;
    if room <= 0.0 { most } else { ((transfer - apart) / room).clamp(0.0, most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overlap_explains_a_group() {
        let further = (memory::GROUP - 2) as f64;
        assert_eq!(overlap(90.0, 2.0 * 90.0 + further * 30.0, 12.0), 3.0);
        assert_eq!(overlap(90.0, 150.0, 12.0), 12.0, "all at once");
        assert_eq!(overlap(90.0, 16.0 * 95.0, 12.0), 1.0, "one after the other");
    }

    #[test]
    fn the_hold_explains_contended_increments() {
        let (transfer, own, kept) = (120.0, 2.5, 85.0);
        let apart = (transfer + kept) / (1.0 + kept / own);
        assert!((hold(transfer, own, apart) - kept).abs() < 1e-6);
        assert_eq!(hold(50.0, 2.5, 50.0), 0.0, "as slow as transfers");
        assert_eq!(hold(50.0, 2.5, 2.5), 400.0, "no slower than alone");
    }
}

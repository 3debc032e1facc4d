//! Sensitivity sweeps: they show whether a simulated result holds under variations of the model (the numbers of the
//! simulated machine).
//!
//! A figure of one machine with one seed says little, since many of the machine's numbers are estimates and schedules
//! are random. [`sweep`] repeats a measurement under variations of the model, each with several seeds:
//! - all combinations of two properties: remote latencies are lower, unchanged or higher; occupancies (how long an
//!   access keeps others from a resource) are lower, unchanged or higher;
//! - then one number at a time is lower or higher: how many misses a core overlaps, how many requests overtake a
//!   remote one, the latency of transfers within a socket, the latency of the third level, and the slowdown of hardware
//!   threads that share a core.
//!
//! If instructions between accesses are charged, two more variations ([`Variation::of_charges`]) are of their number in
//! a cycle.
//!
//! A measured or published number varies by 20 %, a guessed number by 50 %
//! ([`Origin::spread`](crate::machine::Origin::spread)). [`Sweep::beats`] returns true only if one program is better
//! than another in every variation with every seed.

use crate::config::Config;
use crate::machine::{Machine, Number, Origin};

/// One variation of the model. All fields are multiples of a number's spread (20 or 50 % of the number): -1 subtracts
/// the spread, 0 leaves the number unchanged, 1 adds the spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variation {
    /// Latencies of accesses that cross a link. No varied latency is less than the latency of the same access within
    /// the socket, unless it is less on the unvaried machine.
    pub remote: f64,
    /// All occupancies.
    pub occupancy: f64,
    /// [`Machine::overlap`], which is at least 1.
    pub overlap: f64,
    /// [`Occupancy::local_bypass`](crate::machine::Occupancy::local_bypass).
    pub bypass: f64,
    /// Transfers between cores of a socket.
    pub core_to_core: f64,
    /// The third level's latency.
    pub l3: f64,
    /// The slowdown of hardware threads that share a core: the excess of [`Machine::smt_slowdown`] over 1 varies.
    pub smt: f64,
    /// How many instructions a cycle executes, if the program charges instructions: a guess.
    pub instructions: f64,
}

/// The variation that leaves the machine unchanged.
const AS_IT_IS: Variation = Variation {
    remote: 0.0,
    occupancy: 0.0,
    overlap: 0.0,
    bypass: 0.0,
    core_to_core: 0.0,
    l3: 0.0,
    smt: 0.0,
    instructions: 0.0,
};

const WAYS: [f64; 3] = [-1.0, 0.0, 1.0];

impl Variation {
    /// Returns all variations of a sweep.
    pub fn all() -> impl Iterator<Item = Variation> {
        let with = |remote| WAYS.map(|occupancy| Variation { remote, occupancy, ..AS_IT_IS });
        let far = WAYS.into_iter().flat_map(with);
        let overlap = [-1.0, 1.0].map(|overlap| Variation { overlap, ..AS_IT_IS });
        let bypass = [-1.0, 1.0].map(|bypass| Variation { bypass, ..AS_IT_IS });
        let core_to_core = [-1.0, 1.0].map(|core_to_core| Variation { core_to_core, ..AS_IT_IS });
        let l3 = [-1.0, 1.0].map(|l3| Variation { l3, ..AS_IT_IS });
        let smt = [-1.0, 1.0].map(|smt| Variation { smt, ..AS_IT_IS });
        far.chain(overlap).chain(bypass).chain(core_to_core).chain(l3).chain(smt)
    }

    /// Returns the variations that a sweep has besides, if the program charges instructions.
    pub fn of_charges() -> impl Iterator<Item = Variation> {
        [-1.0, 1.0].map(|instructions| Variation { instructions, ..AS_IT_IS }).into_iter()
    }

    /// Returns by what factor the number of instructions in a cycle varies.
    pub fn of_instructions(&self) -> f64 {
        1.0 + self.instructions * Origin::Guessed.spread()
    }

    /// Returns the varied machine.
    pub fn of(&self, machine: &Machine) -> Machine {
        let factor = |field: &str, way: f64| 1.0 + way * machine.origin(field).spread();
        let mut varied = machine.clone();
        let (latency, local) = (&mut varied.latency, &machine.latency);
        for (name, list, near) in [
            ("dirty_remote", &mut latency.dirty_remote, local.core_to_core),
            ("clean_remote", &mut latency.clean_remote, local.l3),
            ("memory", &mut latency.memory, local.memory[0]),
        ] {
            for (hops, time) in list.iter_mut().enumerate().skip(1) {
                *time = (*time * factor(&format!("latency.{name}.{hops}"), self.remote)).max(near.min(*time));
            }
        }
        varied.overlap = (machine.overlap * factor("overlap", self.overlap)).max(1.0);
        latency.core_to_core *= factor("latency.core_to_core", self.core_to_core);
        latency.l3 *= factor("latency.l3", self.l3);
        // A core's hardware threads never make each other faster.
        varied.smt_slowdown = 1.0 + (machine.smt_slowdown - 1.0) * factor("smt_slowdown", self.smt);
        let occupancy = &mut varied.occupancy;
        let bypass = f64::from(occupancy.local_bypass) * factor("occupancy.local_bypass", self.bypass);
        occupancy.local_bypass = bypass.round() as u8;
        for (name, time) in [
            ("transfer", &mut occupancy.transfer),
            ("hold", &mut occupancy.hold),
            ("shared_read", &mut occupancy.shared_read),
            ("memory", &mut occupancy.memory),
            ("link", &mut occupancy.link),
        ] {
            *time *= factor(&format!("occupancy.{name}"), self.occupancy);
        }
        varied
    }

    /// Returns the numbers of a machine that at least one variation changes, in the order of [`Machine::numbers`].
    pub fn changed(machine: &Machine) -> Vec<Number> {
        let varied: Vec<Vec<Number>> = Self::all().map(|variation| variation.of(machine).numbers()).collect();
        let is_changed = |at: usize, number: &Number| varied.iter().any(|numbers| numbers[at].value != number.value);
        machine
            .numbers()
            .into_iter()
            .enumerate()
            .filter(|(at, number)| is_changed(*at, number))
            .map(|it| it.1)
            .collect()
    }
}

/// The figures measured in one variation, one per seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The variation.
    pub variation: Variation,
    /// One figure per seed; the first is for [`Config::seed`].
    pub values: Vec<f64>,
}

/// The figures of all variations and seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The cells, in the order of [`Variation::all`].
    pub cells: Vec<Cell>,
}

/// Measures every variation of `machine` with `seeds` seeds each, from `config.seed` on. `measure` runs the simulation
/// and returns its figure; a greater figure is better.
///
/// # Panics
/// If `seeds` is 0.
pub fn sweep(machine: &Machine, config: &Config, seeds: u64, measure: impl Fn(&Machine, &Config) -> f64) -> Sweep {
    assert!(seeds > 0, "a sweep needs a seed");
    let cell = |variation: Variation| {
        let machine = variation.of(machine);
        let with = |seed| Config { seed, ..config.clone() };
        let values = (0..seeds).map(|k| measure(&machine, &with(config.seed.wrapping_add(k)))).collect();
        Cell { variation, values }
    };
    Sweep { cells: Variation::all().map(cell).collect() }
}

impl Sweep {
    /// Returns all figures, ascending.
    fn sorted(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.cells.iter().flat_map(|cell| cell.values.iter().copied()).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// Returns the median of all figures (the upper one of two).
    pub fn median(&self) -> f64 {
        let values = self.sorted();
        values[values.len() / 2]
    }

    /// Returns the smallest and the largest figure.
    pub fn range(&self) -> (f64, f64) {
        let values = self.sorted();
        (values[0], values[values.len() - 1])
    }

    /// Returns this sweep's figures divided by another sweep's, figure by figure.
    ///
    /// # Panics
    /// If the sweeps have different numbers of seeds.
    pub fn ratio(&self, other: &Sweep) -> Sweep {
        let divided = |(a, b): (&Cell, &Cell)| {
            assert_eq!(a.values.len(), b.values.len(), "both sweeps need the same seeds");
            let values = a.values.iter().zip(&b.values).map(|(a, b)| a / b).collect();
            Cell { variation: a.variation, values }
        };
        Sweep { cells: self.cells.iter().zip(&other.cells).map(divided).collect() }
    }

    /// Returns whether every figure is greater than the other sweep's figure for the same variation and seed.
    ///
    /// # Panics
    /// As [`ratio`](Self::ratio).
    pub fn beats(&self, other: &Sweep) -> bool {
        self.ratio(other).range().0 > 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset() -> Machine {
        Machine::preset("xeon-8180-8s").unwrap()
    }

    #[test]
    fn variations_change_what_they_should() {
        let mut machine = preset();
        assert_eq!((Variation::all().count(), Variation::of_charges().count()), (19, 2));
        let same = AS_IT_IS;
        assert!(Variation::all().any(|variation| variation == same));
        assert_eq!(same.of(&machine), machine);
        machine.sources.insert("latency.memory.2".to_string(), "measured: here".to_string());
        machine.sources.insert("occupancy.link".to_string(), "guessed: by me".to_string());
        let varied = Variation {
            remote: 1.0,
            occupancy: -1.0,
            overlap: 1.0,
            bypass: -1.0,
            core_to_core: 0.5,
            l3: -1.0,
            smt: 1.0,
            ..AS_IT_IS
        }
        .of(&machine);
        let is = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value} {expected}");
        is(varied.latency.memory[0], machine.latency.memory[0]);
        is(varied.latency.memory[2], machine.latency.memory[2] * 1.2);
        is(varied.latency.dirty_remote[1], machine.latency.dirty_remote[1] * 1.5);
        is(varied.overlap, 12.0);
        assert_eq!((machine.occupancy.local_bypass, varied.occupancy.local_bypass), (4, 2));
        is(varied.latency.core_to_core, machine.latency.core_to_core * 1.1);
        is(varied.latency.l3, machine.latency.l3 * 0.8);
        is(varied.smt_slowdown, 1.75);
        is(varied.occupancy.link, machine.occupancy.link * 0.5);
        is(varied.occupancy.transfer, machine.occupancy.transfer * 0.8);
        let fields = [
            |v: &Variation| v.remote,
            |v: &Variation| v.occupancy,
            |v: &Variation| v.overlap,
            |v: &Variation| v.bypass,
            |v: &Variation| v.core_to_core,
            |v: &Variation| v.l3,
            |v: &Variation| v.smt,
        ];
        for field in fields {
            assert!(Variation::all().any(|v| field(&v) < 0.0) && Variation::all().any(|v| field(&v) > 0.0));
        }
        for name in crate::machine::PRESETS {
            let machine = Machine::preset(name).unwrap();
            Variation::all().for_each(|variation| variation.of(&machine).check().unwrap());
        }
    }

    /// A remote access does not become faster than a local one, and hardware threads that share a core do not become
    /// faster by sharing it, and a core makes at least one miss at a time.
    #[test]
    fn a_variation_leaves_the_machine_one_that_could_be() {
        let machine = preset();
        let least = Variation { remote: -1.0, smt: -1.0, ..AS_IT_IS }.of(&machine);
        assert!(machine.latency.memory[1] * 0.5 < machine.latency.memory[0], "the preset shows it");
        assert_eq!(least.latency.memory[1], machine.latency.memory[0]);
        let alone = Machine { smt_slowdown: 1.0, ..machine };
        assert_eq!(Variation { smt: -1.0, ..AS_IT_IS }.of(&alone), alone);
        let serial = Machine { overlap: 1.0, ..alone };
        assert_eq!(Variation { overlap: -1.0, ..AS_IT_IS }.of(&serial), serial);
    }

    #[test]
    fn what_a_sweep_changes_is_told() {
        let changed: Vec<String> = Variation::changed(&preset()).into_iter().map(|number| number.field).collect();
        assert_eq!(
            changed,
            [
                "smt_slowdown",
                "overlap",
                "latency.l3",
                "latency.core_to_core",
                "latency.dirty_remote.1",
                "latency.dirty_remote.2",
                "latency.clean_remote.1",
                "latency.clean_remote.2",
                "latency.memory.1",
                "latency.memory.2",
                "occupancy.transfer",
                "occupancy.shared_read",
                "occupancy.memory",
                "occupancy.link",
                "occupancy.local_bypass",
            ]
        );
    }

    #[test]
    fn one_lost_cell_is_no_victory() {
        let figure =
            |machine: &Machine, config: &Config| machine.overlap + machine.latency.memory[1] + config.seed as f64;
        let config = Config { seed: 10, ..Config::default() };
        let a = sweep(&preset(), &config, 5, figure);
        assert_eq!(a.cells.len() * a.cells[0].values.len(), 95);
        assert_eq!(a.cells[0].values[4] - a.cells[0].values[0], 4.0);
        let b = sweep(&preset(), &config, 5, |machine, config| figure(machine, config) - 0.1);
        assert!(a.beats(&b) && !b.beats(&a) && !a.beats(&a));
        let c = sweep(&preset(), &config, 5, |machine, config| {
            let lucky = config.seed == 12 && machine.occupancy.link < 3.5;
            figure(machine, config) - if lucky { -0.1 } else { 0.1 }
        });
        assert!(!a.beats(&c) && !c.beats(&a));
        assert_eq!(a.ratio(&a).range(), (1.0, 1.0));
        assert!(a.range().0 < a.median() && a.median() < a.range().1);
    }
}

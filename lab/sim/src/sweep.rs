//! Sensitivity sweeps: they show whether a result holds under variations of the model.
//!
//! A figure of one machine with one seed means little, since the machine's numbers are estimates and schedules are
//! random. [`sweep`] repeats a measurement under variations of the model. The first ones are all combinations of three:
//! misses overlap or do not; remote latencies are unchanged, 30 % lower or higher; occupancies are unchanged, 50 %
//! lower or higher. Further variations change one thing at a time: transfers within a socket and its third level 30 %
//! faster and slower, and hardware threads that share a core 20 % faster and slower. Each variation is measured with
//! several seeds. [`Sweep::beats`] returns that one thing is better than another only if it is better in all variations
//! and seeds.

use crate::config::Config;
use crate::machine::Machine;

/// One variation of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variation {
    /// [`Config::overlap`].
    pub overlap: u32,
    /// The factor of all latencies of accesses that cross a link.
    pub remote: f64,
    /// The factor of all occupancies.
    pub occupancy: f64,
    /// The factor of transfers between cores of a socket.
    pub core_to_core: f64,
    /// The factor of the third level's latency.
    pub l3: f64,
    /// The factor by which the hardware threads of a core slow each other down; it never makes them faster.
    pub smt: f64,
}

/// The unvaried machine.
const AS_IT_IS: Variation = Variation { overlap: 3, remote: 1.0, occupancy: 1.0, core_to_core: 1.0, l3: 1.0, smt: 1.0 };

const OVERLAPS: [u32; 2] = [1, 3];
const REMOTE: [f64; 3] = [0.7, 1.0, 1.3];
const OCCUPANCY: [f64; 3] = [0.5, 1.0, 1.5];

impl Variation {
    /// Returns all variations of a sweep.
    pub fn all() -> impl Iterator<Item = Variation> {
        let with = |overlap, remote| OCCUPANCY.map(|occupancy| Variation { overlap, remote, occupancy, ..AS_IT_IS });
        let far = OVERLAPS
            .into_iter()
            .flat_map(move |overlap| REMOTE.into_iter().flat_map(move |remote| with(overlap, remote)));
        let core_to_core = [0.7, 1.3].map(|core_to_core| Variation { core_to_core, ..AS_IT_IS });
        let l3 = [0.7, 1.3].map(|l3| Variation { l3, ..AS_IT_IS });
        let smt = [0.8, 1.2].map(|smt| Variation { smt, ..AS_IT_IS });
        far.chain(core_to_core).chain(l3).chain(smt)
    }

    /// Returns the varied machine.
    pub fn of(&self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        let latency = &mut machine.latency;
        let far = |list: &mut Vec<f64>| list.iter_mut().skip(1).for_each(|time| *time *= self.remote);
        far(&mut latency.dirty_remote);
        far(&mut latency.clean_remote);
        far(&mut latency.memory);
        latency.core_to_core *= self.core_to_core;
        latency.l3 *= self.l3;
        machine.smt_slowdown = (machine.smt_slowdown * self.smt).max(1.0);
        let occupancy = &mut machine.occupancy;
        for time in [
            &mut occupancy.transfer,
            &mut occupancy.hold,
            &mut occupancy.shared_read,
            &mut occupancy.memory,
            &mut occupancy.link,
        ] {
            *time *= self.occupancy;
        }
        machine
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
        let with = |seed| Config { seed, overlap: variation.overlap, ..config.clone() };
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
        let machine = preset();
        assert_eq!(Variation::all().count(), 24);
        let same = AS_IT_IS;
        assert!(Variation::all().any(|variation| variation == same));
        assert_eq!(same.of(&machine), machine);
        let varied =
            Variation { overlap: 1, remote: 0.5, occupancy: 2.0, core_to_core: 0.9, l3: 2.0, smt: 0.8 }.of(&machine);
        assert_eq!(varied.latency.memory[0], machine.latency.memory[0]);
        assert_eq!(varied.latency.memory[2], machine.latency.memory[2] / 2.0);
        assert_eq!(varied.latency.core_to_core, machine.latency.core_to_core * 0.9);
        assert_eq!(varied.latency.l3, machine.latency.l3 * 2.0);
        assert_eq!(varied.smt_slowdown, machine.smt_slowdown * 0.8);
        let alone = Variation { smt: 0.1, ..AS_IT_IS }.of(&machine);
        assert_eq!(alone.smt_slowdown, 1.0);
        for field in [|v: &Variation| v.core_to_core, |v: &Variation| v.l3, |v: &Variation| v.smt] {
            assert!(Variation::all().any(|v| field(&v) < 1.0) && Variation::all().any(|v| field(&v) > 1.0));
        }
        assert_eq!(varied.occupancy.link, machine.occupancy.link * 2.0);
        Variation::all().for_each(|variation| variation.of(&machine).check().unwrap());
    }

    #[test]
    fn one_lost_cell_is_no_victory() {
        let figure = |machine: &Machine, config: &Config| {
            f64::from(config.overlap) + machine.latency.memory[1] + config.seed as f64
        };
        let config = Config { seed: 10, ..Config::default() };
        let a = sweep(&preset(), &config, 5, figure);
        assert_eq!(a.cells.len() * a.cells[0].values.len(), 120);
        assert_eq!(a.cells[0].values[4] - a.cells[0].values[0], 4.0);
        let b = sweep(&preset(), &config, 5, |machine, config| figure(machine, config) - 0.1);
        assert!(a.beats(&b) && !b.beats(&a) && !a.beats(&a));
        let c = sweep(&preset(), &config, 5, |machine, config| {
            let lucky = config.seed == 12 && config.overlap == 1 && machine.occupancy.link < 2.0;
            figure(machine, config) - if lucky { -0.1 } else { 0.1 }
        });
        assert!(!a.beats(&c) && !c.beats(&a));
        assert_eq!(a.ratio(&a).range(), (1.0, 1.0));
        assert!(a.range().0 < a.median() && a.median() < a.range().1);
    }
}

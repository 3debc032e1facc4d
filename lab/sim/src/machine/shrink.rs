//! Machines with smaller caches. A reduced experiment then has about the same part of its data in the caches as the
//! experiment of full size has in the full caches.

use super::{Cache, Machine, MachineError, check::error};

impl Machine {
    /// Returns the machine with caches of fewer sets: those of the second and third levels are divided by `factor`. The
    /// second level has a power of two of sets, rounded up, and holds as many lines as the first level at least.
    /// Latencies stay as they are. The name says the factor: `xeon-8180-4s, caches 1/32`. With a factor of 1 nothing
    /// changes.
    ///
    /// # Errors
    /// If `factor` is 0, or more than the sets of one of these levels.
    pub fn with_caches_divided(mut self, factor: usize) -> Result<Machine, MachineError> {
        let caches = &mut self.caches;
        let most = caches.l2.sets.min(caches.l3.sets);
        if !(1..=most).contains(&factor) {
            let message = format!("{factor} cannot divide {most} sets; it must be from 1 to {most}");
            return Err(error("caches", message));
        }
        if factor == 1 {
            return Ok(self);
        }
        let least = (caches.l1.sets * caches.l1.ways).div_ceil(caches.l2.ways);
        let sets = (caches.l2.sets / factor).max(least).next_power_of_two().min(caches.l2.sets);
        caches.l2 = Cache { sets, ..caches.l2 };
        caches.l3.sets /= factor;
        self.name += &format!(", caches 1/{factor}");
        for field in ["caches.l2.sets", "caches.l3.sets"] {
            if let Some(source) = self.source(field) {
                let source = format!("{source}; divided by {factor}");
                self.sources.insert(field.to_owned(), source);
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::PRESETS;

    fn preset() -> Machine {
        Machine::preset("xeon-8180-4s").unwrap()
    }

    #[test]
    fn the_second_and_the_third_level_are_divided_and_nothing_else() {
        let (full, small) = (preset(), preset().with_caches_divided(8).unwrap());
        assert_eq!((small.name.as_str(), small.caches.l1), ("xeon-8180-4s, caches 1/8", full.caches.l1));
        assert_eq!(small.caches.l2, Cache { sets: 128, ways: 16 });
        assert_eq!(small.caches.l3.bytes() * 8, full.caches.l3.bytes());
        assert!(small.source("caches.l3.sets").unwrap().ends_with("not inclusive; divided by 8"));
        let (name, caches, sources) = (full.name.clone(), full.caches, full.sources.clone());
        assert_eq!(Machine { name, caches, sources, ..small }, full);
        assert_eq!(preset().with_caches_divided(1).unwrap(), full);
    }

    #[test]
    fn the_second_level_is_a_power_of_two_and_no_smaller_than_the_first() {
        for (factor, sets) in [(2, 512), (3, 512), (20, 64), (32, 32), (33, 32), (1024, 32)] {
            let small = preset().with_caches_divided(factor).unwrap();
            assert_eq!((small.caches.l2.sets, small.caches.l3.sets), (sets, 2048 * 28 / factor), "{factor}");
        }
    }

    #[test]
    fn every_preset_with_smaller_caches_is_a_machine() {
        for name in PRESETS {
            for factor in [2, 7, 32, 512] {
                let small = Machine::preset(name).unwrap().with_caches_divided(factor).unwrap();
                small.check().unwrap();
                assert!(small.caches.l2.bytes() >= small.caches.l1.bytes(), "{name}, 1/{factor}");
            }
        }
    }

    #[test]
    fn no_cache_is_divided_by_nothing_or_into_nothing() {
        for factor in [0, 1025] {
            let error = preset().with_caches_divided(factor).unwrap_err().to_string();
            assert!(error.contains("from 1 to 1024"), "{error}");
        }
    }
}

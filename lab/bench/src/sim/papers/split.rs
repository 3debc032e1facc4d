//! Finds the number of the model on which an unresolved ordering depends.
//!
//! The sweep varies two numbers against each other: the latency of links, and the occupancies. If an ordering is so in nearly all cells on one side of such a number, or in nearly none, and in far
//! fewer or more cells on another side, then the number decides the ordering in this model.

use archipelago_sim::Variation;

use super::verdict::nearly_all;

/// The least difference between two sides' parts of cells for which a number counts as deciding.
const FAR: f64 = 0.5;

/// Cells that share a value of a number: the value in words, how many cells are so, and how many there are.
type Side = (&'static str, usize, usize);

/// Returns a sentence about the number that decides an ordering, and `None` if no single number does. `so` tells for
/// each cell whether it has the ordering; cells are in the order of the variations, with equally many for each.
pub fn decided_by(variations: &[Variation], so: &[bool]) -> Option<String> {
    let seeds = so.len().checked_div(variations.len())?;
    let cells = || variations.iter().flat_map(|variation| vec![variation; seeds]).zip(so);
    let side = |name, is: &dyn Fn(&Variation) -> bool| -> Side {
        let with = || cells().filter(|(variation, _)| is(variation));
        (name, with().filter(|(_, so)| **so).count(), with().count())
    };
    let numbers = [
        vec![
            side("with links faster than the preset's", &|it| it.remote < 0.0),
            side("as fast", &|it| it.remote == 0.0),
            side("slower", &|it| it.remote > 0.0),
        ],
        vec![
            side("with occupancies less than the preset's", &|it| it.occupancy < 0.0),
            side("equal", &|it| it.occupancy == 0.0),
            side("more", &|it| it.occupancy > 0.0),
        ],
    ];
    let found = numbers.iter().filter(|sides| decides(sides)).max_by(|a, b| spread(a).total_cmp(&spread(b)))?;
    let text: Vec<String> = found.iter().map(|(name, so, all)| format!("{so} of {all} {name}")).collect();
    Some(format!("so in {}", text.join(", ")))
}

fn decides(sides: &[Side]) -> bool {
    let is_clear = |(_, so, all): &Side| *all > 0 && (nearly_all(*so, *all) || nearly_all(all - so, *all));
    sides.iter().any(is_clear) && spread(sides) >= FAR
}

/// Returns the difference between the greatest and the least part of a side's cells that are so.
fn spread(sides: &[Side]) -> f64 {
    let parts = || sides.iter().filter(|side| side.2 > 0).map(|(_, so, all)| *so as f64 / *all as f64);
    parts().fold(0.0, f64::max) - parts().fold(1.0, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Variation> {
        Variation::all().collect()
    }

    fn found(is: impl Fn(&Variation) -> bool) -> Option<String> {
        decided_by(&all(), &all().iter().map(is).collect::<Vec<_>>())
    }

    #[test]
    fn one_number_decides() {
        let links = found(|it| it.remote < 0.0);
        assert_eq!(
            links.as_deref(),
            Some("so in 3 of 3 with links faster than the preset's, 0 of 13 as fast, 0 of 3 slower")
        );
        let occupancy = found(|it| it.occupancy > 0.0 || it.l3 > 0.0);
        assert!(occupancy.unwrap().ends_with("1 of 13 equal, 3 of 3 more"));
    }

    #[test]
    fn what_two_numbers_decide_is_not_told() {
        assert_eq!(found(|it| (it.remote > 0.0) == (it.occupancy > 0.0)), None);
        assert_eq!(found(|_| true), None);
        assert_eq!(decided_by(&[], &[]), None);
    }

    /// The cells of a variation's seeds are neighbours.
    #[test]
    fn seeds_are_neighbours() {
        let so: Vec<bool> = all().iter().flat_map(|it| [it.remote < 0.0; 3]).collect();
        assert!(decided_by(&all(), &so).unwrap().starts_with("so in 9 of 9 "));
    }
}

//! How well a machine's number is known. A sensitivity sweep varies a number less if it is known better.

use super::Machine;

/// Where a number comes from. The beginning of the number's source in a machine's file tells it: `measured: …` or
/// `calibrated: …` for a measured number, `published: …` for a published one, anything else for a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A program measured the number, on this machine or on one of its kind.
    Measured,
    /// A publication states the number, for this machine or one of its kind.
    Published,
    /// The number was neither measured nor published.
    Guessed,
}

impl Origin {
    /// Returns the origin that a source's text claims.
    pub fn of(source: &str) -> Origin {
        match source.split(':').next() {
            Some("measured" | "calibrated") => Origin::Measured,
            Some("published") => Origin::Published,
            _ => Origin::Guessed,
        }
    }

    /// Returns the part of the number by which a sweep increases and decreases it: 0.2 or 0.5.
    pub fn spread(self) -> f64 {
        match self {
            Origin::Measured | Origin::Published => 0.2,
            Origin::Guessed => 0.5,
        }
    }
}

impl Machine {
    /// Returns the source of a field's number. `field` is a name as in [`numbers`](Self::numbers). If the number has no
    /// source of its own, its list's or table's source is returned.
    pub fn source(&self, field: &str) -> Option<&str> {
        let mut name = field;
        loop {
            if let Some(source) = self.sources.get(name) {
                return Some(source);
            }
            name = name.rsplit_once('.')?.0;
        }
    }

    /// Returns the origin of a field's number; a number without a source is guessed.
    pub fn origin(&self, field: &str) -> Origin {
        self.source(field).map_or(Origin::Guessed, Origin::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_source_begins_says_its_origin() {
        for (source, origin) in [
            ("measured: lscpu", Origin::Measured),
            ("calibrated: on single words", Origin::Measured),
            ("published: Intel ARK", Origin::Published),
            ("estimate", Origin::Guessed),
            ("guessed: of preset xeon-8180-4s, measured: there", Origin::Guessed),
            ("a measured: value", Origin::Guessed),
        ] {
            assert_eq!(Origin::of(source), origin, "{source}");
        }
    }

    #[test]
    fn a_list_has_the_source_of_all_its_numbers() {
        let mut machine = Machine::preset("xeon-8180-4s").unwrap();
        machine.sources.clear();
        machine.sources.insert("latency.memory".to_string(), "measured: chains".to_string());
        machine.sources.insert("latency.memory.1".to_string(), "published: a book".to_string());
        let origins = ["latency.memory.0", "latency.memory.1", "latency.l3"].map(|field| machine.origin(field));
        assert_eq!(origins, [Origin::Measured, Origin::Published, Origin::Guessed]);
        assert_eq!((machine.source("latency.memory.2"), machine.source("os.call")), (Some("measured: chains"), None));
    }
}

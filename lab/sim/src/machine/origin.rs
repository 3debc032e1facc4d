//! How well a machine's number is known, and so how far a sweep goes to either side of it.

use super::Machine;

/// Where a number comes from. In a machine's file its source says so by how it begins: `measured: …` or `calibrated: …`,
/// `published: …`, anything else for a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A program measured it, on this machine or on one of its kind.
    Measured,
    /// A publication states it, of this machine or of one of its kind.
    Published,
    /// Neither.
    Guessed,
}

impl Origin {
    /// The origin that a source's text claims.
    pub fn of(source: &str) -> Origin {
        match source.split(':').next() {
            Some("measured" | "calibrated") => Origin::Measured,
            Some("published") => Origin::Published,
            _ => Origin::Guessed,
        }
    }

    /// What part of the number a sweep adds and takes away.
    pub fn spread(self) -> f64 {
        match self {
            Origin::Measured | Origin::Published => 0.2,
            Origin::Guessed => 0.5,
        }
    }
}

impl Machine {
    /// The source of a field's number, as [`numbers`](Self::numbers) names it: its own, else that of the list or the table
    /// which it is in.
    pub fn source(&self, field: &str) -> Option<&str> {
        let mut name = field;
        loop {
            if let Some(source) = self.sources.get(name) {
                return Some(source);
            }
            name = name.rsplit_once('.')?.0;
        }
    }

    /// The origin of a field's number; what has no source is guessed.
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

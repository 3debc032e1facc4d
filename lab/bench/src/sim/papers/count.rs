//! How many of a paper's claims have each verdict, as a line of its section.

use core::fmt;

/// How many claims have each verdict. A claim (an *ordering*) is a paper's statement that one side is ahead of another,
/// or that both are level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Claims that hold.
    pub hold: usize,
    /// Claims that are contradicted.
    pub contradicted: usize,
    /// Claims that are unresolved, and those without rows.
    pub unresolved: usize,
    /// How many of the unresolved claims have no rows.
    pub not_run: usize,
}

impl Count {
    /// Returns the number of all claims.
    pub fn all(&self) -> usize {
        self.hold + self.contradicted + self.unresolved
    }

    /// Parses the count from a section's text, where [`Display`](fmt::Display) wrote it.
    pub fn read(section: &str) -> Option<Count> {
        let line = section.lines().find(|line| line.starts_with(Self::BEGIN))?;
        let numbers: Vec<usize> =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
        let ([_, hold, contradicted, unresolved], not_run) = numbers.split_first_chunk()?;
        let (hold, contradicted, unresolved) = (*hold, *contradicted, *unresolved);
        Some(Count { hold, contradicted, unresolved, not_run: not_run.first().copied().unwrap_or(0) })
    }

    /// What the count begins with.
    pub const BEGIN: &str = "Orderings that the paper states: ";
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count { hold, contradicted, unresolved, not_run } = self;
        let begin = Self::BEGIN;
        write!(f, "{begin}{}; {hold} hold, {contradicted} are contradicted, {unresolved} unresolved", self.all())?;
        if *not_run > 0 {
            write!(f, ", of which {not_run} were not run")?;
        }
        f.write_str(".")
    }
}

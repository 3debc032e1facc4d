//! Whether an ordering that a paper states holds on the virtual machine.
//!
//! The model's numbers are estimates, so one run decides nothing: an ordering *holds* if it is so in every cell of the
//! sensitivity sweep, *does not hold* if it is so in none, and is *unresolved* otherwise, whatever the median says.

use core::fmt;

use super::data::Claim;

/// The sweep's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// So in every cell.
    Holds,
    /// So in no cell.
    DoesNotHold,
    /// So in some, or there was no sweep.
    Unresolved,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::Unresolved => "unresolved",
        })
    }
}

/// How a claim fared.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Of the sweep.
    pub verdict: Verdict,
    /// The ratio in every cell (of the sweep, else of the seeds), ascending.
    pub ratios: Vec<f64>,
    /// In how many cells it is as the paper says.
    pub so: usize,
    /// Whether the cells are a sweep's.
    pub swept: bool,
}

/// Judges a claim by the figures of both sides, cell by cell. A pair in which neither did anything says nothing, and
/// counts against the claim.
pub fn judge(claim: &Claim, ahead: &[f64], behind: &[f64], swept: bool) -> Finding {
    let mut ratios: Vec<f64> = ahead.iter().zip(behind).map(|(ahead, behind)| ahead / behind).collect();
    let is_so = |ratio: &&f64| match claim.within {
        Some(factor) => (1.0 / factor..=factor).contains(*ratio),
        None => **ratio > 1.0,
    };
    let is_not = |ratio: &&f64| if claim.within.is_some() { !is_so(ratio) } else { **ratio < 1.0 };
    let (so, not) = (ratios.iter().filter(is_so).count(), ratios.iter().filter(is_not).count());
    let cells = ratios.len();
    let verdict = match () {
        () if !swept || cells == 0 => Verdict::Unresolved,
        () if so == cells => Verdict::Holds,
        () if not == cells => Verdict::DoesNotHold,
        () => Verdict::Unresolved,
    };
    ratios.sort_by(f64::total_cmp);
    Finding { verdict, ratios, so, swept }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(within: Option<f64>) -> Claim {
        let (ahead, behind) = ("nr".to_owned(), "sl".to_owned());
        let (threads, behind_threads, ratio, reason) = (None, None, Some(8.0), String::new());
        Claim { ahead, threads, behind, behind_threads, ratio, within, reason }
    }

    fn verdict(within: Option<f64>, ahead: &[f64], behind: &[f64]) -> Verdict {
        judge(&claim(within), ahead, behind, true).verdict
    }

    #[test]
    fn an_ordering_needs_every_cell() {
        let behind = [1.0, 2.0, 3.0];
        assert_eq!(verdict(None, &[1.1, 2.1, 3.1], &behind), Verdict::Holds);
        assert_eq!(verdict(None, &[9.0, 9.0, 2.9], &behind), Verdict::Unresolved);
        assert_eq!(verdict(None, &[0.9, 1.9, 2.9], &behind), Verdict::DoesNotHold);
        // A draw is neither.
        assert_eq!(verdict(None, &[1.1, 2.0, 3.1], &behind), Verdict::Unresolved);
        assert_eq!(verdict(None, &[0.9, 2.0, 2.9], &behind), Verdict::Unresolved);
    }

    /// The paper's ratio is shown, and is no part of the verdict: factors are not results.
    #[test]
    fn less_than_the_ratio_is_no_defeat() {
        assert_eq!(verdict(None, &[1.01; 4], &[1.0; 4]), Verdict::Holds);
    }

    #[test]
    fn likeness_has_two_sides() {
        assert_eq!(verdict(Some(1.25), &[0.81, 1.2], &[1.0; 2]), Verdict::Holds);
        assert_eq!(verdict(Some(1.25), &[0.79, 1.2], &[1.0; 2]), Verdict::Unresolved);
        assert_eq!(verdict(Some(1.25), &[0.79, 1.3], &[1.0; 2]), Verdict::DoesNotHold);
    }

    #[test]
    fn what_did_nothing_proves_nothing() {
        assert_eq!(verdict(None, &[0.0, 2.0], &[0.0, 1.0]), Verdict::Unresolved);
        assert_eq!(verdict(None, &[], &[]), Verdict::Unresolved);
        assert_eq!(verdict(None, &[1.0, 2.0], &[0.0, 1.0]), Verdict::Holds);
    }

    #[test]
    fn without_a_sweep_nothing_is_resolved() {
        let found = judge(&claim(None), &[3.0, 2.0], &[1.0, 1.0], false);
        assert_eq!((found.verdict, found.so, found.ratios), (Verdict::Unresolved, 2, vec![2.0, 3.0]));
    }
}

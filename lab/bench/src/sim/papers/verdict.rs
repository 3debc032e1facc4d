//! Judges whether an ordering that a paper states holds on the virtual machine (a simulator).
//!
//! The model's numbers are estimates, so one run decides nothing. An ordering *holds* if it is true in all or nearly
//! all cells (the runs of the sensitivity sweep, which repeats a measurement under variations of the model). It is
//! *contradicted* if it is true in none or nearly none. Otherwise it is *unresolved*, whatever the median is, with one
//! exception: where in nearly all cells both sides are nearer to each other than to the lead that the paper states (see
//! [`LEVEL`] and [`LEAST_LEAD`]), the cells differ only in which side of a tie is a little ahead. Then the lead is
//! missing, and the ordering is contradicted.

use core::fmt;

use super::data::Claim;

/// The verdict of the sensitivity sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// True in at least the part [`NEARLY`] of all cells.
    Holds,
    /// Not true in at least the part [`NEARLY`] of all cells, or a tie in as many.
    Contradicted,
    /// True in some cells only, or there was no sweep.
    Unresolved,
}

/// The part of the cells that decides.
pub const NEARLY: f64 = 0.95;

/// Both sides are level where neither is ahead by more than this factor, and by more than the square root of the lead
/// that the paper states.
const LEVEL: f64 = 1.25;

/// The lead of an ordering for which the paper states none. It is the smallest for which any of the papers states one
/// (HydraList's search layer per node, section 4.5.3: 2.5 %).
const LEAST_LEAD: f64 = 1.025;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::Contradicted => "contradicted",
            Verdict::Unresolved => "unresolved",
        })
    }
}

/// The result of judging a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The verdict of the sweep.
    pub verdict: Verdict,
    /// The ratio of the two figures in every cell (of the sweep, or of the seeds if there was no sweep), ascending.
    pub ratios: Vec<f64>,
    /// The number of cells in which the claim is true.
    pub so: usize,
    /// True for each cell in which the claim holds.
    pub each: Vec<bool>,
    /// For orderings: the probability that chance gives a result that is at least as clear, for either side. By chance
    /// means that a fair coin decides in each cell which of the two contenders is ahead, or whether the lead is enough.
    /// Cells with equal figures do not count.
    pub chance: Option<f64>,
    /// Whether the claim is contradicted because both sides are level.
    pub level: bool,
    /// Whether the cells are those of a sweep.
    pub swept: bool,
}

/// Judges a claim by the figures of both sides, cell by cell. Equal figures are against an ordering. A cell in which both
/// are zero counts neither for an ordering nor against it. It counts against a claim that both sides are level.
pub fn judge(claim: &Claim, ahead: &[f64], behind: &[f64], swept: bool) -> Finding {
    let mut ratios: Vec<f64> = ahead.iter().zip(behind).map(|(ahead, behind)| ahead / behind).collect();
    let least = claim.least.unwrap_or(1.0);
    let is_so = |ratio: &&f64| match claim.within {
        Some(factor) if claim.or_better => **ratio >= 1.0 / factor,
        Some(factor) => is_level(**ratio, factor),
        None => **ratio > least,
    };
    let (so, cells) = (ratios.iter().filter(is_so).count(), ratios.len());
    let of_nothing = ratios.iter().filter(|ratio| claim.within.is_none() && ratio.is_nan()).count();
    let not = cells - so - of_nothing;
    let verdict = match () {
        () if !swept || cells == 0 => Verdict::Unresolved,
        () if nearly_all(so, cells) => Verdict::Holds,
        () if nearly_all(not, cells) || is_tie(claim, &ratios) => Verdict::Contradicted,
        () => Verdict::Unresolved,
    };
    let level = verdict == Verdict::Contradicted && !nearly_all(not, cells);
    let behind = ratios.iter().filter(|ratio| **ratio < least).count();
    let chance = claim.within.is_none().then(|| by_chance(so, behind));
    let each = ratios.iter().map(|ratio| is_so(&ratio)).collect();
    ratios.sort_by(f64::total_cmp);
    Finding { verdict, ratios, so, each, chance, level, swept }
}

/// Returns whether neither side is ahead by more than a factor.
fn is_level(ratio: f64, factor: f64) -> bool {
    (1.0 / factor..=factor).contains(&ratio)
}

/// Returns whether an ordering is a tie in nearly all cells.
fn is_tie(claim: &Claim, ratios: &[f64]) -> bool {
    let widest = claim.stated().unwrap_or(LEAST_LEAD).sqrt().min(LEVEL);
    let level = ratios.iter().filter(|ratio| is_level(**ratio, widest)).count();
    claim.within.is_none() && nearly_all(level, ratios.len())
}

/// Returns whether some of all cells are enough for a verdict.
pub fn nearly_all(some: usize, all: usize) -> bool {
    some as f64 >= NEARLY * all as f64
}

/// Returns [`Finding::chance`], for the numbers of cells in which the claim and its opposite are true. An equal pair is no
/// coin.
fn by_chance(so: usize, not: usize) -> f64 {
    (2.0 * at_least(so.max(not), so + not)).min(1.0)
}

/// Returns the probability that at least `heads` of `coins` thrown coins show heads.
fn at_least(heads: usize, coins: usize) -> f64 {
    (heads..=coins).map(|heads| exactly(heads, coins)).sum()
}

/// Returns the probability that `heads` of `coins` thrown coins show heads: the number of choices, halved once for each
/// coin. The product is halved as soon as it is above 1, since the number of choices alone, or the power of one half
/// alone, may be outside the range of floating-point numbers.
fn exactly(heads: usize, coins: usize) -> f64 {
    let mut halves = coins;
    let mut p = 1.0;
    for k in 0..heads {
        p = p * (coins - k) as f64 / (k + 1) as f64;
        while p > 1.0 && halves > 0 {
            (p, halves) = (p * 0.5, halves - 1);
        }
    }
    p * 0.5_f64.powi(halves as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(within: Option<f64>) -> Claim {
        let claim: Claim = toml::from_str("ahead = 'nr'\nbehind = 'sl'").unwrap();
        Claim { within, ..claim }
    }

    /// Returns a claim with a ratio that the paper states.
    fn stating(ratio: f64) -> Claim {
        Claim { ratio: Some(ratio), ..claim(None) }
    }

    fn verdict(within: Option<f64>, ahead: &[f64], behind: &[f64]) -> Verdict {
        judge(&claim(within), ahead, behind, true).verdict
    }

    #[test]
    fn an_ordering_needs_nearly_every_cell() {
        let behind = [1.0, 2.0, 3.0];
        assert_eq!(verdict(None, &[1.1, 2.1, 3.1], &behind), Verdict::Holds);
        assert_eq!(verdict(None, &[9.0, 9.0, 2.9], &behind), Verdict::Unresolved);
        assert_eq!(verdict(None, &[0.9, 1.9, 2.9], &behind), Verdict::Contradicted);
        // An equal pair is not ahead.
        assert_eq!(verdict(None, &[1.1, 2.0, 3.1], &behind), Verdict::Unresolved);
        assert_eq!(verdict(None, &[0.9, 2.0, 2.9], &behind), Verdict::Contradicted);
        assert_eq!(verdict(None, &behind, &behind), Verdict::Contradicted);
        let with = |so: usize| [vec![2.0; so], vec![0.5; 72 - so]].concat();
        for (so, is) in
            [(69, Verdict::Holds), (68, Verdict::Unresolved), (4, Verdict::Unresolved), (3, Verdict::Contradicted)]
        {
            assert_eq!(verdict(None, &with(so), &[1.0; 72]), is, "{so}");
        }
    }

    /// A lead of less than the factor contradicts the claim.
    #[test]
    fn a_small_lead_may_not_be_enough() {
        let scales = Claim { least: Some(1.25), ..claim(None) };
        let found = |ahead: &[f64]| judge(&scales, ahead, &vec![1.0; ahead.len()], true);
        assert_eq!([1.26, 1.25, 1.24, 0.5].map(|ahead| found(&[ahead]).so), [1, 0, 0, 0]);
        let verdict = |ahead: &[f64]| found(ahead).verdict;
        assert_eq!(verdict(&[1.26, 9.0, 2.0]), Verdict::Holds);
        assert_eq!(verdict(&[1.24, 1.1, 0.5]), Verdict::Contradicted);
        // Exactly the factor is not enough, as being level is not for an ordering.
        assert_eq!([verdict(&[1.26, 1.25]), verdict(&[1.24, 1.25])], [Verdict::Unresolved, Verdict::Contradicted]);
        assert_eq!(found(&[1.26, 1.24, 1.1, 1.25]).chance, Some(1.0));
        assert_eq!(found(&[1.24, 1.1, 1.2]).chance, Some(0.25));
    }

    #[test]
    fn what_costs_nothing_may_gain() {
        let no_worse = Claim { or_better: true, ..claim(Some(1.25)) };
        let verdict = |ahead| judge(&no_worse, &[ahead], &[1.0], true).verdict;
        assert_eq!([0.81, 1.0, 9.0].map(verdict), [Verdict::Holds; 3]);
        assert_eq!(verdict(0.79), Verdict::Contradicted);
    }

    #[test]
    fn chance_is_that_of_coins() {
        assert_eq!((at_least(0, 3), at_least(2, 3), at_least(3, 3)), (1.0, 0.5, 0.125));
        assert!((at_least(45, 72) - 0.0222).abs() < 1e-4, "{}", at_least(45, 72));
        let found = judge(&claim(None), &[0.5, 0.5, 2.0], &[1.0; 3], true);
        // Three coins always agree as clearly.
        assert_eq!((found.so, found.chance), (1, Some(1.0)));
        assert_eq!((by_chance(12, 12), by_chance(3, 0), by_chance(0, 3)), (1.0, 0.25, 0.25));
        assert!((by_chance(13, 11) - 0.8388).abs() < 1e-4 && (by_chance(8, 16) - 0.1516).abs() < 1e-4);
        assert_eq!(judge(&claim(Some(2.0)), &[1.0], &[1.0], true).chance, None);
        // A half to the power of 1,075 is no floating-point number.
        assert_eq!((by_chance(540, 540), by_chance(3_000, 3_000)), (1.0, 1.0));
        assert!((at_least(540, 1_080) - 0.512137).abs() < 1e-5 && (at_least(600, 1_080) - 1.4479e-04).abs() < 1e-7);
    }

    /// The paper's ratio does not decide where the order is clear: only the model's orderings count as results, not its
    /// factors.
    #[test]
    fn less_than_the_ratio_is_no_defeat() {
        assert_eq!(judge(&stating(8.0), &[1.01; 4], &[1.0; 4], true).verdict, Verdict::Holds);
    }

    /// Where both sides are level, the paper's lead is missing, whichever of them is a little ahead in a cell.
    #[test]
    fn a_tie_contradicts_a_lead() {
        let tie = |claim: &Claim, ahead: &[f64]| judge(claim, ahead, &vec![1.0; ahead.len()], true).verdict;
        let stated = |ahead: &[f64]| tie(&stating(8.0), ahead);
        assert_eq!(stated(&[0.81, 1.24, 1.0]), Verdict::Contradicted);
        // The order comes first: a small lead in every cell is the paper's order.
        assert_eq!(stated(&[1.01, 1.24, 1.1]), Verdict::Holds);
        assert_eq!([stated(&[0.79, 1.24, 1.1]), stated(&[0.81, 1.26, 1.1])], [Verdict::Unresolved; 2]);
        // Nearer to a tie than to the lead: a fifth more is no tie beside 1.3, and is one beside 2.
        let mixed = |claim: Claim| tie(&claim, &[0.9, 1.2]);
        assert_eq!([mixed(stating(1.3)), mixed(claim(None))], [Verdict::Unresolved; 2]);
        assert_eq!(mixed(stating(2.0)), Verdict::Contradicted);
        // A ratio is the paper's. A claim of this project has none.
        assert_eq!(mixed(Claim { ours: true, ..stating(2.0) }), Verdict::Unresolved);
        assert!(judge(&stating(2.0), &[0.9, 1.1], &[1.0; 2], true).level);
        assert!(!judge(&stating(2.0), &[0.9, 0.95], &[1.0; 2], true).level, "the order alone decides");
    }

    /// An ordering without a number is a lead, too, if a small one.
    #[test]
    fn a_near_tie_contradicts_any_order() {
        let found = |ahead: &[f64]| judge(&claim(None), ahead, &vec![1.0; ahead.len()], true).verdict;
        assert_eq!(found(&[0.99, 1.01, 1.0]), Verdict::Contradicted);
        assert_eq!([found(&[0.98, 1.01, 1.0]), found(&[0.99, 1.02, 1.0])], [Verdict::Unresolved; 2]);
        assert_eq!(found(&[1.001, 1.01, 1.002]), Verdict::Holds, "the order comes first");
    }

    #[test]
    fn likeness_has_two_sides() {
        assert_eq!(verdict(Some(1.25), &[0.81, 1.2], &[1.0; 2]), Verdict::Holds);
        assert_eq!(verdict(Some(1.25), &[0.79, 1.2], &[1.0; 2]), Verdict::Unresolved);
        assert_eq!(verdict(Some(1.25), &[0.79, 1.3], &[1.0; 2]), Verdict::Contradicted);
    }

    #[test]
    fn what_did_nothing_proves_nothing() {
        assert_eq!(verdict(None, &[0.0, 2.0], &[0.0, 1.0]), Verdict::Unresolved);
        assert_eq!(verdict(None, &[], &[]), Verdict::Unresolved);
        assert_eq!(verdict(None, &[1.0, 2.0], &[0.0, 1.0]), Verdict::Holds);
        let chance = |ahead: &[f64], behind: &[f64]| judge(&claim(None), ahead, behind, true).chance;
        assert_eq!(chance(&[0.0; 24], &[0.0; 24]), Some(1.0));
        // An equal pair is no coin.
        assert_eq!(chance(&[2.0, 1.0, 2.0], &[1.0; 3]), Some(0.5));
    }

    #[test]
    fn without_a_sweep_nothing_is_resolved() {
        let found = judge(&claim(None), &[3.0, 2.0], &[1.0, 1.0], false);
        assert_eq!((found.verdict, found.so, found.ratios), (Verdict::Unresolved, 2, vec![2.0, 3.0]));
    }
}

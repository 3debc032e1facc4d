//! Traces: sequences of keys that are requested from caches, and the most hits that any cache could have.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead};

use crate::random::{Random, scatter};

/// Returns a trace of keys that are drawn by Zipf's law, with any exponent. Each draw searches the cumulative sums of
/// the ranks' weights.
pub fn zipf(keys: u64, exponent: f64, length: usize, seed: u64) -> Vec<u64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        })
        .collect();
    let mut random = Random::new(seed, 0);
    let draw = |_| {
        let at = random.unit() * sum;
        scatter((sums.partition_point(|sum| *sum <= at) as u64).min(keys - 1), keys)
    };
    (0..length).map(draw).collect()
}

/// Returns a trace that requests all keys in order, repeatedly.
pub fn cycle(keys: u64, length: usize) -> Vec<u64> {
    (0..keys).cycle().take(length).collect()
}

/// Returns a trace of which half of the requests are for keys by Zipf's law. Runs of these requests alternate with
/// equally long runs of requests for keys that are requested only once.
pub fn scans(keys: u64, exponent: f64, length: usize, seed: u64) -> Vec<u64> {
    let popular = zipf(keys, exponent, length.div_ceil(2), seed);
    let mut fresh = keys..;
    let mut trace = Vec::with_capacity(length);
    for run in popular.chunks(1 + keys as usize / 10) {
        trace.extend_from_slice(run);
        trace.extend(fresh.by_ref().take(run.len()));
    }
    trace.truncate(length);
    trace
}

/// Reads a published trace. Each line is a request, whose first word is the key: a number or any other word.
///
/// # Errors
/// If the trace cannot be read.
pub fn read(lines: impl BufRead) -> io::Result<Vec<u64>> {
    let (mut numbers, mut trace) = (HashMap::new(), Vec::new());
    for line in lines.lines() {
        let line = line?;
        let Some(word) = line.split([',', ' ', '\t']).find(|word| !word.is_empty()) else { continue };
        let next = numbers.len() as u64;
        trace.push(*numbers.entry(word.to_owned()).or_insert(next));
    }
    Ok(trace)
}

/// Returns the hits of the optimal cache of `entries` entries, which knows the future requests. It evicts the key that
/// is requested latest in the future (Bélády, *A Study of Replacement Algorithms for a Virtual-Storage Computer*,
/// 1966). A new key that is requested later than all cached keys is not stored.
pub fn optimum(trace: &[u64], entries: usize) -> usize {
    let (mut next, mut later) = (vec![usize::MAX; trace.len()], HashMap::new());
    for (at, key) in trace.iter().enumerate().rev() {
        next[at] = later.insert(*key, at).unwrap_or(usize::MAX);
    }
    // The cached keys, ordered by their next request.
    let (mut kept, mut hits) = (BTreeSet::new(), 0);
    for (at, key) in trace.iter().enumerate() {
        hits += usize::from(kept.remove(&(at, *key)));
        kept.insert((next[at], *key));
        if kept.len() > entries {
            kept.pop_last();
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries every way to evict. Returns the most hits.
    fn tried(trace: &[u64], kept: &[u64], entries: usize) -> usize {
        let Some((key, rest)) = trace.split_first() else { return 0 };
        if kept.contains(key) {
            return 1 + tried(rest, kept, entries);
        }
        let with = |kept: &[u64]| [kept, &[*key]].concat();
        let refused = tried(rest, kept, entries);
        if kept.len() < entries {
            return refused.max(tried(rest, &with(kept), entries));
        }
        let without = |at: usize| [&kept[..at], &kept[at + 1..]].concat();
        (0..kept.len()).map(|at| tried(rest, &with(&without(at)), entries)).fold(refused, usize::max)
    }

    #[test]
    fn no_cache_finds_more_than_the_optimum() {
        let mut random = Random::new(3, 0);
        for _ in 0..200 {
            let trace: Vec<u64> = (0..10).map(|_| random.within(0, 4)).collect();
            assert_eq!(optimum(&trace, 2), tried(&trace, &[], 2), "{trace:?}");
        }
        assert_eq!(optimum(&cycle(10, 100), 10), 90);
    }

    #[test]
    fn traces_are_what_they_are_said_to_be() {
        assert_eq!(cycle(3, 7), [0, 1, 2, 0, 1, 2, 0]);
        let scans = scans(100, 1.2, 1000, 1);
        let fresh: Vec<u64> = scans.iter().copied().filter(|key| *key >= 100).collect();
        assert!(scans.len() == 1000 && fresh.is_sorted() && (400..600).contains(&fresh.len()), "{}", fresh.len());
        assert_eq!(read("a,1\nb 2\n\na\n".as_bytes()).unwrap(), [0, 1, 0]);
    }
}

//! Tests of streams: the proportions of operations, their keys, and that streams are reproducible.

use super::*;

const OPS: usize = 40_000;
const KEYS: u32 = 1000;

fn loaded() -> Vec<u32> {
    (0..KEYS).collect()
}

/// Returns keys that are not loaded.
fn fresh(count: usize) -> Vec<u32> {
    (KEYS..).take(count).collect()
}

fn make(workload: Workload, distribution: Distribution, fresh: &[u32], seed: u64) -> Stream<u32> {
    let made = stream(Draws::new(workload, distribution, &loaded(), fresh, seed), OPS);
    assert_eq!((made.ops.len(), made.keys.len()), (OPS, OPS));
    made
}

fn percent(made: &Stream<u32>, kind: OpKind) -> f64 {
    made.ops.iter().filter(|op| op.kind == kind).count() as f64 * 100.0 / OPS as f64
}

#[test]
fn mixes_are_those_of_ycsb() {
    let mixes: [(Workload, &[(OpKind, f64)]); 7] = [
        (Workload::A, &[(OpKind::Read, 50.0), (OpKind::Update, 50.0)]),
        (Workload::B, &[(OpKind::Read, 95.0), (OpKind::Update, 5.0)]),
        (Workload::C, &[(OpKind::Read, 100.0)]),
        (Workload::D, &[(OpKind::Read, 95.0), (OpKind::Insert, 5.0)]),
        (Workload::E, &[(OpKind::Scan, 95.0), (OpKind::Insert, 5.0)]),
        (Workload::F, &[(OpKind::Read, 50.0), (OpKind::Modify, 50.0)]),
        (Workload::Grow, &[(OpKind::Insert, 100.0)]),
    ];
    for (workload, mix) in mixes {
        let made = make(workload, Distribution::Uniform, &fresh(OPS), 3);
        for kind in [OpKind::Read, OpKind::Update, OpKind::Insert, OpKind::Scan, OpKind::Modify] {
            let wanted = mix.iter().find(|part| part.0 == kind).map_or(0.0, |part| part.1);
            let found = percent(&made, kind);
            // One percent is four standard deviations of a proportion of a half, and nine of a twentieth. Proportions
            // of 0 % and 100 % must be exact.
            let slack = if wanted == 0.0 || wanted == 100.0 { 0.0 } else { 1.0 };
            assert!((found - wanted).abs() <= slack, "{workload:?} has {found} % {kind:?}, should have {wanted}");
        }
    }
}

#[test]
fn scans_visit_1_to_100_entries_and_others_none() {
    let made = make(Workload::E, Distribution::Uniform, &fresh(OPS), 3);
    let scans = || made.ops.iter().filter(|op| op.kind == OpKind::Scan).map(|op| op.span);
    assert_eq!((scans().min(), scans().max()), (Some(1), Some(100)));
    let mean = scans().map(f64::from).sum::<f64>() / scans().count() as f64;
    assert!((mean - 50.5).abs() < 1.0, "{mean}");
    assert!(made.ops.iter().all(|op| op.kind == OpKind::Scan || op.span == 0));
}

#[test]
fn every_key_read_is_there_and_every_key_inserted_is_new() {
    let distributions = [Distribution::Uniform, Distribution::Zipf(0.99), Distribution::Latest, Distribution::Ycsb];
    for workload in [Workload::D, Workload::E, Workload::Grow] {
        for distribution in distributions {
            let fresh = fresh(OPS);
            let made = make(workload, distribution, &fresh, 3);
            let mut inserted = 0;
            for (op, key) in made.ops.iter().zip(&made.keys) {
                if op.kind == OpKind::Insert {
                    assert_eq!(*key, fresh[inserted], "fresh keys are inserted in turn");
                    inserted += 1;
                } else {
                    assert!(*key < KEYS || fresh[..inserted].contains(key), "{key} is not there yet");
                }
            }
        }
    }
}

#[test]
fn without_fresh_keys_inserts_become_what_the_rest_is() {
    let made = make(Workload::D, Distribution::Latest, &fresh(10), 3);
    assert_eq!(made.ops.iter().filter(|op| op.kind == OpKind::Insert).count(), 10);
    assert!((percent(&made, OpKind::Read) - 100.0).abs() < 0.1);
    assert_eq!(percent(&make(Workload::E, Distribution::Uniform, &[], 3), OpKind::Scan), 100.0);
}

#[test]
fn the_seed_decides() {
    for workload in [Workload::A, Workload::D, Workload::E] {
        for distribution in [Distribution::Zipf(0.99), Distribution::Ycsb] {
            let once = make(workload, distribution, &fresh(100), 3);
            assert_eq!(once, make(workload, distribution, &fresh(100), 3));
            assert_ne!(once, make(workload, distribution, &fresh(100), 4));
        }
    }
}

/// Returns how often each loaded key is read.
fn counts(distribution: Distribution) -> Vec<usize> {
    let mut counts = vec![0; KEYS as usize];
    make(Workload::C, distribution, &[], 3).keys.iter().for_each(|key| counts[*key as usize] += 1);
    counts
}

/// Returns the part of all draws that rank 1 has.
fn share_of_the_first(exponent: f64) -> f64 {
    1.0 / (1..=KEYS).map(|rank| f64::from(rank).powf(-exponent)).sum::<f64>()
}

#[test]
fn uniform_keys_are_all_alike() {
    let counts = counts(Distribution::Uniform);
    // The expected number is 40, with a standard deviation of 6.3.
    assert!(counts.iter().all(|count| (10..80).contains(count)), "{counts:?}");
}

/// A region gets its share, and its part of the uniform draws. If there are fewer items than keys of the region, all
/// items are in the region.
#[test]
fn a_hot_region_gets_its_share() {
    let mut rng = SmallRng::seed_from_u64(9);
    for (share, keys, items) in [(0.2, 256, 10_000), (0.99, 64, 10_000), (1.0, 1, 1_000), (0.5, 256, 100)] {
        let sampler = Sampler::new(Distribution::Hot(share, keys), items);
        let hot = keys.min(items);
        let region = (items - hot) / 2..(items - hot) / 2 + hot;
        let drawn: Vec<usize> = (0..OPS).map(|_| sampler.draw(&mut rng)).collect();
        assert!(drawn.iter().all(|item| *item < items));
        let found = drawn.iter().filter(|item| region.contains(item)).count() as f64 / OPS as f64;
        let expected = share + (1.0 - share) * hot as f64 / items as f64;
        assert!((found - expected).abs() < 0.02, "{share} of {items}: {found}, should be {expected}");
    }
}

#[test]
fn zipf_makes_few_keys_popular_and_scatters_them() {
    for exponent in [0.5, 0.99, 1.2] {
        let mut counts = counts(Distribution::Zipf(exponent));
        let places: Vec<usize> = (0..counts.len()).filter(|at| counts[*at] * 100 > OPS).collect();
        assert!(exponent < 0.9 || places.windows(2).any(|pair| pair[1] - pair[0] > 50), "{places:?} are near");
        counts.sort_unstable();
        let (found, expected) = (counts[counts.len() - 1] as f64 / OPS as f64, share_of_the_first(exponent));
        // The hash may map a second popular rank to the same key.
        assert!(found > 0.85 * expected && found < 2.0 * expected, "{exponent}: {found}, should be {expected}");
    }
}

/// The most popular key has its share of 10^10 ranks, whatever the number of keys; all keys are drawn.
#[test]
fn ycsb_draws_among_ten_billion_ranks() {
    const DRAWS: usize = 400_000;
    for keys in [1, 7, 1000, 200_000] {
        let (sampler, mut rng) = (Sampler::new(Distribution::Ycsb, keys), SmallRng::seed_from_u64(5));
        let mut counts = vec![0; keys];
        (0..DRAWS).for_each(|_| counts[sampler.draw(&mut rng)] += 1);
        let found = counts[scatter(0) % keys] as f64 / DRAWS as f64;
        // The other ranks are scattered, so each key has a part of them, too. A popular rank may be among a key's ranks
        // if there are few keys.
        let (first, part) = (1.0 / 26.469, 1.0 / keys as f64);
        let (least, most) = (first + (1.0 - first) * part * 0.3, first + (1.0 - first) * (part * 1.3).min(1.0));
        let slack = 6.0 * (first / DRAWS as f64).sqrt();
        assert!((least - slack..most + slack).contains(&found), "{keys}: {found} is not {least} to {most}");
        assert!(keys == 1 || counts.iter().max() > counts.iter().min(), "{keys}");
        assert!(keys > 1000 || counts.iter().all(|count| *count > 0), "{keys}");
    }
}

#[test]
fn latest_reads_the_last_ones_most() {
    let counts = counts(Distribution::Latest);
    let (found, expected) = (counts[counts.len() - 1] as f64 / OPS as f64, share_of_the_first(0.99));
    assert!((found / expected - 1.0).abs() < 0.1, "{found}, should be {expected}");
    let part = |at: core::ops::Range<usize>| counts[at].iter().sum::<usize>();
    assert!(part(900..1000) > 5 * part(0..100));
}

#[test]
fn threads_of_d_have_latest_keys_of_their_own() {
    let (loaded, mut most) = (loaded(), Vec::new());
    for thread in 0..4 {
        let draws = Draws::new(Workload::D, Distribution::Uniform, &loaded, &[], 3).of_thread(thread, 4);
        let made = stream(draws, OPS);
        let count = |key: u32| made.keys.iter().filter(|drawn| **drawn == key).count();
        most.push(*loaded.iter().max_by_key(|key| count(**key)).unwrap());
    }
    assert_eq!(most, [KEYS - 1, KEYS * 3 / 4 - 1, KEYS / 2 - 1, KEYS / 4 - 1]);
    let mut all: Vec<u32> =
        (0..loaded.len()).map(|age| *choose_key(Distribution::Latest, age, &loaded, loaded.len() / 3, &[])).collect();
    all.sort_unstable();
    assert_eq!(all, loaded, "a thread has each key once");
}

#[test]
fn d_reads_what_it_inserted_last() {
    // D draws the latest keys, whatever the distribution of the other workloads.
    let made = make(Workload::D, Distribution::Uniform, &fresh(OPS), 3);
    let (mut newest, mut hits, mut reads) = (KEYS - 1, 0, 0);
    for (op, key) in made.ops.iter().zip(&made.keys) {
        match op.kind {
            OpKind::Insert => newest = *key,
            _ => (hits, reads) = (hits + usize::from(*key == newest), reads + 1),
        }
    }
    let (found, expected) = (f64::from(hits as u32) / f64::from(reads as u32), share_of_the_first(0.99));
    assert!((found / expected - 1.0).abs() < 0.1, "{found}, should be {expected}");
}

#[test]
fn workloads_run_in_their_order_whatever_was_asked_for() {
    let parse = |list| Workload::parse_list(list).unwrap();
    assert_eq!(parse("e, A,load,a"), [Workload::Load, Workload::A, Workload::E]);
    assert_eq!(parse("all"), Workload::ALL);
    assert_eq!(parse("all,c"), Workload::ALL);
    assert_eq!(parse("f,d"), [Workload::F, Workload::D]);
    assert_eq!(parse("grow,load,e"), [Workload::Load, Workload::E, Workload::Grow]);
    for wrong in ["", "g", "a,,b", "a b"] {
        let sentence = Workload::parse_list(wrong).unwrap_err().to_string();
        assert!(sentence.contains("load, a, b, c, d, e, f, grow"), "{sentence}");
    }
}

#[test]
fn scans_are_an_eighth() {
    assert_eq!((Workload::E.share(80), Workload::E.share(81), Workload::E.share(1)), (10, 11, 1));
    assert_eq!((Workload::A.share(80), Workload::D.share(80)), (80, 80));
}

#[test]
fn distributions_are_read_as_they_are_shown() {
    for text in ["uniform", "latest", "ycsb", "zipf:0.99", "zipf:1.5", "hot:0.99:256", "hot:1:1"] {
        assert_eq!(Distribution::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(Distribution::parse("zipf").unwrap(), Distribution::Zipf(0.99));
    let of_zipf = ["zipf:", "zipf:0", "zipf:-1", "zipf:inf", "zipf:NaN"];
    for wrong in
        of_zipf.into_iter().chain(["", "normal", "hot", "hot:0.5", "hot:0:9", "hot:1.1:9", "hot:NaN:9", "hot:1:0"])
    {
        let sentence = Distribution::parse(wrong).unwrap_err().to_string();
        assert!(
            ["zipf:S", "hot:P:N", "uniform", "ycsb", "latest"].iter().all(|known| sentence.contains(known)),
            "{sentence}"
        );
    }
    assert_eq!(Distribution::parse_list("zipf:2, uniform").unwrap(), [Distribution::Zipf(2.0), Distribution::Uniform]);
    for wrong in ["uniform,latest", "ycsb", "uniform,", "normal"] {
        assert!(Distribution::parse_list(wrong).is_err(), "{wrong}");
    }
}

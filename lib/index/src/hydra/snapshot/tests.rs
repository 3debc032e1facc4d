//! Tests that compare snapshots with `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;

use super::runs::{Run, Runs};
use super::words::{Count, Counter, Scalar, flip};
use super::{Bytes, Snapshot, Word};

const HEAD: u64 = u64::MAX;

/// In these tests a page is a number.
impl super::Target for u64 {
    const STRIDE: usize = 1;

    fn addr(self) -> usize {
        self as usize
    }

    unsafe fn at(addr: usize) -> Self {
        addr as u64
    }
}

type Changes<K> = Vec<(K, u64)>;

/// Makes a snapshot of the anchors, in which each anchor leads to its own number.
fn words(anchors: &BTreeMap<u64, u64>) -> Snapshot<Word, u64> {
    Snapshot::build(None, HEAD, &anchors.iter().map(|(&anchor, &page)| (anchor, page)).collect::<Vec<_>>())
}

fn strings(anchors: &BTreeMap<Vec<u8>, u64>) -> Snapshot<Bytes, u64> {
    Snapshot::build(None, HEAD, &anchors.iter().map(|(anchor, &page)| (&anchor[..], page)).collect::<Vec<_>>())
}

fn number<K: Ord>(keys: impl IntoIterator<Item = K>) -> BTreeMap<K, u64> {
    let mut map: BTreeMap<K, u64> = keys.into_iter().map(|key| (key, 0)).collect();
    map.values_mut().zip(0..).for_each(|(page, number)| *page = number);
    map
}

/// Looks up `probes`. The answer may be the page before the right one, but only at an anchor or just above it.
fn check_words(snapshot: &Snapshot<Word, u64>, model: &BTreeMap<u64, u64>, probes: &[u64]) {
    let span = model.last_key_value().map_or(0, |(last, _)| last - model.first_key_value().unwrap().0);
    for &probe in probes {
        let mut before = model.range(..=probe).rev();
        let (anchor, want) = before.next().map_or((0, HEAD), |(&anchor, &page)| (anchor, page));
        let left = before.next().map_or(HEAD, |(_, &page)| page);
        let got = snapshot.jump(probe);
        let inexact = got == left && probe - anchor <= span >> 28;
        assert!(got == want || inexact, "{probe} leads to {got}, not {want}");
        if got == want && left != want {
            let behind = model.range((Bound::Excluded(probe), Bound::Unbounded)).take(5).map(|(_, &page)| page);
            assert!(behind.eq(snapshot.jump_ahead(probe).1.take(5)), "behind {probe}");
        }
    }
    assert_eq!(snapshot.len(), model.len());
    assert!(snapshot.entries().eq(model.values().copied()));
}

#[test]
fn followers_of_strings() {
    let model = number((0..500).map(|n| format!("path/{n:05}").into_bytes()));
    let snapshot = strings(&model);
    let behind = |probe: &[u8]| snapshot.jump_ahead(probe).1.take(5).collect::<Vec<_>>();
    assert_eq!(behind(b"path/00100+"), [101, 102, 103, 104, 105]);
    assert_eq!(behind(b"path/00497"), [498, 499]);
    assert_eq!(behind(b""), [0, 1, 2, 3, 4]);
}

/// On a path of more nodes than `Behind` has room for, the pages behind the innermost ones are found.
#[test]
fn followers_on_a_deep_path() {
    // Each string begins with the one before, so the nodes are nested; `b` is behind all of them.
    let model = number((1..200).map(|len| vec![b'a'; len]).chain([b"b".to_vec()]));
    let snapshot = strings(&model);
    let behind = |len| snapshot.jump_ahead(&vec![b'a'; len]).1.collect::<Vec<_>>();
    assert_eq!(behind(10).len(), behind(9).len() - 1);
    assert_eq!(behind(1)[..5], [1, 2, 3, 4, 5]);
    assert!(behind(199).is_empty());
}

fn check_strings(snapshot: &Snapshot<Bytes, u64>, model: &BTreeMap<Vec<u8>, u64>, probes: &[Vec<u8>]) {
    let probes: Vec<&[u8]> = probes.iter().map(|probe| &probe[..]).collect();
    let longest = model.keys().map(Vec::len).max().unwrap_or(0);
    for probe in probes {
        let want = model.range::<[u8], _>((Bound::Unbounded, Bound::Included(probe)));
        let want = want.last().map_or(HEAD, |(_, &page)| page);
        assert_eq!(snapshot.jump(probe), want, "{probe:?}");
        let below = model.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(probe)));
        let below = below.last().map_or(HEAD, |(_, &page)| page);
        assert_eq!(snapshot.jump_below(Some(probe)), below, "below {probe:?}");
        let behind = model.range::<[u8], _>((Bound::Excluded(probe), Bound::Unbounded)).take(5);
        let behind: Vec<u64> = behind.map(|(_, &page)| page).collect();
        let followers: Vec<u64> = snapshot.jump_ahead(probe).1.take(5).collect();
        assert!(behind.starts_with(&followers), "behind {probe:?}: {followers:?}, not {behind:?}");
        // Only on paths of many nodes the outermost ones may be forgotten.
        assert!(
            behind.len() == followers.len() || longest > super::trie::DEPTH * super::trie::SLICE,
            "all behind {probe:?}"
        );
    }
    assert_eq!(snapshot.len(), model.len());
    assert!(snapshot.entries().eq(model.values().copied()));
}

/// Returns each anchor, its neighbours, and the least and the greatest key.
fn around(anchors: &BTreeMap<u64, u64>) -> Vec<u64> {
    let near = anchors.keys().flat_map(|&anchor| [anchor.wrapping_sub(1), anchor, anchor.wrapping_add(1)]);
    near.chain([0, 1, 1 << 63, u64::MAX - 1, u64::MAX]).collect()
}

/// Returns each anchor, its prefixes, and strings just below and above it.
fn beside(anchors: &BTreeMap<Vec<u8>, u64>) -> Vec<Vec<u8>> {
    let mut probes = vec![vec![], vec![0], vec![255; 20]];
    for anchor in anchors.keys() {
        probes.push(anchor.clone());
        probes.push([&anchor[..], &[0]].concat());
        probes.push([&anchor[..], &[255; 9]].concat());
        if let Some((&last, init)) = anchor.split_last() {
            probes.push(init.to_vec());
            probes.push([init, &[last.wrapping_sub(1)]].concat());
            probes.push([init, &[last.wrapping_add(1)]].concat());
            let middle = anchor.len() / 2;
            probes.push(anchor[..middle].to_vec());
            probes.push([&anchor[..middle], &[anchor[middle].wrapping_add(1)]].concat());
            probes.push([&anchor[..middle], &[anchor[middle].wrapping_sub(1)]].concat());
        }
    }
    probes
}

fn word_sets() -> impl Strategy<Value = Vec<u64>> {
    let ends = prop::sample::select(vec![0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1]);
    let clusters = vec((any::<u64>(), 1u64..200, 1u64..50), 0..12).prop_map(|runs| {
        runs.into_iter().flat_map(|(from, step, len)| (0..len).map(move |i| from.wrapping_add(i * step))).collect()
    });
    prop_oneof![
        vec(any::<u64>(), 0..600),
        vec(prop_oneof![any::<u64>(), ends], 0..40),
        clusters,
        (any::<u64>(), 0u64..700).prop_map(|(from, len)| (0..len).map(|i| from.wrapping_add(i)).collect()),
        vec(0u64..1000, 0..600),
        vec((0u32..64).prop_map(|bit| 1 << bit), 0..200),
    ]
}

fn string() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop::sample::select(vec![0, 1, b'a', b'b', 255]);
    let domains = prop::sample::select(vec!["gmail.com@", "gmail.com", "yahoo.com@", "g", "gmail.co\0\0\0\0"]);
    prop_oneof![
        vec(letters.clone(), 0..24),
        vec(any::<u8>(), 0..12),
        (0usize..60).prop_map(|len| vec![b'a'; len]),
        (0usize..60).prop_map(|len| vec![0; len]),
        (0usize..60).prop_map(|len| vec![255; len]),
        (domains, vec(b'a'..b'e', 0..12)).prop_map(|(domain, name)| [domain.as_bytes(), &name].concat()),
        vec(letters, 0..3).prop_map(|end| [vec![b'x'; 300], end].concat()),
    ]
}

/// Applies a merge to the model.
fn apply<K: Ord + Clone>(model: &mut BTreeMap<K, u64>, inserts: &[(K, u64)], removes: &[(K, u64)]) {
    model.extend(inserts.iter().cloned());
    for (anchor, page) in removes {
        if model.get(anchor) == Some(page) {
            model.remove(anchor);
        }
    }
}

/// Returns sorted changes of a model: of new and existing anchors, with right and wrong pages.
fn changes<K: Ord + Clone>(
    model: &BTreeMap<K, u64>,
    new: Vec<(K, u64)>,
    picks: &[(usize, u64)],
) -> (Changes<K>, Changes<K>) {
    let mut removes: Vec<(K, u64)> = new.iter().filter(|(_, page)| page % 3 == 0).cloned().collect();
    let mut inserts = new;
    for &(index, page) in picks {
        if let Some((anchor, &old)) = model.iter().nth(index % model.len().max(1)) {
            match page % 4 {
                0 => inserts.push((anchor.clone(), page)),
                1 => removes.push((anchor.clone(), page)),
                _ => removes.push((anchor.clone(), old)),
            }
        }
    }
    inserts.sort_by(|a, b| a.0.cmp(&b.0));
    removes.sort_by(|a, b| a.0.cmp(&b.0));
    (inserts, removes)
}

fn merge_strings(
    snapshot: &Snapshot<Bytes, u64>,
    inserts: &[(Vec<u8>, u64)],
    removes: &[(Vec<u8>, u64)],
) -> Snapshot<Bytes, u64> {
    let inserts: Vec<(&[u8], u64)> = inserts.iter().map(|(anchor, page)| (&anchor[..], *page)).collect();
    let removes: Vec<(&[u8], u64)> = removes.iter().map(|(anchor, page)| (&anchor[..], *page)).collect();
    snapshot.merge(&inserts, &removes)
}

/// Returns the size of a test. It is smaller under Miri, which is a thousand times slower.
const fn sized(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: sized(256, 2) as u32, failure_persistence: None, ..Default::default() })]

    #[test]
    fn words_agree_with_a_map(keys in word_sets(), probes in vec(any::<u64>(), 50)) {
        let model = number(keys);
        let snapshot = words(&model);
        check_words(&snapshot, &model, &probes);
        check_words(&snapshot, &model, &around(&model));
    }

    #[test]
    fn strings_agree_with_a_map(keys in vec(string(), 0..120), probes in vec(string(), 50)) {
        let model = number(keys);
        let snapshot = strings(&model);
        check_strings(&snapshot, &model, &probes);
        check_strings(&snapshot, &model, &beside(&model));
    }

    #[test]
    fn words_merge(keys in word_sets(), rounds in vec((vec((any::<u64>(), 0u64..9), 0..40), vec(any::<(usize, u64)>(), 0..60)), 1..4)) {
        let mut model = number(keys);
        let mut snapshot = words(&model);
        for (new, picks) in rounds {
            let (inserts, removes) = changes(&model, new, &picks);
            apply(&mut model, &inserts, &removes);
            snapshot = snapshot.merge(&inserts, &removes);
            check_words(&snapshot, &model, &around(&model));
        }
    }

    #[test]
    fn strings_merge(keys in vec(string(), 0..120), rounds in vec((vec((string(), 0u64..9), 0..40), vec(any::<(usize, u64)>(), 0..60)), 1..4)) {
        let mut model = number(keys);
        let mut snapshot = strings(&model);
        for (new, picks) in rounds {
            let (inserts, removes) = changes(&model, new, &picks);
            apply(&mut model, &inserts, &removes);
            snapshot = merge_strings(&snapshot, &inserts, &removes);
            check_strings(&snapshot, &model, &beside(&model));
        }
    }

    #[test]
    fn both_counters_agree(keys in word_sets(), probes in vec(any::<u64>(), 20)) {
        let model = number(keys);
        let mut runs = Runs::default();
        let start = runs.start(model.len());
        model.keys().for_each(|&key| runs.push(flip(key)));
        if model.is_empty() {
            return Ok(());
        }
        let run = runs.finish(start);
        runs.seal();
        for key in probes.into_iter().chain(around(&model)) {
            let want = model.range(..=key).count();
            // SAFETY: the run is the object's own; the scalar counter needs no processor feature.
            assert_eq!(unsafe { count::<Scalar>(&runs, &run, flip(key)) }, want);
            #[cfg(target_arch = "x86_64")]
            if Counter::detect() == Counter::Avx2 {
                // SAFETY: the run is the object's own; AVX2 was detected.
                assert_eq!(unsafe { count::<super::words::Avx2>(&runs, &run, flip(key)) }, want);
            }
        }
    }
}

/// # Safety
/// The contract of [`Runs::approach`] must hold.
unsafe fn count<C: Count>(runs: &Runs, run: &Run, key: i64) -> usize {
    // SAFETY: the caller guarantees the same contract.
    unsafe { runs.land::<C>(run, runs.approach::<C>(run, key), key) }
}

/// Makes snapshots of every kind that are large enough for several levels.
#[test]
fn many_words() {
    let mix = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let count = sized(20_000, 700) as u64;
    let uniform = number((0..count).map(mix));
    let clustered = number((0..count).map(|i| (i / 100) * (1 << 34) + i % 100 * 7 + 1));
    let skewed = number((0..count).map(|i| mix(i) >> (mix(i ^ 77) % 60)));
    for model in [uniform, clustered, skewed] {
        check_words(&words(&model), &model, &around(&model));
    }
}

/// The greatest key is an anchor that begins a line of its own, after lines that are full of smaller anchors.
#[test]
fn greatest_word_alone_in_its_line() {
    let mut keys: Vec<u64> = (0..64 * 8u64).map(|i| (i / 64 * (1 << 34)) + i % 64).collect();
    keys.push(u64::MAX);
    let model = number(keys);
    let probes: Vec<u64> = (u64::MAX - 20..=u64::MAX).rev().collect();
    check_words(&words(&model), &model, &probes);
}

/// The builder selects the kind of run that suits the keys.
#[test]
fn kinds() {
    let kind = |keys: &mut dyn Iterator<Item = u64>| {
        let mut runs = Runs::default();
        let start = runs.start(usize::MAX);
        keys.for_each(|key| runs.push(flip(key)));
        let run = runs.finish(start);
        Runs::is_radix(&run)
    };
    assert!(kind(&mut (0..10_000)));
    assert!(kind(&mut (0..10_000).map(|i| i * 16 + i % 7)));
    assert!(!kind(&mut (0..10_000).map(|i| (i / 100) * (1 << 34) + i % 100)));
    assert!(!kind(&mut (0..10)), "too short");
}

#[test]
fn long_common_prefixes() {
    let long = vec![b'p'; 10_000];
    let ends =
        (0..sized(200, 8) as u32).map(|i| [&long[..], &(i * 977 % 256).to_be_bytes(), &i.to_be_bytes()].concat());
    let model = number(ends.chain([long[..9_999].to_vec(), long.clone(), vec![]]));
    let snapshot = strings(&model);
    check_strings(&snapshot, &model, &beside(&model));
    assert!(snapshot.bytes() < 40_000, "the prefix is held once, not {} bytes", snapshot.bytes());
}

/// The trie has the greatest possible depth: every anchor is a prefix of the next one. A recursive build would overflow
/// the stack.
#[test]
fn nested_prefixes() {
    let count = sized(6_000, 300);
    let text = vec![b'n'; 2 * count];
    let anchors: Vec<(&[u8], u64)> = (0..count).map(|i| (&text[..i * 2], i as u64)).collect();
    let snapshot = Snapshot::<Bytes, u64>::build(None, HEAD, &anchors);
    for len in (0..2 * count).step_by(94) {
        assert_eq!(snapshot.jump(&text[..len]), len as u64 / 2);
        assert_eq!(snapshot.jump(&[&text[..len], b"m"].concat()), len as u64 / 2);
    }
    assert_eq!(snapshot.jump(b"o"), count as u64 - 1);
    let left = count - count / 30;
    let merged = snapshot.merge(&[], &anchors[left..]);
    assert!(merged.entries().eq(0..left as u64));
}

/// The anchors are so far apart that distances cannot be scaled up, and two of them get the same place in a line.
#[test]
fn both_ends() {
    let model = number([0, 1 << 63, u64::MAX - 1, u64::MAX]);
    check_words(&words(&model), &model, &around(&model));
}

#[test]
fn nothing_and_one() {
    let none = Snapshot::<Word, u64>::build(None, HEAD, &[]);
    assert_eq!((none.jump(0), none.jump(u64::MAX), none.len()), (HEAD, HEAD, 0));
    let zero = none.merge(&[(0, 7)], &[]);
    assert_eq!((zero.jump(0), zero.jump(u64::MAX), zero.len()), (7, 7, 1));
    let none = Snapshot::<Bytes, u64>::build(None, HEAD, &[]);
    assert_eq!((none.jump(b""), none.len()), (HEAD, 0));
    let empty = none.merge(&[(b"", 7)], &[]);
    assert_eq!((empty.jump(b""), empty.jump(b"a"), empty.len()), (7, 7, 1));
    assert_eq!(empty.merge(&[], &[(b"", 7)]).jump(b"a"), HEAD);
}

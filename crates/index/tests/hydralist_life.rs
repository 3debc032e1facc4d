//! HydraList's life beyond single operations: many maps, iterators, borrowed keys.

use archipelago_index::HydraList;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A permutation of `0..2^64`, so that keys are distinct and far apart.
fn scatter(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

const MANY: u64 = if cfg!(miri) { 100 } else { 2_000 };

#[test]
fn an_empty_map_is_small_and_many_can_be_made() {
    for _ in 0..if cfg!(miri) { 20 } else { 10_000 } {
        let map: HydraList<u64, u64> = HydraList::new();
        map.pin().insert(1, 2);
        assert!(map.bytes() < 4096, "{} bytes", map.bytes());
    }
}

#[test]
fn iterators_meet_in_the_middle() {
    let model: BTreeMap<u64, u64> = (0..MANY).map(|n| (scatter(n), n)).collect();
    let map: HydraList<u64, u64> = model.iter().map(|(key, value)| (*key, *value)).collect();
    let session = map.pin();
    for turn in 1..7 {
        let (mut ours, mut theirs) = (session.iter(), model.iter());
        for step in 0.. {
            let (our, their) =
                if step % turn == 0 { (ours.next_back(), theirs.next_back()) } else { (ours.next(), theirs.next()) };
            assert_eq!(our, their.map(|(key, value)| (*key, *value)));
            if our.is_none() {
                break;
            }
        }
    }
}

#[test]
#[expect(clippy::reversed_empty_ranges, reason = "such a range is what is tried")]
fn ranges_mean_what_they_say() {
    let map: HydraList<u64, u64> = [0, 5, 9, u64::MAX].map(|key| (key, key)).into_iter().collect();
    let session = map.pin();
    let keys = |range: archipelago_index::hydra::Range<'_, u64, u64>| range.map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(session.range(..)), [0, 5, 9, u64::MAX]);
    assert_eq!(keys(session.range(1..=9)), [5, 9]);
    assert_eq!(keys(session.range(5..9)), [5]);
    assert!(keys(session.range(9..5)).is_empty());
    assert_eq!(keys(session.range(u64::MAX..)), [u64::MAX]);
    assert_eq!(session.range(..=5).rev().map(|(key, _)| key).collect::<Vec<_>>(), [5, 0]);
    assert_eq!(session.first_key_value(), Some((0, 0)));
    assert_eq!(session.last_key_value(), Some((u64::MAX, u64::MAX)));
    assert_eq!(session.pop_first(), Some((0, 0)));
    assert_eq!(format!("{map:?}"), format!("{{5: 5, 9: 9, {0}: {0}}}", u64::MAX));
}

#[test]
fn borrowed_keys_find_owned_ones() {
    let map: HydraList<String, u32> = HydraList::from_sorted([("a".into(), 1), ("b".into(), 2)]);
    let session = map.pin();
    assert_eq!(session.get("a"), Some(1));
    assert_eq!(session.get_many(&["b".to_owned(), "c".to_owned()]), [Some(2), None]);
    assert!(!session.upsert("c", 3) && session.contains_key("c"));
    assert_eq!(session.update("c", |old| old + 1), Some(3));
    assert_eq!(session.get_or_insert_with("c".into(), || 9), 4);
    assert_eq!(session.remove("c"), Some(4));
    assert_eq!(session.range::<str, _>((Bound::Included("a"), Bound::Excluded("b"))).next(), Some(("a".to_owned(), 1)));
}

#[cfg(feature = "serde")]
#[test]
fn maps_survive_serde() {
    let map: HydraList<String, u32> = [("a".to_owned(), 1), ("b".to_owned(), 2)].into_iter().collect();
    let text = serde_json::to_string(&map).unwrap();
    assert_eq!(text, r#"{"a":1,"b":2}"#);
    let back: HydraList<String, u32> = serde_json::from_str(&text).unwrap();
    assert!(back.pin().iter().eq(map.pin().iter()));
}

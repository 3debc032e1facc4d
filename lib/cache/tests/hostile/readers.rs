//! Readers that stay.

use super::*;

#[test]
fn a_reader_that_stays_costs_hits_and_no_memory() {
    let _alone = alone();
    const CAPACITY: usize = 4 << 20;
    let cache: Cache<u64, Vec<u8>> = Cache::new(CAPACITY);
    (0..4_000).for_each(|key| _ = cache.insert(key, vec![1; 1_000]));
    HEAP.reset_peak();
    let before = HEAP.bytes();
    let pinned = cache.pin();
    let held: Vec<&Vec<u8>> = (0..4_000).filter_map(|key| pinned.get(&key)).collect();
    let refused = thread::scope(|scope| {
        let inserts = || (4_000..40_000_u64).filter(|key| !cache.insert(*key, vec![2; 1_000])).count();
        [scope.spawn(inserts), scope.spawn(inserts)].into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert!(held.iter().all(|value| value.iter().all(|byte| *byte == 1)), "what was lent stays");
    assert!(refused > 60_000, "{refused}");
    let grown = HEAP.peak().saturating_sub(before);
    assert!(grown < bound(CAPACITY, 3) - CAPACITY, "{grown} bytes");
    drop(held);
    drop(pinned);
    assert!(cache.insert(1 << 20, vec![3; 1_000]), "when the reader has gone, entries come in again");
}

/// The cache has a limit on the number of entries, and a reader keeps removed entries from being freed. Removed entries
/// that wait may not exceed a hundredth of the limit, plus 512, plus the unused part of the limit, plus those that a
/// thread has not handed over yet. Once they reach this sum, insertions are refused.
#[test]
fn a_reader_that_stays_keeps_few_entries_waiting() {
    let _beside = beside();
    let cache: Cache<u32, u32> = Cache::builder().entries(100);
    let pinned = cache.pin();
    let kept = (0..50_000).filter(|key| cache.insert(*key, 0)).count();
    assert!((100..100 + 1 + 2 * 512).contains(&kept), "{kept}");
    drop(pinned);
    assert!(cache.insert(0, 0));
}

//! congee: an adaptive radix tree with optimistic lock coupling, 8-byte keys and values only.

use archipelago_bench::contender::BenchIndex;
use archipelago_index::{OrderedIndex, OrderedSession};
use congee::Congee;

/// `congee::Congee`. Its ranges exclude their end, so the largest possible key is looked up separately.
pub struct CongeeMap(Congee<usize, usize>);

/// The number of entries that a scan fetches at a time. Workloads ask for at most 100 entries.
const BUFFER: usize = 100;

impl BenchIndex<u64> for CongeeMap {
    fn empty() -> Self {
        CongeeMap(Congee::default())
    }
}

impl OrderedIndex<u64, u64> for CongeeMap {
    type Session<'a> = &'a Self;

    fn pin(&self) -> &Self {
        self
    }
}

impl OrderedSession<u64, u64> for &CongeeMap {
    #[inline]
    fn get(&self, key: &u64) -> Option<u64> {
        self.0.get(&(*key as usize), &self.0.pin()).map(|value| value as u64)
    }

    #[inline]
    fn insert(&self, key: &u64, value: u64) -> Option<u64> {
        let old = self.0.insert(*key as usize, value as usize, &self.0.pin()).expect("memory suffices");
        old.map(|value| value as u64)
    }

    #[inline]
    fn update(&self, key: &u64, mut f: impl FnMut(&u64) -> u64) -> Option<u64> {
        let guard = self.0.pin();
        let replaced = self.0.compute_if_present(&(*key as usize), |old| Some(f(&(old as u64)) as usize), &guard);
        replaced.map(|(old, _)| old as u64)
    }

    fn remove(&self, key: &u64) -> Option<u64> {
        self.0.remove(&(*key as usize), &self.0.pin()).map(|value| value as u64)
    }

    #[inline]
    fn scan(&self, from: &u64, limit: usize, mut visit: impl FnMut(u64, &u64)) -> usize {
        let guard = self.0.pin();
        let mut buffer = [(0, 0); BUFFER];
        let mut from = *from as usize;
        let mut visited = 0;
        while visited < limit {
            let wanted = (limit - visited).min(BUFFER);
            let found = self.0.range(&from, &usize::MAX, &mut buffer[..wanted], &guard);
            for (key, value) in &buffer[..found] {
                visit(*key as u64, &(*value as u64));
            }
            visited += found;
            if found < wanted {
                break;
            }
            from = buffer[found - 1].0 + 1;
        }
        if visited < limit
            && let Some(value) = self.0.get(&usize::MAX, &guard)
        {
            visit(u64::MAX, &(value as u64));
            visited += 1;
        }
        visited
    }
}

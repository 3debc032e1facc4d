//! Interleaved look-ups: each look-up makes a step while the memory for the other ones is being fetched. A look-up
//! starts at a *jump node*, a page at or left of its key, and walks right to its *target*, the page whose range
//! contains the key.

use super::page::{Page, Seen};
use super::shared::{Core, Local};
use crate::hydra::HydraForm;
use crate::points;
use crate::structure::Encode;
use archipelago_platform::hint::point;
use archipelago_sync::rcu::Guard;
use archipelago_sync::version_lock::Version;

/// The number of look-ups that `get_many` interleaves. It is enough to overlap each memory access with accesses of
/// other look-ups.
const BATCH: usize = 32;

/// The state of a look-up of a batch.
struct Stop<'g, F: HydraForm> {
    page: &'g F::Page,
    /// The target's version, once the target is known.
    version: Option<Version>,
    /// The target's slots that may hold the key.
    candidates: u64,
}

impl<F: HydraForm> Clone for Stop<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: HydraForm> Copy for Stop<'_, F> {}

impl<F: HydraForm> Core<F> {
    /// Looks up the words of several keys, in order.
    pub(super) fn look_up_many<Q: Encode<Form = F>>(
        &self,
        local: &Local<'_, F>,
        keys: &[Q],
        mut found: impl FnMut(Option<u64>),
    ) {
        for keys in keys.chunks(BATCH) {
            for key in keys {
                key.encode(|key| local.layer.prefetch(key));
            }
            let mut stops = [None; BATCH];
            for (key, stop) in keys.iter().zip(&mut stops) {
                let page = key.encode(|key| local.jump(key));
                F::Page::prefetch(page);
                *stop = Some(Stop { page, version: None, candidates: 0 });
            }
            for (key, stop) in keys.iter().zip(stops.iter_mut().flatten()) {
                key.encode(|key| self.approach(local.guard, stop, key));
            }
            for (key, stop) in keys.iter().zip(stops.iter().flatten()) {
                found(key.encode(|key| self.arrive(local.guard, stop, key)));
            }
        }
    }

    /// Walks from a prefetched jump node to the target, and prefetches the target's entry.
    #[inline]
    fn approach<'g>(&'g self, guard: &'g Guard<'_>, stop: &mut Stop<'g, F>, key: F::Probe<'_>) {
        let (page, version, _) = self.target(guard, stop.page, key);
        let candidates = page.candidates(key, F::tag(key));
        *stop = Stop { page, version: Some(version), candidates };
        if candidates != 0 {
            page.prefetch_slot(candidates.trailing_zeros() as usize);
        }
    }

    /// Finishes a look-up after `approach`. If the page has changed since, repeats the look-up.
    #[inline]
    fn arrive(&self, guard: &Guard<'_>, stop: &Stop<'_, F>, key: F::Probe<'_>) -> Option<u64> {
        point(points::CANDIDATES);
        let version = stop.version.expect("approached");
        if let Ok(slot) = stop.page.find_among(stop.candidates, key, Seen::At(version)) {
            let found = slot.map(|slot| stop.page.value(slot));
            if stop.page.lock().validate(version) {
                return found;
            }
        }
        Core::get_in_list(self, guard, stop.page, key, F::tag(key))
    }
}

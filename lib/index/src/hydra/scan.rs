//! Scans of the data list, both ways (thesis figure 4.12).
//!
//! A scan copies one page at a time, validates the copy, and only then shows it. It continues at the *key* at which the
//! page ended, not at a position. So splits and merges in between neither duplicate nor hide an entry: a key that is in
//! the map throughout the scan is in the range of exactly one page at any time, and the visited ranges follow one
//! another without gap or overlap. (The thesis restarts the whole scan when any page fails to validate, and reads
//! `next` after validation, which can show entries twice.)
//!
//! The thesis keeps a permutation array per page, rebuilt when a scan finds the page changed. Here the scan that finds
//! a page unsorted sorts its copy and, if the page has not changed meanwhile, writes the entries back in order. This
//! saves one line per page, and the next scan copies a contiguous run.

use super::page::{LOCKED, Page, PageCopy, Seen};
use super::shared::{Core, Local};
use crate::hydra::HydraForm;
use crate::structure::Words;
use archipelago_platform::hint;
use archipelago_sync::version_lock::Version;
use core::ops::Range;

/// The approximate number of entries of a page, from which a scan estimates the number of pages that it will visit.
const FILL: usize = 32;

/// The greatest number of pages that a scan prefetches at a time. In a walk along links, the address of a page is known
/// only when the previous page has been loaded. The search layer has the addresses of successive pages next to each
/// other.
const AHEAD: usize = 8;

/// Sorts the page if it still has this version. Values may have changed since the page was copied, so it is copied
/// again.
#[cold]
fn tidy<F: HydraForm>(page: &F::Page, version: Version, copy: &mut <F::Page as Page<F>>::Copy) {
    if page.lock().try_lock_at(version) {
        page.copy_all(Seen::Held, copy).expect(LOCKED);
        copy.sort();
        page.write_back(copy);
        page.lock().unlock();
    }
}

/// Prefetches what the caller will read of some entries.
///
/// # Safety
/// The copy was validated, under a guard that still lasts.
#[inline]
unsafe fn fetch<F: HydraForm>(copy: &<F::Page as Page<F>>::Copy, entries: Range<usize>, words: Words<'_>) {
    // SAFETY: a validated copy has words that were in the page together, under the guard.
    unsafe { words.fetch(entries.map(|at| copy.value(at))) }
}

impl<F: HydraForm> Core<F> {
    /// Visits up to `limit` entries at or above `from`, ascending, until `visit` returns false. Returns the number of
    /// visited entries.
    pub(crate) fn scan_list(
        &self,
        local: &Local<'_, F>,
        from: F::Probe<'_>,
        limit: usize,
        words: Words<'_>,
        mut visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        let mut copy = <F::Page as Page<F>>::Copy::new();
        let mut scratch = Default::default();
        let mut seen = 0;
        let mut page = local.jump(from);
        F::Page::prefetch_all(page);
        // Without a limit the caller may end the scan soon, so only little is prefetched at first.
        let (mut fetched, mut ahead) = (0, if limit == usize::MAX { 1 } else { AHEAD });
        // The bound of the first page is the caller's key; of later ones, the low key of the page itself.
        let mut next_low: Option<&F::Page> = None;
        while seen < limit {
            let bound = next_low.map_or(from, |page| page.low());
            if fetched == 0 {
                fetched = ahead.min((limit - seen) / FILL);
                local.layer.prefetch_followers(bound, fetched);
                ahead = AHEAD.min(2 * ahead);
            }
            let (target, version, _) = self.target(local.guard, page, bound);
            let next = target.next();
            if limit - seen > FILL / 2 {
                // The address is not validated yet, but a prefetch of any address is harmless.
                F::Page::prefetch_all(next);
            }
            // The page nearly always begins where the last page ended. Then no search for the start is needed.
            let begins_there = next_low.is_some_and(|page| core::ptr::eq(page, target));
            let copied = if begins_there {
                target.copy_first(limit - seen, Seen::At(version), &mut copy)
            } else {
                target.copy_from(bound, limit - seen, Seen::At(version), &mut copy)
            };
            if copied.is_err() {
                page = target;
                continue;
            }
            if copy.sort() {
                tidy::<F>(target, version, &mut copy);
            }
            copy.prepare(&mut scratch);
            let first = if begins_there { 0 } else { copy.lower_bound(bound) };
            let shown = first..copy.len().min(first.saturating_add(limit - seen));
            // SAFETY: the copy is valid, and the caller's guard lasts.
            unsafe { fetch::<F>(&copy, shown, words) };
            for at in first..copy.len() {
                let (key, value) = copy.entry(at, &mut scratch);
                seen += 1;
                if !visit(key, value) || seen == limit {
                    return seen;
                }
            }
            if next.is_null() {
                break;
            }
            // SAFETY: `next` was validated with the copy: it was a live page's neighbour, and the guard is older than
            // its retirement.
            let next = unsafe { &*next };
            (page, next_low) = (next, Some(next));
            fetched = fetched.saturating_sub(1);
        }
        seen
    }

    /// Visits up to `limit` entries below `bound` (`None`: all), descending, until `visit` returns false.
    pub(crate) fn scan_list_back(
        &self,
        local: &Local<'_, F>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words<'_>,
        mut visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        let mut copy = <F::Page as Page<F>>::Copy::new();
        let mut scratch = Default::default();
        let mut seen = 0;
        // The bound of later pages is the low key of the page visited before.
        let mut previous: Option<&F::Page> = None;
        while seen < limit {
            let (target, version, _) = match previous {
                Some(page) => self.before(local, Some(page.low())),
                None if bound.is_some_and(F::is_least) => break,
                None => self.before(local, bound),
            };
            if target.copy_all(Seen::At(version), &mut copy).is_err() {
                hint::spin_loop();
                continue;
            }
            if copy.sort() {
                tidy::<F>(target, version, &mut copy);
            }
            copy.prepare(&mut scratch);
            let end = match previous {
                Some(page) => copy.lower_bound(page.low()),
                None => bound.map_or(copy.len(), |bound| copy.lower_bound(bound)),
            };
            // SAFETY: as in `scan_list`.
            unsafe { fetch::<F>(&copy, end.saturating_sub(limit - seen)..end, words) };
            for at in (0..end).rev() {
                let (key, value) = copy.entry(at, &mut scratch);
                seen += 1;
                if !visit(key, value) || seen == limit {
                    return seen;
                }
            }
            if core::ptr::eq(target, self.head()) {
                break;
            }
            previous = Some(target);
        }
        seen
    }
}

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

use super::layer::Followers;
use super::list::Found;
use super::page::{FILL, LOCKED, Page, PageCopy, Seen};
use super::shared::{Core, Local};
use crate::hydra::HydraForm;
use crate::structure::Words;
use archipelago_platform::hint;
use archipelago_sync::rcu::Guard;
use archipelago_sync::version_lock::{Look, Version};
use core::ops::Range;

/// The greatest number of pages that a scan prefetches at a time. In a walk along links, the address of a page is known
/// only when the previous page has been loaded. The search layer has the addresses of successive pages next to each
/// other.
const AHEAD: usize = 8;

/// The number of pages after which a scan asks the search layer again for the pages ahead. The layer may lack some of
/// the pages that the scan passes, so that the scan falls back behind those that it prefetches.
const ASK: usize = 32;

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

/// Returns how many pages to prefetch at most, when a scan has passed `passed` pages. Without a limit the caller may end
/// the scan soon, so only little is prefetched at first.
#[inline]
fn most_ahead(limit: usize, passed: usize) -> usize {
    if limit == usize::MAX { AHEAD.min(1 << passed.min(usize::BITS as usize / 2)) } else { AHEAD }
}

/// Prefetches followers until `pages` are prefetched, of which there are `fetched` already.
#[inline]
fn prefetch<F: HydraForm>(followers: &mut Followers<'_, F>, fetched: &mut usize, pages: usize) {
    while *fetched < pages && followers.prefetch() {
        *fetched += 1;
    }
}

/// Prefetches what the caller will read of some entries.
///
/// # Safety
/// The copy was validated, under a guard that still lasts.
#[inline]
unsafe fn fetch_values<F: HydraForm>(copy: &<F::Page as Page<F>>::Copy, entries: Range<usize>, words: Words<'_>) {
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
        let (mut page, mut followers) = local.jump_ahead(from);
        F::Page::prefetch_all(page);
        // The number of pages behind the present one that are prefetched, and how many entries a page has.
        let (mut fetched, mut fill) = (0, FILL);
        // The page to which the last page's link has led, and how many there were.
        let (mut arrived, mut passed): (Option<&F::Page>, usize) = (None, 0);
        while seen < limit {
            prefetch::<F>(&mut followers, &mut fetched, ((limit - seen) / fill).min(most_ahead(limit, passed)));
            let (target, version, _) = match arrived {
                Some(page) => self.own(local.guard, page),
                None => self.target(local.guard, page, from),
            };
            let next = target.next();
            if fetched == 0 && limit - seen > fill / 2 {
                // The address is not validated yet, but a prefetch of any address is harmless.
                F::Page::prefetch_all(next);
                followers.pass();
                fetched = 1;
            }
            // The page nearly always begins where the last page ended. Then no search for the start is needed.
            let begins_there = arrived.is_some_and(|page| core::ptr::eq(page, target));
            let bound = || arrived.map_or(from, |page| page.low());
            let copied = if begins_there {
                target.copy_first(limit - seen, Seen::At(version), &mut copy)
            } else {
                target.copy_from(bound(), limit - seen, Seen::At(version), &mut copy)
            };
            if copied.is_err() {
                page = target;
                continue;
            }
            if copy.sort() {
                tidy::<F>(target, version, &mut copy);
            }
            copy.prepare(&mut scratch);
            let first = if begins_there { 0 } else { copy.lower_bound(bound()) };
            fill = copy.fill();
            let shown = first..copy.len().min(first.saturating_add(limit - seen));
            // SAFETY: the copy is valid, and the caller's guard lasts.
            unsafe { fetch_values::<F>(&copy, shown, words) };
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
            (arrived, passed) = (Some(next), passed + 1);
            fetched = fetched.saturating_sub(1);
            if passed.is_multiple_of(ASK) {
                (followers, fetched) = (local.jump_ahead(next.low()).1, 0);
            }
        }
        seen
    }

    /// Returns the page that has `page`'s lower bound in its range. Nearly always this is `page` itself: a live page's
    /// range begins there, so the bounds need not be read.
    #[inline]
    fn own<'g>(&'g self, guard: &'g Guard<'_>, page: &'g F::Page) -> Found<'g, F> {
        match page.lock().look() {
            Look::Free(version) => (page, version, 0),
            _ => self.target(guard, page, page.low()),
        }
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
            unsafe { fetch_values::<F>(&copy, end.saturating_sub(limit - seen)..end, words) };
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

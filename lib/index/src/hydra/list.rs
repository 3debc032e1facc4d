//! The data list: finding the target node, point operations, and the rules for splits and merges, which are in
//! `reshape.rs` (thesis §4.3.2, §4.3.3, §4.3.6).
//!
//! Every operation starts at a *jump node*, any page whose `low` is at or below the key, and walks right to the *target
//! node*, the page whose range contains the key. (The search layer finds the jump node.) The result is correct however
//! stale the search layer is:
//!
//! - A page's `low` never rises and a live page's `low` never changes, so a page that was once at or left of a key
//!   stays so.
//! - Splits move keys right, and the walk follows (if `key >= high`, it continues at `next`).
//! - Merges move keys *left*, into the previous page, and leave a forward pointer to it. From an obsolete page the walk
//!   follows the pointer left, to a page whose `low` is even lower.
//!
//! The thesis walks in both directions over a doubly linked list and restarts from a deleted node's neighbour (its code
//! spins at this neighbour forever). This list has no `prev`: a thread that needs the previous page asks the search
//! layer for the greatest anchor below the page's `low`, and walks right.
//!
//! A walk uses a value only if the page was free (not locked) at the version at which the value was read, and the
//! version has been validated (`sync::version_lock`). An obsolete page needs no validation, since it does not change
//! any more.
//!
//! Locks: a thread holds the lock of one page at a time, except in a merge or a move, which holds a page and *tries*
//! the next one. So threads do not deadlock.

use super::config::Experiment;
use super::goal::{At, Below, Goal, is_within};
use super::page::{Changed, LOCKED, Page, PageCopy, PageForm, Removed, Seen, Unsorted};
use super::shared::{Core, Local};
use super::shortcuts::PATIENCE;
use crate::hydra::HydraForm;
use crate::points;
use crate::structure::{End, Put, When, Words};
use archipelago_platform::atomic::Ordering::{AcqRel, Acquire};
use archipelago_platform::hint::{point, spin_loop};
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use archipelago_sync::version_lock::{Look, Version};

/// Returns the page after `page`, if `page` still has this version. The caller's guard protects both pages.
#[inline]
fn after<F: HydraForm>(page: &F::Page, version: Version) -> Result<Option<&F::Page>, Changed> {
    point(points::LEAVING);
    let next = page.next();
    if !page.lock().validate(version) {
        return Err(Changed);
    }
    // SAFETY: `next` was validated, so it was this live page's neighbour and was not retired yet. The caller's guard
    // was entered before any later retirement.
    Ok(unsafe { next.as_ref() })
}

/// The end of a walk: the page, its version that the walk uses, and the number of steps.
pub(super) type Found<'g, F> = (&'g <F as PageForm>::Page, Version, usize);

/// The state of a walk.
struct Steps<'g, F: HydraForm> {
    from: &'g F::Page,
    taken: usize,
    /// The count of retirements at the first step.
    retirements: u64,
}

impl<F: HydraForm> Core<F> {
    /// Returns the page whose range holds `key`.
    ///
    /// `from` is a page at or left of the key, protected by the caller's guard.
    #[inline(always)]
    pub(crate) fn target<'g>(&'g self, guard: &'g Guard<'_>, from: &'g F::Page, key: F::Probe<'_>) -> Found<'g, F> {
        self.walk(guard, from, At(key))
    }

    /// Walks right from `from` to the goal, and follows forward pointers of obsolete pages.
    ///
    /// Nearly always the walk takes no step, and this case is straight-line code.
    #[inline]
    fn walk<'g, 'k>(&'g self, guard: &'g Guard<'_>, from: &'g F::Page, goal: impl Goal<'k, F>) -> Found<'g, F> {
        match from.lock().look() {
            Look::Free(version) if goal.is_right_of(from, version) == Ok(false) => (from, version, 0),
            _ => self.walk_on(guard, from, goal),
        }
    }

    /// Continues a [`walk`](Self::walk) that needs at least one step.
    #[inline(never)]
    fn walk_on<'g, 'k>(&'g self, guard: &'g Guard<'_>, from: &'g F::Page, goal: impl Goal<'k, F>) -> Found<'g, F> {
        let mut page = from;
        let mut steps = Steps { from, taken: 0, retirements: 0 };
        let backoff = Backoff::new();
        loop {
            match page.lock().look() {
                Look::Free(version) => match goal.is_right_of(page, version) {
                    Ok(false) => {
                        if steps.taken > 1 {
                            self.cell().set_finger(from, page, steps.retirements);
                        }
                        return (page, version, steps.taken);
                    }
                    Ok(true) => {
                        if let Ok(Some(next)) = after::<F>(page, version) {
                            page = self.step_to(guard, next, goal, &mut steps);
                        }
                    }
                    Err(Changed) => {}
                },
                Look::Locked => self.wait(&backoff),
                Look::Obsolete => {
                    // SAFETY: the obsolete page is protected by the caller's guard. Its forward pointer leads to a page
                    // that is reclaimed only after the obsolete page (`maintain.rs`).
                    let heir = unsafe { &*page.next() };
                    page = self.step_to(guard, heir, goal, &mut steps);
                }
            }
        }
    }

    /// Returns a walk's next page: `page`, or a page nearer to the goal. The method searches for a nearer page only
    /// after certain numbers of steps.
    ///
    /// At the first step the search uses the thread's finger (the end of an earlier walk), which helps keys that arrive
    /// in order. At later steps the search uses shortcuts (`shortcuts.rs`).
    #[inline]
    fn step_to<'g, 'k>(
        &'g self,
        guard: &'g Guard<'_>,
        page: &'g F::Page,
        goal: impl Goal<'k, F>,
        steps: &mut Steps<'g, F>,
    ) -> &'g F::Page {
        steps.taken += 1;
        if steps.taken.is_power_of_two() && (steps.taken == 1 || steps.taken >= PATIENCE) {
            self.skip(guard, page, goal, steps)
        } else {
            page
        }
    }

    /// Implements [`step_to`](Self::step_to) for the steps at which it searches.
    #[inline(never)]
    fn skip<'g, 'k>(
        &'g self,
        guard: &'g Guard<'_>,
        page: &'g F::Page,
        goal: impl Goal<'k, F>,
        steps: &mut Steps<'g, F>,
    ) -> &'g F::Page {
        let near = if steps.taken == 1 {
            steps.retirements = self.retirements();
            self.cell().finger(steps.from, steps.retirements)
        } else {
            self.shortcuts.nearest(guard, goal.upper()).map(|page| page.0)
        };
        // SAFETY: the page is a finger that has not been retired, or a shortcut that was found under the guard.
        let Some(near) = near.map(|near| unsafe { near.as_ref() }) else { return page };
        let low = near.low();
        if !is_within::<F>(low, goal.upper()) {
            return page;
        }
        let nearer = F::compare(low, page.low()).is_gt() || {
            // If `page` is obsolete, its entries have moved to the page whose range now contains `page`'s `low`. If
            // `near` contains it, `near` is nearer to the goal.
            let taken_over = |version| near.is_beyond(page.low(), Seen::At(version)) == Ok(false);
            matches!(page.lock().look(), Look::Obsolete)
                && near.lock().read().is_some_and(|version| taken_over(version) && near.lock().validate(version))
        };
        if nearer { near } else { page }
    }

    /// Returns, as [`target`](Self::target) does, the page with the greatest keys below `bound`: `low < bound <= high`.
    /// Returns the last page if there is no bound. The bound is not the least key.
    #[inline]
    pub(crate) fn before<'g>(&'g self, local: &'g Local<'_, F>, bound: Option<F::Probe<'_>>) -> Found<'g, F> {
        self.walk(local.guard, local.jump_below(bound), Below(bound))
    }

    /// Returns the value word of `key`. The word stays valid under the caller's guard: the fence of `validate` pairs
    /// with the Release of the thread that stored the word.
    ///
    /// Nearly always the layer leads to the right page, and no thread is changing it. This case takes as few
    /// instructions as possible, so that the processor overlaps more look-ups.
    #[inline(always)]
    pub(crate) fn get_in_list(&self, guard: &Guard<'_>, from: &F::Page, key: F::Probe<'_>, tag: u8) -> Option<u64> {
        if let Some(version) = from.lock().read()
            && let Ok(false) = from.is_beyond(key, Seen::At(version))
            && let Ok(found) = self.look_up(from, version, key, tag)
        {
            return found;
        }
        self.get_farther(guard, from, key, tag)
    }

    /// Returns the value word of `key` in the page that has it in its range.
    #[inline(always)]
    fn look_up(&self, page: &F::Page, version: Version, key: F::Probe<'_>, tag: u8) -> Result<Option<u64>, Changed> {
        let found = self.find(page, key, tag, Seen::At(version))?.map(|slot| {
            point(points::FOUND);
            page.value(slot)
        });
        if page.lock().validate(version) { Ok(found) } else { Err(Changed) }
    }

    /// Returns the slot that holds `key`.
    #[inline(always)]
    fn find(&self, page: &F::Page, key: F::Probe<'_>, tag: u8, seen: Seen) -> Result<Option<usize>, Changed> {
        if self.config.is(Experiment::NoTags) {
            return page.find_among(page.occupied(), key, seen);
        }
        page.find(key, tag, seen)
    }

    /// Waits before another attempt.
    #[inline(always)]
    fn wait(&self, backoff: &Backoff) {
        if self.config.has_backoff() { backoff.wait() } else { spin_loop() }
    }

    /// Looks a key up as [`get_in_list`](Self::get_in_list) does, from a page that may not be the right one, or is
    /// changing.
    #[inline(never)]
    fn get_farther(&self, guard: &Guard<'_>, from: &F::Page, key: F::Probe<'_>, tag: u8) -> Option<u64> {
        let mut page = from;
        loop {
            let (target, version, _) = self.target(guard, page, key);
            if let Ok(found) = self.look_up(target, version, key, tag) {
                return found;
            }
            page = target;
        }
    }

    /// Stores `value` under `key`. `from` becomes the page whose range holds the key.
    ///
    /// A new key is added under the page's lock. The value of a present key is replaced by an atomic operation while
    /// the lock is shared, so that threads that update a popular key do not wait for each other. Without the shared
    /// lock this would be unsound: a split, merge or sort may move the entry between look-up and swap, and the swap
    /// would then change another key's slot or a page that is no longer reachable.
    #[inline]
    pub(crate) fn put_in_list<'g>(
        &'g self,
        local: &'g Local<'_, F>,
        from: &mut &'g F::Page,
        key: F::Probe<'_>,
        tag: u8,
        value: u64,
        when: When,
    ) -> Put {
        let mut steps = 0;
        let backoff = Backoff::new();
        loop {
            let (page, version, more) = self.target(local.guard, from, key);
            (*from, steps) = (page, steps + more);
            match self.find(page, key, tag, Seen::At(version)) {
                Ok(Some(slot)) => match self.replace(page, version, slot, value, when) {
                    Ok(put) => return put,
                    Err(Changed) => {
                        // A thread that could not share the lock waits in `target` for the thread that holds it.
                        if !self.config.updates_share() {
                            self.wait(&backoff);
                        }
                        continue;
                    }
                },
                Ok(None) => {}
                Err(Changed) => continue,
            }
            if matches!(when, When::Present | When::Holds(_)) {
                if page.lock().validate(version) {
                    return Put::Missing;
                }
                continue;
            }
            let prepared = page.prepare_push(key);
            if !page.lock().try_lock_at(version) {
                self.wait(&backoff);
                continue;
            }
            // The page was free and had the key in its range when it was read, and has not changed since: the key
            // belongs to it, and is absent.
            debug_assert!(F::compare(page.low(), key).is_le());
            debug_assert_eq!(page.is_beyond(key, Seen::Held), Ok(false));
            if page.push(key, tag, value, prepared) {
                page.lock().unlock();
                return Put::Inserted;
            }
            self.split(local, page, key, steps);
        }
    }

    /// Does the part of [`put_in_list`](Self::put_in_list) for a key that was found at `version`, if the version is
    /// unchanged.
    #[inline]
    fn replace(&self, page: &F::Page, version: Version, slot: usize, value: u64, when: When) -> Result<Put, Changed> {
        if let When::Absent = when {
            point(points::PRESENT);
            let old = page.value(slot);
            return if page.lock().validate(version) { Ok(Put::Kept(old)) } else { Err(Changed) };
        }
        let (lock, shares) = (page.lock(), self.config.updates_share());
        if !(if shares { lock.try_share_at(version) } else { lock.try_lock_at(version) }) {
            return Err(Changed);
        }
        let word = page.value_word(slot);
        // Release: a thread that reads the word sees the memory to which it leads. Acquire: the caller accesses the
        // memory to which the old word leads.
        let put = match when {
            When::Holds(expected) => match word.compare_exchange(expected, value, AcqRel, Acquire) {
                Ok(old) => Put::Replaced(old),
                Err(kept) => Put::Kept(kept),
            },
            _ => Put::Replaced(word.swap(value, AcqRel)),
        };
        if shares {
            lock.unshare()
        } else {
            lock.unlock()
        }
        Ok(put)
    }

    /// Removes `key`; if a word is expected, only if the key has this value word.
    pub(crate) fn take_in_list(
        &self,
        local: &Local<'_, F>,
        from: &F::Page,
        key: F::Probe<'_>,
        tag: u8,
        expected: Option<u64>,
    ) -> Option<Removed> {
        let mut page = from;
        let backoff = Backoff::new();
        loop {
            let (target, version, _) = self.target(local.guard, page, key);
            page = target;
            match self.find(page, key, tag, Seen::At(version)) {
                Ok(None) if page.lock().validate(version) => return None,
                Ok(_) => {}
                Err(Changed) => continue,
            }
            if !page.lock().try_lock_at(version) {
                self.wait(&backoff);
                continue;
            }
            let held = |slot: &usize| expected.is_none_or(|word| page.value(*slot) == word);
            let Some(slot) = self.find(page, key, tag, Seen::Held).expect(LOCKED).filter(held) else {
                page.lock().unlock_unchanged();
                return None;
            };
            let removed = page.remove(slot);
            self.unlock_or_shrink(local, page);
            return Some(removed);
        }
    }

    /// Returns the first entry at or above `from`. Nearly always this entry is in the page whose range holds `from`.
    /// Then the page is not copied.
    #[inline]
    pub(crate) fn ceiling_in_list<R>(
        &self,
        local: &Local<'_, F>,
        from: F::Probe<'_>,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let (page, version, _) = self.target(local.guard, local.jump(from), from);
        match page.successor(from) {
            Ok(Some((key, word))) if page.lock().validate(version) => return Some(found(key, word)),
            // All of the page's keys are below `from`.
            Ok(None) => {
                if let Some((key, word)) = Self::first_after(page, version) {
                    return Some(found(key, word));
                }
            }
            Ok(Some(_)) => {}
            Err(Unsorted) => {
                if let Ok(Some(word)) = self.look_up(page, version, from, F::tag(from)) {
                    return Some(found(from, word));
                }
            }
        }
        self.ceiling_farther(local, from, found)
    }

    /// Returns the first entry of the next page, if the page still has this version and the entry is quickly found.
    #[inline(never)]
    fn first_after(page: &F::Page, version: Version) -> Option<(F::Probe<'static>, u64)> {
        let next = after::<F>(page, version).ok()??;
        let version = next.lock().read()?;
        let entry = next.successor(next.low()).ok()??;
        next.lock().validate(version).then_some(entry)
    }

    /// Finds an entry as [`ceiling_in_list`](Self::ceiling_in_list) does, by a scan of one entry.
    #[cold]
    #[inline(never)]
    fn ceiling_farther<R>(
        &self,
        local: &Local<'_, F>,
        from: F::Probe<'_>,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let (mut found, mut result) = (Some(found), None);
        self.scan_list(local, from, 1, Words::Shown, |key, word| {
            result = found.take().map(|found| found(key, word));
            false
        });
        result
    }

    /// Returns a page at or left of `key`. This is `near` or the page after it, if one of the two has the key in its
    /// range, and otherwise the jump node. The method is for keys that arrive in order.
    pub(crate) fn jump_from<'g>(
        &self,
        near: Option<&'g F::Page>,
        local: &'g Local<'g, F>,
        key: F::Probe<'_>,
    ) -> &'g F::Page {
        let mut near = near.filter(|page| F::compare(page.low(), key).is_le());
        for _ in 0..2 {
            let Some(page) = near else { break };
            let Some(version) = page.lock().read() else { break };
            let Ok(beyond) = page.is_beyond(key, Seen::At(version)) else { break };
            let Ok(next) = after::<F>(page, version) else { break };
            if !beyond {
                return page;
            }
            near = next;
        }
        local.jump(key)
    }

    /// Removes the least or the greatest entry, if the map has any. `found` is called with its key and the removed
    /// entry after all locks are released.
    ///
    /// This is linearizable: the entry is removed while its page is locked, and every page between this page and the
    /// end of the list was empty at the moment of the lock. If no entry is found, all pages were empty at one moment.
    pub(crate) fn take_end_in_list<R>(
        &self,
        local: &Local<'_, F>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, Removed) -> R,
    ) -> Option<R> {
        let backoff = Backoff::new();
        loop {
            match self.lock_end(local, end) {
                Ok(Some(page)) => return Some(self.take_from_end(local, page, end, found)),
                Ok(None) => return None,
                Err(Changed) => self.wait(&backoff),
            }
        }
    }

    /// Locks the first non-empty page from an end of the list. Returns `None` if all pages are empty.
    ///
    /// The search begins at this end. Each page is found at a version of the page before it. In the end all versions
    /// still hold (the last one by its lock). So there was a moment at which all these pages were in the list with the
    /// content that was read. Ranges of live pages follow one another without gap, and each page's range ended where
    /// the next page's range began. So no entry was between the pages or beyond them.
    fn lock_end<'g>(&'g self, local: &'g Local<'g, F>, end: End) -> Result<Option<&'g F::Page>, Changed> {
        let mut empty: Vec<(&F::Page, Version)> = Vec::new();
        let still_empty = |empty: &[(&F::Page, Version)]| empty.iter().all(|(page, seen)| page.lock().validate(*seen));
        let mut at = Some(match end {
            End::First => self.target(local.guard, self.head(), self.head().low()),
            End::Last => self.before(local, None),
        });
        while let Some((page, version, _)) = at {
            if page.len() > 0 {
                if !page.lock().try_lock_at(version) {
                    return Err(Changed);
                }
                if still_empty(&empty) {
                    return Ok(Some(page));
                }
                page.lock().unlock_unchanged();
                return Err(Changed);
            }
            empty.push((page, version));
            at = match end {
                End::First => {
                    let next = after::<F>(page, version)?;
                    point(points::PASSED);
                    next.map(|next| self.target(local.guard, next, next.low()))
                }
                End::Last => {
                    point(points::PASSED);
                    (!core::ptr::eq(page, self.head())).then(|| self.before(local, Some(page.low())))
                }
            };
        }
        if still_empty(&empty) { Ok(None) } else { Err(Changed) }
    }

    /// Removes the outermost entry of a locked, non-empty page, and unlocks the page.
    fn take_from_end<R>(
        &self,
        local: &Local<'_, F>,
        page: &F::Page,
        end: End,
        found: impl FnOnce(F::Probe<'_>, Removed) -> R,
    ) -> R {
        let mut copy = <F::Page as Page<F>>::Copy::new();
        let mut scratch = Default::default();
        page.copy_all(Seen::Held, &mut copy).expect(LOCKED);
        if copy.sort() {
            page.write_back(&copy);
        }
        copy.prepare(&mut scratch);
        let at = match end {
            End::First => 0,
            End::Last => copy.len() - 1,
        };
        let key = copy.entry(at, &mut scratch).0;
        let slot = page.find(key, F::tag(key), Seen::Held).expect(LOCKED).expect("the copy is of this page");
        let removed = page.remove(slot);
        self.unlock_or_shrink(local, page);
        found(key, removed)
    }
}

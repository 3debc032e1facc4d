//! The data list: finding the target node, point operations, splits and merges (thesis §4.3.2, §4.3.3, §4.3.6).
//!
//! Every operation starts at a *jump node*, any page whose `low` is at or below the key, and walks right to the
//! *target node*, the page whose range holds the key. It is right however stale the jump node is:
//!
//! - A page's `low` never rises and a live page's never changes, so a page that once was at or left of a key stays so.
//! - Splits move keys right: the walk follows (`key >= high` means go to `next`).
//! - Merges move keys *left*, into the page before, and leave a forward pointer there: an obsolete page sends the walk
//!   left, to a page whose `low` is lower still.
//!
//! The thesis walks both ways over a doubly linked list and restarts from a deleted node's neighbour (its code spins
//! there for ever). Here there is no `prev` to keep right: the thread that needs the page before one asks the search
//! layer for a key just below and walks right.
//!
//! What a walk goes by, it has read at a version that was seen free, and validated (`sync::version_lock`). An obsolete
//! page needs no such evidence: it changes no more.
//!
//! Locks: one page at a time, except a merge, which holds a page and *tries* the next one. So there is no deadlock.

use super::page::{Changed, LOCKED, Page, PageCopy, Removed, Seen, Unsorted};
use super::shared::{Core, Local};
use crate::key::KeyForm;
pub(super) use crate::map::When;
use crate::map::{End, Put, Words};
use crate::points;
use archipelago_platform::atomic::Ordering::{AcqRel, Acquire};
use archipelago_platform::hint::point;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::version_lock::{Look, Version};

/// The page after one that still has the version at which it was seen. The caller's guard protects both.
#[inline]
fn after<F: KeyForm>(page: &F::Page, version: Version) -> Result<Option<&F::Page>, Changed> {
    point(points::LEAVING);
    let next = page.next();
    if !page.lock().validate(version) {
        return Err(Changed);
    }
    // SAFETY: validated, so `next` was this live page's neighbour: not yet retired, and the caller's guard was entered
    // before any retirement to come.
    Ok(unsafe { next.as_ref() })
}

impl<F: KeyForm> Core<F> {
    /// The page whose range holds `key`, and the version of it at which that was so.
    ///
    /// `from` is a page at or left of the key, protected by the caller's guard.
    #[inline]
    pub(crate) fn target<'g>(&self, from: &'g F::Page, key: F::Probe<'_>) -> (&'g F::Page, Version) {
        self.walk(from, |page, version| page.is_beyond(key, Seen::At(version)))
    }

    /// Walks right from `from` while `leave(page)`, following forward pointers of obsolete pages.
    #[inline]
    fn walk<'g>(
        &self,
        from: &'g F::Page,
        leave: impl Fn(&F::Page, Version) -> Result<bool, Changed>,
    ) -> (&'g F::Page, Version) {
        let mut page = from;
        let backoff = Backoff::new();
        loop {
            match page.lock().look() {
                Look::Free(version) => match leave(page, version) {
                    Ok(false) => return (page, version),
                    Ok(true) => {
                        if let Ok(Some(next)) = after::<F>(page, version) {
                            page = next;
                        }
                    }
                    Err(Changed) => {}
                },
                Look::Locked => backoff.wait(),
                // SAFETY: a forward pointer leads to a page that is reclaimed only after this one (`maintain.rs`),
                // and this one is protected by the caller's guard.
                Look::Obsolete => page = unsafe { &*page.next() },
            }
        }
    }

    /// The page with the greatest keys below `bound`: `low < bound <= high`. `from` is a page with `low < bound`.
    #[inline]
    pub(crate) fn before<'g>(&self, from: &'g F::Page, bound: F::Probe<'_>) -> (&'g F::Page, Version) {
        self.walk(from, |page, version| page.ends_before(bound, Seen::At(version)))
    }

    /// The last page.
    pub(crate) fn last<'g>(&self, from: &'g F::Page) -> (&'g F::Page, Version) {
        self.walk(from, |page, _| Ok(!page.next().is_null()))
    }

    /// The value word of `key`. The word stays valid under the caller's guard: the fence of `validate` meets the Release
    /// of the thread that stored it.
    ///
    /// Nearly always the layer leads to the right page and no thread is changing that: straight through, in as few
    /// instructions as possible: with fewer of them, the processor overlaps more look-ups.
    #[inline(always)]
    pub(crate) fn get(&self, from: &F::Page, key: F::Probe<'_>, tag: u8) -> Option<u64> {
        if let Some(version) = from.lock().read()
            && let Ok(false) = from.is_beyond(key, Seen::At(version))
            && let Ok(found) = Self::look_up(from, version, key, tag)
        {
            return found;
        }
        self.get_farther(from, key, tag)
    }

    /// The value word of `key` in the page that has it in its range.
    #[inline(always)]
    fn look_up(page: &F::Page, version: Version, key: F::Probe<'_>, tag: u8) -> Result<Option<u64>, Changed> {
        let found = page.find(key, tag, Seen::At(version))?.map(|slot| {
            point(points::FOUND);
            page.value(slot)
        });
        if page.lock().validate(version) { Ok(found) } else { Err(Changed) }
    }

    /// As [`get`](Self::get), from a page that may not be the right one, or is changing.
    #[inline(never)]
    fn get_farther(&self, from: &F::Page, key: F::Probe<'_>, tag: u8) -> Option<u64> {
        let mut page = from;
        loop {
            let (target, version) = self.target(page, key);
            if let Ok(found) = Self::look_up(target, version, key, tag) {
                return found;
            }
            page = target;
        }
    }

    /// Stores `value` under `key`.
    ///
    /// A new key is added under the page's lock. The value of one that is there is replaced by an atomic operation while
    /// the lock is shared, so that threads that update a popular key don't wait for each other. Without even that it
    /// would be unsound: a split, merge or sort may move the entry between look-up and swap, and the swap would then hit
    /// another key's slot or a page that is no longer reachable.
    #[inline]
    pub(crate) fn put(
        &self,
        local: &Local<'_, F>,
        from: &F::Page,
        key: F::Probe<'_>,
        tag: u8,
        value: u64,
        when: When,
    ) -> Put {
        let mut page = from;
        let backoff = Backoff::new();
        loop {
            let (target, version) = self.target(page, key);
            page = target;
            match page.find(key, tag, Seen::At(version)) {
                Ok(Some(slot)) => match self.replace(page, version, slot, value, when) {
                    Ok(put) => return put,
                    Err(Changed) => continue,
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
            let prepared = page.prepare_push();
            if !page.lock().try_lock_at(version) {
                backoff.wait();
                continue;
            }
            // Free and in range when read, and not changed since: the key belongs here, and isn't.
            debug_assert!(F::compare(page.low(), key).is_le());
            debug_assert_eq!(page.is_beyond(key, Seen::Held), Ok(false));
            if page.push(key, tag, value, prepared) {
                page.lock().unlock();
                return Put::Inserted;
            }
            self.split(local, page, key);
        }
    }

    /// What [`put`](Self::put) does about a key that was found at `version`, if that is still true.
    #[inline]
    fn replace(&self, page: &F::Page, version: Version, slot: usize, value: u64, when: When) -> Result<Put, Changed> {
        if let When::Absent = when {
            point(points::PRESENT);
            let old = page.value(slot);
            return if page.lock().validate(version) { Ok(Put::Kept(old)) } else { Err(Changed) };
        }
        if !page.lock().try_share_at(version) {
            return Err(Changed);
        }
        let word = page.value_word(slot);
        // Release: who reads the word sees what it leads to. Acquire: we look at what the old one leads to.
        let put = match when {
            When::Holds(expected) => match word.compare_exchange(expected, value, AcqRel, Acquire) {
                Ok(old) => Put::Replaced(old),
                Err(kept) => Put::Kept(kept),
            },
            _ => Put::Replaced(word.swap(value, AcqRel)),
        };
        page.lock().unshare();
        Ok(put)
    }

    /// Takes `key` out; if a word is expected, only if that is its value word.
    pub(crate) fn take(
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
            let (target, version) = self.target(page, key);
            page = target;
            match page.find(key, tag, Seen::At(version)) {
                Ok(None) if page.lock().validate(version) => return None,
                Ok(_) => {}
                Err(Changed) => continue,
            }
            if !page.lock().try_lock_at(version) {
                backoff.wait();
                continue;
            }
            let held = |slot: &usize| expected.is_none_or(|word| page.value(*slot) == word);
            let Some(slot) = page.find(key, tag, Seen::Held).expect(LOCKED).filter(held) else {
                page.lock().unlock_unchanged();
                return None;
            };
            let removed = page.remove(slot);
            self.unlock_or_shrink(local, page);
            return Some(removed);
        }
    }

    /// The first entry at or above `from`: nearly always its own, or in the same page, which is not copied then.
    #[inline]
    pub(crate) fn ceiling<R>(
        &self,
        local: &Local<'_, F>,
        from: F::Probe<'_>,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let (page, version) = self.target(local.jump(from), from);
        match page.successor(from) {
            Ok(Some((key, word))) if page.lock().validate(version) => return Some(found(key, word)),
            // All of the page's keys are below.
            Ok(None) => {
                if let Some((key, word)) = Self::first_after(page, version) {
                    return Some(found(key, word));
                }
            }
            Ok(Some(_)) => {}
            Err(Unsorted) => {
                if let Ok(Some(word)) = Self::look_up(page, version, from, F::tag(from)) {
                    return Some(found(from, word));
                }
            }
        }
        self.ceiling_farther(local, from, found)
    }

    /// The first entry of the page after one that still has this version, if it is quickly told.
    #[inline(never)]
    fn first_after(page: &F::Page, version: Version) -> Option<(F::Probe<'static>, u64)> {
        let next = after::<F>(page, version).ok()??;
        let version = next.lock().read()?;
        let entry = next.successor(next.low()).ok()??;
        next.lock().validate(version).then_some(entry)
    }

    /// As [`ceiling`](Self::ceiling), as a scan of one entry.
    #[cold]
    #[inline(never)]
    fn ceiling_farther<R>(
        &self,
        local: &Local<'_, F>,
        from: F::Probe<'_>,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let (mut found, mut result) = (Some(found), None);
        self.scan(local, from, 1, Words::Shown, |key, word| {
            result = found.take().map(|found| found(key, word));
            false
        });
        result
    }

    /// A page at or left of `key`: `near`, or the page after it, if one of the two has the key in its range. For keys
    /// that come in order.
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

    /// Takes the least or the greatest entry out, if there is any: `found` receives its key and what was taken out,
    /// when no lock is held any more.
    ///
    /// Linearizable: the entry is taken while its page is locked and every page between it and that end of the list is
    /// seen to have been empty since before the lock; without an entry, all pages were empty at one moment.
    pub(crate) fn take_end<R>(
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
                Err(Changed) => backoff.wait(),
            }
        }
    }

    /// Locks the first non-empty page from an end of the list; `None` if there is none.
    ///
    /// Each page is found at a version of the one before, going from that end. In the end all versions still hold (the
    /// last by its lock), so there was a moment at which all these pages were in the list as they were seen. Ranges of
    /// live pages follow one another without gap, and each page's was seen to end where the next one's begins: there was
    /// nothing between them or beyond.
    fn lock_end<'g>(&'g self, local: &'g Local<'g, F>, end: End) -> Result<Option<&'g F::Page>, Changed> {
        let mut empty: Vec<(&F::Page, Version)> = Vec::new();
        let still_empty = |empty: &[(&F::Page, Version)]| empty.iter().all(|(page, seen)| page.lock().validate(*seen));
        let mut at = Some(match end {
            End::First => self.walk(self.head(), |_, _| Ok(false)),
            End::Last => self.last(local.jump(F::probe(&F::great()))),
        });
        while let Some((page, version)) = at {
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
                    next.map(|next| self.walk(next, |_, _| Ok(false)))
                }
                End::Last => {
                    point(points::PASSED);
                    F::just_below(page.low()).map(|below| self.before(local.jump(F::probe(&below)), page.low()))
                }
            };
        }
        if still_empty(&empty) { Ok(None) } else { Err(Changed) }
    }

    /// Takes the outermost entry out of a locked, non-empty page and unlocks it.
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

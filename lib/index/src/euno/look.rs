//! Reading a page's words, by whatever right the reader has: in a walk, in a change, at a version, or as its owner. Searches
//! are written once, over these.

use super::form::ChunkForm;
use archipelago_sync::region::{Again, Changing, Link, Page, Walk, Word};
use archipelago_sync::version_lock::{Version, VersionLock};
use core::cmp::Ordering;

/// A right to read the present page's words.
pub(super) trait Look {
    /// Reads one; unproven.
    fn get(&self, word: &Word) -> u64;

    /// Proves what was read: see [`Walk::prove`].
    fn prove(&self) -> Result<(), Again>;
}

/// In a walk.
pub(super) struct Walking<'w, 'g, W>(&'w W, core::marker::PhantomData<&'g ()>);

/// The right of a walk.
#[inline(always)]
pub(super) fn walking<'w, 'g, W: Walk<'g>>(walk: &'w W) -> Walking<'w, 'g, W> {
    Walking(walk, core::marker::PhantomData)
}

impl<'g, W: Walk<'g>> Look for Walking<'_, 'g, W> {
    #[inline(always)]
    fn get(&self, word: &Word) -> u64 {
        self.0.get(word)
    }

    #[inline(always)]
    fn prove(&self) -> Result<(), Again> {
        self.0.prove()
    }
}

/// In a change: what it reads belongs together.
pub(super) struct InChange<'c, C>(pub(super) &'c C);

impl<C: Changing> Look for InChange<'_, C> {
    #[inline(always)]
    fn get(&self, word: &Word) -> u64 {
        self.0.get(word)
    }

    #[inline(always)]
    fn prove(&self) -> Result<(), Again> {
        Ok(())
    }
}

/// As the one that alone changes the page: by its lock, or before others see it.
pub(super) struct Alone;

impl Look for Alone {
    #[inline(always)]
    fn get(&self, word: &Word) -> u64 {
        word.load()
    }

    #[inline(always)]
    fn prove(&self) -> Result<(), Again> {
        Ok(())
    }
}

/// A thread that alone changes a page may run a change on it by hand. A new version is the lock's business.
impl Changing for Alone {
    #[inline(always)]
    fn get(&self, word: &Word) -> u64 {
        word.load()
    }

    #[inline(always)]
    fn set(&mut self, word: &Word, value: u64) {
        word.set(value);
    }

    #[inline(always)]
    fn target<P>(&self, link: &Link<P>) -> *mut P {
        link.load()
    }

    #[inline(always)]
    unsafe fn set_link<P>(&mut self, link: &Link<P>, to: *mut P) {
        // SAFETY: passed on.
        unsafe { link.publish(to) }
    }

    fn restructure(&mut self, _: &impl Page) {}

    fn retire(&mut self, page: &impl Page) {
        page.lock().unlock_obsolete();
    }
}

/// At a version of a page that changes under its lock only, never in a transaction.
pub(super) struct AtVersion<'g>(pub(super) &'g VersionLock, pub(super) Version);

impl Look for AtVersion<'_> {
    #[inline(always)]
    fn get(&self, word: &Word) -> u64 {
        word.load()
    }

    #[inline(always)]
    fn prove(&self) -> Result<(), Again> {
        if self.0.validate(self.1) { Ok(()) } else { Err(Again) }
    }
}

/// The result of a look by a right that always proves.
#[inline(always)]
pub(super) fn settled<T>(result: Result<T, Again>) -> T {
    result.unwrap_or_else(|Again| unreachable!("what is read alone needs no proof"))
}

/// How the key of a word that was read compares with `key`.
#[inline(always)]
pub(super) fn order<F: ChunkForm>(look: &impl Look, kept: u64, key: F::Probe<'_>) -> Result<Ordering, Again> {
    if F::BOXED {
        look.prove()?;
    }
    // SAFETY: the word was a key's of this page at a moment within the caller's guard, and is retired under one.
    Ok(F::compare(unsafe { F::kept(kept) }, key))
}

/// How many of the first `count` of some words, which ascend, are before: as `before` says of their order to `key`. There are no
/// more than `1 << steps`, less one; the others may be anything that can be read.
#[inline(always)]
pub(super) fn rank<'p, F: ChunkForm>(
    look: &impl Look,
    steps: u32,
    word: impl Fn(usize) -> &'p Word,
    count: usize,
    key: F::Probe<'_>,
    before: impl Fn(Ordering) -> bool,
) -> Result<usize, Again> {
    let mut start = 0;
    // Always as many steps: neither how many there are nor which half it is can a branch predictor know.
    for step in (0..steps).rev() {
        let end = start + (1 << step);
        if F::BOXED && end > count {
            continue;
        }
        let below = before(order::<F>(look, look.get(word(end - 1)), key)?);
        start = core::hint::select_unpredictable((end <= count) & below, end, start);
    }
    Ok(start)
}

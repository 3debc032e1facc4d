//! Access to a page's words in four contexts: in a walk, in a change, at a version, or as the only thread that may
//! change the page. Searches are generic over the context.

use super::form::ChunkForm;
use archipelago_sync::region::{Again, Changing, Link, Var, Versioned, Walk};
use archipelago_sync::version_lock::{Version, VersionLock};
use core::cmp::Ordering;

/// A context in which the present page's words can be read.
pub(super) trait Look {
    /// Reads a word. The value is not proven (validated).
    fn get(&self, word: &Var) -> u64;

    /// Returns which bytes of up to sixteen words equal `byte`, see [`Var::matches`]. The result is not proven.
    #[inline(always)]
    fn matches(&self, words: &[Var], byte: u8) -> u128 {
        Var::matches(words, byte)
    }

    /// Proves the values that were read, see [`Walk::prove`].
    fn prove(&self) -> Result<(), Again>;
}

/// The context of a walk.
pub(super) struct Walking<'w, 'g, W>(&'w W, core::marker::PhantomData<&'g ()>);

/// Makes the context of a walk.
#[inline(always)]
pub(super) fn walking<'w, 'g, W: Walk<'g>>(walk: &'w W) -> Walking<'w, 'g, W> {
    Walking(walk, core::marker::PhantomData)
}

impl<'g, W: Walk<'g>> Look for Walking<'_, 'g, W> {
    #[inline(always)]
    fn get(&self, word: &Var) -> u64 {
        self.0.get(word)
    }

    #[inline(always)]
    fn prove(&self) -> Result<(), Again> {
        self.0.prove()
    }
}

/// The context of a change, whose reads are consistent.
pub(super) struct InChange<'c, C>(pub(super) &'c C);

impl<C: Changing> Look for InChange<'_, C> {
    #[inline(always)]
    fn get(&self, word: &Var) -> u64 {
        self.0.get(word)
    }

    #[inline(always)]
    fn prove(&self) -> Result<(), Again> {
        Ok(())
    }
}

/// The context of the only thread that may change the page: it holds the lock, or no other thread can access the page
/// yet.
pub(super) struct Alone;

impl Look for Alone {
    #[inline(always)]
    fn get(&self, word: &Var) -> u64 {
        word.load()
    }

    #[inline(always)]
    fn prove(&self) -> Result<(), Again> {
        Ok(())
    }
}

/// The only thread that may change a page can run a change directly, without a region. The release of the lock makes
/// the new version.
impl Changing for Alone {
    #[inline(always)]
    fn get(&self, word: &Var) -> u64 {
        word.load()
    }

    #[inline(always)]
    fn set(&mut self, word: &Var, value: u64) {
        word.set(value);
    }

    #[inline(always)]
    fn target<P>(&self, link: &Link<P>) -> *mut P {
        link.load()
    }

    #[inline(always)]
    unsafe fn set_link<P>(&mut self, link: &Link<P>, to: *mut P) {
        // SAFETY: the caller guarantees the same contract.
        unsafe { link.publish(to) }
    }

    fn restructure(&mut self, _: &impl Versioned) {}

    fn retire(&mut self, page: &impl Versioned) {
        page.lock().unlock_obsolete();
    }
}

/// The context of a reader at a version. The page must change only under its lock, never in a transaction.
pub(super) struct AtVersion<'g>(pub(super) &'g VersionLock, pub(super) Version);

impl Look for AtVersion<'_> {
    #[inline(always)]
    fn get(&self, word: &Var) -> u64 {
        word.load()
    }

    #[inline(always)]
    fn prove(&self) -> Result<(), Again> {
        if self.0.validate(self.1) { Ok(()) } else { Err(Again) }
    }
}

/// Unwraps the result of a read in a context whose proofs never fail.
#[inline(always)]
pub(super) fn settled<T>(result: Result<T, Again>) -> T {
    result.unwrap_or_else(|Again| unreachable!("what is read alone needs no proof"))
}

/// Compares the key of the word `kept`, which was read in this context, with `key`.
#[inline(always)]
pub(super) fn order<F: ChunkForm>(look: &impl Look, kept: u64, key: F::Probe<'_>) -> Result<Ordering, Again> {
    if F::BOXED {
        look.prove()?;
    }
    // SAFETY: the word was that of a key of this page at a moment within the caller's guard, and is retired under a
    // guard.
    Ok(F::compare(unsafe { F::kept(kept) }, key))
}

/// Returns how many of the first `count` words, which are ascending, precede `key` in the sense of `before`. `count` is
/// less than `1 << steps`; words beyond it may have any value.
#[inline(always)]
pub(super) fn rank<'p, F: ChunkForm>(
    look: &impl Look,
    steps: u32,
    word: impl Fn(usize) -> &'p Var,
    count: usize,
    key: F::Probe<'_>,
    before: impl Fn(Ordering) -> bool,
) -> Result<usize, Again> {
    let mut start = 0;
    // The number of steps is constant. A branch predictor could predict neither a number of steps that depends on the
    // count nor the direction of a step.
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

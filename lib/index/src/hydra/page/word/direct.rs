//! The direct form of a [`WordPage`], for consecutive keys: a direct-address table, with a value for each key of the
//! page's range, and no keys.
//!
//! ```text
//!  16  64 bits: whether the key k is in the page, at k % 64; 39 bytes of zero; DIRECT        -> line 0
//!  64  64 values, that of k at k % 64                                                       -> 8 lines
//! ```
//!
//! Invariant: the range of a direct page has at most 64 keys. So each of these has a place of its own, which follows from
//! the key, and the page is never full. A full page has 13 bytes for each entry.
//!
//! A page gets the form when it would overflow, and loses it when its range grows, as it takes over its neighbour. Splits
//! cut ranges so that pages can get the form, see [`WordPage::pivot`].

use super::{Removed, SLOTS, WordPage};
use archipelago_platform::atomic::Ordering::Relaxed;

/// The number of keys in the range of a direct page.
pub(crate) const WINDOW: usize = 64;

/// The length of the sorted run of a direct page.
pub(super) const DIRECT: u8 = u8::MAX;

/// Returns the place of a key's bit and value.
#[inline]
pub(super) fn place(key: u64) -> usize {
    key as usize % WINDOW
}

impl WordPage {
    #[inline(always)]
    pub(super) fn is_direct(&self) -> bool {
        self.tags[SLOTS].load(Relaxed) == DIRECT
    }

    /// Returns whether the page may be direct: its range is bounded, and small enough.
    pub(super) fn has_window(&self) -> bool {
        let is_last = self.next.load(Relaxed).is_null();
        !is_last && self.high.load(Relaxed).wrapping_sub(self.low.load(Relaxed)) <= WINDOW as u64
    }

    /// Returns the place of `key`, if the direct page has it.
    #[inline]
    pub(super) fn find_direct(&self, key: u64) -> Option<usize> {
        let at = place(key);
        (self.tags[at / 8].load(Relaxed) >> (at % 8) & 1 != 0).then_some(at)
    }

    /// Returns the bits of a direct page.
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        u64::from_le_bytes(core::array::from_fn(|at| self.tags[at].load(Relaxed)))
    }

    /// Returns the entries of a direct page at or above `from` in order, or what a concurrent writer makes of them.
    #[inline]
    pub(super) fn direct_from(&self, from: u64) -> impl Iterator<Item = (u64, u64)> {
        let low = self.low.load(Relaxed);
        let start = u32::try_from(from.saturating_sub(low)).unwrap_or(u32::MAX);
        // Bit i is that of the key low + i.
        let mut bits = self.bits().rotate_right(place(low) as u32);
        bits &= u64::MAX.checked_shl(start).unwrap_or(0);
        core::iter::from_fn(move || {
            let next = (bits != 0).then(|| low.wrapping_add(bits.trailing_zeros().into()))?;
            bits &= bits - 1;
            Some((next, self.words[place(next)].load(Relaxed)))
        })
    }

    /// Adds an entry to a locked direct page.
    #[inline]
    pub(super) fn push_direct(&self, key: u64, value: u64) {
        self.words[place(key)].store(value, Relaxed);
        self.flip(place(key));
    }

    /// Removes an entry from a locked direct page.
    pub(super) fn remove_direct(&self, at: usize) -> Removed {
        let value = self.words[at].load(Relaxed);
        self.flip(at);
        Removed { value, key: core::ptr::null_mut() }
    }

    fn flip(&self, at: usize) {
        let byte = &self.tags[at / 8];
        byte.store(byte.load(Relaxed) ^ 1 << (at % 8), Relaxed);
    }

    /// Adds an entry to a full, locked page with slots, if the page can be direct. Returns whether it did.
    #[cold]
    #[inline(never)]
    pub(super) fn push_full(&self, key: u64, value: u64) -> bool {
        let fits = self.has_window();
        if fits {
            self.to_direct();
            self.push_direct(key, value);
        }
        fits
    }

    /// Makes a full, locked page direct, whose range allows it.
    fn to_direct(&self) {
        let pairs: [_; SLOTS] = core::array::from_fn(|slot| self.pair(slot));
        self.clear_tags();
        self.tags[SLOTS].store(DIRECT, Relaxed);
        pairs.iter().for_each(|&(key, value)| self.push_direct(key, value));
    }

    /// Gives a locked direct page, whose entries fit them, slots.
    pub(super) fn to_slots(&self) {
        let mut pairs = [(0, 0); SLOTS];
        let mut len = 0;
        for pair in self.direct_from(0) {
            pairs[len] = pair;
            len += 1;
        }
        self.clear_tags();
        self.set_sorted(0);
        self.fill(&pairs[..len]);
    }

    fn clear_tags(&self) {
        self.tags[..SLOTS].iter().for_each(|tag| tag.store(0, Relaxed));
    }

    /// Returns where a full page with these entries, which are in order, is split: the lower bound of the right page, and
    /// the number of entries that stay.
    ///
    /// If consecutive keys arrive in any order, the ranges of their pages should end up with 64 keys each. So a bound is
    /// a multiple of 64 above the page's own lower bound, where it is about in the middle. If most entries are among the
    /// first 64 keys of the range, the rest of the range is cut off. For keys that are far apart such a bound is as good
    /// as a key in the middle.
    pub(super) fn pivot(&self, pairs: &[(u64, u64); SLOTS]) -> (u64, usize) {
        const MIDDLE: usize = SLOTS / 2;
        const UNEVEN: usize = 4;
        let (low, window) = (self.low.load(Relaxed), WINDOW as u64);
        let distance = pairs[MIDDLE].0 - low;
        let windows = (distance / window + distance % window / (window / 2)).max(1);
        if let Some(bound) = windows.checked_mul(window).and_then(|distance| low.checked_add(distance)) {
            let stay = pairs.partition_point(|pair| pair.0 < bound);
            let is_even = stay.abs_diff(MIDDLE) <= UNEVEN;
            if is_even || windows == 1 && stay > MIDDLE {
                return (bound, stay);
            }
        }
        (pairs[MIDDLE].0, MIDDLE)
    }
}

//! Pages of keys that are words. See [`slots`](super::slots).

use super::run::Run;
use super::slots::{Fence, Found, Shape, SlotForm, shift_down, shift_up};
use crate::search::partition_point;
use crate::structure::Word;
use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_platform::hint;
use core::cmp::Ordering;
use core::ops::Range;

/// The number of words of a cache line.
const LINE: usize = 8;

/// The number of slots that a search reads first. In a page of 200 random keys, one search in a hundred finds its key
/// outside of these slots.
const WINDOW: usize = 4 * LINE;

/// Entries whose keys are words.
#[derive(Default)]
pub struct WordRun(Vec<(u64, u64)>);

impl Run<Word> for WordRun {
    fn with_room(entries: usize) -> Self {
        WordRun(Vec::with_capacity(entries))
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn push(&mut self, key: u64, value: u64) {
        self.0.push((key, value));
    }

    #[inline]
    fn key(&self, at: usize) -> u64 {
        self.0[at].0
    }

    #[inline]
    fn value(&self, at: usize) -> u64 {
        self.0[at].1
    }
}

/// Returns the slot that a key would have if the page's keys were uniformly distributed over its range; the error is
/// often less than a cache line.
#[inline]
fn guess(len: usize, (low, high): (u64, Option<u64>), key: u64) -> usize {
    // Keys that arrive in ascending order are inserted behind all others.
    let Some(high) = high else { return len };
    // Halved differences are converted to floating point by one instruction. The result is within bounds even if a
    // concurrent writer changes the fences.
    let from_low = |key: u64| (key.wrapping_sub(low) >> 1) as i64 as f64;
    ((from_low(key) / from_low(high) * len as i64 as f64) as i64 as usize).min(len)
}

/// Prefetches the slots of a window, and the values around its middle, all at the same time.
#[inline]
fn fetch(words: &[AtomicU64], start: usize) {
    let fetch = |word: usize| hint::prefetch_read(words.as_ptr().wrapping_add(word));
    (0..WINDOW / LINE).for_each(|line| fetch(start + line * LINE));
    let value = words.len().wrapping_sub(1 + start + WINDOW / 2);
    [value.wrapping_sub(LINE), value, value.wrapping_add(LINE)].into_iter().for_each(fetch);
}

/// Returns the index of the first of the ascending `slots` that is not less than `key`.
///
/// Nearly always this slot is in the window of `WINDOW` slots from `start` on, whose middle is the guessed position.
/// The window is searched without a branch that depends on a key, so the processor can proceed while the slots are
/// still being loaded. If the slot is not in the window, the search makes growing steps. So keys that are not uniformly
/// distributed cost one step for each doubling of the error.
#[inline]
fn search_about(start: usize, slots: &[AtomicU64], key: u64) -> usize {
    let before = |slot: &AtomicU64| slot.load(Relaxed) < key;
    let Some(window) = slots.get(start..).and_then(|slots| slots.first_chunk::<WINDOW>()) else {
        return partition_point(0, slots.len(), |slot| before(&slots[slot]));
    };
    let mut at = 0;
    for half in [16, 8, 4, 2, 1] {
        at = core::hint::select_unpredictable(before(&window[at | half]), at | half, at);
    }
    at += usize::from(before(&window[at]));
    if at == 0 && start > 0 && !before(&slots[start - 1]) {
        return search_down(start - 1, slots, key);
    }
    if at == WINDOW && slots.get(start + WINDOW).is_some_and(before) {
        return search_up(start + WINDOW + 1, slots, key);
    }
    start + at
}

/// Searches as [`search_about`] does, in slots up to `end`.
#[cold]
fn search_down(mut end: usize, slots: &[AtomicU64], key: u64) -> usize {
    let before = |slot: usize| slots[slot].load(Relaxed) < key;
    let mut step = WINDOW;
    while end > step && !before(end - step) {
        end -= step;
        step *= 2;
    }
    partition_point(end.saturating_sub(step), end, before)
}

/// Searches as [`search_about`] does, in slots from `start` on.
#[cold]
fn search_up(mut start: usize, slots: &[AtomicU64], key: u64) -> usize {
    let before = |slot: usize| slots[slot].load(Relaxed) < key;
    let mut step = WINDOW;
    while start + step < slots.len() && before(start + step) {
        start += step + 1;
        step *= 2;
    }
    partition_point(start, slots.len().min(start + step), before)
}

impl SlotForm for Word {
    type Run = WordRun;

    fn prefix(_: u64, _: Option<u64>) -> usize {
        0
    }

    fn floor<'a>(low: Self::Probe<'a>, _: usize) -> Self::Probe<'a> {
        low
    }

    fn separator<'a>(_: u64, b: Self::Probe<'a>) -> Self::Probe<'a> {
        b
    }

    #[inline]
    fn len(_: u64) -> usize {
        0
    }

    #[inline]
    fn hash(key: u64) -> u64 {
        key
    }

    fn head(key: u64) -> u64 {
        key
    }

    #[inline]
    fn fence_words(_: usize) -> usize {
        0
    }

    fn write_fence(_: &[AtomicU64], _: u64) {}

    #[inline]
    fn order(key: u64, fence: Fence<'_>) -> Ordering {
        key.cmp(&fence.head)
    }

    fn read_fence(fence: Fence<'_>) -> u64 {
        fence.head
    }

    #[inline]
    fn entry_words(_: u64, _: usize) -> usize {
        2
    }

    #[inline]
    fn search(words: &[AtomicU64], shape: Shape, heads: (u64, Option<u64>), key: u64) -> Found {
        let slots = &words[..shape.len.min(words.len())];
        let guess = guess(slots.len(), heads, key);
        let start = guess.saturating_sub(WINDOW / 2).min(slots.len().saturating_sub(WINDOW));
        fetch(words, start);
        let slot = search_about(start, slots, key);
        Found { slot, hit: slots.get(slot).is_some_and(|word| word.load(Relaxed) == key) }
    }

    #[inline]
    fn value(words: &[AtomicU64], _: Shape, slot: usize) -> &AtomicU64 {
        let last = words.len() - 1;
        &words[last - slot.min(last)]
    }

    fn put(words: &[AtomicU64], shape: &mut Shape, slot: usize, key: u64, value: u64) {
        let end = words.len();
        shift_up(words, slot..shape.len);
        shift_down(words, end - shape.len..end - slot);
        words[slot].store(key, Relaxed);
        words[end - 1 - slot].store(value, Relaxed);
        (shape.len, shape.floor) = (shape.len + 1, shape.floor - 1);
    }

    fn take(words: &[AtomicU64], shape: &mut Shape, slot: usize) -> usize {
        let end = words.len();
        shift_down(words, slot + 1..shape.len);
        shift_up(words, end - shape.len..end - 1 - slot);
        (shape.len, shape.floor) = (shape.len - 1, shape.floor + 1);
        0
    }

    #[inline]
    fn collect(words: &[AtomicU64], _: Shape, _: Fence<'_>, slots: Range<usize>, run: &mut WordRun) {
        let half = words.len() / 2;
        let slots = slots.start.min(half)..slots.end.min(half);
        let values = words[words.len() - slots.end..words.len() - slots.start].iter().rev();
        run.0.extend(words[slots].iter().zip(values).map(|(key, value)| (key.load(Relaxed), value.load(Relaxed))));
    }
}

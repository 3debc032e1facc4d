//! Pages of keys that are a word. See [`slots`](super::slots).

use super::run::Run;
use super::slots::{Fence, Found, Shape, SlotForm, shift_down, shift_up};
use crate::Word;
use crate::hydra::partition_point;
use archipelago_platform::atomic::{AtomicU64, Ordering::Relaxed};
use archipelago_platform::hint;
use core::cmp::Ordering;
use core::ops::Range;

/// Words of a cache line.
const LINE: usize = 8;

/// Entries of integers.
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

/// Where a key would be if the page's keys were spread evenly over its range: often not a line off.
#[inline]
fn guess(len: usize, (low, high): (u64, Option<u64>), key: u64) -> usize {
    // Keys that arrive in ascending order go behind all others.
    let Some(high) = high else { return len };
    let (part, all) = (key.wrapping_sub(low), high.wrapping_sub(low));
    // Whatever a racing writer makes of the fences: the conversion saturates.
    ((part as f64 / all as f64 * len as f64) as usize).min(len)
}

/// Starts fetching the slots and values about a place, all at the same time.
#[inline]
fn fetch_around(words: &[AtomicU64], slot: usize) {
    let fetch = |word: usize| hint::prefetch_read(words.as_ptr().wrapping_add(word));
    let value = words.len().wrapping_sub(1 + slot);
    fetch(slot);
    fetch(slot.wrapping_sub(LINE));
    fetch(slot + LINE);
    fetch(value);
    fetch(value.wrapping_sub(LINE));
    fetch(value.wrapping_add(LINE));
}

/// The first slot of `len` for which `before` is false, looked for in growing steps from a guess: keys that are not spread
/// evenly cost a step for each doubling of the error.
#[inline]
fn search_from(guess: usize, len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut start, mut end, mut step) = (0, len, LINE);
    if guess < len && before(guess) {
        start = guess + 1;
        while start + step < len && before(start + step) {
            start += step + 1;
            step *= 2;
        }
        end = len.min(start + step);
    } else {
        end = guess.min(end);
        while end > step && !before(end - step) {
            end -= step;
            step *= 2;
        }
        start = end.saturating_sub(step);
    }
    partition_point(start, end, before)
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
        fetch_around(words, guess);
        let slot = search_from(guess, slots.len(), |slot| slots[slot].load(Relaxed) < key);
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

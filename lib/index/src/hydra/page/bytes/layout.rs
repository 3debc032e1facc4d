//! Words and numbers of a [`BytesPage`](super::BytesPage): sizes, packed fields, and reading keys as words.

use super::boxed::Boxed;
use crate::points;
use crate::search::chunk;
use archipelago_platform::hint;
use core::cmp::Ordering;
use core::convert::Infallible;

/// The most entries per page.
pub(super) const SLOTS: usize = 48;

/// The number of words for slots and heap together.
pub(super) const WORDS: usize = 150;

/// The number of words per slot.
pub(super) const SLOT: usize = 3;

/// The number of bytes of a suffix that are stored in the slot itself.
pub(super) const IN_SLOT: usize = 12;

/// The length in bytes above which a key is boxed. At this length a page without common prefix still has room for five
/// keys.
pub(super) const LONG_KEY: usize = 192;

/// The length in bytes above which an upper bound is read from the next page's boxed `low`.
pub(super) const LONG_HIGH: usize = 64;

/// The value of a slot's length field if the key is boxed.
pub(super) const BOXED: u64 = 0xFFFF;

/// What a page stores about its contents, in one word.
#[derive(Clone, Copy)]
pub(super) struct Meta {
    /// The length of the sorted run.
    pub(super) sorted: usize,
    /// The length of the prefix that the entries share and do not store.
    pub(super) prefix: usize,
    /// The lowest heap word in use.
    pub(super) floor: usize,
    /// The length of `high` in bytes, and 0 on the last page. If the length is above [`LONG_HIGH`], the field is
    /// `LONG_HIGH + 1`, and the top word is a pointer to `high`.
    pub(super) high: usize,
}

impl Meta {
    #[inline]
    pub(super) fn unpack(word: u64) -> Self {
        let field = |shift: u32| (word >> shift) as usize & 0xFFFF;
        Self { sorted: field(0).min(SLOTS), prefix: field(16), floor: field(32).min(WORDS), high: field(48) }
    }

    pub(super) fn pack(self) -> u64 {
        self.sorted as u64 | (self.prefix as u64) << 16 | (self.floor as u64) << 32 | (self.high as u64) << 48
    }

    /// Returns whether a page with `len` entries has a slot and words for `key`.
    #[inline]
    pub(super) fn has_room(self, len: usize, key: &[u8]) -> bool {
        self.has_words(len, tail_words(key.len(), self.prefix))
    }

    /// Returns whether a page with `len` entries has a slot for another one, and words for its tail.
    #[inline]
    pub(super) fn has_words(self, len: usize, tail: usize) -> bool {
        len < SLOTS && SLOT * (len + 1) + tail <= self.floor
    }

    /// Returns the number of heap words of `high`, which are at the top.
    #[inline]
    pub(super) fn high_words(self) -> usize {
        if self.high > LONG_HIGH { 1 } else { self.high.div_ceil(8) }
    }
}

/// Returns the number of heap words for the tail of a key of `len` bytes with a prefix of `prefix` bytes.
#[inline]
pub(super) fn tail_words(len: usize, prefix: usize) -> usize {
    if len > LONG_KEY { 1 } else { (len - prefix).saturating_sub(IN_SLOT).div_ceil(8) }
}

/// The third word of a slot.
#[derive(Clone, Copy)]
pub(super) struct Info(pub(super) u64);

impl Info {
    pub(super) fn new(fourth: u64, place: usize, len: u64) -> Self {
        Self(fourth << 32 | (place as u64) << 16 | len)
    }

    #[inline]
    pub(super) fn place(self) -> usize {
        (self.0 >> 16) as usize & 0xFFFF
    }

    /// Returns the word of the same slot after its tail has moved.
    #[inline]
    pub(super) fn moved_to(self, place: usize) -> Self {
        Self(self.0 & !(0xFFFF << 16) | (place as u64) << 16)
    }

    #[inline]
    pub(super) fn len(self) -> u64 {
        self.0 & 0xFFFF
    }

    /// Returns the bytes 8..12 of the suffix.
    #[inline]
    pub(super) fn middle(self) -> u64 {
        self.0 >> 32
    }

    /// Returns the number of heap words of the tail.
    #[inline]
    pub(super) fn tail_words(self) -> usize {
        if self.len() == BOXED { 1 } else { (self.len() as usize).saturating_sub(IN_SLOT).div_ceil(8) }
    }
}

/// Always returns success. It is the `trust` of [`compare`] for a page that no other thread can change.
pub(super) fn unchanging() -> Result<(), Infallible> {
    Ok(())
}

/// Compares `key` with the entry in `slot` of a page. `word` reads a word of the page. The key and the entry share a
/// prefix of `prefix` bytes. `trust` must fail if a word that `word` has returned must not be followed as a pointer.
#[inline]
pub(super) fn compare<E>(
    key: &[u8],
    prefix: usize,
    slot: usize,
    word: impl Fn(usize) -> u64,
    trust: impl Fn() -> Result<(), E>,
) -> Result<Ordering, E> {
    let head = chunk(key, prefix).cmp(&word(slot * SLOT));
    if head.is_ne() {
        return Ok(head);
    }
    let info = Info(word(slot * SLOT + 2));
    let middle = (chunk(key, prefix + 8) >> 32).cmp(&info.middle());
    if middle.is_ne() {
        return Ok(middle);
    }
    if info.len() == BOXED {
        hint::point(points::BOXED);
        let address = word(info.place().min(WORDS - 1));
        trust()?;
        // SAFETY: the word has been validated: it is a boxed key of this page, which is live as long as the caller's
        // guard or lock.
        return Ok(key.cmp(unsafe { Boxed::at(address) }));
    }
    let place = info.place().min(WORDS);
    for at in 0..info.tail_words().min(WORDS - place) {
        let tail = chunk(key, prefix + IN_SLOT + 8 * at).cmp(&u64::from_be(word(place + at)));
        if tail.is_ne() {
            return Ok(tail);
        }
    }
    Ok((key.len() as u64).cmp(&(prefix as u64 + info.len())))
}

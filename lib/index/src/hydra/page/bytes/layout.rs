//! Words and numbers of a [`BytesPage`](super::BytesPage): sizes, packed fields, keys as words.

use crate::points;
use crate::search::chunk;
use archipelago_platform::hint;
use archipelago_platform::touch;
use core::cmp::Ordering;
use core::convert::Infallible;

/// Entries per page, at most.
pub(super) const SLOTS: usize = 48;

/// Words for slots and heap.
pub(super) const WORDS: usize = 150;

/// Words per slot.
pub(super) const SLOT: usize = 3;

/// Bytes of a suffix that are in the slot itself.
pub(super) const IN_SLOT: usize = 12;

/// Longer keys are boxed. At this length a page without common prefix still has room for five.
pub(super) const LONG_KEY: usize = 192;

/// Longer upper bounds are read from the next page's boxed `low`.
pub(super) const LONG_HIGH: usize = 64;

/// In a slot's length: the key is boxed.
pub(super) const BOXED: u64 = 0xFFFF;

/// An immutable byte string at a stable, thin address.
pub(super) type Boxed = Box<[u8]>;

/// What a page knows about its contents, in one word.
#[derive(Clone, Copy)]
pub(super) struct Meta {
    /// Length of the sorted run.
    pub(super) sorted: usize,
    /// Length of the prefix that is not stored.
    pub(super) prefix: usize,
    /// The lowest heap word in use.
    pub(super) floor: usize,
    /// Length of `high`; above [`LONG_HIGH`] it is a pointer in the top word. 0 on the last page.
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

    /// Heap words that `high` takes, at the top.
    #[inline]
    pub(super) fn high_words(self) -> usize {
        if self.high > LONG_HIGH { 1 } else { self.high.div_ceil(8) }
    }
}

/// Heap words for the tail of a key of `len` bytes under a prefix of `prefix` bytes.
#[inline]
pub(super) fn tail_words(len: usize, prefix: usize) -> usize {
    if len > LONG_KEY { 1 } else { (len - prefix).saturating_sub(IN_SLOT).div_ceil(8) }
}

/// # Safety
/// `word` is the address of a live `Boxed`, for `'a`.
pub(super) unsafe fn boxed<'a>(word: u64) -> &'a [u8] {
    // SAFETY: by the caller's promise.
    unsafe { lent(core::ptr::with_exposed_provenance(word as usize)) }
}

/// # Safety
/// There is a live `Boxed`, for `'a`.
pub(super) unsafe fn lent<'a>(at: *const Boxed) -> &'a [u8] {
    touch(at, size_of::<Boxed>());
    // SAFETY: by the caller's promise.
    let bytes: &[u8] = unsafe { &*at };
    touch(bytes.as_ptr(), bytes.len());
    bytes
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

    #[inline]
    pub(super) fn len(self) -> u64 {
        self.0 & 0xFFFF
    }

    /// The bytes 8..12 of the suffix.
    #[inline]
    pub(super) fn middle(self) -> u64 {
        self.0 >> 32
    }

    /// Heap words of the tail.
    #[inline]
    pub(super) fn tail_words(self) -> usize {
        if self.len() == BOXED { 1 } else { (self.len() as usize).saturating_sub(IN_SLOT).div_ceil(8) }
    }
}

/// What is read cannot change.
pub(super) fn unchanging() -> Result<(), Infallible> {
    Ok(())
}

/// How `key` compares with the entry in `slot` of a page whose words `word` reads. Both share a prefix of `prefix`
/// bytes. `trust` fails if what `word` has given so far must not be followed as a pointer.
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
        // SAFETY: validated: the word is a boxed key of this page, alive as long as the caller's guard or lock.
        return Ok(key.cmp(unsafe { boxed(address) }));
    }
    let place = info.place().min(WORDS);
    for at in 0..info.tail_words().min(WORDS - place) {
        let tail = chunk(key, prefix + IN_SLOT + 8 * at).cmp(&word(place + at));
        if tail.is_ne() {
            return Ok(tail);
        }
    }
    Ok((key.len() as u64).cmp(&(prefix as u64 + info.len())))
}

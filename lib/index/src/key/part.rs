//! What keys are made of: every key that this crate provides is a [`KeyPart`], alone or beside others.
//!
//! A part's encoding keeps order and is injective, also when other parts follow: of two different encodings of one type,
//! neither is a prefix of the other unless `last` was said. Parts of fixed width are written with the highest byte first.
//! A string must say where it ends without disturbing the order: each zero byte becomes `00 FF` and the end is `00 00`.
//! So the end compares below every byte that may follow instead, and a shorter string comes before its extensions,
//! whatever the next part starts with. The very last part of a key needs none of this and is written plainly.
//!
//! A key whose parts have at most eight bytes together is the number that these bytes are.

use super::width::Width;
use super::{Key, Probe};
use crate::structure::{Decoding, Encode, Encoding, Form};
use core::marker::PhantomData;

/// Encodings up to this long are put together without allocating.
const SHORT: usize = 120;

/// A key that can be part of a key. All keys here are: integers, floats, strings, paths, addresses, tuples, ..., and
/// every [`KeyAs`](crate::KeyAs). Sealed: implement `KeyAs`.
///
/// # Safety
/// A key's parts are read one after the other, and what was written is trusted (text to be UTF-8):
/// 1. `read` takes exactly those bytes off that `write` with the same `last` appended, whatever comes behind them.
/// 2. `of_word` takes what `word` gave; that is less than 256 to the power of `Width::BYTES`.
/// 3. `with_bytes` hands out what `write` appends to an empty buffer as the last part.
pub unsafe trait KeyPart: Clone + Send + Sync + 'static {
    #[doc(hidden)]
    type Width: Width;

    /// The key, borrowed: `u64` for `u64`, `&str` for `String`, `(&str, u64)` for `(String, u64)`.
    type Borrowed<'a>: Copy;

    /// What a scan shows of it as a part: strings as [`Cow`](std::borrow::Cow)s, which own something only if the string
    /// is not the last part and has zero bytes in it.
    type Part<'a>;

    /// What a scan shows of it alone.
    type Whole<'a>;

    /// Borrows it.
    fn lend(&self) -> Self::Borrowed<'_>;

    #[doc(hidden)]
    fn write(part: Self::Borrowed<'_>, last: bool, to: &mut PartBuffer);

    /// Reads the part that `bytes` starts with and moves on behind it.
    ///
    /// # Safety
    /// `bytes` starts with what `Self::write` wrote with the same `last`.
    #[doc(hidden)]
    unsafe fn read<'a>(bytes: &mut &'a [u8], last: bool) -> Self::Part<'a>;

    /// As [`read`](Self::read), of `N` in a row.
    ///
    /// # Safety
    /// As for `read`; `last` was said of the last one only.
    #[doc(hidden)]
    #[inline]
    unsafe fn read_array<'a, const N: usize>(bytes: &mut &'a [u8], last: bool) -> [Self::Part<'a>; N] {
        // SAFETY: by the caller's promise; the elements are made in order.
        core::array::from_fn(|at| unsafe { Self::read(bytes, last && at + 1 == N) })
    }

    #[doc(hidden)]
    fn own(part: Self::Part<'_>) -> Self;

    /// What was read as the last part is shown alone.
    #[doc(hidden)]
    fn alone(part: Self::Part<'_>) -> Self::Whole<'_>;

    /// The encoding as a number, if its form is [`Word`](crate::Word).
    #[doc(hidden)]
    fn word(part: Self::Borrowed<'_>) -> u64 {
        let _ = part;
        unreachable!("only what has at most eight bytes is a word")
    }

    /// Reads the number.
    ///
    /// # Safety
    /// `word` gave it.
    #[doc(hidden)]
    unsafe fn of_word<'a>(word: u64) -> Self::Part<'a> {
        let _ = word;
        unreachable!("only what has at most eight bytes is a word")
    }

    /// Calls `f` with the encoding of a whole key.
    #[doc(hidden)]
    #[inline]
    fn with_bytes<R>(part: Self::Borrowed<'_>, f: impl FnOnce(&[u8]) -> R) -> R {
        let mut buffer = PartBuffer::new();
        Self::write(part, true, &mut buffer);
        f(buffer.bytes())
    }

    /// Elements that are their own encodings.
    #[doc(hidden)]
    #[inline]
    fn plain(parts: &[Self]) -> Option<&[u8]> {
        let _ = parts;
        None
    }
}

/// A borrowed key.
#[repr(transparent)]
pub struct Lent<'a, P: KeyPart>(pub(super) P::Borrowed<'a>);

impl<P: KeyPart> Encoding for Lent<'_, P> {
    #[inline(always)]
    fn word(&self) -> u64 {
        P::word(self.0)
    }

    #[inline(always)]
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        P::with_bytes(self.0, f)
    }
}

/// Reads what was encoded of a `P`.
struct Stored<P>(PhantomData<P>);

impl<P: KeyPart> Decoding for Stored<P> {
    type Key<'a> = P::Part<'a>;

    #[inline(always)]
    unsafe fn of_word<'a>(word: u64) -> P::Part<'a> {
        // SAFETY: passed on.
        unsafe { P::of_word(word) }
    }

    #[inline(always)]
    unsafe fn of_bytes(mut bytes: &[u8]) -> P::Part<'_> {
        // SAFETY: passed on.
        unsafe { P::read(&mut bytes, true) }
    }
}

impl<P: KeyPart> Encode for P {
    type Form = <P::Width as Width>::Form;

    #[inline(always)]
    fn encode<R>(&self, f: impl FnOnce(<Self::Form as Form>::Probe<'_>) -> R) -> R {
        Self::Form::of(&Lent::<P>(self.lend()), f)
    }
}

impl<P: KeyPart> Key for P {
    type Ref<'a> = P::Whole<'a>;

    #[inline(always)]
    unsafe fn decode_ref<'a>(probe: Probe<'a, Self>) -> P::Whole<'a> {
        // SAFETY: passed on.
        P::alone(unsafe { Self::Form::read::<Stored<P>>(probe) })
    }

    #[inline(always)]
    unsafe fn decode(probe: Probe<'_, Self>) -> P {
        // SAFETY: passed on.
        P::own(unsafe { Self::Form::read::<Stored<P>>(probe) })
    }
}

/// Where an encoding is put together.
pub struct PartBuffer {
    short: [u8; SHORT],
    len: usize,
    /// Used once `short` is full: then everything is here.
    long: Vec<u8>,
}

impl PartBuffer {
    #[inline]
    pub(super) fn new() -> Self {
        Self { short: [0; SHORT], len: 0, long: Vec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            if let Some(room) = self.short.get_mut(self.len..self.len + bytes.len()) {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
                return;
            }
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }

    /// Turns the bytes from `from` on into their complements.
    pub(super) fn complement(&mut self, from: usize) {
        let bytes = if self.long.is_empty() { &mut self.short[..self.len] } else { &mut self.long[..] };
        bytes[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Takes the first `N` bytes off.
#[inline]
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().expect("an encoding has all its parts");
    *bytes = rest;
    *first
}

//! The parts of keys: every key that this crate provides is a [`KeyPart`], which can be used alone or as a part of
//! another key.
//!
//! A part's encoding preserves order and is injective, even if other parts follow. For this purpose no encoding of a
//! type may be a prefix of another encoding of the type. (Encodings that are written with `last` are exempt: no part
//! follows them.) Parts of fixed width are written with the highest byte first. A string must mark its end without
//! disturbing the order. So each zero byte becomes `00 FF`, and the end is `00 00`. Then the end compares below every
//! byte that could follow instead, and a shorter string precedes its extensions, whatever the next part begins with.
//! The last part of a key needs no end mark and is written unchanged.
//!
//! If the parts of a key have at most eight bytes together, the key's encoding is the number that consists of these
//! bytes. (An array is always encoded as a byte string.)

use super::width::Width;
use super::{Key, Probe};
use crate::structure::{Decoding, Encode, Encoding, Form};
use core::marker::PhantomData;
use std::borrow::Cow;

/// Encodings up to this length, in bytes, are assembled without allocating.
const SHORT: usize = 120;

/// A key that can be part of another key. All keys of this crate are such keys: integers, floats, strings, paths,
/// addresses, tuples, ..., and every [`KeyAs`](crate::KeyAs). This trait is sealed: implement `KeyAs`.
///
/// # Safety
/// A key's parts are read one after the other, and the written bytes are trusted (text to be UTF-8):
/// 1. `read` must take exactly the bytes that `write` with the same `last` has appended, whatever bytes follow them.
/// 2. `of_word` must accept every result of `word`, which must be less than 256 to the power of `Width::BYTES`.
/// 3. `with_bytes` must pass the bytes that `write` appends to an empty buffer as the last part.
pub unsafe trait KeyPart: Clone + Send + Sync + 'static {
    #[doc(hidden)]
    type Width: Width;

    /// The borrowed form of the key: `u64` for `u64`, `&str` for `String`, `(&str, u64)` for `(String, u64)`.
    type Borrowed<'a>: Copy;

    /// The type that a scan shows if the key is a part of another key. A string is shown as a
    /// [`Cow`](std::borrow::Cow), which owns memory only if the string is not the last part and contains zero bytes.
    type Part<'a>;

    /// The type that a scan shows if this is the whole key.
    type Whole<'a>;

    /// Borrows the key.
    fn lend(&self) -> Self::Borrowed<'_>;

    #[doc(hidden)]
    fn write(part: Self::Borrowed<'_>, last: bool, to: &mut PartBuffer);

    /// Reads the part at the start of `from`, and moves `from` behind it.
    ///
    /// # Safety
    /// `from` must start with what `Self::write` has written with the same `last`.
    #[doc(hidden)]
    unsafe fn read<'a>(from: &mut Encoded<'a>, last: bool) -> Self::Part<'a>;

    /// Reads `N` successive parts as [`read`](Self::read) does.
    ///
    /// # Safety
    /// The contract of `read` must hold for each part; only the last one may have been written with `last`.
    #[doc(hidden)]
    #[inline]
    unsafe fn read_array<'a, const N: usize>(from: &mut Encoded<'a>, last: bool) -> [Self::Part<'a>; N] {
        // SAFETY: the caller guarantees the contract; the elements are made in order.
        core::array::from_fn(|at| unsafe { Self::read(from, last && at + 1 == N) })
    }

    #[doc(hidden)]
    fn own(part: Self::Part<'_>) -> Self;

    /// Converts a key that was read as the last part into the type that a scan shows.
    #[doc(hidden)]
    fn alone(part: Self::Part<'_>) -> Self::Whole<'_>;

    /// Returns the encoding as a number, if its form is [`Word`](crate::Word).
    #[doc(hidden)]
    fn word(part: Self::Borrowed<'_>) -> u64 {
        let _ = part;
        unreachable!("only what has at most eight bytes is a word")
    }

    /// Decodes a number.
    ///
    /// # Safety
    /// `word` must be a result of [`word`](Self::word).
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

    /// Returns the bytes of several keys of this type, if each of them is its own encoding.
    #[doc(hidden)]
    #[inline]
    fn plain(parts: &[Self]) -> Option<&[u8]> {
        let _ = parts;
        None
    }
}

/// A borrowed key, which can be encoded.
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

/// The decoder of the encodings of a `P`.
struct Stored<P>(PhantomData<P>);

impl<P: KeyPart> Decoding for Stored<P> {
    type Key<'a> = P::Part<'a>;

    #[inline(always)]
    unsafe fn of_word<'a>(word: u64) -> P::Part<'a> {
        // SAFETY: the caller guarantees the same contract.
        unsafe { P::of_word(word) }
    }

    #[inline(always)]
    unsafe fn of_bytes(bytes: &[u8]) -> P::Part<'_> {
        // SAFETY: the caller guarantees the same contract.
        unsafe { P::read(&mut Encoded::new(bytes), true) }
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
        // SAFETY: the caller guarantees the same contract.
        P::alone(unsafe { Self::Form::read::<Stored<P>>(probe) })
    }

    #[inline(always)]
    unsafe fn decode(probe: Probe<'_, Self>) -> P {
        // SAFETY: the caller guarantees the same contract.
        P::own(unsafe { Self::Form::read::<Stored<P>>(probe) })
    }
}

/// A buffer in which an encoding is assembled.
pub struct PartBuffer {
    short: [u8; SHORT],
    len: usize,
    /// Empty until `short` is too small; then all bytes are here.
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

    /// Replaces the bytes from index `from` on by their complements.
    pub(super) fn complement(&mut self, from: usize) {
        let bytes = if self.long.is_empty() { &mut self.short[..self.len] } else { &mut self.long[..] };
        bytes[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The rest of an encoding, from which parts are read. Inside a `Reverse` the bytes are complemented as they are read,
/// so only strings are copied.
pub struct Encoded<'a> {
    bytes: &'a [u8],
    /// What each byte is xored with: 0, or 255 inside an odd number of `Reverse`s.
    mask: u8,
}

impl<'a> Encoded<'a> {
    #[inline(always)]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, mask: 0 }
    }

    /// Complements all bytes that are read from now on.
    #[inline]
    pub(super) fn complement(&mut self) {
        self.mask = !self.mask;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Removes the first `N` bytes and returns them.
    #[inline]
    pub(super) fn take<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.bytes.split_first_chunk::<N>().expect("an encoding has all its parts");
        self.bytes = rest;
        first.map(|byte| byte ^ self.mask)
    }

    /// Removes all bytes and returns them.
    #[inline]
    pub(super) fn take_all(&mut self) -> Cow<'a, [u8]> {
        let all = core::mem::take(&mut self.bytes);
        self.masked(all)
    }

    /// Removes the bytes before the first zero byte (inside a `Reverse`, its complement) and returns them.
    ///
    /// # Panics
    /// If there is no zero byte.
    #[inline]
    pub(super) fn take_until_zero(&mut self) -> Cow<'a, [u8]> {
        let zero = self.bytes.iter().position(|&byte| byte == self.mask).expect("a string part has an end");
        let (piece, rest) = self.bytes.split_at(zero);
        self.bytes = rest;
        self.masked(piece)
    }

    #[inline]
    fn masked(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.mask {
            0 => Cow::Borrowed(bytes),
            mask => Cow::Owned(bytes.iter().map(|byte| byte ^ mask).collect()),
        }
    }
}

//! Tuples of up to eight parts, and arrays. Their encodings are the parts' encodings one after the other, so that
//! comparing the whole encodings compares part by part.

use super::part::{Encoded, KeyPart, PartBuffer};
use super::width::{Wide, Width};

/// The sum of the parts' widths.
macro_rules! sum {
    ($part:ident) => { $part::Width };
    ($part:ident $($more:ident)+) => { <$part::Width as Width>::Plus<sum!($($more)+)> };
}

macro_rules! tuples {
    ($(($($part:ident $at:tt)*; $last:ident $end:tt))*) => { $(
        // SAFETY: every part reads the bytes that it has written, in the same order. In a word, each part has the bytes
        // of its width.
        unsafe impl<$($part: KeyPart,)* $last: KeyPart> KeyPart for ($($part,)* $last,) {
            type Width = sum!($($part)* $last);
            type Borrowed<'a> = ($($part::Borrowed<'a>,)* $last::Borrowed<'a>,);
            type Part<'a> = ($($part::Part<'a>,)* $last::Part<'a>,);
            type Whole<'a> = Self::Part<'a>;

            #[inline]
            fn lend(&self) -> Self::Borrowed<'_> {
                ($(self.$at.lend(),)* self.$end.lend(),)
            }

            #[inline]
            fn word(part: Self::Borrowed<'_>) -> u64 {
                let word = 0_u64;
                $(let word = word.unbounded_shl(8 * $part::Width::BYTES) | $part::word(part.$at);)*
                word.unbounded_shl(8 * $last::Width::BYTES) | $last::word(part.$end)
            }

            #[inline]
            unsafe fn of_word<'a>(word: u64) -> Self::Part<'a> {
                let mut after = 8 * <Self::Width as Width>::BYTES;
                // SAFETY: the caller guarantees that `word` has put the parts' bytes one after the other; a tuple's
                // fields are evaluated in order.
                unsafe { ($(next::<$part>(word, &mut after),)* next::<$last>(word, &mut after),) }
            }

            #[inline]
            fn write(part: Self::Borrowed<'_>, last: bool, to: &mut PartBuffer) {
                $($part::write(part.$at, false, to);)*
                $last::write(part.$end, last, to);
            }

            #[inline]
            unsafe fn read<'a>(from: &mut Encoded<'a>, last: bool) -> Self::Part<'a> {
                // SAFETY: the caller guarantees that `write` has written the parts one after the other; a tuple's
                // fields are evaluated in order.
                unsafe { ($($part::read(from, false),)* $last::read(from, last),) }
            }

            #[inline]
            fn own(part: Self::Part<'_>) -> Self {
                ($($part::own(part.$at),)* $last::own(part.$end),)
            }

            #[inline]
            fn alone(part: Self::Part<'_>) -> Self::Whole<'_> {
                part
            }
        }
    )* };
}

/// Decodes one part of a word. The lowest `after` bits of the word are the part's own bits and those of all following
/// parts. Sets `after` to the number of bits of the following parts.
///
/// # Safety
/// The part's bits must be a result of `P::word`.
#[inline(always)]
unsafe fn next<'a, P: KeyPart>(word: u64, after: &mut u32) -> P::Part<'a> {
    *after -= 8 * P::Width::BYTES;
    // SAFETY: the caller guarantees the contract.
    unsafe { P::of_word(word.unbounded_shr(*after) & low_bytes::<P::Width>()) }
}

/// Returns a mask of the bits that a word of width `W` may have.
#[inline(always)]
pub(super) fn low_bytes<W: Width>() -> u64 {
    u64::MAX.unbounded_shr(64 - 8 * W::BYTES)
}

tuples! {
    (; A 0)
    (A 0; B 1)
    (A 0 B 1; C 2)
    (A 0 B 1 C 2; D 3)
    (A 0 B 1 C 2 D 3; E 4)
    (A 0 B 1 C 2 D 3 E 4; F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5; G 6)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6; H 7)
}

// SAFETY: every element reads the bytes that it has written, in the same order.
unsafe impl<P: KeyPart, const N: usize> KeyPart for [P; N] {
    // On stable Rust, `N` times a width cannot be expressed as a type.
    type Width = Wide;
    type Borrowed<'a> = &'a [P; N];
    type Part<'a> = [P::Part<'a>; N];
    type Whole<'a> = [P::Part<'a>; N];

    #[inline]
    fn lend(&self) -> &[P; N] {
        self
    }

    #[inline]
    fn write(parts: &[P; N], last: bool, to: &mut PartBuffer) {
        if let Some(bytes) = P::plain(parts) {
            return to.push(bytes);
        }
        for (at, part) in parts.iter().enumerate() {
            P::write(part.lend(), last && at + 1 == N, to);
        }
    }

    #[inline]
    unsafe fn read<'a>(from: &mut Encoded<'a>, last: bool) -> Self::Part<'a> {
        // SAFETY: the caller guarantees the same contract.
        unsafe { P::read_array(from, last) }
    }

    #[inline]
    fn own(parts: Self::Part<'_>) -> Self {
        parts.map(P::own)
    }

    #[inline]
    fn alone(parts: Self::Part<'_>) -> Self::Whole<'_> {
        parts
    }

    #[inline]
    fn with_bytes<R>(parts: &[P; N], f: impl FnOnce(&[u8]) -> R) -> R {
        if let Some(bytes) = P::plain(parts) {
            return f(bytes);
        }
        let mut buffer = PartBuffer::new();
        Self::write(parts, true, &mut buffer);
        f(buffer.bytes())
    }
}

//! Keys of fixed width: numbers, `bool`, `char`, IP addresses, durations.

use super::KeyPart;
use super::part::{Encoded, PartBuffer};
use super::width::{Fixed, Wide};
use archipelago_platform::time::Duration;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::num::NonZero;

/// Implements `KeyPart` for types that are numbers of at most eight bytes, and are shown in scans as themselves.
macro_rules! words {
    ($($t:ty: $n:literal, |$x:ident| $to:expr, |$w:ident| $from:expr $(; { $($more:tt)* })?;)*) => { $(
        // SAFETY: `write` appends `$n` bytes, and `read` takes `$n` bytes. `of_word` is the inverse of `word`, which
        // leaves the higher bytes zero.
        unsafe impl KeyPart for $t {
            type Width = Fixed<$n>;
            type Borrowed<'a> = $t;
            type Part<'a> = $t;
            type Whole<'a> = $t;

            #[inline(always)]
            fn lend(&self) -> $t {
                *self
            }
            #[inline(always)]
            fn word($x: $t) -> u64 {
                $to
            }
            #[inline(always)]
            unsafe fn of_word<'a>($w: u64) -> Self::Part<'a> {
                $from
            }
            #[inline]
            fn write(part: $t, _: bool, to: &mut PartBuffer) {
                to.push(&Self::word(part).to_be_bytes()[8 - $n..]);
            }
            #[inline]
            unsafe fn read(from: &mut Encoded<'_>, _: bool) -> $t {
                let mut word = [0; 8];
                word[8 - $n..].copy_from_slice(&from.take::<$n>());
                // SAFETY: the other bytes of a word of this type are zero.
                unsafe { Self::of_word(u64::from_be_bytes(word)) }
            }
            #[inline(always)]
            fn own(part: Self::Part<'_>) -> $t {
                part
            }
            #[inline(always)]
            fn alone(part: Self::Part<'_>) -> Self::Whole<'_> {
                part
            }
            $($($more)*)?
        }
    )* };
}

// Signed integers: flipping the sign bit maps the signed order onto the unsigned one.
words! {
    u8: 1, |x| u64::from(x), |w| w as u8; {
        #[inline]
        fn plain(parts: &[u8]) -> Option<&[u8]> {
            Some(parts)
        }
        #[inline]
        unsafe fn read_array<const N: usize>(from: &mut Encoded<'_>, _: bool) -> [u8; N] {
            from.take()
        }
    };
    u16: 2, |x| u64::from(x), |w| w as u16;
    u32: 4, |x| u64::from(x), |w| w as u32;
    u64: 8, |x| x, |w| w;
    usize: 8, |x| x as u64, |w| w as usize;
    i8: 1, |x| u64::from(x as u8 ^ 0x80), |w| (w as u8 ^ 0x80) as i8;
    i16: 2, |x| u64::from(x as u16 ^ 0x8000), |w| (w as u16 ^ 0x8000) as i16;
    i32: 4, |x| u64::from(x as u32 ^ (1 << 31)), |w| (w as u32 ^ (1 << 31)) as i32;
    i64: 8, |x| x as u64 ^ (1 << 63), |w| (w ^ (1 << 63)) as i64;
    isize: 8, |x| x as i64 as u64 ^ (1 << 63), |w| (w ^ (1 << 63)) as i64 as isize;
    bool: 1, |x| u64::from(x), |w| w != 0;
    char: 4, |x| u64::from(u32::from(x)), |w| char::from_u32(w as u32).expect("an encoded char");
    f32: 4, |x| u64::from(x.to_bits() ^ (x.to_bits() as i32 >> 31) as u32 >> 1 ^ (1 << 31)), |w| {
        let bits = w as u32 ^ (1 << 31);
        f32::from_bits(bits ^ (bits as i32 >> 31) as u32 >> 1)
    };
    f64: 8, |x| x.to_bits() ^ (x.to_bits() as i64 >> 63) as u64 >> 1 ^ (1 << 63), |w| {
        let bits = w ^ (1 << 63);
        f64::from_bits(bits ^ (bits as i64 >> 63) as u64 >> 1)
    };
    Ipv4Addr: 4, |x| u64::from(x.to_bits()), |w| Ipv4Addr::from_bits(w as u32);
}

/// Implements `KeyPart` for types with a fixed length of more than eight bytes, which are shown in scans as themselves.
macro_rules! wide {
    ($($t:ty: |$x:ident| $to:expr, |$b:ident| $from:expr;)*) => { $(
        // SAFETY: `read` takes as many bytes as `write` appends, which is the length of the array.
        unsafe impl KeyPart for $t {
            type Width = Wide;
            type Borrowed<'a> = $t;
            type Part<'a> = $t;
            type Whole<'a> = $t;

            #[inline(always)]
            fn lend(&self) -> $t {
                *self
            }
            #[inline]
            fn write($x: $t, _: bool, to: &mut PartBuffer) {
                to.push(&$to);
            }
            #[inline]
            unsafe fn read(from: &mut Encoded<'_>, _: bool) -> $t {
                let $b = from.take();
                $from
            }
            #[inline(always)]
            fn own(part: Self::Part<'_>) -> $t {
                part
            }
            #[inline(always)]
            fn alone(part: Self::Part<'_>) -> Self::Whole<'_> {
                part
            }
            #[inline]
            fn with_bytes<R>($x: $t, f: impl FnOnce(&[u8]) -> R) -> R {
                f(&$to)
            }
        }
    )* };
}

wide! {
    u128: |x| x.to_be_bytes(), |b| u128::from_be_bytes(b);
    i128: |x| (x ^ i128::MIN).to_be_bytes(), |b| i128::from_be_bytes(b) ^ i128::MIN;
    NonZero<u128>: |x| x.get().to_be_bytes(), |b| non_zero(NonZero::new(u128::from_be_bytes(b)));
    NonZero<i128>: |x| (x.get() ^ i128::MIN).to_be_bytes(),
        |b| non_zero(NonZero::new(i128::from_be_bytes(b) ^ i128::MIN));
    Ipv6Addr: |x| x.octets(), |b| Ipv6Addr::from(b);
    // The nanoseconds are less than 2³², so they do not overlap the seconds.
    Duration: |x| (u128::from(x.as_secs()) << 32 | u128::from(x.subsec_nanos())).to_be_bytes(), |b| {
        let both = u128::from_be_bytes(b);
        Duration::new((both >> 32) as u64, both as u32)
    };
}

fn non_zero<T>(encoded: Option<T>) -> T {
    encoded.expect("an encoded number is not zero")
}

macro_rules! non_zero {
    ($($t:ty: $n:literal;)*) => {
        words! { $(
            // SAFETY: the word is the number's own word.
            NonZero<$t>: $n, |x| <$t>::word(x.get()), |w| non_zero(NonZero::new(unsafe { <$t>::of_word(w) }));
        )* }
    };
}

non_zero! {
    u8: 1;
    u16: 2;
    u32: 4;
    u64: 8;
    usize: 8;
    i8: 1;
    i16: 2;
    i32: 4;
    i64: 8;
    isize: 8;
}

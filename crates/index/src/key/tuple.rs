//! Tuples as keys: 2 to 4 parts, each an integer, `bool`, `char`, byte array, string, byte vector or again a tuple.
//!
//! The encoding is the parts' encodings one after the other, so that comparing the whole as bytes compares part by
//! part. Parts of fixed width are written plainly, integers with the highest byte first. A part of variable length must
//! say where it ends without disturbing the order: each zero byte becomes `00 FF` and the end is `00 00`. So the end
//! compares below every byte that may follow instead, and a shorter string comes before its extensions, whatever the
//! next part starts with. The very last part of a key needs none of this and is written plainly.

use super::{Bytes, Encode, Key, Probe};
use std::borrow::Cow;

/// What follows a zero byte that is part of a string, and what follows one that ends it.
const ESCAPED: u8 = 0xFF;
const END: u8 = 0x00;

/// Encodings up to this long are put together without allocating.
const SHORT: usize = 120;

/// A type that can be part of a tuple key. Users need not name it.
///
/// Implementations keep order and are injective, also when followed by other parts.
///
/// # Safety
/// The parts of a tuple are read one after the other, so an implementation answers for those that follow: `read` takes
/// exactly those bytes off that `write` with the same `last` appended, whatever comes behind them.
pub unsafe trait KeyPart: Clone + Send + Sync + 'static {
    /// What a scan shows of the part: integers as they are, strings as [`Cow`]s, which own something only if the string
    /// is not the last part and has zero bytes in it.
    type Ref<'a>;

    /// Appends the encoding. `last`: nothing follows.
    fn write(&self, last: bool, to: &mut PartBuffer);

    /// Reads the part that `bytes` starts with and moves on behind it.
    ///
    /// # Safety
    /// `bytes` starts with what `Self::write` wrote with the same `last`.
    unsafe fn read<'a>(bytes: &mut &'a [u8], last: bool) -> Self::Ref<'a>;

    /// The part itself.
    fn own(shown: Self::Ref<'_>) -> Self;
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
    fn new() -> Self {
        Self { short: [0; SHORT], len: 0, long: Vec::new() }
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
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
    fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}

/// Takes the first `N` bytes off.
#[inline]
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().expect("an encoding has all its parts");
    *bytes = rest;
    *first
}

macro_rules! fixed_parts {
    ($($t:ty: |$x:ident| $to:expr, |$b:ident| $from:expr;)*) => { $(
        // SAFETY: as many bytes are taken off as an array has that was appended.
        unsafe impl KeyPart for $t {
            type Ref<'a> = $t;
            #[inline]
            fn write(&self, _: bool, to: &mut PartBuffer) {
                let $x = *self;
                to.push(&$to);
            }
            #[inline]
            unsafe fn read(bytes: &mut &[u8], _: bool) -> $t {
                let $b = take(bytes);
                $from
            }
            #[inline]
            fn own(shown: $t) -> $t {
                shown
            }
        }
    )* };
}

// Signed integers: flipping the sign bit maps the signed order onto the unsigned one.
fixed_parts! {
    u8: |x| [x], |b| u8::from_be_bytes(b);
    u16: |x| x.to_be_bytes(), |b| u16::from_be_bytes(b);
    u32: |x| x.to_be_bytes(), |b| u32::from_be_bytes(b);
    u64: |x| x.to_be_bytes(), |b| u64::from_be_bytes(b);
    u128: |x| x.to_be_bytes(), |b| u128::from_be_bytes(b);
    usize: |x| (x as u64).to_be_bytes(), |b| u64::from_be_bytes(b) as usize;
    i8: |x| (x ^ i8::MIN).to_be_bytes(), |b| i8::from_be_bytes(b) ^ i8::MIN;
    i16: |x| (x ^ i16::MIN).to_be_bytes(), |b| i16::from_be_bytes(b) ^ i16::MIN;
    i32: |x| (x ^ i32::MIN).to_be_bytes(), |b| i32::from_be_bytes(b) ^ i32::MIN;
    i64: |x| (x ^ i64::MIN).to_be_bytes(), |b| i64::from_be_bytes(b) ^ i64::MIN;
    i128: |x| (x ^ i128::MIN).to_be_bytes(), |b| i128::from_be_bytes(b) ^ i128::MIN;
    isize: |x| (x as i64 ^ i64::MIN).to_be_bytes(), |b| (i64::from_be_bytes(b) ^ i64::MIN) as isize;
    bool: |x| [u8::from(x)], |b| b != [0];
    char: |x| u32::from(x).to_be_bytes(), |b| char::from_u32(u32::from_be_bytes(b)).expect("an encoded char");
}

// SAFETY: `N` bytes are appended, and `N` taken off.
unsafe impl<const N: usize> KeyPart for [u8; N] {
    type Ref<'a> = [u8; N];

    #[inline]
    fn write(&self, _: bool, to: &mut PartBuffer) {
        to.push(self);
    }

    #[inline]
    unsafe fn read(bytes: &mut &[u8], _: bool) -> [u8; N] {
        take(bytes)
    }

    #[inline]
    fn own(shown: [u8; N]) -> [u8; N] {
        shown
    }
}

fn write_string(string: &[u8], last: bool, to: &mut PartBuffer) {
    if last {
        return to.push(string);
    }
    for (at, piece) in string.split(|&byte| byte == 0).enumerate() {
        if at > 0 {
            to.push(&[0, ESCAPED]);
        }
        to.push(piece);
    }
    to.push(&[0, END]);
}

fn read_string<'a>(bytes: &mut &'a [u8], last: bool) -> Cow<'a, [u8]> {
    if last {
        return Cow::Borrowed(core::mem::take(bytes));
    }
    let mut string = Cow::Borrowed(&[][..]);
    loop {
        let zero = bytes.iter().position(|&byte| byte == 0).expect("a string part has an end");
        let (piece, rest) = bytes.split_at(zero);
        *bytes = &rest[2..];
        if string.is_empty() {
            string = Cow::Borrowed(piece);
        } else {
            string.to_mut().extend_from_slice(piece);
        }
        if rest[1] == END {
            return string;
        }
        string.to_mut().push(0);
    }
}

macro_rules! string_parts {
    ($($t:ty: $shown:ty, |$x:ident| $to:expr, |$s:ident| $from:expr, $own:expr;)*) => { $(
        // SAFETY: the end is marked, or is that of the whole key; no other byte looks like the mark (`write_string`).
        unsafe impl KeyPart for $t {
            type Ref<'a> = Cow<'a, $shown>;
            #[inline]
            fn write(&self, last: bool, to: &mut PartBuffer) {
                let $x = self;
                write_string($to, last, to);
            }
            #[inline]
            unsafe fn read<'a>(bytes: &mut &'a [u8], last: bool) -> Self::Ref<'a> {
                let $s = read_string(bytes, last);
                $from
            }
            #[inline]
            fn own($s: Self::Ref<'_>) -> $t {
                $own
            }
        }
    )* };
}

string_parts! {
    Vec<u8>: [u8], |x| x, |s| s, s.into_owned();
    Box<[u8]>: [u8], |x| x, |s| s, s.into();
    // SAFETY: by `read`'s contract the bytes are some string's.
    String: str, |x| x.as_bytes(), |s| unsafe { utf8(s) }, s.into_owned();
    // SAFETY: as for `String`.
    Box<str>: str, |x| x.as_bytes(), |s| unsafe { utf8(s) }, s.into();
}

/// # Safety
/// `bytes` are a string's.
unsafe fn utf8(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        // SAFETY: by the caller's promise.
        Cow::Borrowed(bytes) => Cow::Borrowed(unsafe { core::str::from_utf8_unchecked(bytes) }),
        // SAFETY: by the caller's promise.
        Cow::Owned(bytes) => Cow::Owned(unsafe { String::from_utf8_unchecked(bytes) }),
    }
}

macro_rules! tuple_keys {
    ($(($($part:ident $at:tt),*; $last:ident $end:tt))*) => { $(
        // SAFETY: every part takes off what it appended, in the same order.
        unsafe impl<$($part: KeyPart,)* $last: KeyPart> KeyPart for ($($part,)* $last) {
            type Ref<'a> = ($($part::Ref<'a>,)* $last::Ref<'a>);
            #[inline]
            fn write(&self, last: bool, to: &mut PartBuffer) {
                $(self.$at.write(false, to);)*
                self.$end.write(last, to);
            }
            #[inline]
            unsafe fn read<'a>(bytes: &mut &'a [u8], last: bool) -> Self::Ref<'a> {
                // SAFETY: by the caller's promise the parts follow one another as `write` wrote them; a tuple's
                // fields are evaluated in order.
                unsafe { ($($part::read(bytes, false),)* $last::read(bytes, last)) }
            }
            #[inline]
            fn own(shown: Self::Ref<'_>) -> Self {
                ($($part::own(shown.$at),)* $last::own(shown.$end))
            }
        }

        impl<$($part: KeyPart,)* $last: KeyPart> Encode for ($($part,)* $last) {
            type Form = Bytes;
            #[inline]
            fn encode<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
                let mut buffer = PartBuffer::new();
                self.write(true, &mut buffer);
                f(buffer.bytes())
            }
        }

        impl<$($part: KeyPart,)* $last: KeyPart> Key for ($($part,)* $last) {
            type Ref<'a> = <Self as KeyPart>::Ref<'a>;
            #[inline]
            unsafe fn decode_ref<'a>(mut probe: Probe<'a, Self>) -> <Self as KeyPart>::Ref<'a> {
                // SAFETY: by the caller's promise the probe is what `encode` gave out.
                unsafe { Self::read(&mut probe, true) }
            }
            #[inline]
            unsafe fn decode(mut probe: Probe<'_, Self>) -> Self {
                // SAFETY: as above.
                Self::own(unsafe { Self::read(&mut probe, true) })
            }
        }
    )* };
}

tuple_keys! {
    (A 0; B 1)
    (A 0, B 1; C 2)
    (A 0, B 1, C 2; D 3)
}

//! Strings as keys: text, bytes and, on Unix, the operating system's strings. They are ordered by their bytes.

use super::part::{Encoded, PartBuffer};
use super::width::Wide;
use super::{EncodeAs, KeyPart};
use crate::structure::{Bytes, Encode};
use archipelago_platform::sync::Arc;
use std::borrow::Cow;
#[cfg(unix)]
use std::ffi::{OsStr, OsString};
#[cfg(unix)]
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// In the encoding of a string that other parts follow, `ESCAPED` follows each of the string's own zero bytes, and
/// `END` follows the zero byte of the end mark.
const ESCAPED: u8 = 0xFF;
const END: u8 = 0x00;

pub(super) fn write_string(string: &[u8], last: bool, to: &mut PartBuffer) {
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

/// A scan calls this for each entry. Inlined into it, a whole key that is a string takes no instruction at all.
#[inline(always)]
pub(super) fn read_string<'a>(from: &mut Encoded<'a>, last: bool) -> Cow<'a, [u8]> {
    if last { from.take_all() } else { read_marked(from) }
}

/// Reads a string that other parts follow.
fn read_marked<'a>(from: &mut Encoded<'a>) -> Cow<'a, [u8]> {
    let mut string = from.take_until_zero();
    loop {
        let [_, after] = from.take();
        if after == END {
            return string;
        }
        string.to_mut().push(0);
        string.to_mut().extend_from_slice(&from.take_until_zero());
    }
}

macro_rules! strings {
    ($($t:ty as $str:ty: |$x:ident| $bytes:expr, |$s:ident| $shown:expr, $own:expr;)*) => { $(
        // SAFETY: the end is marked, or is the end of the whole key; no other bytes look like the mark
        // (`write_string`).
        unsafe impl KeyPart for $t {
            type Width = Wide;
            type Borrowed<'a> = &'a $str;
            type Part<'a> = Cow<'a, $str>;
            type Whole<'a> = &'a $str;

            #[inline(always)]
            fn lend(&self) -> &$str {
                self
            }
            #[inline]
            fn write($x: &$str, last: bool, to: &mut PartBuffer) {
                write_string($bytes, last, to);
            }
            #[inline]
            unsafe fn read<'a>(from: &mut Encoded<'a>, last: bool) -> Cow<'a, $str> {
                let $s = read_string(from, last);
                $shown
            }
            #[inline]
            fn own($s: Self::Part<'_>) -> $t {
                $own
            }
            #[inline]
            fn alone(part: Self::Part<'_>) -> Self::Whole<'_> {
                match part {
                    Cow::Borrowed(string) => string,
                    Cow::Owned(_) => unreachable!("the last part of a key is stored as it is"),
                }
            }
            #[inline(always)]
            fn with_bytes<R>($x: &$str, f: impl FnOnce(&[u8]) -> R) -> R {
                f($bytes)
            }
        }

        // SAFETY: the borrowed form has the same encoding as the key from which it can be borrowed.
        unsafe impl EncodeAs<$t> for $str {}
    )* };
}

strings! {
    Vec<u8> as [u8]: |x| x, |s| s, s.into_owned();
    Box<[u8]> as [u8]: |x| x, |s| s, s.into();
    Arc<[u8]> as [u8]: |x| x, |s| s, s.into();
    // SAFETY: by `read`'s contract the bytes are those of a string.
    String as str: |x| x.as_bytes(), |s| unsafe { utf8(s) }, s.into_owned();
    // SAFETY: as for `String`.
    Box<str> as str: |x| x.as_bytes(), |s| unsafe { utf8(s) }, s.into();
    // SAFETY: as for `String`.
    Arc<str> as str: |x| x.as_bytes(), |s| unsafe { utf8(s) }, s.into();
}

#[cfg(unix)]
strings! {
    OsString as OsStr: |x| x.as_bytes(), |s| match s {
        Cow::Borrowed(bytes) => Cow::Borrowed(OsStr::from_bytes(bytes)),
        Cow::Owned(bytes) => Cow::Owned(OsString::from_vec(bytes)),
    }, s.into_owned();
}

/// # Safety
/// `bytes` must be those of a string.
unsafe fn utf8(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        // SAFETY: the caller guarantees that the bytes are UTF-8.
        Cow::Borrowed(bytes) => Cow::Borrowed(unsafe { core::str::from_utf8_unchecked(bytes) }),
        // SAFETY: as above.
        Cow::Owned(bytes) => Cow::Owned(unsafe { String::from_utf8_unchecked(bytes) }),
    }
}

macro_rules! encode_as_lent {
    ($($str:ty as $t:ty;)*) => { $(
        impl Encode for $str {
            type Form = Bytes;
            #[inline(always)]
            fn encode<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
                <$t>::with_bytes(self, f)
            }
        }
    )* };
}
#[cfg(unix)]
pub(super) use encode_as_lent;

encode_as_lent! {
    [u8] as Vec<u8>;
    str as String;
}

#[cfg(unix)]
encode_as_lent! {
    OsStr as OsString;
}

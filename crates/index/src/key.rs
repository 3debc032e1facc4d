//! Keys: any type with an order-preserving encoding.
//!
//! An index never compares keys of the user's type. It compares their *encodings*, of which there are two forms:
//! [`Word`] (a `u64`, for integers up to 64 bits) and [`Bytes`] (a byte string of any length, for everything else).
//! Layouts are chosen by form at compile time: words are stored inline, byte strings with prefix truncation.
//! There is no reserved key: 0, `MAX`, the empty string and strings with zero bytes are keys like any other.
//! Tuples are in [`tuple`].
//!
//! # What is stored, and what may be asked for
//! An index hands keys back by decoding what it stored, so it stores only what the key's own `encode` has made: storing
//! methods take a `K`, or a borrowed form whose encodings are known to be the same ([`EncodeAs`], which safe code cannot
//! claim). Whatever else can be borrowed from a key ([`Borrow`](core::borrow::Borrow)) may be asked for: it is compared
//! and not kept, so a form that disagrees with its key is not found, and that is all.

mod tuple;

use crate::blink::SlotForm;
use crate::hydra::{PageForm, SearchForm};
use core::fmt::Debug;

pub use tuple::KeyPart;

/// A family of encodings: what an index compares and stores.
pub trait Form: Copy + Send + Sync + 'static {
    /// A borrowed encoding, ordered as the keys are.
    type Probe<'a>: Copy + Ord + Debug;

    /// Which of the two forms this is.
    const KIND: FormKind;
}

/// The two forms, for code that must tell them apart at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormKind {
    /// See [`Word`].
    Word,
    /// See [`Bytes`].
    Bytes,
}

/// Keys that fit one `u64`.
#[derive(Clone, Copy, Debug)]
pub enum Word {}

/// Keys that are byte strings, in lexicographic order.
#[derive(Clone, Copy, Debug)]
pub enum Bytes {}

impl Form for Word {
    type Probe<'a> = u64;
    const KIND: FormKind = FormKind::Word;
}

impl Form for Bytes {
    type Probe<'a> = &'a [u8];
    const KIND: FormKind = FormKind::Bytes;
}

/// A form that the structures here have layouts for. Both forms are; users never need to name it.
pub trait KeyForm: PageForm + SearchForm + SlotForm {}

impl KeyForm for Word {}
impl KeyForm for Bytes {}

/// Something that can be looked up: a key, or a borrowed form of one (`str` for `String`).
///
/// The encoding is order-preserving and injective: `a < b` exactly when `a`'s encoding is less than `b`'s. An
/// implementation that breaks this, or encodes a key differently each time, gives a map in a surprising order, never
/// undefined behaviour.
pub trait Encode {
    /// The encoding's form.
    type Form: KeyForm;

    /// Calls `f` with the encoding of `self`.
    fn encode<R>(&self, f: impl FnOnce(<Self::Form as Form>::Probe<'_>) -> R) -> R;
}

/// A borrowed form of `K` that can be stored as one: `str` for `String`, any `K` for itself.
///
/// # Safety
/// Whatever `encode` hands out is something that `K::decode` and `K::decode_ref` may be called with: `K::encode` hands it
/// out too, for some `K`.
///
/// ```
/// let map: archipelago_index::HydraList<String, u32> = Default::default();
/// map.pin().upsert("without a String", 7);
/// ```
///
/// What is only borrowed from a key is no such form:
///
/// ```compile_fail,E0277
/// let map: archipelago_index::HydraList<[u8; 4], u32> = Default::default();
/// map.pin().upsert(&b"of another length"[..], 7);
/// ```
///
/// ```compile_fail,E0277
/// let map: archipelago_index::Art<[u8; 4], u32> = Default::default();
/// map.pin().insert(&b"of another length"[..], 7);
/// ```
pub unsafe trait EncodeAs<K: Key>: Encode<Form = K::Form> {}

// SAFETY: it is the same `encode`.
unsafe impl<K: Key> EncodeAs<K> for K {}
// SAFETY: any string is some `String`, and both encode as its bytes.
unsafe impl EncodeAs<String> for str {}
// SAFETY: as for `String`.
unsafe impl EncodeAs<Box<str>> for str {}
// SAFETY: any bytes are some vector's, and both encode as themselves.
unsafe impl EncodeAs<Vec<u8>> for [u8] {}
// SAFETY: as for `Vec<u8>`.
unsafe impl EncodeAs<Box<[u8]>> for [u8] {}

/// A borrowed encoding of a `T`.
pub type Probe<'a, T> = <<T as Encode>::Form as Form>::Probe<'a>;

/// A key of an ordered index: integers, `bool`, `char`, byte arrays, strings, byte vectors, tuples of these, and
/// whatever else implements it.
///
/// ```
/// use archipelago_index::HydraList;
///
/// let map: HydraList<(u32, String), &str> = HydraList::new();
/// let map = map.pin();
/// map.insert((7, "b".into()), "second");
/// map.insert((7, "a".into()), "first");
/// assert_eq!(map.range((7, String::new())..(8, String::new())).count(), 2);
/// assert_eq!(map.first_key_value(), Some(((7, "a".into()), "first")));
/// ```
///
/// # Implementing it
/// The trait is safe to implement since an index relies on nothing but what it is given: it decodes only what this type's
/// own `encode`, or that of an [`EncodeAs`], has handed out at some time, byte for byte, and leaves it to `decode` what
/// that is good for. So an implementation must cope with everything that its `encode` may ever hand out, in any call. A
/// panic of `encode` or `decode` leaves the map as it was before the call or as it is after it.
pub trait Key: Encode + Clone + Send + Sync + 'static {
    /// What a scan shows of a key without allocating: `u64` for `u64`, `&str` for `String`.
    type Ref<'a>;

    /// The key, borrowed from its encoding.
    ///
    /// # Safety
    /// `probe` was handed out by `Self::encode` or by a [`Self`-like](EncodeAs) form's.
    unsafe fn decode_ref<'a>(probe: Probe<'a, Self>) -> Self::Ref<'a>;

    /// The key, rebuilt from its encoding.
    ///
    /// # Safety
    /// `probe` was handed out by `Self::encode` or by a [`Self`-like](EncodeAs) form's.
    unsafe fn decode(probe: Probe<'_, Self>) -> Self;
}

macro_rules! word_keys {
    ($($t:ty: |$x:ident| $to:expr, |$w:ident| $from:expr;)*) => { $(
        impl Encode for $t {
            type Form = Word;
            #[inline]
            fn encode<R>(&self, f: impl FnOnce(u64) -> R) -> R {
                let $x = *self;
                f($to)
            }
        }

        impl Key for $t {
            type Ref<'a> = $t;
            #[inline]
            unsafe fn decode_ref<'a>($w: Probe<'a, Self>) -> Self::Ref<'a> {
                $from
            }
            #[inline]
            unsafe fn decode($w: u64) -> $t {
                $from
            }
        }
    )* };
}

// Signed integers: flipping the sign bit maps the signed order onto the unsigned one.
word_keys! {
    u8: |x| u64::from(x), |w| w as u8;
    u16: |x| u64::from(x), |w| w as u16;
    u32: |x| u64::from(x), |w| w as u32;
    u64: |x| x, |w| w;
    usize: |x| x as u64, |w| w as usize;
    i8: |x| u64::from(x as u8 ^ 0x80), |w| (w as u8 ^ 0x80) as i8;
    i16: |x| u64::from(x as u16 ^ 0x8000), |w| (w as u16 ^ 0x8000) as i16;
    i32: |x| u64::from(x as u32 ^ (1 << 31)), |w| (w as u32 ^ (1 << 31)) as i32;
    i64: |x| x as u64 ^ (1 << 63), |w| (w ^ (1 << 63)) as i64;
    isize: |x| x as i64 as u64 ^ (1 << 63), |w| (w ^ (1 << 63)) as i64 as isize;
    bool: |x| u64::from(x), |w| w != 0;
    char: |x| u64::from(u32::from(x)), |w| char::from_u32(w as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
}

impl Encode for [u8] {
    type Form = Bytes;
    #[inline]
    fn encode<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self)
    }
}

impl Encode for str {
    type Form = Bytes;
    #[inline]
    fn encode<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self.as_bytes())
    }
}

macro_rules! byte_keys {
    ($($t:ty $(, const $n:ident)?: $r:ty, |$x:ident| $to:expr, |$p:ident| $by_ref:expr, $from:expr;)*) => { $(
        impl$(<const $n: usize>)? Encode for $t {
            type Form = Bytes;
            #[inline]
            fn encode<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
                let $x = self;
                f($to)
            }
        }

        impl$(<const $n: usize>)? Key for $t {
            type Ref<'a> = $r;
            #[inline]
            unsafe fn decode_ref<'a>($p: Probe<'a, Self>) -> Self::Ref<'a> {
                $by_ref
            }
            #[inline]
            unsafe fn decode($p: &[u8]) -> $t {
                $from
            }
        }
    )* };
}

byte_keys! {
    Vec<u8>: &'a [u8], |x| x, |p| p, p.to_vec();
    Box<[u8]>: &'a [u8], |x| x, |p| p, p.into();
    [u8; N], const N: [u8; N], |x| x, |p| p.try_into().expect("an encoding of [u8; N] has N bytes"),
        p.try_into().expect("an encoding of [u8; N] has N bytes");
    u128: u128, |x| &x.to_be_bytes(), |p| u128::from_be_bytes(p.try_into().expect("16 bytes")),
        u128::from_be_bytes(p.try_into().expect("16 bytes"));
    i128: i128, |x| &((*x as u128) ^ (1 << 127)).to_be_bytes(),
        |p| (u128::from_be_bytes(p.try_into().expect("16 bytes")) ^ (1 << 127)) as i128,
        (u128::from_be_bytes(p.try_into().expect("16 bytes")) ^ (1 << 127)) as i128;
    // SAFETY: by `decode`'s contract the bytes are some String's.
    String: &'a str, |x| x.as_bytes(), |p| unsafe { core::str::from_utf8_unchecked(p) },
        // SAFETY: by `decode`'s contract the bytes are some String's.
        unsafe { core::str::from_utf8_unchecked(p) }.to_owned();
    // SAFETY: as for `String`.
    Box<str>: &'a str, |x| x.as_bytes(), |p| unsafe { core::str::from_utf8_unchecked(p) },
        // SAFETY: as for `String`.
        unsafe { core::str::from_utf8_unchecked(p) }.into();
}

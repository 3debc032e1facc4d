//! Keys: any type with an order-preserving encoding.
//!
//! An index never compares keys of the user's type. It compares their *encodings*, of which there are two forms:
//! [`Word`] (a `u64`, for key types with a fixed width of at most eight bytes, except arrays) and [`Bytes`] (a byte
//! string of any length, for all other key types). The form selects the layout at compile time: for example, a
//! `HydraList` stores words inline, and byte strings without their page's common prefix. No key is reserved: 0, `MAX`,
//! the empty string and strings with zero bytes are ordinary keys.
//!
//! # What can be a key
//! | types | order | form |
//! |---|---|---|
//! | integers, `NonZero`, `bool`, `char` | the type's | word up to 64 bits |
//! | `f32`, `f64` | `total_cmp`'s: `-0.0` and `0.0` are two keys, and each bit pattern of NaN is a key | word |
//! | `String`, `Box<str>`, `Arc<str>`; `Vec<u8>`, `Box<[u8]>`, `Arc<[u8]>`; on Unix `OsString` | by bytes | bytes |
//! | `PathBuf`, on Unix | by components, as `Path`'s; shown as a `PathBuf` | bytes |
//! | `Ipv4Addr`; `Ipv6Addr`, `IpAddr`, `Duration` | the type's | word; bytes |
//! | tuples of up to eight keys | part by part | word if all parts are words, of at most eight bytes together |
//! | arrays `[K; N]`, among them a UUID's `[u8; 16]` | element by element | bytes |
//! | `Option<K>` | `None` first | word if `K` is a word of at most seven bytes |
//! | `Reverse<K>` | reversed | the form of `K` |
//! | types that implement [`KeyAs`] | the order of the key that represents them | that key's form |
//!
//! The macro [`key!`](crate::key!) declares newtypes, structs and `enum`s that implement `KeyAs`.
//!
//! The standard library's types for points in time are not keys, since their range and resolution depend on the system.
//! Use a newtype with the [`Duration`](core::time::Duration) since some epoch, or with an `i64` of nanoseconds.
//!
//! # Other orders
//! A map has no comparator that is chosen at run time. Search layers compare encodings word by word, without knowing
//! the key's type, so an order cannot be a function. Instead an order is a type: [`Reverse`](core::cmp::Reverse), or a
//! wrapper whose encoding has the wanted order. [`KeyAs`] shows two examples: case-insensitive keys, and keys in a
//! collation's order.
//!
//! An index returns keys by decoding stored encodings, so it may store only encodings that the key's own `encode` has
//! made. Methods that store take a `K`, or a borrowed form whose encodings are known to be the same ([`EncodeAs`],
//! which safe code cannot implement). Look-ups accept every type that can be borrowed from a key
//! ([`Borrow`](core::borrow::Borrow)), since they compare the encoding and do not store it. If the encodings of a
//! borrowed form and its key disagree, the only effect is that the key is not found. Composite keys are looked up by
//! their borrowed parts, see [`by_parts`].
//!
//! # Modules
//! [`part`] defines the parts of which every key consists, and [`width`] the form that follows from the parts' widths.
//! [`number`], [`string`], [`path`], [`wrapper`] and [`tuple`] implement key types. [`own`] is for users' types, and
//! [`lookup`] for look-ups by borrowed parts.

mod lookup;
mod number;
mod own;
mod part;
#[cfg(unix)]
mod path;
mod string;
mod tuple;
mod width;
mod wrapper;

pub use lookup::{Parts, by_parts};
pub use own::KeyAs;
pub use part::KeyPart;

use crate::structure::{Encode, Form};

/// A borrowed form of `K` that can be stored as a `K`: `str` for `String`, and any `K` for itself.
///
/// # Safety
/// Every output of `encode` must also be an output of `K::encode` for some `K`. Then `K::decode` and `K::decode_ref`
/// may be called with it.
///
/// ```
/// let map: archipelago::HydraList<String, u32> = Default::default();
/// map.pin().upsert("without a String", 7);
/// ```
///
/// Other types that can be borrowed from a key do not implement `EncodeAs`:
///
/// ```compile_fail,E0277
/// let map: archipelago::HydraList<[u8; 4], u32> = Default::default();
/// map.pin().upsert(&b"of another length"[..], 7);
/// ```
///
/// ```compile_fail,E0277
/// let map: archipelago::Art<[u8; 4], u32> = Default::default();
/// map.pin().insert(&b"of another length"[..], 7);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored as a `{K}`",
    note = "stored are keys, and borrowed forms that encode alike: a `str` for a `String`; `by_parts` is for look-ups only"
)]
pub unsafe trait EncodeAs<K: Key>: Encode<Form = K::Form> {}

// SAFETY: `encode` is the same function.
unsafe impl<K: Key> EncodeAs<K> for K {}

/// A borrowed encoding of a `T`.
pub type Probe<'a, T> = <<T as Encode>::Form as Form>::Probe<'a>;

/// A key of an ordered index: numbers, strings, paths, addresses, tuples and arrays of these, and every other type that
/// is a [`KeyPart`]. Your own types become keys by [`key!`](crate::key!) or [`KeyAs`].
///
/// ```
/// use archipelago::HydraList;
///
/// let map: HydraList<(u32, String), &str> = HydraList::new();
/// let map = map.pin();
/// map.insert((7, "b".into()), "second");
/// map.insert((7, "a".into()), "first");
/// assert_eq!(map.range((7, String::new())..(8, String::new())).count(), 2);
/// assert_eq!(map.first_key_value(), Some(((7, "a".into()), "first")));
/// ```
///
/// # Implementing this trait
/// This is seldom needed. [`KeyAs`] is simpler, has no `unsafe`, and also makes the type a part of other keys.
/// Implement `Key` for encodings that are not composed of other keys' encodings. The trait is safe to implement for two
/// reasons. An index decodes only encodings that were produced by this type's own `encode`, or by the `encode` of an
/// [`EncodeAs`]. And its memory safety does not depend on the result of `decode`. So `decode` must accept everything
/// that any call of `encode` may produce. If `encode` or `decode` panics in an operation on one key, the map is as it
/// was before the call, or as it is after the call; an operation on several keys may have been carried out in part.
pub trait Key: Encode + Clone + Send + Sync + 'static {
    /// The type of keys in scans: `u64` for `u64`, `&str` for `String`. Most keys are shown without an allocation. The
    /// exceptions are a `PathBuf`, a `Reverse` with a string, and a string with zero bytes that is followed by other
    /// parts.
    type Ref<'a>;

    /// Decodes a key that borrows from its encoding.
    ///
    /// # Safety
    /// `probe` must have been made by `Self::encode`, or by the `encode` of a form that is [stored as
    /// `Self`](EncodeAs).
    unsafe fn decode_ref<'a>(probe: Probe<'a, Self>) -> Self::Ref<'a>;

    /// Decodes an owned key.
    ///
    /// # Safety
    /// `probe` must have been made by `Self::encode`, or by the `encode` of a form that is [stored as
    /// `Self`](EncodeAs).
    unsafe fn decode(probe: Probe<'_, Self>) -> Self;
}

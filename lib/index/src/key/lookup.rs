//! Look-ups by borrowed parts, without making the key.
//!
//! A map looks for a type `Q` that can be borrowed from the key (`K: Borrow<Q>`). A `(String, u64)` cannot be borrowed
//! as a `(&str, u64)`, since it does not contain one. But both types can be borrowed as a trait object that gives
//! access to the parts: `dyn Parts<K>`.

use super::KeyPart;
use super::part::{Lent, PartBuffer};
use super::width::Width;
use crate::structure::{Encode, Encoding, Form};
use core::borrow::Borrow;

/// A type from which the parts of a `K` can be read: a `K` itself, or the result of [`by_parts`]. This trait is sealed.
pub trait Parts<K> {
    #[doc(hidden)]
    fn word(&self) -> u64;

    #[doc(hidden)]
    fn write(&self, to: &mut PartBuffer);
}

impl<K: KeyPart> Parts<K> for K {
    fn word(&self) -> u64 {
        K::word(self.lend())
    }

    fn write(&self, to: &mut PartBuffer) {
        K::write(self.lend(), true, to);
    }
}

impl<K: KeyPart> Parts<K> for Lent<'_, K> {
    #[inline]
    fn word(&self) -> u64 {
        K::word(self.0)
    }

    #[inline]
    fn write(&self, to: &mut PartBuffer) {
        K::write(self.0, true, to);
    }
}

/// Makes borrowed parts into a value by which a tuple, or a type declared by [`key!`](crate::key!), can be looked up.
/// Nothing is allocated for encodings of up to 120 bytes.
///
/// ```
/// use archipelago::index::{HydraList, Parts, by_parts};
/// use std::ops::Bound::{Excluded, Included};
///
/// let map: HydraList<(String, u64), &str> = HydraList::new();
/// let map = map.pin();
/// map.insert(("Bern".to_owned(), 7), "seven");
/// map.insert(("Bern".to_owned(), 8), "eight");
/// assert_eq!(map.get(by_parts(&("Bern", 7))), Some("seven"));
/// assert_eq!(map.remove(by_parts(&("Bern", 9))), None);
/// // The bounds of ranges that are no plain keys need a hint, as `range::<str, _>` does.
/// let (from, to) = (Included(by_parts(&("Bern", 8))), Excluded(by_parts(&("Bern", 9))));
/// assert_eq!(map.range::<dyn Parts<_>, _>((from, to)).count(), 1);
/// ```
///
/// The parts must be the key's own parts, and the result cannot be stored:
///
/// ```compile_fail,E0271
/// # use archipelago::index::{HydraList, by_parts};
/// # let map: HydraList<(String, u64), &str> = HydraList::new();
/// map.pin().get(by_parts(&(7, "Bern")));
/// ```
///
/// ```compile_fail,E0277
/// # use archipelago::index::{Art, by_parts};
/// # let map: Art<(String, u64), &str> = Art::new();
/// map.pin().insert(by_parts(&("Bern", 7)), "seven");
/// ```
#[inline(always)]
pub fn by_parts<'a, K: KeyPart>(parts: &'a K::Borrowed<'a>) -> &'a (dyn Parts<K> + 'a) {
    // SAFETY: `Lent` is a transparent struct with this type as its only field.
    unsafe { &*(&raw const *parts).cast::<Lent<'a, K>>() }
}

impl<K: KeyPart> Encoding for dyn Parts<K> + '_ {
    #[inline]
    fn word(&self) -> u64 {
        Parts::word(self)
    }

    #[inline]
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let mut buffer = PartBuffer::new();
        self.write(&mut buffer);
        f(buffer.bytes())
    }
}

impl<K: KeyPart> Encode for dyn Parts<K> + '_ {
    type Form = <K::Width as Width>::Form;

    #[inline]
    fn encode<R>(&self, f: impl FnOnce(<Self::Form as Form>::Probe<'_>) -> R) -> R {
        Self::Form::of(self, f)
    }
}

macro_rules! lend_parts {
    ($(($($part:ident)+))*) => { $(
        impl<'a, $($part: KeyPart),+> Borrow<dyn Parts<($($part,)+)> + 'a> for ($($part,)+) {
            fn borrow(&self) -> &(dyn Parts<($($part,)+)> + 'a) {
                self
            }
        }
    )* };
}

lend_parts! {
    (A)
    (A B)
    (A B C)
    (A B C D)
    (A B C D E)
    (A B C D E F)
    (A B C D E F G)
    (A B C D E F G H)
}

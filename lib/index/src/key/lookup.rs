//! Look-ups by borrowed parts, without making the key.
//!
//! Maps look for what a key can be borrowed as (`K: Borrow<Q>`), and `(String, u64)` cannot lend a `(&str, u64)`, which it
//! has not got. But it can be seen as *something that has these parts*, and so can a `(&str, u64)`: that is `dyn Parts<K>`.

use super::KeyPart;
use super::part::{Lent, PartBuffer};
use super::width::Width;
use crate::structure::{Encode, Encoding, Form};
use core::borrow::Borrow;

/// What has the parts of a `K`: a `K`, or what [`by_parts`] makes of its parts. Sealed.
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

/// Looks a tuple, or what [`key!`](crate::key!) declared, up by its parts, borrowed: nothing is allocated for encodings of
/// up to 120 bytes.
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
/// Only by the key's own parts, and never to store:
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
    // SAFETY: `Lent` is a transparent struct around exactly this.
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

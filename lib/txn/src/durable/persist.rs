//! The encoding of rows and keys as bytes.

use serde::{Serialize, de::DeserializeOwned};

/// A row or key that can be written to a disk and read back. Types that implement serde's `Serialize` and
/// `DeserializeOwned` implement this trait, in [postcard](https://postcard.jamesmunns.com/wire-format)'s format. This
/// format has no field names, so adding or removing a field changes it.
///
/// ```
/// use archipelago_txn::Persist;
///
/// struct Colour(u8, u8, u8); // by hand, without serde
///
/// impl Persist for Colour {
///     fn save(&self, to: &mut Vec<u8>) {
///         to.extend([self.0, self.1, self.2]);
///     }
///     fn load(from: &[u8]) -> Option<Self> {
///         let &[red, green, blue] = from else { return None };
///         Some(Self(red, green, blue))
///     }
/// }
/// ```
pub trait Persist: Sized {
    /// Appends bytes from which [`load`](Self::load) makes an equal value. The method must not change bytes that were
    /// in `to` before. If it changes one of the last 16 of them, the commit panics and the transaction is rolled back.
    fn save(&self, to: &mut Vec<u8>);

    /// Returns the value, or `None` if the bytes encode no value of this type (because another type has written them).
    fn load(from: &[u8]) -> Option<Self>;
}

impl<T: Serialize + DeserializeOwned> Persist for T {
    /// # Panics
    /// If the type's own serialization fails.
    fn save(&self, to: &mut Vec<u8>) {
        match postcard::to_extend(self, core::mem::take(to)) {
            Ok(all) => *to = all,
            Err(error) => panic!("{} cannot be written: {error}", core::any::type_name::<T>()),
        }
    }

    fn load(from: &[u8]) -> Option<Self> {
        postcard::take_from_bytes(from).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
    }
}

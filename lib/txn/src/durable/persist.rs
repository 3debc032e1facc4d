//! How rows and keys become bytes.

use serde::{Serialize, de::DeserializeOwned};

/// A row or key that can be written to a disk and read back. What is serde's `Serialize` and `Deserialize` is, in
/// [postcard](https://postcard.jamesmunns.com/wire-format)'s format: no names, so a field more or less is another format.
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
    /// Appends what [`load`](Self::load) makes the same value of. Code that changes what is there already makes the commit panic, and
    /// rolls the transaction back.
    fn save(&self, to: &mut Vec<u8>);

    /// The value, or nothing if the bytes are none: they were written by another type.
    fn load(from: &[u8]) -> Option<Self>;
}

impl<T: Serialize + DeserializeOwned> Persist for T {
    /// # Panics
    /// With the type's own error.
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

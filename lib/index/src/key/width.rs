//! The number of bytes of an encoding, as a type. A key type with a fixed width of at most eight bytes, except an
//! array, has the form [`Word`].
//!
//! Widths are added at compile time, so that `(u32, u32)` is a word and `(u32, u64)` is a byte string. They are types
//! and not constants, since on stable Rust a type can select another type (the form), but a constant cannot.

use crate::structure::{Bytes, Form, Word};

/// A width. Other crates cannot name this trait, which seals [`KeyPart`](super::KeyPart).
pub trait Width: 'static {
    /// The form of keys of this width.
    type Form: Form;

    /// This width plus one byte.
    type Next: Width;

    /// This width plus `W`.
    type Plus<W: Width>: Width;

    /// The number of bytes, if the form is [`Word`].
    const BYTES: u32;
}

/// A fixed width of `N` bytes, 0 to 8.
pub enum Fixed<const N: u32> {}

/// A width of more than eight bytes, a variable width, or the width of an array.
pub enum Wide {}

impl Width for Wide {
    type Form = Bytes;
    type Next = Wide;
    type Plus<W: Width> = Wide;
    const BYTES: u32 = 0;
}

impl Width for Fixed<0> {
    type Form = Word;
    type Next = Fixed<1>;
    type Plus<W: Width> = W;
    const BYTES: u32 = 0;
}

macro_rules! widths {
    ($($less:literal $n:literal: $next:ty;)*) => { $(
        impl Width for Fixed<$n> {
            type Form = Word;
            type Next = $next;
            type Plus<W: Width> = <Fixed<$less> as Width>::Plus<W::Next>;
            const BYTES: u32 = $n;
        }
    )* };
}

widths! {
    0 1: Fixed<2>;
    1 2: Fixed<3>;
    2 3: Fixed<4>;
    3 4: Fixed<5>;
    4 5: Fixed<6>;
    5 6: Fixed<7>;
    6 7: Fixed<8>;
    7 8: Wide;
}

//! How many bytes an encoding has, as a type: what has a fixed number of at most eight is a [`Word`].
//!
//! Widths add up at compile time, so that `(u32, u32)` is a word and `(u32, u64)` is a byte string. They are types since
//! a type can choose another type (the form) on stable Rust and a constant cannot.

use crate::structure::{Bytes, Form, Word};

/// A width. Other crates cannot name this trait, which seals [`KeyPart`](super::KeyPart).
pub trait Width: 'static {
    /// The form of keys of this width.
    type Form: Form;

    /// One byte more.
    type Next: Width;

    /// This and `W`.
    type Plus<W: Width>: Width;

    /// The bytes, if the form is [`Word`].
    const BYTES: u32;
}

/// `N` bytes, 0 to 8.
pub enum Fixed<const N: u32> {}

/// More than eight bytes, or not always as many.
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

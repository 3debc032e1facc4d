//! What the ranges of a map are made of.

use core::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// A point that ranges begin and end at: an unsigned integer. The greatest one is the end of the last range that can be, and
/// lies in none.
pub trait Point: Copy + Ord + Debug + Send + Sync + sealed::Sealed + 'static {
    /// The least point.
    const MIN: Self;
    /// The greatest point, which lies in no range.
    const MAX: Self;

    /// The point before this one; [`MIN`](Self::MIN) itself for `MIN`.
    fn before(self) -> Self;

    /// The point `size` above this one, if there is one.
    fn checked_add(self, size: Self) -> Option<Self>;

    /// How far this point is above `below`, which is not above it.
    fn distance(self, below: Self) -> Self;

    /// The least multiple of `alignment` at or above this point, if there is one. Every point is a multiple of 0.
    fn align_up(self, alignment: Self) -> Option<Self>;
}

macro_rules! points {
    ($($int:ty)*) => {$(
        impl sealed::Sealed for $int {}

        impl Point for $int {
            const MIN: Self = <$int>::MIN;
            const MAX: Self = <$int>::MAX;

            #[inline]
            fn before(self) -> Self {
                self.saturating_sub(1)
            }

            #[inline]
            fn checked_add(self, size: Self) -> Option<Self> {
                <$int>::checked_add(self, size)
            }

            #[inline]
            fn distance(self, below: Self) -> Self {
                self - below
            }

            #[inline]
            fn align_up(self, alignment: Self) -> Option<Self> {
                if alignment == 0 { Some(self) } else { self.checked_next_multiple_of(alignment) }
            }
        }
    )*};
}

points!(u16 u32 u64 u128 usize);

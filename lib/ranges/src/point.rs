//! Points, the integers of which ranges consist.

use core::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// A point at which ranges begin and end: an unsigned integer. The greatest point can only be the end of a range, so no
/// range contains it.
pub trait Point: Copy + Ord + Debug + Send + Sync + sealed::Sealed + 'static {
    /// The least point.
    const MIN: Self;
    /// The greatest point, which no range contains.
    const MAX: Self;

    /// Returns the point before this one, or [`MIN`](Self::MIN) for `MIN`.
    fn before(self) -> Self;

    /// Returns the point `size` above this one, or `None` on overflow.
    fn checked_add(self, size: Self) -> Option<Self>;

    /// Returns the distance of this point from `below`, which must not be above it.
    fn distance(self, below: Self) -> Self;

    /// Returns the least multiple of `alignment` at or above this point, or `None` on overflow. Every point counts as a
    /// multiple of 0.
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

points!(u8 u16 u32 u64 u128 usize);

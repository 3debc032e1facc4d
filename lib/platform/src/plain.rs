//! Plain (non-atomic) memory whose accesses are announced to the simulator.

use core::cmp::Ordering;
use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::{touch, touch_mut};

/// A value that threads share under some lock or in turns, so that plain accesses suffice. Each use is announced to the
/// simulator, an immutable one as a read and a mutable one as a write. Natively this wrapper does nothing.
///
/// If the shared parts of a structure are stored in `Plain`s, no announcement can be forgotten. Memory to which the
/// value points (a vector's elements) is not included: such elements are stored in `Plain`s of their own.
///
/// ```
/// use archipelago::platform::plain::Plain;
///
/// let mut scores = Plain::new(vec![Plain::new(1_u64), Plain::new(2)]);
/// *scores[1] += 40;
/// assert_eq!(*scores[0] + *scores[1], 43);
/// ```
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Plain<T>(T);

impl<T> Plain<T> {
    /// Wraps a value.
    #[inline(always)]
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns a mutable reference, for a caller that does not change the value itself and writes only to memory to
    /// which the value points. Announced as a read.
    #[inline(always)]
    pub fn reach_mut(&mut self) -> &mut T {
        touch(&raw const self.0, size_of::<T>());
        &mut self.0
    }

    /// Returns the value.
    #[inline(always)]
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Plain<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        touch(&raw const self.0, size_of::<T>());
        &self.0
    }
}

impl<T> DerefMut for Plain<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        touch_mut(&raw const self.0, size_of::<T>());
        &mut self.0
    }
}

impl<T: PartialEq> PartialEq for Plain<T> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for Plain<T> {}

impl<T: PartialOrd> PartialOrd for Plain<T> {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: Ord> Ord for Plain<T> {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// Makes a slice of `len` items. Each item's memory is announced when the item is written. The reason: in the
/// simulator, an allocation costs virtual time for small blocks only, and the memory of large blocks costs time when it
/// is written.
///
/// ```
/// let zeros = archipelago::platform::plain::boxed(1000, || 0_u64);
/// assert_eq!((zeros.len(), zeros[7]), (1000, 0));
/// ```
pub fn boxed<T>(len: usize, mut make: impl FnMut() -> T) -> Box<[T]> {
    let mut items: Vec<T> = Vec::with_capacity(len);
    for at in 0..len {
        touch_mut(items.as_ptr().wrapping_add(at), size_of::<T>());
        items.push(make());
    }
    items.into_boxed_slice()
}

impl<T: fmt::Debug> fmt::Debug for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

//! Plain memory that announces itself.

use core::cmp::Ordering;
use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::{touch, touch_mut};

/// A value that threads share by some lock or by turns and so access plainly. Every look at it is announced to the virtual
/// machine as a read, every mutable look as a write; natively it is the value and nothing else.
///
/// A structure whose shared parts lie in `Plain`s cannot forget to announce them. What the value points to (a vector's
/// elements) is not part of it: those are `Plain`s of their own.
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

    /// A mutable look at a value that stays as it is, to write what it points to: announced as a read.
    #[inline(always)]
    pub fn reach_mut(&mut self) -> &mut T {
        touch(&raw const self.0, size_of::<T>());
        &mut self.0
    }

    /// The value.
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

/// A slice of `len` items, whose memory is announced as it is filled: the model charges small blocks to who allocates them,
/// and leaves large ones to who writes them.
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

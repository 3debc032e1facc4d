//! What a transaction holds: its write set, and the objects that it made.

use core::ptr::NonNull;

use super::version::{Copied, Free, Head, Shape};

/// An object in a write set.
pub(super) struct Pending {
    pub(super) master: NonNull<Head>,
    pub(super) copy: NonNull<Copied>,
    pub(super) shape: &'static Shape,
    pub(super) fate: Fate,
}

impl Pending {
    pub(super) fn header(&self) -> &Copied {
        // SAFETY: a write set's copies are its transaction's until they are handed over.
        unsafe { self.copy.as_ref() }
    }
}

/// What is to become of an object that a transaction holds.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    /// Nothing: its copy is never visible.
    Stays,
    Changes,
    Goes(Free),
}

/// What a transaction finds that wants an object.
pub(super) enum Found {
    /// It is in the write set, there.
    Own(usize),
    /// A copy may be linked above this one, or as the first.
    Free(*mut Copied),
}

pub(super) struct Shapes<T>(core::marker::PhantomData<T>);

impl<T> Shapes<T> {
    pub(super) const FULL: &'static Shape = &Shape::of::<T>();
    pub(super) const EMPTY: &'static Shape = &Shape::of::<T>().without_payload();
}

/// An object that a transaction made.
pub(super) struct Made {
    pub(super) master: NonNull<Head>,
    pub(super) free: Free,
}

//! A transaction's write set, and the objects that it made.

use core::ptr::NonNull;

use super::version::{Copied, Free, Head, Shape};

/// An object in a write set.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) master: NonNull<Head>,
    pub(super) copy: NonNull<Copied>,
    pub(super) shape: &'static Shape,
    pub(super) fate: Fate,
}

impl Pending {
    pub(super) fn header(&self) -> &Copied {
        // SAFETY: a transaction owns the copies of its write set until the log takes them over.
        unsafe { self.copy.as_ref() }
    }
}

/// What the commit does with an object that the transaction holds.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    /// The object does not change: its copy is never visible.
    Stays,
    Changes,
    Goes(Free),
}

/// What a transaction that wants to lock an object finds.
pub(super) enum Found {
    /// The object is at this index of the write set.
    Own(usize),
    /// The object is free: a copy may be linked above this copy (or, if this is an end word, as the first copy).
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

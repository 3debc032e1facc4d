//! A transaction's writes, in their order. Up to [`FEW`] writes are searched one by one; more writes are found by a
//! hash table.

use core::ops::{Deref, DerefMut, Range};

use rustc_hash::FxHashMap;

use crate::record::{Record, Version};
use crate::scheme::Scheme;
use crate::work::RecordRef;

pub(crate) struct Write<S: Scheme> {
    pub(crate) place: RecordRef<S>,
    /// The version that the write replaces.
    pub(crate) seen: *mut Version<S>,
    /// The new version. The transaction owns it until it is installed.
    pub(crate) pending: *mut Version<S>,
}

/// Up to this many writes are searched one by one: their addresses occupy ten cache lines that the transaction has just
/// written.
const FEW: usize = 16;

pub(crate) struct Writes<S: Scheme> {
    list: Vec<Write<S>>,
    /// A record's position in `list`, if the list is longer than [`FEW`]; empty otherwise.
    places: FxHashMap<*const Record<S>, usize>,
}

impl<S: Scheme> Writes<S> {
    pub(crate) fn new() -> Self {
        Self { list: Vec::new(), places: FxHashMap::default() }
    }

    /// Returns a record's position.
    pub(crate) fn find(&self, record: *const Record<S>) -> Option<usize> {
        if self.list.len() > FEW {
            return self.places.get(&record).copied();
        }
        self.list.iter().position(|write| core::ptr::eq(write.place.record, record))
    }

    /// Adds a write of a record to which the transaction has not written yet.
    pub(crate) fn push(&mut self, write: Write<S>) {
        if self.list.is_empty() {
            self.list.reserve(FEW);
        }
        self.list.push(write);
        match self.list.len() {
            ..=FEW => (),
            // The list has just become longer than `FEW`.
            len if self.places.is_empty() => self.note(0..len),
            len => self.note(len - 1..len),
        }
    }

    fn note(&mut self, new: Range<usize>) {
        self.places.extend(new.map(|at| (self.list[at].place.record, at)));
    }

    /// Removes and returns the latest write, if more than `len` are left.
    pub(crate) fn pop_above(&mut self, len: usize) -> Option<Write<S>> {
        if self.list.len() <= len {
            return None;
        }
        let last = self.list.pop()?;
        if self.list.len() <= FEW {
            self.places.clear();
        } else {
            self.places.remove(&last.place.record);
        }
        Some(last)
    }

    /// Orders the list by addresses.
    pub(crate) fn sort(&mut self) {
        self.list.sort_unstable_by_key(|write| write.place.record.addr());
        if !self.places.is_empty() {
            self.note(0..self.list.len());
        }
    }
}

impl<S: Scheme> Deref for Writes<S> {
    type Target = [Write<S>];
    fn deref(&self) -> &[Write<S>] {
        &self.list
    }
}

impl<S: Scheme> DerefMut for Writes<S> {
    fn deref_mut(&mut self) -> &mut [Write<S>] {
        &mut self.list
    }
}

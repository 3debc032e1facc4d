//! What a transaction is to write, in the order in which it said so: few writes are looked through, many have a table.

use core::ops::{Deref, DerefMut, Range};

use rustc_hash::FxHashMap;

use crate::record::{Record, Version};
use crate::scheme::Scheme;
use crate::work::Place;

pub(crate) struct Write<S: Scheme> {
    pub(crate) place: Place<S>,
    /// What it replaces.
    pub(crate) seen: *mut Version<S>,
    /// Ours until it is installed.
    pub(crate) pending: *mut Version<S>,
}

/// So many are looked through: their addresses lie in ten lines that the transaction itself has just written.
const FEW: usize = 16;

pub(crate) struct Writes<S: Scheme> {
    list: Vec<Write<S>>,
    /// Where in `list` a record is, if there are more than [`FEW`]; empty otherwise.
    places: FxHashMap<*const Record<S>, usize>,
}

impl<S: Scheme> Writes<S> {
    pub(crate) fn new() -> Self {
        Self { list: Vec::new(), places: FxHashMap::default() }
    }

    /// Where a record is.
    pub(crate) fn find(&self, record: *const Record<S>) -> Option<usize> {
        if self.list.len() > FEW {
            return self.places.get(&record).copied();
        }
        self.list.iter().position(|write| core::ptr::eq(write.place.record, record))
    }

    /// Adds a record that is not there.
    pub(crate) fn push(&mut self, write: Write<S>) {
        if self.list.is_empty() {
            self.list.reserve(FEW);
        }
        self.list.push(write);
        match self.list.len() {
            ..=FEW => (),
            // The first that are more.
            len if self.places.is_empty() => self.note(0..len),
            len => self.note(len - 1..len),
        }
    }

    fn note(&mut self, new: Range<usize>) {
        self.places.extend(new.map(|at| (self.list[at].place.record, at)));
    }

    /// Takes out what was added since there were `len`, the latest first.
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

//! Gaps: absent keys, and ranges of keys, that a transaction has read. The commit validates that no row has appeared in
//! them.

use archipelago_index::KeyPart;
use archipelago_index::map::Kind;

use crate::memory::Payload;
use crate::record::Record;
use crate::scheme::Scheme;
use crate::tree::{Bounds, Found, Tree, Typed};

/// Keys that a transaction has found absent.
pub trait Gap<S: Scheme> {
    /// Returns the gap's index.
    fn tree(&self) -> &dyn Tree<S>;

    /// Looks the gap up again. Returns whether `fresh` accepts each record that has appeared in the gap since the first
    /// look-up.
    fn holds(&self, fresh: &mut dyn FnMut(&Record<S>) -> bool) -> bool;
}

/// A key without a record.
pub(crate) struct Point<M: Kind, K: KeyPart, P, S: Scheme> {
    pub(crate) tree: *const Typed<M, K, P, S>,
    pub(crate) key: K,
}

impl<M: Kind, K: KeyPart, P: Payload, S: Scheme> Gap<S> for Point<M, K, P, S> {
    fn tree(&self) -> &dyn Tree<S> {
        // SAFETY: an index lives as long as the transactions that use it.
        unsafe { &*self.tree }
    }

    fn holds(&self, fresh: &mut dyn FnMut(&Record<S>) -> bool) -> bool {
        // SAFETY: as above.
        let tree = unsafe { &*self.tree };
        tree.find(&self.key).is_none_or(|found| fresh(found.record()))
    }
}

/// A range and the records that were in it, ascending. The scheme validates these records.
pub(crate) struct Span<M: Kind, K: KeyPart, P, S: Scheme> {
    pub(crate) tree: *const Typed<M, K, P, S>,
    pub(crate) bounds: Bounds<K>,
    pub(crate) seen: Vec<*const Record<S>>,
}

impl<M: Kind, K: KeyPart, P: Payload, S: Scheme> Gap<S> for Span<M, K, P, S> {
    fn tree(&self) -> &dyn Tree<S> {
        // SAFETY: an index lives as long as the transactions that use it.
        unsafe { &*self.tree }
    }

    fn holds(&self, fresh: &mut dyn FnMut(&Record<S>) -> bool) -> bool {
        // SAFETY: as above.
        let tree = unsafe { &*self.tree };
        let (now, _) = tree.batch(&self.bounds, usize::MAX, false);
        let mut seen = self.seen.as_slice();
        now.into_iter().all(|found: Found<'_, K, P, S>| {
            let record = core::ptr::from_ref(found.record());
            match seen.iter().position(|&before| before == record) {
                Some(at) => {
                    seen = &seen[at + 1..];
                    true
                }
                None => fresh(found.record()),
            }
        })
    }
}

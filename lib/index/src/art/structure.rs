//! `Art` as a [`Structure`]: the interface that maps use.

use super::cursor::{Batch, Cursor};
use super::leaf::Leaf;
use super::raw::RawArt;
use super::sync::WriteSync;
use super::{Radix, check};
use crate::limits::Limits;
use crate::structure::Form;
use crate::structure::{Bytes, End, Held, Kind, Put, Structure, When, Word, Words};
use archipelago_platform::sync::{Arc, Weak};
use archipelago_sync::rcu::{Domain, Guard, Owner};
use core::any::Any;
use core::ops::Bound;

/// A tree, and the domain that reclaims its memory.
pub struct Core<F: Form> {
    pub(super) tree: RawArt<F>,
    limits: Limits,
    // Dropped last, since it frees memory that was retired from the tree.
    domain: Domain,
}

impl Kind for Radix {
    type OfWords = Core<Word>;
    type OfBytes = Core<Bytes>;
    type Config = WriteSync;
    type Hooks = WriteSync;

    const NAME: &'static str = "Art";
}

impl<F: Form> Owner for Core<F> {
    fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<F: Form> Core<F> {
    fn walk<const DOWN: bool>(
        &self,
        guard: &Guard<'_>,
        from: Bound<&[u8]>,
        limit: usize,
        mut visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        let mut cursor = Cursor::<_, DOWN>::new(&self.tree, guard);
        // One batch is shown while the leaves of the next one are being prefetched.
        let (mut shown, mut coming) = (&mut Batch::new(), &mut Batch::new());
        let mut found = cursor.fill(from, shown, limit);
        let mut visited = 0;
        while visited < found {
            found += cursor.fill(from, coming, limit - found);
            while let Some(leaf) = shown.take() {
                visited += 1;
                if !visit(F::of_bytes(leaf.key()), leaf.word()) {
                    return visited;
                }
            }
            core::mem::swap(&mut shown, &mut coming);
        }
        visited
    }
}

// SAFETY: the contract is what the modules of this structure prove, part by part.
unsafe impl<F: Form> Structure<F> for Core<F> {
    type Place<'s> = ();
    type Near<'g> = ();
    type Config = WriteSync;
    type Hooks = WriteSync;

    const LONGEST_KEY: usize = Leaf::<F>::LONGEST_KEY;

    fn build(config: &WriteSync, limits: Limits) -> Arc<Self> {
        // SAFETY: `Map` passes guards of the map's own domain, and no other code has access to the tree.
        let tree = unsafe { RawArt::new(*config) };
        Arc::new_cyclic(|this: &Weak<Self>| {
            let domain = limits.backlog.domain().tended_by(this.clone());
            Core { tree, domain, limits }
        })
    }

    fn hooks(&self) -> &Self::Hooks {
        self.tree.write_sync()
    }

    #[inline]
    fn place(&self) {}

    #[inline]
    fn domain(&self) -> &Domain {
        &self.domain
    }

    #[inline]
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    fn get(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64> {
        F::with_bytes(key, |bytes| self.tree.get(bytes, guard)).map(Leaf::word)
    }

    fn put(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put {
        F::with_bytes(key, |bytes| match when {
            When::Always => self.tree.insert(bytes, word, guard).map_or(Put::Inserted, Put::Replaced),
            When::Absent => self.tree.insert_if_absent(bytes, word, guard).map_or(Put::Inserted, Put::Kept),
            When::Present => self.tree.exchange(bytes, word, guard).map_or(Put::Missing, Put::Replaced),
            When::Holds(old) if self.tree.replace(bytes, old, word, guard) => Put::Replaced(old),
            When::Holds(_) => self.tree.get(bytes, guard).map_or(Put::Missing, |leaf| Put::Kept(leaf.word())),
        })
    }

    fn take(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64> {
        F::with_bytes(key, |bytes| match expected {
            None => self.tree.remove(bytes, guard),
            Some(word) => self.tree.remove_if(bytes, word, guard).then_some(word),
        })
    }

    fn take_end<R>(
        &self,
        (): (),
        guard: &Guard<'_>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let (leaf, word) = match end {
            End::First => self.tree.take_outermost::<false>(guard),
            End::Last => self.tree.take_outermost::<true>(guard),
        }?;
        Some(found(F::of_bytes(leaf.key()), word))
    }

    fn scan(
        &self,
        (): (),
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        limit: usize,
        _: Words<'_>,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        F::with_bytes(from, |bytes| self.walk::<false>(guard, Bound::Included(bytes), limit, visit))
    }

    fn scan_back(
        &self,
        (): (),
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        _: Words<'_>,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        match bound {
            Some(bound) => F::with_bytes(bound, |bytes| self.walk::<true>(guard, Bound::Excluded(bytes), limit, visit)),
            None => self.walk::<true>(guard, Bound::Unbounded, limit, visit),
        }
    }

    fn ceiling<R>(
        &self,
        (): (),
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        let leaf = F::with_bytes(from, |bytes| {
            // The first key at or above is nearly always the key itself.
            let own = self.tree.get(bytes, guard);
            own.or_else(|| Cursor::<_, false>::new(&self.tree, guard).next(Bound::Included(bytes)))
        })?;
        Some(found(F::of_bytes(leaf.key()), leaf.word()))
    }

    fn split_points(&self, (): (), guard: &Guard<'_>, count: usize, mut show: impl FnMut(F::Probe<'_>)) {
        let mut first = true;
        self.tree.cut(guard, count.saturating_add(1), |key, _| {
            if !core::mem::take(&mut first) {
                show(F::of_bytes(key));
            }
        });
    }

    fn entries(&self) -> usize {
        self.tree.len()
    }

    fn held(&self) -> Held {
        Held { bytes: self.tree.bytes(), pages: self.tree.nodes(), room: 0, layers: 0 }
    }

    fn outside(&self, key: F::Probe<'_>) -> usize {
        F::with_bytes(key, Leaf::<F>::bytes_for)
    }

    fn settle(&self) {
        // One attempt frees everything if no reader is behind. A guard of another thread can make an attempt fail, even
        // a guard that another attempt holds for a moment. So several attempts are made.
        (0..4).for_each(|_| self.domain.collect());
    }

    unsafe fn dismantle(&self, each: impl FnMut(u64)) -> Option<Box<dyn Any + Send>> {
        self.domain.stop_tending();
        self.tree.show_words(&self.domain.pin(), each);
        None
    }

    fn check(&self) {
        let held = check::check(&self.tree, &self.domain.pin());
        assert_eq!(held.entries as usize, self.tree.len(), "the count is the number of entries");
        assert_eq!(held.nodes as usize, self.tree.nodes(), "the count is the number of nodes");
        assert_eq!(held.bytes as usize, self.tree.bytes(), "nodes and leaves take what was counted");
    }
}

//! Chunks and an index as a [`Structure`], the interface that maps use.

use super::Config;
use super::chunk::{Chunk, Slots};
use super::core::Core;
use super::form::ChunkForm;
use super::index::Index;
use super::look::Alone;
use super::size::Size;
use crate::limits::Limits;
use crate::structure::{End, Held, Put, Structure, When, Words};
use archipelago_platform::sync::Arc;
use archipelago_sync::rcu::{Domain, Guard};
use archipelago_sync::region::Versioned;
use archipelago_sync::version_lock::Look;
use core::any::Any;
use core::ptr::NonNull;

/// Methods for tests of Eunomia's chunks with either index, of either form.
pub trait Hooks {
    /// Returns the number of bytes of scatters. The caller must have exclusive access to the map.
    fn contention_bytes(&self) -> usize;
    fn flip_chunks(&self);
    fn move_chunks(&self);
}

impl<F: ChunkForm, I: Index<F>> Hooks for Core<F, I> {
    fn contention_bytes(&self) -> usize {
        let mut bytes = 0;
        self.for_each_chunk(|chunk| bytes += chunk.outside());
        bytes
    }

    fn flip_chunks(&self) {
        Core::flip_chunks(self, &self.domain.pin());
    }

    fn move_chunks(&self) {
        Core::move_chunks(self);
    }
}

// SAFETY: the contract is what the modules of this structure prove, part by part.
unsafe impl<F: ChunkForm, I: Index<F>> Structure<F> for Core<F, I> {
    type Place<'s> = ();
    type Near<'g> = ();
    type Config = Config;
    type Hooks = dyn Hooks;

    fn build(config: &Config, limits: Limits) -> Arc<Self> {
        Arc::new_cyclic(|this| Core::new(*config, limits, this.clone()))
    }

    fn hooks(&self) -> &Self::Hooks {
        self
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

    #[inline(always)]
    fn get(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64> {
        self.look_up(guard, key)
    }

    #[inline]
    fn put(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put {
        self.store(guard, key, word, when)
    }

    fn take(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64> {
        self.remove(guard, key, expected)
    }

    fn take_end<R>(
        &self,
        (): (),
        guard: &Guard<'_>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        self.take_outermost(guard, end, found)
    }

    fn scan(
        &self,
        (): (),
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        limit: usize,
        words: Words<'_>,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        self.ascend(guard, from, limit, words, visit)
    }

    fn scan_back(
        &self,
        (): (),
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words<'_>,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        self.descend(guard, bound, limit, words, visit)
    }

    fn split_points(&self, (): (), guard: &Guard<'_>, count: usize, mut show: impl FnMut(F::Probe<'_>)) {
        // A chunk's lower bound may not be a key, but the first entry at or above it is.
        self.index.cut(count, |bound| _ = self.ceiling((), guard, bound, |key, _| show(key)));
    }

    fn entries(&self) -> usize {
        self.tally.entries()
    }

    fn held(&self) -> Held {
        let held = self.tally.sum();
        let [outside, chunks] = [held.bytes, held.nodes].map(|it| usize::try_from(it).unwrap_or(0));
        let layers = self.index.bytes();
        // Each chunk has two bounds and a separator in boxes of their own, about as long as its keys.
        let bounds = if F::BOXED { 3 * chunks * outside / self.tally.entries().max(1) } else { 0 };
        // Retired chunks count as garbage.
        let retired = self.memory.chunks().saturating_sub(chunks) * size_of::<Chunk<I::Size>>();
        let bytes = self.memory.bytes().saturating_sub(retired) + layers + outside + bounds;
        Held { bytes, pages: self.memory.chunks(), room: chunks * I::Size::SLOTS, layers }
    }

    fn outside(&self, key: F::Probe<'_>) -> usize {
        F::kept_bytes(key)
    }

    fn spare(&self, (): ()) -> usize {
        self.memory.spare()
    }

    fn fits(&self, (): (), guard: &Guard<'_>, key: F::Probe<'_>) -> bool {
        self.has_place(guard, key)
    }

    fn is_thin(&self) -> bool {
        Core::is_thin(self)
    }

    fn settle(&self) {
        self.sweep();
    }

    unsafe fn dismantle(&self, mut each: impl FnMut(u64)) -> Option<Box<dyn Any + Send>> {
        self.domain.stop_tending();
        let mut skip = false;
        self.for_each_chunk(|chunk| {
            // If the chunk is locked, this process was made by a `fork`, and the thread that holds the lock does not
            // exist in it. The thread may have been moving entries from the next chunk to this one, so the entries of
            // both chunks leak.
            let locked = matches!(chunk.lock().look(), Look::Locked);
            if core::mem::replace(&mut skip, locked) || locked {
                return;
            }
            for (key, word) in chunk.gather::<F>().pairs {
                // SAFETY: no other thread uses the map, so this thread owns the entry.
                unsafe { F::discard(key) };
                each(word);
            }
            chunk.fill::<F>(&[]);
        });
        None
    }

    fn check(&self) {
        let (mut entries, mut keys, mut chunks) = (0, 0, Vec::new());
        self.for_each_chunk(|chunk| {
            assert!(chunk.lock().read().is_some(), "chunks in the list are neither locked nor obsolete");
            let (count, bytes) = chunk.check::<F>();
            (entries, keys) = (entries + count, keys + bytes);
            // SAFETY: the chunks are in a map that no other thread uses.
            if let Some(next) = unsafe { chunk.next.load().as_ref() } {
                // SAFETY: as above.
                let high: F::Probe<'_> = unsafe { F::kept(chunk.high.load()) };
                assert!(F::compare(high, next.low::<F>()).is_eq(), "a chunk ends where the next begins");
                assert!(F::compare(chunk.low::<F>(), high).is_lt(), "bounds ascend");
            }
            chunks.push(chunk);
        });
        let mut in_index = chunks.iter();
        let mut skipped = 0;
        self.index.check(|chunk| {
            let passed = in_index.by_ref().position(|next| core::ptr::eq(*next, chunk));
            skipped += passed.expect("the index leads to chunks of the list, in order");
        });
        assert!(!I::WHOLE || skipped + in_index.count() == 0, "the index leads to all chunks");
        let held = self.tally.sum();
        assert_eq!(held.entries as usize, entries, "the count is the number of entries");
        assert_eq!(held.nodes as usize, chunks.len(), "the count is the number of chunks");
        let bytes = keys + chunks.iter().map(|chunk| chunk.outside()).sum::<usize>();
        assert_eq!(held.bytes as usize, bytes, "scatters and keys take what was counted");
    }
}

impl<F: ChunkForm, I: Index<F>> Core<F, I> {
    /// Calls `each` with every chunk, while no other thread uses the map.
    fn for_each_chunk<'s>(&'s self, mut each: impl FnMut(&'s Chunk<I::Size>)) {
        let mut at = Some(self.first());
        while let Some(chunk) = at {
            // SAFETY: no other thread uses the map, so chunks in the list stay.
            at = unsafe { chunk.next.load().as_ref() };
            each(chunk);
        }
    }
}

impl<F: ChunkForm, I: Index<F>> Drop for Core<F, I> {
    fn drop(&mut self) {
        // Not from `first`: a chunk is freed by a pointer that no shared reference gave.
        let mut at = self.first.as_ptr();
        while !at.is_null() {
            // SAFETY: no other thread uses the map.
            let chunk = unsafe { &*at };
            let next = chunk.next.load();
            let ours = matches!(chunk.lock().look(), Look::Free(_));
            debug_assert!(!ours || chunk.count(&Alone) == 0, "a map is dismantled before it is dropped");
            // SAFETY: each chunk in the list is freed once, and so is its upper bound.
            unsafe {
                if ours && !next.is_null() {
                    F::discard(chunk.high.load());
                }
                Chunk::free::<F>(NonNull::new_unchecked(at), self.memory.arena((*at).home()));
            }
            at = next;
        }
    }
}

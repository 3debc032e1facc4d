//! Pages and keys that a thread has removed from a structure.

use super::chunk::Chunk;
use super::form::ChunkForm;
use super::memory::Memory;
use super::size::Size;
use archipelago_platform::memory::BlockArena;
use archipelago_sync::rcu::Guard;
use archipelago_sync::region::Versioned;
use core::ptr::NonNull;

/// Pages and keys that were removed from a structure. They are retired when no lock is held, since reclamation may run
/// users' destructors, which may use the structure.
#[derive(Default)]
pub struct Waste(Vec<Out>);

enum Out {
    /// A chunk, and the function that retires chunks of its size.
    Chunk(*mut (), unsafe fn(&Guard<'_>, *mut (), &Memory)),
    /// A box, and the function that retires boxes of its type.
    Page(*mut (), unsafe fn(&Guard<'_>, *mut ())),
    Key(u64),
}

impl Waste {
    pub(super) fn chunk<F: ChunkForm, S: Size>(&mut self, chunk: &Chunk<S>) {
        self.0.push(Out::Chunk(core::ptr::from_ref(chunk).cast_mut().cast(), retire_chunk::<F, S>));
    }

    /// Adds a page that is a box: a page of an index, or a scatter.
    pub(super) fn page<P: Versioned>(&mut self, page: &P) {
        unsafe fn retire<P: Versioned>(guard: &Guard<'_>, page: *mut ()) {
            // SAFETY: the caller of `Waste::retire` guarantees the contract.
            unsafe { guard.retire_box(page.cast::<P>()) }
        }
        self.0.push(Out::Page(core::ptr::from_ref(page).cast_mut().cast(), retire::<P>));
    }

    pub(super) fn key(&mut self, kept: u64) {
        self.0.push(Out::Key(kept));
    }

    /// Retires everything.
    ///
    /// # Safety
    /// Everything must have been removed from the structure, and only the caller may retire it. Keys must have the form
    /// `F`. Chunks must be from `memory`, which must be dropped after the guard's domain.
    pub(super) unsafe fn retire<F: ChunkForm>(self, guard: &Guard<'_>, memory: &Memory) {
        for out in self.0 {
            // SAFETY: the caller guarantees the contract; pages that are not chunks are boxes.
            unsafe {
                match out {
                    Out::Chunk(chunk, retire) => retire(guard, chunk, memory),
                    Out::Page(page, retire) => retire(guard, page),
                    Out::Key(kept) => retire_key::<F>(guard, kept),
                }
            }
        }
    }
}

/// Retires the box of a key, if it has one.
///
/// # Safety
/// The contract of [`Waste::retire`] must hold.
#[inline]
pub(super) unsafe fn retire_key<F: ChunkForm>(guard: &Guard<'_>, kept: u64) {
    unsafe fn discard<F: ChunkForm>(kept: *mut (), _: *mut ()) {
        // SAFETY: RCU calls this once, when no reader is left.
        unsafe { F::discard(kept.expose_provenance() as u64) }
    }
    if F::BOXED {
        // SAFETY: the caller guarantees the contract.
        unsafe {
            let bytes = F::kept_bytes(F::kept(kept));
            let kept = core::ptr::with_exposed_provenance_mut(kept as usize);
            guard.retire_sized(kept, bytes, core::ptr::null_mut(), discard::<F>);
        }
    }
}

/// # Safety
/// The contract of [`Waste::retire`] must hold. The chunk's entries and its upper bound must belong to another chunk
/// now.
unsafe fn retire_chunk<F: ChunkForm, S: Size>(guard: &Guard<'_>, chunk: *mut (), memory: &Memory) {
    unsafe fn free<F: ChunkForm, S: Size>(chunk: *mut (), arena: *mut ()) {
        // SAFETY: RCU calls this once, when no reader is left and before the arenas are dropped.
        unsafe { Chunk::<S>::free::<F>(NonNull::new_unchecked(chunk.cast()), &*arena.cast::<BlockArena>()) }
    }
    // SAFETY: the caller guarantees the contract.
    let arena = memory.arena(unsafe { (*chunk.cast::<Chunk<S>>()).home() });
    let arena = core::ptr::from_ref(arena).cast_mut().cast();
    // SAFETY: the caller guarantees the contract.
    unsafe { guard.retire_sized(chunk, size_of::<Chunk<S>>(), arena, free::<F, S>) }
}

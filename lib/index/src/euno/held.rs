//! Pages that a thread has locked by hand, to restructure them, and what it has taken out of them.

use super::chunk::{Chunk, Scatter};
use super::form::ChunkForm;
use super::memory::Memory;
use super::towers::Tower;
use super::tree::Inner;
use archipelago_platform::memory::BlockArena;
use archipelago_sync::backoff::Backoff;
use archipelago_sync::rcu::Guard;
use archipelago_sync::region::Page;
use archipelago_sync::version_lock::Version;
use core::ops::Deref;
use core::ptr::NonNull;

/// A page locked by this thread. Dropping it unlocks: with a new version if it was changed.
///
/// No thread waits for a chunk's lock while it holds one; inner nodes are locked from the root downwards, towers from the right
/// to the left, or tried. So there is no deadlock.
pub(super) struct Held<'g, P: Page> {
    page: &'g P,
    changed: bool,
}

impl<'g, P: Page> Held<'g, P> {
    /// Locks the page if it still has this version.
    pub(super) fn at(page: &'g P, version: Version) -> Option<Self> {
        page.lock().try_lock_at(version).then(|| Self { page, changed: false })
    }

    /// Locks the page, unless it gets another version first: waits for walks that could not commit and hold it, and for
    /// threads that hold it and in the end have not changed it.
    pub(super) fn wait_at(page: &'g P, version: Version) -> Option<Self> {
        let backoff = Backoff::new();
        while page.lock().read_unlocked() == Some(version) {
            let held = Self::at(page, version);
            if held.is_some() {
                return held;
            }
            backoff.wait();
        }
        None
    }

    /// Locks the page if its lock is free.
    pub(super) fn try_now(page: &'g P) -> Option<Self> {
        page.lock().try_lock().then(|| Self { page, changed: false })
    }

    /// Waits for the lock; `None` if the page leaves the structure. The caller holds no lock.
    pub(super) fn wait(page: &'g P) -> Option<Self> {
        page.lock().lock().then(|| Self { page, changed: false })
    }

    /// The page, for as long as the guard.
    pub(super) fn page(&self) -> &'g P {
        self.page
    }

    /// Notes that something was changed.
    pub(super) fn change(&mut self) {
        self.changed = true;
    }

    /// Unlocks a page that has left the structure.
    pub(super) fn gone(self) {
        self.page.lock().unlock_obsolete();
        core::mem::forget(self);
    }
}

impl<P: Page> Deref for Held<'_, P> {
    type Target = P;

    fn deref(&self) -> &P {
        self.page
    }
}

impl<P: Page> Drop for Held<'_, P> {
    fn drop(&mut self) {
        if self.changed { self.page.lock().unlock() } else { self.page.lock().unlock_unchanged() }
    }
}

/// What was taken out of a structure, to be retired when no lock is held: reclamation may run users' destructors, which may
/// use the structure.
#[derive(Default)]
pub struct Waste(Vec<Out>);

enum Out {
    Chunk(*mut Chunk),
    Inner(*mut Inner),
    Tower(*mut Tower),
    Scatter(*mut Scatter),
    Key(u64),
}

impl Waste {
    pub(super) fn chunk(&mut self, chunk: &Chunk) {
        self.0.push(Out::Chunk(core::ptr::from_ref(chunk).cast_mut()));
    }

    pub(super) fn inner(&mut self, inner: &Inner) {
        self.0.push(Out::Inner(core::ptr::from_ref(inner).cast_mut()));
    }

    pub(super) fn tower(&mut self, tower: &Tower) {
        self.0.push(Out::Tower(core::ptr::from_ref(tower).cast_mut()));
    }

    pub(super) fn scatter(&mut self, scatter: *mut Scatter) {
        if !scatter.is_null() {
            self.0.push(Out::Scatter(scatter));
        }
    }

    pub(super) fn key(&mut self, kept: u64) {
        self.0.push(Out::Key(kept));
    }

    /// Retires all of it.
    ///
    /// # Safety
    /// All of it is out of the structure, and the caller's alone to retire; keys are of form `F`. Chunks are of `memory`, which is
    /// dropped after the guard's domain.
    pub(super) unsafe fn retire<F: ChunkForm>(self, guard: &Guard<'_>, memory: &Memory) {
        for out in self.0 {
            // SAFETY: passed on; inner nodes, towers and scatters are boxes.
            unsafe {
                match out {
                    Out::Chunk(chunk) => retire_chunk::<F>(guard, chunk, memory),
                    Out::Inner(inner) => guard.retire_box(inner),
                    Out::Tower(tower) => guard.retire_box(tower),
                    Out::Scatter(scatter) => guard.retire_box(scatter),
                    Out::Key(kept) => retire_key::<F>(guard, kept),
                }
            }
        }
    }
}

/// Retires the box of a key, if it has one.
///
/// # Safety
/// As for [`Waste::retire`].
#[inline]
pub(super) unsafe fn retire_key<F: ChunkForm>(guard: &Guard<'_>, kept: u64) {
    unsafe fn discard<F: ChunkForm>(kept: *mut (), _: *mut ()) {
        // SAFETY: RCU calls this once, when no reader is left.
        unsafe { F::discard(kept.expose_provenance() as u64) }
    }
    if F::BOXED {
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = F::kept_bytes(F::kept(kept));
            let kept = core::ptr::with_exposed_provenance_mut(kept as usize);
            guard.retire_sized(kept, bytes, core::ptr::null_mut(), discard::<F>);
        }
    }
}

/// # Safety
/// As for [`Waste::retire`]. Its entries and its upper bound are another chunk's by now.
unsafe fn retire_chunk<F: ChunkForm>(guard: &Guard<'_>, chunk: *mut Chunk, memory: &Memory) {
    unsafe fn free<F: ChunkForm>(chunk: *mut (), arena: *mut ()) {
        // SAFETY: RCU calls this once, when no reader is left and before the arenas are dropped.
        unsafe { Chunk::free::<F>(NonNull::new_unchecked(chunk.cast()), &*arena.cast::<BlockArena>()) }
    }
    // SAFETY: the caller's promise.
    let arena = memory.arena(unsafe { (*chunk).home() });
    let arena = core::ptr::from_ref(arena).cast_mut().cast();
    // SAFETY: the caller's promise.
    unsafe { guard.retire_sized(chunk.cast(), size_of::<Chunk>(), arena, free::<F>) }
}

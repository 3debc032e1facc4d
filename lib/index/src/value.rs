//! Values: a value of any type is one 64-bit word in the index.
//!
//! Primitive numbers of at most 64 bits, `bool`, `char` and `()` are stored in the word itself. A value of any other
//! type is boxed, and the word is the address of the box. Whether a type is stored in the word or boxed is decided at
//! compile time: comparing `TypeId`s folds to a constant. Readers use the box by reference under an RCU guard. So a
//! thread that takes a word out of an index must retire the word ([`retire`]) instead of dropping its value.

use archipelago_platform::memory::taken_by;
use archipelago_platform::panics::{FirstPanic, quietly};
use archipelago_sync::rcu::Guard;
use core::alloc::Layout;
use core::any::TypeId;

/// Returns whether values of type `V` are stored in the word itself.
#[inline]
pub(crate) fn is_inline<V: 'static>() -> bool {
    macro_rules! any_of {
        ($($t:ty),*) => { false $(|| TypeId::of::<V>() == TypeId::of::<$t>())* };
    }
    any_of!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64, bool, char, ())
}

/// Returns the bytes that a value takes outside its word, including the allocator's overhead, without memory that the
/// value owns elsewhere.
#[inline]
pub(crate) fn boxed_bytes<V: 'static>() -> usize {
    if is_inline::<V>() { 0 } else { taken_by(Layout::new::<V>()) }
}

/// Turns a value into its word. The word owns the value.
#[inline]
pub(crate) fn into_word<V: 'static>(value: V) -> u64 {
    if is_inline::<V>() {
        let mut word = 0u64;
        // SAFETY: an inline type has at most 8 bytes, none of them padding, so the word is fully initialised.
        unsafe { core::ptr::write((&raw mut word).cast::<V>(), value) };
        word
    } else {
        Box::into_raw(Box::new(value)).expose_provenance() as u64
    }
}

/// Calls `f` with a reference to the value of `word`.
///
/// # Safety
/// `word` must have been made by `into_word::<V>`. If the value is boxed, the box must not be reclaimed yet: the caller
/// owns the word, or holds the guard under which the word was read.
#[inline]
pub(crate) unsafe fn with_ref<V: 'static, R>(word: u64, f: impl FnOnce(&V) -> R) -> R {
    if is_inline::<V>() {
        // SAFETY: `into_word` wrote a `V` at the start of this word.
        f(unsafe { &*(&raw const word).cast::<V>() })
    } else {
        // SAFETY: the box is alive by this function's contract.
        f(unsafe { &*core::ptr::with_exposed_provenance::<V>(word as usize) })
    }
}

/// Returns a reference to the value of `word`, which may be stored in the word itself.
///
/// # Safety
/// The contract of [`with_ref`] must hold as long as the reference is used.
#[inline]
pub(crate) unsafe fn as_ref<V: 'static>(word: &u64) -> &V {
    if is_inline::<V>() {
        // SAFETY: `into_word` wrote a `V` at the start of this word.
        unsafe { &*core::ptr::from_ref(word).cast::<V>() }
    } else {
        // SAFETY: the box is alive by this function's contract.
        unsafe { &*core::ptr::with_exposed_provenance::<V>(*word as usize) }
    }
}

/// Returns a clone of the value of `word`.
///
/// # Safety
/// The contract of [`with_ref`] must hold.
#[inline]
pub(crate) unsafe fn clone_of<V: Clone + 'static>(word: u64) -> V {
    // SAFETY: the caller guarantees the same contract.
    unsafe { with_ref(word, V::clone) }
}

/// Drops several values. If a drop panics, the remaining values are still dropped. The first panic continues when the
/// `DropAll` is dropped.
#[derive(Default)]
pub(crate) struct DropAll(FirstPanic);

impl DropAll {
    /// Drops the value of `word`.
    ///
    /// # Safety
    /// The contract of [`drop_word`] must hold.
    #[inline]
    pub(crate) unsafe fn drop_word<V: 'static>(&mut self, word: u64) {
        if !is_inline::<V>() {
            // SAFETY: the caller guarantees the same contract.
            self.0.call(|| unsafe { drop_word::<V>(word) });
        }
    }
}

impl Drop for DropAll {
    fn drop(&mut self) {
        core::mem::take(&mut self.0).resume();
    }
}

/// Drops the value of `word`.
///
/// # Safety
/// The caller must own the word, and no reader may still use it.
#[inline]
pub(crate) unsafe fn drop_word<V: 'static>(word: u64) {
    if !is_inline::<V>() {
        // SAFETY: the word came from `Box::into_raw` and is owned by the caller.
        drop(unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<V>(word as usize)) });
    }
}

/// Turns a word back into its value.
///
/// # Safety
/// The caller must own the word, and no reader may still use it.
#[inline]
pub(crate) unsafe fn from_word<V: 'static>(word: u64) -> V {
    if is_inline::<V>() {
        // SAFETY: `into_word` wrote a `V` at the start of this word; inline types are `Copy`.
        unsafe { core::ptr::read((&raw const word).cast::<V>()) }
    } else {
        // SAFETY: the word came from `Box::into_raw` and is owned by the caller.
        *unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<V>(word as usize)) }
    }
}

/// Retires a value that was taken out of an index: it is dropped when no reader can still use it.
///
/// The drop may run in any later operation of any thread, or in a background thread. No caller could handle a panic of
/// the drop in such an operation. So the panic hook reports such a panic as usual, and the panic is not propagated.
///
/// # Safety
/// The caller must own the word, and readers that enter from now on must not find it.
#[inline]
pub(crate) unsafe fn retire<V: 'static>(guard: &Guard<'_>, word: u64) {
    unsafe fn reclaim<V: 'static>(word: *mut (), _: *mut ()) {
        // SAFETY: RCU calls this once, when no reader is left.
        quietly(|| unsafe { drop_word::<V>(word.expose_provenance() as u64) });
    }
    if !is_inline::<V>() {
        let word = core::ptr::with_exposed_provenance_mut(word as usize);
        // SAFETY: the caller guarantees the same contract.
        unsafe { guard.retire_sized(word, boxed_bytes::<V>(), core::ptr::null_mut(), reclaim::<V>) }
    }
}

//! What a change under locks has overwritten, to be put back if it does not come to its end.

use core::mem::MaybeUninit;
use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::{Link, Word};

/// Entries without an allocation: of nearly all changes.
const FEW: usize = 8;

/// A place, and what was there.
#[derive(Clone, Copy)]
enum Old {
    Word(*const AtomicU64, u64),
    Link(*const AtomicPtr<()>, *mut ()),
}

/// Old values, the newest last. The first [`FEW`] are in `few`, up to `len`.
pub(super) struct Undo {
    len: usize,
    few: [MaybeUninit<Old>; FEW],
    more: Vec<Old>,
}

impl Undo {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self { len: 0, few: [MaybeUninit::uninit(); FEW], more: Vec::new() }
    }

    /// Notes what a word is.
    #[inline(always)]
    pub(super) fn word(&mut self, Word(word): &Word) {
        self.note(Old::Word(word, word.load(Ordering::Relaxed)));
    }

    /// Notes where a link leads.
    #[inline(always)]
    pub(super) fn link<P>(&mut self, Link(link): &Link<P>) {
        self.note(Old::Link(ptr::from_ref(link).cast(), link.load(Ordering::Relaxed).cast()));
    }

    #[inline(always)]
    fn note(&mut self, old: Old) {
        match self.few.get_mut(self.len) {
            Some(free) => {
                free.write(old);
                self.len += 1;
            }
            None => self.more.push(old),
        }
    }

    /// Puts everything back, the newest first; whether it was anything.
    ///
    /// # Safety
    /// All that was noted still is there, as a word or link, and no other thread changes it meanwhile.
    #[cold]
    pub(super) unsafe fn put_back(&mut self) -> bool {
        // SAFETY: written, up to `len`.
        let few = self.few[..self.len].iter().map(|old| unsafe { old.assume_init() });
        let any = self.len > 0;
        for old in few.chain(self.more.drain(..)).rev() {
            // SAFETY: the caller's promise. An `AtomicPtr` is laid out alike for all types of some size.
            unsafe {
                match old {
                    Old::Word(word, value) => (*word).store(value, Ordering::Relaxed),
                    // Release: as the store that it takes back, for RCU readers.
                    Old::Link(link, to) => (*link).store(to, Ordering::Release),
                }
            }
        }
        self.len = 0;
        any
    }
}

//! The undo log of a change under locks, for changes that fail or panic.

use core::mem::MaybeUninit;
use core::ptr;

use archipelago_platform::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::{Link, Var};

/// Entries without an allocation, which suffice for nearly all changes.
const FEW: usize = 8;

/// The address of a word or link (a *place*), and its old value.
#[derive(Clone, Copy)]
enum Old {
    Var(*const AtomicU64, u64),
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

    /// Notes a word's value.
    #[inline(always)]
    pub(super) fn word(&mut self, Var(word): &Var) {
        self.note(Old::Var(word, word.load(Ordering::Relaxed)));
    }

    /// Notes a link's target.
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

    /// Restores all old values, the newest first. Returns whether the log had any.
    ///
    /// # Safety
    /// All noted places still exist, as words or links, and no other thread changes them meanwhile.
    #[cold]
    pub(super) unsafe fn put_back(&mut self) -> bool {
        // SAFETY: written, up to `len`.
        let few = self.few[..self.len].iter().map(|old| unsafe { old.assume_init() });
        let any = self.len > 0;
        for old in few.chain(self.more.drain(..)).rev() {
            // SAFETY: the caller's promise. An `AtomicPtr` is laid out alike for all types of some size.
            unsafe {
                match old {
                    Old::Var(word, value) => (*word).store(value, Ordering::Relaxed),
                    // Release, as the store that it undoes, for RCU readers.
                    Old::Link(link, to) => (*link).store(to, Ordering::Release),
                }
            }
        }
        self.len = 0;
        any
    }
}

//! The last moment of a thread at which code of ours runs, for giving the thread's slot back.
//!
//! On Unix that is the destructor of a key made with `pthread_key_create`: the destructors of Rust's thread-locals come
//! before (glibc, macOS) or among the keys' (musl, Miri). Destructors of keys come in rounds, four by POSIX's least; one
//! that sets its key again is called again in the next. This one lets two rounds pass and acts in the third; what takes
//! a slot after that may still give it back in the fourth.
//!
//! The key's value tells the whole state, so that nothing depends on thread-locals that may be gone by then (macOS frees
//! their memory in a key's destructor of its own): the rounds to go in the two low bits, and above them the index plus
//! one.

#[cfg(unix)]
mod imp {
    use core::ffi::c_void;
    use core::ptr;
    use std::sync::OnceLock;

    const ROUND_BITS: u32 = 2;
    const ROUNDS: usize = 3;

    struct Key {
        key: libc::pthread_key_t,
        give_back: fn(usize),
    }

    /// `None` inside: the process has used up its keys.
    static KEY: OnceLock<Option<Key>> = OnceLock::new();

    std::thread_local! {
        /// The rounds to wait for; fewer for a thread that is ending already.
        static ROUNDS_LEFT: core::cell::Cell<usize> = const { core::cell::Cell::new(ROUNDS) };
    }

    impl Key {
        fn make(give_back: fn(usize)) -> Option<Self> {
            let mut key = 0;
            // SAFETY: the destructor is a function of this program, fit for the values that `set` stores.
            let made = unsafe { libc::pthread_key_create(&raw mut key, Some(round)) } == 0;
            made.then_some(Self { key, give_back })
        }

        fn set(&self, index: usize, rounds: usize) -> bool {
            let value = ptr::without_provenance::<c_void>((index + 1) << ROUND_BITS | rounds);
            // SAFETY: the key was made and is never deleted; the value is a number, not an address.
            unsafe { libc::pthread_setspecific(self.key, value) == 0 }
        }
    }

    extern "C" fn round(value: *mut c_void) {
        let Some(Some(key)) = KEY.get() else { return };
        let (index, rounds) = ((value.addr() >> ROUND_BITS) - 1, (value.addr() & ROUNDS) - 1);
        ROUNDS_LEFT.with(|left| left.set(rounds.max(1)));
        if rounds == 0 || !key.set(index, rounds) {
            (key.give_back)(index);
        }
    }

    pub(super) fn keep(index: usize, give_back: fn(usize)) -> bool {
        let key = KEY.get_or_init(|| Key::make(give_back));
        key.as_ref().is_some_and(|key| key.set(index, ROUNDS_LEFT.with(core::cell::Cell::get)))
    }

    pub(super) fn kept() -> Option<usize> {
        let key = KEY.get()?.as_ref()?;
        // SAFETY: the key was made and is never deleted.
        let value = unsafe { libc::pthread_getspecific(key.key) }.addr();
        (value >> ROUND_BITS).checked_sub(1)
    }
}

#[cfg(not(unix))]
mod imp {
    pub(super) fn keep(_: usize, _: fn(usize)) -> bool {
        false
    }

    pub(super) fn kept() -> Option<usize> {
        None
    }
}

/// Has `give_back(index)` called at the end of the calling thread; always the same function. False if it will not be.
pub(super) fn keep(index: usize, give_back: fn(usize)) -> bool {
    imp::keep(index, give_back)
}

/// The index that the calling thread keeps.
pub(super) fn kept() -> Option<usize> {
    imp::kept()
}

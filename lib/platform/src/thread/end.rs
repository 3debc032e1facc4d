//! The last moment of a thread at which code of this crate runs. It is used to give back the thread's slot.
//!
//! On Unix this moment is in the destructor of a key made with `pthread_key_create`. The destructors of Rust's
//! thread-locals run before those of keys (glibc, macOS) or among them (musl, Miri). Destructors of keys run in rounds,
//! at least four by POSIX. A destructor that sets its key again is called again in the next round. The destructor here
//! lets two rounds pass and acts in the third. If a slot is taken after that, it may still be given back in the fourth.
//!
//! The key's value contains the whole state, because thread-locals may no longer exist at that time (macOS frees their
//! memory in a key's destructor of its own). The two low bits contain the number of rounds left, and the higher bits
//! the slot's index plus one.

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

    /// `None` inside: the process has no key left.
    static KEY: OnceLock<Option<Key>> = OnceLock::new();

    std::thread_local! {
        /// The number of rounds to wait for; smaller for a thread that is already ending.
        static ROUNDS_LEFT: core::cell::Cell<usize> = const { core::cell::Cell::new(ROUNDS) };
    }

    impl Key {
        fn make(give_back: fn(usize)) -> Option<Self> {
            let mut key = 0;
            // SAFETY: the destructor is a function of this program that accepts all values that `set` stores.
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

/// Registers `give_back(index)` to be called at the end of the calling thread. All calls pass the same function.
/// Returns false if it will not be called.
pub(super) fn keep(index: usize, give_back: fn(usize)) -> bool {
    imp::keep(index, give_back)
}

/// Returns the index that the calling thread has registered.
pub(super) fn kept() -> Option<usize> {
    imp::kept()
}

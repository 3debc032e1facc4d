//! Code that runs as late in a thread's end as a library's code can: when everything of Rust's is gone, the thread's slot
//! too.
//!
//! On Unix that is the last round of destructors of a C library's keys, which come after those of thread-locals.

/// Has `work` called at the very end of the calling thread, after what gives back the thread's slot. Says whether there is
/// such a moment: not where there are no keys, nor in the model or the simulated world. Call it after the thread's first
/// use of its slot.
pub fn at_the_very_end(work: Box<dyn FnOnce()>) -> bool {
    imp::at_the_very_end(work)
}

#[cfg(all(target_os = "linux", not(any(miri, loom, archipelago_sim))))]
mod imp {
    use archipelago_platform::sync::OnceLock;
    use core::ffi::c_void;

    /// The rounds of destructors that there are.
    const ROUNDS: usize = 4;

    /// What the key's value points to.
    struct Last {
        round: usize,
        work: Box<dyn FnOnce()>,
    }

    unsafe extern "C" {
        fn pthread_key_create(key: *mut u32, destructor: extern "C" fn(*mut c_void)) -> i32;
        fn pthread_setspecific(key: u32, value: *const c_void) -> i32;
    }

    static KEY: OnceLock<u32> = OnceLock::new();

    fn set(last: Box<Last>) {
        let key = *KEY.get_or_init(|| {
            let mut key = 0;
            // SAFETY: as POSIX has it; the destructor fits the values set below.
            assert_eq!(unsafe { pthread_key_create(&raw mut key, round) }, 0, "the process has a key left");
            key
        });
        // SAFETY: the key was made and is never deleted.
        assert_eq!(unsafe { pthread_setspecific(key, Box::into_raw(last).cast()) }, 0, "there is memory");
    }

    extern "C" fn round(last: *mut c_void) {
        // SAFETY: `set` made it from a box, and the key no longer has it.
        let mut last = unsafe { Box::from_raw(last.cast::<Last>()) };
        last.round += 1;
        if last.round < ROUNDS { set(last) } else { (last.work)() }
    }

    pub(super) fn at_the_very_end(work: Box<dyn FnOnce()>) -> bool {
        set(Box::new(Last { round: 0, work }));
        true
    }
}

#[cfg(not(all(target_os = "linux", not(any(miri, loom, archipelago_sim)))))]
mod imp {
    pub(super) fn at_the_very_end(_: Box<dyn FnOnce()>) -> bool {
        false
    }
}

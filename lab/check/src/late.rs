//! Runs code as late in a thread's end as a library's code can run: after the destructors of all Rust thread-locals,
//! and after the thread's slot was released. (A slot is a thread's number in the platform crate.)
//!
//! On Linux, this is the last round of destructors of the C library's thread-specific keys. The destructors of Rust's
//! thread-locals run before the first round (glibc), or among the rounds (musl).

/// Arranges that `work` is called at the very end of the calling thread, after the thread's slot is released. Returns
/// `true` on Linux. On other systems, under Miri, in loom's model and in the virtual machine, `work` is not called, and
/// the function returns `false`. To be called after the thread's first use of its slot.
pub fn at_the_very_end(work: Box<dyn FnOnce()>) -> bool {
    imp::at_the_very_end(work)
}

#[cfg(all(target_os = "linux", not(any(miri, loom, archipelago_sim))))]
mod imp {
    use archipelago_platform::sync::OnceLock;
    use core::ffi::c_void;

    /// The number of rounds of destructors.
    const ROUNDS: usize = 4;

    /// The data to which the key's value points.
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
            // SAFETY: the call follows POSIX, and the destructor fits the values that are set below.
            assert_eq!(unsafe { pthread_key_create(&raw mut key, round) }, 0, "the process has a key left");
            key
        });
        // SAFETY: the key was made and is never deleted.
        assert_eq!(unsafe { pthread_setspecific(key, Box::into_raw(last).cast()) }, 0, "there is memory");
    }

    extern "C" fn round(last: *mut c_void) {
        // SAFETY: `set` made the value from a box, and the key does not have it any more.
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

//! Child processes by `fork`: of all threads they have the one that forked.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child that has not ended by then hangs.
const SECONDS: u32 = 30;

/// Runs `child` in a child process and says how that ended: 0 if it returned, 1 if it panicked, less if it was killed, as it is
/// after half a minute.
///
/// # Panics
/// If there is no child to be had.
pub fn in_child(child: impl FnOnce()) -> i32 {
    // SAFETY: the child has this thread only, which ends it by `_exit`; what it runs in between is what is tested.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: a signal that ends the process if it hangs.
        unsafe { libc::alarm(SECONDS) };
        let result = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: nothing else runs here.
        unsafe { libc::_exit(i32::from(result.is_err())) }
    }
    let mut status = 0;
    // SAFETY: `status` is ours to write.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_child_ends_is_told() {
        assert_eq!(in_child(|| ()), 0);
        assert_eq!(in_child(|| std::panic::resume_unwind(Box::new(()))), 1);
        // SAFETY: ends the child.
        assert_eq!(in_child(|| unsafe { _ = libc::raise(libc::SIGKILL) }), -libc::SIGKILL);
    }
}

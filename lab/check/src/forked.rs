//! Child processes made by `fork`. Of the parent's threads, a child has only the one that forked.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The time limit of a child in seconds. A child that has not ended by then is considered hanging.
const SECONDS: u32 = 30;

/// Runs `child` in a child process. Returns how the process ended: 0 if `child` returned, 1 if it panicked, and the
/// negative number of the signal if a signal killed the process. A child is killed after half a minute.
///
/// # Panics
/// If no child process can be made.
pub fn in_child(child: impl FnOnce()) -> i32 {
    // SAFETY: the child has this thread only, which ends the child by `_exit`. The code in between is the code under
    // test.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: the alarm's signal ends the process if it hangs.
        unsafe { libc::alarm(SECONDS) };
        let result = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: no other thread runs in this process.
        unsafe { libc::_exit(i32::from(result.is_err())) }
    }
    let mut status = 0;
    // SAFETY: `status` is a local variable of this function.
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
        // SAFETY: the signal ends the child only.
        assert_eq!(in_child(|| unsafe { _ = libc::raise(libc::SIGKILL) }), -libc::SIGKILL);
    }
}

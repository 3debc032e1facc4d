//! Branches of a run: processes that continue it from the end of its set-up, each on another machine.
//!
//! Setting up takes no virtual time, so its result does not depend on the machine's times. But on the host, loading
//! millions of keys takes longer than all that is measured. So a sweep sets up once, and forks the process for each
//! variation, and for each workload that begins with the same set-up. The process that sets up measures the first
//! workload on the unvaried machine itself.
//!
//! The child of a fork contains only the forking thread. A lock that another thread holds at that moment would stay
//! held in the child. So only a process with one thread forks, and only on Linux, where a process can count its threads.
//! Elsewhere [`can_branch`] returns false, and each variation sets up itself.

use core::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Tells a process of a test that it runs no other test.
pub const ALONE: &str = "ARCHIPELAGO_TEST_ALONE";

/// The branches of one run, whose results are of type `R`.
pub struct Branches<R> {
    /// The number of branches, with this process.
    count: usize,
    /// The number of this process's branch. The process that sets up has 0.
    at: Cell<usize>,
    /// How long this process, or its parent before the fork, has waited for other branches.
    waited: Cell<Duration>,
    child: RefCell<Option<fork::Child>>,
    runs: RefCell<Vec<Result<R, Failure>>>,
}

impl<R: Serialize + DeserializeOwned> Branches<R> {
    /// Makes the branches of a run, at least one.
    pub fn new(count: usize) -> Self {
        assert!(count == 1 || count > 1 && can_branch(), "this process cannot branch");
        let (at, waited, child) = Default::default();
        Branches { count, at, waited, child, runs: RefCell::default() }
    }

    /// Returns the number of this process's branch.
    pub fn at(&self) -> usize {
        self.at.get()
    }

    /// Returns how long this process was not at work, but waited for other branches.
    pub fn waited(&self) -> Duration {
        self.waited.get()
    }

    /// Runs the branches, one after the other. Returns in each of them, and at last in this process. Called at the end
    /// of the set-up.
    pub fn split(&self) {
        let begun = Instant::now();
        for at in 1..self.count {
            match fork::fork() {
                Ok(fork::Side::Child(child)) => {
                    self.at.set(at);
                    self.waited.set(begun.elapsed());
                    self.child.replace(Some(child));
                    return;
                }
                Ok(fork::Side::Parent(running)) => self.runs.borrow_mut().push(running.wait()),
                Err(error) => {
                    let failure = Failure::new(format!("cannot fork a process for a variation: {error}"));
                    self.runs.borrow_mut().push(Err(failure));
                }
            }
        }
        self.waited.set(begun.elapsed());
    }

    /// Returns this process's run and those of the branches, in their order. Does not return in a branch, which ends.
    pub fn join(self, run: Result<R, Failure>) -> Vec<Result<R, Failure>> {
        if let Some(child) = self.child.take() {
            child.end(&run);
        }
        core::iter::once(run).chain(self.runs.into_inner()).collect()
    }
}

/// Returns whether this process can have branches.
pub fn can_branch() -> bool {
    fork::is_alone()
}

#[cfg(target_os = "linux")]
mod fork {
    use std::io::{self, PipeReader, PipeWriter, Read, Write};
    use std::os::fd::AsRawFd;

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use crate::failure::Failure;
    use crate::interrupt;

    /// How often a parent that waits looks for a signal, in milliseconds.
    const LOOK_MS: i32 = 100;

    /// In which process a fork has returned.
    pub enum Side {
        Child(Child),
        Parent(Running),
    }

    /// A branch, as its parent sees it.
    pub struct Running {
        from: PipeReader,
        child: libc::pid_t,
    }

    /// The right of a branch to send its run to its parent. A branch that drops this value has failed, and ends at once:
    /// it must not continue as if it were the parent.
    pub struct Child(PipeWriter);

    /// Returns whether this process has one thread. The test harness runs a single test on a second thread, for which the
    /// first thread waits; [`ALONE`](super::ALONE) tells that there is a single test.
    pub fn is_alone() -> bool {
        let waiting = cfg!(test) && std::env::var_os(super::ALONE).is_some();
        std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1 + usize::from(waiting))
    }

    /// Forks the process.
    pub fn fork() -> io::Result<Side> {
        let (from, to) = io::pipe()?;
        // SAFETY: the process has one thread, so that no lock of another thread is held in the child.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(Side::Child(Child(to))),
            child => Ok(Side::Parent(Running { from, child })),
        }
    }

    impl Running {
        /// Waits for the branch's end. Returns what it has sent.
        pub fn wait<R: DeserializeOwned>(self) -> Result<R, Failure> {
            let child = self.child;
            let sent = self.receive();
            // SAFETY: the child is this process's, and is waited for once. How it ended is told by what it has sent.
            unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
            let failed = |error| Failure::new(format!("cannot read from the process of a variation: {error}"));
            let run = serde_json::from_slice(&sent.map_err(failed)?)
                .unwrap_or_else(|_| Err("the process of a variation ended before its run".to_owned()));
            run.map_err(Failure::new)
        }

        /// Returns all that the branch sends. Passes a signal on, which the branch may not have got.
        fn receive(mut self) -> io::Result<Vec<u8>> {
            let mut told = false;
            let mut ready = libc::pollfd { fd: self.from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: there is one entry, which is this function's.
            while unsafe { libc::poll(&raw mut ready, 1, LOOK_MS) } <= 0 {
                if interrupt::requested() && !core::mem::replace(&mut told, true) {
                    // SAFETY: the child is this process's, and has not been waited for.
                    unsafe { libc::kill(self.child, libc::SIGTERM) };
                }
            }
            let mut sent = Vec::new();
            self.from.read_to_end(&mut sent)?;
            Ok(sent)
        }
    }

    impl Child {
        /// Sends the run, and ends the process.
        pub fn end<R: Serialize>(mut self, run: &Result<R, Failure>) -> ! {
            let text = serde_json::to_vec(&run.as_ref().map_err(ToString::to_string)).expect("a run can be written");
            let code = i32::from(self.0.write_all(&text).is_err());
            end(code)
        }
    }

    impl Drop for Child {
        fn drop(&mut self) {
            end(1)
        }
    }

    /// Ends the process without what the parent does at its own end.
    fn end(code: i32) -> ! {
        // SAFETY: `_exit` ends the process.
        unsafe { libc::_exit(code) }
    }
}

#[cfg(not(target_os = "linux"))]
mod fork {
    use std::io;

    use crate::failure::Failure;

    /// In which process a fork has returned.
    pub enum Side {
        Child(Child),
        Parent(Running),
    }

    /// The right of a branch to send its run.
    pub enum Child {}

    /// A branch, as its parent sees it.
    pub enum Running {}

    impl Running {
        /// Is never called.
        pub fn wait<R>(self) -> Result<R, Failure> {
            match self {}
        }
    }

    /// Returns whether this process may fork.
    pub fn is_alone() -> bool {
        false
    }

    /// Fails.
    pub fn fork() -> io::Result<Side> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Child {
        /// Is never called.
        pub fn end<R>(self, _: &Result<R, Failure>) -> ! {
            match self {}
        }
    }
}

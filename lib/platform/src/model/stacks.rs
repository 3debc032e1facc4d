//! Keeps the stacks of loom's threads.
//!
//! For each thread of each schedule loom maps a stack, protects a page of it, and unmaps it. The operating system's part
//! of that is two fifths of the time of the models of locks. loom has no option against it. So this module defines
//! `mmap` and `munmap` for the whole program: a stack that was unmapped is the next one that is mapped. All other calls
//! do what the system's functions do.

use core::ffi::c_void;
use core::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, c_long, off_t, size_t};

/// A mapped stack: its address, and its bytes with the protected page.
type Stack = (usize, size_t);

/// The stacks of loom's threads.
struct Stacks {
    all: Vec<Stack>,
    /// Those that no thread uses.
    free: Vec<Stack>,
}

impl Stacks {
    /// Returns the address of a kept stack, or of a new one.
    fn map(&mut self, len: size_t, new: impl FnOnce() -> usize) -> usize {
        if let Some(kept) = self.free.iter().rposition(|stack| stack.1 == len) {
            return self.free.swap_remove(kept).0;
        }
        let stack = new();
        if stack != libc::MAP_FAILED.addr() {
            self.all.push((stack, len));
        }
        stack
    }

    /// Keeps a stack, if it is one.
    fn keep(&mut self, stack: Stack) -> bool {
        let is_stack = self.all.contains(&stack);
        if is_stack {
            self.free.push(stack);
        }
        is_stack
    }
}

/// Returns the stacks. The lock is the standard library's, which loom does not see.
fn stacks() -> MutexGuard<'static, Stacks> {
    static STACKS: Mutex<Stacks> = Mutex::new(Stacks { all: Vec::new(), free: Vec::new() });
    STACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of stacks that no thread uses.
pub fn kept() -> usize {
    stacks().free.len()
}

/// Does what mmap(2) does, with one exception: a stack of loom's that was used before has its old content, and still
/// has its protected page, which loom protects again.
///
/// # Safety
/// As of the system's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let [access, kind, file] = [prot, flags, fd].map(c_long::from);
    // SAFETY: the caller's promise.
    let map = || unsafe { libc::syscall(libc::SYS_mmap, addr, len, access, kind, file, offset) as usize };
    let is_stack = addr.is_null() && flags & libc::MAP_STACK != 0;
    let mapped = if is_stack { stacks().map(len, map) } else { map() };
    ptr::with_exposed_provenance_mut(mapped)
}

/// Does what munmap(2) does, with one exception: keeps stacks of loom's.
///
/// # Safety
/// As of the system's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(addr: *mut c_void, len: size_t) -> c_int {
    if stacks().keep((addr.addr(), len)) {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_munmap, addr, len) as c_int }
}

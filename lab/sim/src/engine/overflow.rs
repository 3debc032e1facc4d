//! Reports stack overflows of simulated threads, on Linux.
//!
//! Below each stack is a page without access rights. `std` recognizes an overflow by the guard pages of its own
//! threads, but does not know the guard pages of simulated threads. The handler runs on the signal stack that `std`
//! gives every OS thread that it starts. Without a signal stack the kernel ends the process, as it would without a
//! handler.

use core::fmt::Write;
use std::sync::OnceLock;

use super::switch;

/// The previous handler, to which all other faults are passed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler.
pub(crate) fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: the structures are plain structures of the C library, filled as it requires; the handler is a
        // function and so always valid.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let mut before: libc::sigaction = core::mem::zeroed();
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, &mut before), 0, "a signal handler can be set");
            before
        }
    });
}

unsafe extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes `info`; its `si_addr` is the address of a page fault.
    let addr = unsafe { (*info).si_addr() } as usize;
    if let Some((thread, bytes)) = overflowed(addr) {
        let mut said = Line { bytes: [0; 160], len: 0 };
        // A text that is too long is cut off.
        let _ = writeln!(
            said,
            "simulated thread {thread} has overflowed its stack of {bytes} bytes (`Config::stack_bytes`)"
        );
        // SAFETY: a signal handler may call both functions; the text belongs to the handler.
        unsafe {
            libc::write(2, said.bytes.as_ptr().cast(), said.len);
            libc::abort();
        }
    }
    if let Some(before) = BEFORE.get() {
        // The previous handler is reinstalled. The instruction is then executed again, and its fault reaches that
        // handler.
        // SAFETY: the action was the process's own before.
        unsafe { libc::sigaction(signal, before, core::ptr::null_mut()) };
    }
}

/// Returns the running thread and the size of its stack, if `addr` is in the guard page of the stack.
fn overflowed(addr: usize) -> Option<(usize, usize)> {
    let engine = switch::engine()?;
    // SAFETY: the engine lives while a thread of it runs. After an overflow the process ends, so the thread's
    // interrupted operation on the engine does not continue. After another fault, this function has only read.
    unsafe {
        let thread = (*engine).me();
        // A large frame also accesses this page, since frames are probed page by page.
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        (addr.wrapping_sub(thread.stack_limit) < page).then_some((thread.slot, (*engine).config.stack_bytes))
    }
}

/// A text in fixed memory, since a signal handler must not allocate.
struct Line {
    bytes: [u8; 160],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = &mut self.bytes[self.len..];
        let part = text.len().min(room.len());
        room[..part].copy_from_slice(&text.as_bytes()[..part]);
        self.len += part;
        Ok(())
    }
}

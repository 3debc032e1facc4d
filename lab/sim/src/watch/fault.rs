//! Closing a run's arena, and making the accesses that fault one at a time: Linux on x86-64.
//!
//! The arena has no access rights while a measured thread runs. An access faults; the handler notes it, opens its page
//! and has the processor trap after the next instruction; that trap closes the page again. Both signals are synchronous,
//! and the threads of a run are coroutines on one OS thread, so the state is that thread's own.
//!
//! *Stopping before a plain access.* A schedule that looks for bugs may give another thread a turn there. The handler of the
//! fault cannot do so: it runs on a stack that all of them share. Instead it redirects the thread to an invalid
//! instruction. The handler of that trap runs on the thread's own stack, with all of the thread's registers saved there
//! by the kernel and no signal blocked: it yields like any function, and returns to the access, which faults once more
//! and is executed.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::ptr::null_mut;
use std::sync::OnceLock;

use super::Watch;
use crate::arena;
use crate::engine::switch::{self, Outside};

pub(crate) const AVAILABLE: bool = true;

const PAGE: usize = 4096;
/// The trap flag of the processor's flags: a trap after the next instruction.
const SINGLE_STEP: i64 = 1 << 8;
/// In a page fault's error code: the access was a write.
const WRITE: i64 = 1 << 1;
/// Room for the handlers, which format nothing but may take a stack trace.
const HANDLER_STACK: usize = 1 << 20;

/// What is closed now.
struct Closed {
    /// Null, if nothing is to be noted.
    watch: *mut Watch,
    span: Range<usize>,
}

thread_local! {
    static CLOSED: RefCell<Option<Closed>> = const { RefCell::new(None) };
    /// Pages opened for the instruction that is being made.
    static OPEN: Cell<[usize; 4]> = const { Cell::new([0; 4]) };
    /// Where a thread that is being stopped goes on.
    static GO_BACK: Cell<usize> = const { Cell::new(0) };
}

core::arch::global_asm!(".globl archipelago_sim_no_instruction", "archipelago_sim_no_instruction:", "ud2");

unsafe extern "C" {
    /// An address to send a thread to; no function.
    fn archipelago_sim_no_instruction();
}

/// The handlers that were there before ours, which get what is not ours.
static BEFORE: OnceLock<[libc::sigaction; 3]> = OnceLock::new();

fn protect(at: usize, bytes: usize, rights: i32) {
    // SAFETY: a mapping of the caller's, whose rights change and nothing else.
    let done = unsafe { libc::mprotect(at as *mut libc::c_void, bytes, rights) };
    assert_eq!(done, 0, "the arena's access rights can be changed");
}

/// Closes `span` to this OS thread until [`open`]: its accesses go to `watch`. Nothing if it is closed.
pub(crate) fn close(watch: *mut Watch, span: Range<usize>) {
    if CLOSED.with_borrow(Option::is_some) {
        return;
    }
    install();
    protect(span.start, span.len(), libc::PROT_NONE);
    CLOSED.set(Some(Closed { watch, span }));
}

/// Opens what is closed, if anything is.
pub(crate) fn open() {
    if let Some(closed) = CLOSED.take() {
        protect(closed.span.start, closed.span.len(), libc::PROT_READ | libc::PROT_WRITE);
    }
}

fn install() {
    BEFORE.get_or_init(|| {
        [
            (libc::SIGSEGV, on_fault as *const () as usize, libc::SA_ONSTACK),
            (libc::SIGTRAP, on_trap as *const () as usize, libc::SA_ONSTACK),
            (libc::SIGILL, on_stop as *const () as usize, libc::SA_NODEFER),
        ]
        .map(|(signal, handler, flags)| {
            // SAFETY: plain structures of the C library, filled as it wants them; the handlers live for ever.
            unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                action.sa_sigaction = handler;
                action.sa_flags = libc::SA_SIGINFO | flags;
                let mut before: libc::sigaction = core::mem::zeroed();
                assert_eq!(libc::sigaction(signal, &action, &mut before), 0, "a signal handler can be set");
                before
            }
        })
    });
    thread_local! {
        static STACK: Cell<bool> = const { Cell::new(false) };
    }
    if !STACK.replace(true) {
        let bytes = vec![0u8; HANDLER_STACK].leak();
        let stack = libc::stack_t { ss_sp: bytes.as_mut_ptr().cast(), ss_flags: 0, ss_size: HANDLER_STACK };
        // SAFETY: leaked memory, this OS thread's alone.
        unsafe { libc::sigaltstack(&stack, null_mut()) };
    }
}

/// Gives a signal that is not ours back to the handler before: the instruction is made again, and faults again.
fn pass_on(signal: i32, which: usize) {
    if let Some(before) = BEFORE.get() {
        // SAFETY: the action was the process's own.
        unsafe { libc::sigaction(signal, &before[which], null_mut()) };
    }
}

unsafe extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes both; `si_addr` is a page fault's address.
    let (addr, context) = unsafe { ((*info).si_addr() as usize, &mut *context.cast::<libc::ucontext_t>()) };
    let ours = CLOSED
        .with_borrow(|closed| closed.as_ref().filter(|closed| closed.span.contains(&addr)).map(|closed| closed.watch));
    let Some(watch) = ours else { return pass_on(signal, 0) };
    let registers = &mut context.uc_mcontext.gregs;
    // The engine's own accesses and the allocator's are not the program's.
    if arena::routed()
        && let Some(engine) = switch::engine()
    {
        let (code, writes) =
            (registers[libc::REG_RIP as usize] as usize, registers[libc::REG_ERR as usize] & WRITE != 0);
        // SAFETY: the program made this access, and no reference to the engine or the watch lives while it runs.
        unsafe {
            let thread = (*engine).current;
            let measured = !(*engine).me().untimed;
            if measured && (*engine).plain_point() {
                GO_BACK.set(code);
                registers[libc::REG_RIP as usize] = archipelago_sim_no_instruction as *const () as i64;
                return;
            }
            if measured && !watch.is_null() {
                // What is noted is not allocated in the arena, which is closed.
                let _outside = Outside::step();
                (*watch).plain(thread, addr, writes, code);
            }
        }
    }
    let mut open = OPEN.get();
    let free = open.iter_mut().find(|page| **page == 0).expect("an instruction touches at most four pages");
    *free = addr & !(PAGE - 1);
    protect(*free, PAGE, libc::PROT_READ | libc::PROT_WRITE);
    OPEN.set(open);
    registers[libc::REG_EFL as usize] |= SINGLE_STEP;
}

unsafe extern "C" fn on_trap(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes it.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let open = OPEN.replace([0; 4]);
    if open == [0; 4] {
        return pass_on(signal, 1);
    }
    for page in open.into_iter().filter(|page| *page != 0) {
        protect(page, PAGE, libc::PROT_NONE);
    }
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !SINGLE_STEP;
}

unsafe extern "C" fn on_stop(signal: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes it.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = &mut registers[libc::REG_RIP as usize];
    if *at != archipelago_sim_no_instruction as *const () as i64 {
        return pass_on(signal, 2);
    }
    *at = GO_BACK.get() as i64;
    if let Some(engine) = switch::engine() {
        switch::stop(engine);
    }
}

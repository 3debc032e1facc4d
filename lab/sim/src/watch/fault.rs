//! Observes the plain memory accesses of a simulated program: the run's arena is made inaccessible (*closed*), and each
//! access that faults is recorded and then executed alone. For Linux on x86-64.
//!
//! The arena (the heap of a run) has no access rights while a measured thread runs. An access to it faults. The handler
//! of the fault records the access, makes its page accessible, and has the processor trap after the next instruction.
//! The handler of the trap makes the page inaccessible again. Both signals are synchronous, and the threads of a run
//! are coroutines on one OS thread. So the state here is that OS thread's own.
//!
//! *Stopping before a plain access.* A schedule that looks for bugs may let another thread run before a plain access.
//! The handler of the fault cannot switch threads, since it runs on a signal stack that all simulated threads share.
//! Instead it redirects the thread to an invalid instruction. The handler of that trap runs on the thread's own stack,
//! on which the kernel has saved all of the thread's registers, and no signal is blocked. So the handler yields as any
//! function does, and returns to the access. The access faults once more and is executed.

use core::cell::{Cell, RefCell};
use core::ops::Range;
use core::ptr::null_mut;
use std::sync::OnceLock;

use super::Watch;
use crate::arena;
use crate::engine::switch::{self, Outside};

pub(crate) const AVAILABLE: bool = true;

const PAGE: usize = 4096;
/// The trap flag in the processor's register of flags: the processor traps after the next instruction.
const SINGLE_STEP: i64 = 1 << 8;
/// The bit in a page fault's error code that tells that the access was a write.
const WRITE: i64 = 1 << 1;
/// Stack space for the signal handlers, in bytes. They format no text, but they may capture a stack trace.
const HANDLER_STACK: usize = 1 << 20;

/// The range of addresses that is closed now.
struct Closed {
    /// The recorder of the accesses; null if no access is to be recorded.
    watch: *mut Watch,
    span: Range<usize>,
}

thread_local! {
    static CLOSED: RefCell<Option<Closed>> = const { RefCell::new(None) };
    /// The pages that are open for the instruction that is executed now; 0 for none.
    static OPEN: Cell<[usize; 4]> = const { Cell::new([0; 4]) };
    /// The address of the access at which a stopped thread continues.
    static GO_BACK: Cell<usize> = const { Cell::new(0) };
}

core::arch::global_asm!(".globl archipelago_sim_no_instruction", "archipelago_sim_no_instruction:", "ud2");

unsafe extern "C" {
    /// The address of an invalid instruction, to which a thread is redirected. It is not called.
    fn archipelago_sim_no_instruction();
}

/// The signal handlers that were installed before ours. They get the signals that the arena did not cause.
static BEFORE: OnceLock<[libc::sigaction; 3]> = OnceLock::new();

fn protect(at: usize, bytes: usize, rights: i32) {
    // SAFETY: the pages are a mapping of the caller, and only their access rights change.
    let done = unsafe { libc::mprotect(at as *mut libc::c_void, bytes, rights) };
    assert_eq!(done, 0, "the arena's access rights can be changed");
}

/// Makes `span`, which only this OS thread uses, inaccessible until [`open`] is called. Accesses to it are recorded in
/// `watch`. Does nothing if a span is closed already.
pub(crate) fn close(watch: *mut Watch, span: Range<usize>) {
    if CLOSED.with_borrow(Option::is_some) {
        return;
    }
    install();
    protect(span.start, span.len(), libc::PROT_NONE);
    CLOSED.set(Some(Closed { watch, span }));
}

/// Makes the closed span accessible again, if there is one.
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
            // SAFETY: the structures are plain structures of the C library, filled as it requires. The handlers are
            // functions and so always valid.
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
        // SAFETY: the memory is leaked, and only this OS thread uses it.
        unsafe { libc::sigaltstack(&stack, null_mut()) };
    }
}

/// Reinstalls the earlier handler after a signal that the arena did not cause. The instruction is then executed again,
/// and its fault reaches that handler.
fn pass_on(signal: i32, which: usize) {
    if let Some(before) = BEFORE.get() {
        // SAFETY: the action was the process's own before.
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
    // Accesses by the engine and by the allocator are not the program's, so they are neither recorded nor stopped.
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
                // What is recorded must not be allocated in the arena, which is closed.
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
    // SAFETY: the kernel passes a valid context.
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
    // SAFETY: the kernel passes a valid context.
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

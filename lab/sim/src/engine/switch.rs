//! Switches from one simulated thread to another, and unwinds threads that did not end.
//!
//! These functions have only a raw pointer to the engine: see the parent module. To unwind a thread, they resume it
//! once more. The thread then leaves its body by a panic that no panic hook sees. Its destructors run, and may wait for
//! those of other threads.

use core::any::Any;
use core::cell::{Cell, RefCell};
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult};

use super::thread::{Role, Stackful, Status, Unwinding};
use super::{Engine, Outcome, Start};
use crate::arena::{self, Cache, Route};
use crate::watch;

thread_local! {
    static ENGINE: Cell<*mut Engine> = const { Cell::new(std::ptr::null_mut()) };
}

/// Returns the engine, if one of its simulated threads runs on this OS thread.
#[inline]
pub(crate) fn engine() -> Option<*mut Engine> {
    let engine = ENGINE.get();
    (!engine.is_null()).then_some(engine)
}

/// While this value lives, the OS thread behaves as if no simulated thread were running.
pub(crate) struct Outside {
    engine: *mut Engine,
    route: Route,
}

impl Outside {
    pub(crate) fn step() -> Self {
        Outside { engine: ENGINE.replace(ptr::null_mut()), route: arena::aside() }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        ENGINE.set(self.engine);
        self.route.back();
    }
}

/// Makes the process's panic hook run [outside](Outside) if a simulated thread panics. The hook looks for the names of
/// functions, and the standard library keeps what it has read of them in memory of the process, for all OS threads. If
/// this copy were in the run's memory, it would be lost with the run.
fn report_panics_outside() {
    static ONCE: Once = Once::new();
    if ONCE.is_completed() || std::thread::panicking() {
        return;
    }
    let _outside = Outside::step();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let _outside = Outside::step();
            hook(info);
        }));
    });
}

/// The payload that unwinds a thread at the end of a run.
struct Unwind;

/// Stacks that no thread uses. Mapping and unmapping a stack takes longer than many threads run, so a thread gets the
/// stack of one that has ended, in this run or an earlier one.
struct Kept {
    /// The bytes of each, as they were asked for.
    bytes: usize,
    stacks: Vec<DefaultStack>,
}

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept { bytes: 0, stacks: Vec::new() }) };
}

/// A stack that begins at an offset in its page that differs from its neighbours' offsets. Otherwise the first lines of
/// hundreds of stacks, each used for a short time, would be in the same few sets of the host's caches.
pub(crate) struct Coloured {
    stack: DefaultStack,
    skipped: usize,
}

/// All offsets are smaller.
const PAGE: usize = 4096;

impl Coloured {
    fn new(bytes: usize, thread: usize) -> Coloured {
        let kept = KEPT.with_borrow_mut(|kept| {
            if kept.bytes != bytes {
                *kept = Kept { bytes, stacks: Vec::new() };
            }
            kept.stacks.pop()
        });
        let fresh = || DefaultStack::new(bytes.saturating_add(PAGE)).expect("no memory for a simulated thread's stack");
        Coloured { stack: kept.unwrap_or_else(fresh), skipped: thread * 13 % 64 * 64 }
    }

    /// Keeps the stack, of this many bytes, for another thread.
    fn keep(self, bytes: usize) {
        KEPT.with_borrow_mut(|kept| {
            if kept.bytes == bytes {
                kept.stacks.push(self.stack);
            }
        });
    }
}

// SAFETY: the guard page is the inner stack's, and the inner stack has more bytes than were asked for, by a page.
unsafe impl Stack for Coloured {
    fn base(&self) -> StackPointer {
        let base = self.stack.base().get() - self.skipped;
        StackPointer::new(base).expect("an address inside of the stack")
    }

    fn limit(&self) -> StackPointer {
        self.stack.limit()
    }

    #[cfg(windows)]
    fn teb_fields(&self) -> corosensei::stack::StackTebFields {
        self.stack.teb_fields()
    }

    #[cfg(windows)]
    fn update_teb_fields(&mut self, stack_limit: usize, guaranteed_stack_bytes: usize) {
        self.stack.update_teb_fields(stack_limit, guaranteed_stack_bytes);
    }
}

/// Makes a coroutine for the body of thread number `thread`.
pub(crate) fn stackful(bytes: usize, thread: usize, body: Box<dyn FnOnce()>) -> Box<Stackful> {
    #[cfg(target_os = "linux")]
    super::overflow::install();
    report_panics_outside();
    let stack = Coloured::new(bytes, thread);
    let limit = stack.limit().get();
    Box::new(Coroutine::with_stack(stack, move |yielder, ()| {
        let engine = engine().expect("a coroutine runs in a simulation");
        // SAFETY: `engine()` is valid while a coroutine runs; no other reference exists (module text).
        let thread = unsafe { &mut *engine }.me();
        // The body's frames are below this frame; the memory above it is needed for switching.
        (thread.yielder, thread.stack_base, thread.stack_limit) = (yielder, (&raw const engine).addr(), limit);
        // SAFETY: as above.
        let result = if unsafe { &*engine }.unwinding {
            drop(body);
            Ok(())
        } else {
            catch_unwind(AssertUnwindSafe(body))
        };
        let locals = catch_unwind(AssertUnwindSafe(|| drop_locals(engine)));
        let message = result.err().or(locals.err()).and_then(said);
        // SAFETY: as above.
        arena::apart(|| unsafe { &mut *engine }.finish(message));
    }))
}

/// Returns a panic's message, allocated so that it outlives the run. The payload's own destructor may panic, too.
fn said(payload: Box<dyn Any + Send>) -> Option<String> {
    let message = arena::apart(|| {
        let said = payload.downcast_ref::<&str>().map(|text| text.to_string());
        let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
        (!payload.is::<Unwind>()).then(|| said.unwrap_or_else(|| "a panic without a message".to_string()))
    });
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
    message
}

/// Runs the destructors of the thread's thread-locals, the newest first, until none is left.
fn drop_locals(engine: *mut Engine) {
    loop {
        // SAFETY: `engine` is valid while a coroutine runs; the reference ends before the destructor is called.
        let thread = unsafe { &mut *engine }.me();
        let Some(local) = thread.locals.iter_mut().rev().find(|local| !local.value.is_null()) else { break };
        let (value, drop) = (std::mem::replace(&mut local.value, std::ptr::null_mut()), local.drop);
        // SAFETY: the contract of `world::local_set`. The value was just removed, so this is the only call.
        unsafe { drop(value) };
    }
}

/// Yields. Returns when the scheduler has chosen the running thread again.
pub(crate) fn suspend(engine: *mut Engine) {
    // SAFETY: `engine` is valid while a coroutine runs; the reference ends here.
    let engine = unsafe { &mut *engine };
    let over = engine.unwinding;
    engine.tx_sweep();
    let thread = engine.me();
    let yielder = thread.yielder;
    if !over {
        thread.panicking = std::thread::panicking();
    }
    thread.stopped_at = (&raw const yielder).addr();
    // SAFETY: the yielder is at the bottom of the running coroutine's stack.
    unsafe { (*yielder).suspend(()) };
}

/// Yields. Unwinds if the run has ended when the thread runs again.
pub(crate) fn wait(engine: *mut Engine) {
    suspend(engine);
    // SAFETY: as in `suspend`.
    if unsafe { &mut *engine }.must_unwind() {
        unwind();
    }
}

/// Lets the schedule choose the next thread, in the middle of a thread's plain code. No unwinding starts here: a thread
/// whose run has ended continues to its next access.
pub(crate) fn stop(engine: *mut Engine) {
    // SAFETY: as in `suspend`.
    while !arena::apart(|| unsafe { &mut *engine }.step()) {
        suspend(engine);
    }
}

/// Leaves the body of a thread whose run is over.
pub(crate) fn unwind() -> ! {
    resume_unwind(Box::new(Unwind))
}

/// Runs a thread until it yields or ends.
fn resume(engine: *mut Engine, id: usize) {
    // SAFETY: the engine outlives the run. The coroutine is boxed and is removed only below, so its address stays the
    // same while other threads are spawned.
    let thread = &mut unsafe { &mut *engine }.threads[id];
    let heap: *mut Cache = &mut *thread.heap;
    let stack: *mut Stackful = thread.stack.as_deref_mut().expect("an unfinished thread");
    // SAFETY: as above.
    watched(unsafe { &mut *engine }, id);
    let outer = ENGINE.replace(engine);
    // SAFETY: the arena and the thread keep their addresses while the thread runs, and only the thread uses its heap.
    let route = unsafe { arena::route((*engine).arena.as_ref(), heap) };
    // SAFETY: no other thread uses this coroutine: it is not resumed from inside itself.
    let result = unsafe { (*stack).resume(()) };
    ENGINE.set(outer);
    route.back();
    if matches!(result, CoroutineResult::Return(())) {
        // SAFETY: as above; the coroutine has ended.
        let engine = unsafe { &mut *engine };
        let ended = engine.threads[id].stack.take().expect("the thread that has run");
        ended.into_stack().keep(engine.config.stack_bytes);
    }
}

/// Makes the arena inaccessible to thread `id`, which runs or is about to run, if the thread's plain accesses are to be
/// found. Otherwise makes the arena accessible.
pub(crate) fn watched(engine: &mut Engine, id: usize) {
    if engine.watch.is_none() && engine.config.plain_points == 0 {
        return;
    }
    let watch = engine.watch.as_mut().map_or(ptr::null_mut(), |watch| &raw mut **watch);
    match &engine.arena {
        Some(arena) if !engine.threads[id].untimed && !engine.unwinding => watch::close(watch, arena.span()),
        _ => watch::open(),
    }
}

/// Runs all threads until the run ends.
pub(crate) fn drive(engine: *mut Engine) -> Outcome {
    loop {
        // SAFETY: the engine outlives the run; no coroutine runs now.
        match unsafe { &mut *engine }.next() {
            Ok(id) => resume(engine, id),
            Err(outcome) => {
                watch::open();
                return outcome;
            }
        }
        // SAFETY: as above.
        unsafe { &mut *engine }.gave_way();
    }
}

/// After this many turns in a row in which no unwinding thread has ended, the remaining threads are abandoned.
const PATIENCE: usize = 1_000;

/// Unwinds every unfinished thread. The main thread is unwound after the clients, since they borrow from its stack. If
/// the clients do not end, it is unwound after half of [`PATIENCE`]. Returns how many threads had to be abandoned.
pub(crate) fn unwind_all(engine: *mut Engine) -> usize {
    // SAFETY: here and below: the engine outlives the run, and no coroutine runs while a reference to the engine lives.
    let threads = unsafe {
        (*engine).unwinding = true;
        (*engine).forget_repeated();
        // From now on all threads get turns, and none has to be woken.
        (*engine).forget_waiters();
        for thread in &mut (*engine).threads {
            thread.unwinding = if thread.status == Status::Done { Unwinding::No } else { Unwinding::Asked };
            thread.tx_depth = 0;
        }
        (*engine).threads.len()
    };
    let mut idle = 0;
    while idle < PATIENCE {
        let mut left = 0;
        let mut ended = false;
        for id in (0..threads).rev() {
            // SAFETY: see above.
            let (done, main) = unsafe {
                (*engine).current = id;
                let thread = &(&(*engine).threads)[id];
                (thread.status == Status::Done, thread.role == Role::Main)
            };
            if done || (main && clients_left(engine) && idle < PATIENCE / 2) {
                left += usize::from(!done);
                continue;
            }
            resume(engine, id);
            // SAFETY: see above.
            let done = unsafe { (&(*engine).threads)[id].status == Status::Done };
            ended |= done;
            left += usize::from(!done);
        }
        if left == 0 {
            return 0;
        }
        idle = if ended { 0 } else { idle + 1 };
    }
    abandon_all(engine)
}

/// Abandons every unfinished thread. Returns how many there are.
pub(crate) fn abandon_all(engine: *mut Engine) -> usize {
    // SAFETY: the engine outlives the run, and no coroutine runs now.
    let threads = unsafe { &mut (*engine).threads };
    let stacks = threads.iter_mut().filter_map(|thread| thread.stack.take());
    // Other threads may have pointers into these stacks, so the stacks are leaked.
    stacks.map(std::mem::forget).count()
}

fn clients_left(engine: *mut Engine) -> bool {
    // SAFETY: the engine outlives the run, and no coroutine runs now.
    let threads = unsafe { &(*engine).threads };
    threads.iter().any(|thread| thread.role == Role::Client && thread.status != Status::Done)
}

/// Starts a thread from inside a simulated one.
pub(crate) fn spawn(engine: *mut Engine, start: Start, slot: Option<usize>) -> usize {
    // SAFETY: `engine` is valid while a coroutine runs.
    arena::apart(|| unsafe { &mut *engine }.spawn(start, slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Machine, run};

    #[test]
    fn stacks_are_of_earlier_threads() {
        let machine = Machine::preset("xeon-8180-4s").unwrap();
        let after = |stack_bytes, threads| {
            let report =
                run(&machine, &Config { stack_bytes, ..Config::default() }, threads, |_| crate::world::work(1));
            assert_eq!(report.outcome, Outcome::Done);
            KEPT.with_borrow(|kept| (kept.bytes, kept.stacks.len()))
        };
        // One more than there are clients: the main thread's.
        assert_eq!(after(64 << 10, 2), (64 << 10, 3));
        assert_eq!(after(64 << 10, 1), (64 << 10, 3));
        assert_eq!(after(64 << 10, 4), (64 << 10, 5));
        assert_eq!(after(128 << 10, 1), (128 << 10, 2));
    }
}

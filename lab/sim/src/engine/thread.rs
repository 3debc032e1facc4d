//! The engine's state of a simulated thread.

use corosensei::{Coroutine, Yielder};

use super::tx::Tx;
use crate::arena::Cache;
use crate::memory::NONE;

/// Most lines that a spinning thread watches.
pub(crate) const WATCHED: usize = 8;

/// A thread's role in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs set-up and tear-down.
    Main,
    /// The run lasts until all of these have ended.
    Client,
    /// Serves the others; is unwound at the end of the run.
    Daemon,
}

/// What a thread is doing while another one runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Can take a step.
    Ready,
    /// In a spin loop, until a line it watches changes.
    Spinning,
    /// Waits for its turn on a contended line.
    Queued(u32),
    /// Parked, asleep, or waiting for a key; the time in the agenda, if any, is its time-out.
    Blocked(Reason),
    /// Over.
    Done,
}

/// What a blocked thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its park token.
    Token,
    /// A time.
    Time,
    /// A thread that wakes this key.
    Key(Key),
}

/// What threads can wait for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A key of the program's own, an address.
    User(usize),
    /// The end of the thread with this id.
    End(usize),
    /// The end of all clients.
    Clients,
}

/// The state of the unwinding of an unfinished thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwinding {
    No,
    /// The thread will unwind when it runs next.
    Asked,
    /// Its destructors run.
    Raised,
}

/// A thread-local of the program.
pub(crate) struct Local {
    pub(crate) key: usize,
    /// Null after its destructor has begun.
    pub(crate) value: *mut u8,
    pub(crate) drop: unsafe fn(*mut u8),
}

pub(crate) type Stackful = Coroutine<(), (), (), super::switch::Coloured>;

/// In the order of use: what every access needs comes first.
#[repr(C)]
pub(crate) struct Thread {
    /// Virtual picoseconds.
    pub(crate) clock: u64,
    /// When the store buffer will be empty.
    pub(crate) stores_until: u64,
    /// Accesses made.
    pub(crate) accesses: u64,
    /// The next access before which a fault strikes.
    pub(crate) fault_access: u64,
    /// The time from which on a fault strikes.
    pub(crate) fault_clock: u64,
    pub(crate) core: usize,
    pub(crate) socket: usize,
    pub(crate) rng: u64,
    /// The line of the last access, and until when a load of it counts as made together with that one.
    pub(crate) recent: (u32, u64),

    pub(crate) status: Status,
    pub(crate) role: Role,
    pub(crate) unwinding: Unwinding,
    /// Set-up and tear-down take no time.
    pub(crate) untimed: bool,
    /// It stopped before a plain access, which it now makes.
    pub(crate) stopped: bool,
    /// It yielded while its own panic unwinds it, so it cannot be unwound by another panic.
    pub(crate) panicking: bool,
    /// The part of the program it is in; 0 for none.
    pub(crate) part: u8,
    /// The scheduler has chosen it for its next access.
    pub(crate) granted: bool,
    /// Since the last turn of a spin loop: made a locked access or a store; changed a value.
    pub(crate) locked: bool,
    pub(crate) changed: bool,
    pub(crate) token: bool,
    pub(crate) timed_out: bool,
    /// Nesting depth of transactions; 0 outside.
    pub(crate) tx_depth: u32,
    /// The next thread in a line's queue.
    pub(crate) queue_next: u32,
    /// The address of its next access, and the position on its stack at which it stopped: hints for prefetches on the
    /// host.
    pub(crate) pending: usize,
    pub(crate) stopped_at: usize,
    pub(crate) yielder: *const Yielder<(), ()>,
    pub(crate) stack: Option<Box<Stackful>>,
    /// Where its body's part of the stack begins: the highest address.
    pub(crate) stack_base: usize,
    /// The lowest address of its stack, that of the page without access rights.
    pub(crate) stack_limit: usize,
    /// Its part of the heap; boxed, since the allocator keeps a pointer while the thread runs.
    pub(crate) heap: Box<Cache>,

    /// Lines accessed since the last turn of a spin loop, with their versions.
    pub(crate) seen_count: usize,
    pub(crate) seen: [(u32, u32); WATCHED],
    /// Turns of the spin loop without any change in the machine in between.
    pub(crate) rechecks: u32,
    pub(crate) recheck_epoch: u64,
    pub(crate) tx: Tx,
    pub(crate) locals: Vec<Local>,
    /// Higher runs first under PCT.
    pub(crate) priority: u64,
    /// It yields once.
    pub(crate) yields: bool,
    pub(crate) passages: Vec<(&'static str, u64)>,
    pub(crate) cpu: usize,
    pub(crate) slot: usize,
}

impl Thread {
    pub(crate) fn new(role: Role, slot: usize, rng: u64) -> Self {
        Thread {
            clock: 0,
            stores_until: 0,
            recent: (NONE, 0),
            cpu: 0,
            core: 0,
            socket: 0,
            status: Status::Ready,
            role,
            slot,
            accesses: 0,
            fault_access: u64::MAX,
            fault_clock: u64::MAX,
            untimed: false,
            stopped: false,
            panicking: false,
            part: 0,
            granted: false,
            seen: [(NONE, 0); WATCHED],
            seen_count: 0,
            locked: false,
            changed: false,
            rechecks: 0,
            recheck_epoch: 0,
            token: false,
            timed_out: false,
            queue_next: NONE,
            tx_depth: 0,
            pending: 0,
            stopped_at: 0,
            tx: Tx::default(),
            locals: Vec::new(),
            rng,
            priority: 0,
            yields: false,
            passages: Vec::new(),
            unwinding: Unwinding::No,
            yielder: std::ptr::null(),
            stack: None,
            stack_base: 0,
            stack_limit: 0,
            heap: Box::new(Cache::new()),
        }
    }

    /// Whether it keeps its core busy.
    pub(crate) fn working(&self) -> bool {
        matches!(self.status, Status::Ready | Status::Queued(_))
    }
}

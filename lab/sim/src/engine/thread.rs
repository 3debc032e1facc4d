//! The engine's state of a simulated thread.

use corosensei::{Coroutine, Yielder};

use super::tx::Tx;
use crate::arena::Cache;
use crate::memory::NONE;

/// The most lines that a spinning thread watches.
pub(crate) const WATCHED: usize = 8;

/// A thread's role in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs set-up and tear-down of the run.
    Main,
    /// A client: the run lasts until all clients have ended.
    Client,
    /// A background thread, which is unwound at the end of the run.
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
    /// Parked, asleep, or waiting for a key. If the thread is in the agenda, its time in the agenda is the time-out.
    Blocked(Reason),
    /// Ended.
    Done,
}

/// The event for which a blocked thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its park token.
    Token,
    /// A time.
    Time,
    /// A wake-up of this key.
    Key(Key),
}

/// The keys for which threads can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A key of the program, an address.
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
    /// The thread is to unwind when it runs next.
    Asked,
    /// The thread's destructors run.
    Raised,
}

/// A thread-local of the program.
pub(crate) struct LocalSlot {
    pub(crate) key: usize,
    /// The value; null once its destructor has begun.
    pub(crate) value: *mut u8,
    pub(crate) drop: unsafe fn(*mut u8),
}

pub(crate) type Stackful = Coroutine<(), (), (), super::switch::Coloured>;

/// The fields are in the order of use: those that every access needs come first.
#[repr(C)]
pub(crate) struct Thread {
    /// The virtual time in picoseconds.
    pub(crate) clock: u64,
    /// When the store buffer will be empty.
    pub(crate) stores_until: u64,
    /// The number of accesses so far.
    pub(crate) accesses: u64,
    /// The number of the next access before which a fault happens.
    pub(crate) fault_access: u64,
    /// The time from which on a fault happens.
    pub(crate) fault_clock: u64,
    pub(crate) core: usize,
    pub(crate) socket: usize,
    pub(crate) rng: u64,
    /// The line of the last access, and the time until which a load of this line counts as made together with that
    /// access (without a request of its own for the line).
    pub(crate) recent: (u32, u64),

    pub(crate) status: Status,
    pub(crate) role: Role,
    pub(crate) unwinding: Unwinding,
    /// Whether steps take no time, as in set-up and tear-down.
    pub(crate) untimed: bool,
    /// The thread's own work after each access, in picoseconds.
    pub(crate) pace: u64,
    /// Whether the thread stopped before a plain access, which it now makes.
    pub(crate) stopped: bool,
    /// Whether the thread yielded while its own panic unwinds it, so that it cannot be unwound by another panic.
    pub(crate) panicking: bool,
    /// The number of the program's part in which the thread is; 0 for none.
    pub(crate) part: u8,
    /// Whether the scheduler has chosen the thread for its next access.
    pub(crate) granted: bool,
    /// Whether the thread, since the last turn of a spin loop, made a locked access or a store; and whether it changed
    /// a value.
    pub(crate) locked: bool,
    pub(crate) changed: bool,
    pub(crate) token: bool,
    pub(crate) timed_out: bool,
    /// Nesting depth of transactions; 0 outside.
    pub(crate) tx_depth: u32,
    /// The next thread in a line's queue.
    pub(crate) queue_next: u32,
    /// The address of the thread's next access, and the position on its stack at which it stopped: hints for prefetches
    /// on the host.
    pub(crate) pending: usize,
    pub(crate) stopped_at: usize,
    pub(crate) yielder: *const Yielder<(), ()>,
    pub(crate) stack: Option<Box<Stackful>>,
    /// The highest address of the body's part of the stack.
    pub(crate) stack_base: usize,
    /// The lowest address of the stack, which is that of the guard page.
    pub(crate) stack_limit: usize,
    /// The thread's part of the heap. It is boxed, since the allocator keeps a pointer to it while the thread runs.
    pub(crate) heap: Box<Cache>,

    /// The lines accessed since the last turn of a spin loop, with their versions.
    pub(crate) seen_count: usize,
    pub(crate) seen: [(u32, u32); WATCHED],
    /// The number of turns of the spin loop since the last change in the machine.
    pub(crate) rechecks: u32,
    pub(crate) recheck_epoch: u64,
    pub(crate) tx: Tx,
    pub(crate) locals: Vec<LocalSlot>,
    /// The priority under probabilistic concurrency testing (PCT). The thread with the highest priority runs.
    pub(crate) priority: u64,
    /// Whether the thread yields once.
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
            pace: 0,
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

    /// Returns whether the thread keeps its core busy.
    pub(crate) fn working(&self) -> bool {
        matches!(self.status, Status::Ready | Status::Queued(_))
    }
}

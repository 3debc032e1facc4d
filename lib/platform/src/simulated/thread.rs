//! Threads: simulated ones inside a run, ordinary ones outside.
//!
//! A thread that is started by a simulated thread is a background thread of the run: the run does not wait for it, but
//! a thread with its handle may.

use core::marker::PhantomData;
use core::num::NonZero;
use core::time::Duration;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex as Plain, PoisonError};

use archipelago_sim::world;
pub use std::thread::panicking;

use super::sync::{Condvar, Mutex};

/// The identity of a thread, unique in its run or in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId(Id);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Id {
    Native(std::thread::ThreadId),
    /// The numbers of the run and of the thread.
    Simulated(u64, usize),
}

/// The counterpart of [`std::thread::Thread`].
#[derive(Clone, Debug)]
pub struct Thread {
    side: Side,
    name: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
enum Side {
    Native(std::thread::Thread),
    Simulated(usize),
}

impl Thread {
    /// Makes the thread's token available: see [`park`].
    pub fn unpark(&self) {
        match &self.side {
            Side::Native(thread) => thread.unpark(),
            Side::Simulated(id) => world::unpark(*id),
        }
    }

    /// Returns the thread's identity.
    pub fn id(&self) -> ThreadId {
        ThreadId(match &self.side {
            Side::Native(thread) => Id::Native(thread.id()),
            Side::Simulated(id) => Id::Simulated(world::run_number().unwrap_or(0), *id),
        })
    }

    /// Returns the thread's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        match &self.side {
            Side::Native(thread) => thread.name(),
            Side::Simulated(_) => self.name.as_deref(),
        }
    }
}

/// Returns the calling thread.
pub fn current() -> Thread {
    let side = match world::current() {
        Some(current) => Side::Simulated(current.id),
        None => Side::Native(std::thread::current()),
    };
    Thread { side, name: None }
}

/// Waits for the calling thread's token, which [`Thread::unpark`] makes available.
pub fn park() {
    if world::active() { world::park() } else { std::thread::park() }
}

/// Works as [`park`] does, but waits for at most `time`.
pub fn park_timeout(time: Duration) {
    if world::active() { world::park_timeout(nanoseconds(time)) } else { std::thread::park_timeout(time) }
}

/// Sleeps for `time`.
pub fn sleep(time: Duration) {
    world::sleep(nanoseconds(time));
}

/// Lets other threads run.
pub fn yield_now() {
    world::yield_now();
}

/// Returns the number of CPUs of the machine.
///
/// # Errors
/// Outside a run, as [`std::thread::available_parallelism`].
pub fn available_parallelism() -> io::Result<NonZero<usize>> {
    let simulated = world::machine().and_then(|machine| NonZero::new(machine.cpus()));
    simulated.map_or_else(std::thread::available_parallelism, Ok)
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The result of a thread.
type Result<T> = std::thread::Result<T>;
type Packet<T> = Arc<Plain<Option<Result<T>>>>;

/// Stores a thread's result for the thread that joins it.
fn leave<T>(place: &Plain<Option<Result<T>>>, result: Result<T>) {
    world::touch_mut(core::ptr::from_ref(place).cast(), size_of_val(place));
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
}

/// The counterpart of [`std::thread::JoinHandle`].
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: Thread,
    native: Option<std::thread::JoinHandle<()>>,
    packet: Packet<T>,
}

impl<T> JoinHandle<T> {
    /// Waits for the thread to end and returns its result.
    ///
    /// # Errors
    /// The payload, if the thread panicked.
    pub fn join(self) -> Result<T> {
        match (&self.thread.side, self.native) {
            (Side::Simulated(id), _) => world::join(*id),
            (_, Some(native)) => native.join()?,
            _ => {}
        }
        let left = self.packet.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A simulated thread that was unwound at the end of its run has no result.
        left.unwrap_or_else(|| Err(Box::new("the simulation ended before this thread did")))
    }

    /// Returns whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.thread.side {
            Side::Simulated(id) => world::is_finished(*id),
            Side::Native(_) => self.native.as_ref().is_none_or(std::thread::JoinHandle::is_finished),
        }
    }

    /// Returns the thread.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }
}

/// The counterpart of [`std::thread::Builder`].
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
}

impl Builder {
    /// Makes a builder of a thread without a name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the thread's name.
    #[must_use]
    pub fn name(self, name: String) -> Self {
        Builder { name: Some(name), ..self }
    }

    /// Sets the stack size in bytes. Every simulated thread has the run's stack size instead.
    #[must_use]
    pub fn stack_size(self, bytes: usize) -> Self {
        Builder { stack_size: Some(bytes), ..self }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// If the operating system refuses, or the simulation is over.
    pub fn spawn<F, T>(self, body: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let packet = Packet::default();
        let theirs = packet.clone();
        let name = self.name.as_deref().map(Arc::from);
        let body = move || {
            let result = catch_unwind(AssertUnwindSafe(body));
            match result {
                // The end of the run is not a thread's result. A panic in a thread that cannot be joined any more fails
                // the run.
                Err(payload) if world::ending() || (world::active() && Arc::strong_count(&theirs) == 1) => {
                    resume_unwind(payload)
                }
                result => leave(&theirs, result),
            }
        };
        if !world::active() {
            let mut builder = std::thread::Builder::new();
            if let Some(name) = self.name {
                builder = builder.name(name);
            }
            if let Some(bytes) = self.stack_size {
                builder = builder.stack_size(bytes);
            }
            let native = builder.spawn(body)?;
            let thread = Thread { side: Side::Native(native.thread().clone()), name };
            return Ok(JoinHandle { thread, native: Some(native), packet });
        }
        match world::spawn_background(None, Box::new(body)) {
            Ok(id) => Ok(JoinHandle { thread: Thread { side: Side::Simulated(id), name }, native: None, packet }),
            Err(_) => Err(io::Error::other("the simulation is over")),
        }
    }

    /// Starts a thread that ends before the scope does.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        body: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let left = Arc::new(Left { result: Mutex::new(None), there: Condvar::new() });
        let panicked = Arc::new(Plain::new(false));
        let (theirs, told) = (left.clone(), panicked.clone());
        let body: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || {
            let result = catch_unwind(AssertUnwindSafe(body));
            if world::ending() {
                return;
            }
            *told.lock().unwrap_or_else(PoisonError::into_inner) = result.is_err();
            // The result may be larger than the part that a lock's guard announces.
            world::touch_mut(core::ptr::from_ref(&theirs.result).cast(), size_of_val(&theirs.result));
            *theirs.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            theirs.there.notify_all();
        });
        // SAFETY: only the lifetime changes; `scope` joins the thread before `'scope` ends.
        let body: Box<dyn FnOnce() + Send + 'static> = unsafe { core::mem::transmute(body) };
        let thread = self.spawn(body)?;
        scope.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        scope.unclaimed.lock().unwrap_or_else(PoisonError::into_inner).push(panicked.clone());
        Ok(ScopedJoinHandle { left, panicked, scope: PhantomData })
    }
}

/// Starts a thread.
///
/// # Panics
/// If the operating system refuses, or the simulation is over.
pub fn spawn<F, T>(body: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(body).expect("a thread can be started")
}

/// The counterpart of [`std::thread::Scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    threads: Plain<Vec<JoinHandle<()>>>,
    unclaimed: Plain<Vec<Arc<Plain<bool>>>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The counterpart of [`std::thread::ScopedJoinHandle`].
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    left: Arc<Left<T>>,
    panicked: Arc<Plain<bool>>,
    scope: PhantomData<&'scope ()>,
}

/// The result of a scoped thread.
#[derive(Debug)]
struct Left<T> {
    result: Mutex<Option<Result<T>>>,
    there: Condvar,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Returns whether the thread's body has ended.
    pub fn is_finished(&self) -> bool {
        self.left.result.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits for the thread to end and returns its result.
    ///
    /// # Errors
    /// The payload, if the thread panicked.
    pub fn join(self) -> Result<T> {
        let mut result = self.left.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = result.take() {
                *self.panicked.lock().unwrap_or_else(PoisonError::into_inner) = false;
                return result;
            }
            result = self.left.there.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread that ends before the scope does.
    ///
    /// # Panics
    /// As for [`spawn`].
    pub fn spawn<F, T>(&'scope self, body: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Builder::new().spawn_scoped(self, body).expect("a thread can be started")
    }

    fn join_all(&self) {
        while let Some(thread) = { self.threads.lock().unwrap_or_else(PoisonError::into_inner).pop() } {
            let _ = thread.join();
        }
    }
}

/// The counterpart of [`std::thread::scope`].
///
/// # Panics
/// If `f` panics, or if a thread panicked that was not joined by its handle.
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope { threads: Plain::default(), unclaimed: Plain::default(), scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.join_all();
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(result) => {
            let unclaimed = scope.unclaimed.lock().unwrap_or_else(PoisonError::into_inner);
            let panicked = unclaimed.iter().any(|panicked| *panicked.lock().unwrap_or_else(PoisonError::into_inner));
            assert!(!panicked, "a scoped thread panicked");
            result
        }
    }
}

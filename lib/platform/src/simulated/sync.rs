//! Blocking primitives. Outside a run they are `std`'s. Inside a run, their fast paths are simulated accesses to their
//! words, and the simulator does the waiting.

use core::fmt;
use core::mem::{self, ManuallyDrop};
use core::ops::{Deref, DerefMut};
use core::time::Duration;
use std::sync as std_sync;

use archipelago_sim::world::{self, htm};
pub use std_sync::{Arc, LockResult, PoisonError, TryLockError, TryLockResult, Weak};

use super::thread::nanoseconds;

/// The address that identifies a lock.
type Key = usize;

fn key_of<T: ?Sized>(lock: &T) -> Key {
    core::ptr::from_ref(lock).cast::<()>().addr()
}

fn word(key: Key) -> *const () {
    core::ptr::without_provenance(key)
}

/// The number of bytes at the start of `std`'s locks that contain their state. An aborted transaction restores them.
const STATE: usize = 4;

/// Takes a lock by repeated attempts, waiting in between.
fn acquire<G>(key: Key, attempt: impl Fn() -> TryLockResult<G>) -> LockResult<G> {
    loop {
        match access(key, &attempt) {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
            Err(TryLockError::WouldBlock) => {
                world::wait_while(key, None, || matches!(attempt(), Err(TryLockError::WouldBlock)));
            }
        }
    }
}

/// Makes one read-modify-write access to the word of a lock.
fn access<G>(key: Key, attempt: impl Fn() -> TryLockResult<G>) -> TryLockResult<G> {
    world::update(word(key), STATE, || {
        let result = attempt();
        let taken = !matches!(result, Err(TryLockError::WouldBlock));
        (result, taken)
    })
}

/// Maps the guard in the result of taking a lock.
fn map<G, H>(result: LockResult<G>, wrap: impl Fn(G) -> H) -> LockResult<H> {
    match result {
        Ok(guard) => Ok(wrap(guard)),
        Err(poisoned) => Err(PoisonError::new(wrap(poisoned.into_inner()))),
    }
}

fn try_map<G, H>(result: TryLockResult<G>, wrap: impl Fn(G) -> H) -> TryLockResult<H> {
    match result {
        Ok(guard) => Ok(wrap(guard)),
        Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        Err(TryLockError::Poisoned(poisoned)) => {
            Err(TryLockError::Poisoned(PoisonError::new(wrap(poisoned.into_inner()))))
        }
    }
}

/// The number of bytes of the protected value that count as used by the thread that takes the lock: four cache lines.
/// Accesses to larger values are announced separately.
const GUARDED: usize = 256;

/// Announces the use of the first bytes of the protected value by the thread that takes the lock.
fn announce<T: ?Sized>(value: &T, writes: bool) {
    let (at, len) = (core::ptr::from_ref(value).cast(), size_of_val(value).min(GUARDED));
    match writes {
        _ if len == 0 => {}
        true => world::touch_mut(at, len),
        false => world::touch(at, len),
    }
}

/// Dropped before the real guard: simulates the access that releases the lock.
struct Turn(Key);

impl Drop for Turn {
    fn drop(&mut self) {
        world::store(word(self.0), STATE, || true);
    }
}

/// Dropped after the real guard: wakes the threads that wait for the lock, which try again.
struct Wake(Key);

impl Drop for Wake {
    fn drop(&mut self) {
        world::wake(self.0, usize::MAX);
    }
}

/// The real guard. If a transaction took it and is doomed when the guard is dropped, nothing is released: the abort has
/// restored the lock's state, and another thread may hold the lock by now.
struct Real<G> {
    guard: ManuallyDrop<G>,
    in_transaction: bool,
}

impl<G> Drop for Real<G> {
    fn drop(&mut self) {
        if !(self.in_transaction && htm::inside() && htm::doomed()) {
            // SAFETY: dropped once, here, unless the guard was taken out of a value that is then forgotten.
            unsafe { ManuallyDrop::drop(&mut self.guard) };
        }
    }
}

/// A guard of `std`'s between two others. The fields are dropped in this order.
struct Held<G> {
    turn: Turn,
    real: Real<G>,
    wake: Wake,
}

impl<G> Held<G> {
    fn new(key: Key, guard: G) -> Self {
        let real = Real { guard: ManuallyDrop::new(guard), in_transaction: htm::inside() };
        Held { turn: Turn(key), real, wake: Wake(key) }
    }

    /// Returns the real guard without releasing the lock.
    fn into_guard(self) -> G {
        let Held { turn, mut real, wake } = self;
        // SAFETY: taken once, because `real` is forgotten.
        let guard = unsafe { ManuallyDrop::take(&mut real.guard) };
        mem::forget((turn, real, wake));
        guard
    }
}

/// The counterpart of [`std::sync::Mutex`].
#[derive(Default)]
pub struct Mutex<T: ?Sized>(std_sync::Mutex<T>);

/// The counterpart of [`std::sync::MutexGuard`].
#[must_use = "the mutex is released when its guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    held: Held<std_sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// Makes an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex(std_sync::Mutex::new(value))
    }

    /// Returns the value.
    ///
    /// # Errors
    /// If a holder panicked.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the mutex.
    ///
    /// # Errors
    /// If a holder panicked.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let taken = if world::active() { acquire(key_of(self), || self.0.try_lock()) } else { self.0.lock() };
        map(taken, |guard| self.held(guard))
    }

    /// Takes the mutex if it is free.
    ///
    /// # Errors
    /// If it is not free, or a holder panicked.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        try_map(access(key_of(self), || self.0.try_lock()), |guard| self.held(guard))
    }

    /// Returns a mutable reference to the value.
    ///
    /// # Errors
    /// If a holder panicked.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    /// Returns whether a holder panicked.
    pub fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    fn held<'a>(&'a self, guard: std_sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let held = Held::new(key_of(self), guard);
        announce(&**held.real.guard, true);
        MutexGuard { held, mutex: self }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held.real.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held.real.guard
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.real.guard.fmt(f)
    }
}

/// The counterpart of [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar {
    native: std_sync::Condvar,
    /// The number of notifications so far. Used only inside runs, which have one OS thread.
    notified: core::sync::atomic::AtomicUsize,
}

/// The counterpart of [`std::sync::WaitTimeoutResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the time limit was reached.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Makes a condition variable for which no thread waits.
    pub const fn new() -> Self {
        Condvar { native: std_sync::Condvar::new(), notified: core::sync::atomic::AtomicUsize::new(0) }
    }

    /// Releases the mutex, waits for a notification, and takes the mutex again. May return without a notification.
    ///
    /// # Errors
    /// If a holder of the mutex panicked.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.mutex;
        if world::active() {
            self.sleep(guard, None);
            return mutex.lock();
        }
        map(self.native.wait(guard.held.into_guard()), |guard| mutex.held(guard))
    }

    /// Works as [`wait`](Self::wait) does, but waits for at most `time`.
    ///
    /// # Errors
    /// If a holder of the mutex panicked.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mutex = guard.mutex;
        if world::active() {
            let notified = self.sleep(guard, Some(nanoseconds(time)));
            return map(mutex.lock(), |guard| (guard, WaitTimeoutResult(!notified)));
        }
        let waited = self.native.wait_timeout(guard.held.into_guard(), time);
        map(waited, |(guard, result)| (mutex.held(guard), WaitTimeoutResult(result.timed_out())))
    }

    /// Waits while `condition` returns true.
    ///
    /// # Errors
    /// If a holder of the mutex panicked.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// Works as [`wait_while`](Self::wait_while) does, but waits for at most `time`.
    ///
    /// # Errors
    /// If a holder of the mutex panicked.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        time: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let start = super::time::Instant::now();
        while condition(&mut guard) {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            guard = self.wait_timeout(guard, left)?.0;
        }
        Ok((guard, WaitTimeoutResult(false)))
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.notify(1);
        self.native.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
        self.native.notify_all();
    }

    fn notify(&self, count: usize) {
        if world::active() {
            self.notified.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            world::wake(key_of(self), count);
        }
    }

    /// Releases the mutex and waits. Returns whether there was a notification. No other thread runs between the release
    /// and the wait: the simulator switches threads before the releasing access, not after it.
    fn sleep<T>(&self, guard: MutexGuard<'_, T>, time: Option<u64>) -> bool {
        let notified = || self.notified.load(core::sync::atomic::Ordering::Relaxed);
        let before = notified();
        drop(guard);
        world::wait_while(key_of(self), time, || notified() == before)
    }
}

/// The counterpart of [`std::sync::RwLock`].
#[derive(Default)]
pub struct RwLock<T: ?Sized>(std_sync::RwLock<T>);

/// The counterpart of [`std::sync::RwLockReadGuard`].
#[must_use = "the lock is released when its guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized>(Held<std_sync::RwLockReadGuard<'a, T>>);

/// The counterpart of [`std::sync::RwLockWriteGuard`].
#[must_use = "the lock is released when its guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized>(Held<std_sync::RwLockWriteGuard<'a, T>>);

impl<T> RwLock<T> {
    /// Makes an unlocked lock.
    pub const fn new(value: T) -> Self {
        RwLock(std_sync::RwLock::new(value))
    }

    /// Returns the value.
    ///
    /// # Errors
    /// If a writer panicked.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    fn held<G: Deref<Target = T>>(&self, guard: G, writes: bool) -> Held<G> {
        let held = Held::new(key_of(self), guard);
        announce(&**held.real.guard, writes);
        held
    }

    /// Takes the lock for reading.
    ///
    /// # Errors
    /// If a writer panicked.
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let taken = if world::active() { acquire(key_of(self), || self.0.try_read()) } else { self.0.read() };
        map(taken, |guard| RwLockReadGuard(self.held(guard, false)))
    }

    /// Takes the lock for writing.
    ///
    /// # Errors
    /// If a writer panicked.
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let taken = if world::active() { acquire(key_of(self), || self.0.try_write()) } else { self.0.write() };
        map(taken, |guard| RwLockWriteGuard(self.held(guard, true)))
    }

    /// Takes the lock for reading if no writer holds it.
    ///
    /// # Errors
    /// If a writer holds it, or a writer panicked.
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        try_map(access(key_of(self), || self.0.try_read()), |guard| RwLockReadGuard(self.held(guard, false)))
    }

    /// Takes the lock for writing if it is free.
    ///
    /// # Errors
    /// If it is not free, or a writer panicked.
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        try_map(access(key_of(self), || self.0.try_write()), |guard| RwLockWriteGuard(self.held(guard, true)))
    }

    /// Returns a mutable reference to the value.
    ///
    /// # Errors
    /// If a writer panicked.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.real.guard
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.real.guard
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.real.guard
    }
}

/// The number of bytes of a cell that an aborted transaction restores: none, so a value that was made is kept.
const MADE: usize = 0;

/// The counterpart of [`std::sync::OnceLock`].
pub struct OnceLock<T> {
    value: std_sync::OnceLock<T>,
    /// Held by the thread that makes the value.
    making: Mutex<()>,
}

impl<T> OnceLock<T> {
    /// Makes a cell without a value.
    pub const fn new() -> Self {
        OnceLock { value: std_sync::OnceLock::new(), making: Mutex::new(()) }
    }

    /// Returns the value, if there is one.
    pub fn get(&self) -> Option<&T> {
        world::load(word(key_of(self)), MADE, || self.value.get())
    }

    /// Returns a mutable reference to the value, if there is one.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    /// Returns the value, which is made by `make` if there was none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.get().is_none() {
            let value = make();
            world::store(word(key_of(self)), MADE, || self.value.set(value).is_ok());
        }
        self.value.get().expect("it was set just now")
    }

    /// Sets the value.
    ///
    /// # Errors
    /// The given value, if the cell had a value already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("it is taken once"));
        value.map_or(Ok(()), Err)
    }

    /// Takes the value out.
    pub fn take(&mut self) -> Option<T> {
        self.value.take()
    }

    /// Returns the value, if there is one.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The counterpart of [`std::sync::LazyLock`].
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    make: std_sync::Mutex<Option<F>>,
}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// Makes a cell whose value `make` makes at its first use.
    pub const fn new(make: F) -> Self {
        LazyLock { value: OnceLock::new(), make: std_sync::Mutex::new(Some(make)) }
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.get_or_init(|| {
            let make = { self.make.lock().unwrap_or_else(PoisonError::into_inner).take() };
            make.expect("a lazy value's maker does not panic")()
        })
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The counterpart of [`std::sync::Barrier`].
#[derive(Debug)]
pub struct Barrier {
    threads: usize,
    /// The number of threads that have arrived in this round, and the number of completed rounds.
    state: Mutex<(usize, usize)>,
    over: Condvar,
}

/// The counterpart of [`std::sync::BarrierWaitResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns whether the caller arrived last: true for one thread of a round.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// Makes a barrier for this many threads.
    pub const fn new(threads: usize) -> Self {
        Barrier { threads, state: Mutex::new((0, 0)), over: Condvar::new() }
    }

    /// Waits until all threads have arrived.
    pub fn wait(&self) -> BarrierWaitResult {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        if state.0 >= self.threads {
            *state = (0, state.1 + 1);
            self.over.notify_all();
            return BarrierWaitResult(true);
        }
        let round = state.1;
        let over = self.over.wait_while(state, |state| state.1 == round);
        drop(over.unwrap_or_else(PoisonError::into_inner));
        BarrierWaitResult(false)
    }
}

//! The trait of structures that can be made concurrent (paper §3.1), and types that implement it for a state and
//! functions.

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;

use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{DistributedRwLock, RawDistributedRwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};

/// A single-threaded structure with typed operations.
///
/// `write` must be *deterministic* as far as its callers can observe. It is called once on every replica, after the
/// same sequence of earlier operations, and must return the same response and have the same effect on each. Random
/// values and times must be determined before the call, as parts of the operation. Randomness that no response shows
/// (the levels of a skip list) is permitted. Neither function may block.
///
/// Neither function may use the concurrent structure that contains this one, since the inner operation would wait for
/// the outer one. Builds with debug assertions panic in this case (inside `write`, the panic poisons the structure);
/// other builds hang.
///
/// To change several structures together, make them fields of one `Sequential` type.
///
/// ```
/// use archipelago::replicate::Sequential;
/// use std::collections::HashMap;
///
/// struct Words(HashMap<String, u64>);
///
/// impl Sequential for Words {
///     type Read = String;
///     type Write = (String, u64);
///     type Response = Option<u64>;
///
///     fn read(&self, word: &String) -> Option<u64> {
///         self.0.get(word).copied()
///     }
///
///     fn write(&mut self, (word, count): &(String, u64)) -> Option<u64> {
///         self.0.insert(word.clone(), *count)
///     }
/// }
/// ```
pub trait Sequential {
    /// An operation that changes nothing.
    type Read;
    /// An operation that may change the structure. All replicas read it, and it is dropped once.
    type Write;
    /// The response of both kinds of operations.
    type Response;

    /// Carries out a reading operation.
    fn read(&self, operation: &Self::Read) -> Self::Response;

    /// Carries out a changing operation.
    ///
    /// A panic poisons the concurrent structure.
    fn write(&mut self, operation: &Self::Write) -> Self::Response;

    /// Reads the data that `write` will need for this operation, so that it is in the processor's cache by then. The
    /// default implementation does nothing. A typical implementation looks up the key that will be changed.
    ///
    /// It is called while a change waits for readers to leave the structure, in parallel with them, so it uses time
    /// that would otherwise be lost. It is called for some changes only.
    ///
    /// A panic poisons the concurrent structure.
    fn prepare(&self, _operation: &Self::Write) {}
}

/// Takes the lock for a change. If it must wait for readers, calls `prepare` with the structure in the meantime.
#[inline]
pub(crate) fn lock_for_change<T>(data: &DistributedRwLock<T>, prepare: impl FnOnce(&T)) -> WriteGuard<'_, T> {
    // From here on no new reader enters, so the wait is short, whatever `prepare` does.
    let data = data.upgradable_read();
    RwLockUpgradableReadGuard::try_upgrade(data).unwrap_or_else(|data| {
        prepare(&data);
        RwLockUpgradableReadGuard::upgrade(data)
    })
}

/// Takes the lock for a change. If readers stay inside for longer than the spinning phase of a backoff, gives up and
/// returns `None`.
pub(crate) fn try_lock_for_change<T>(
    data: &DistributedRwLock<T>,
    prepare: impl FnOnce(&T),
) -> Option<WriteGuard<'_, T>> {
    let mut data = match RwLockUpgradableReadGuard::try_upgrade(data.try_upgradable_read()?) {
        Ok(data) => return Some(data),
        Err(data) => data,
    };
    prepare(&data);
    let backoff = Backoff::new();
    while !backoff.is_yielding() {
        backoff.wait();
        match RwLockUpgradableReadGuard::try_upgrade(data) {
            Ok(data) => return Some(data),
            Err(still) => data = still,
        }
    }
    None
}

pub(crate) type WriteGuard<'l, T> = RwLockWriteGuard<'l, RawDistributedRwLock, T>;

/// A state with one function that reads and one that writes, for structures without an implementation of
/// [`Sequential`].
///
/// ```
/// use archipelago::replicate::{FromFns, Replicated};
///
/// let sum = |value: &u64, _: &()| *value;
/// let add = |value: &mut u64, more: &u64| {
///     *value += more;
///     *value
/// };
/// let counter = Replicated::builder().replicas(2).build(|| FromFns::new(0, sum, add));
/// let mut handle = counter.handle();
/// assert_eq!(handle.write(40)?, 40);
/// assert_eq!(handle.write(2)?, 42);
/// assert_eq!(handle.read(&())?, 42);
/// # Ok::<(), archipelago::replicate::Poisoned>(())
/// ```
pub struct FromFns<S, R, W, A, FR, FW> {
    state: S,
    read: FR,
    write: FW,
    operations: PhantomData<fn(&R, &W) -> A>,
}

impl<S, R, W, A, FR: Fn(&S, &R) -> A, FW: Fn(&mut S, &W) -> A> FromFns<S, R, W, A, FR, FW> {
    /// Makes a structure with this state and these functions.
    pub fn new(state: S, read: FR, write: FW) -> Self {
        Self { state, read, write, operations: PhantomData }
    }

    /// Returns the state.
    pub fn state(&self) -> &S {
        &self.state
    }
}

impl<S, R, W, A, FR: Fn(&S, &R) -> A, FW: Fn(&mut S, &W) -> A> Sequential for FromFns<S, R, W, A, FR, FW> {
    type Read = R;
    type Write = W;
    type Response = A;

    fn read(&self, operation: &R) -> A {
        (self.read)(&self.state, operation)
    }

    fn write(&mut self, operation: &W) -> A {
        (self.write)(&mut self.state, operation)
    }
}

impl<S: Clone, R, W, A, FR: Clone, FW: Clone> Clone for FromFns<S, R, W, A, FR, FW> {
    fn clone(&self) -> Self {
        let Self { state, read, write, .. } = self;
        Self { state: state.clone(), read: read.clone(), write: write.clone(), operations: PhantomData }
    }
}

impl<S: fmt::Debug, R, W, A, FR, FW> fmt::Debug for FromFns<S, R, W, A, FR, FW> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFns").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A change in the form of a closure. It is called once per replica.
type Change<S> = Box<dyn Fn(&mut S) -> Box<dyn Any + Send> + Send + Sync>;

/// A state whose operations are closures. For quick use: every operation costs two allocations and an indirect call.
///
/// Handles of `Replicated<Closures<S>>` have [`view`](crate::Handle::view) and [`update`](crate::Handle::update).
///
/// ```
/// use archipelago::replicate::{Closures, Replicated};
/// use std::collections::BTreeMap;
///
/// let map = Replicated::new(|| Closures::new(BTreeMap::new()));
/// let mut map = map.handle();
/// assert_eq!(map.update(|map| map.insert("one", 1))?, None);
/// assert_eq!(map.view(|map| map.get("one").copied())?, Some(1));
/// # Ok::<(), archipelago::replicate::Poisoned>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Closures<S>(S);

impl<S> Closures<S> {
    /// Makes a structure with this state.
    pub fn new(state: S) -> Self {
        Self(state)
    }

    /// Returns the state.
    pub fn state(&self) -> &S {
        &self.0
    }
}

/// A changing operation of [`Closures`].
pub struct ClosureWrite<S>(Change<S>);

impl<S> ClosureWrite<S> {
    pub(crate) fn new<R: Send + 'static>(change: impl Fn(&mut S) -> R + Send + Sync + 'static) -> Self {
        Self(Box::new(move |state| Box::new(change(state))))
    }
}

impl<S> Sequential for Closures<S> {
    type Read = ();
    type Write = ClosureWrite<S>;
    type Response = Box<dyn Any + Send>;

    /// Returns an empty response: `view` reads the state itself.
    fn read(&self, (): &()) -> Self::Response {
        Box::new(())
    }

    fn write(&mut self, operation: &ClosureWrite<S>) -> Self::Response {
        (operation.0)(&mut self.0)
    }
}

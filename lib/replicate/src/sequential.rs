//! What a structure must offer to be made concurrent (paper §3.1), and ways to offer it without writing a type.

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;

use archipelago_sync::backoff::Backoff;
use archipelago_sync::lock::{DistributedRwLock, RawDistributedRwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};

/// A single-threaded structure with typed operations.
///
/// `write` must be *deterministic* as far as anyone can see: it is called once per replica, with replicas that went
/// through the same operations before, and must return the same response and have the same effect each time. Whatever
/// is random or depends on time belongs into the operation, decided before it is handed over; randomness inside that no
/// response shows (the levels of a skip list) is fine. Neither function may block.
///
/// No function of it may use the concurrent structure that it is part of: the inner operation would wait for the outer
/// one. Builds with debug assertions panic instead (inside `write` that poisons the structure); others hang.
///
/// Several structures that are to change together are one `Sequential` type with the structures as fields.
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
    /// An operation that may change the structure. It is read by all replicas and dropped once.
    type Write;
    /// What either is answered with.
    type Response;

    /// Carries out a reading operation.
    fn read(&self, operation: &Self::Read) -> Self::Response;

    /// Carries out a changing operation.
    ///
    /// A panic poisons the concurrent structure.
    fn write(&mut self, operation: &Self::Write) -> Self::Response;

    /// Looks at what `write` with this operation will need, so that it is in the processor's cache by then. Does nothing
    /// unless implemented, and need not be: a look-up of the key that will be changed is all that it is for.
    ///
    /// It is called while a change waits for readers to leave, in parallel with them, in time that is lost otherwise;
    /// for some changes, and not for others.
    ///
    /// A panic poisons the concurrent structure.
    fn prepare(&self, _operation: &Self::Write) {}
}

/// Takes the lock for a change, and lets `prepare` look at the structure if there are readers to wait for.
#[inline]
pub(crate) fn lock_for_change<T>(data: &DistributedRwLock<T>, prepare: impl FnOnce(&T)) -> WriteGuard<'_, T> {
    // From here on no reader comes in, so that the wait is short whatever `prepare` does.
    let data = data.upgradable_read();
    RwLockUpgradableReadGuard::try_upgrade(data).unwrap_or_else(|data| {
        prepare(&data);
        RwLockUpgradableReadGuard::upgrade(data)
    })
}

/// Takes the lock for a change unless readers stay inside: waits for them as long as a thread spins, no longer.
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

/// A state with one function that reads and one that writes, for when a type of one's own is too much.
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
    /// A structure with this state and these functions.
    pub fn new(state: S, read: FR, write: FW) -> Self {
        Self { state, read, write, operations: PhantomData }
    }

    /// The state.
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

/// A change given as a closure. It is called once per replica.
type Change<S> = Box<dyn Fn(&mut S) -> Box<dyn Any + Send> + Send + Sync>;

/// A state whose operations are closures, for quick use: every operation costs two allocations and an indirect call.
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
    /// A structure with this state.
    pub fn new(state: S) -> Self {
        Self(state)
    }

    /// The state.
    pub fn state(&self) -> &S {
        &self.0
    }
}

/// An operation of [`Closures`].
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

    /// Answers nothing: `view` reads the state itself.
    fn read(&self, (): &()) -> Self::Response {
        Box::new(())
    }

    fn write(&mut self, operation: &ClosureWrite<S>) -> Self::Response {
        (operation.0)(&mut self.0)
    }
}

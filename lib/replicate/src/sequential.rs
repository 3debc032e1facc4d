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
/// same sequence of earlier operations. It must return the same response and have the same effect on each replica.
/// Random values and times must be determined before the call, as parts of the operation. Randomness that no response
/// shows (the levels of a skip list) is permitted. Neither function may block.
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
    ///
    /// ```
    /// # use archipelago::replicate::Sequential;
    /// # struct Sums(std::collections::BTreeMap<u64, u64>);
    /// impl Sequential for Sums {
    /// #     type Read = u64;
    /// #     type Write = (u64, u64);
    /// #     type Response = u64;
    /// #     fn read(&self, key: &u64) -> u64 { self.0[key] }
    ///     fn write(&mut self, &(key, more): &(u64, u64)) -> u64 {
    ///         let sum = self.0.entry(key).or_default();
    ///         *sum += more;
    ///         *sum
    ///     }
    ///
    ///     fn prepare(&self, (key, _): &(u64, u64)) {
    ///         std::hint::black_box(self.0.get(key)); // loads the nodes on the path to the key
    ///     }
    /// }
    /// ```
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
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Sequential};
    ///
    /// // `read` and `write` have the same type of response.
    /// let find = |list: &Vec<u64>, number: &u64| list.iter().position(|at| at == number);
    /// let push = |list: &mut Vec<u64>, number: &u64| { list.push(*number); Some(list.len() - 1) };
    /// let mut list = FromFns::new(Vec::new(), find, push);
    /// assert_eq!((list.write(&7), list.read(&7), list.read(&8)), (Some(0), Some(0), None));
    /// ```
    pub fn new(state: S, read: FR, write: FW) -> Self {
        Self { state, read, write, operations: PhantomData }
    }

    /// Returns the state.
    ///
    /// ```
    /// use archipelago::replicate::{FromFns, Replicated};
    ///
    /// let add = |sum: &mut u64, more: &u64| { *sum += more; *sum };
    /// let sum = Replicated::new(|| FromFns::new(0, |sum: &u64, _: &()| *sum, add));
    /// sum.handle().write(42)?;
    /// assert_eq!(sum.inspect(0, |replica| *replica.state())?, 42);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
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
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// // The closure is called once for each replica. All calls return equal states.
    /// let list = Replicated::builder().replicas(2).build(|| Closures::new(vec![1, 2]));
    /// list.handle_on(0).update(|list| list.push(3))?;
    /// assert_eq!(list.handle_on(1).view(|list| list.len())?, 3);
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
    pub fn new(state: S) -> Self {
        Self(state)
    }

    /// Returns the state.
    ///
    /// ```
    /// use archipelago::replicate::{Closures, Replicated};
    ///
    /// let list = Replicated::new(|| Closures::new(vec![3, 1, 2]));
    /// let copy = list.replica_snapshot(0)?;
    /// assert_eq!(copy.state(), &[3, 1, 2]); // of a copy, without a handle
    /// # Ok::<(), archipelago::replicate::Poisoned>(())
    /// ```
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

//! RCX: locks for the updaters of RCU-protected structures on NUMA machines (Park, McKenney, Dufour and Yeom).
//!
//! An update names the objects that it changes and locks all of them. Each object has a lock of two levels: a *local*
//! byte for each NUMA node, and a *global* word. A thread first takes the bytes of its own node, for all the objects at
//! once: in one hardware transaction, if the processor supports them. It then takes the global words, one after the
//! other. Readers only use RCU.
//!
//! - The transaction accesses only bytes of its own node, and readers do not access these bytes. So the transaction
//!   touches no remote memory, and readers do not abort it. The transaction takes all bytes or none, so it needs no
//!   order of the bytes.
//! - At most one thread of each node competes for an object's global word.
//!
//! # States
//! The states of an object for one node *n*:
//!
//! | local byte of *n* | global word | meaning |
//! |---|---|---|
//! | 0 | 0, or another node | no thread of *n* holds or is acquiring the object |
//! | 1 | 0, or another node | a thread of *n* has the byte and waits for a global word, or is about to give up |
//! | 1 | *n* | a thread of *n* holds the object, or has inherited the word and is about to hold the object |
//! | 0 | *n* | with [hand-over](Builder::passes): the word is left to the next thread of *n*, which is registered at the byte; or the word is about to be taken back |
//!
//! In an [`Rcx`] for one node, the local byte is the whole lock.
//!
//! # Why it cannot deadlock
//! Global words are taken in one order ([`InOrder`]). With hand-over, an unlocking thread may leave a word to the next
//! thread of its node, which then holds this word out of order. Three rules limit this:
//!
//! 1. A thread that waits for a local byte holds no byte and no word.
//! 2. A thread that waits for a global word holds all its bytes, and only those of its words that precede the awaited
//!    word in the order. Later words may have been left to the thread, because it holds their bytes. It gives up such
//!    later words before it waits.
//! 3. A word that is left belongs to no thread. Its byte is free, and a thread is registered that waits for this byte
//!    and for nothing else. The next step of the registered thread takes the byte or gives the word up.
//!
//! A thread that waits for a byte waits for a thread that holds the object, or for a thread of rule 2. A thread of rule
//! 2 waits for one of three: a thread that holds the object, a thread that waits for a *later* word, or a step of a
//! registered thread. So the chain of waits from any waiting thread follows the order upwards, and it ends at a thread
//! that can continue.
//!
//! Each attempt is also bounded: [`Rcx::try_lock`] gives up after some time. The caller can then leave its RCU section.
//! (The holder of the lock may be waiting for the end of this section.) The invariants on which hand-over depends are
//! stated in `rcx/words.rs`.
//!
//! # How long an attempt waits
//! [`Rcx::try_lock`] counts turns of a spin loop: at most 63 for all bytes and words of the set together, and 28 more
//! between transactions that other threads abort. Together they take one to five microseconds. `try_lock` never yields
//! the processor. [`Rcx::lock`] yields the processor between attempts, while it holds nothing. Hand-over leaves a word
//! only to threads that spin: a thread that has yielded may not run again for a long time.
//!
//! # Orderings
//! The global word orders the accesses of an object's holders: the thread that takes the word synchronizes, by an
//! Acquire, with the Release of the thread that gave it up. (On one node, the local byte alone does this.) This order
//! does not depend on local bytes. They, too, are taken with Acquire and given up with Release. So a thread that takes
//! a byte sees the state in which its predecessor on the node left the global word. Hand-over depends on this. A
//! transaction that commits has the ordering of a sequentially consistent fence.
//!
//! # Differences from the original
//! - Attempts are bounded. Without transactions, the bytes are taken by compare-and-exchange in order; if one is taken,
//!   the thread gives up the earlier ones. (The original repeats its transaction without limit, which never ends if
//!   every transaction aborts.)
//! - The guard stores the node by which it locked. The original determines the node again when it unlocks, so after a
//!   migration it unlocks another node's byte.
//! - Except in a hand-over, global words are given up before local bytes. Otherwise the node's next thread would get
//!   the byte while the word is still held.
//! - A padded lock is given back when its object has left the structure, not when the object's memory is freed
//!   ([`Rcx::give_back`]). So garbage occupies little memory.
//! - The number of nodes is not limited. Padding is chosen at run time. On one node there is no global word to take. An
//!   update of one object takes its byte by compare-and-exchange, which is cheaper than a transaction. An update of
//!   more than 16 objects takes its bytes in order, without a transaction.
//! - The memory-efficient variant, which the authors' talk mentions and for which no code is published, is implemented
//!   here as a table of locks to which objects are hashed: [`Striped`].
//!
//! ```
//! use archipelago::sync::rcx::{InOrder, Rcx};
//!
//! let rcx: Rcx = Rcx::new();
//! let (a, b) = (rcx.object(), rcx.object());
//! let mut both = vec![rcx.handle(&b), rcx.handle(&a)];
//! let held = rcx.lock(rcx.order(&mut both));
//! let a_alone = rcx.handle(&a);
//! assert!(rcx.try_lock(InOrder::one(&a_alone)).is_none());
//! drop(held);
//! assert!(rcx.try_lock(InOrder::one(&a_alone)).is_some());
//! [a, b].iter().for_each(|object| rcx.give_back(object));
//! ```
//!
//! # A list
//! Readers traverse the list in a guard, without a lock. An update locks the node that it changes and the node that it
//! removes:
//!
//! ```
//! use archipelago::sync::rcu::{Domain, Guard};
//! use archipelago::sync::rcx::{InOrder, Object, Rcx};
//! use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
//!
//! struct Node { key: u64, next: AtomicPtr<Node>, removed: AtomicBool, lock: Object }
//! struct List { rcx: Rcx, domain: Domain, head: Node }
//!
//! impl List {
//!     /// Returns the last node before the key, and the node after it.
//!     fn find<'g>(&'g self, key: u64, _: &'g Guard<'_>) -> (&'g Node, *mut Node) {
//!         let mut before = &self.head;
//!         loop {
//!             let next = before.next.load(Acquire);
//!             // SAFETY: the node was linked when it was read, so the guard keeps it.
//!             match unsafe { next.as_ref() } {
//!                 Some(node) if node.key < key => before = node,
//!                 _ => return (before, next),
//!             }
//!         }
//!     }
//!
//!     fn remove(&self, key: u64) -> bool {
//!         loop {
//!             // The guard comes first: it keeps the found nodes in memory, and handles and locks borrow them.
//!             let guard = self.domain.pin();
//!             let (before, next) = self.find(key, &guard);
//!             // SAFETY: as above.
//!             let Some(node) = (unsafe { next.as_ref() }).filter(|node| node.key == key) else { return false };
//!             // In a guard only `try_lock` may be called: the lock's holder might wait for readers, and this thread is
//!             // one of them. If the lock is refused, this thread leaves the guard before it waits.
//!             let mut both = vec![self.rcx.handle(&before.lock), self.rcx.handle(&node.lock)];
//!             let Some(held) = self.rcx.try_lock(self.rcx.order(&mut both)) else {
//!                 drop(guard);
//!                 std::thread::yield_now();
//!                 continue;
//!             };
//!             // The links were read before they were locked, so they may have changed. From here on they cannot.
//!             if before.removed.load(Relaxed) || before.next.load(Relaxed) != next {
//!                 continue;
//!             }
//!             // Marked under its lock: a thread that found the node earlier sees that it has left the list.
//!             node.removed.store(true, Relaxed);
//!             before.next.store(node.next.load(Relaxed), Release);
//!             drop(held);
//!             // The lock can be given to another object as soon as the node is marked and unlocked. The node's memory is
//!             // retired last, because `give_back` borrows it. It is freed when no reader can use it any more.
//!             self.rcx.give_back(&node.lock);
//!             // SAFETY: allocated by a box, and unlinked by this thread alone.
//!             unsafe { guard.retire_box(next) };
//!             return true;
//!         }
//!     }
//! #
//! #   fn insert(&self, key: u64) {
//! #       loop {
//! #           let guard = self.domain.pin();
//! #           let (before, next) = self.find(key, &guard);
//! #           let handle = self.rcx.handle(&before.lock);
//! #           let Some(_held) = self.rcx.try_lock(InOrder::one(&handle)) else { continue };
//! #           if before.removed.load(Relaxed) || before.next.load(Relaxed) != next {
//! #               continue;
//! #           }
//! #           return before.next.store(Box::into_raw(Box::new(node(&self.rcx, key, next))), Release);
//! #       }
//! #   }
//! }
//! #
//! # fn node(rcx: &Rcx, key: u64, next: *mut Node) -> Node {
//! #   Node { key, next: AtomicPtr::new(next), removed: AtomicBool::new(false), lock: rcx.object() }
//! # }
//! #
//! # impl Drop for List {
//! #   fn drop(&mut self) {
//! #       let mut next = *self.head.next.get_mut();
//! #       while !next.is_null() {
//! #           // SAFETY: from a box, and the list is this thread's alone.
//! #           next = *unsafe { Box::from_raw(next) }.next.get_mut();
//! #       }
//! #   }
//! # }
//! #
//! # let rcx = Rcx::builder().nodes(2).build();
//! # let head = node(&rcx, 0, std::ptr::null_mut());
//! # let list = List { rcx, domain: Domain::new(), head };
//! # (1..=300).for_each(|key| list.insert(key));
//! # let removed = std::thread::scope(|scope| {
//! #   let remove = || (1..=300).filter(|key| list.remove(*key)).count();
//! #   let others: Vec<_> = (0..2).map(|_| scope.spawn(remove)).collect();
//! #   remove() + others.into_iter().map(|other| other.join().unwrap()).sum::<usize>()
//! # });
//! # assert_eq!(removed, 300);
//! # assert!(list.head.next.load(Relaxed).is_null());
//! ```

mod attempt;
mod bytes;
mod embedded;
mod handle;
mod pool;
mod striped;
mod words;

use archipelago_platform::atomic::Ordering;
use archipelago_platform::htm::{Htm, Site, refuse_in_regions};
use archipelago_platform::thread;

pub use embedded::{Embedded, Object, ToLock};
pub use handle::{Handle, InOrder};
pub use striped::{Stripe, Striped, ToStripe};

use attempt::{Patience, Set};
use handle::{Access, refuse_foreign};

/// The site under which transactions that take local bytes are counted.
pub static LOCAL: Site = Site::new("rcx: local locks");

/// Points in the code at which a simulated schedule can stop a thread.
pub mod points {
    /// All objects are locked.
    pub const HELD: &str = "rcx: held";
    /// The local bytes are taken; the global words are not.
    pub const ADMITTED: &str = "rcx: admitted";
}

/// How the locks of objects are stored. This trait is sealed, and a lock's parts are private. Structures built on
/// [`Rcx`] depend on this: no other code can break the rule that at most one thread holds an object.
///
/// ```compile_fail,E0624
/// # use archipelago::sync::rcx::Locks;
/// fn unlock<L: Locks>(locks: &L, object: &L::Object) {
///     locks.lock_of(object).local(0); // private
/// }
/// ```
pub trait Locks: sealed::Sealed + Send + Sync + Sized {
    /// The part of the lock that is stored in an object.
    type Object: Send + Sync;

    /// A reference to an object's lock.
    #[expect(private_bounds, reason = "no program takes a byte or a word but by an `Rcx`")]
    type Lock<'o>: Access<'o> + Send + Sync
    where
        Self: 'o;

    /// Makes the locks for a machine of `nodes` nodes.
    fn make(nodes: usize, padding: Padding) -> Self;

    /// Returns the number of nodes for which the locks were made.
    fn nodes(&self) -> usize;

    /// Returns the lock part to store in a new object.
    fn object(&self) -> Self::Object;

    /// Tells the locks that the object has left its structure: see [`Rcx::give_back`].
    fn give_back(&self, object: &Self::Object);

    /// Returns a reference to an object's lock.
    ///
    /// # Panics
    /// As for [`Rcx::handle`].
    fn lock_of<'o>(&'o self, object: &'o Self::Object) -> Self::Lock<'o>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Embedded {}
    impl Sealed for super::Striped {}
}

/// How far the nodes' bytes of one lock are apart in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// One byte for each node, stored in the object, for at most seven nodes. With more nodes, [`Lines`](Self::Lines)
    /// is used instead.
    Compact,
    /// A pair of cache lines for each node, stored outside the object.
    Lines,
}

/// Configures an [`Rcx`]. Made by [`Rcx::builder`].
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    nodes: Option<usize>,
    padding: Option<Padding>,
    transactions: bool,
    passes: u32,
}

impl Builder {
    /// Sets the number of nodes (0 counts as 1) among which threads are distributed. The default is the topology's
    /// number of nodes.
    #[must_use]
    pub fn nodes(self, nodes: usize) -> Self {
        Self { nodes: Some(nodes.max(1)), ..self }
    }

    /// Sets the padding. The default is `Compact` on one node and `Lines` on several.
    #[must_use]
    pub fn padding(self, padding: Padding) -> Self {
        Self { padding: Some(padding), ..self }
    }

    /// Disables transactions.
    #[must_use]
    pub fn without_transactions(self) -> Self {
        Self { transactions: false, ..self }
    }

    /// Enables hand-over: a holder that unlocks leaves the global words to the next thread of its node, at most
    /// `passes` times in a row. The default is 0, no hand-over. Only padded locks support hand-over, since others have
    /// no room for its counters.
    #[must_use]
    pub fn passes(self, passes: u32) -> Self {
        Self { passes, ..self }
    }

    /// Builds an `Rcx` whose locks are embedded in the objects.
    pub fn build(self) -> Rcx {
        self.build_with(Embedded::make)
    }

    /// Builds an `Rcx` whose locks are made by `make`, which is called with the number of nodes and the padding.
    ///
    /// # Panics
    /// If `make` makes them for another number of nodes.
    pub fn build_with<L: Locks>(self, make: impl FnOnce(usize, Padding) -> L) -> Rcx<L> {
        let real = crate::lock::nodes::count();
        let nodes = self.nodes.unwrap_or(real);
        let padding = self.padding.unwrap_or(if nodes == 1 { Padding::Compact } else { Padding::Lines });
        let locks = make(nodes, padding);
        assert_eq!(locks.nodes(), nodes, "locks for another number of nodes");
        Rcx {
            locks,
            nodes,
            imagined: nodes != real,
            htm: if self.transactions { Htm::get() } else { None },
            passes: if nodes == 1 { 0 } else { self.passes },
        }
    }
}

/// Locks of two levels for the objects of a structure. See [the module](self).
#[derive(Debug)]
pub struct Rcx<L: Locks = Embedded> {
    locks: L,
    nodes: usize,
    /// Whether `nodes` differs from the topology's number of nodes.
    imagined: bool,
    htm: Option<Htm>,
    passes: u32,
}

impl Rcx {
    /// Returns a builder for an `Rcx` with embedded locks.
    pub fn builder() -> Builder {
        Builder { nodes: None, padding: None, transactions: true, passes: 0 }
    }

    /// Returns a builder for fine-grained locks of one byte per object, which are taken in order. Benchmarks compare
    /// RCX with them. They are RCX on one node without transactions.
    pub fn fine_grained() -> Builder {
        Self::builder().nodes(1).without_transactions()
    }
}

impl<L: Locks> Rcx<L> {
    /// Makes an `Rcx` for this machine.
    pub fn new() -> Self {
        Rcx::builder().build_with(L::make)
    }

    /// Returns whether sets of 2 to 16 objects first try to take their local bytes in a transaction.
    pub fn is_transactional(&self) -> bool {
        self.htm.is_some()
    }

    /// Returns the locks.
    pub fn locks(&self) -> &L {
        &self.locks
    }

    /// Returns the lock part to store in a new object.
    pub fn object(&self) -> L::Object {
        self.locks.object()
    }

    /// Tells the `Rcx` that an object has left its structure, so that no thread will lock it any more to change it. A
    /// thread that found the object earlier may still lock it, and must then detect that the object was removed.
    /// Depending on the kind of locks, the object's lock may be reused for another object from now on. A padded object
    /// that is dropped without being given back uses memory for as long as the `Rcx` lives.
    ///
    /// # Panics
    /// As for [`handle`](Self::handle), for padded objects.
    pub fn give_back(&self, object: &L::Object) {
        self.locks.give_back(object);
    }

    /// Returns the handle of an object.
    ///
    /// ```compile_fail,E0502
    /// # use archipelago::sync::rcx::{InOrder, Rcx, Striped};
    /// let rcx: Rcx<Striped> = Rcx::new();
    /// let mut objects = vec![rcx.object()];
    /// let first = rcx.handle(&objects[0]);
    /// let held = rcx.lock(InOrder::one(&first));
    /// objects.push(rcx.object()); // might move the object, which is locked
    /// drop(held);
    /// ```
    ///
    /// # Panics
    /// If the object was made by another `Rcx`. This is not detected for a [`Stripe`]. It is also not detected for
    /// unpadded objects if both `Rcx` were built for one node, or both for several: such objects contain their whole
    /// lock, so either `Rcx` can lock them.
    #[inline]
    pub fn handle<'o>(&'o self, object: &'o L::Object) -> Handle<'o, L> {
        Handle::new(&self.locks, object)
    }

    /// Sorts handles into the order of global words and removes duplicates, as [`lock`](Self::lock) requires.
    ///
    /// # Panics
    /// If a handle belongs to another `Rcx`.
    #[inline]
    pub fn order<'a, 'o>(&'o self, handles: &'a mut Vec<Handle<'o, L>>) -> InOrder<'a, 'o, L> {
        InOrder::sort(&self.locks, handles)
    }

    /// Locks all the objects. It spins for some microseconds, then yields the processor between short spins.
    ///
    /// Must not be called in two cases, in which the call would never return: within an RCU section for whose end a
    /// holder might wait, and by a thread that has locked one of the objects. A thread that locks one set while it
    /// holds another must keep an order of its own among the sets. With [`Striped`] no order helps, since objects of
    /// different sets may share a stripe: a thread that holds a set uses [`try_lock`](Self::try_lock) for a second one,
    /// or locks both as one set.
    ///
    /// # Panics
    /// As for [`try_lock`](Self::try_lock).
    pub fn lock<'a, 'o>(&'o self, handles: InOrder<'a, 'o, L>) -> SetGuard<'a, 'o, L> {
        let mut patience = Patience::new();
        loop {
            if let Some(guard) = self.attempt(handles, &mut patience) {
                return guard;
            }
            thread::yield_now();
            patience = Patience::after_yield();
        }
    }

    /// Locks all the objects. If the waits for them take more than 63 turns of a spin loop in all (some microseconds),
    /// the call gives up and locks none. It does not yield the processor. So if the holder of an object is not running,
    /// the attempt fails after the 63 turns.
    ///
    /// # Panics
    /// If a handle belongs to another `Rcx`, before anything is locked. With debug assertions, also in the body of a
    /// [region](crate::region).
    #[inline]
    pub fn try_lock<'a, 'o>(&'o self, handles: InOrder<'a, 'o, L>) -> Option<SetGuard<'a, 'o, L>> {
        self.attempt(handles, &mut Patience::new())
    }

    /// Nothing after the two checks panics, so no panic leaves an object locked.
    #[inline]
    fn attempt<'a, 'o>(
        &'o self,
        InOrder(handles): InOrder<'a, 'o, L>,
        patience: &mut Patience,
    ) -> Option<SetGuard<'a, 'o, L>> {
        refuse_in_regions("locking");
        refuse_foreign(&self.locks, handles);
        let set = Set { rcx: self, handles, node: self.here() };
        set.lock(patience).then(|| SetGuard(set))
    }

    #[inline]
    fn here(&self) -> usize {
        if self.nodes == 1 {
            0
        } else if self.imagined {
            thread::slot().index % self.nodes
        } else {
            // May be out of date, which only costs time: the guard unlocks by the same node.
            crate::lock::nodes::here() % self.nodes
        }
    }

    /// Asserts that no thread holds or is acquiring these objects. For tests, when all threads are done.
    ///
    /// # Panics
    /// If a byte, a word or a queue is in use, or an object belongs to another `Rcx`.
    pub fn check_invariants<'o>(&'o self, objects: impl IntoIterator<Item = &'o L::Object>) {
        for (at, object) in objects.into_iter().enumerate() {
            let lock = self.handle(object).lock;
            assert_eq!(lock.global().load(Ordering::Acquire), 0, "the global word of object {at}");
            for node in 0..self.nodes {
                assert_eq!(lock.local(node).load(Ordering::Acquire), 0, "object {at}'s byte of node {node}");
                let waiting = lock.queue(node).map_or(0, |queue| queue.waiting.load(Ordering::Acquire));
                assert_eq!(waiting, 0, "threads registered at object {at}'s byte of node {node}");
            }
        }
    }
}

impl<L: Locks> Default for Rcx<L> {
    fn default() -> Self {
        Self::new()
    }
}

/// Locked objects. Dropping the guard unlocks them, by the node by which they were locked. Leaking it leaves them
/// locked.
#[must_use]
pub struct SetGuard<'a, 'o, L: Locks>(Set<'a, 'o, L>);

impl<L: Locks> Drop for SetGuard<'_, '_, L> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn each(test: impl Fn(Builder)) {
        let counts: &[usize] = if cfg!(miri) { &[1, 3] } else { &[1, 2, 4, 8, 11] };
        for &nodes in counts {
            for padding in [Padding::Compact, Padding::Lines] {
                let builder = Rcx::builder().nodes(nodes).padding(padding);
                [builder, builder.without_transactions(), builder.passes(2)].into_iter().for_each(&test);
            }
        }
    }

    #[test]
    fn all_or_none_are_locked_however_many() {
        each(|builder| {
            let rcx: Rcx = builder.build();
            let objects: Vec<Object> = (0..40).map(|_| rcx.object()).collect();
            let mut all: Vec<_> = objects.iter().chain(&objects[3..5]).map(|object| rcx.handle(object)).collect();
            let InOrder(all) = rcx.order(&mut all);
            assert_eq!(all.len(), 40);
            let third = rcx.try_lock(InOrder::one(&all[3])).expect("free");
            assert!(rcx.try_lock(InOrder(&all[..8])).is_none() && rcx.try_lock(InOrder(all)).is_none());
            // Those attempts left nothing locked.
            drop(rcx.try_lock(InOrder(&all[..3])).expect("free"));
            drop(third);
            let held = rcx.try_lock(InOrder(all)).expect("free");
            assert!(all.iter().all(|object| rcx.try_lock(InOrder::one(object)).is_none()));
            drop(held);
            drop(rcx.lock(InOrder(all)));
        });
    }

    /// The guard is sent to a thread on another node and dropped there.
    #[test]
    fn a_guard_unlocks_by_the_node_by_which_it_locked() {
        each(|builder| {
            let rcx: Rcx = builder.build();
            let objects = [rcx.object(), rcx.object()];
            let mut handles = objects.each_ref().map(|object| rcx.handle(object)).to_vec();
            let handles = rcx.order(&mut handles);
            let held = rcx.lock(handles);
            thread::scope(|scope| {
                let other = scope.spawn(|| {
                    drop(held);
                    rcx.try_lock(handles).is_some()
                });
                assert!(other.join().unwrap());
            });
            assert!(rcx.try_lock(handles).is_some());
        });
    }

    /// The stripes of both tables have the same number. One of them would be removed as a duplicate, and its object
    /// would not be locked.
    #[test]
    fn stripes_of_another_table_are_no_doubles() {
        let make = || Rcx::builder().nodes(2).build_with(|nodes, _| Striped::with_stripes(nodes, 1));
        let [one, other]: [Rcx<Striped>; 2] = core::array::from_fn(|_| make());
        let (mine, foreign) = (one.object(), other.object());
        for handles in [[one.handle(&mine), other.handle(&foreign)], [other.handle(&foreign), one.handle(&mine)]] {
            let mut handles = handles.to_vec();
            catch_unwind(AssertUnwindSafe(|| _ = one.order(&mut handles))).expect_err("a handle of another");
        }
    }

    #[test]
    fn objects_of_one_stripe_are_one() {
        let rcx: Rcx<Striped> = Rcx::builder().nodes(3).build_with(|nodes, _| Striped::with_stripes(nodes, 1));
        let objects = [rcx.object(), rcx.object()];
        let mut handles: Vec<_> = objects.iter().map(|object| rcx.handle(object)).collect();
        let handles = rcx.order(&mut handles);
        assert_eq!(handles.0.len(), 1);
        let held = rcx.lock(handles);
        assert!(rcx.try_lock(handles).is_none());
        drop(held);
    }

    /// Each of the two `Rcx`, which are built alike, refuses the set, and no object of either is locked.
    #[test]
    fn handles_of_another_are_refused_before_anything_is_locked() {
        let [one, other]: [Rcx; 2] = core::array::from_fn(|_| Rcx::builder().nodes(2).build());
        let objects = [one.object(), one.object(), other.object()];
        for last in [&one, &other] {
            let handles = vec![one.handle(&objects[0]), one.handle(&objects[1]), other.handle(&objects[2])];
            let refused = |attempt: &dyn Fn()| {
                let message = catch_unwind(AssertUnwindSafe(attempt)).expect_err("a handle of another");
                assert_eq!(message.downcast_ref(), Some(&"a handle of another `Rcx`"));
            };
            refused(&|| drop(last.try_lock(InOrder(&handles))));
            refused(&|| _ = last.order(&mut handles.clone()));
        }
        one.check_invariants(&objects[..2]);
        other.check_invariants(&objects[2..]);
        let rcx: [Rcx<Striped>; 2] = [5, 4_000]
            .map(|stripes| Rcx::builder().nodes(2).build_with(|nodes, _| Striped::with_stripes(nodes, stripes)));
        let object = rcx[0].object();
        let handle = rcx[1].handle(&object);
        catch_unwind(AssertUnwindSafe(|| drop(rcx[0].lock(InOrder::one(&handle))))).expect_err("of another table");
    }

    #[test]
    #[should_panic(expected = "locks for another number of nodes")]
    fn locks_are_made_for_the_nodes_that_there_are() {
        _ = Rcx::builder().nodes(4).build_with(|_, _| Striped::with_stripes(2, 8));
    }

    /// An attempt in the body of a region is refused before anything is locked. A guard that is dropped by a panic
    /// unlocks.
    #[test]
    fn a_panic_leaves_nothing_locked() {
        each(|builder| {
            let rcx: Rcx = builder.build();
            let objects = [rcx.object(), rcx.object(), rcx.object()];
            let mut handles: Vec<_> = objects.iter().map(|object| rcx.handle(object)).collect();
            let handles = rcx.order(&mut handles);
            let within = catch_unwind(AssertUnwindSafe(|| {
                let _held = rcx.lock(handles);
                panic!("with all of them locked");
            }));
            within.expect_err("it panicked");
            rcx.check_invariants(&objects);
            let held = rcx.lock(InOrder::one(&handles.0[2]));
            let in_a_region = catch_unwind(AssertUnwindSafe(|| {
                let _quiet = archipelago_platform::htm::quiet();
                drop(rcx.try_lock(handles));
            }));
            assert_eq!(in_a_region.is_err(), cfg!(debug_assertions));
            drop(held);
            rcx.check_invariants(&objects);
        });
    }

    /// More threads than cores, some of which call `try_lock` and some `lock`, all end: no object stays locked.
    #[test]
    fn threads_leave_nothing_locked() {
        let (rounds, sets, threads) = if cfg!(miri) { (2, 5, 4) } else { (60, 60, 12) };
        for round in 0..rounds {
            let rcx = Rcx::builder().nodes(2).padding(Padding::Lines).passes(1 + round % 3).build();
            let objects: Vec<Object> = (0..3).map(|_| rcx.object()).collect();
            let work = |seed: u32| {
                let mut random = seed.wrapping_mul(0x9E37_79B9) ^ round;
                for _ in 0..sets {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let chosen = objects.iter().enumerate().filter(|(at, _)| random >> (20 + at) & 1 == 1);
                    let mut handles = chosen.map(|(_, object)| rcx.handle(object)).collect();
                    let handles = rcx.order(&mut handles);
                    if random >> 24 & 3 == 0 {
                        drop(rcx.lock(handles));
                    } else {
                        drop(rcx.try_lock(handles));
                    }
                }
            };
            thread::scope(|scope| (0..threads).for_each(|seed| _ = scope.spawn(move || work(seed))));
            rcx.check_invariants(&objects);
        }
    }
}

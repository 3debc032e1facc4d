//! RCX: locks for the updaters of RCU-protected structures on NUMA machines (Park, McKenney, Dufour and Yeom).
//!
//! An update names the objects that it changes and locks them all. Each object has a lock of two levels: a *local* byte for
//! each node, and a *global* word. A thread first takes the local bytes of its node, of all objects at once, in one
//! hardware transaction where those work; then the global words, one after the other. Readers do nothing but RCU.
//!
//! - The transaction touches bytes of its own node only, and no reader looks at them: nothing remote is in it, and readers
//!   do not abort it. It takes all or none, so it needs no order.
//! - Of each node at most one thread stands at an object's global word.
//!
//! # States
//! Of an object, for one node *n*:
//!
//! | local byte of *n* | global word | meaning |
//! |---|---|---|
//! | 0 | 0, or another node | no thread of *n* has to do with it |
//! | 1 | 0, or another node | a thread of *n* was admitted and waits for a global word, or is about to give up |
//! | 1 | *n* | it holds the object, or was left it and is about to |
//! | 0 | *n* | with [hand-over](Builder::passes): left to the next of *n*, which is registered at the byte, or about to be taken back |
//!
//! On one node the local byte is all there is.
//!
//! # Why it cannot deadlock
//! Global words have one order ([`InOrder`]), and hand-over leaves a word to a node's next thread only as long as that goes by the
//! order, too:
//!
//! 1. A thread that waits for a local byte has no byte, and no word.
//! 2. A thread that waits for a global word has its bytes, and of its words those before that one. It was admitted with all its
//!    bytes, so later words may have been left to it: it gives them up before it waits.
//! 3. A word that is left belongs to no thread, but its byte is free, and a thread is registered there that waits for
//!    this byte and nothing else. Its next step takes the byte, or gives the word up.
//!
//! A thread that waits for a byte waits for one that holds the object, or is of the second kind. One of the second kind waits for a thread
//! that holds the object, for one that waits for a *later* word, or for a step of a registered thread. So the chain from any
//! waiting thread goes up the order and ends at a thread that can go on. And each attempt is bounded: [`Rcx::try_lock`] gives
//! up, so that its caller can leave its RCU section, for which the holder may be waiting. The invariants that hand-over
//! rests on are in `rcx/words.rs`.
//!
//! # How long an attempt waits
//! [`Rcx::try_lock`] counts turns of a spin loop: 63 for all bytes and words of the set together, and 28 more between transactions
//! that others abort; one to five microseconds. It never yields the processor. [`Rcx::lock`] yields between attempts, with nothing in its hands.
//! Hand-over leaves words to threads that spin, and not to one that has yielded: that may be away for long.
//!
//! # Orderings
//! What holders do to an object is ordered by its global word: taking it is an Acquire of the Release by which it was given
//! up. (On one node, by the local byte alike.) Local bytes order nothing that this needs; they too are taken with Acquire
//! and given up with Release, so that an admitted thread finds the global word as its predecessor on the node left it,
//! which is what hand-over relies on. A transaction that commits orders as a sequentially consistent fence.
//!
//! # What differs from the original
//! - Attempts are bounded, and without transactions the bytes are taken by compare-and-exchange in order, with back-out.
//!   (The original tries its transaction for ever, which ends nowhere if all abort.)
//! - The guard carries the node by which it locked; the original asks for it again when it unlocks, and after a migration
//!   unlocks another node's byte.
//! - Global words are given up before local bytes: otherwise the next of the node would stand at a word that is held.
//! - A lock with padding is given back when its object has left the structure, and not with the object's memory
//!   ([`Rcx::give_back`]), so that garbage is small.
//! - Any number of nodes; padding is chosen at run time; on one node there is no global word to take. An update of one
//!   object takes its byte by compare-and-exchange, which is cheaper than a transaction.
//! - The memory-efficient variant, which the talk mentions and no published code has, is here a table of locks that objects
//!   are hashed to: [`Striped`].
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
//! Readers walk it in a guard, with no lock. An update locks the node that it changes, and the one that it removes:
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
//!     /// The last node before the key, and what follows it.
//!     fn find<'g>(&'g self, key: u64, _: &'g Guard<'_>) -> (&'g Node, *mut Node) {
//!         let mut before = &self.head;
//!         loop {
//!             let next = before.next.load(Acquire);
//!             // SAFETY: linked when it was read, so the guard keeps it.
//!             match unsafe { next.as_ref() } {
//!                 Some(node) if node.key < key => before = node,
//!                 _ => return (before, next),
//!             }
//!         }
//!     }
//!
//!     fn remove(&self, key: u64) -> bool {
//!         loop {
//!             // First the guard: what is found stays in memory, which handles and locks rely on.
//!             let guard = self.domain.pin();
//!             let (before, next) = self.find(key, &guard);
//!             // SAFETY: as above.
//!             let Some(node) = (unsafe { next.as_ref() }).filter(|node| node.key == key) else { return false };
//!             // In a guard only `try_lock`: the holder might wait for readers, of which this thread is one. Refused, it
//!             // leaves the guard before it waits.
//!             let mut both = vec![self.rcx.handle(&before.lock), self.rcx.handle(&node.lock)];
//!             let Some(held) = self.rcx.try_lock(self.rcx.order(&mut both)) else {
//!                 drop(guard);
//!                 std::thread::yield_now();
//!                 continue;
//!             };
//!             // What was read before it was locked may hold no more. From here on it does.
//!             if before.removed.load(Relaxed) || before.next.load(Relaxed) != next {
//!                 continue;
//!             }
//!             // Marked under its lock: a thread that has found the node before sees that it left the list.
//!             node.removed.store(true, Relaxed);
//!             before.next.store(node.next.load(Relaxed), Release);
//!             drop(held);
//!             // The lock goes to the next object as soon as the node is marked and unlocked; the memory waits for readers,
//!             // and goes last: until then the object is borrowed.
//!             self.rcx.give_back(&node.lock);
//!             // SAFETY: from a box, and unlinked by this thread alone.
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

/// Where local acquisitions in transactions are counted.
pub static LOCAL: Site = Site::new("rcx: local locks");

/// Places at which a simulated schedule can stop a thread.
pub mod points {
    /// All objects are locked.
    pub const HELD: &str = "rcx: held";
    /// The local bytes are taken, the global words are not.
    pub const ADMITTED: &str = "rcx: admitted";
}

/// Where the locks of objects are. Sealed, and what finds a lock shows nothing of it: structures over [`Rcx`] rely on it that no two
/// threads hold one object.
///
/// ```compile_fail,E0624
/// # use archipelago::sync::rcx::Locks;
/// fn unlock<L: Locks>(locks: &L, object: &L::Object) {
///     locks.lock_of(object).local(0); // private
/// }
/// ```
pub trait Locks: sealed::Sealed + Send + Sync + Sized {
    /// What an object brings.
    type Object: Send + Sync;

    /// What finds an object's lock.
    #[expect(private_bounds, reason = "no program takes a byte or a word but by an `Rcx`")]
    type Lock<'o>: Access<'o> + Send + Sync
    where
        Self: 'o;

    /// For a machine of so many nodes.
    fn make(nodes: usize, padding: Padding) -> Self;

    /// For how many nodes they were made.
    fn nodes(&self) -> usize;

    /// What a new object is to bring.
    fn object(&self) -> Self::Object;

    /// The object has left its structure: see [`Rcx::give_back`].
    fn give_back(&self, object: &Self::Object);

    /// Finds an object's lock.
    ///
    /// # Panics
    /// As [`Rcx::handle`].
    fn lock_of<'o>(&'o self, object: &'o Self::Object) -> Self::Lock<'o>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Embedded {}
    impl Sealed for super::Striped {}
}

/// How much room the bytes of the nodes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// A byte each, in the object: for seven nodes at most. With more it is as [`Lines`](Self::Lines).
    Compact,
    /// A pair of lines each, apart from the object.
    Lines,
}

/// How locks are taken: [`Rcx::builder`].
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    nodes: Option<usize>,
    padding: Option<Padding>,
    transactions: bool,
    passes: u32,
}

impl Builder {
    /// As on a machine of so many nodes (0 counts as 1), among which threads are dealt out. Otherwise the topology's.
    #[must_use]
    pub fn nodes(self, nodes: usize) -> Self {
        Self { nodes: Some(nodes.max(1)), ..self }
    }

    /// With this padding. Otherwise lines, but on one node.
    #[must_use]
    pub fn padding(self, padding: Padding) -> Self {
        Self { padding: Some(padding), ..self }
    }

    /// Without transactions.
    #[must_use]
    pub fn without_transactions(self) -> Self {
        Self { transactions: false, ..self }
    }

    /// A holder that unlocks leaves the global words to the next of the node, so many times in a row. Otherwise never. For
    /// padded locks; others have no room to count in.
    #[must_use]
    pub fn passes(self, passes: u32) -> Self {
        Self { passes, ..self }
    }

    /// The locks, in their objects.
    pub fn build(self) -> Rcx {
        self.build_with(Embedded::make)
    }

    /// With locks that are made otherwise, for a number of nodes and a padding.
    ///
    /// # Panics
    /// If they are made for another number of nodes.
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
    /// Whether the nodes are not the topology's.
    imagined: bool,
    htm: Option<Htm>,
    passes: u32,
}

impl Rcx {
    /// How they are to be taken.
    pub fn builder() -> Builder {
        Builder { nodes: None, padding: None, transactions: true, passes: 0 }
    }

    /// Fine-grained locks, a byte an object, taken in order: the rival. They are RCX on one node without transactions.
    pub fn fine_grained() -> Builder {
        Self::builder().nodes(1).without_transactions()
    }
}

impl<L: Locks> Rcx<L> {
    /// For this machine.
    pub fn new() -> Self {
        Rcx::builder().build_with(L::make)
    }

    /// Whether local bytes are taken in transactions.
    pub fn is_transactional(&self) -> bool {
        self.htm.is_some()
    }

    /// Where the locks are.
    pub fn locks(&self) -> &L {
        &self.locks
    }

    /// What a new object is to bring.
    pub fn object(&self) -> L::Object {
        self.locks.object()
    }

    /// Says that an object has left its structure: no thread locks it any more to change it. One that has come by it
    /// before may lock it still, and has to find then that it was removed. Its lock may be another object's from now on, or
    /// stays with the object, as these locks like it. An object that is dropped and was not given back takes memory as long
    /// as the `Rcx` lives.
    ///
    /// # Panics
    /// As [`handle`](Self::handle), for padded objects.
    pub fn give_back(&self, object: &L::Object) {
        self.locks.give_back(object);
    }

    /// The handle of an object.
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
    /// If the object was made by another `Rcx`. Packed objects of two that are alike, for one node or for several, have all of
    /// their lock in themselves: these are locked by either.
    #[inline]
    pub fn handle<'o>(&'o self, object: &'o L::Object) -> Handle<'o, L> {
        Handle::new(&self.locks, object)
    }

    /// Brings handles into the order of global words, each once: as [`lock`](Self::lock) wants them.
    ///
    /// # Panics
    /// If a handle is of another `Rcx`.
    #[inline]
    pub fn order<'a, 'o>(&'o self, handles: &'a mut Vec<Handle<'o, L>>) -> InOrder<'a, 'o, L> {
        InOrder::sort(&self.locks, handles)
    }

    /// Locks all of them. It spins for some microseconds, then yields the processor between short spins. Not within an RCU
    /// section for which a holder might wait, and not by a thread that has locked one of them: it would wait for ever. A thread that
    /// locks one set with another in its hands has to keep an order of its own among the sets.
    ///
    /// # Panics
    /// As [`try_lock`](Self::try_lock).
    pub fn lock<'a, 'o>(&'o self, handles: InOrder<'a, 'o, L>) -> Guard<'a, 'o, L> {
        let mut patience = Patience::new();
        loop {
            if let Some(guard) = self.attempt(handles, &mut patience) {
                return guard;
            }
            thread::yield_now();
            patience = Patience::after_yield();
        }
    }

    /// Locks all of them, or none if that takes longer than 63 turns of a spin loop, for all of them together: some microseconds. It
    /// does not yield the processor: an object whose holder lost its own is refused at the end of the 63.
    ///
    /// # Panics
    /// If a handle is of another `Rcx`, before anything is locked; with debug assertions, in the body of a
    /// [region](crate::region).
    #[inline]
    pub fn try_lock<'a, 'o>(&'o self, handles: InOrder<'a, 'o, L>) -> Option<Guard<'a, 'o, L>> {
        self.attempt(handles, &mut Patience::new())
    }

    /// Nothing below panics with anything locked: what could is asked first.
    #[inline]
    fn attempt<'a, 'o>(
        &'o self,
        InOrder(handles): InOrder<'a, 'o, L>,
        patience: &mut Patience,
    ) -> Option<Guard<'a, 'o, L>> {
        refuse_in_regions("locking");
        refuse_foreign(&self.locks, handles);
        let set = Set { rcx: self, handles, node: self.here() };
        set.lock(patience).then(|| Guard(set))
    }

    #[inline]
    fn here(&self) -> usize {
        if self.nodes == 1 {
            0
        } else if self.imagined {
            thread::slot().index % self.nodes
        } else {
            // Stale at worst, which costs time: the guard unlocks by the same.
            crate::lock::nodes::here() % self.nodes
        }
    }

    /// Asserts that no thread has to do with these objects: for tests, when all threads are done.
    ///
    /// # Panics
    /// If a byte, a word or a queue says otherwise, or an object is another `Rcx`'s.
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

/// Objects that are locked; dropping it unlocks them, by the node by which they were locked. Leaking it leaves them locked.
#[must_use]
pub struct Guard<'a, 'o, L: Locks>(Set<'a, 'o, L>);

impl<L: Locks> Drop for Guard<'_, '_, L> {
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
            // Nothing of those attempts is left.
            drop(rcx.try_lock(InOrder(&all[..3])).expect("free"));
            drop(third);
            let held = rcx.try_lock(InOrder(all)).expect("free");
            assert!(all.iter().all(|object| rcx.try_lock(InOrder::one(object)).is_none()));
            drop(held);
            drop(rcx.lock(InOrder(all)));
        });
    }

    /// The guard goes to a thread on another node and is dropped there.
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

    /// The stripes of both have one number, so one of them would be left out as a double, and its object not be locked.
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

    /// Of two that differ in nothing, one first: nothing is locked, of either.
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

    /// What waits or panics in the body of a region is refused before anything is locked; and a guard unlocks while it unwinds.
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

    /// More threads than cores, some of which try and some wait, end: no object is held by a thread that is gone.
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

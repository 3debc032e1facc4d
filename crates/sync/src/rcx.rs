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
//! | 1 | 0, or another node | a thread of *n* was admitted and waits for the global word, or is about to give up |
//! | 1 | *n* | it holds the object |
//! | 0 | *n* | with [hand-over](Builder::passes): left to the next of *n*; there is one, or the last that waited takes it back |
//!
//! On one node the local byte is all there is.
//!
//! # Why it cannot deadlock
//! A thread that waits for a local byte holds nothing. One that waits for a global word holds local bytes, for which only
//! threads wait that hold nothing, and global words before it in one order ([`Locks::key`]). And each wait is bounded:
//! [`Rcx::try_lock`] gives up, so that its caller can leave its RCU section, for which the holder may be waiting.
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
//! use archipelago_sync::rcx::{InOrder, Rcx};
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

mod embedded;
mod pool;
mod striped;

use archipelago_platform::atomic::{AtomicU8, AtomicU32, Ordering, fence};
use archipelago_platform::hint::point;
use archipelago_platform::htm::{Abort, Htm, Retry, Site};
use archipelago_platform::thread;

pub use embedded::{Embedded, Object, ToLock};
pub use striped::{Stripe, Striped};

use crate::backoff::Backoff;

/// Where local acquisitions in transactions are counted.
pub static LOCAL: Site = Site::new("rcx: local locks");

/// Places at which a simulated schedule can stop a thread.
pub mod points {
    /// All objects are locked.
    pub const HELD: &str = "rcx: held";
    /// The local bytes are taken, the global words are not.
    pub const ADMITTED: &str = "rcx: admitted";
}

/// The code of a transaction that found a byte taken.
const BUSY: u8 = 0xfe;

/// More objects than this are not tried in a transaction: each may be a line.
const MOST_IN_TRANSACTION: usize = 16;

/// Steps of a wait before an attempt is given up: some microseconds of spinning, then yields.
const PATIENCE: u32 = if cfg!(loom) { 1 } else { 64 };

/// Where the locks of objects are. Sealed: structures over [`Rcx`] rely on it that no two threads hold one object.
pub trait Locks: sealed::Sealed + Send + Sync + Sized {
    /// What an object brings.
    type Object: Send + Sync;

    /// What finds an object's lock.
    type Handle<'o>: Copy;

    /// For a machine of so many nodes.
    fn make(nodes: usize, padding: Padding) -> Self;

    /// What a new object is to bring.
    fn object(&self) -> Self::Object;

    /// The object has left its structure: see [`Rcx::give_back`].
    fn give_back(&self, object: &Self::Object);

    /// The handle of an object.
    fn handle<'o>(&'o self, object: &'o Self::Object) -> Self::Handle<'o>;

    /// The order of global words. Equal for objects with one lock.
    fn key(handle: Self::Handle<'_>) -> usize;

    /// The byte of a node.
    fn local<'o>(&'o self, handle: Self::Handle<'o>, node: usize) -> &'o AtomicU8;

    /// The global word: 0, or one more than the holder's node.
    fn global<'o>(&'o self, handle: Self::Handle<'o>) -> &'o AtomicU32;

    /// Threads that wait for the byte, and hand-overs in a row; where there is room for them.
    fn queue<'o>(&'o self, handle: Self::Handle<'o>, node: usize) -> Option<&'o Queue>;
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

/// What hand-over needs to know beside a local byte.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: AtomicU32,
    /// Changed under the local byte.
    passes: AtomicU32,
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
    pub fn build_with<L: Locks>(self, make: impl FnOnce(usize, Padding) -> L) -> Rcx<L> {
        let real = crate::lock::nodes::count();
        let nodes = self.nodes.unwrap_or(real);
        let padding = self.padding.unwrap_or(if nodes == 1 { Padding::Compact } else { Padding::Lines });
        Rcx {
            locks: make(nodes, padding),
            nodes,
            imagined: nodes != real,
            htm: if self.transactions { Htm::get() } else { None },
            passes: self.passes,
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
    pub fn give_back(&self, object: &L::Object) {
        self.locks.give_back(object);
    }

    /// The handle of an object.
    #[inline]
    pub fn handle<'o>(&'o self, object: &'o L::Object) -> L::Handle<'o> {
        self.locks.handle(object)
    }

    /// Brings handles into the order of global words, each once: as [`lock`](Self::lock) wants them.
    #[inline]
    pub fn order<'a, 'o>(&'o self, handles: &'a mut Vec<L::Handle<'o>>) -> InOrder<'a, 'o, L> {
        handles.sort_unstable_by_key(|handle| L::key(*handle));
        handles.dedup_by_key(|handle| L::key(*handle));
        InOrder(handles)
    }

    /// Locks all of them. Not within an RCU section for which a holder might wait.
    pub fn lock<'a, 'o>(&'o self, handles: InOrder<'a, 'o, L>) -> Guard<'a, 'o, L> {
        let backoff = Backoff::new();
        loop {
            match self.try_lock(handles) {
                Some(guard) => return guard,
                None => backoff.wait(),
            }
        }
    }

    /// Locks all of them, if that takes no longer than some microseconds of waiting, or none.
    #[inline]
    pub fn try_lock<'a, 'o>(&'o self, InOrder(handles): InOrder<'a, 'o, L>) -> Option<Guard<'a, 'o, L>> {
        let node = self.here();
        if !self.admit(handles, node) {
            return None;
        }
        point(points::ADMITTED);
        if self.nodes > 1 && !self.take_globals(handles, node) {
            self.release_locals(handles, node);
            return None;
        }
        point(points::HELD);
        Some(Guard { rcx: self, handles, node })
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

    /// Takes all bytes of the node, or none after a bounded wait.
    #[inline]
    fn admit<'o>(&'o self, handles: &[L::Handle<'o>], node: usize) -> bool {
        let first = match (handles, self.htm) {
            ([one], _) => self.take_local(*one, node),
            (many, Some(htm)) if many.len() <= MOST_IN_TRANSACTION => {
                return self.first_busy(many, node).is_none()
                    && self.take_at_once(htm, many, node).map_err(|why| LOCAL.note_abort(why)).is_ok()
                    || self.admit_slowly(many, node);
            }
            (many, _) => self.take_in_order(many, node).is_ok(),
        };
        first || self.admit_slowly(handles, node)
    }

    #[cold]
    fn admit_slowly<'o>(&'o self, handles: &[L::Handle<'o>], node: usize) -> bool {
        let mut htm = self.htm.filter(|_| (2..=MOST_IN_TRANSACTION).contains(&handles.len()));
        let (mut retry, backoff) = (Retry::default(), Backoff::new());
        for _ in 0..PATIENCE {
            // Free before anything is begun: what would abort is not tried, and others are not disturbed.
            let busy = match (self.first_busy(handles, node), htm) {
                (Some(busy), _) => busy,
                (None, Some(tx)) => match self.take_at_once(tx, handles, node) {
                    Ok(()) => return true,
                    // Another thread was faster: that is taken from no budget.
                    Err(why) if why.code().is_some() => {
                        LOCAL.note_abort(why);
                        handles[0]
                    }
                    Err(why) => {
                        htm = htm.filter(|_| retry.spend_at(&LOCAL, why));
                        continue;
                    }
                },
                (None, None) => match self.take_in_order(handles, node) {
                    Ok(()) => return true,
                    Err(busy) => busy,
                },
            };
            self.wait_for(busy, node, &backoff);
        }
        false
    }

    fn first_busy<'o>(&'o self, handles: &[L::Handle<'o>], node: usize) -> Option<L::Handle<'o>> {
        handles.iter().copied().find(|handle| self.locks.local(*handle, node).load(Ordering::Relaxed) != 0)
    }

    /// One transaction: all bytes, or none.
    #[inline(always)]
    fn take_at_once<'o>(&'o self, htm: Htm, handles: &[L::Handle<'o>], node: usize) -> Result<(), Abort> {
        htm.transaction(
            #[inline(always)]
            |inside| {
                for handle in handles {
                    let local = self.locks.local(*handle, node);
                    // Acquire: pairs with the Release in `release_locals`.
                    if local.load(Ordering::Acquire) != 0 {
                        inside.abort::<BUSY>();
                    }
                    local.store(1, Ordering::Relaxed);
                }
            },
        )
    }

    /// One byte after the other; those taken are given back if one is held, which is then the error.
    fn take_in_order<'o>(&'o self, handles: &[L::Handle<'o>], node: usize) -> Result<(), L::Handle<'o>> {
        for (taken, handle) in handles.iter().enumerate() {
            if !self.take_local(*handle, node) {
                self.release_locals(&handles[..taken], node);
                return Err(*handle);
            }
        }
        Ok(())
    }

    #[inline]
    fn take_local<'o>(&'o self, handle: L::Handle<'o>, node: usize) -> bool {
        let local = self.locks.local(handle, node);
        local.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn release_locals<'o>(&'o self, handles: &[L::Handle<'o>], node: usize) {
        for handle in handles {
            let local = self.locks.local(*handle, node);
            debug_assert_eq!(local.load(Ordering::Relaxed), 1, "a byte of node {node} that no thread has taken");
            local.store(0, Ordering::Release);
        }
    }

    /// One step of waiting for a byte.
    fn wait_for<'o>(&'o self, handle: L::Handle<'o>, node: usize, backoff: &Backoff) {
        let queue = self.locks.queue(handle, node).filter(|_| self.passes > 0);
        if let Some(queue) = queue {
            queue.waiting.fetch_add(1, Ordering::Relaxed);
        }
        backoff.wait();
        if let Some(queue) = queue {
            // SeqCst on both sides: either this sees that the object was left to the node, or the thread that leaves it sees
            // that none is left to take it.
            queue.waiting.fetch_sub(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            self.take_back(handle, node, queue);
        }
    }

    /// Gives up a global word that was left to the node, if no thread of the node waits for the object.
    fn take_back<'o>(&'o self, handle: L::Handle<'o>, node: usize, queue: &Queue) {
        let global = self.locks.global(handle);
        let left = || global.load(Ordering::Relaxed) == mark(node) && queue.waiting.load(Ordering::SeqCst) == 0;
        if left() && self.take_local(handle, node) {
            // With the byte: no thread of the node holds the object, so if the word has the node's mark it was left.
            if global.load(Ordering::Relaxed) == mark(node) {
                global.store(0, Ordering::Release);
            }
            self.release_locals(&[handle], node);
        }
    }

    #[inline]
    fn take_globals<'o>(&'o self, handles: &[L::Handle<'o>], node: usize) -> bool {
        for (taken, handle) in handles.iter().enumerate() {
            if !self.take_global(*handle, node) {
                self.release_globals(&handles[..taken]);
                return false;
            }
        }
        true
    }

    #[inline]
    fn take_global<'o>(&'o self, handle: L::Handle<'o>, node: usize) -> bool {
        let global = self.locks.global(handle);
        // Acquire: pairs with the Release in `release_globals`.
        match global.compare_exchange(0, mark(node), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            // Left by the last holder of this node, which the local byte orders before this.
            Err(word) => word == mark(node) || self.wait_for_global(global, node),
        }
    }

    #[cold]
    fn wait_for_global(&self, global: &AtomicU32, node: usize) -> bool {
        let backoff = Backoff::new();
        for _ in 0..PATIENCE {
            backoff.wait();
            if global.load(Ordering::Relaxed) == 0
                && global.compare_exchange(0, mark(node), Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return true;
            }
        }
        false
    }

    /// Gives global words up, the last first.
    #[inline]
    fn release_globals<'o>(&'o self, handles: &[L::Handle<'o>]) {
        for handle in handles.iter().rev() {
            self.locks.global(*handle).store(0, Ordering::Release);
        }
    }

    #[inline]
    fn unlock<'o>(&'o self, handles: &[L::Handle<'o>], node: usize) {
        if self.nodes > 1 {
            if self.passes > 0 {
                return handles.iter().rev().for_each(|handle| self.unlock_or_pass(*handle, node));
            }
            debug_assert!(
                handles.iter().all(|handle| { self.locks.global(*handle).load(Ordering::Relaxed) == mark(node) }),
                "a global word of another node"
            );
            // Before the local bytes: otherwise the next of this node would stand at a word that is held.
            self.release_globals(handles);
        }
        self.release_locals(handles, node);
    }

    /// Leaves the global word to a thread of this node that waits for the object, or gives it up.
    fn unlock_or_pass<'o>(&'o self, handle: L::Handle<'o>, node: usize) {
        let pass = |queue: &&Queue| {
            let passes = queue.passes.load(Ordering::Relaxed);
            let pass = passes < self.passes && queue.waiting.load(Ordering::Relaxed) > 0;
            queue.passes.store(if pass { passes + 1 } else { 0 }, Ordering::Relaxed);
            pass
        };
        match self.locks.queue(handle, node).filter(pass) {
            Some(queue) => {
                self.release_locals(&[handle], node);
                fence(Ordering::SeqCst);
                self.take_back(handle, node, queue);
            }
            None => {
                self.release_globals(&[handle]);
                self.release_locals(&[handle], node);
            }
        }
    }
}

impl<L: Locks> Default for Rcx<L> {
    fn default() -> Self {
        Self::new()
    }
}

/// What the global word is while a thread of this node holds it.
#[inline]
fn mark(node: usize) -> u32 {
    node as u32 + 1
}

/// Handles in the order of global words, each once. What is locked in this order cannot deadlock, and no update waits for
/// itself.
#[derive(Debug)]
pub struct InOrder<'a, 'o, L: Locks + 'o>(&'a [L::Handle<'o>]);

impl<'a, 'o, L: Locks> InOrder<'a, 'o, L> {
    /// A single handle.
    #[inline]
    pub fn one(handle: &'a L::Handle<'o>) -> Self {
        Self(core::slice::from_ref(handle))
    }
}

impl<L: Locks> Clone for InOrder<'_, '_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Locks> Copy for InOrder<'_, '_, L> {}

/// Objects that are locked; dropping it unlocks them, by the node by which they were locked.
#[must_use]
pub struct Guard<'a, 'o, L: Locks> {
    rcx: &'o Rcx<L>,
    handles: &'a [L::Handle<'o>],
    node: usize,
}

impl<L: Locks> Drop for Guard<'_, '_, L> {
    #[inline]
    fn drop(&mut self) {
        self.rcx.unlock(self.handles, self.node);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
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
            let mut all: Vec<ToLock<'_>> =
                objects.iter().chain(&objects[3..5]).map(|object| rcx.handle(object)).collect();
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

    #[test]
    fn objects_of_one_stripe_are_one() {
        let rcx: Rcx<Striped> = Rcx::builder().nodes(3).build_with(|nodes, _| Striped::with_stripes(nodes, 1));
        let objects = [rcx.object(), rcx.object()];
        let mut handles: Vec<usize> = objects.iter().map(|object| rcx.handle(object)).collect();
        let handles = rcx.order(&mut handles);
        assert_eq!(handles.0, [0]);
        let held = rcx.lock(handles);
        assert!(rcx.try_lock(handles).is_none());
        drop(held);
    }
}

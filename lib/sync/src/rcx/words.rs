//! The global words, in order, and their hand-over to the next thread of the node.
//!
//! # Invariants
//! 1. The thread that has the local byte of node *n*, and no other, sets the word to *n*'s mark or takes that mark away. So what it
//!    reads of its own mark is no more than its own and its predecessors' doing, which the byte orders before.
//! 2. A thread that waits for a word has no later word of its set: [`Set::wait_for_word`].
//! 3. A word that is left (the mark of *n*, byte 0) has a thread registered at the byte, or one that is about to take it back.
//!
//! # Why a word that is left is taken
//! The thread that leaves it gives the byte up, then looks whether a thread is registered; a registered thread that goes without
//! the byte signs off, then looks at the word. With a sequentially consistent fence between the two on either side, one of them
//! sees what the other did: the thread that leaves sees none registered, or the one that signs off sees the mark. The thread that
//! sees it takes the word back, unless the byte is taken: the thread that has the byte comes to hold the object, or gives the word
//! up with the byte ([`Set::give_up`]), of which to take the word back is a case. A registered thread waits for this byte and no
//! other; the byte is free, so the thread goes on.

use archipelago_platform::atomic::{AtomicU32, Ordering, fence};

use super::Locks;
use super::attempt::{Patience, Set};
use super::handle::{Access, Handle};

/// What hand-over needs to know beside a local byte.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Threads that wait for the byte and spin. A thread that has yielded may be away for long, and is not counted.
    pub(super) waiting: AtomicU32,
    /// Hand-overs in a row. Changed under the byte.
    passes: AtomicU32,
}

/// What the global word is while a thread of this node holds it.
#[inline]
fn mark(node: usize) -> u32 {
    node as u32 + 1
}

impl<'o, L: Locks> Set<'_, 'o, L> {
    /// With all bytes taken.
    #[inline]
    pub(super) fn take_words(&self, patience: &mut Patience) -> bool {
        (0..self.handles.len()).all(|at| self.take_word(self.handles[at]) || self.wait_for_word(at, patience))
    }

    #[inline]
    fn take_word(&self, handle: Handle<'o, L>) -> bool {
        // Acquire: pairs with the Release in `give_up_word`. The node's own mark: left by its last holder of the node.
        match handle.lock.global().compare_exchange(0, mark(self.node), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(word) => word == mark(self.node),
        }
    }

    /// Has this word and those before it, or none of the set.
    #[cold]
    fn wait_for_word(&self, at: usize, patience: &mut Patience) -> bool {
        // Threads of other nodes may have words before those, and wait for them.
        self.handles[at + 1..].iter().for_each(|later| self.give_up_left(*later));
        let handle = self.handles[at];
        while patience.wait() {
            debug_assert!(self.handles[at + 1..].iter().all(|later| !self.is_marked(*later)), "a later word is held");
            if handle.lock.global().load(Ordering::Relaxed) == 0 && self.take_word(handle) {
                return true;
            }
        }
        self.handles[..at].iter().rev().for_each(|earlier| self.give_up_word(*earlier));
        false
    }

    /// Returns whether the word has the node's mark. With the byte.
    fn is_marked(&self, handle: Handle<'o, L>) -> bool {
        handle.lock.global().load(Ordering::Relaxed) == mark(self.node)
    }

    /// Gives the word up if it has the node's mark. With the byte.
    #[inline]
    pub(super) fn give_up_left(&self, handle: Handle<'o, L>) {
        if self.is_marked(handle) {
            self.give_up_word(handle);
        }
    }

    #[inline]
    fn give_up_word(&self, handle: Handle<'o, L>) {
        debug_assert!(self.is_marked(handle), "a global word of another node");
        // Release: pairs with the Acquire in `take_word`.
        handle.lock.global().store(0, Ordering::Release);
    }

    /// Gives up the word, then the byte: otherwise the next of this node would stand at a word that is held.
    #[inline]
    pub(super) fn release(&self, handle: Handle<'o, L>) {
        self.give_up_word(handle);
        self.release_local(handle);
    }

    /// As [`release`](Self::release), or leaves the word to a thread of the node that waits for the object.
    pub(super) fn release_or_leave(&self, handle: Handle<'o, L>) {
        match self.queue(handle).filter(|queue| self.passes_on(queue)) {
            None => self.release(handle),
            Some(queue) => {
                self.release_local(handle);
                fence(Ordering::SeqCst);
                self.take_back(handle, queue);
            }
        }
    }

    /// Decides whether the word is left, and counts.
    fn passes_on(&self, queue: &Queue) -> bool {
        let passes = queue.passes.load(Ordering::Relaxed);
        let pass = passes < self.rcx.passes && queue.waiting.load(Ordering::Relaxed) > 0;
        queue.passes.store(if pass { passes + 1 } else { 0 }, Ordering::Relaxed);
        pass
    }

    /// Gives up a word that was left to the node, if no thread is registered.
    fn take_back(&self, handle: Handle<'o, L>, queue: &Queue) {
        if self.is_marked(handle) && queue.waiting.load(Ordering::SeqCst) == 0 && self.take_local(handle) {
            self.give_up(&[handle]);
        }
    }

    fn queue(&self, handle: Handle<'o, L>) -> Option<&'o Queue> {
        if self.rcx.passes == 0 { None } else { handle.lock.queue(self.node) }
    }

    /// Registers at the byte that the thread waits for, and nowhere else.
    pub(super) fn queue_at(&self, queued: &mut Option<Handle<'o, L>>, busy: Option<Handle<'o, L>>) {
        let key = |handle: &Handle<'o, L>| handle.lock.key();
        if self.rcx.passes == 0 || queued.as_ref().map(key) == busy.as_ref().map(key) {
            return;
        }
        self.leave_queue(queued.take(), false);
        *queued = busy.filter(|busy| {
            let queue = self.queue(*busy);
            // Relaxed: seen too late, it is a hand-over that is missed.
            queue.inspect(|queue| _ = queue.waiting.fetch_add(1, Ordering::Relaxed)).is_some()
        });
    }

    /// Signs off; without the byte, looks whether the word was left to this thread alone.
    pub(super) fn leave_queue(&self, queued: Option<Handle<'o, L>>, admitted: bool) {
        let Some((handle, queue)) = queued.and_then(|handle| Some((handle, self.queue(handle)?))) else { return };
        queue.waiting.fetch_sub(1, Ordering::SeqCst);
        if !admitted {
            fence(Ordering::SeqCst);
            self.take_back(handle, queue);
        }
    }
}

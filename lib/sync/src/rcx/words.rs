//! The global words: taking them in order, and handing them over to the next thread of the node. Each object has a
//! global word, and a local byte for each NUMA node; a thread holds the byte of its node before it takes the word.
//!
//! # Invariants
//! 1. Only the thread that holds the local byte of node *n* sets the word to *n*'s mark or removes this mark. The byte
//!    orders these changes. So a thread that holds the byte always sees correctly whether the word has *n*'s mark.
//! 2. A thread that waits for a word holds no later word of its set: [`Set::wait_for_word`].
//! 3. A word is *left* if it has the mark of *n* and the byte of *n* is 0. Then a thread is registered at the byte, or
//!    a thread is about to take the word back. To *take back* a word is to take the byte, and then to give up the word
//!    and the byte ([`Set::take_back`]).
//!
//! # Why a word that is left is taken
//! The leaving thread gives up the byte. A registered thread that stops waiting without the byte removes its
//! registration. Then each of the two threads reads the word and the number of registered threads, and tries to take
//! the byte. Each executes a sequentially consistent fence before it reads. So at least one thread sees the other's
//! first step: the leaving thread no longer sees the registration, or the other thread sees the mark and a free byte.
//!
//! If a thread sees the other's first step and no further registration, it takes the word back, unless a third thread
//! has taken the byte. In that case the third thread either holds the object in the end, or gives up the word together
//! with the byte ([`Set::give_up`]). A thread that stays registered waits for this byte and for no other. The byte is
//! free, so the thread takes the byte, or removes its registration and then checks the word as above.

use archipelago_platform::atomic::{AtomicU32, Ordering, fence};

use super::Locks;
use super::attempt::{Patience, Set};
use super::handle::{Access, Handle};

/// The state that hand-over needs beside a local byte.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The number of threads that wait for the byte and spin. A thread that has yielded is not counted, because it may
    /// not run again for a long time.
    pub(super) waiting: AtomicU32,
    /// The number of consecutive hand-overs. Changed only by the holder of the byte.
    passes: AtomicU32,
}

/// Returns the value of the global word while a thread of this node holds it.
#[inline]
fn mark(node: usize) -> u32 {
    node as u32 + 1
}

impl<'o, L: Locks> Set<'_, 'o, L> {
    /// Takes the set's global words. The caller holds all bytes.
    #[inline]
    pub(super) fn take_words(&self, patience: &mut Patience) -> bool {
        (0..self.handles.len()).all(|at| self.take_word(self.handles[at]) || self.wait_for_word(at, patience))
    }

    #[inline]
    fn take_word(&self, handle: Handle<'o, L>) -> bool {
        // Acquire: pairs with the Release in `give_up_word`. If the word has the node's own mark, the node's last
        // holder left it.
        match handle.lock.global().compare_exchange(0, mark(self.node), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(word) => word == mark(self.node),
        }
    }

    /// Waits for the word of object `at`. Returns true if the thread now holds this word and the words before it.
    /// Returns false if the thread holds no word of the set.
    #[cold]
    fn wait_for_word(&self, at: usize, patience: &mut Patience) -> bool {
        // The later words are given up because threads of other nodes may wait for them while they hold earlier words.
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

    /// Returns whether the word has the node's mark. If the caller does not hold the byte, the result may be out of
    /// date.
    fn is_marked(&self, handle: Handle<'o, L>) -> bool {
        handle.lock.global().load(Ordering::Relaxed) == mark(self.node)
    }

    /// Gives the word up if it has the node's mark. The caller holds the byte.
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

    /// Gives up the word, then the byte. In the other order, the node's next thread would get the byte while the word
    /// is still held.
    #[inline]
    pub(super) fn release(&self, handle: Handle<'o, L>) {
        self.give_up_word(handle);
        self.release_local(handle);
    }

    /// Unlocks as [`release`](Self::release) does, or leaves the word to a thread of the node that waits for the
    /// object.
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

    /// Decides whether the word is left, and counts the consecutive hand-overs.
    fn passes_on(&self, queue: &Queue) -> bool {
        let passes = queue.passes.load(Ordering::Relaxed);
        let pass = passes < self.rcx.passes && queue.waiting.load(Ordering::Relaxed) > 0;
        queue.passes.store(if pass { passes + 1 } else { 0 }, Ordering::Relaxed);
        pass
    }

    /// Takes the byte and gives up the word and the byte, if the word was left, no thread is registered at the byte,
    /// and no other thread takes the byte first.
    fn take_back(&self, handle: Handle<'o, L>, queue: &Queue) {
        if self.is_marked(handle) && queue.waiting.load(Ordering::SeqCst) == 0 && self.take_local(handle) {
            self.give_up(&[handle]);
        }
    }

    fn queue(&self, handle: Handle<'o, L>) -> Option<&'o Queue> {
        if self.rcx.passes == 0 { None } else { handle.lock.queue(self.node) }
    }

    /// Registers the thread at the byte for which it waits, and removes its registration at any other byte.
    pub(super) fn queue_at(&self, queued: &mut Option<Handle<'o, L>>, busy: Option<Handle<'o, L>>) {
        let key = |handle: &Handle<'o, L>| handle.lock.key();
        if self.rcx.passes == 0 || queued.as_ref().map(key) == busy.as_ref().map(key) {
            return;
        }
        self.leave_queue(queued.take(), false);
        *queued = busy.filter(|busy| {
            let queue = self.queue(*busy);
            // Relaxed: if the holder sees the registration too late, only a hand-over is missed.
            queue.inspect(|queue| _ = queue.waiting.fetch_add(1, Ordering::Relaxed)).is_some()
        });
    }

    /// Removes the registration. If the thread was not admitted, also [takes the word back](Self::take_back) if the
    /// word was left and no other thread will take it.
    pub(super) fn leave_queue(&self, queued: Option<Handle<'o, L>>, admitted: bool) {
        let Some((handle, queue)) = queued.and_then(|handle| Some((handle, self.queue(handle)?))) else { return };
        queue.waiting.fetch_sub(1, Ordering::SeqCst);
        if !admitted {
            fence(Ordering::SeqCst);
            self.take_back(handle, queue);
        }
    }
}

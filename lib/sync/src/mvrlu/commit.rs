//! How a transaction commits or aborts.
//!
//! *Commit*: say in the
//! leader that all copies are linked; draw the stamp and set it in the leader, which makes the set visible at once; tell
//! the other copies and what they superseded; unlock. A reader that meets a leader whose set is linked but not stamped
//! draws and sets the stamp itself, so it never has to guess whether the set was before or after its snapshot (the
//! paper's readers guess, and see half of it).
//!
//! *Abort*: unlink the copies. Readers may have met them, so they go through the log like versions. So does what
//! [`Tx::lock_const`] links, a copy without a payload that is never visible.
//!
//! *Serializable* (absent from the paper; after Silo, and TimeStone's selectable isolation): the stamp s is drawn first, in
//! the state `CHECKING`, and then everything read is looked at: it must be unlocked, or locked by this transaction, and
//! its newest version must be the one read. A thread that locks one of these objects later draws a later stamp, so the
//! order of stamps is an order of the transactions (with the hardware clock, since the uncertainty is waited for in
//! between). A reader that meets `CHECKING`, and is not before s, must not wait, and cannot know; it resets the leader
//! to `LINKING`, and the writer draws another stamp and checks again.

use core::ptr::NonNull;

use archipelago_platform::atomic::{Ordering, fence};
use archipelago_platform::hint::point;

use super::abort::Abort;
use super::handle::Handle;
use super::points;
use super::tx::Tx;
use super::version::{ABORTED, CHECKING, Copied, DEFERRED, GONE, Head, LINKED, NEVER, Version, follow, lock_word};
use super::writes::{Fate, Made, Pending};

impl Tx<'_> {
    #[inline]
    pub(super) fn commit(mut self) -> Result<(), Abort> {
        if self.is_full {
            return Err(Abort::Full);
        }
        if self.leader.is_null() {
            self.release(|_| unreachable!("without a leader nothing changes"));
            self.end();
            return Ok(());
        }
        let stamp = if self.reads.is_some() { self.stamp_serializable()? } else { self.stamp() };
        self.publish(stamp);
        if self.handle.horizon().is_multi_version() {
            self.release(|fate| if matches!(fate, Fate::Goes(_)) { GONE } else { NEVER });
            self.end();
            self.handle.hand_in_if_many();
        } else {
            let word = lock_word(self.handle.record.owner, 0) | DEFERRED;
            self.release(|_| word);
            self.end();
            self.handle.write_back_or_defer(stamp);
        }
        self.handle.horizon().clock().settle(stamp);
        Ok(())
    }

    fn leader(&self) -> &Copied {
        // SAFETY: the first copy of our write set, which is ours until it is handed over.
        unsafe { &*self.leader }
    }

    /// Makes the linked write set visible; at what time.
    #[inline]
    fn stamp(&self) -> u64 {
        let (leader, clock) = (self.leader(), self.handle.horizon().clock());
        // Release: who sees `LINKED` finds all the set's copies in their chains, and filled.
        leader.stamp.store(LINKED, Ordering::Release);
        point(points::LINKED);
        let stamp = clock.stamp();
        match leader.stamp.compare_exchange(LINKED, stamp, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => stamp,
            Err(helped) => helped,
        }
    }

    fn stamp_serializable(&mut self) -> Result<u64, Abort> {
        loop {
            let (leader, clock) = (self.leader(), self.handle.horizon().clock());
            // Release: as `LINKED`. Until the stamp is there, the thread that meets this resets it.
            leader.stamp.store(CHECKING, Ordering::Release);
            let stamp = clock.stamp();
            let checking = CHECKING | stamp;
            if leader.stamp.compare_exchange(CHECKING, checking, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            // A thread that locks what we find unlocked draws a later stamp then, on whatever processor.
            clock.settle(stamp);
            // Between our locks and drawn stamp on one side and our looks on the other; with the exchange in `link`.
            fence(Ordering::SeqCst);
            if let Some(met) = self.changed_read() {
                self.leader().stamp.store(ABORTED, Ordering::Release);
                self.handle.met = met;
                return Err(Abort::Conflict);
            }
            if leader.stamp.compare_exchange(checking, stamp, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(stamp);
            }
        }
    }

    /// What the newest copy says of something read that was changed since, or that another transaction is about to change.
    fn changed_read(&self) -> Option<u64> {
        let reads = self.reads.as_ref().expect("a serializable transaction").borrow();
        // What we have put off to write back is locked by us.
        reads.iter().find_map(|head| self.look(*head).err().filter(|met| !self.is_own_deferred(*met)))
    }

    /// Tells the other copies their stamp, and the versions before them that they are superseded.
    #[inline]
    fn publish(&self, stamp: u64) {
        for entry in self.handle.writes.iter().filter(|entry| !matches!(entry.fate, Fate::Stays)) {
            let header = entry.header();
            // Release: pairs with the loads of readers that do not ask the leader any more.
            header.stamp.store(stamp, Ordering::Release);
            // SAFETY: superseded by no thread until now, and in its chain, so not freed; not used after this.
            if let Some(older) = unsafe { follow(header.older.load(Ordering::Relaxed)) } {
                older.superseded.store(stamp, Ordering::Release);
            }
        }
    }

    /// Lets go of all objects, leaving the given word in the copies, which the log takes over. All copies have their stamp by
    /// now: who locks an object next, and supersedes the leader, draws a stamp above the times of all sections that
    /// may have seen a copy without one and ask the leader.
    #[inline]
    fn release(&mut self, word: impl Fn(Fate) -> u64) {
        let mut writes = core::mem::take(&mut self.handle.writes);
        for Pending { master, copy, shape, fate } in writes.drain(..) {
            // SAFETY: ours until it is handed over.
            let header = unsafe { copy.as_ref() };
            let retired = match fate {
                Fate::Changes => None,
                Fate::Goes(free) => Some(free),
                Fate::Stays => {
                    unlink(master, header);
                    self.handle.unlinked.push(Version { copy, master, shape, retired: None });
                    continue;
                }
            };
            // Release: pairs with `look`. With the logical clock the draw of the stamp has published everything already.
            header.superseded.store(word(fate), Ordering::Release);
            self.handle.committed(Version { copy, master, shape, retired });
        }
        self.handle.writes = writes;
    }

    #[inline]
    fn end(&mut self) {
        self.handle.made.clear();
        self.committed = true;
        self.handle.counts.commits += 1;
        self.handle.leave();
        self.handle.hand_in_unlinked();
    }
}

/// Takes a held copy that is not visible out of its chain; readers may be looking at it.
fn unlink(master: NonNull<Head>, header: &Copied) {
    // SAFETY: we hold the object, so it is not freed, and no other thread changes the word. Release: as what was there.
    unsafe { master.as_ref() }.newest.store(header.older.load(Ordering::Relaxed), Ordering::Release);
}

impl Drop for Tx<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.committed {
            self.abort();
        }
    }
}

impl Tx<'_> {
    #[cold]
    fn abort(&mut self) {
        let Handle { writes, unlinked, made, pool, shared, .. } = &mut *self.handle;
        for entry in writes.drain(..) {
            unlink(entry.master, entry.header());
            let Pending { master, copy, shape, .. } = entry;
            unlinked.push(Version { copy, master, shape, retired: None });
        }
        for Made { master, free } in made.drain(..) {
            // SAFETY: never committed; the thread that made it promised not to use the link after an abort.
            let bytes = unsafe { free(master) };
            pool.object_freed(bytes, shared.horizon().budget());
        }
        self.handle.counts.aborts += 1;
        self.handle.leave();
        self.handle.hand_in_unlinked();
    }
}

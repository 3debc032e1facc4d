//! Commit and abort of transactions.
//!
//! *Commit*: (1) store in the *leader*, the first copy of the write set, that all copies are linked; (2) draw the stamp
//! and store it in the leader, which makes the whole set visible; (3) store the stamp in the other copies and in the
//! versions that they supersede; (4) unlock. If a reader meets a leader whose set is linked but not stamped, it draws
//! and sets the stamp itself. So a reader always knows whether the set was before or after its snapshot. (The paper's
//! readers guess, and may see half of a set.)
//!
//! *Abort*: unlink the copies. Readers may have met them in walks, for which the log waits (rule 6 in `log`). The same
//! holds for the copies of [`Tx::lock_const`], which have no payload and are never visible.
//!
//! *Serializable* (absent from the paper; after Silo, and TimeStone's selectable isolation): the stamp s is drawn
//! first, while the leader's state is `CHECKING`. Then every object that was read is validated: it must be unlocked, or
//! locked by this transaction, and its newest version must be the one that was read. A thread that locks one of these
//! objects later draws a later stamp. (With the hardware clock, this requires that the commit waits for the uncertainty
//! in between.) So the transactions are serialized in the order of stamps. A reader that meets `CHECKING` and is not
//! before s must not wait, and cannot know the result. It resets the leader to `LINKING`, and the writer draws another
//! stamp and validates again. Readers could reset the leader for ever, so after a few validations the writer locks what
//! it has read, as [`Tx::lock_const`] does. Then nothing is left to validate, and the set is made visible as usual.
//! Another transaction that writes one of these objects draws a later stamp, since it locks the object after this
//! transaction has unlocked it, hence after the wait for the uncertainty. Assume that another transaction has read an
//! object that this transaction writes. It is either validated before this transaction locks the object, and then has
//! an earlier stamp, or it finds the object locked.

use core::ptr::NonNull;

use archipelago_platform::atomic::{Ordering, fence};
use archipelago_platform::hint::point;

use super::abort::Abort;
use super::handle::Handle;
use super::points;
use super::tx::Tx;
use super::version::{ABORTED, CHECKING, Copied, DEFERRED, GONE, Head, LINKED, NEVER, Version, follow, lock_word};
use super::writes::{Fate, Found, Made, Pending, Shapes};

/// The number of validations that readers may undo. After them a commit locks what its transaction has read.
const VALIDATIONS: usize = 3;

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
        // SAFETY: the first copy of this transaction's write set, which the transaction owns until the log takes it
        // over.
        unsafe { &*self.leader }
    }

    /// Makes the linked write set visible. Returns its stamp.
    #[inline]
    fn stamp(&self) -> u64 {
        let (leader, clock) = (self.leader(), self.handle.horizon().clock());
        // Release: a thread that sees `LINKED` finds all copies of the set in their chains, and filled.
        leader.stamp.store(LINKED, Ordering::Release);
        point(points::LINKED);
        let stamp = clock.stamp();
        match leader.stamp.compare_exchange(LINKED, stamp, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => stamp,
            Err(helped) => helped,
        }
    }

    fn stamp_serializable(&mut self) -> Result<u64, Abort> {
        for _ in 0..VALIDATIONS {
            let (leader, clock) = (self.leader(), self.handle.horizon().clock());
            // Release: as for `LINKED`. Until the stamp is stored, a thread that meets this state resets it.
            leader.stamp.store(CHECKING, Ordering::Release);
            let stamp = clock.stamp();
            let checking = CHECKING | stamp;
            if leader.stamp.compare_exchange(CHECKING, checking, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            // After this wait, a thread that locks an object which the validation finds unlocked draws a later stamp,
            // on any processor.
            clock.settle(stamp);
            // Orders the locks and the draw of the stamp before the validation. Pairs with the exchange in `link`.
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
        self.lock_reads()?;
        let stamp = self.stamp();
        // Before the reads are unlocked, so that a thread that locks one of them next draws a later stamp, on any
        // processor.
        self.handle.horizon().clock().settle(stamp);
        Ok(stamp)
    }

    /// Locks all objects that the transaction has read.
    #[cold]
    fn lock_reads(&mut self) -> Result<(), Abort> {
        for head in self.reads.take().expect("a serializable transaction").into_inner() {
            // A copy without payload is alike for all types.
            if let Found::Free(newest) = self.find(head)? {
                self.link(head, newest, Shapes::<()>::EMPTY, Fate::Stays)?;
            }
        }
        Ok(())
    }

    /// Returns the word of the newest copy of a read object that was changed since, or that another transaction has
    /// locked.
    fn changed_read(&self) -> Option<u64> {
        let reads = self.reads.as_ref().expect("a serializable transaction").borrow();
        // Objects whose write-back this handle has deferred are locked by this handle.
        reads.iter().find_map(|head| self.look(*head).err().filter(|met| !self.is_own_deferred(*met)))
    }

    /// Stores the stamp in the other copies, and in the versions that they supersede.
    #[inline]
    fn publish(&self, stamp: u64) {
        for entry in self.handle.writes.iter().filter(|entry| !matches!(entry.fate, Fate::Stays)) {
            let header = entry.header();
            // Release: pairs with the loads of readers that find the stamp here and do not load the leader's.
            header.stamp.store(stamp, Ordering::Release);
            // SAFETY: not superseded until now, and in its chain, so not freed; not used after this.
            if let Some(older) = unsafe { follow(header.older.load(Ordering::Relaxed)) } {
                older.superseded.store(stamp, Ordering::Release);
            }
        }
    }

    /// Unlocks all objects by storing the given word in the copies, which the log takes over. All copies already have
    /// their stamp. A thread that locks an object next, and supersedes the leader, draws a stamp above the times of all
    /// sections that may have seen a copy without a stamp and may still load the leader.
    #[inline]
    fn release(&mut self, word: impl Fn(Fate) -> u64) {
        for at in 0..self.handle.writes.len() {
            let Pending { master, copy, shape, fate } = self.handle.writes[at];
            // SAFETY: the transaction owns the copy until the log takes it over.
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
            // Release: pairs with `look`. With the logical clock the draw of the stamp has already published
            // everything.
            header.superseded.store(word(fate), Ordering::Release);
            self.handle.committed(Version { copy, master, shape, retired });
        }
        self.handle.writes.clear();
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

/// Unlinks a held copy that is not visible. Readers may be accessing it.
fn unlink(master: NonNull<Head>, header: &Copied) {
    // SAFETY: this transaction holds the object, so it is not freed, and no other thread changes the word. Release, as
    // the store of the previous value.
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
            // SAFETY: the object was never committed, and its maker promised not to use the link after an abort.
            unsafe { pool.object_freed(free(master), shared.horizon().budget()) };
        }
        self.handle.counts.aborts += 1;
        self.handle.leave();
        self.handle.hand_in_unlinked();
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::super::Domain;
    use super::*;

    /// A commit that readers have delayed locks what it has read, and fails if it cannot.
    #[test]
    fn what_was_read_is_locked_or_the_commit_fails() {
        let domain = Domain::new();
        let [read, written] = [(); 2].map(|()| domain.alloc(0_u64));
        let [mut one, mut other] = [(); 2].map(|()| domain.register());
        let mut change = |link| other.try_update(|tx| tx.lock(link).map(|object| *object += 1));
        for is_late in [false, true] {
            let mut tx = Tx::begin(&mut one, true);
            let sum = *tx.get(read) + *tx.get(read) + *tx.get(written);
            *tx.lock(written).expect("free") = sum + 1;
            assert!(!is_late || change(read) == Ok(()));
            assert_eq!(tx.lock_reads(), if is_late { Err(Abort::Conflict) } else { Ok(()) });
            assert!(is_late || change(read) == Err(Abort::Conflict));
        }
        assert_eq!(change(read).and(change(written)), Ok(()), "what an abort leaves locked");
        let snapshot = one.read();
        assert_eq!((*snapshot.get(read), *snapshot.get(written)), (2, 1));
        drop(snapshot);
        // SAFETY: not used any more.
        one.update(|tx| unsafe { tx.retire(read).and_then(|()| tx.retire(written)) }).expect("there is no cap");
    }
}

//! A transaction: its write set, and how it commits or aborts.
//!
//! *Lock* (`try_lock` in the paper): take the object's lock word from 0, look that the newest version is not newer than
//! the snapshot (write-latest-only), copy it into a block. *Commit*: link every copy at the head of its chain; say so in
//! the leader; draw the stamp and set it in the leader, which makes the set visible at once; tell the other copies and
//! what they superseded; unlock. A reader that meets a leader whose set is linked but not stamped draws and sets the
//! stamp itself, so it never has to guess whether the set was before or after its snapshot (the paper's readers guess,
//! and see half of it).
//!
//! *Serializable* (absent from the paper; after Silo, and TimeStone's selectable isolation): the stamp s is drawn first, in
//! the state `CHECKING`, and then everything read is looked at: it must be unlocked, or locked by this transaction, and
//! its newest version must be the one read. Whoever locks one of these objects later draws a later stamp, so the order
//! of stamps is an order of the transactions. A reader that meets `CHECKING` must not wait, and cannot know; it resets the
//! leader to `LINKING`, and the writer draws another stamp and checks again.

use core::cell::RefCell;
use core::ptr::{self, NonNull};

use archipelago_platform::atomic::{Ordering, fence};

use super::handle::{Abort, Handle};
use super::log::Version;
use super::version::{
    ABORTED, CHECKING, Copied, DEFERRED, GONE, Head, LINKED, Link, Shape, Versioned, lock_word, own_index, payload,
};

/// An object in a write set.
pub(super) struct Pending {
    master: NonNull<Head>,
    /// `None`: locked only.
    copy: Option<NonNull<Copied>>,
    shape: &'static Shape,
    is_mark: bool,
}

struct Marks<T>(core::marker::PhantomData<T>);

impl<T> Marks<T> {
    const FULL: &'static Shape = &Shape::of::<T>();
    const EMPTY: &'static Shape = &Shape::of::<T>().without_payload();
}

/// An object that a transaction made.
struct Made {
    master: NonNull<Head>,
    free: unsafe fn(NonNull<Head>),
}

/// An object that was read, and which version of it (null: the master's own).
type Read = (NonNull<Head>, *const Copied);

/// A transaction under way: see [`Handle::update`].
pub struct Tx<'h> {
    handle: &'h mut Handle,
    local: u64,
    /// The first copy of the write set.
    leader: *const Copied,
    made: Vec<Made>,
    /// Serializable: what was read.
    reads: Option<RefCell<Vec<Read>>>,
    /// Committed or aborted.
    ended: bool,
}

impl<'h> Tx<'h> {
    #[inline]
    pub(super) fn begin(handle: &'h mut Handle, serializable: bool) -> Self {
        let local = handle.enter();
        debug_assert!(handle.writes.is_empty());
        let reads = serializable.then(RefCell::default);
        Self { handle, local, leader: ptr::null(), made: Vec::new(), reads, ended: false }
    }

    /// The object as this transaction sees it: with its own changes, otherwise as in its snapshot.
    ///
    /// # Panics
    /// If the link is of another domain.
    #[inline]
    pub fn get<T: Versioned>(&self, link: Link<T>) -> &T {
        if let Some(copy) = self.own_copy(link) {
            // SAFETY: our own pending copy, borrowed from us.
            return unsafe { copy.as_ref() };
        }
        // SAFETY: in the section of this transaction.
        let seen = unsafe { self.handle.see(link, self.local) };
        if let Some(reads) = &self.reads {
            reads.borrow_mut().push(version_read(link, seen));
        }
        seen
    }

    /// The object as it was at the snapshot, without this transaction's own changes, for as long as the transaction.
    ///
    /// # Panics
    /// If the link is of another domain.
    #[inline]
    pub fn snapshot<T: Versioned>(&self, link: Link<T>) -> &T {
        // SAFETY: in the section of this transaction.
        unsafe { self.handle.see(link, self.local) }
    }

    /// The time of the snapshot, as [`Snapshot::time`](super::Snapshot::time).
    pub fn time(&self) -> u64 {
        self.local
    }

    /// Locks the object and gives a copy of it to change, which becomes the object's newest version with the commit.
    /// Locking again gives the same copy. Never waits.
    ///
    /// # Errors
    /// [`Abort::Conflict`] if another transaction holds the object or has changed it since the snapshot; [`Abort::Full`]
    /// if the memory cap is reached. The transaction should then end; `?` does that.
    ///
    /// # Panics
    /// If the link is of another domain, or this transaction has retired the object.
    #[inline]
    pub fn lock<T: Versioned>(&mut self, link: Link<T>) -> Result<&mut T, Abort> {
        let index = self.hold(link)?;
        let entry = &self.handle.writes[index];
        assert!(!entry.is_mark, "this transaction has retired the object");
        let copy = match entry.copy {
            Some(copy) => copy,
            None => self.make_copy(index, link)?,
        };
        // SAFETY: our own pending copy, initialised by `make_copy`; the reference borrows the transaction.
        Ok(unsafe { payload::<T>(copy).as_mut() })
    }

    /// Locks the object without changing it: nobody else commits a change of it before this transaction ends. Against
    /// write skew, and cheaper than [`lock`](Self::lock).
    ///
    /// # Errors
    /// [`Abort::Conflict`] as for [`lock`](Self::lock).
    ///
    /// # Panics
    /// If the link is of another domain.
    #[inline]
    pub fn lock_const<T: Versioned>(&mut self, link: Link<T>) -> Result<(), Abort> {
        self.hold(link).map(|_| ())
    }

    /// A new object. Others see it when they see a link to it that this transaction has committed.
    ///
    /// # Safety
    /// If this attempt is aborted, the object is freed with it: the link is not used then.
    #[inline]
    pub unsafe fn alloc<T: Versioned>(&mut self, value: T) -> Link<T> {
        let link = Link::new(value, self.handle.domain.id());
        self.made.push(Made { master: link.head(), free: Marks::<T>::FULL.free_master });
        link
    }

    /// Locks the object and, with the commit, gives it up: it is freed when every section from before the commit has ended.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Panics
    /// If the link is of another domain.
    ///
    /// # Safety
    /// When this transaction has committed, sections that begin later find no link to the object, and do not use one that
    /// was kept from before. It was not retired before, and not made by this transaction.
    pub unsafe fn retire<T: Versioned>(&mut self, link: Link<T>) -> Result<(), Abort> {
        let index = self.hold(link)?;
        if self.handle.writes[index].copy.is_none() {
            self.add_copy(index, Marks::<T>::EMPTY)?;
        }
        self.handle.writes[index].is_mark = true;
        Ok(())
    }

    /// The payload of our own pending copy of the object.
    #[inline]
    fn own_copy<T: Versioned>(&self, link: Link<T>) -> Option<NonNull<T>> {
        if self.handle.writes.is_empty() {
            return None;
        }
        // SAFETY: as in `Handle::see`.
        let word = unsafe { link.master() }.head.lock.load(Ordering::Relaxed);
        let entry = &self.handle.writes[own_index(word, self.handle.record.owner)?];
        // Owners' numbers are a domain's own, so the word may be another domain's: then `see` panics.
        let ours = entry.master == link.head() && entry.shape.size as usize == size_of::<T>();
        entry.copy.filter(|_| ours).map(payload::<T>)
    }

    /// Locks the object, unless it is ours already; which entry of the write set it is.
    #[inline]
    fn hold<T: Versioned>(&mut self, link: Link<T>) -> Result<usize, Abort> {
        // SAFETY: as in `Handle::see`.
        let head = &unsafe { link.master() }.head;
        assert!(ptr::eq(head.domain, self.handle.domain.id()), "a link of another domain");
        let word = head.lock.load(Ordering::Relaxed);
        if let Some(index) = own_index(word, self.handle.record.owner) {
            return Ok(index);
        }
        let index = self.handle.writes.len();
        let mine = lock_word(self.handle.record.owner, index);
        // Acquire: pairs with the last holder's unlock, after which its versions are linked and stamped. SeqCst for the
        // check of serializable transactions: of two that lock each other's reads one must see the other's lock.
        if word != 0 || head.lock.compare_exchange(0, mine, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            self.handle.met = word;
            return Err(Abort::Conflict);
        }
        // SAFETY: we hold the lock, so the newest copy cannot be superseded, and thus not be pruned; and either it is
        // above our time, so above the horizon, or our section keeps it.
        let newest = unsafe { head.newest.load(Ordering::Acquire).as_ref() };
        // Relaxed: stamped before the last holder unlocked.
        if newest.is_some_and(|newest| newest.stamp.load(Ordering::Relaxed) > self.local) {
            head.lock.store(0, Ordering::Release);
            return Err(Abort::Conflict);
        }
        self.handle.writes.push(Pending { master: link.head(), copy: None, shape: Marks::<T>::FULL, is_mark: false });
        Ok(index)
    }

    /// Gives entry `index` a block with a header.
    fn add_copy(&mut self, index: usize, shape: &'static Shape) -> Result<NonNull<Copied>, Abort> {
        let Handle { pool, domain, writes, .. } = &mut *self.handle;
        let copy = pool.get(shape.copy, domain.budget()).ok_or(Abort::Full)?;
        // SAFETY: a fresh block with room for a header.
        unsafe { copy.write(Copied::new(self.leader)) };
        if self.leader.is_null() {
            self.leader = copy.as_ptr();
        }
        writes[index].copy = Some(copy);
        writes[index].shape = shape;
        Ok(copy)
    }

    #[inline]
    fn make_copy<T: Versioned>(&mut self, index: usize, link: Link<T>) -> Result<NonNull<Copied>, Abort> {
        let copy = self.add_copy(index, Marks::<T>::FULL)?;
        // SAFETY: as in `Handle::see`.
        let master = unsafe { link.master() };
        let from = match NonNull::new(master.head.newest.load(Ordering::Acquire)) {
            Some(newest) => payload::<T>(newest).as_ptr(),
            None => master.value.get(),
        };
        // SAFETY: the newest version, not above our time (see `hold`), so kept and unchanged for our section; the block
        // is ours.
        unsafe { ptr::copy_nonoverlapping(from, payload::<T>(copy).as_ptr(), 1) };
        Ok(copy)
    }
}

/// Which version of the object it is that was seen: null for the master's own.
#[cold]
fn version_read<T: Versioned>(link: Link<T>, seen: &T) -> Read {
    // SAFETY: as in `Handle::see`.
    let master = unsafe { link.master() };
    let offset = Marks::<T>::FULL.in_copy as usize;
    let version = match ptr::eq(seen, master.value.get()) {
        true => ptr::null(),
        false => ptr::from_ref(seen).wrapping_byte_sub(offset).cast(),
    };
    (link.head(), version)
}

/// Ending.
impl Tx<'_> {
    #[inline]
    pub(super) fn commit(mut self) -> Result<(), Abort> {
        if self.leader.is_null() {
            self.unlock(|_| 0);
            self.handle.writes.clear();
        } else {
            self.link();
            let stamp = if self.reads.is_some() { self.stamp_serializable() } else { Ok(self.stamp()) };
            let Ok(stamp) = stamp else {
                self.unlink();
                return Err(Abort::Conflict);
            };
            self.publish(stamp);
            if self.handle.domain.is_multi_version() {
                self.unlock(|entry| if entry.is_mark { GONE } else { 0 });
                self.hand_over();
                self.handle.hand_in_if_many();
                self.end();
            } else {
                let owner = self.handle.record.owner;
                self.unlock(|entry| if entry.copy.is_some() { lock_word(owner, 0) | DEFERRED } else { 0 });
                self.hand_over();
                self.end();
                self.handle.write_back_or_defer(stamp);
            }
            self.handle.domain.clock().settle(stamp);
            return Ok(());
        }
        self.end();
        Ok(())
    }

    fn leader(&self) -> &Copied {
        // SAFETY: the first copy of our write set, which is ours until it is handed over.
        unsafe { &*self.leader }
    }

    /// Puts every copy at the head of its chain.
    #[inline]
    fn link(&self) {
        for entry in &self.handle.writes {
            let Some(copy) = entry.copy else { continue };
            // SAFETY: we hold the lock of the object, so it is not freed, and the copy is ours.
            let (head, header) = unsafe { (entry.master.as_ref(), copy.as_ref()) };
            let mut newest = head.newest.load(Ordering::Acquire);
            loop {
                header.older.store(newest, Ordering::Relaxed);
                // Only a collector competes, which cuts the chain off after it has written the newest copy back: then
                // that copy must not be linked to, for it will be freed.
                match head.newest.compare_exchange(newest, copy.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(now) => newest = now,
                }
            }
        }
    }

    /// Makes the linked write set visible; at what time.
    #[inline]
    fn stamp(&self) -> u64 {
        let (leader, clock) = (self.leader(), self.handle.domain.clock());
        // Release: who sees `LINKED` finds all the set's copies in their chains.
        leader.stamp.store(LINKED, Ordering::Release);
        let stamp = clock.stamp();
        match leader.stamp.compare_exchange(LINKED, stamp, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => stamp,
            Err(helped) => helped,
        }
    }

    fn stamp_serializable(&mut self) -> Result<u64, Abort> {
        loop {
            let (leader, clock) = (self.leader(), self.handle.domain.clock());
            leader.stamp.store(CHECKING, Ordering::Release);
            let stamp = clock.stamp();
            // Between our locks and drawn stamp on one side and our looks on the other; with `hold`'s exchange.
            fence(Ordering::SeqCst);
            if let Some(met) = self.changed_read() {
                leader.stamp.store(ABORTED, Ordering::Release);
                self.handle.met = met;
                return Err(Abort::Conflict);
            }
            if leader.stamp.compare_exchange(CHECKING, stamp, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Ok(stamp);
            }
        }
    }

    /// The lock word of something read that is not the newest any more, or that another transaction is about to change.
    fn changed_read(&self) -> Option<u64> {
        let reads = self.reads.as_ref().expect("a serializable transaction").borrow();
        reads.iter().find_map(|(head, version)| {
            // SAFETY: read in our section, so the object is not freed before it ends.
            let head = unsafe { head.as_ref() };
            // Acquire: pairs with an unlock, so that a version committed before it is seen.
            let word = head.lock.load(Ordering::Acquire);
            // What we hold, `hold` has looked at.
            let is_own = own_index(word, self.handle.record.owner).is_some();
            let holds = is_own || word == 0 && self.is_newest(head, *version);
            (!holds).then_some(word)
        })
    }

    /// Whether the newest version is the one read, or one that was written back since, or that our snapshot sees.
    fn is_newest(&self, head: &Head, version: *const Copied) -> bool {
        let Handle { record, domain, .. } = &*self.handle;
        // A walk, because the newest may be superseded and pruned while we look.
        record.walk(
            || domain.reader_barrier(),
            || {
                let newest = head.newest.load(Ordering::Acquire).cast_const();
                // SAFETY: in its chain during a walk.
                let is_old = || unsafe { &*newest }.stamp.load(Ordering::Acquire) <= self.local;
                newest == version || newest.is_null() || is_old()
            },
        )
    }

    /// Tells the other copies their stamp, and the versions before them that they are superseded.
    #[inline]
    fn publish(&self, stamp: u64) {
        for copy in self.handle.writes.iter().filter_map(|entry| entry.copy) {
            // SAFETY: our copies.
            let header = unsafe { copy.as_ref() };
            // Release: pairs with the loads of readers that do not ask the leader any more.
            header.stamp.store(stamp, Ordering::Release);
            // SAFETY: superseded by nobody until now, and in its chain, so not freed; not used after this.
            if let Some(older) = unsafe { header.older.load(Ordering::Relaxed).as_ref() } {
                older.superseded.store(stamp, Ordering::Release);
            }
        }
    }

    /// Lets go of all objects, leaving the given word in their locks.
    #[inline]
    fn unlock(&self, word: impl Fn(&Pending) -> u64) {
        for entry in &self.handle.writes {
            // SAFETY: we hold the lock.
            let head = unsafe { entry.master.as_ref() };
            head.lock.store(word(entry), Ordering::Release);
        }
    }

    #[inline]
    fn end(&mut self) {
        self.made.clear();
        self.ended = true;
        self.handle.counts.commits += 1;
        self.handle.leave();
    }

    fn hand_over(&mut self) {
        let mut writes = core::mem::take(&mut self.handle.writes);
        for Pending { master, copy, shape, is_mark } in writes.drain(..) {
            if let Some(copy) = copy {
                self.handle.committed(Version { copy, master, shape, is_mark });
            }
        }
        self.handle.writes = writes;
    }

    /// Undoes `link`, whose copies were never visible; readers may be looking at them, so they go through the log.
    #[cold]
    fn unlink(&mut self) {
        let Handle { writes, unlinked, .. } = &mut *self.handle;
        for entry in writes {
            let Some(copy) = entry.copy.take() else { continue };
            // SAFETY: ours; and the newest of its object, whose lock we hold, so nobody else changes `newest`.
            let (head, header) = unsafe { (entry.master.as_ref(), copy.as_ref()) };
            head.newest.store(header.older.load(Ordering::Relaxed), Ordering::Release);
            unlinked.push(Version { copy, master: entry.master, shape: entry.shape, is_mark: false });
        }
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.unlock(|_| 0);
        let Handle { pool, domain, writes, .. } = &mut *self.handle;
        for entry in writes.drain(..) {
            if let Some(copy) = entry.copy {
                // SAFETY: never linked, so nobody else has seen it.
                unsafe { pool.put(copy, entry.shape.copy, domain.budget()) };
            }
        }
        for Made { master, free } in self.made.drain(..) {
            // SAFETY: never committed; whoever made it promised not to use the link after an abort.
            unsafe { free(master) };
        }
        self.handle.counts.aborts += 1;
        self.handle.leave();
    }
}

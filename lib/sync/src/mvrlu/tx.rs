//! Running transactions: their reads and locks.
//!
//! *Lock* (`try_lock` in the paper): (1) check that no thread holds the object and that its newest version is not newer
//! than the snapshot (write-latest-only); (2) link a copy above this version; the copy locks the object and has no
//! stamp yet; (3) fill the copy. `commit` describes how the transaction ends.

use core::cell::RefCell;
use core::ptr::{self, NonNull};

use archipelago_platform::atomic::Ordering;
use archipelago_platform::hint::point;
use archipelago_platform::{touch, touch_mut};

use super::abort::Abort;
use super::handle::Handle;
use super::points;
use super::version::{
    Copied, DEFERRED, Free, Head, Link, NEVER, Raw, Shape, Version, Versioned, follow, is_end, lock_word, own_index,
    owner_of, payload,
};
use super::writes::{Fate, Found, Made, Pending, Shapes};

/// A running transaction: see [`Handle::update`].
pub struct Tx<'h> {
    pub(super) handle: &'h mut Handle,
    local: u64,
    /// The first copy of the write set that a commit makes visible.
    pub(super) leader: *const Copied,
    /// In serializable transactions, the objects that were read.
    pub(super) reads: Option<RefCell<Vec<NonNull<Head>>>>,
    /// `true` while the transaction has no copies of its own, if it does not note its reads. A search keeps this flag in
    /// a register, and tests nothing else for each read.
    is_plain: bool,
    /// Whether an object was made that exceeds the memory cap.
    pub(super) is_full: bool,
    pub(super) committed: bool,
}

impl<'h> Tx<'h> {
    #[inline]
    pub(super) fn begin(handle: &'h mut Handle, serializable: bool) -> Self {
        let local = handle.enter();
        debug_assert!(handle.writes.is_empty() && handle.made.is_empty());
        let reads = serializable.then(RefCell::default);
        Self { handle, local, leader: ptr::null(), is_plain: !serializable, reads, is_full: false, committed: false }
    }

    /// Returns the object as this transaction sees it: with the transaction's own changes, and otherwise as of its
    /// snapshot. An object that this transaction has retired is returned as of the snapshot.
    ///
    /// # Panics
    /// If the link belongs to another domain.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let number = domain.alloc(1);
    /// let mut handle = domain.register();
    /// handle.update(|tx| {
    ///     *tx.lock(number)? = 2;
    ///     assert_eq!(*tx.get(number), 2);
    ///     Ok(())
    /// })?;
    /// # handle.update(|tx| unsafe { tx.retire(number) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    #[inline]
    pub fn get<T: Versioned>(&self, link: Link<T>) -> &T {
        // SAFETY: of this domain; see `raw`.
        unsafe { self.get_raw(self.raw(link)) }
    }

    /// Returns the object as of the snapshot, without this transaction's own changes. The reference is valid as long as
    /// the transaction.
    ///
    /// # Panics
    /// If the link belongs to another domain.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let number = domain.alloc(1);
    /// let mut handle = domain.register();
    /// handle.update(|tx| {
    ///     *tx.lock(number)? = 2;
    ///     assert_eq!(*tx.snapshot(number), 1);
    ///     Ok(())
    /// })?;
    /// # handle.update(|tx| unsafe { tx.retire(number) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    #[inline]
    pub fn snapshot<T: Versioned>(&self, link: Link<T>) -> &T {
        // SAFETY: in the section of this transaction; of this domain, see `raw`.
        unsafe { self.handle.see(self.raw(link), self.local) }
    }

    /// Returns the snapshot's time, as [`Snapshot::time`](super::Snapshot::time).
    pub fn time(&self) -> u64 {
        self.local
    }

    /// Locks the object and returns a copy of it to change, which the commit makes the object's newest version. Locking
    /// again returns the same copy. Does not wait for the other transaction if the object is locked.
    ///
    /// # Errors
    /// [`Abort::Conflict`] if another transaction holds the object or has changed it since the snapshot;
    /// [`Abort::Full`] if the memory cap is reached. The transaction should then end: pass the error on by `?`.
    ///
    /// # Panics
    /// If the link belongs to another domain, or this transaction has retired the object.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let list = domain.alloc([3, 1, 2]);
    /// let mut handle = domain.register();
    /// handle.update(|tx| Ok(tx.lock(list)?.sort()))?;
    /// assert_eq!(*handle.read().get(list), [1, 2, 3]);
    /// # handle.update(|tx| unsafe { tx.retire(list) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    #[inline]
    pub fn lock<T: Versioned>(&mut self, link: Link<T>) -> Result<&mut T, Abort> {
        // SAFETY: of this domain; see `raw`.
        unsafe { self.lock_raw(self.raw(link)) }
    }

    /// Locks the object without changing it: no other thread commits a change of it before this transaction ends. This
    /// prevents write skew. Copies nothing, whatever the object's size.
    ///
    /// # Errors
    /// As [`lock`](Self::lock): the lock takes memory, too.
    ///
    /// # Panics
    /// If the link belongs to another domain.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let (limit, used) = (domain.alloc(10), domain.alloc(0));
    /// let mut handle = domain.register();
    /// let booked = handle.update(|tx| {
    ///     tx.lock_const(limit)?; // it does not change before this commit
    ///     let fits = *tx.get(used) < *tx.get(limit);
    ///     *tx.lock(used)? += u32::from(fits);
    ///     Ok(fits)
    /// })?;
    /// assert!(booked);
    /// # handle.update(|tx| unsafe { tx.retire(limit)?; tx.retire(used) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    #[inline]
    pub fn lock_const<T: Versioned>(&mut self, link: Link<T>) -> Result<(), Abort> {
        let object = self.raw(link);
        if let Found::Free(newest) = self.find(object.head())? {
            self.link(object.head(), newest, Shapes::<T>::EMPTY, Fate::Stays)?;
        }
        Ok(())
    }

    /// Makes an object. Other threads see it once they see a link to it that this transaction has committed. If it
    /// exceeds the memory cap, the transaction ends with [`Abort::Full`].
    ///
    /// # Safety
    /// If this attempt is aborted, the object is freed, and the caller does not use the link any more.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::{Domain, Link};
    ///
    /// #[derive(Clone, Copy)]
    /// struct Node(u32, Option<Link<Node>>);
    ///
    /// let domain = Domain::new();
    /// let head = domain.alloc(Node(1, None));
    /// let mut handle = domain.register();
    /// handle.update(|tx| {
    ///     // SAFETY: an attempt that is aborted does not keep the link.
    ///     let next = unsafe { tx.alloc(Node(2, None)) };
    ///     tx.lock(head)?.1 = Some(next);
    ///     Ok(())
    /// })?;
    /// let snapshot = handle.read();
    /// let next = snapshot.get(head).1.unwrap();
    /// assert_eq!(snapshot.get(next).0, 2);
    /// # drop(snapshot);
    /// # handle.update(|tx| unsafe { tx.retire(head)?; tx.retire(next) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    #[inline]
    pub unsafe fn alloc<T: Versioned>(&mut self, value: T) -> Link<T> {
        let memory = self.handle.pool.object_memory(Link::<T>::LAYOUT);
        // SAFETY: fresh memory.
        let link = unsafe { Link::new_in(memory, value, self.local, self.handle.horizon().id()) };
        let master = self.raw(link).head();
        self.note_made(Made { master, free: Link::<T>::FREE }, Link::<T>::LAYOUT.size());
        link
    }

    /// Locks the object, and retires it with the commit: it is freed after every section that may see it has ended.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Panics
    /// If the link belongs to another domain.
    ///
    /// # Safety
    /// Two kinds of sections find no link to the object, and do not use a kept link: sections that begin after the
    /// commit, and sections that began before the object was made. (An object is made by the commit of the transaction
    /// that called [`alloc`](Self::alloc), or by the call of [`Domain::alloc`](super::Domain::alloc).) The object was
    /// not retired before.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::{Domain, Link};
    ///
    /// let domain = Domain::new();
    /// let slot = domain.alloc(Some(domain.alloc(7)));
    /// let mut handle = domain.register();
    /// handle.update(|tx| match tx.lock(slot)?.take() {
    ///     // SAFETY: only the slot had the link, and it is empty with this commit.
    ///     Some(object) => unsafe { tx.retire(object) },
    ///     None => Ok(()),
    /// })?;
    /// assert!(handle.read().get(slot).is_none());
    /// # let _: Link<Option<Link<i32>>> = slot;
    /// # handle.update(|tx| unsafe { tx.retire(slot) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    pub unsafe fn retire<T: Versioned>(&mut self, link: Link<T>) -> Result<(), Abort> {
        self.give_up(self.raw(link), Link::<T>::FREE)
    }

    /// Returns the object of a link.
    #[inline]
    fn raw<T: Versioned>(&self, link: Link<T>) -> Raw<T> {
        // SAFETY: an object is not freed while a thread may follow a link to it, by the promises of retiring and
        // aborting code.
        unsafe { link.raw(self.handle.horizon().id()) }
    }
}

/// The same methods for objects whose domain is known. Methods that take an object require that the object belongs to
/// this transaction's domain, and is not freed before the transaction's section ends.
impl Tx<'_> {
    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// The object belongs to this domain, and is not freed before this transaction ends.
    #[inline]
    pub unsafe fn get_raw<T: Versioned>(&self, object: Raw<T>) -> &T {
        // SAFETY: the caller's promise.
        if let Some(own) = unsafe { self.own(object) } {
            return own;
        }
        // SAFETY: in the section of this transaction; the caller's promise.
        unsafe { self.handle.see(object, self.local) }
    }

    /// Returns the value of this transaction's own copy of an object. If there is none, notes that the object is read.
    ///
    /// # Safety
    /// As for [`get_raw`](Self::get_raw).
    #[inline]
    unsafe fn own<T: Versioned>(&self, object: Raw<T>) -> Option<&T> {
        if !self.handle.writes.is_empty()
            && let Some(copy) = self.own_copy(object.head())
        {
            // SAFETY: this transaction's own pending copy.
            unsafe { copy.as_ref() }.watch.read();
            // SAFETY: as above. The copy is filled, and the reference borrows this transaction.
            return Some(unsafe { payload::<T>(copy).as_ref() });
        }
        if self.reads.is_some() {
            self.note_read(object.head());
        }
        None
    }

    /// Returns what `read` returns for the object as [`get_raw`](Self::get_raw) would return it. A search that follows
    /// many links is faster this way.
    ///
    /// # Safety
    /// As for [`get_raw`](Self::get_raw).
    #[inline]
    pub unsafe fn read_raw<T: Versioned, R>(&self, object: Raw<T>, read: impl Fn(&T) -> R) -> R {
        // SAFETY: the caller's promise.
        unsafe { self.read_first_raw(object, size_of::<T>(), read) }
    }

    /// As [`read_raw`](Self::read_raw), if `read` reads only the first `bytes` bytes of the value. Natively this makes
    /// no difference. In a simulation, only these bytes are read.
    ///
    /// # Safety
    /// As for [`get_raw`](Self::get_raw).
    #[inline]
    pub unsafe fn read_first_raw<T: Versioned, R>(&self, object: Raw<T>, bytes: usize, read: impl Fn(&T) -> R) -> R {
        if !self.is_plain {
            // SAFETY: the caller's promise.
            if let Some(own) = unsafe { self.own(object) } {
                return read(own);
            }
        }
        // SAFETY: in the section of this transaction; the caller's promise.
        unsafe { self.handle.see_with(object, self.local, bytes, read) }
    }

    /// Not inlined: a search reads many objects, mostly before the transaction's first lock, when there are no own
    /// copies.
    #[inline(never)]
    fn own_copy(&self, head: NonNull<Head>) -> Option<NonNull<Copied>> {
        let Ok(Found::Own(index)) = self.look(head) else { return None };
        let Pending { copy, fate, .. } = &self.handle.writes[index];
        matches!(fate, Fate::Changes).then_some(*copy)
    }

    #[inline(never)]
    fn note_read(&self, head: NonNull<Head>) {
        self.reads.iter().for_each(|reads| reads.borrow_mut().push(head));
    }

    /// As [`lock`](Self::lock).
    ///
    /// # Safety
    /// The object belongs to this domain, and is not freed before this transaction ends.
    #[inline]
    pub unsafe fn lock_raw<T: Versioned>(&mut self, object: Raw<T>) -> Result<&mut T, Abort> {
        let copy = match self.find(object.head())? {
            Found::Free(newest) => {
                let copy = self.link(object.head(), newest, Shapes::<T>::FULL, Fate::Changes)?;
                fill(copy, object);
                copy
            }
            Found::Own(index) => match self.handle.writes[index].fate {
                Fate::Changes => self.handle.writes[index].copy,
                Fate::Stays => {
                    let copy = self.replace(index, Shapes::<T>::FULL, Fate::Changes)?;
                    fill(copy, object);
                    copy
                }
                Fate::Goes(_) => panic!("this transaction has retired the object"),
            },
        };
        // SAFETY: this transaction's own pending copy, filled; the reference borrows the transaction.
        Ok(unsafe { payload::<T>(copy).as_mut() })
    }

    /// As [`alloc`](Self::alloc).
    ///
    /// # Safety
    /// As for [`alloc`](Self::alloc).
    #[inline]
    pub unsafe fn alloc_raw<T: Versioned>(&mut self, value: T) -> Raw<T> {
        let memory = self.handle.pool.object_memory(Raw::<T>::LAYOUT);
        // SAFETY: fresh memory.
        let object = unsafe { Raw::new_in(memory, value, self.local) };
        self.note_made(Made { master: object.head(), free: Raw::<T>::FREE }, Raw::<T>::LAYOUT.size());
        object
    }

    #[inline]
    fn note_made(&mut self, made: Made, bytes: usize) {
        let Handle { made: all, pool, shared, .. } = &mut *self.handle;
        all.push(made);
        self.is_full |= !pool.object_made(bytes, shared.horizon().budget());
    }

    /// As [`retire`](Self::retire).
    ///
    /// # Safety
    /// As for [`retire`](Self::retire); and the object belongs to this domain, and is not freed before this transaction
    /// ends.
    #[inline]
    pub unsafe fn retire_raw<T: Versioned>(&mut self, object: Raw<T>) -> Result<(), Abort> {
        self.give_up(object, Raw::<T>::FREE)
    }

    #[inline]
    fn give_up<T: Versioned>(&mut self, object: Raw<T>, free: Free) -> Result<(), Abort> {
        let fate = Fate::Goes(free);
        match self.find(object.head())? {
            Found::Free(newest) => _ = self.link(object.head(), newest, Shapes::<T>::EMPTY, fate)?,
            Found::Own(index) => match self.handle.writes[index].fate {
                Fate::Stays => _ = self.replace(index, Shapes::<T>::EMPTY, fate)?,
                Fate::Changes | Fate::Goes(_) => self.handle.writes[index].fate = fate,
            },
        }
        Ok(())
    }

    /// Calls [`look`](Self::look) for a transaction that wants to lock the object.
    #[inline]
    pub(super) fn find(&mut self, head: NonNull<Head>) -> Result<Found, Abort> {
        self.look(head).or_else(|met| self.find_after(head, met))
    }

    /// Calls [`look`](Self::look) again after a failure. In a domain with two versions per object (RLU), a deferred
    /// commit of this handle may hold the object; the commit is written back here. The write-back waits for sections
    /// that began before the commit's stamp, so before this section. Hence it does not wait for this section, and
    /// threads do not wait in a circle.
    #[cold]
    fn find_after(&mut self, head: NonNull<Head>, met: u64) -> Result<Found, Abort> {
        let mut last = met;
        if self.is_own_deferred(met) {
            self.handle.write_back_own();
            match self.look(head) {
                Ok(found) => return Ok(found),
                Err(met) => last = met,
            }
        }
        self.handle.met = last;
        Err(Abort::Conflict)
    }

    pub(super) fn is_own_deferred(&self, word: u64) -> bool {
        word & DEFERRED != 0 && owner_of(word) == Some(self.handle.record.owner as usize)
    }

    /// Returns whether this transaction has locked the object, or may lock it. Otherwise returns the `superseded` word
    /// of the object's newest copy, which may be a lock word.
    ///
    /// The transaction may lock the object if the newest version is the one that its snapshot sees. The section keeps
    /// this version alive.
    #[inline]
    pub(super) fn look(&self, head: NonNull<Head>) -> Result<Found, u64> {
        // SAFETY: not freed during this section, as all callers promise.
        let head = unsafe { head.as_ref() };
        // Acquire: pairs with a commit, and with the write-back that cut the chain off.
        let unversioned = head.newest.load(Ordering::Acquire);
        if is_end(unversioned) {
            return Ok(Found::Free(unversioned));
        }
        // A walk, because the newest copy may be superseded and pruned during the access.
        self.handle.walking(|| {
            let newest = head.newest.load(Ordering::Acquire);
            // SAFETY: the copy was the newest during the walk, so it is not freed before the walk ends.
            let Some(header) = (unsafe { follow(newest) }) else { return Ok(Found::Free(newest)) };
            // Acquire: pairs with the unlock, before which the stamp was set.
            let word = header.superseded.load(Ordering::Acquire);
            if let Some(index) = own_index(word, self.handle.record.owner) {
                return Ok(Found::Own(index));
            }
            let stamp = header.stamp.load(Ordering::Relaxed);
            if word != NEVER || stamp > self.local {
                return Err(word);
            }
            // The caller gets the value to change, so its clock must observe the stamp.
            self.handle.horizon().clock().observe(stamp, self.local);
            Ok(Found::Free(newest))
        })
    }

    /// Locks an object: links a new copy above `newest`, which `look` has found.
    #[inline]
    pub(super) fn link(
        &mut self,
        master: NonNull<Head>,
        mut newest: *mut Copied,
        shape: &'static Shape,
        fate: Fate,
    ) -> Result<NonNull<Copied>, Abort> {
        let copy = self.new_copy(self.handle.writes.len(), newest, shape, fate)?;
        // SAFETY: not freed in this transaction's section.
        let head = unsafe { master.as_ref() };
        point(points::LINKING);
        // SeqCst for the validation of serializable transactions: if two transactions lock each other's reads, one must
        // see the other's lock. It includes Release: a thread that meets the copy sees its header.
        while let Err(now) = head.newest.compare_exchange(newest, copy.as_ptr(), Ordering::SeqCst, Ordering::Acquire) {
            let Handle { pool, shared, .. } = &mut *self.handle;
            if !is_end(now) {
                // SAFETY: never linked.
                unsafe {
                    copy.as_ref().header.gone();
                    pool.put(copy, shape.copy, shared.horizon().budget());
                }
                return Err(Abort::Conflict);
            }
            // A collector has written back the newest copy and cut it off. The new copy must not link to it, since
            // it will be freed. No later commit can have been written back meanwhile, since its stamp would be
            // above this section's time.
            newest = now;
            // SAFETY: ours.
            unsafe { copy.as_ref() }.older.store(newest, Ordering::Relaxed);
        }
        self.adopt(copy, fate);
        self.is_plain = false;
        self.handle.writes.push(Pending { master, copy, shape, fate });
        Ok(copy)
    }

    /// Replaces the copy of entry `index`, which only locks the object, by a copy that the commit makes visible.
    #[cold]
    fn replace(&mut self, index: usize, shape: &'static Shape, fate: Fate) -> Result<NonNull<Copied>, Abort> {
        let Pending { master, copy: placeholder, .. } = self.handle.writes[index];
        let older = self.handle.writes[index].header().older.load(Ordering::Relaxed);
        let copy = self.new_copy(index, older, shape, fate)?;
        // SAFETY: not freed during this section. This transaction holds the object, so no other thread changes the
        // word. Release: as in `link`.
        unsafe { master.as_ref() }.newest.store(copy.as_ptr(), Ordering::Release);
        self.adopt(copy, fate);
        let before = core::mem::replace(&mut self.handle.writes[index], Pending { master, copy, shape, fate });
        self.handle.unlinked.push(Version { copy: placeholder, master, shape: before.shape, retired: None });
        Ok(copy)
    }

    /// Makes a block with the header for entry `index`.
    #[inline]
    fn new_copy(
        &mut self,
        index: usize,
        older: *mut Copied,
        shape: &'static Shape,
        fate: Fate,
    ) -> Result<NonNull<Copied>, Abort> {
        let Handle { pool, shared, record, .. } = &mut *self.handle;
        let copy = pool.get(shape.copy, shared.horizon().budget()).ok_or(Abort::Full)?;
        let leader = if matches!(fate, Fate::Stays) { ptr::null() } else { self.leader };
        touch_mut(copy.as_ptr(), shape.copy.size());
        // SAFETY: a fresh block with room for a header.
        unsafe { copy.write(Copied::new(leader, older, lock_word(record.owner, index))) };
        Ok(copy)
    }

    #[inline]
    fn adopt(&mut self, copy: NonNull<Copied>, fate: Fate) {
        if self.leader.is_null() && !matches!(fate, Fate::Stays) {
            self.leader = copy.as_ptr();
        }
    }
}

/// Fills the payload of a copy that was just linked with the version below it.
#[inline]
fn fill<T: Versioned>(copy: NonNull<Copied>, object: Raw<T>) {
    // SAFETY: the caller's own pending copy; neither this copy, nor the version below, nor the object is freed during
    // the caller's section.
    let (header, master) = unsafe { (copy.as_ref(), object.master()) };
    let word = header.older.load(Ordering::Relaxed);
    let older = NonNull::new(word).filter(|_| !is_end(word));
    // SAFETY: as above.
    older.map_or(&master.head.watch, |older| unsafe { &older.as_ref().watch }).read();
    header.watch.write();
    let from = older.map_or(master.value.get(), |older| payload::<T>(older).as_ptr());
    touch(from, size_of::<T>());
    // SAFETY: the newest version below is the one that the caller's snapshot sees (see `look`). So it is kept and
    // unchanged during the section: a master is not written while no committed copy is above it. The copy is the
    // caller's.
    unsafe { ptr::copy_nonoverlapping(from, payload::<T>(copy).as_ptr(), 1) };
}

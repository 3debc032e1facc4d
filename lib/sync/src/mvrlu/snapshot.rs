//! Reading: snapshots of all objects as of one moment.

use super::handle::Handle;
use super::version::{Link, Raw, Versioned};

impl Handle {
    /// Begins a read-only section, which sees all objects of the domain as of this moment. The call never waits, and
    /// the section is never aborted. (With the hardware clock, [`Snapshot::get`] may wait for a moment: see
    /// [`mvrlu`](super).)
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let (a, b) = (domain.alloc(1), domain.alloc(2));
    /// let mut handle = domain.register();
    /// let snapshot = handle.read();
    /// domain.register().update(|tx| Ok((*tx.lock(a)?, *tx.lock(b)?) = (3, 4)))?;
    /// assert_eq!((*snapshot.get(a), *snapshot.get(b)), (1, 2));
    /// drop(snapshot);
    /// assert_eq!(*handle.read().get(a), 3);
    /// # handle.update(|tx| unsafe { tx.retire(a)?; tx.retire(b) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    #[inline]
    pub fn read(&mut self) -> Snapshot<'_> {
        let local = self.enter();
        Snapshot { handle: self, local }
    }
}

/// All objects of a domain as they were when the snapshot was taken. References that the snapshot returns are valid as
/// long as it lives.
///
/// A long-lived snapshot keeps one version of each object that is changed meanwhile, and no more. A forgotten snapshot
/// (`mem::forget`) keeps these versions until the handle is used again or dropped.
pub struct Snapshot<'h> {
    handle: &'h mut Handle,
    local: u64,
}

impl Snapshot<'_> {
    /// Returns the object as it was when the snapshot was taken. If the object has no copies beside its master value,
    /// this costs one load more than following a pointer.
    ///
    /// # Panics
    /// If the link belongs to another domain.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let point = domain.alloc((1.0, 2.0));
    /// let mut handle = domain.register();
    /// let snapshot = handle.read();
    /// let (x, y) = snapshot.get(point);
    /// assert_eq!(x + y, 3.0);
    /// # drop(snapshot);
    /// # handle.update(|tx| unsafe { tx.retire(point) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    #[inline]
    pub fn get<T: Versioned>(&self, link: Link<T>) -> &T {
        // SAFETY: an object is not freed while a thread may follow a link to it, by the promises of retiring and
        // aborting code.
        let object = unsafe { link.raw(self.handle.horizon().id()) };
        // SAFETY: as above; just checked.
        unsafe { self.get_raw(object) }
    }

    /// As [`get`](Self::get).
    ///
    /// # Safety
    /// The object is of this domain, and not freed before this snapshot ends.
    #[inline]
    pub unsafe fn get_raw<T: Versioned>(&self, object: Raw<T>) -> &T {
        // SAFETY: the handle is in the section of this snapshot, until its drop.
        unsafe { self.handle.see(object, self.local) }
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
        // SAFETY: as in `get_raw`.
        unsafe { self.handle.see_with(object, self.local, bytes, read) }
    }

    /// Returns the snapshot's time by the domain's clock: the snapshot sees commits that are stamped at or before it.
    /// For tests and logs.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let mut handle = domain.register();
    /// let first = handle.read().time();
    /// assert!(handle.read().time() >= first);
    /// ```
    pub fn time(&self) -> u64 {
        self.local
    }
}

impl Drop for Snapshot<'_> {
    #[inline]
    fn drop(&mut self) {
        self.handle.leave();
    }
}

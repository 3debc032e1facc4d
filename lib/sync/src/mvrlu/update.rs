//! Writing: transactions that are repeated until they commit.

use super::abort::{Abort, Full};
use super::handle::Handle;
use super::patience::Patience;
use super::tx::Tx;

/// After an attempt that finds the domain's memory full, the transaction collects and tries again, this many times. The
/// next such attempt fails.
const FULL_ATTEMPTS: usize = 8;

impl Handle {
    /// Runs `body` as a transaction until it commits, with pauses between the attempts. Returns the body's result.
    /// Other writers can cause retries. Readers cannot, except that long snapshots may fill the domain's memory cap.
    /// Snapshot isolation; see [`update_serializable`](Self::update_serializable).
    ///
    /// To give up, the body returns `Ok` with a value of its choice before it locks anything.
    ///
    /// # Errors
    /// [`Full`], if versions use up the domain's memory cap.
    ///
    /// # Panics
    /// If `body` panics. The transaction is aborted then.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// let (from, to) = (domain.alloc(10), domain.alloc(0));
    /// let mut handle = domain.register();
    /// let moved = handle.update(|tx| {
    ///     if *tx.get(from) < 7 {
    ///         return Ok(false);
    ///     }
    ///     *tx.lock(from)? -= 7;
    ///     *tx.lock(to)? += 7;
    ///     Ok(true)
    /// })?;
    /// assert!(moved);
    /// assert_eq!(*handle.read().get(to), 7);
    /// # handle.update(|tx| unsafe { tx.retire(from)?; tx.retire(to) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    #[inline]
    pub fn update<R>(&mut self, body: impl FnMut(&mut Tx<'_>) -> Result<R, Abort>) -> Result<R, Full> {
        self.retry(body, |handle, body| handle.attempt(false, body))
    }

    /// As [`update`](Self::update), and serializable among all transactions that commit this way: an attempt is aborted
    /// if anything that the body read by [`Tx::get`] was changed before the commit. Objects that are read by
    /// [`Tx::snapshot`] are not validated. Readers can undo a validation, by reading what the commit writes. After
    /// three such validations, the commit locks the objects that the body read, as [`Tx::lock_const`] does, so readers
    /// cannot delay it further.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    ///
    /// ```
    /// use archipelago::sync::mvrlu::Domain;
    ///
    /// let domain = Domain::new();
    /// // Of two doctors one must stay on duty. Under snapshot isolation both could leave at once, each seeing the other.
    /// let (one, other) = (domain.alloc(true), domain.alloc(true));
    /// let mut handle = domain.register();
    /// let left = handle.update_serializable(|tx| {
    ///     let may_leave = *tx.get(other);
    ///     if may_leave {
    ///         *tx.lock(one)? = false;
    ///     }
    ///     Ok(may_leave)
    /// })?;
    /// assert!(left);
    /// # handle.update(|tx| unsafe { tx.retire(one)?; tx.retire(other) })?;
    /// # Ok::<(), archipelago::sync::mvrlu::Full>(())
    /// ```
    pub fn update_serializable<R>(&mut self, body: impl FnMut(&mut Tx<'_>) -> Result<R, Abort>) -> Result<R, Full> {
        self.retry(body, |handle, body| handle.attempt(true, body))
    }

    /// Makes one attempt at [`update`](Self::update).
    ///
    /// # Errors
    /// The body's error, or [`Abort::Full`] if an object that the body made exceeds the memory cap.
    ///
    /// ```
    /// use archipelago::sync::mvrlu::{Abort, Domain};
    ///
    /// let domain = Domain::new();
    /// let number = domain.alloc(0);
    /// let (mut one, mut other) = (domain.register(), domain.register());
    /// let outer = one.try_update(|tx| {
    ///     *tx.lock(number)? += 1;
    ///     // Held by the transaction around this one:
    ///     assert_eq!(other.try_update(|tx| tx.lock(number).map(|_| ())), Err(Abort::Conflict));
    ///     Ok(())
    /// });
    /// assert_eq!(outer, Ok(()));
    /// # one.update(|tx| unsafe { tx.retire(number) }).unwrap();
    /// ```
    #[inline]
    pub fn try_update<R>(&mut self, body: impl FnOnce(&mut Tx<'_>) -> Result<R, Abort>) -> Result<R, Abort> {
        let result = self.attempt(false, body);
        if matches!(result, Err(Abort::Conflict)) {
            self.help_holder();
        }
        result
    }

    #[inline]
    fn attempt<R>(
        &mut self,
        serializable: bool,
        body: impl FnOnce(&mut Tx<'_>) -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        let mut tx = Tx::begin(self, serializable);
        let result = body(&mut tx)?;
        tx.commit().map(|()| result)
    }

    #[inline]
    fn retry<R, B>(&mut self, mut body: B, attempt: impl Fn(&mut Self, &mut B) -> Result<R, Abort>) -> Result<R, Full> {
        let mut patience = Patience::new();
        let mut full = 0;
        loop {
            match attempt(self, &mut body) {
                Ok(result) => return Ok(result),
                Err(Abort::Full) if full == FULL_ATTEMPTS => return Err(Full),
                Err(Abort::Full) => {
                    full += 1;
                    self.collect();
                }
                Err(Abort::Conflict) => self.help_holder(),
            }
            patience.wait();
        }
    }

    /// In a domain with two versions per object (RLU), writes back the deferred commits of the handle whose lock made
    /// the last attempt fail.
    #[inline]
    fn help_holder(&mut self) {
        if !self.horizon().is_multi_version() {
            let Self { shared, pool, met, .. } = self;
            shared.write_back_of_holder(core::mem::take(met), pool);
        }
    }
}

//! An index: a map from keys to records, by any of the workspace's ordered maps.
//!
//! Primary and secondary indexes have the same structure: a primary index contains rows, and a secondary index contains
//! links to rows' records. So an entry of a secondary index is a record as well, and is locked, validated, versioned
//! and rolled back as rows are.
//!
//! # Absence
//! An insert first links a record with an *origin* (a version without a row, to which nothing was committed), and its
//! commit installs a version later. A transaction that has found a key absent, or has read a range, looks the gap up
//! again at its commit, after it has latched its records. The head of each record that is new in the gap must be an
//! origin that no other transaction has latched. If two transactions insert into each other's gaps, each latches,
//! passes a SeqCst fence and looks its gaps up again. So at least one of them finds the other's latch.
//!
//! A row that was inserted and removed between the first look-up and the commit must be noticed, too. For this purpose
//! a removal holds its record: the record stays linked until a grace period after the removal's commit is over. So each
//! transaction that began before this commit finds the record, with a version that is not an origin. A record with an
//! origin has never been committed to, and may be unlinked at once.
//!
//! # Unlinking
//! A record is unlinked under its latch. The conditions are:
//! - its head says that the key is absent;
//! - no older version is kept for snapshots or running transactions;
//! - no removal (in multi-version schemes: no commit) whose grace period is not over has a hold on the record;
//! - no transaction that is to write the record has a hold on it, and none has its lock. (Otherwise this transaction
//!   could no longer find its own write.)
//!
//! A transaction that is to write a record with a row does not need a hold: if another transaction removes the row, the
//! removal's hold lasts longer than the first transaction.
//!
//! A transaction that takes a lock or a hold then passes a SeqCst fence and loads the head. A thread that unlinks the
//! record latches it, passes a SeqCst fence, and loads lock and holds (`words/head.rs`). So at least one of the two
//! notices the other. Unlinking is tried at three times: by each transaction at its end, for all records that it locked
//! or held; by each removal (in multi-version schemes by each commit) at the end of its grace period; and by each
//! snapshot at its end, for the records in its list.

use core::ops::{Bound, ControlFlow};
use core::ptr;

use archipelago_index::map::Kind;
use archipelago_index::{KeyPart, Map};
use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering};
use archipelago_platform::panics::quietly;
use archipelago_platform::thread;
use archipelago_sync::rcu::{Domain, Guard};

use crate::codec::Codec;
use crate::epochs::{Epochs, Needs};
use crate::memory::{Memory, Payload};
use crate::record::{self, Full, Head, Keyed, Latch, Origin, Record, Version};
use crate::scheme::Scheme;

/// The state that all indexes of a database share.
pub(crate) struct Home<S: Scheme> {
    pub(crate) domain: Domain,
    pub(crate) epochs: Epochs<S>,
    pub(crate) memory: Memory,
    /// Whether the database is being dropped. If so, removals do nothing at the end of their grace period.
    pub(crate) closing: AtomicBool,
}

/// An index, without its types.
pub trait Tree<S: Scheme>: Send + Sync {
    /// Returns the scheme's data about gaps.
    fn gap(&self) -> &S::Gap;

    /// Returns the data that unlinked records leave for their successors, in a database with a log.
    fn gone(&self) -> &Gone;

    /// Appends a version's log entry, without its serial, and returns the serial's position. Returns `None` if the
    /// index is not logged. Runs users' code.
    ///
    /// # Safety
    /// The record belongs to this index, and the version to the record; both are alive.
    unsafe fn encode(&self, record: &Record<S>, version: *mut Version<S>, to: &mut Vec<u8>) -> Option<usize>;

    /// Unlinks a record, if the conditions in the module's text hold.
    ///
    /// # Safety
    /// The record belongs to this index and is alive: it was found inside `guard`.
    unsafe fn unlink(&self, record: &Record<S>, guard: &Guard<'_>);

    /// Schedules [`unlink`](Self::unlink) for the end of a grace period. In multi-version schemes the scheduled call
    /// first prunes the record's chain. The caller has committed a version. Under the record's latch, it took a hold on
    /// the record for this call.
    ///
    /// # Safety
    /// As for `unlink`. The index is not moved or freed until the domain has been dropped.
    unsafe fn unlink_later(&self, record: &Record<S>, guard: &Guard<'_>);
}

/// Data that the unlinked records of an index leave for their successors. Both numbers are raised before a record is
/// unlinked, so that users of the key's next record see them.
#[derive(Default)]
pub(crate) struct Gone {
    /// The greatest serial of their last versions. Only logged tables use it.
    pub(crate) serial: AtomicU64,
    /// The latest epoch on which their last versions depend.
    pub(crate) epoch: AtomicU64,
}

pub(crate) struct Typed<M: Kind, K: KeyPart, P, S: Scheme> {
    map: Map<M, K, usize>,
    gap: S::Gap,
    gone: Gone,
    /// Whether the database has a log. The index's own table may be in memory.
    logs: bool,
    /// The codec, in the primary index of a logged table.
    codec: Option<Codec<K, P>>,
    /// Freed after the records, which `drop` frees first.
    origin: Origin<S>,
    /// The database's home. It lives as long as the index is used, but may be freed before the index is dropped.
    home: *const Home<S>,
}

// SAFETY: only the pointer to the home and the origin are not `Send` and `Sync` by themselves; threads may share both.
unsafe impl<M: Kind, K: KeyPart, P, S: Scheme> Send for Typed<M, K, P, S> {}
// SAFETY: as above.
unsafe impl<M: Kind, K: KeyPart, P, S: Scheme> Sync for Typed<M, K, P, S> {}

/// Bounds of a range of keys.
pub(crate) type Bounds<K> = (Bound<K>, Bound<K>);

/// A record of an index, found inside a section that lasts for `'g`.
pub(crate) type Found<'g, K, P, S> = &'g Keyed<K, P, S>;

impl<M: Kind, K: KeyPart, P: Payload, S: Scheme> Typed<M, K, P, S> {
    pub(crate) fn new(home: &Home<S>, logs: bool, codec: Option<Codec<K, P>>) -> Self {
        // The map's defaults are fixed now, rather than at the first entry, which any thread may insert.
        Self {
            map: Map::builder().build(),
            gap: S::Gap::default(),
            gone: Gone::default(),
            logs,
            codec,
            origin: Origin::new::<P>(),
            home,
        }
    }

    /// Sets the number under which the table is logged.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn number(&self, table: u32) {
        if let Some(codec) = &self.codec {
            codec.table.store(table, Ordering::Relaxed);
        }
    }

    /// Restores a version from a log or checkpoint. `stamp` is the epoch and the serial of its commit. Does nothing if
    /// the record already has this version or a later one. Returns whether the record is new.
    ///
    /// The caller is in a section of the database's domain, and no transaction has begun yet.
    pub(crate) fn restore(&self, key: K, stamp: (u64, u64), payload: Option<P>) -> bool {
        let (found, linked) = self.find_or_link(&key);
        let record = found.record();
        let mut latch = record.latch().expect("nothing is taken out yet");
        if linked {
            record.let_go();
        }
        // SAFETY: the version of a latched head.
        let head = unsafe { &*latch.version() };
        if (head.begin.load(Ordering::Relaxed), head.serial.load(Ordering::Relaxed)) >= stamp {
            return linked;
        }
        let memory = self.memory();
        let version = Full::<P, S>::boxed(payload, memory);
        // SAFETY: the version is not published yet.
        let restored = unsafe { &*version };
        restored.begin.store(stamp.0, Ordering::Relaxed);
        restored.serial.store(stamp.1, Ordering::Relaxed);
        let before = latch.replace(version);
        drop(latch);
        // SAFETY: it was unlinked under the latch, and while no transaction runs only latches' holders access versions.
        unsafe { record::free(before, memory) };
        linked
    }

    /// Returns the count of the database's memory. Not called by the index's drop.
    fn memory(&self) -> &Memory {
        // SAFETY: as the field says. No exclusive reference to this part of the home is made.
        unsafe { &(*self.home).memory }
    }

    /// # Safety
    /// `word` was in the map inside of a section that lasts for `'g`.
    unsafe fn keyed<'g>(word: usize) -> &'g Keyed<K, P, S> {
        // SAFETY: the map holds addresses of records that were exposed by `find_or_link`; they are freed a grace period
        // after they were taken out.
        unsafe { &*ptr::with_exposed_provenance::<Keyed<K, P, S>>(word) }
    }

    /// Returns the record of a key.
    ///
    /// The caller is in a section of the database's domain for `'g`.
    pub(crate) fn find<'g>(&self, key: &K) -> Option<Found<'g, K, P, S>> {
        // SAFETY: the caller's section.
        self.map.pin().get::<K>(key).map(|word| unsafe { Self::keyed(word) })
    }

    /// Returns the records of several keys, in the keys' order. The memory accesses overlap if the map supports it.
    ///
    /// The caller is in a section of the database's domain for `'g`.
    pub(crate) fn find_many<'g>(&self, keys: &[K]) -> Vec<Option<Found<'g, K, P, S>>> {
        let words = self.map.pin().get_many::<K>(keys);
        // SAFETY: the caller's section.
        words.into_iter().map(|word| word.map(|word| unsafe { Self::keyed(word) })).collect()
    }

    /// Returns the record of a key, and whether this call linked it, because the key had none. The caller gets a hold
    /// on a record that the call linked.
    pub(crate) fn find_or_link<'g>(&self, key: &K) -> (Found<'g, K, P, S>, bool) {
        if let Some(found) = self.find(key) {
            return (found, false);
        }
        let unlinked = Unlinked { tree: self, made: Keyed::boxed(key.clone(), &self.origin, self.memory()) };
        if S::MARKS_ORIGINS {
            // SAFETY: the record is not linked yet.
            S::before_link(unsafe { &*(*unlinked.made).record().head().version() }, &self.gap);
        }
        let word = unlinked.made.expose_provenance();
        let (word, linked) = match self.map.pin().insert_if_absent(key.clone(), word) {
            Ok(_) => (word, true),
            Err(occupied) => (*occupied.current, false),
        };
        if linked {
            core::mem::forget(unlinked);
        }
        // SAFETY: the caller's section.
        (unsafe { Self::keyed(word) }, linked)
    }

    /// Returns the first (or, backwards, the last) records within the bounds, at most `limit`, and whether these are
    /// all.
    pub(crate) fn batch<'g>(
        &self,
        bounds: &Bounds<K>,
        limit: usize,
        backwards: bool,
    ) -> (Vec<Found<'g, K, P, S>>, bool) {
        let mut words = Vec::new();
        let mut visit = |word: &usize| {
            words.push(*word);
            if words.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let range = (bounds.0.as_ref(), bounds.1.as_ref());
        let session = self.map.pin();
        let broke = if backwards {
            session.scan_range_rev::<K, _, ()>(range, |_, word| visit(word))
        } else {
            session.scan_range::<K, _, ()>(range, |_, word| visit(word))
        };
        // SAFETY: the caller's section.
        let found = words.into_iter().map(|word| unsafe { Self::keyed(word) }).collect();
        (found, broke.is_none())
    }
}

/// A record that is not in its index. Dropping the value frees it.
struct Unlinked<'t, M: Kind, K: KeyPart, P: Payload, S: Scheme> {
    tree: &'t Typed<M, K, P, S>,
    made: *mut Keyed<K, P, S>,
}

impl<M: Kind, K: KeyPart, P: Payload, S: Scheme> Drop for Unlinked<'_, M, K, P, S> {
    fn drop(&mut self) {
        // The insertion may have panicked after it linked the record: in the key's destructor. So the map is searched
        // for the record's address, without the key's methods.
        let word = self.made.addr();
        if thread::panicking() && self.tree.map.pin().values().any(|linked| linked == word) {
            return;
        }
        // SAFETY: the record was not linked.
        unsafe { Keyed::free(self.made, self.tree.memory()) };
    }
}

impl<M: Kind, K: KeyPart, P: Payload, S: Scheme> Tree<S> for Typed<M, K, P, S> {
    fn gap(&self) -> &S::Gap {
        &self.gap
    }

    fn gone(&self) -> &Gone {
        &self.gone
    }

    unsafe fn encode(&self, record: &Record<S>, version: *mut Version<S>, to: &mut Vec<u8>) -> Option<usize> {
        // SAFETY: the caller's promise.
        self.codec.as_ref().map(|codec| unsafe { codec.encode(record, version, to) })
    }

    unsafe fn unlink(&self, record: &Record<S>, guard: &Guard<'_>) {
        let may_go = |head: Head<S>| {
            // SAFETY: the head's version, inside of the guard.
            let version = unsafe { &*head.version() };
            version.is_absent() && version.older.load(Ordering::Relaxed).is_null() && S::is_free(record)
        };
        let Some(latch) = Latch::to_unlink(record, may_go) else { return };
        // SAFETY: the version of a latched head.
        let version = unsafe { &*latch.version() };
        S::before_unlink(version, &self.gap);
        if self.logs {
            // Relaxed: this store precedes the link of the key's next record, and readers of that record load the word
            // after they have found the link.
            self.gone.serial.fetch_max(version.serial.load(Ordering::Relaxed), Ordering::Relaxed);
            self.gone.epoch.fetch_max(version.needs(), Ordering::Relaxed);
        }
        // SAFETY: records of this index are `Keyed` of these types, which begin with the record.
        let keyed = unsafe { &*ptr::from_ref(record).cast::<Keyed<K, P, S>>() };
        let word = ptr::from_ref(keyed).addr();
        // Encoding the key runs users' code. If it panics, or if the key's encoding has changed, the record stays
        // linked.
        let mut removed = false;
        let remove = || removed = self.map.pin().remove_if::<K>(keyed.key(), |found| *found == word).is_some();
        if quietly(remove).is_none() || !removed {
            // SAFETY: as above.
            return S::thaw(unsafe { &*latch.version() });
        }
        latch.kill();
        unsafe fn reclaim<K, P: Payload, S: Scheme>(keyed: *mut (), memory: *mut ()) {
            // SAFETY: RCU calls this once, after all readers that saw the record; otherwise as in `record::retire`.
            unsafe { Keyed::free(keyed.cast::<Keyed<K, P, S>>(), &*memory.cast::<Memory>()) };
        }
        let bytes = size_of::<Keyed<K, P, S>>();
        let keyed = ptr::with_exposed_provenance_mut::<()>(word);
        let memory = ptr::from_ref(self.memory()).cast_mut().cast();
        // SAFETY: the record is unlinked, forever since it is dead, and only one unlinker had the latch.
        unsafe { guard.retire_sized(keyed, bytes, memory, reclaim::<K, P, S>) };
    }

    unsafe fn unlink_later(&self, record: &Record<S>, guard: &Guard<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.call_later::<false>(record, guard) };
    }
}

impl<M: Kind, K: KeyPart, P: Payload, S: Scheme> Typed<M, K, P, S> {
    /// Schedules [`due`](Self::due).
    ///
    /// # Safety
    /// As for `unlink_later`. If `AGAIN`, the caller has the hold of the repeated callback.
    unsafe fn call_later<const AGAIN: bool>(&self, record: &Record<S>, guard: &Guard<'_>) {
        unsafe fn due<M: Kind, K: KeyPart, P: Payload, S: Scheme, const AGAIN: bool>(record: *mut (), tree: *mut ()) {
            // SAFETY: the index outlives the domain. The record is not unlinked while it has the callback's hold.
            let (record, tree) = unsafe { (&*record.cast::<Record<S>>(), &*tree.cast::<Typed<M, K, P, S>>()) };
            tree.due::<AGAIN>(record);
        }
        // A replaced version is not freed before this callback, so its bytes count as garbage until then.
        let replaced = if S::VERSIONS { record.replaced() } else { ptr::null_mut() };
        // SAFETY: versions in the chain are alive while the caller's guard is.
        let bytes = if replaced.is_null() { 0 } else { unsafe { record::weight(replaced) } };
        let (record, tree) = (ptr::from_ref(record).cast_mut(), ptr::from_ref(self).cast_mut());
        // SAFETY: `due` is sound in any thread while the index is there.
        unsafe { guard.retire_sized(record.cast(), bytes, tree.cast(), due::<M, K, P, S, AGAIN>) };
    }

    /// Ends the grace period of a commit: releases the commit's hold, and unlinks the record if possible. In
    /// multi-version schemes the method first prunes the record's chain.
    ///
    /// While a thread begins a transaction, it announces the moment of its previous transaction, which may be long ago
    /// ([`Epochs::begin`]). Then versions are kept that no transaction reads, and there may be no later commit that
    /// prunes them. So the callback is repeated a grace period later. A record has one repeated callback at a time:
    /// otherwise the callbacks of a row that is written all the time would all be repeated, since some transaction
    /// always needs its last versions.
    fn due<const AGAIN: bool>(&self, record: &Record<S>) {
        // SAFETY: the index is alive, and so is the home while its domain reclaims. The drop borrows only the domain
        // exclusively.
        if unsafe { &(*self.home).closing }.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: as above, and the home is not being dropped.
        let home = unsafe { &*self.home };
        // The guard begins before the hold is released: after the release any thread may unlink the record.
        let guard = home.domain.pin();
        let is_needed = S::VERSIONS && self.cut(record, home, &guard);
        if is_needed && (AGAIN || record.hold_again()) {
            // SAFETY: the record has the hold of the repeated callback.
            unsafe { self.call_later::<true>(record, &guard) };
        }
        match (AGAIN, is_needed) {
            (false, _) => record.let_go(),
            (true, false) => record.let_go_again(),
            (true, true) => return,
        }
        // SAFETY: the record was alive when the guard began.
        unsafe { self.unlink(record, &guard) };
    }

    /// Prunes the record's chain, a grace period after a version was replaced. Returns whether a version was kept for
    /// transactions.
    ///
    /// Pruned versions are freed after another grace period. No transaction reads them any more. But a callback such as
    /// this one has no moment, and may still use a version that it has loaded as a head. And a reader may have read
    /// another version of the same set, and be about to load the set's word (`mvrlu.rs`).
    fn cut(&self, record: &Record<S>, home: &Home<S>, guard: &Guard<'_>) -> bool {
        let Some(latch) = record.latch() else { return false };
        let epochs = &home.epochs;
        let (mut dropped, horizon) = (Vec::new(), epochs.horizon());
        let mut is_needed = epochs.prune(&latch, self, &Needs::above(horizon), &mut dropped);
        if is_needed {
            let later = epochs.needs().lowest();
            if later > horizon {
                is_needed = epochs.prune(&latch, self, &Needs::above(later), &mut dropped);
            }
        }
        drop(latch);
        // SAFETY: they were unlinked from the chain under the latch.
        dropped.into_iter().for_each(|version| unsafe { record::retire(guard, version, &home.memory) });
        is_needed
    }
}

impl<M: Kind, K: KeyPart, P, S: Scheme> Drop for Typed<M, K, P, S> {
    fn drop(&mut self) {
        if self.map.is_empty() {
            return;
        }
        // The home may have been freed already.
        let uncounted = Memory::new();
        for word in self.map.pin().values() {
            let keyed = ptr::with_exposed_provenance_mut::<Keyed<K, P, S>>(word);
            // SAFETY: no thread uses the database any more, and linked records were not retired.
            unsafe { Keyed::free(keyed, &uncounted) };
        }
    }
}

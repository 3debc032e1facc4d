//! An index: a map from keys to records, by any of the workspace's ordered maps.
//!
//! Primary and secondary indexes are the same thing: a primary index leads to rows, a secondary one to the records of
//! rows. So an entry of a secondary index is a record as well: locked, validated, versioned and rolled back as rows are.
//!
//! # Absence
//! Who inserts links a record with an origin first, and commits a version to it later. Who has found a key absent, or a range
//! to have certain records, looks again when it commits, after it has latched what it writes: records that were not there
//! before must have an origin as their head, not latched by another. Of two transactions that insert into what the other has
//! found empty, each latches, passes a SeqCst fence and looks again: one of them, at least, finds the other's latch.
//!
//! What was inserted and removed again in the meantime must be noticed, too. So a removed record stays linked until a grace
//! period after the removal's commit is over (it holds the record): each transaction that began before the commit finds the
//! record, with a version that is no origin. A record with an origin was never committed to, and may go at once.
//!
//! # Unlinking
//! Under the record's latch, when its head is absent, nothing is kept for snapshots, no removal in its grace period and no
//! transaction that is to write it holds the record, and none has its lock. (Otherwise a transaction would lose sight of what
//! it wrote itself.) A transaction that is to write a record with a row does not hold it: should another remove the row, that
//! removal's grace period lasts longer than the transaction. A transaction that takes a lock, or a hold since there is no row,
//! looks at the head afterwards, with a SeqCst fence between, and
//! the unlinker at both after its latch, with one too; so one of them notices. Each transaction tries, when it has ended, for
//! all records that it locked or held; removals for themselves when their grace period ends; snapshots for what was kept for
//! them.

use core::ops::{Bound, ControlFlow};
use core::ptr;

use archipelago_index::map::Kind;
use archipelago_index::{KeyPart, Map};
use archipelago_platform::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use archipelago_sync::rcu::{Domain, Guard};

use crate::codec::Codec;
use crate::epochs::{Epochs, Needs};
use crate::memory::{Memory, Payload};
use crate::record::{self, Full, Head, Keyed, Origin, Record, Version, quietly};
use crate::scheme::Scheme;

/// The memory of a database.
pub(crate) struct Home<S: Scheme> {
    pub(crate) domain: Domain,
    pub(crate) epochs: Epochs<S>,
    pub(crate) memory: Memory,
    /// The database is being dropped: removals whose grace period ends do nothing any more.
    pub(crate) closing: AtomicBool,
}

/// An index, without its types.
pub trait Tree<S: Scheme>: Send + Sync {
    /// What the scheme knows about gaps.
    fn gap(&self) -> &S::Gap;

    /// The records that were taken out of a table that is logged.
    fn gone(&self) -> &Gone;

    /// Appends what the log is to have of a version, without its serial, and returns where that is to be; nothing if the index
    /// is not logged. Runs users' code.
    ///
    /// # Safety
    /// The record is of this index, and the version of the record; both are alive.
    unsafe fn encode(&self, record: &Record<S>, version: *mut Version<S>, to: &mut Vec<u8>) -> Option<usize>;

    /// Takes a record out, if it may go. See the module's text.
    ///
    /// # Safety
    /// The record is of this index and alive: it was found inside of `guard`.
    unsafe fn unlink(&self, record: &Record<S>, guard: &Guard<'_>);

    /// Calls for [`unlink`](Self::unlink) after a grace period, and in schemes of many versions frees what was replaced. The caller
    /// has committed a version, and took a hold on the record for this under its latch.
    ///
    /// # Safety
    /// As for `unlink`. The index stays where it is until the domain has been dropped.
    unsafe fn unlink_later(&self, record: &Record<S>, guard: &Guard<'_>);
}

/// What the records that were taken out of an index leave behind: the greatest serial and epoch of their last versions. Raised
/// before a record goes, so that the next one with its key finds them.
#[derive(Default)]
pub(crate) struct Gone {
    pub(crate) serial: AtomicU64,
    pub(crate) epoch: AtomicU64,
}

pub(crate) struct Typed<M: Kind, K: KeyPart, P, S: Scheme> {
    map: Map<M, K, usize>,
    gap: S::Gap,
    gone: Gone,
    /// Of a table that is logged.
    codec: Option<Codec<K, P>>,
    /// Freed after the records: by `drop`, then this.
    origin: Origin<S>,
    /// The database's, which is there as long as anything is done with the index but to drop it.
    home: *const Home<S>,
}

// SAFETY: what is not `Send` and `Sync` by itself is a reference to the home, and the origin; both are shared by threads.
unsafe impl<M: Kind, K: KeyPart, P, S: Scheme> Send for Typed<M, K, P, S> {}
// SAFETY: as above.
unsafe impl<M: Kind, K: KeyPart, P, S: Scheme> Sync for Typed<M, K, P, S> {}

/// Bounds of a range of keys.
pub(crate) type Bounds<K> = (Bound<K>, Bound<K>);

/// A record of an index, found inside of a section that lasts for `'g`.
pub(crate) type Found<'g, K, P, S> = &'g Keyed<K, P, S>;

impl<M: Kind, K: KeyPart, P: Payload, S: Scheme> Typed<M, K, P, S> {
    pub(crate) fn new(home: &Home<S>, codec: Option<Codec<K, P>>) -> Self {
        // The defaults are those of now, and not those of the first entry, which may come in any thread.
        Self {
            map: Map::builder().build(),
            gap: S::Gap::default(),
            gone: Gone::default(),
            codec,
            origin: Origin::new::<P>(),
            home,
        }
    }

    /// Says under which number the table is logged.
    #[cfg(all(feature = "durable", not(archipelago_sim)))]
    pub(crate) fn number(&self, table: u32) {
        if let Some(codec) = &self.codec {
            codec.table.store(table, Ordering::Relaxed);
        }
    }

    /// Puts back what a log or checkpoint has, of a commit with these epoch and serial, unless something later is there
    /// already; returns whether the record is new.
    ///
    /// The caller is in a section of the database's domain, and there are no transactions yet.
    pub(crate) fn restore(&self, key: K, stamp: (u64, u64), payload: Option<P>) -> bool {
        let (found, linked) = self.find_or_link(key);
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
        // SAFETY: ours, and not published yet.
        let restored = unsafe { &*version };
        restored.begin.store(stamp.0, Ordering::Relaxed);
        restored.serial.store(stamp.1, Ordering::Relaxed);
        let before = latch.replace(version);
        drop(latch);
        // SAFETY: it was taken out under the latch, and without transactions only latches' holders look at versions.
        unsafe { record::free(before, memory) };
        linked
    }

    /// The memory of the database, which is there as long as anything is done with the index but to drop it.
    fn memory(&self) -> &Memory {
        // SAFETY: as the field says. No exclusive reference to this part of the home is made.
        unsafe { &(*self.home).memory }
    }

    /// # Safety
    /// `word` was in the map inside of a section that lasts for `'g`.
    unsafe fn keyed<'g>(word: usize) -> &'g Keyed<K, P, S> {
        // SAFETY: the map holds addresses of records that were exposed by `link`; they are freed a grace period after they were
        // taken out.
        unsafe { &*ptr::with_exposed_provenance::<Keyed<K, P, S>>(word) }
    }

    /// The record of a key.
    ///
    /// The caller is in a section of the database's domain for `'g`.
    pub(crate) fn find<'g>(&self, key: &K) -> Option<Found<'g, K, P, S>> {
        // SAFETY: the caller's section.
        self.map.pin().get::<K>(key).map(|word| unsafe { Self::keyed(word) })
    }

    /// The records of several keys, in order: their memory accesses overlap where the map can do so.
    ///
    /// The caller is in a section of the database's domain for `'g`.
    pub(crate) fn find_many<'g>(&self, keys: &[K]) -> Vec<Option<Found<'g, K, P, S>>> {
        let words = self.map.pin().get_many::<K>(keys);
        // SAFETY: the caller's section.
        words.into_iter().map(|word| word.map(|word| unsafe { Self::keyed(word) })).collect()
    }

    /// The record of a key, linked now if there was none; whether it was. Then the caller has a hold on it.
    pub(crate) fn find_or_link<'g>(&self, key: K) -> (Found<'g, K, P, S>, bool) {
        if let Some(found) = self.find(&key) {
            return (found, false);
        }
        let memory = self.memory();
        let made = Keyed::<K, P, S>::boxed(key.clone(), &self.origin, memory);
        let word = made.expose_provenance();
        let linked = match self.map.pin().insert_if_absent(key, word) {
            // SAFETY: the caller's section.
            Ok(_) => return (unsafe { Self::keyed(word) }, true),
            Err(occupied) => *occupied.current,
        };
        // SAFETY: it was not linked.
        unsafe { Keyed::free(made, memory) };
        // SAFETY: the caller's section.
        (unsafe { Self::keyed(linked) }, false)
    }

    /// The first (or, backwards, the last) records within bounds, `limit` at most; whether these are all.
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
            version.is_absent()
                && version.older.load(Ordering::Relaxed).is_null()
                && !record.is_held()
                && S::is_free(record)
        };
        // A look without the latch, for the many records that stay: those that use one would wait for latches of those that
        // begin anew all the time.
        let head = record.settled();
        if head.is_dead() || !may_go(head) {
            return;
        }
        let Some(latch) = record.latch() else { return };
        // With those that take the record's lock: see the module's text.
        fence(Ordering::SeqCst);
        if !may_go(record.head()) {
            return;
        }
        // SAFETY: the version of a latched head.
        let version = unsafe { &*latch.version() };
        S::before_unlink(version, &self.gap);
        if self.codec.is_some() {
            // Relaxed: what finds the next record of the key comes after its link, and this comes before.
            self.gone.serial.fetch_max(version.serial.load(Ordering::Relaxed), Ordering::Relaxed);
            self.gone.epoch.fetch_max(version.begin.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // SAFETY: records of this index are `Keyed` of these types, which begin with the record.
        let keyed = unsafe { &*ptr::from_ref(record).cast::<Keyed<K, P, S>>() };
        let word = ptr::from_ref(keyed).addr();
        // Encoding the key is the user's code; if that panics, the record stays.
        if !quietly(|| drop(self.map.pin().remove_if::<K>(keyed.key(), |found| *found == word))) {
            // SAFETY: as above.
            return S::thaw(unsafe { &*latch.version() });
        }
        latch.kill();
        unsafe fn reclaim<K, P: Payload, S: Scheme>(keyed: *mut (), memory: *mut ()) {
            // SAFETY: RCU calls this once, after all that saw it; as in `record::retire`.
            unsafe { Keyed::free(keyed.cast::<Keyed<K, P, S>>(), &*memory.cast::<Memory>()) };
        }
        let bytes = size_of::<Keyed<K, P, S>>();
        let keyed = ptr::with_exposed_provenance_mut::<()>(word);
        let memory = ptr::from_ref(self.memory()).cast_mut().cast();
        // SAFETY: it is out of the index, for good since it is dead, and the latch let one unlinker in.
        unsafe { guard.retire_sized(keyed, bytes, memory, reclaim::<K, P, S>) };
    }

    unsafe fn unlink_later(&self, record: &Record<S>, guard: &Guard<'_>) {
        unsafe fn due<M: Kind, K: KeyPart, P: Payload, S: Scheme>(record: *mut (), tree: *mut ()) {
            // SAFETY: the index outlives the domain. The record is not unlinked while a removal is counted.
            let (record, tree) = unsafe { (&*record.cast::<Record<S>>(), &*tree.cast::<Typed<M, K, P, S>>()) };
            tree.due(record);
        }
        let (record, tree) = (ptr::from_ref(record).cast_mut(), ptr::from_ref(self).cast_mut());
        // What was replaced is not freed before.
        let bytes = if S::VERSIONS { size_of::<Full<P, S>>() } else { 0 };
        // SAFETY: `due` is sound in any thread while the index is there.
        unsafe { guard.retire_sized(record.cast(), bytes, tree.cast(), due::<M, K, P, S>) };
    }
}

impl<M: Kind, K: KeyPart, P: Payload, S: Scheme> Typed<M, K, P, S> {
    /// A removal's grace period is over.
    fn due(&self, record: &Record<S>) {
        // SAFETY: the index is alive, and the home is while its domain reclaims; exclusively borrowed, for the drop, is the
        // domain alone.
        if unsafe { &(*self.home).closing }.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: as above, and this is not the drop.
        let home = unsafe { &*self.home };
        // The guard comes first: without the removal that was counted any thread may take the record out.
        let guard = home.domain.pin();
        if S::VERSIONS {
            self.cut(record, home, &guard);
        }
        record.let_go();
        // SAFETY: the record was alive when the guard began.
        unsafe { self.unlink(record, &guard) };
    }

    /// A grace period after a version of the record was replaced: takes out what no reader needs.
    ///
    /// That is freed after a grace period of its own. No transaction is at it, but callbacks such as this one may be, which look
    /// at heads and have no moment; and a reader may be on its way from another version to the word of its set (`mvrlu.rs`).
    fn cut(&self, record: &Record<S>, home: &Home<S>, guard: &Guard<'_>) {
        let Some(latch) = record.latch() else { return };
        let epochs = &home.epochs;
        let (mut dropped, horizon) = (Vec::new(), epochs.horizon());
        if epochs.prune(&latch, self, &Needs::above(horizon), &mut dropped) {
            let later = epochs.needs().lowest();
            if later > horizon {
                epochs.prune(&latch, self, &Needs::above(later), &mut dropped);
            }
        }
        drop(latch);
        // SAFETY: they were taken out of the chain under the latch.
        dropped.into_iter().for_each(|version| unsafe { record::retire(guard, version, &home.memory) });
    }
}

impl<M: Kind, K: KeyPart, P, S: Scheme> Drop for Typed<M, K, P, S> {
    fn drop(&mut self) {
        if self.map.is_empty() {
            return;
        }
        // The home may have gone.
        let uncounted = Memory::new();
        for word in self.map.pin().values() {
            let keyed = ptr::with_exposed_provenance_mut::<Keyed<K, P, S>>(word);
            // SAFETY: no thread uses the database any more, and what is linked was not retired.
            unsafe { Keyed::free(keyed, &uncounted) };
        }
    }
}

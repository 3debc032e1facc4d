//! Look-ups and ranges, in one implementation for transactions and snapshots.

use core::ops::Bound;

use archipelago_index::KeyPart;
use archipelago_index::map::Kind;
use archipelago_platform::hint::prefetch_read;
use archipelago_platform::panics::drop_quietly;

use crate::epochs::Epochs;
use crate::gap::{Gap, Point, Span};
use crate::memory::Payload;
use crate::record::{Full, Keyed, Record, Version};
use crate::scheme::{Conflict, Mode, Scheme};
use crate::tree::{Bounds, Found, Typed};
use crate::work::{Look, RecordRef, Work};

/// A reader: a transaction or a snapshot.
pub(crate) trait Sight<S: Scheme> {
    /// Returns the version of a record that the reader sees. The reader has found the record inside its RCU section.
    fn see(&mut self, place: RecordRef<S>) -> Result<Look<S>, Conflict>;

    /// Notes a gap: keys that the reader has found absent.
    fn miss(&mut self, gap: &mut dyn FnMut() -> Box<dyn Gap<S>>);

    /// Returns the error for an entry of a secondary index whose row is absent.
    fn torn(&mut self) -> Conflict;
}

impl<S: Scheme> Sight<S> for Work<'_, S> {
    fn see(&mut self, place: RecordRef<S>) -> Result<Look<S>, Conflict> {
        self.look(place, Mode::Share)
    }

    fn miss(&mut self, gap: &mut dyn FnMut() -> Box<dyn Gap<S>>) {
        self.note_gap(gap);
    }

    fn torn(&mut self) -> Conflict {
        let _ = self.doom::<()>();
        Conflict
    }
}

/// A snapshot as a reader. The caller is in a section of the database's domain.
pub(crate) struct View<'e, S: Scheme> {
    pub(crate) moment: u64,
    pub(crate) epochs: &'e Epochs<S>,
}

impl<S: Scheme> Sight<S> for View<'_, S> {
    fn see(&mut self, place: RecordRef<S>) -> Result<Look<S>, Conflict> {
        // SAFETY: the caller's section.
        let head = unsafe { &*place.record }.to_read();
        if head.is_dead() {
            return Ok(Look::Dead);
        }
        // SAFETY: as above; the snapshot is open.
        Ok(Look::At(unsafe { self.epochs.visible(head.version(), self.moment) }))
    }

    fn miss(&mut self, _: &mut dyn FnMut() -> Box<dyn Gap<S>>) {}

    fn torn(&mut self) -> Conflict {
        unreachable!("a snapshot sees an entry and its row, or neither")
    }
}

/// Returns the payload of a version, or `None` if the version is null.
///
/// # Safety
/// As for [`Full::payload`], if the version is not null.
pub(crate) unsafe fn payload<'g, P: Payload, S: Scheme>(version: *mut Version<S>) -> Option<&'g P> {
    // SAFETY: the caller's promise.
    if version.is_null() { None } else { unsafe { Full::<P, S>::payload(version) } }
}

pub(crate) fn place<M: Kind, K: KeyPart, P: Payload, S: Scheme>(
    tree: *const Typed<M, K, P, S>,
    found: Found<'_, K, P, S>,
) -> RecordRef<S> {
    // The pointer is made from a reference to the whole `Keyed`, so it may access all bytes of the `Keyed`. Unlinking
    // casts it back to `Keyed`.
    RecordRef { record: core::ptr::from_ref::<Keyed<K, P, S>>(found).cast::<Record<S>>(), tree }
}

/// Looks a key up. The result is valid for `'g`: the reader's section, or its snapshot.
pub(crate) fn get<'g, M: Kind, K: KeyPart, P: Payload, S: Scheme>(
    sight: &mut dyn Sight<S>,
    tree: &Typed<M, K, P, S>,
    key: &K,
) -> Result<Option<&'g P>, Conflict> {
    see(sight, tree, key, tree.find(key))
}

/// Looks several keys up. Their accesses to the map, to records and to rows overlap.
pub(crate) fn get_many<'g, M: Kind, K: KeyPart, P: Payload, S: Scheme>(
    sight: &mut dyn Sight<S>,
    tree: &Typed<M, K, P, S>,
    keys: &[K],
) -> Result<Vec<Option<&'g P>>, Conflict> {
    let found = tree.find_many(keys);
    found.iter().flatten().for_each(|found| prefetch_read(found.record()));
    found.iter().flatten().for_each(|found| prefetch_read(found.record().head().version()));
    keys.iter().zip(found).map(|(key, found)| see(sight, tree, key, found)).collect()
}

/// Returns the payload that the reader sees for a key. `found` is the key's record in the map, if the map has one.
fn see<'g, M: Kind, K: KeyPart, P: Payload, S: Scheme>(
    sight: &mut dyn Sight<S>,
    tree: &Typed<M, K, P, S>,
    key: &K,
    found: Option<Found<'_, K, P, S>>,
) -> Result<Option<&'g P>, Conflict> {
    if let Some(found) = found
        && let Look::At(version) = sight.see(place(tree, found))?
    {
        // SAFETY: a version of this index that the reader sees.
        return Ok(unsafe { payload::<P, S>(version) });
    }
    // A dead record, too, proves that the key was absent at a moment since the look-up. Retrying the look-up instead
    // might never end, if another transaction repeatedly links a record, gives up, and unlinks the record.
    sight.miss(&mut || Box::new(Point { tree, key: key.clone() }));
    Ok(None)
}

/// The number of records that a cursor fetches in its first batch, and in its largest one.
const BATCH: (usize, usize) = (4, 128);

/// A walk over a range of an index.
pub(crate) struct Cursor<M: Kind, K: KeyPart, P, S: Scheme> {
    tree: *const Typed<M, K, P, S>,
    /// The part of the range that the cursor has not visited.
    bounds: Bounds<K>,
    backwards: bool,
    limit: usize,
    done: bool,
}

/// Clones a range's bounds.
fn owned<K: Clone>(bounds: (Bound<&K>, Bound<&K>)) -> Bounds<K> {
    (bounds.0.cloned(), bounds.1.cloned())
}

impl<M: Kind, K: KeyPart, P: Payload, S: Scheme> Cursor<M, K, P, S> {
    pub(crate) fn new(tree: &Typed<M, K, P, S>, bounds: (Bound<&K>, Bound<&K>), backwards: bool) -> Self {
        Self { tree, bounds: owned(bounds), backwards, limit: BATCH.0, done: false }
    }

    /// Returns the next payloads, or `None` at the end. After a panic of users' code the cursor has not moved.
    fn batch<'g>(&mut self, sight: &mut dyn Sight<S>) -> Result<Option<Vec<&'g P>>, Conflict> {
        if self.done {
            return Ok(None);
        }
        // SAFETY: indexes live as long as their readers.
        let tree = unsafe { &*self.tree };
        let (found, done) = tree.batch(&self.bounds, self.limit, self.backwards);
        let last = found.last().filter(|_| !done).map(|last: &Found<'g, K, P, S>| last.key().clone());
        let (mut covered, mut rest) = (self.bounds.clone(), None);
        if let Some(last) = last {
            let (to, from) = (Bound::Included(last.clone()), Bound::Excluded(last));
            let (low, high) = self.bounds.clone();
            let (now, later) = if self.backwards { ((to, high), (low, from)) } else { ((low, to), (from, high)) };
            (covered, rest) = (now, Some(later));
        }
        let mut seen = Vec::with_capacity(found.len());
        let mut payloads = Vec::with_capacity(found.len());
        for found in found {
            let place = place(self.tree, found);
            if let Look::At(version) = sight.see(place)? {
                seen.push(place.record);
                // SAFETY: a version of this index that the reader sees.
                payloads.extend(unsafe { payload::<P, S>(version) });
            }
        }
        if self.backwards {
            seen.reverse();
        }
        let (tree, bounds) = (self.tree, covered);
        sight.miss(&mut || Box::new(Span { tree, bounds: bounds.clone(), seen: core::mem::take(&mut seen) }));
        drop(bounds);
        // No users' code runs after the cursor has moved, except destructors, whose panics are caught.
        (self.done, self.limit) = (done, BATCH.1.min(self.limit * 2));
        if let Some(rest) = rest {
            let before = core::mem::replace(&mut self.bounds, rest);
            drop_quietly(before);
        }
        Ok(Some(payloads))
    }
}

/// A walk over rows, by any index.
pub(crate) trait Walk<'g, R, S: Scheme> {
    /// Returns the next rows, perhaps an empty list, or `None` at the end.
    fn rows(&mut self, sight: &mut dyn Sight<S>) -> Result<Option<Vec<&'g R>>, Conflict>;
}

impl<'g, M: Kind, K: KeyPart, R: Payload, S: Scheme> Walk<'g, R, S> for Cursor<M, K, R, S> {
    fn rows(&mut self, sight: &mut dyn Sight<S>) -> Result<Option<Vec<&'g R>>, Conflict> {
        self.batch(sight)
    }
}

/// The content of an entry of a secondary index: the address of its row's record.
///
/// An entry that a reader sees leads to a record that is alive: entry and row were committed together, and neither is
/// freed while the reader may see its version. A row has one entry in each index: each write of the row that adds an
/// entry also removes the previous entry. (`Tx::write` checks this, whatever keys the rows' code returns.)
pub struct Link<K, R, S: Scheme>(pub(crate) *const Keyed<K, R, S>);

impl<K, R, S: Scheme> Clone for Link<K, R, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, R, S: Scheme> Copy for Link<K, R, S> {}

impl<K: 'static, R: 'static, S: Scheme> Payload for Link<K, R, S> {
    fn heap_bytes(&self) -> usize {
        0
    }
}

// SAFETY: records are shared by threads.
unsafe impl<K, R, S: Scheme> Send for Link<K, R, S> {}
// SAFETY: as above.
unsafe impl<K, R, S: Scheme> Sync for Link<K, R, S> {}

/// A walk over a secondary index that follows the links to the rows.
pub(crate) struct Linked<M: Kind, E: KeyPart, N: Kind, K: KeyPart, R, S: Scheme> {
    pub(crate) entries: Cursor<M, E, Link<K, R, S>, S>,
    pub(crate) rows: *const Typed<N, K, R, S>,
}

impl<'g, M: Kind, E: KeyPart, N: Kind, K: KeyPart, R: Payload, S: Scheme> Walk<'g, R, S> for Linked<M, E, N, K, R, S> {
    fn rows(&mut self, sight: &mut dyn Sight<S>) -> Result<Option<Vec<&'g R>>, Conflict> {
        let Some(links) = self.entries.batch(sight)? else { return Ok(None) };
        let mut rows = Vec::with_capacity(links.len());
        for link in links {
            // SAFETY: see `Link`.
            let found = unsafe { &*link.0 };
            let row = match sight.see(place(self.rows, found))? {
                // SAFETY: a version of the primary index that the reader sees.
                Look::At(version) => unsafe { payload::<R, S>(version) },
                Look::Dead => None,
            };
            rows.push(row.ok_or_else(|| sight.torn())?);
        }
        Ok(Some(rows))
    }
}

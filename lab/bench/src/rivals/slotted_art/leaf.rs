//! What the map asks of a leaf: up to [`SLOTS`] entries, an upper bound, a lock, and a link to the next leaf.
//!
//! A thread that changes a leaf holds its lock. A thread that reads one holds the lock, or validates the version that
//! it read before; until then, what it read may be a mix of several states, so no method panics on such a mix.

use archipelago_platform::atomic::AtomicU64;
use archipelago_sync::version_lock::VersionLock;

use crate::rivals::btree::{Body, InPlace, TreeKey};

/// Slots of a leaf; few in tests, so that short histories have splits.
pub const SLOTS: usize = if cfg!(test) { 8 } else { 64 };

/// Returns the number of words of a leaf whose keys have `words` each: room for one key more than there are slots, the
/// bound, and for two values more, since a [`Node`](crate::rivals::btree::node::Node) reckons with the values of an
/// inner node.
const fn words(words: usize) -> usize {
    (SLOTS + 1) * (words + 1) + 1
}

/// A key of the map.
pub trait SlotKey: TreeKey {
    /// A leaf's words for keys, bound and values.
    type Words: Body;
}

impl SlotKey for u64 {
    type Words = [AtomicU64; words(u64::WORDS)];
}

impl SlotKey for Vec<u8> {
    type Words = [AtomicU64; words(<Vec<u8> as TreeKey>::InPlace::WORDS)];
}

/// A leaf. The last leaf of a map has no bound: what is in the bound's place has no meaning.
pub trait Leaf: Sized + Send + Sync + 'static {
    type Key: InPlace;

    /// Makes an empty leaf without a next one.
    fn new() -> Box<Self>;

    fn lock(&self) -> &VersionLock;

    /// Returns the address of the next leaf; 0 for none.
    fn next(&self) -> u64;

    fn bound(&self) -> Self::Key;

    fn set_bound(&self, bound: Self::Key);

    fn is_full(&self) -> bool;

    /// Returns a key's slot, and `true`; or the slot that [`insert`](Self::insert) wants, and `false`.
    fn find(&self, key: &Self::Key) -> (usize, bool);

    fn value(&self, slot: usize) -> u64;

    fn set_value(&self, slot: usize, value: u64);

    /// Inserts an absent key. The slot is that of [`find`](Self::find), and the leaf is not full.
    fn insert(&self, slot: usize, key: Self::Key, value: u64);

    /// Removes a slot's entry. Returns its value.
    fn remove(&self, slot: usize) -> u64;

    /// Moves the upper half of a full leaf to a new one, which becomes the next. Returns the new leaf, and its least
    /// key.
    fn split(&self) -> (Box<Self>, Self::Key);

    /// Writes the entries from `from` on, ascending, to an empty page: the first `limit` of them.
    fn copy(&self, from: Option<&Self::Key>, limit: usize, page: &mut Vec<(Self::Key, u64)>);
}

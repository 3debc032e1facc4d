//! Keys as words of a node. A node contains each key whole: a number in one word, a byte string in five.

use core::array;
use core::cmp::Ordering;
use core::fmt::Debug;
use core::hash::Hash;

use archipelago_platform::atomic::{self, AtomicU64};

use crate::keys::BenchKey;

/// Words of a byte string in a node.
const STRING: usize = 5;

/// The most bytes of a key of the tree. One byte more contains the length.
pub const LONGEST: usize = 8 * STRING - 1;

/// The words of a node behind its header.
pub trait Body: AsRef<[AtomicU64]> + Send + Sync + 'static {
    /// The number of words.
    const WORDS: usize;

    /// Returns words that are all zero.
    fn zero() -> Self;
}

impl<const WORDS: usize> Body for [AtomicU64; WORDS] {
    const WORDS: usize = WORDS;

    fn zero() -> Self {
        array::from_fn(|_| AtomicU64::new(0))
    }
}

/// A key as a node contains it.
///
/// The words are read and written relaxed, one by one. So a thread that reads a key while another thread writes it may
/// get words of several keys. The thread validates the node's version before it relies on what it read.
pub trait InPlace: Copy + Debug + Default + Hash + Ord + Send + Sync + 'static {
    /// Words of a key.
    const WORDS: usize;

    /// The words of a node of [`BTreeOlc`](super::BTreeOlc).
    type Body: Body;

    /// Reads a key's words.
    fn load(words: &[AtomicU64]) -> Self;

    /// Writes a key's words.
    fn store(self, words: &[AtomicU64]);

    /// Compares this key with a node's. Reads no word behind the first one that differs.
    fn compare(&self, words: &[AtomicU64]) -> Ordering;
}

/// A key of [`BTreeOlc`](super::BTreeOlc).
pub trait TreeKey: BenchKey {
    /// The key in a node.
    type InPlace: InPlace;

    /// Returns the key as a node contains it. The result has the order of the keys. For a key of more than [`LONGEST`]
    /// bytes, which is in no node, the result is above all keys with the same first bytes.
    fn in_place(&self) -> Self::InPlace;

    /// Calls `f` with the key as visitors see it.
    fn show<R>(key: Self::InPlace, f: impl FnOnce(Self::Ref<'_>) -> R) -> R;
}

impl InPlace for u64 {
    const WORDS: usize = 1;

    // With the header, eight cache lines: 30 keys.
    type Body = [AtomicU64; 61];

    #[inline]
    fn load(words: &[AtomicU64]) -> u64 {
        words[0].load(atomic::Ordering::Relaxed)
    }

    #[inline]
    fn store(self, words: &[AtomicU64]) {
        words[0].store(self, atomic::Ordering::Relaxed);
    }

    #[inline]
    fn compare(&self, words: &[AtomicU64]) -> Ordering {
        self.cmp(&Self::load(words))
    }
}

impl TreeKey for u64 {
    type InPlace = u64;

    #[inline]
    fn in_place(&self) -> u64 {
        *self
    }

    #[inline]
    fn show<R>(key: u64, f: impl FnOnce(u64) -> R) -> R {
        f(key)
    }
}

/// The bytes, filled up with zeros, then the length, as big-endian numbers. If all bytes but the length are equal, the
/// longer key is the shorter one with zeros appended, so the length decides.
impl InPlace for [u64; STRING] {
    const WORDS: usize = STRING;

    // With the header, 4 KiB, as in index-microbench: 84 keys.
    type Body = [AtomicU64; 509];

    #[inline]
    fn load(words: &[AtomicU64]) -> Self {
        array::from_fn(|at| words[at].load(atomic::Ordering::Relaxed))
    }

    #[inline]
    fn store(self, words: &[AtomicU64]) {
        self.into_iter().zip(words).for_each(|(word, to)| to.store(word, atomic::Ordering::Relaxed));
    }

    #[inline]
    fn compare(&self, words: &[AtomicU64]) -> Ordering {
        self.iter().copied().cmp(words.iter().map(|word| word.load(atomic::Ordering::Relaxed)))
    }
}

impl TreeKey for Vec<u8> {
    type InPlace = [u64; STRING];

    #[inline]
    fn in_place(&self) -> [u64; STRING] {
        let mut words = [[0; 8]; STRING];
        let (bytes, kept) = (words.as_flattened_mut(), self.len().min(LONGEST));
        bytes[..kept].copy_from_slice(&self[..kept]);
        bytes[LONGEST] = self.len().min(LONGEST + 1) as u8;
        words.map(u64::from_be_bytes)
    }

    #[inline]
    fn show<R>(key: [u64; STRING], f: impl FnOnce(&[u8]) -> R) -> R {
        let words = key.map(u64::to_be_bytes);
        let bytes = words.as_flattened();
        f(&bytes[..usize::from(bytes[LONGEST])])
    }
}

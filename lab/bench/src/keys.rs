//! Keys for benchmarks: their sources, and the trait of key types that benchmarks need.
//!
//! A [`KeySet`] is made once, from the seed, before anything is timed. Its keys are distinct. `loaded` is in the order
//! of loading: shuffled, except for sequential keys; `fresh` is held back for the workloads that insert new keys.

mod file;
mod synthetic;

use core::fmt::Debug;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use archipelago_index::Key;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::failure::Failure;

/// A key type that indexes are measured with. Two types implement it, one for each form: `u64` and `Vec<u8>`.
pub trait BenchKey: Key + Ord + Debug {
    /// The type of an owned byte string for the key, in the same order, for peers that know only byte strings.
    type Raw: AsRef<[u8]> + Clone + Debug + Send + Sync + 'static;

    /// Returns the key as readable text.
    fn readable(&self) -> String {
        format!("{self:?}")
    }

    /// Returns the key in the form in which scans pass it to their caller.
    fn shown(&self) -> Self::Ref<'_>;

    /// Returns an owned key, from the form in which scans pass it to their caller.
    fn from_shown(shown: Self::Ref<'_>) -> Self;

    /// Reads a key that a scan has passed to its caller, so that every index pays for fetching the key.
    fn touch(shown: Self::Ref<'_>) -> u64;

    /// Returns the key's byte string ([`BenchKey::Raw`]).
    fn raw(&self) -> Self::Raw;

    /// Calls `f` with the bytes of [`raw`](BenchKey::raw), without an allocation.
    fn with_raw<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R;

    /// Returns the key with these raw bytes, in the form in which scans pass it to their caller.
    fn shown_of_raw(raw: &[u8]) -> Self::Ref<'_>;

    /// Returns about how many bytes a copy of the key occupies.
    fn footprint(&self) -> usize;

    /// Makes `count` keys to load and `fresh` more. `kind` is synthetic, and its keys have this type.
    fn synthetic(kind: &KeyKind, count: usize, fresh: usize, seed: u64) -> KeySet<Self>;

    /// Makes a key that most likely was never made before.
    fn unseen(rng: &mut SmallRng) -> Self;
}

impl BenchKey for u64 {
    type Raw = [u8; 8];

    #[inline]
    fn shown(&self) -> u64 {
        *self
    }

    fn from_shown(shown: u64) -> u64 {
        shown
    }

    #[inline]
    fn touch(shown: u64) -> u64 {
        shown
    }

    #[inline]
    fn raw(&self) -> [u8; 8] {
        self.to_be_bytes()
    }

    #[inline]
    fn with_raw<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&self.to_be_bytes())
    }

    #[inline]
    fn shown_of_raw(raw: &[u8]) -> u64 {
        u64::from_be_bytes(raw.try_into().expect("a u64 has 8 bytes"))
    }

    fn footprint(&self) -> usize {
        8
    }

    fn synthetic(kind: &KeyKind, count: usize, fresh: usize, seed: u64) -> KeySet<u64> {
        words(kind, count, fresh, seed)
    }

    fn unseen(rng: &mut SmallRng) -> u64 {
        rng.random()
    }
}

impl BenchKey for Vec<u8> {
    type Raw = Vec<u8>;

    fn readable(&self) -> String {
        format!("\"{}\"", self.escape_ascii())
    }

    #[inline]
    fn shown(&self) -> &[u8] {
        self
    }

    fn from_shown(shown: &[u8]) -> Vec<u8> {
        shown.to_vec()
    }

    #[inline]
    fn touch(shown: &[u8]) -> u64 {
        // Only the first and the last byte are read: they touch one or two cache lines, however long the key is.
        let ends = shown.first().zip(shown.last()).map_or(0, |(first, last)| u64::from(*first) << 8 | u64::from(*last));
        ends ^ shown.len() as u64
    }

    #[inline]
    fn raw(&self) -> Vec<u8> {
        self.clone()
    }

    #[inline]
    fn with_raw<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(self)
    }

    #[inline]
    fn shown_of_raw(raw: &[u8]) -> &[u8] {
        raw
    }

    fn footprint(&self) -> usize {
        // Allocators round up to 16.
        size_of::<Vec<u8>>() + self.len().next_multiple_of(16)
    }

    fn synthetic(_: &KeyKind, count: usize, fresh: usize, seed: u64) -> KeySet<Vec<u8>> {
        emails(count, fresh, seed)
    }

    fn unseen(rng: &mut SmallRng) -> Vec<u8> {
        // The address has a number of up to nine digits, so most likely no other key is the same one.
        synthetic::email(1_000_000_000, rng)
    }
}

/// The kinds of keys that a benchmark can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Uniformly random `u64`.
    Int,
    /// Runs of consecutive `u64`, the runs 2^34 apart.
    Clustered,
    /// 0, 1, 2 and so on, loaded in this order.
    Sequential,
    /// Made-up e-mail addresses, domain first.
    Email,
    /// One key per line of a file; `-` is standard input.
    File(PathBuf),
}

impl KeyKind {
    /// The names of the synthetic kinds.
    pub const NAMES: &'static str = "int, clustered, sequential, email";

    /// Returns the kind with this name, or [`File`](Self::File) with `text` as its path if no kind has this name.
    pub fn parse(text: impl AsRef<OsStr>) -> KeyKind {
        let text = text.as_ref();
        match text.to_str() {
            Some("int") => KeyKind::Int,
            Some("clustered") => KeyKind::Clustered,
            Some("sequential") => KeyKind::Sequential,
            Some("email") => KeyKind::Email,
            _ => KeyKind::File(text.into()),
        }
    }

    /// Returns the name for reports.
    pub fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            KeyKind::Int => "int",
            KeyKind::Clustered => "clustered",
            KeyKind::Sequential => "sequential",
            KeyKind::Email => "email",
            KeyKind::File(path) if path == Path::new("-") => "stdin",
            KeyKind::File(path) => return path.to_string_lossy(),
        })
    }

    /// Returns whether the keys are byte strings rather than `u64`.
    pub fn is_bytes(&self) -> bool {
        matches!(self, KeyKind::Email | KeyKind::File(_))
    }
}

/// Distinct keys in loading order, and keys that are held back.
pub struct KeySet<K> {
    /// Keys that an index is loaded with.
    pub loaded: Vec<K>,
    /// Keys that are not loaded, for workloads that insert.
    pub fresh: Vec<K>,
    /// Lines of the file that repeated an earlier one and were left out.
    pub duplicates: usize,
}

/// Makes `count` keys to load and `fresh` more. `kind` is synthetic, and its keys are `u64`.
pub fn words(kind: &KeyKind, count: usize, fresh: usize, seed: u64) -> KeySet<u64> {
    let total = count + fresh;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut keys = match kind {
        KeyKind::Clustered => synthetic::clustered(total, &mut rng),
        KeyKind::Sequential => (0..total as u64).collect(),
        _ => synthetic::uniform(total, &mut rng),
    };
    if *kind != KeyKind::Sequential {
        keys.shuffle(&mut rng);
    }
    split(keys, count, 0)
}

/// Makes `count` e-mail addresses to load and `fresh` more.
pub fn emails(count: usize, fresh: usize, seed: u64) -> KeySet<Vec<u8>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut keys = synthetic::emails(count + fresh, &mut rng);
    keys.shuffle(&mut rng);
    split(keys, count, 0)
}

/// Reads the distinct lines of a file (of standard input, for `-`) and shuffles them. Up to `fresh` lines are held
/// back, but at most a fifth of the file. `count` of the other lines are loaded; if `count` is `None`, all of them.
///
/// # Errors
/// If the file cannot be read, is empty, or has fewer than `count` distinct lines beside those held back.
pub fn from_file(
    path: impl AsRef<Path>,
    count: Option<usize>,
    fresh: usize,
    seed: u64,
) -> Result<KeySet<Vec<u8>>, Failure> {
    let (mut keys, duplicates) = file::read(path.as_ref(), KeyKind::NAMES)?;
    keys.shuffle(&mut SmallRng::seed_from_u64(seed));
    let fresh = fresh.min(keys.len() / 5);
    if let Some(count) = count
        && count > keys.len() - fresh
    {
        return Err(Failure::new(format!(
            "--count {count} is more than the file has: {} distinct keys, {fresh} of them held back for inserts",
            keys.len()
        )));
    }
    let count = count.unwrap_or(keys.len() - fresh);
    keys.truncate(count + fresh);
    Ok(split(keys, count, duplicates))
}

fn split<K>(mut loaded: Vec<K>, count: usize, duplicates: usize) -> KeySet<K> {
    let fresh = loaded.split_off(count);
    KeySet { loaded, fresh, duplicates }
}

#[cfg(test)]
mod tests;

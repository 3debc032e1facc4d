//! Keys to measure with: where they come from, and what a benchmark must be able to do with one.
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

/// A key type that indexes are measured with. There are two, one for each form: `u64` and `Vec<u8>`.
pub trait BenchKey: Key + Ord + Debug {
    /// The key as an owned byte string in the same order, for peers that know only byte strings.
    type Raw: AsRef<[u8]> + Clone + Debug + Send + Sync + 'static;

    /// The key for people.
    fn readable(&self) -> String {
        format!("{self:?}")
    }

    /// The key as scans show it.
    fn shown(&self) -> Self::Ref<'_>;

    /// The key that a scan showed.
    fn from_shown(shown: Self::Ref<'_>) -> Self;

    /// Reads what a scan showed of a key, so that no index gets away with not fetching it.
    fn touch(shown: Self::Ref<'_>) -> u64;

    /// See [`BenchKey::Raw`].
    fn raw(&self) -> Self::Raw;

    /// Calls `f` with the bytes of [`raw`](BenchKey::raw), without making one.
    fn with_raw<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R;

    /// What a scan shows of the key with these raw bytes.
    fn shown_of_raw(raw: &[u8]) -> Self::Ref<'_>;

    /// Bytes that a copy of the key occupies, about.
    fn footprint(&self) -> usize;

    /// `count` keys to load and `fresh` more, of a synthetic `kind` that is of this type.
    fn synthetic(kind: &KeyKind, count: usize, fresh: usize, seed: u64) -> KeySet<Self>;

    /// A key that most likely was never made before.
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
        // The first and the last byte: on one or two lines, whatever lies between.
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
        // Of so large a number.
        synthetic::email(u64::MAX, rng)
    }
}

/// Which keys.
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
    /// The names of the kinds that are not a file.
    pub const NAMES: &'static str = "int, clustered, sequential, email";

    /// Never fails: what is no kind's name is a file's.
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

    /// The name in reports.
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

    /// Whether these are byte strings rather than `u64`.
    pub fn is_bytes(&self) -> bool {
        matches!(self, KeyKind::Email | KeyKind::File(_))
    }
}

/// Distinct keys in loading order, and some held back.
pub struct KeySet<K> {
    /// Keys that an index is loaded with.
    pub loaded: Vec<K>,
    /// Keys that are not loaded, for workloads that insert.
    pub fresh: Vec<K>,
    /// Lines of the file that repeated an earlier one and were left out.
    pub duplicates: usize,
}

/// `count` keys to load and `fresh` more, of a synthetic `kind` that is words.
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

/// `count` made-up e-mail addresses to load and `fresh` more.
pub fn emails(count: usize, fresh: usize, seed: u64) -> KeySet<Vec<u8>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut keys = synthetic::emails(count + fresh, &mut rng);
    keys.shuffle(&mut rng);
    split(keys, count, 0)
}

/// The distinct lines of a file (or of standard input, for `-`), shuffled: `count` of them to load (all but the
/// `fresh` if `None`) and up to `fresh` more. At most a fifth of the file is held back.
///
/// # Errors
/// If the file cannot be read, is empty, or has fewer distinct keys than asked for.
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

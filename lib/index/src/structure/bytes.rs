//! The form of keys that are byte strings.

use super::{Bytes, Decoding, Encoding, Form, FormKind, KeyList, Kind};
use core::cmp::Ordering;
use core::hash::Hasher;

impl Form for Bytes {
    type Probe<'a> = &'a [u8];
    type Owned = Vec<u8>;
    type Keys = Joined;
    type Core<S: Kind> = S::OfBytes;

    const KIND: FormKind = FormKind::Bytes;

    #[inline(always)]
    fn compare(a: &[u8], b: &[u8]) -> Ordering {
        a.cmp(b)
    }

    fn own(key: &[u8]) -> Vec<u8> {
        key.to_vec()
    }

    fn probe(owned: &Vec<u8>) -> &[u8] {
        owned
    }

    fn just_above(key: &[u8]) -> Option<Vec<u8>> {
        Some([key, &[0]].concat())
    }

    fn set_above(owned: &mut Vec<u8>, key: &[u8]) -> bool {
        owned.clear();
        owned.extend_from_slice(key);
        owned.push(0);
        true
    }

    fn least() -> Vec<u8> {
        Vec::new()
    }

    fn is_least(key: &[u8]) -> bool {
        key.is_empty()
    }

    #[inline]
    fn with_bytes<R>(key: &[u8], f: impl FnOnce(&[u8]) -> R) -> R {
        f(key)
    }

    #[inline(always)]
    fn of_bytes(bytes: &[u8]) -> &[u8] {
        bytes
    }

    #[inline]
    fn tag(key: &[u8]) -> u8 {
        let mut hasher = rustc_hash::FxHasher::default();
        hasher.write(key);
        // This hasher rotates its result. So its best bits are the highest of the lowest 26 bits, and the tag consists
        // of such bits. A tag of zero means "empty slot", so the hash zero becomes the tag one.
        ((hasher.finish() >> 16) as u8).max(1)
    }

    #[inline(always)]
    fn of<R>(encoding: &(impl Encoding + ?Sized), f: impl FnOnce(&[u8]) -> R) -> R {
        encoding.with_bytes(f)
    }

    #[inline(always)]
    unsafe fn read<'a, D: Decoding>(bytes: Self::Probe<'a>) -> D::Key<'a> {
        // SAFETY: the caller guarantees the same contract.
        unsafe { D::of_bytes(bytes) }
    }
}

/// Byte strings, stored one after the other.
#[derive(Default)]
pub struct Joined {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyList<Bytes> for Joined {
    #[inline]
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    #[inline]
    fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[start..self.ends[at]]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

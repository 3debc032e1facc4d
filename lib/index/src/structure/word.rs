//! The form of keys that fit one `u64`.

use super::{Decoding, Encoding, Form, FormKind, KeyList, Kind, Word};
use core::cmp::Ordering;

impl Form for Word {
    type Probe<'a> = u64;
    type Owned = u64;
    type Keys = Vec<u64>;
    type Core<S: Kind> = S::OfWords;

    const KIND: FormKind = FormKind::Word;

    #[inline(always)]
    fn compare(a: u64, b: u64) -> Ordering {
        a.cmp(&b)
    }

    fn own(key: u64) -> u64 {
        key
    }

    fn probe(owned: &u64) -> u64 {
        *owned
    }

    fn just_above(key: u64) -> Option<u64> {
        key.checked_add(1)
    }

    fn set_above(owned: &mut u64, key: u64) -> bool {
        key.checked_add(1).map(|above| *owned = above).is_some()
    }

    fn least() -> u64 {
        0
    }

    fn is_least(key: u64) -> bool {
        key == 0
    }

    #[inline]
    fn with_bytes<R>(key: u64, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&key.to_be_bytes())
    }

    #[inline(always)]
    fn of_bytes(bytes: &[u8]) -> u64 {
        u64::from_be_bytes(bytes.try_into().expect("a word has 8 bytes"))
    }

    #[inline]
    fn tag(key: u64) -> u8 {
        // The tag is the top byte of a multiplicative hash. A tag of zero means "empty slot", so the hash zero becomes
        // the tag one.
        ((key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).max(1)
    }

    #[inline(always)]
    fn of<R>(encoding: &(impl Encoding + ?Sized), f: impl FnOnce(u64) -> R) -> R {
        f(encoding.word())
    }

    #[inline(always)]
    unsafe fn read<'a, D: Decoding>(word: Self::Probe<'a>) -> D::Key<'a> {
        // SAFETY: the caller guarantees the same contract.
        unsafe { D::of_word(word) }
    }
}

impl KeyList<Word> for Vec<u64> {
    #[inline]
    fn push(&mut self, key: u64) {
        Vec::push(self, key);
    }

    #[inline]
    fn get(&self, at: usize) -> u64 {
        self[at]
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }
}

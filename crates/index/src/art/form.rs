//! From keys to the tree's byte strings and back. A word is its eight bytes, the highest first, which keeps the order.

use crate::{Bytes, Encode, Form, FormKind, Key, Word};
use core::any::TypeId;

/// Calls `f` with the byte string that stands for `key`.
#[inline(always)]
pub(super) fn with_bytes<Q: Encode + ?Sized, R>(key: &Q, f: impl FnOnce(&[u8]) -> R) -> R {
    key.encode(|probe| match <Q::Form as Form>::KIND {
        FormKind::Word => f(&same::<Q::Form, Word>(probe).to_be_bytes()),
        FormKind::Bytes => f(same::<Q::Form, Bytes>(probe)),
    })
}

/// The key that `bytes` stands for, borrowed.
///
/// # Safety
/// `bytes` stands for some `K`.
#[inline(always)]
pub(super) unsafe fn key_ref<'a, K: Key>(bytes: &'a [u8]) -> K::Ref<'a> {
    // SAFETY: passed on.
    unsafe { K::decode_ref(probe::<K::Form>(bytes)) }
}

/// The key that `bytes` stands for.
///
/// # Safety
/// `bytes` stands for some `K`.
#[inline(always)]
pub(super) unsafe fn key<K: Key>(bytes: &[u8]) -> K {
    // SAFETY: passed on.
    unsafe { K::decode(probe::<K::Form>(bytes)) }
}

#[inline(always)]
fn probe<F: Form>(bytes: &[u8]) -> F::Probe<'_> {
    match F::KIND {
        FormKind::Word => same::<Word, F>(u64::from_be_bytes(bytes.try_into().expect("a word has 8 bytes"))),
        FormKind::Bytes => same::<Bytes, F>(bytes),
    }
}

/// A probe of one form as a probe of another that is the same form, which generic code cannot know. The comparison is
/// of constants.
#[inline(always)]
fn same<'a, A: Form, B: Form>(probe: A::Probe<'a>) -> B::Probe<'a> {
    assert_eq!(TypeId::of::<A>(), TypeId::of::<B>(), "a key's form is Word or Bytes");
    // SAFETY: `A` and `B` are the same type, hence their probes of the same lifetime are.
    unsafe { core::mem::transmute_copy(&probe) }
}

/// An owned byte string; a word needs no allocation.
pub(super) enum KeyBuf {
    Word([u8; 8]),
    Bytes(Box<[u8]>),
}

impl KeyBuf {
    pub(super) fn of<Q: Encode + ?Sized>(key: &Q) -> KeyBuf {
        with_bytes(key, |bytes| match <Q::Form as Form>::KIND {
            FormKind::Word => KeyBuf::Word(bytes.try_into().expect("a word has 8 bytes")),
            FormKind::Bytes => KeyBuf::Bytes(bytes.into()),
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            KeyBuf::Word(bytes) => bytes,
            KeyBuf::Bytes(bytes) => bytes,
        }
    }
}

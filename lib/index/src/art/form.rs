//! From the tree's byte strings back to encodings. A word is its eight bytes, the highest first, which keeps the order.

use crate::{Bytes, Form, FormKind, Word};
use core::any::TypeId;

/// The encoding that `bytes` stands for.
#[inline(always)]
pub(super) fn probe<F: Form>(bytes: &[u8]) -> F::Probe<'_> {
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

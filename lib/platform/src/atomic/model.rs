//! The atomics of loom builds: loom's, except for `load`.
//!
//! loom tries both orders of two accesses only if one of them is the last access to the word before the other
//! (`last_dependent_access` in its `rt/atomic.rs`). A thread's own load counts as an access, too. So if one thread
//! loads a word, and another loads and then changes it, loom never tries the change before the first load. Whole models
//! are reduced to a single schedule by this (tokio-rs/loom issues 166 and 392, open in 0.7.2).
//!
//! Here, a load also changes a second word of its atomic, with a relaxed operation. The change orders nothing. But the
//! loads of one atomic now depend on each other, so loom tries both orders. This makes many more schedules, so
//! [`model`](crate::model) enables it only for a part of its runs.

use core::fmt;
use core::ops::Deref;

use loom::sync::atomic as loomed;
pub use loom::sync::atomic::{Ordering, fence};

/// The word that loads change. Its value stays the same; only the order of its changes distinguishes schedules.
#[derive(Debug)]
struct Loads(loomed::AtomicU8);

impl Loads {
    fn new() -> Self {
        Self(loomed::AtomicU8::new(0))
    }

    /// Reports a load. loom does not switch threads at this change: it tries the other order by a switch before the
    /// load that precedes the change.
    fn note(&self) {
        if !crate::model::is_complete() {
            return;
        }
        loom::stop_exploring();
        let _exploring = Exploring;
        self.0.fetch_or(0, Ordering::Relaxed);
    }
}

/// Enables switching again when it is dropped, also when the model has become too long and panics.
struct Exploring;

impl Drop for Exploring {
    fn drop(&mut self) {
        loom::explore();
    }
}

macro_rules! atomics {
    ($($name:ident $(<$parameter:ident>)? of $value:ty;)*) => {$(
        /// As `core`'s type of this name. Dereferences to loom's type, which has all methods except `load`.
        pub struct $name $(<$parameter>)? {
            word: loomed::$name $(<$parameter>)?,
            loads: Loads,
        }

        impl $(<$parameter>)? $name $(<$parameter>)? {
            #[expect(missing_docs, reason = "as `core`'s")]
            pub fn new(value: $value) -> Self {
                Self { word: loomed::$name::new(value), loads: Loads::new() }
            }

            #[expect(missing_docs, reason = "as `core`'s")]
            pub fn load(&self, order: Ordering) -> $value {
                let value = self.word.load(order);
                self.loads.note();
                value
            }
        }

        impl $(<$parameter>)? Deref for $name $(<$parameter>)? {
            type Target = loomed::$name $(<$parameter>)?;

            fn deref(&self) -> &Self::Target {
                &self.word
            }
        }

        impl $(<$parameter>)? fmt::Debug for $name $(<$parameter>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.word.fmt(f)
            }
        }

        impl $(<$parameter>)? From<$value> for $name $(<$parameter>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    )*};
}

atomics! {
    AtomicBool of bool;
    AtomicI8 of i8;
    AtomicI16 of i16;
    AtomicI32 of i32;
    AtomicI64 of i64;
    AtomicIsize of isize;
    AtomicPtr<T> of *mut T;
    AtomicU8 of u8;
    AtomicU16 of u16;
    AtomicU32 of u32;
    AtomicU64 of u64;
    AtomicUsize of usize;
}

macro_rules! defaults {
    ($($name:ident)*) => {$(
        impl Default for $name {
            fn default() -> Self {
                Self::new(Default::default())
            }
        }
    )*};
}

defaults! { AtomicBool AtomicI8 AtomicI16 AtomicI32 AtomicI64 AtomicIsize AtomicU8 AtomicU16 AtomicU32 AtomicU64 AtomicUsize }

//! The atomics of loom builds: loom's, except `load`.
//!
//! loom follows both orders of two accesses only if one is the last access to the word before the other
//! (`last_dependent_access` in its `rt/atomic.rs`), and a thread's own load counts as one. So where one thread loads a word and
//! another loads and then changes it, the change is never tried before the first load, and whole models come down to a single
//! schedule (tokio-rs/loom issues 166 and 392, open in 0.7.2). Here a load also changes a word that belongs to the loads of its
//! atomic, relaxed: it orders nothing, but loads of one word depend on each other then, and loom tries both orders.
//! This makes many more schedules, so [`model`](crate::model) enables it where needed.

use core::fmt;
use core::ops::Deref;

use loom::sync::atomic as loomed;
pub use loom::sync::atomic::{Ordering, fence};

/// The word that loads change. It keeps its value, and only the order of its changes tells schedules apart.
#[derive(Debug)]
struct Loads(loomed::AtomicU8);

impl Loads {
    fn new() -> Self {
        Self(loomed::AtomicU8::new(0))
    }

    /// Not a point at which loom switches threads: loom tries the other order by a switch before the load that precedes
    /// this change.
    fn note(&self) {
        if !crate::model::is_complete() {
            return;
        }
        loom::stop_exploring();
        let _exploring = Exploring;
        self.0.fetch_or(0, Ordering::Relaxed);
    }
}

/// Restores switching at the end, also when the model has become too long and panics.
struct Exploring;

impl Drop for Exploring {
    fn drop(&mut self) {
        loom::explore();
    }
}

macro_rules! atomics {
    ($($name:ident $(<$parameter:ident>)? of $value:ty;)*) => {$(
        /// As `core`'s. Dereferences to loom's, which has all methods but `load`.
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

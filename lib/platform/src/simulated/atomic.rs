//! Atomic types whose accesses are scheduled in virtual time.
//!
//! Each type wraps `core`'s type of the same layout and does the real access at the moment that the simulator assigns.
//! The simulated machine is sequentially consistent. Inside a run of the simulator, an ordering matters only for
//! sequentially consistent stores and fences, which wait until the thread's store buffer is empty. Outside a run,
//! orderings have their usual meaning.

use core::fmt;
use core::sync::atomic as real;

use archipelago_sim::world;
pub use real::{Ordering, compiler_fence};

/// The counterpart of [`core::sync::atomic::fence`].
#[inline]
pub fn fence(order: Ordering) {
    real::fence(order);
    world::fence(order == Ordering::SeqCst);
}

/// The methods of all atomic types, given the type of the value.
macro_rules! common {
    ($(<$generic:ident>)? $name:ident, $real:ty, $value:ty) => {
        impl$(<$generic>)? $name$(<$generic>)? {
            /// Makes a new atomic word.
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(<$real>::new(value))
            }

            /// Returns the value. No other thread can be using the word.
            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            /// Returns a mutable reference to the value. No other thread can be using the word.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// Returns the address of the value.
            #[inline]
            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            #[inline]
            fn at(&self) -> *const () {
                (&raw const self.0).cast()
            }

            /// Returns the word by the address that real accesses use. Under `Config::watch` this is a second mapping
            /// of the same memory.
            #[inline]
            fn word(&self) -> &$real {
                // SAFETY: `charged` returns an address of the same memory as `self.0`, which lives as long as `self`.
                unsafe { &*world::charged(&raw const self.0) }
            }

            /// Makes one access that reads and writes: `op` makes it and returns its result.
            #[inline]
            fn update<R>(&self, op: impl FnOnce(&$real) -> R) -> R {
                world::update(self.at(), size_of::<$value>(), || {
                    let word = self.word();
                    let before = word.load(Ordering::Relaxed);
                    let result = op(word);
                    (result, word.load(Ordering::Relaxed) != before)
                })
            }

            /// Loads the value.
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                world::load(self.at(), size_of::<$value>(), || self.word().load(order))
            }

            /// Stores a value.
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                if order == Ordering::SeqCst {
                    return self.update(|word| word.store(value, order));
                }
                world::store(self.at(), size_of::<$value>(), || {
                    let word = self.word();
                    let before = word.load(Ordering::Relaxed);
                    word.store(value, order);
                    before != value
                });
            }

            /// Stores a value and returns the previous one.
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.update(|word| word.swap(value, order))
            }

            /// Stores `new` if the value is `current`.
            ///
            /// # Errors
            /// The value, if it differs from `current`.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.update(|word| word.compare_exchange(current, new, success, failure))
            }

            /// Works as [`compare_exchange`](Self::compare_exchange) does. In the simulation it never fails spuriously,
            /// though on real machines it may.
            ///
            /// # Errors
            /// The value that was found.
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            /// Replaces the value by the result of `next`. Repeats this until no other thread changed the value in
            /// between.
            ///
            /// # Errors
            /// The value for which `next` returned `None`.
            #[inline]
            pub fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                mut next: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut before = self.load(fetch_order);
                while let Some(value) = next(before) {
                    match self.compare_exchange_weak(before, value, set_order, fetch_order) {
                        Ok(before) => return Ok(before),
                        Err(found) => before = found,
                    }
                }
                Err(before)
            }
        }

        impl$(<$generic>)? From<$value> for $name$(<$generic>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }

        impl$(<$generic>)? fmt::Debug for $name$(<$generic>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// Operations that read, compute and write.
macro_rules! fetch {
    ($value:ty: $($operation:ident)*) => {$(
        #[doc = concat!("As `core`'s `", stringify!($operation), "`: returns the value before.")]
        #[inline]
        pub fn $operation(&self, value: $value, order: Ordering) -> $value {
            self.update(|word| word.$operation(value, order))
        }
    )*};
}

macro_rules! integers {
    ($($name:ident: $value:ty),* $(,)?) => {$(
        #[doc = concat!("As [`core::sync::atomic::", stringify!($name), "`].")]
        #[repr(transparent)]
        #[derive(Default)]
        pub struct $name(real::$name);

        common!($name, real::$name, $value);

        impl $name {
            fetch!($value: fetch_add fetch_sub fetch_and fetch_nand fetch_or fetch_xor fetch_max fetch_min);
        }
    )*};
}

integers!(
    AtomicI8: i8, AtomicI16: i16, AtomicI32: i32, AtomicI64: i64, AtomicIsize: isize,
    AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize,
);

/// The counterpart of [`core::sync::atomic::AtomicBool`].
#[repr(transparent)]
#[derive(Default)]
pub struct AtomicBool(real::AtomicBool);

common!(AtomicBool, real::AtomicBool, bool);

impl AtomicBool {
    fetch!(bool: fetch_and fetch_nand fetch_or fetch_xor);
}

/// The counterpart of [`core::sync::atomic::AtomicPtr`].
#[repr(transparent)]
pub struct AtomicPtr<T>(real::AtomicPtr<T>);

common!(<T> AtomicPtr, real::AtomicPtr<T>, *mut T);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(core::ptr::null_mut())
    }
}

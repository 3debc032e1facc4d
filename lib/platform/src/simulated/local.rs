//! Thread-locals of simulated threads, and of ordinary threads outside a run.

use core::cell::{Cell, RefCell};
use core::fmt;

use archipelago_sim::world::{self, LocalValue};

/// The error for a thread-local whose value was dropped because its thread is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError;

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this thread-local was used while or after it was dropped")
    }
}

impl std::error::Error for AccessError {}

/// The counterpart of [`std::thread::LocalKey`]; made by [`thread_local!`](crate::thread::thread_local).
pub struct LocalKey<T: 'static> {
    native: std::thread::LocalKey<T>,
    init: fn() -> T,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(native: std::thread::LocalKey<T>, init: fn() -> T) -> Self {
        LocalKey { native, init }
    }

    /// Calls `f` with the calling thread's value. The value is made first if there is none.
    ///
    /// # Panics
    /// If the value has been dropped already.
    #[inline]
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).expect("a thread-local is not used after it was dropped")
    }

    /// Works as [`with`](Self::with) does, but returns an error instead of panicking.
    ///
    /// # Errors
    /// If the value has been dropped already.
    #[inline]
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let value = match world::local_get(self.key()) {
            None => return self.native.try_with(f).map_err(|_| AccessError),
            Some(LocalValue::Destroyed) => return Err(AccessError),
            Some(LocalValue::Set(value)) => value.cast::<T>(),
            Some(LocalValue::Unset) => self.make(),
        };
        // SAFETY: `make` boxed the value (as the first field of its `Apart`). It is freed only by its destructor, after
        // which `local_get` returns `LocalValue::Destroyed`. The destructor runs in this thread, so not during this
        // borrow.
        Ok(f(unsafe { &*value }))
    }

    #[cold]
    fn make(&'static self) -> *mut T {
        let value = (self.init)();
        if let Some(LocalValue::Set(earlier)) = world::local_get(self.key()) {
            // The initializer has itself accessed this thread-local.
            return earlier.cast();
        }
        let value = Box::into_raw(Box::new(Apart(value)));
        // SAFETY: a new box, which `free` drops once.
        unsafe { world::local_set(self.key(), value.cast(), free::<T>) };
        value.cast()
    }

    fn key(&'static self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

/// A value in cache lines of its own, like a thread-local in a real thread's own segment. Without this, values of
/// different threads could be adjacent on the heap.
#[repr(C, align(64))]
struct Apart<T>(T);

/// # Safety
/// `value` is a box of `Apart<T>`, which only this call frees.
unsafe fn free<T>(value: *mut u8) {
    // SAFETY: by this function's contract.
    drop(unsafe { Box::from_raw(value.cast::<Apart<T>>()) });
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// Replaces the value.
    #[inline]
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Replaces the value and returns the previous one.
    #[inline]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }

    /// Returns the value.
    #[inline]
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Takes the value and leaves the default.
    #[inline]
    pub fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// Calls `f` with the value borrowed.
    #[inline]
    pub fn with_borrow<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| f(&cell.borrow()))
    }

    /// Calls `f` with the value borrowed mutably.
    #[inline]
    pub fn with_borrow_mut<R>(&'static self, f: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| f(&mut cell.borrow_mut()))
    }
}

impl<T: 'static> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

/// The counterpart of `std`'s macro of this name.
#[doc(hidden)]
#[macro_export]
macro_rules! simulated_thread_local {
    () => {};
    ($(#[$meta:meta])* $vis:vis static $name:ident: $type:ty = const $init:block $(; $($rest:tt)*)?) => {
        $crate::simulated_thread_local!($(#[$meta])* $vis static $name: $type = $init);
        $($crate::simulated_thread_local!($($rest)*);)?
    };
    ($(#[$meta:meta])* $vis:vis static $name:ident: $type:ty = $init:expr $(; $($rest:tt)*)?) => {
        #[allow(clippy::disallowed_types)]
        $(#[$meta])*
        $vis static $name: $crate::thread::LocalKey<$type> = {
            fn init() -> $type {
                $init
            }
            ::std::thread_local! {
                static NATIVE: $type = init();
            }
            $crate::thread::LocalKey::new(NATIVE, init)
        };
        $($crate::simulated_thread_local!($($rest)*);)?
    };
}

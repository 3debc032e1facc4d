//! The heap memory of keys and values.

use archipelago_platform::memory::taken_by;
use core::alloc::Layout;

/// A key or value that knows how much heap memory it owns. Caches that are made by [`Cache::new`](crate::Cache::new) or
/// [`Builder::bytes`](crate::Builder::bytes) weigh their entries by it.
pub trait Heap {
    /// Returns the bytes of the heap blocks that the value owns, with the allocator's overhead for each block, and
    /// without the size of the value itself.
    fn heap_bytes(&self) -> usize;

    /// Returns `true` if no value of the type owns heap memory. Then [`heap_bytes`](Self::heap_bytes) of a collection
    /// of such values need not visit each value. The default is `false`.
    fn owns_nothing() -> bool
    where
        Self: Sized,
    {
        false
    }
}

/// Returns the bytes of a block for `count` items.
fn block<T>(count: usize) -> usize {
    Layout::array::<T>(count).map_or(usize::MAX / 2, taken_by)
}

macro_rules! own_nothing {
    ($($t:ty)*) => { $(impl Heap for $t {
        fn heap_bytes(&self) -> usize {
            0
        }

        fn owns_nothing() -> bool {
            true
        }
    })* };
}

own_nothing! { () u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 bool char &'static str &'static [u8] }

impl Heap for String {
    fn heap_bytes(&self) -> usize {
        block::<u8>(self.capacity())
    }
}

impl Heap for Box<str> {
    fn heap_bytes(&self) -> usize {
        block::<u8>(self.len())
    }
}

impl<T: Heap> Heap for Vec<T> {
    fn heap_bytes(&self) -> usize {
        block::<T>(self.capacity()).saturating_add(owned(self))
    }
}

impl<T: Heap> Heap for Box<[T]> {
    fn heap_bytes(&self) -> usize {
        block::<T>(self.len()).saturating_add(owned(self))
    }
}

impl<T: Heap, const N: usize> Heap for [T; N] {
    fn heap_bytes(&self) -> usize {
        owned(self)
    }

    fn owns_nothing() -> bool {
        T::owns_nothing()
    }
}

impl<T: Heap> Heap for Option<T> {
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::heap_bytes)
    }

    fn owns_nothing() -> bool {
        T::owns_nothing()
    }
}

impl<T: Heap> Heap for Box<T> {
    fn heap_bytes(&self) -> usize {
        taken_by(Layout::new::<T>()).saturating_add(T::heap_bytes(self))
    }
}

impl<T: Heap> Heap for std::sync::Arc<T> {
    /// Counts the value as if this were the only reference: a shared value counts once for each reference in a cache.
    fn heap_bytes(&self) -> usize {
        taken_by(Layout::new::<(usize, usize, T)>()).saturating_add(T::heap_bytes(self))
    }
}

impl Heap for std::sync::Arc<str> {
    fn heap_bytes(&self) -> usize {
        taken_by(Layout::array::<u8>(self.len()).expect("it exists")) + 2 * size_of::<usize>()
    }
}

impl Heap for std::sync::Arc<[u8]> {
    fn heap_bytes(&self) -> usize {
        taken_by(Layout::array::<u8>(self.len()).expect("it exists")) + 2 * size_of::<usize>()
    }
}

impl<A: Heap, B: Heap> Heap for (A, B) {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes().saturating_add(self.1.heap_bytes())
    }

    fn owns_nothing() -> bool {
        A::owns_nothing() && B::owns_nothing()
    }
}

impl<A: Heap, B: Heap, C: Heap> Heap for (A, B, C) {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes().saturating_add(self.1.heap_bytes()).saturating_add(self.2.heap_bytes())
    }

    fn owns_nothing() -> bool {
        A::owns_nothing() && B::owns_nothing() && C::owns_nothing()
    }
}

/// Returns the bytes that all items own. Items of a type that owns no heap memory are not visited.
fn owned<T: Heap>(items: &[T]) -> usize {
    if T::owns_nothing() { 0 } else { items.iter().map(T::heap_bytes).fold(0, usize::saturating_add) }
}

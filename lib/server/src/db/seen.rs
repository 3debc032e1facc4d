//! Reports accesses to plain memory to the virtual machine that simulates node replication of this database. Native
//! builds do nothing here. The accesses to sorted sets and to the tables of keys and of members are reported.

use archipelago_platform::{touch, touch_mut};

/// Reports a read of `value` and returns `value`.
#[inline(always)]
pub fn look<T>(value: &T) -> &T {
    touch(value, size_of::<T>());
    value
}

/// Reports a read of `values` and returns `values`.
#[inline(always)]
pub fn read<T>(values: &[T]) -> &[T] {
    touch(values.as_ptr(), size_of_val(values));
    values
}

/// Reports that `values` were written or moved to their current addresses.
#[inline(always)]
pub fn wrote<T>(values: &[T]) {
    touch_mut(values.as_ptr(), size_of_val(values));
}

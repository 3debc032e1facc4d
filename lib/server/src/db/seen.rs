//! What the virtual machine is told of plain memory, where node replication of this database is simulated; nothing natively.
//! Told is what sorted sets and the tables of keys and members touch.

use archipelago_platform::{touch, touch_mut};

/// A value that is looked at.
#[inline(always)]
pub fn look<T>(value: &T) -> &T {
    touch(value, size_of::<T>());
    value
}

/// Bytes that are looked at.
#[inline(always)]
pub fn read(bytes: &[u8]) -> &[u8] {
    touch(bytes.as_ptr(), bytes.len());
    bytes
}

/// Values that were written, or moved to where they are.
#[inline(always)]
pub fn wrote<T>(values: &[T]) {
    touch_mut(values.as_ptr(), size_of_val(values));
}

//! Locks in a table to which objects are hashed.

use archipelago_platform::atomic::{AtomicU8, AtomicU32};

use super::handle::Access;
use super::words::Queue;
use super::{Locks, Padding};

/// A table of locks. Each object contains one byte, and the byte's address selects one of the table's locks (stripes).
/// Objects that share a stripe exclude each other, which is correct, and rare if the table has as many stripes as
/// objects. A stripe takes 4 bytes, and 1 byte for each node. So on up to eleven nodes, a table with one stripe per
/// object takes at most 16 bytes per object.
#[derive(Debug)]
pub struct Striped {
    /// The bytes of each node are in an allocation of their own.
    locals: Box<[Box<[AtomicU8]>]>,
    globals: Box<[AtomicU32]>,
}

/// The part of a lock that is stored in an object: one byte, so that no two objects have the same address.
#[derive(Debug, Default)]
pub struct Stripe {
    _address: u8,
}

/// A reference to the lock of an object with a [`Stripe`].
#[derive(Clone, Copy, Debug)]
pub struct ToStripe<'o> {
    table: &'o Striped,
    stripe: usize,
}

/// The default number of stripes.
const STRIPES: usize = 4096;

impl Striped {
    /// Makes a table of `stripes` stripes (0 counts as 1), for [`Builder::build_with`](super::Builder::build_with).
    pub fn with_stripes(nodes: usize, stripes: usize) -> Self {
        let stripes = stripes.max(1);
        let bytes = || (0..stripes).map(|_| AtomicU8::new(0)).collect();
        Self {
            locals: (0..nodes).map(|_| bytes()).collect(),
            globals: (0..stripes).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns the size of the table in bytes.
    pub fn bytes(&self) -> usize {
        self.globals.len() * (size_of::<AtomicU32>() + self.locals.len())
    }
}

impl Locks for Striped {
    type Object = Stripe;
    type Lock<'o> = ToStripe<'o>;

    fn make(nodes: usize, _: Padding) -> Self {
        Self::with_stripes(nodes, STRIPES)
    }

    fn nodes(&self) -> usize {
        self.locals.len()
    }

    fn object(&self) -> Stripe {
        Stripe::default()
    }

    fn give_back(&self, _: &Stripe) {}

    /// Multiplies the address by 2^64 over the golden ratio, and scales the high bits of the product to the number of
    /// stripes.
    #[inline]
    fn lock_of<'o>(&'o self, object: &'o Stripe) -> ToStripe<'o> {
        let mixed = (core::ptr::from_ref(object).addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ToStripe { table: self, stripe: ((u128::from(mixed) * self.globals.len() as u128) >> 64) as usize }
    }
}

impl<'o> Access<'o> for ToStripe<'o> {
    #[inline]
    fn key(self) -> usize {
        self.stripe
    }

    #[inline]
    fn local(self, node: usize) -> &'o AtomicU8 {
        &self.table.locals[node][self.stripe]
    }

    #[inline]
    fn global(self) -> &'o AtomicU32 {
        &self.table.globals[self.stripe]
    }

    fn queue(self, _: usize) -> Option<&'o Queue> {
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Up to eleven nodes, with a stripe for each object.
    #[test]
    fn an_object_costs_sixteen_bytes_at_most() {
        for nodes in [1, 2, 4, 8, 11] {
            let table = Striped::with_stripes(nodes, 1_000);
            assert!(table.bytes() + 1_000 * size_of::<Stripe>() <= 16 * 1_000, "{nodes} nodes");
        }
    }

    /// Neighbours in a vector have different stripes if the table has enough of them.
    #[test]
    fn neighbours_have_addresses_of_their_own() {
        let table = Striped::with_stripes(2, 1 << 16);
        let objects: Vec<Stripe> = (0..64).map(|_| table.object()).collect();
        let mut keys: Vec<usize> = objects.iter().map(|object| table.lock_of(object).key()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 64);
    }
}

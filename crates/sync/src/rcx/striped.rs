//! Locks in a table that objects are hashed to.

use archipelago_platform::atomic::{AtomicU8, AtomicU32};

use super::{Locks, Padding, Queue};

/// A table of locks: objects bring nothing, and by their addresses share the locks of the table. Two that share one exclude
/// each other, which is right, and seldom with as many stripes as objects. A stripe takes 4 bytes, and 1 for each node: on up
/// to twelve nodes a table with a stripe for each object takes no more than 16 bytes an object.
#[derive(Debug)]
pub struct Striped {
    /// The bytes of each node in a piece of memory of their own.
    locals: Box<[Box<[AtomicU8]>]>,
    globals: Box<[AtomicU32]>,
}

/// What an object brings: nothing.
#[derive(Debug, Default)]
pub struct Stripe(());

/// Stripes if not told otherwise.
const STRIPES: usize = 4096;

impl Striped {
    /// A table of so many stripes (0 counts as 1): for [`Builder::build_with`](super::Builder::build_with).
    pub fn with_stripes(nodes: usize, stripes: usize) -> Self {
        let stripes = stripes.max(1);
        let bytes = || (0..stripes).map(|_| AtomicU8::new(0)).collect();
        Self {
            locals: (0..nodes).map(|_| bytes()).collect(),
            globals: (0..stripes).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// What the table takes.
    pub fn bytes(&self) -> usize {
        self.globals.len() * (size_of::<AtomicU32>() + self.locals.len())
    }
}

impl Locks for Striped {
    type Object = Stripe;
    type Handle<'o> = usize;

    fn make(nodes: usize, _: Padding) -> Self {
        Self::with_stripes(nodes, STRIPES)
    }

    fn object(&self) -> Stripe {
        Stripe(())
    }

    fn give_back(&self, _: &Stripe) {}

    /// The high bits of a multiplication by 2^64 over the golden ratio, spread over the stripes.
    #[inline]
    fn handle<'o>(&'o self, object: &'o Stripe) -> usize {
        let mixed = (core::ptr::from_ref(object).addr() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mixed) * self.globals.len() as u128) >> 64) as usize
    }

    #[inline]
    fn key(handle: usize) -> usize {
        handle
    }

    #[inline]
    fn local(&self, handle: usize, node: usize) -> &AtomicU8 {
        &self.locals[node][handle]
    }

    #[inline]
    fn global(&self, handle: usize) -> &AtomicU32 {
        &self.globals[handle]
    }

    fn queue(&self, _: usize, _: usize) -> Option<&Queue> {
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Up to twelve nodes, with a stripe for each object.
    #[test]
    fn an_object_costs_sixteen_bytes_at_most() {
        for nodes in [1, 2, 4, 8, 12] {
            assert!(Striped::with_stripes(nodes, 1_000).bytes() <= 16 * 1_000, "{nodes} nodes");
        }
        assert_eq!(size_of::<Stripe>(), 0);
    }
}

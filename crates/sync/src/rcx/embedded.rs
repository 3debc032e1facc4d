//! Locks that lie in their objects.

use archipelago_platform::atomic::{AtomicU8, AtomicU32};
use archipelago_platform::pad::CachePadded;

use super::{Locks, Padding, Queue};

/// Every object has a lock of its own: 32 bytes, and with padding a pair of lines for each node.
#[derive(Debug)]
pub struct Embedded {
    nodes: usize,
    padding: Padding,
}

/// The lock of one object.
#[derive(Debug)]
pub struct Object {
    global: AtomicU32,
    locals: Locals,
}

/// Nodes whose bytes lie in the object.
const INLINE: usize = 8;

#[derive(Debug)]
enum Locals {
    Inline([AtomicU8; INLINE]),
    Packed(Box<[AtomicU8]>),
    Padded(Box<[CachePadded<Local>]>),
}

#[derive(Debug)]
struct Local {
    byte: AtomicU8,
    queue: Queue,
}

fn byte() -> AtomicU8 {
    AtomicU8::new(0)
}

impl Locks for Embedded {
    type Object = Object;
    type Handle<'o> = &'o Object;

    fn make(nodes: usize, padding: Padding) -> Self {
        Self { nodes, padding }
    }

    fn object(&self) -> Object {
        let padded = || CachePadded::new(Local { byte: byte(), queue: Queue::default() });
        let locals = match self.padding {
            Padding::Lines => Locals::Padded((0..self.nodes).map(|_| padded()).collect()),
            Padding::Compact if self.nodes <= INLINE => Locals::Inline(core::array::from_fn(|_| byte())),
            Padding::Compact => Locals::Packed((0..self.nodes).map(|_| byte()).collect()),
        };
        Object { global: AtomicU32::new(0), locals }
    }

    #[inline]
    fn handle<'o>(&'o self, object: &'o Object) -> &'o Object {
        object
    }

    /// Addresses: they stay as long as an object can be locked.
    #[inline]
    fn key(handle: &Object) -> usize {
        core::ptr::from_ref(handle).addr()
    }

    #[inline]
    fn local<'o>(&'o self, handle: &'o Object, node: usize) -> &'o AtomicU8 {
        match &handle.locals {
            Locals::Inline(bytes) => &bytes[node],
            Locals::Packed(bytes) => &bytes[node],
            Locals::Padded(locals) => &locals[node].byte,
        }
    }

    #[inline]
    fn global<'o>(&'o self, handle: &'o Object) -> &'o AtomicU32 {
        &handle.global
    }

    #[inline]
    fn queue<'o>(&'o self, handle: &'o Object, node: usize) -> Option<&'o Queue> {
        match &handle.locals {
            Locals::Padded(locals) => Some(&locals[node].queue),
            Locals::Inline(_) | Locals::Packed(_) => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_object_brings_32_bytes() {
        assert_eq!(size_of::<Object>(), 32);
    }
}

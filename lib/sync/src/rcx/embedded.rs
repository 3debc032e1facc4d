//! Locks of one object each: stored in the object or, with padding, outside it.

use archipelago_platform::atomic::{AtomicU8, AtomicU32};
use archipelago_platform::touch;

use super::handle::Access;
use super::pool::{Apart, Pool};
use super::words::Queue;
use super::{Locks, Padding};

/// Every object has a lock of its own. 12 bytes are stored in each object. With padding, or with more than seven nodes,
/// a lock has a pair of cache lines for each node and one pair for the global word, in a pool. The pool grows with the
/// number of objects that exist at one time.
#[derive(Debug)]
pub struct Embedded {
    nodes: usize,
    pool: Option<Pool>,
}

/// The part of a lock that is stored in an object: the lock, or its number in a pool.
#[derive(Debug)]
pub struct Object(Storage);

/// The largest number of nodes whose bytes are stored in the object.
const INLINE: usize = 7;

#[derive(Debug)]
enum Storage {
    Own(Own),
    /// A lock in the pool with this identity.
    Apart {
        pool: u32,
        number: u32,
    },
}

#[derive(Debug)]
struct Own {
    locals: [AtomicU8; INLINE],
    /// Whether the lock was made for one node, where the byte is the whole lock. Locks made for several nodes exclude
    /// each other by the global word, whatever their number of nodes.
    alone: bool,
    global: AtomicU32,
}

/// A reference to the lock of an [`Object`].
#[derive(Clone, Copy, Debug)]
pub struct ToLock<'o>(Lock<'o>);

#[derive(Clone, Copy, Debug)]
enum Lock<'o> {
    Own(&'o Own),
    Apart(Apart<'o>),
}

impl Locks for Embedded {
    type Object = Object;
    type Lock<'o> = ToLock<'o>;

    fn make(nodes: usize, padding: Padding) -> Self {
        Self { nodes, pool: (padding == Padding::Lines || nodes > INLINE).then(|| Pool::new(nodes)) }
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn object(&self) -> Object {
        Object(match &self.pool {
            Some(pool) => Storage::Apart { pool: pool.id(), number: pool.take() },
            None => Storage::Own(Own {
                locals: core::array::from_fn(|_| AtomicU8::new(0)),
                alone: self.nodes == 1,
                global: AtomicU32::new(0),
            }),
        })
    }

    fn give_back(&self, object: &Object) {
        if let Storage::Apart { pool: id, number } = object.0 {
            self.pool.as_ref().filter(|pool| pool.id() == id).expect(FOREIGN).give_back(number);
        }
    }

    #[inline]
    fn lock_of<'o>(&'o self, object: &'o Object) -> ToLock<'o> {
        touch(&raw const object.0, size_of::<Object>());
        ToLock(match (&object.0, &self.pool) {
            (Storage::Own(own), None) if own.alone == (self.nodes == 1) => Lock::Own(own),
            (Storage::Apart { pool: id, number }, Some(pool)) if *id == pool.id() => Lock::Apart(pool.lock(*number)),
            _ => panic!("{FOREIGN}"),
        })
    }
}

const FOREIGN: &str = "an object of other locks";

impl<'o> Access<'o> for ToLock<'o> {
    /// The address of the global word. It does not change while the object can be locked.
    #[inline]
    fn key(self) -> usize {
        core::ptr::from_ref(self.global()).addr()
    }

    #[inline]
    fn local(self, node: usize) -> &'o AtomicU8 {
        match self.0 {
            Lock::Own(own) => &own.locals[node],
            Lock::Apart(lines) => &lines[1 + node].byte,
        }
    }

    #[inline]
    fn global(self) -> &'o AtomicU32 {
        match self.0 {
            Lock::Own(own) => &own.global,
            Lock::Apart(lines) => &lines[0].global,
        }
    }

    #[inline]
    fn queue(self, node: usize) -> Option<&'o Queue> {
        match self.0 {
            Lock::Own(_) => None,
            Lock::Apart(lines) => Some(&lines[1 + node].queue),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::{InOrder, Rcx};
    use super::*;

    #[test]
    #[cfg(not(archipelago_sim))]
    fn an_object_brings_12_bytes() {
        assert_eq!(size_of::<Object>(), 12);
    }

    /// Objects that contain their whole lock can be locked by either `Rcx` if both are for one node or both for
    /// several. The two `Rcx` then exclude each other.
    #[test]
    fn objects_of_other_locks_are_refused_or_exclude() {
        let builders = [
            (1, Padding::Compact),
            (2, Padding::Compact),
            (4, Padding::Compact),
            (2, Padding::Lines),
            (4, Padding::Lines),
        ];
        let all = builders.map(|(nodes, padding)| Rcx::builder().nodes(nodes).padding(padding).build());
        for (made, one) in all.iter().enumerate() {
            for (used, other) in all.iter().enumerate() {
                let object = one.object();
                let locked = catch_unwind(AssertUnwindSafe(|| drop(other.lock(InOrder::one(&other.handle(&object))))));
                assert_eq!(locked.is_ok(), made == used || [made, used].iter().all(|which| [1, 2].contains(which)));
                if locked.is_ok() {
                    let held = one.handle(&object);
                    let held = one.lock(InOrder::one(&held));
                    assert!(other.try_lock(InOrder::one(&other.handle(&object))).is_none());
                    drop(held);
                } else if made > 2 {
                    catch_unwind(AssertUnwindSafe(|| other.give_back(&object))).expect_err("another's lock");
                }
                one.check_invariants([&object]);
            }
        }
    }
}

//! Every object has a lock of its own: in the object, or, with padding, apart from it.

use archipelago_platform::atomic::{AtomicU8, AtomicU32};
use archipelago_platform::touch;

use super::pool::{Apart, Pool};
use super::{Locks, Padding, Queue};

/// Every object has a lock of its own. An object brings 12 bytes; with padding its lock has a pair of lines for each node
/// and one more, of a pool that grows with the number of objects at a time.
#[derive(Debug)]
pub struct Embedded(Option<Pool>);

/// What an object brings: its lock, or where that is.
#[derive(Debug)]
pub struct Object(Kind);

/// Nodes whose bytes lie in the object.
const INLINE: usize = 7;

#[derive(Debug)]
enum Kind {
    Own { locals: [AtomicU8; INLINE], global: AtomicU32 },
    Apart(u32),
}

/// What finds the lock of an [`Object`].
#[derive(Clone, Copy, Debug)]
pub struct ToLock<'o>(Lock<'o>);

#[derive(Clone, Copy, Debug)]
enum Lock<'o> {
    Own { locals: &'o [AtomicU8; INLINE], global: &'o AtomicU32 },
    Apart(Apart<'o>),
}

impl Locks for Embedded {
    type Object = Object;
    type Handle<'o> = ToLock<'o>;

    fn make(nodes: usize, padding: Padding) -> Self {
        Self((padding == Padding::Lines || nodes > INLINE).then(|| Pool::new(nodes)))
    }

    fn object(&self) -> Object {
        let own = || Kind::Own { locals: core::array::from_fn(|_| AtomicU8::new(0)), global: AtomicU32::new(0) };
        Object(self.0.as_ref().map_or_else(own, |pool| Kind::Apart(pool.take())))
    }

    fn give_back(&self, object: &Object) {
        if let (Some(pool), Kind::Apart(number)) = (&self.0, &object.0) {
            pool.give_back(*number);
        }
    }

    /// # Panics
    /// If the object is of other locks.
    #[inline]
    fn handle<'o>(&'o self, object: &'o Object) -> ToLock<'o> {
        touch(&raw const object.0, size_of::<Object>());
        ToLock(match (&object.0, &self.0) {
            (Kind::Own { locals, global }, _) => Lock::Own { locals, global },
            (Kind::Apart(number), pool) => Lock::Apart(pool.as_ref().expect("an object of other locks").lock(*number)),
        })
    }

    /// Addresses of global words: they stay as long as an object can be locked.
    #[inline]
    fn key(handle: ToLock<'_>) -> usize {
        core::ptr::from_ref(global(handle)).addr()
    }

    #[inline]
    fn local<'o>(&'o self, handle: ToLock<'o>, node: usize) -> &'o AtomicU8 {
        match handle.0 {
            Lock::Own { locals, .. } => &locals[node],
            Lock::Apart(lines) => &lines[1 + node].byte,
        }
    }

    #[inline]
    fn global<'o>(&'o self, handle: ToLock<'o>) -> &'o AtomicU32 {
        global(handle)
    }

    #[inline]
    fn queue<'o>(&'o self, handle: ToLock<'o>, node: usize) -> Option<&'o Queue> {
        match handle.0 {
            Lock::Own { .. } => None,
            Lock::Apart(lines) => Some(&lines[1 + node].queue),
        }
    }
}

#[inline]
fn global(handle: ToLock<'_>) -> &AtomicU32 {
    match handle.0 {
        Lock::Own { global, .. } => global,
        Lock::Apart(lines) => &lines[0].global,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(archipelago_sim))]
    fn an_object_brings_12_bytes() {
        assert_eq!(size_of::<Object>(), 12);
    }

    #[test]
    #[should_panic(expected = "an object of other locks")]
    fn an_object_of_other_locks_is_refused() {
        let others = Embedded::make(2, Padding::Lines);
        let object = others.object();
        let _ = Embedded::make(2, Padding::Compact).handle(&object);
    }
}

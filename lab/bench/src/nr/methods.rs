//! The methods that make a sequential structure concurrent, behind one trait; and the lock-free skip list beside them.

use core::hint::black_box;
use core::ops::ControlFlow;

use archipelago_replicate::{Combined, CombinedHandle, Handle, Replicated};
use archipelago_sets::{FraserSession, FraserSkipList, Set, SetSession};
use archipelago_sync::rcu;
use lock_api::{RawMutex, RawRwLock};

use super::clients::Load;
use super::structures::{Measured, Op, scattered};

/// A method with a structure in it.
pub trait Method: Sync {
    /// One thread's access.
    type Session<'m>: Session
    where
        Self: 'm;

    /// Access for a thread, which calls this itself.
    fn session(&self) -> Self::Session<'_>;
}

/// One thread's access.
pub trait Session {
    /// Carries out an operation.
    fn execute(&mut self, op: Op);
}

/// `SL`, `tas` and `shfl`: one big lock.
pub struct SingleLock<R, T>(lock_api::Mutex<R, T>);

/// `RWL`: one big readers-writer lock.
pub struct ReadersWriterLock<R, T>(lock_api::RwLock<R, T>);

macro_rules! one_lock {
    ($method:ident, $raw:ident, $lock:ident, $read:ident, $write:ident) => {
        impl<R: $raw, T> $method<R, T> {
            pub fn over(structure: T) -> Self {
                Self(lock_api::$lock::new(structure))
            }
        }

        impl<R: $raw + Send + Sync + 'static, T: Measured> Method for $method<R, T> {
            type Session<'m> = &'m Self;

            fn session(&self) -> &Self {
                self
            }
        }

        impl<R: $raw + Send + Sync, T: Measured> Session for &$method<R, T> {
            #[inline]
            fn execute(&mut self, op: Op) {
                black_box(match T::operation(op) {
                    Ok(read) => self.0.$read().read(&read),
                    Err(write) => self.0.$write().write(&write),
                });
            }
        }
    };
}

one_lock!(SingleLock, RawMutex, Mutex, lock, lock);
one_lock!(ReadersWriterLock, RawRwLock, RwLock, read, write);

/// `FC` and `FC+`.
impl<T: Measured> Method for Combined<T> {
    type Session<'m> = CombinedHandle<T>;

    fn session(&self) -> CombinedHandle<T> {
        self.handle()
    }
}

/// Our own operations do not panic.
const SOUND: &str = "no operation of the benchmark panics";

impl<T: Measured> Session for CombinedHandle<T> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let response = match T::operation(op) {
            Ok(read) => self.read(&read),
            Err(write) => self.write(write),
        };
        black_box(response.expect(SOUND));
    }
}

/// `NR`.
impl<T: Measured> Method for Replicated<T> {
    type Session<'m> = Handle<T>;

    fn session(&self) -> Handle<T> {
        self.handle()
    }
}

impl<T: Measured> Session for Handle<T> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let response = match T::operation(op) {
            Ok(read) => self.read(&read),
            Err(write) => self.write(write),
        };
        black_box(response.expect(SOUND));
    }
}

/// Node replication, with the load's number of replicas.
pub fn replicated<T: Measured>(load: &Load, filled: &(dyn Fn() -> T + Sync)) -> Replicated<T> {
    let builder = Replicated::builder();
    let builder = if let Some(replicas) = load.replicas { builder.replicas(replicas) } else { builder };
    builder.build(filled)
}

/// `NR+`: node replication, where a change that may be fake is preceded by a read (paper §3.9).
pub struct ReadFirst<T: Measured>(pub Replicated<T>);

/// Access to a [`ReadFirst`].
pub struct ReadFirstSession<T: Measured>(Handle<T>);

impl<T: Measured> Method for ReadFirst<T> {
    type Session<'m> = ReadFirstSession<T>;

    fn session(&self) -> ReadFirstSession<T> {
        ReadFirstSession(self.0.handle())
    }
}

impl<T: Measured> Session for ReadFirstSession<T> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let response = match (T::operation(op), T::look_first(op)) {
            (Ok(read), _) => self.0.read(&read),
            (Err(write), None) => self.0.write(write),
            (Err(write), Some(look)) => self.0.try_read_then_write(&look, |response| {
                if T::is_fake(op, &response) { ControlFlow::Break(response) } else { ControlFlow::Continue(write) }
            }),
        };
        black_box(response.expect(SOUND));
    }
}

/// `LF`: a lock-free skip list. `QUEUE`: as a priority queue, else as a dictionary. `FREES`: what is removed is freed
/// when no thread can see it any more; else, as in the paper, nothing is freed as long as any session lasts.
pub struct LockFree<const QUEUE: bool, const FREES: bool>(FraserSkipList);

/// Access to a [`LockFree`], which holds up its freeing if there is to be none.
pub struct LockFreeSession<'m, const QUEUE: bool> {
    list: FraserSession<'m>,
    _no_freeing: Option<rcu::Guard<'m>>,
}

/// The items' keys, in an order that scatters neighbours in memory, as in `PriorityQueue` and `Dictionary`.
pub(crate) fn lock_free_keys(queue: bool, items: usize) -> impl Iterator<Item = (u64, u64)> {
    scattered(items).map(move |at| (if queue { at.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { 2 * at }, at))
}

impl<const QUEUE: bool, const FREES: bool> FromIterator<(u64, u64)> for LockFree<QUEUE, FREES> {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(items: I) -> Self {
        let list = FraserSkipList::default();
        let mut session = list.session();
        items.into_iter().for_each(|(key, value)| _ = session.insert(key, value));
        Self(list)
    }
}

impl<const QUEUE: bool, const FREES: bool> Method for LockFree<QUEUE, FREES> {
    type Session<'m> = LockFreeSession<'m, QUEUE>;

    fn session(&self) -> LockFreeSession<'_, QUEUE> {
        LockFreeSession { list: self.0.session(), _no_freeing: (!FREES).then(|| self.0.guard()) }
    }
}

impl<const QUEUE: bool> Session for LockFreeSession<'_, QUEUE> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let list = &mut self.list;
        black_box(match op {
            Op::Read(_) if QUEUE => list.first(),
            Op::Read(key) => list.get(key),
            Op::Add(key) => list.insert(key, !key).then_some(key),
            Op::Remove(_) if QUEUE => list.pop_first().map(|(key, _)| key),
            Op::Remove(key) => list.remove(key),
        });
    }
}

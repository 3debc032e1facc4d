//! The methods that make a sequential structure concurrent. Their short names are the paper's.

use core::ops::ControlFlow;

use archipelago_replicate::{Combined, CombinedHandle, Handle, Replicated};
use lock_api::{RawMutex, RawRwLock};

use super::structures::Measured;
use crate::method::{Method, Op, Session};
use crate::rivals::flat_combining::{Access, FlatCombining};

/// `SL`, `tas` and `shfl`: one big lock.
pub struct SingleLock<R, T>(lock_api::Mutex<R, T>);

/// `RWL`: one big readers-writer lock.
pub struct ReadersWriterLock<R, T>(lock_api::RwLock<R, T>);

#[cfg(test)]
impl<R: RawMutex, T> SingleLock<R, T> {
    /// Returns the structure.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

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
                T::take(match T::operation(op) {
                    Ok(read) => self.0.$read().read(&read),
                    Err(write) => self.0.$write().write(&write),
                });
            }
        }
    };
}

one_lock!(SingleLock, RawMutex, Mutex, lock, lock);
one_lock!(ReadersWriterLock, RawRwLock, RwLock, read, write);

/// The methods `FC` and `FC+`: flat combining as published.
impl<T: Measured, const PLUS: bool, const PASSES: usize> Method for FlatCombining<T, PLUS, PASSES> {
    type Session<'m> = Access<'m, T, PLUS, PASSES>;

    fn session(&self) -> Access<'_, T, PLUS, PASSES> {
        self.access()
    }
}

impl<T: Measured, const PLUS: bool, const PASSES: usize> Session for Access<'_, T, PLUS, PASSES> {
    #[inline]
    fn execute(&mut self, op: Op) {
        T::take(self.execute(T::operation(op)));
    }
}

/// The methods `combined-flat` and `combined`: this project's flat combining.
impl<T: Measured> Method for Combined<T> {
    type Session<'m> = CombinedHandle<T>;

    fn session(&self) -> CombinedHandle<T> {
        self.handle()
    }
}

/// The benchmark's own operations do not panic.
const SOUND: &str = "no operation of the benchmark panics";

impl<T: Measured> Session for CombinedHandle<T> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let response = match T::operation(op) {
            Ok(read) => self.read(&read),
            Err(write) => self.write(write),
        };
        T::take(response.expect(SOUND));
    }
}

/// The method `NR` (node replication).
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
        T::take(response.expect(SOUND));
    }
}

/// The method `NR+`: node replication that reads before a change which may be fake, that is, may have nothing to change
/// (paper §3.9).
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
        T::take(response.expect(SOUND));
    }
}

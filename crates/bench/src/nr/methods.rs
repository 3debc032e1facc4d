//! The methods that make a sequential structure concurrent, behind one trait; and the lock-free skip list beside them.

use archipelago_replicate::{Combined, CombinedHandle, Handle, Replicated};

use super::structures::{Op, Structure};

/// A method with a structure in it.
pub trait Method: Sync {
    /// One thread's access.
    type Session<'m>: Session + Send
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

/// `SL`: one big lock.
pub struct SingleLock<T>(parking_lot::Mutex<T>);

impl<T: Structure> SingleLock<T> {
    pub fn new(items: usize) -> Self {
        Self(parking_lot::Mutex::new(T::filled(items)))
    }
}

impl<T: Structure> Method for SingleLock<T> {
    type Session<'m> = &'m Self;

    fn session(&self) -> &Self {
        self
    }
}

impl<T: Structure> Session for &SingleLock<T> {
    #[inline]
    fn execute(&mut self, op: Op) {
        std::hint::black_box(match T::operation(op) {
            Ok(read) => self.0.lock().read(&read),
            Err(write) => self.0.lock().write(&write),
        });
    }
}

/// `RWL`: one big readers-writer lock.
pub struct ReadersWriterLock<T>(parking_lot::RwLock<T>);

impl<T: Structure> ReadersWriterLock<T> {
    pub fn new(items: usize) -> Self {
        Self(parking_lot::RwLock::new(T::filled(items)))
    }
}

impl<T: Structure> Method for ReadersWriterLock<T> {
    type Session<'m> = &'m Self;

    fn session(&self) -> &Self {
        self
    }
}

impl<T: Structure> Session for &ReadersWriterLock<T> {
    #[inline]
    fn execute(&mut self, op: Op) {
        std::hint::black_box(match T::operation(op) {
            Ok(read) => self.0.read().read(&read),
            Err(write) => self.0.write().write(&write),
        });
    }
}

/// `FC` and `FC+`.
impl<T: Structure> Method for Combined<T> {
    type Session<'m> = CombinedHandle<T>;

    fn session(&self) -> CombinedHandle<T> {
        self.handle()
    }
}

/// Our own operations do not panic.
const SOUND: &str = "no operation of the benchmark panics";

impl<T: Structure> Session for CombinedHandle<T> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let response = match T::operation(op) {
            Ok(read) => self.read(&read),
            Err(write) => self.write(write),
        };
        std::hint::black_box(response.expect(SOUND));
    }
}

/// `NR`.
impl<T: Structure> Method for Replicated<T> {
    type Session<'m> = Handle<T>;

    fn session(&self) -> Handle<T> {
        self.handle()
    }
}

impl<T: Structure> Session for Handle<T> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let response = match T::operation(op) {
            Ok(read) => self.read(&read),
            Err(write) => self.write(write),
        };
        std::hint::black_box(response.expect(SOUND));
    }
}

/// `LF`: a lock-free skip list, with its memory reclaimed. `QUEUE`: as a priority queue, else as a dictionary.
#[cfg(feature = "peers")]
pub struct LockFree<const QUEUE: bool>(crossbeam_skiplist::SkipMap<u64, u64>);

#[cfg(feature = "peers")]
impl<const QUEUE: bool> LockFree<QUEUE> {
    pub fn new(items: usize) -> Self {
        let map = crossbeam_skiplist::SkipMap::new();
        // The very keys of `PriorityQueue` and `Dictionary` do not matter, their spread does.
        (0..items as u64)
            .for_each(|at| drop(map.insert(if QUEUE { at.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { 2 * at }, at)));
        Self(map)
    }
}

#[cfg(feature = "peers")]
impl<const QUEUE: bool> Method for LockFree<QUEUE> {
    type Session<'m> = &'m Self;

    fn session(&self) -> &Self {
        self
    }
}

#[cfg(feature = "peers")]
impl<const QUEUE: bool> Session for &LockFree<QUEUE> {
    #[inline]
    fn execute(&mut self, op: Op) {
        let map = &self.0;
        std::hint::black_box(match op {
            Op::Read(_) if QUEUE => map.front().map(|entry| *entry.key()),
            Op::Read(key) => map.get(&key).map(|entry| *entry.value()),
            Op::Add(key) => Some(*map.insert(key, !key).value()),
            Op::Remove(_) if QUEUE => map.pop_front().map(|entry| *entry.key()),
            Op::Remove(key) => map.remove(&key).map(|entry| *entry.value()),
        });
    }
}

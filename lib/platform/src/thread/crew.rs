//! Crews: the threads that a structure has started for itself and that end with it.

use core::any::Any;

use super::{JoinHandle, current};
use crate::fork::process;

/// Threads that are joined when their structure ends, in the process that started them. In the child of a `fork` these
/// threads do not exist, and joining them would never end.
#[derive(Debug, Default)]
pub struct Crew {
    /// The process that started the threads.
    process: u32,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Adds a thread. It was started by this process, as were all others.
    pub fn push(&mut self, thread: JoinHandle<()>) {
        if self.threads.is_empty() {
            self.process = process();
        }
        debug_assert_eq!(self.process, process());
        self.threads.push(thread);
    }

    /// Returns whether the threads exist in this process. In a child of the process that started them, they do not.
    pub fn is_here(&self) -> bool {
        !self.threads.is_empty() && self.process == process()
    }

    /// Returns the threads.
    pub fn threads(&self) -> impl Iterator<Item = &JoinHandle<()>> {
        self.threads.iter()
    }

    /// Waits for all threads that exist in this process, except the calling thread. (A thread of the crew may itself
    /// drop the last reference to the structure.) The caller has told the threads to end. Returns the payload of the
    /// first panic, if any.
    pub fn join(&mut self) -> Option<Box<dyn Any + Send>> {
        let is_here = self.is_here();
        let threads = core::mem::take(&mut self.threads);
        if !is_here {
            // These threads can be neither joined nor detached, because they do not exist in this process.
            core::mem::forget(threads);
            return None;
        }
        let me = current().id();
        let others = threads.into_iter().filter(|thread| thread.thread().id() != me);
        // All threads are joined before the first panic is returned.
        others.map(|thread| thread.join().err()).fold(None, Option::or)
    }
}

#[cfg(all(test, not(any(loom, archipelago_sim))))]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn all_are_waited_for_and_the_first_panic_comes_back() {
        static ENDED: AtomicU32 = AtomicU32::new(0);
        let mut crew = Crew::default();
        for number in 0..4 {
            crew.push(std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(5 * number));
                ENDED.fetch_add(1, Ordering::Relaxed);
                if number % 2 == 1 {
                    std::panic::resume_unwind(Box::new(number));
                }
            }));
        }
        assert_eq!(crew.join().and_then(|payload| payload.downcast::<u64>().ok()), Some(Box::new(1)));
        assert_eq!((ENDED.load(Ordering::Relaxed), crew.threads().count(), crew.is_here()), (4, 0, false));
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        static CREW: Mutex<Option<Crew>> = Mutex::new(None);
        let (started, told) = std::sync::mpsc::channel();
        let (ended, said) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            told.recv().unwrap();
            let mut crew = CREW.lock().unwrap().take().unwrap();
            ended.send(crew.join().is_none()).unwrap();
        });
        CREW.lock().unwrap().get_or_insert_default().push(thread);
        started.send(()).unwrap();
        assert!(said.recv().unwrap());
    }
}

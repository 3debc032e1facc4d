//! Long reads. They run in threads of their own, so that an event loop can process its other clients meanwhile.
//!
//! A loop first sends a read to its replica with the flag [`wish::SHORT`](crate::operation::wish::SHORT). If the read
//! would take long ([`cost`](crate::family::cost)), the replica does not carry it out, and the loop passes the call to
//! these threads. (Reads of clients that track keys are the exception: the loop carries them out, however long they
//! take.) The client's next request is processed after the answer. So there are never more calls here than clients.
//!
//! A replica applies no changes while it is read. The threads read the last replica. So with one replica, changes wait
//! for a long read. With more than one replica (`--replicas`), the other replicas apply changes and serve short reads
//! during a long read.

use std::collections::VecDeque;

use archipelago_platform::sync::{Condvar, Mutex};
use archipelago_platform::time::Instant;

use super::shared::{Letter, Shared, Verdict, lock};
use crate::blocked::Owner;
use crate::operation::{Call, Read};
use crate::reply::{Fault, Reply};

/// The queue of calls, and whether the queue is closed.
#[derive(Default)]
pub struct Aside {
    calls: Mutex<(VecDeque<(Owner, Call)>, bool)>,
    work: Condvar,
}

impl Aside {
    /// Adds a call to the queue.
    pub fn submit(&self, owner: Owner, call: Call) {
        lock(&self.calls).0.push_back((owner, call));
        self.work.notify_one();
    }

    /// Closes the queue.
    pub fn end(&self) {
        lock(&self.calls).1 = true;
        self.work.notify_all();
    }

    fn next(&self) -> Option<(Owner, Call)> {
        let mut calls = lock(&self.calls);
        loop {
            match calls.0.pop_front() {
                None if !calls.1 => calls = self.work.wait(calls).expect("nothing panics while it is locked"),
                next => return next,
            }
        }
    }
}

impl Shared {
    /// The main function of a thread for long reads.
    pub fn read_aside(&self) {
        let replicas = self.store.db();
        let mut handle = replicas.handle_on(replicas.replicas() - 1);
        while let Some((owner, call)) = self.aside.next() {
            let read = Read::Call(call);
            let began = Instant::now();
            let outcome = handle
                .read(&read)
                .unwrap_or_else(|poisoned| Reply::Error(Fault::made(format!("ERR {poisoned}"))).into());
            let took = began.elapsed();
            let Read::Call(call) = read;
            self.post(owner.at, Letter::Answers(vec![(owner, Verdict::Read(Box::new((call, outcome, took))))]));
        }
    }
}

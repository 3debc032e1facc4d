//! Long reads, carried out by threads of their own: neither their loop's other clients nor other loops wait for them.
//!
//! A loop asks the replica for a read that is not to take long ([`wish::SHORT`](crate::operation::wish::SHORT)). If it would
//! ([`cost`](crate::family::cost)), the call goes to these threads, and its client's next request is taken after the answer. So there are never
//! more calls here than clients.
//!
//! A replica's changes wait for its readers. The threads read the last replica: with more than one (`--replicas`), changes and
//! short reads of the others go on beside a long read.

use std::collections::VecDeque;

use archipelago_platform::sync::{Condvar, Mutex};
use archipelago_platform::time::Instant;

use super::shared::{Letter, Shared, Verdict, lock};
use crate::blocked::Owner;
use crate::operation::{Call, Read};
use crate::reply::{Fault, Reply};

/// Calls that wait for a thread, and whether no more come.
#[derive(Default)]
pub struct Aside {
    calls: Mutex<(VecDeque<(Owner, Call)>, bool)>,
    work: Condvar,
}

impl Aside {
    /// Hands a call over.
    pub fn submit(&self, owner: Owner, call: Call) {
        lock(&self.calls).0.push_back((owner, call));
        self.work.notify_one();
    }

    /// No more calls come.
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
    /// The life of a thread for long reads.
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

//! Operations that are called inside an operation on the same structure. The inner operation would wait for the outer
//! one forever. Instead, builds with debug assertions panic, for every combination of operations.
#![cfg(all(debug_assertions, not(any(loom, archipelago_sim))))]

use core::future::Future;
use core::task::{Context, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use archipelago_check::watchdog::{USUAL, watchdog};
use archipelago_replicate::{Closures, Combined, FromFns, Handle, Replicated};

type Sum = Closures<u64>;

fn new() -> Replicated<Sum> {
    Replicated::builder().replicas(2).build(|| Closures::new(0))
}

fn check_message(text: &str) {
    assert!(text.contains("from inside an operation on the same structure"), "{text}");
}

/// Asserts that `call` panics with the message.
fn panics(call: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("it panics");
    check_message(panic.downcast_ref::<&str>().expect("a plain text"));
}

fn poll<F: Future>(future: F) {
    let mut future = Box::pin(future);
    let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

type Operation<'s> = (&'static str, Box<dyn FnOnce() + 's>);

/// Returns all kinds of operations.
fn operations(structure: &Replicated<Sum>) -> [Operation<'_>; 8] {
    let handle = || structure.handle_on(1);
    let add = |sum: &mut u64| *sum += 1;
    let writes = move |mut handle: Handle<Sum>| drop(handle.write_many(Vec::new()).unwrap());
    [
        ("update", Box::new(move || handle().update(add).unwrap())),
        ("write_many", Box::new(move || writes(handle()))),
        ("read", Box::new(move || drop(handle().read(&()).unwrap()))),
        ("view", Box::new(move || handle().view(|_| ()).unwrap())),
        ("inspect", Box::new(move || structure.inspect(0, |_| ()).unwrap())),
        ("snapshot", Box::new(move || assert_eq!(structure.replica_snapshot(0).unwrap().state(), &1))),
        ("sync", Box::new(move || structure.sync().unwrap())),
        ("read_async", Box::new(move || poll(handle().read_async(&())))),
    ]
}

/// A panic in a read affects only the reader.
#[test]
fn inside_a_look() {
    watchdog(USUAL, |notes| {
        let structure = new();
        for (name, operation) in operations(&structure) {
            notes.note(name);
            panics(|| structure.inspect(1, |_| operation()).unwrap());
        }
        let mut outer = structure.handle_on(0);
        for (name, operation) in operations(&structure) {
            notes.note(name);
            panics(|| outer.view(|_| operation()).unwrap());
        }
        // The panic leaves no state behind, and another structure may be used inside an operation.
        let other = new();
        operations(&other).into_iter().for_each(|(_, operation)| outer.view(|_| operation()).unwrap());
        operations(&structure).into_iter().for_each(|(_, operation)| operation());
        assert_eq!(outer.update(|sum| *sum).unwrap(), 1);
    });
}

/// A panic inside a change poisons the structure.
#[test]
fn inside_a_change() {
    watchdog(USUAL, |notes| {
        for at in 0..operations(&new()).len() {
            let structure = Arc::new(new());
            let inner = Mutex::new(structure.clone());
            let call = move || {
                let structure = inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let (_, operation) = operations(&structure).into_iter().nth(at).unwrap();
                operation();
            };
            notes.note(format!("operation {at}"));
            let error = structure.handle_on(1).update(move |_| call()).unwrap_err();
            check_message(error.message());
        }
    });
}

/// An operation's destructor runs under the recycler's lock. A panic there poisons the structure.
#[test]
fn inside_a_destructor() {
    struct Calls<F: FnMut()>(Mutex<F>);

    impl<F: FnMut()> Drop for Calls<F> {
        fn drop(&mut self) {
            self.0.get_mut().unwrap()();
        }
    }

    watchdog(USUAL, |notes| {
        for at in 0..operations(&new()).len() {
            let structure = Arc::new(new());
            let inner = structure.clone();
            let calls = Calls(Mutex::new(move || {
                let (_, operation) = operations(&inner).into_iter().nth(at).unwrap();
                operation();
            }));
            notes.note(format!("operation {at}"));
            structure.handle_on(1).update(move |_| assert!(!calls.0.is_poisoned())).unwrap();
            check_message(structure.sync().unwrap_err().message());
        }
    });
}

#[test]
fn inside_combined() {
    type Inner = Arc<Mutex<Option<Box<dyn FnMut() + Send>>>>;
    let call = |inner: &Inner| {
        let mut inner = inner.try_lock().unwrap_or_else(|_| panic!("called once at a time"));
        inner.as_mut().into_iter().for_each(|call| call());
    };
    watchdog(USUAL, |_| {
        for (flat, writes) in [(false, false), (false, true), (true, false), (true, true)] {
            let inner = Inner::default();
            let read = move |inner: &Inner, (): &()| call(inner);
            let data = FromFns::new(inner.clone(), read, move |inner: &mut Inner, (): &()| call(inner));
            let combined = if flat { Combined::flat(data) } else { Combined::new(data) };
            let (mut outer, mut again) = (combined.handle(), combined.handle());
            let answer = move || if writes { again.write(()).unwrap() } else { again.read(&()).unwrap() };
            *inner.lock().unwrap() = Some(Box::new(answer));
            if !flat {
                panics(|| outer.read(&()).unwrap());
                inner.clear_poison();
            }
            check_message(outer.write(()).unwrap_err().message());
            inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    });
}

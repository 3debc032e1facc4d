//! Waiting for other threads: sleeping, parking, and the queues from which locks are built.

use crate::arena;
use crate::engine::switch::{self, engine};
use crate::engine::thread::Key;

use super::{htm, with};

/// A destructor that waits with a time-out, after the end of a run, lets other threads take turns. Each turn advances
/// its clock by 1/`UNWINDING_TURNS` of the remaining time, and a little more.
const UNWINDING_TURNS: u64 = 16;

/// Sleeps for `ns` virtual nanoseconds.
pub fn sleep(ns: u64) {
    let Some(engine) = engine() else { return std::thread::sleep(std::time::Duration::from_nanos(ns)) };
    if with(engine, |engine| engine.tx_forbids()) {
        return htm::leave(engine);
    }
    with(engine, |engine| {
        let time = ns.saturating_mul(1000);
        if engine.unwinding {
            engine.pass(time);
        } else {
            let end = engine.me().clock.saturating_add(time);
            engine.sleep_until(end);
        }
    });
    switch::wait(engine);
}

/// Waits for the thread's token, as `std::thread::park` does; [`unpark`] gives the token. Returns at once outside of a
/// run.
pub fn park() {
    park_for(None);
}

/// Waits like [`park`], for at most `ns` virtual nanoseconds.
pub fn park_timeout(ns: u64) {
    park_for(Some(ns.saturating_mul(1000)));
}

fn park_for(time: Option<u64>) {
    let Some(engine) = engine() else { return };
    if with(engine, |engine| engine.tx_forbids()) {
        return htm::leave(engine);
    }
    if with(engine, |engine| engine.unwinding || engine.park(time)) {
        switch::wait(engine);
    }
}

/// Gives the thread with this id its token. Aborts the caller's transaction first, since the call may be a system call.
pub fn unpark(id: usize) {
    let Some(engine) = engine() else { return };
    if with(engine, |engine| engine.tx_forbids()) {
        return htm::leave(engine);
    }
    with(engine, |engine| engine.unpark(id));
}

/// Waits for wake-ups of `key` while `condition` holds. The condition is evaluated before the first wait and after
/// every wake-up, atomically with the beginning of the wait, so no [`wake`] is lost. The condition may read the
/// program's words plainly, but must not call this module. The time-out is in virtual nanoseconds. Returns `true` if
/// the condition no longer holds, and `false` after the time-out. In a transaction, a wait aborts the transaction and
/// returns `true` at once.
pub fn wait_while(key: usize, timeout_ns: Option<u64>, condition: impl Fn() -> bool) -> bool {
    wait_for(Key::User(key), timeout_ns, condition)
}

pub(super) fn wait_for(key: Key, timeout_ns: Option<u64>, condition: impl Fn() -> bool) -> bool {
    let Some(engine) = engine() else {
        let end = timeout_ns.map(|ns| std::time::Instant::now() + std::time::Duration::from_nanos(ns));
        while condition() {
            if end.is_some_and(|end| std::time::Instant::now() >= end) {
                return false;
            }
            std::thread::yield_now();
        }
        return true;
    };
    let end = with(engine, |engine| timeout_ns.map(|ns| engine.me().clock.saturating_add(ns.saturating_mul(1000))));
    // The evaluation is a part of falling asleep and waking up, whose costs the model charges; it is not an access of
    // the program.
    while arena::apart(&condition) {
        if with(engine, |engine| engine.tx_forbids()) {
            htm::leave(engine);
            return true;
        }
        let late = with(engine, |engine| {
            let left = end.map(|end| end.saturating_sub(engine.me().clock));
            if left == Some(0) {
                return true;
            }
            if !engine.unwinding {
                engine.wait_for(key, left);
            } else if let Some(left) = left {
                // Other unwinding threads may end the wait, so they get some turns before the time-out.
                engine.pass(left / UNWINDING_TURNS + 1_000);
            }
            false
        });
        if late {
            return false;
        }
        switch::wait(engine);
    }
    true
}

/// Wakes up to `count` threads that wait for `key`, in the order of their arrival. Returns how many it woke. If any
/// thread waits for `key`, the call is a system call. In a transaction such a call aborts the transaction, wakes no
/// thread and returns 0.
pub fn wake(key: usize, count: usize) -> usize {
    let Some(engine) = engine() else { return 0 };
    if with(engine, |engine| engine.is_awaited(Key::User(key)) && engine.tx_forbids()) {
        htm::leave(engine);
        return 0;
    }
    with(engine, |engine| {
        let at = engine.me().clock + engine.costs.call;
        let woken = engine.wake_key(Key::User(key), count, at);
        if woken > 0 {
            engine.advance(engine.costs.call);
        }
        woken
    })
}

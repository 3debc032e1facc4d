//! What `archipelago-platform` calls, under `--cfg archipelago_sim`, from inside a simulated thread.
//!
//! # Contract
//! - *Accesses.* Every access to a word that two threads may touch goes through [`load`], [`store`] or [`update`] with
//!   the word's address and size. The closure does the real access, at once and without calling back into this module;
//!   it runs in the instant of virtual time in which the access takes effect. A word doesn't cross a 64-byte line.
//!   `SeqCst` stores are [`update`]s. The execution is sequentially consistent whatever orderings the program names.
//! - *Waiting.* Every wait loop calls [`spin_hint`] in each turn. Nothing may block the OS thread: mutexes, condition
//!   variables, joins and once-cells are built from [`wait_while`] and [`wake`], or [`park`] and [`unpark`].
//! - *Outside of a run* (no simulated thread runs on this OS thread) every function does the plain thing or nothing:
//!   the closure of an access is called, [`spin_hint`] is the processor's, [`now`] is 0, [`current`] is `None`,
//!   [`wait_while`] spins on its condition, [`spawn`] hands the body back. Structures may therefore be made and dropped
//!   anywhere. But a structure belongs to one run at a time, and one with background threads must be made and dropped
//!   inside of it: in the set-up and the tear-down of [`run_with`](crate::run_with).
//! - *Ends.* When a run is over, its unfinished threads unwind: any function here may leave by a panic that no hook
//!   reports. Destructors that run then still see working atomics, without virtual time; they may wait for each other.
//! - *Transactions.* Memory written in an open transaction must not be freed before it ends. Inside of one the program
//!   allocates nothing and drops nothing that frees: an abort undoes words, not calls. It also undoes plain writes that
//!   were announced ([`touch_mut`]), and, of [`htm::transaction`], those to the caller's own stack: captured locals.
//! - *Keys.* [`wait_while`], [`local_get`] take an address of the program's own as the key: of the mutex's word, of
//!   the thread-local's static.

use std::sync::Arc;

use crate::arena;
use crate::engine::switch::{self, engine, suspend, unwind};
use crate::engine::thread::{Key, Local, Role, Status};
use crate::engine::tx::Old;
use crate::engine::{Engine, Start, Step};
use crate::machine::Machine;
use crate::memory::{Kind, NONE};
use crate::report::Stats;

pub mod htm;

/// Whether a simulated thread is calling.
#[inline]
pub fn active() -> bool {
    engine().is_some()
}

/// Runs `f` on the engine. It must not suspend.
#[inline]
fn with<R>(engine: *mut Engine, f: impl FnOnce(&mut Engine) -> R) -> R {
    // SAFETY: `engine` comes from `engine()`, so it is valid; `f` gets the only reference, since it neither suspends
    // nor calls back into this module.
    arena::apart(|| f(unsafe { &mut *engine }))
}

/// Waits for the turn of an access: its line, or `None` if it must leave no trace.
#[inline]
fn begin(engine: *mut Engine, addr: usize, size: usize, kind: Kind) -> Option<u32> {
    loop {
        match with(engine, |engine| engine.access(addr, size, kind)) {
            Step::Go(line) => {
                with(engine, |engine| engine.announce(addr, kind));
                return Some(line);
            }
            Step::Suspend => suspend(engine),
            Step::Doomed => {
                htm::leave(engine);
                return None;
            }
            Step::Unwind => unwind(),
        }
    }
}

/// Loads the `size` bytes at `addr`: `op` does it.
#[inline]
pub fn load<R>(addr: *const (), size: usize, op: impl FnOnce() -> R) -> R {
    if let Some(engine) = engine() {
        begin(engine, addr.addr(), size, Kind::Load);
    }
    op()
}

/// Stores to the `size` bytes at `addr`, without waiting for it: `op` does it and says whether the bytes changed.
#[inline]
pub fn store(addr: *const (), size: usize, op: impl FnOnce() -> bool) {
    write(addr, size, Kind::Store, || ((), op()));
}

/// Reads and writes the `size` bytes at `addr` in one step: `op` does it, and says what it found and whether the bytes
/// changed. Failing compare-and-exchanges and sequentially consistent stores belong here.
#[inline]
pub fn update<R>(addr: *const (), size: usize, op: impl FnOnce() -> (R, bool)) -> R {
    write(addr, size, Kind::Rmw, op)
}

#[inline]
fn write<R>(addr: *const (), size: usize, kind: Kind, op: impl FnOnce() -> (R, bool)) -> R {
    let Some(engine) = engine() else { return op().0 };
    match begin(engine, addr.addr(), size, kind) {
        Some(line) => {
            let (result, changed) = op();
            if changed && line != NONE {
                with(engine, |engine| engine.changed(line));
            }
            result
        }
        None => {
            // SAFETY: the caller is about to write these bytes, and all simulated threads share this OS thread.
            let old = unsafe { Old::save(addr.addr(), size) };
            let (result, _) = op();
            // SAFETY: as above; `op` has just written there.
            unsafe { old.restore() };
            result
        }
    }
}

/// A fence. Only a sequentially consistent one costs anything: it waits for the store buffer.
pub fn fence(sequentially_consistent: bool) {
    let Some(engine) = engine().filter(|_| sequentially_consistent) else { return };
    with(engine, |engine| {
        engine.drain_stores();
        engine.advance(engine.costs.fence);
    });
}

/// One turn of a wait loop. If the turn only loaded, the thread waits until a line that it loaded changes; a bounded
/// number of virtual microseconds at most, so that loops which count turns or look at a clock go on.
pub fn spin_hint() {
    let Some(engine) = engine() else { return core::hint::spin_loop() };
    match with(engine, |engine| engine.spin()) {
        Step::Doomed => htm::leave(engine),
        Step::Unwind => unwind(),
        Step::Suspend | Step::Go(_) => switch::wait(engine),
    }
}

/// `turns` turns of a loop that only lets time pass, and waits for nothing: what a back-off does.
pub fn pause(turns: u64) {
    if let Some(engine) = engine() {
        with(engine, |engine| {
            engine.tx_forbids();
            engine.advance(turns * engine.costs.pause);
        });
    }
}

/// Lets other threads run: costs a system call, and under PCT makes the thread the last to be chosen.
pub fn yield_now() {
    let Some(engine) = engine() else { return std::thread::yield_now() };
    if with(engine, |engine| engine.tx_forbids()) {
        return htm::leave(engine);
    }
    with(engine, |engine| {
        engine.advance(engine.costs.call);
        engine.yielded();
    });
    switch::wait(engine);
}

/// Announces plain reads of `len` bytes at `addr` that nobody changes: costs one load per line, which overlap.
pub fn touch(addr: *const (), len: usize) {
    each_line(addr, len, Kind::Load);
}

/// Announces plain writes of `len` bytes at `addr` that nobody else touches now: costs one store per line.
pub fn touch_mut(addr: *const (), len: usize) {
    each_line(addr, len, Kind::Store);
}

/// The allocator hands a block out, or takes one back: charges the writes to it, where virtual time is measured.
pub(crate) fn allocated(addr: *const (), len: usize) {
    let Some(engine) = engine() else { return };
    if !addr.is_null() && with(engine, |engine| engine.charges_allocation()) {
        touch_mut(addr, len);
    }
}

fn each_line(addr: *const (), len: usize, kind: Kind) {
    let Some(engine) = engine() else { return };
    let (first, end) = (addr.addr(), addr.addr() + len.max(1));
    let (mut at, mut doomed) = (first, false);
    while at < end {
        let next = ((at | 63) + 1).min(end);
        doomed |= begin(engine, at, next - at, kind).is_none();
        at = next;
    }
    if kind == Kind::Store {
        // A thread that fills memory is not stalled, however long it takes.
        with(engine, |engine| engine.progress(engine.current));
    }
    if doomed && kind == Kind::Store {
        with(engine, |engine| engine.tx_stray(first, end - first));
    }
}

/// The thread's own work of `ns` nanoseconds: longer while the core's other hardware thread works too.
pub fn work(ns: u64) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.advance(ns * 1000));
    }
}

/// Starts fetching the line of `addr` for reading, without waiting.
pub fn prefetch(addr: *const ()) {
    let Some(engine) = engine() else { return };
    while matches!(with(engine, |engine| engine.prefetch(addr.addr())), Step::Suspend) {
        switch::wait(engine);
    }
}

/// Says that the memory from `addr` has its home on `node`, whoever touches it first. Whole pages of 4 KiB.
pub fn set_home(addr: *const (), len: usize, node: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| {
            let home = node % engine.machine.sockets;
            engine.memory.place(addr.addr(), len, Some(home));
        });
    }
}

/// Says that the memory goes back to the operating system: its next first touch decides about its home.
pub fn release(addr: *const (), len: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.place(addr.addr(), len, None));
    }
}

/// Says that there is no memory behind these pages yet (4 KiB each; those that were touched have theirs): whoever
/// touches one first gets it, but a transaction that does so aborts, and the page stays as it is.
pub fn unmapped(addr: *const (), len: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.unmap(addr.addr(), len));
    }
}

/// Puts memory into the third-level cache of `node`, unchanged: what a long warm-up would do.
pub fn warm(addr: *const (), len: usize, node: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.warm(addr.addr(), len, node % engine.machine.sockets));
    }
}

/// As [`warm`], for everything that has been touched so far.
pub fn warm_all(node: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.warm_all(node % engine.machine.sockets));
    }
}

/// Puts everything that has been touched so far into the third-level cache of its home node, unchanged: what threads of these
/// nodes leave there that have just filled a structure.
pub fn warm_homes() {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.memory.warm_homes());
    }
}

/// Names memory: [`Report::hot_lines`](crate::Report::hot_lines) says the name of the last call that covers a line.
pub fn label(addr: *const (), len: usize, name: &'static str) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.labels.push((addr.addr(), addr.addr() + len, name)));
    }
}

/// While it lives, the calling thread is in a part of the program.
#[derive(Debug)]
pub struct Part {
    engine: *mut Engine,
    before: u8,
}

/// Enters a named part of the program: [`Stats::remote_in`] counts what it does apart from the rest. Parts within parts
/// count for themselves. `None` outside of a run.
///
/// # Panics
/// If there are more names than [`PARTS`](crate::PARTS) allows.
#[inline]
pub fn part(name: &'static str) -> Option<Part> {
    engine().map(|engine| Part { engine, before: with(engine, |engine| engine.enter_part(name)) })
}

impl Drop for Part {
    fn drop(&mut self) {
        with(self.engine, |engine| engine.me().part = self.before);
    }
}

/// The node that the memory of `addr` has its home on, if it was touched.
pub fn home_of(addr: *const ()) -> Option<usize> {
    engine().map(|engine| {
        with(engine, |engine| {
            let socket = engine.me().socket;
            let line = engine.memory.line(addr.addr(), socket);
            engine.memory.home(line)
        })
    })
}

/// Virtual nanoseconds since the start of the run, on a clock without skew. Costs about a first-level hit, so that a
/// loop that only looks at the time ends. 0 outside of a run.
pub fn now() -> u64 {
    now_ps() / 1000
}

/// As [`now`], in picoseconds.
pub fn now_ps() -> u64 {
    let Some(engine) = engine() else { return 0 };
    read_clock(engine, with(engine, |engine| engine.costs.l1))
}

/// The processor's clock as the thread's socket shows it: virtual picoseconds plus the socket's constant skew
/// ([`Config::clock_skew_ns`](crate::Config::clock_skew_ns)), never below 0. Costs what reading the clock costs.
pub fn clock_ps() -> u64 {
    let Some(engine) = engine() else { return 0 };
    let now = read_clock(engine, with(engine, |engine| engine.costs.clock));
    with(engine, |engine| {
        let socket = engine.me().socket;
        let skew = engine.config.clock_skew_ns.get(socket).copied().unwrap_or(0);
        now.saturating_add_signed(skew * 1000)
    })
}

/// By how much [`clock_ps`] may differ between two sockets at one instant, in picoseconds. 0 outside of a run.
pub fn clock_uncertainty_ps() -> u64 {
    let Some(engine) = engine() else { return 0 };
    with(engine, |engine| {
        let skews =
            (0..engine.machine.sockets).map(|socket| engine.config.clock_skew_ns.get(socket).copied().unwrap_or(0));
        let (least, most) = skews.fold((i64::MAX, i64::MIN), |(least, most), skew| (least.min(skew), most.max(skew)));
        most.abs_diff(least) * 1000
    })
}

fn read_clock(engine: *mut Engine, cost: u64) -> u64 {
    if with(engine, |engine| engine.unwinding) {
        return with(engine, |engine| engine.me().clock);
    }
    with(engine, |engine| engine.advance(cost));
    // In turn, so that a time stamp lies between those of the accesses before and after it.
    while !with(engine, |engine| engine.step()) {
        switch::wait(engine);
    }
    with(engine, |engine| engine.me().clock)
}

/// A number that is greater than every one drawn before in this run: orders the events of a recorded history at no
/// virtual cost. 0 outside of a run.
pub fn stamp() -> u64 {
    engine().map_or(0, |engine| {
        with(engine, |engine| {
            engine.stamp += 1;
            engine.stamp
        })
    })
}

/// A random number of the thread's own stream, decided by the seed. 0 outside of a run.
pub fn random() -> u64 {
    engine().map_or(0, |engine| with(engine, |engine| crate::rng::next(&mut engine.me().rng)))
}

/// Who is calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Number of the thread in this run, never used again.
    pub id: usize,
    /// Dense index: client `i` has `i`, any other thread the smallest that no live thread had when it started.
    pub slot: usize,
    /// The CPU it is on.
    pub cpu: usize,
    /// The NUMA node it is on.
    pub node: usize,
    /// Whether it is a background thread.
    pub daemon: bool,
}

/// The calling thread; `None` outside of a run.
#[inline]
pub fn current() -> Option<Current> {
    engine().map(|engine| {
        with(engine, |engine| {
            let id = engine.current;
            let thread = engine.me();
            Current { id, slot: thread.slot, cpu: thread.cpu, node: thread.socket, daemon: thread.role == Role::Daemon }
        })
    })
}

/// One more than the largest [`Current::slot`] of this run so far.
pub fn slots_high_water() -> usize {
    engine().map_or(0, |engine| with(engine, |engine| engine.slots_high_water))
}

/// A number that no other run of this process has; `None` outside of a run.
pub fn run_number() -> Option<u64> {
    engine().map(|engine| with(engine, |engine| engine.number))
}

/// Whether the run is over and its unfinished threads are being unwound.
pub fn ending() -> bool {
    engine().is_some_and(|engine| with(engine, |engine| engine.unwinding))
}

/// Runs `f` in no time: what it touches first has its home on the caller's node, and nothing else changes. For setting
/// up a structure in a thread of its own. `f` must not wait for another thread.
pub fn untimed<R>(f: impl FnOnce() -> R) -> R {
    struct Back(Option<(*mut Engine, bool)>);
    impl Drop for Back {
        fn drop(&mut self) {
            if let Some((engine, before)) = self.0 {
                switch(engine, before);
            }
        }
    }
    fn switch(engine: *mut Engine, untimed: bool) -> bool {
        with(engine, |engine| {
            let before = std::mem::replace(&mut engine.me().untimed, untimed);
            switch::watched(engine, engine.current);
            before
        })
    }
    let _back = Back(engine().map(|engine| (engine, switch(engine, true))));
    f()
}

/// Runs `f` as if outside of the run: untimed, with memory of the system's. For what outlives the run. `f` must not
/// wait for another thread.
pub fn outside<R>(f: impl FnOnce() -> R) -> R {
    let _back = switch::Outside::step();
    f()
}

/// The machine of this run.
pub fn machine() -> Option<Arc<Machine>> {
    engine().map(|engine| with(engine, |engine| engine.machine.clone()))
}

/// The counters of the machine so far.
pub fn stats() -> Option<Stats> {
    engine().map(|engine| with(engine, |engine| engine.memory.stats))
}

/// Moves the calling thread to a CPU. False: the machine has no such CPU.
pub fn pin(cpu: usize) -> bool {
    let Some(engine) = engine() else { return false };
    with(engine, |engine| {
        let exists = cpu < engine.machine.cpus();
        if exists {
            engine.migrate(cpu);
        }
        exists
    })
}

/// Moves the calling thread to the CPU of a node that the fewest threads are on. False: there is no such node.
pub fn bind(node: usize) -> bool {
    let Some(engine) = engine() else { return false };
    with(engine, |engine| {
        let exists = node < engine.machine.sockets;
        if exists && engine.me().socket != node {
            let cpu = engine.idle_cpu(node);
            engine.migrate(cpu);
        }
        exists
    })
}

/// Starts a thread on `node` (the caller's, if `None`), on the CPU there that the fewest threads are on. A `daemon`
/// doesn't keep the run from ending, and is unwound when it ends. Returns its [`Current::id`]; outside of a run, the
/// body.
pub fn spawn(node: Option<usize>, daemon: bool, body: Box<dyn FnOnce()>) -> Result<usize, Box<dyn FnOnce()>> {
    let Some(engine) = engine() else { return Err(body) };
    if with(engine, |engine| engine.unwinding) {
        return Err(body);
    }
    let start = with(engine, |engine| {
        engine.tx_forbids();
        engine.advance(engine.costs.call);
        let node = node.unwrap_or(engine.me().socket) % engine.machine.sockets;
        let clock = engine.me().clock + engine.costs.call;
        let role = if daemon { Role::Daemon } else { Role::Client };
        engine.clients_left += usize::from(!daemon);
        Start { role, cpu: engine.idle_cpu(node), clock, body }
    });
    Ok(switch::spawn(engine, start, None))
}

/// Starts a background thread: [`spawn`] of a daemon.
pub fn spawn_background(node: Option<usize>, body: Box<dyn FnOnce()>) -> Result<usize, Box<dyn FnOnce()>> {
    spawn(node, true, body)
}

/// Whether the thread with this id has ended, its thread-locals dropped.
pub fn is_finished(id: usize) -> bool {
    let finished = |engine: &mut Engine| engine.threads.get(id).is_none_or(|thread| thread.status == Status::Done);
    engine().is_none_or(|engine| with(engine, finished))
}

/// Waits for a thread to end.
pub fn join(id: usize) {
    wait_for(Key::End(id), None, || !is_finished(id));
}

/// Sleeps for `ns` virtual nanoseconds.
pub fn sleep(ns: u64) {
    let Some(engine) = engine() else { return std::thread::sleep(std::time::Duration::from_nanos(ns)) };
    if with(engine, |engine| engine.tx_forbids()) {
        return htm::leave(engine);
    }
    if !with(engine, |engine| engine.unwinding) {
        with(engine, |engine| {
            let end = engine.me().clock.saturating_add(ns.saturating_mul(1000));
            engine.sleep_until(end);
        });
    }
    switch::wait(engine);
}

/// Waits for the thread's token, as `std::thread::park` does: [`unpark`] gives it. Outside of a run it returns at once.
pub fn park() {
    park_for(None);
}

/// As [`park`], for `ns` virtual nanoseconds at most.
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

/// Gives the thread with this id its token.
pub fn unpark(id: usize) {
    if let Some(engine) = engine() {
        with(engine, |engine| engine.unpark(id));
    }
}

/// Waits for a wake-up of `key` while `condition` says so. The condition is asked before the first wait and after
/// every wake-up, in one step with going to sleep: no [`wake`] is lost between. It may read the program's words plainly
/// but must not call this module. With a time-out in virtual nanoseconds the wait ends after it. True: the condition is
/// over; false: the time is.
pub fn wait_while(key: usize, timeout_ns: Option<u64>, condition: impl Fn() -> bool) -> bool {
    wait_for(Key::User(key), timeout_ns, condition)
}

fn wait_for(key: Key, timeout_ns: Option<u64>, condition: impl Fn() -> bool) -> bool {
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
    // Part of going to sleep and of waking up, which the model charges for: no access of the program's.
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

/// Wakes up to `count` threads that wait for `key`, first come, first woken; says how many it woke. A system call if
/// there are any.
pub fn wake(key: usize, count: usize) -> usize {
    let Some(engine) = engine() else { return 0 };
    with(engine, |engine| {
        let at = engine.me().clock + engine.costs.call;
        let woken = engine.wake_key(Key::User(key), count, at);
        if woken > 0 {
            engine.advance(engine.costs.call);
        }
        woken
    })
}

/// A simulated thread's value of a thread-local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalValue {
    /// Never set in this thread.
    Unset,
    /// What [`local_set`] stored.
    Set(*mut u8),
    /// Its destructor has begun.
    Destroyed,
}

/// The calling thread's value for `key`; `None` outside of a run.
#[inline]
pub fn local_get(key: usize) -> Option<LocalValue> {
    engine().map(|engine| {
        with(engine, |engine| match engine.me().locals.iter().find(|local| local.key == key) {
            None => LocalValue::Unset,
            Some(local) if local.value.is_null() => LocalValue::Destroyed,
            Some(local) => LocalValue::Set(local.value),
        })
    })
}

/// Sets the calling thread's value for `key`, which had none.
///
/// # Safety
/// `value` is not null. `drop(value)` may be called once, at the end of the thread, from inside of it; values set later
/// are dropped first.
///
/// # Panics
/// Outside of a run.
pub unsafe fn local_set(key: usize, value: *mut u8, drop: unsafe fn(*mut u8)) {
    let engine = engine().expect("thread-locals of simulated threads exist in a run only");
    with(engine, |engine| engine.me().locals.push(Local { key, value, drop }));
}

/// A named place where a [`Fault::Stall`](crate::Fault::Stall) can strike ([`Point::Named`](crate::Point::Named)).
pub fn point(name: &'static str) {
    let Some(engine) = engine() else { return };
    if let Some(ns) = with(engine, |engine| engine.passed(name)) {
        sleep(ns);
    }
}

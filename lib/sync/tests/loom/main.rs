//! The primitives under the weak memory model, in their smallest interesting configurations.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --profile model --target-dir target/loom -p archipelago-sync --test loom`
//!
//! A test here fails if any ordering or fence of the version lock is weakened, if RCU's barriers or the Release at the
//! end of its sections are weakened, or if RCU's third epoch is removed. The remaining Acquire/Release pairs of RCU's
//! proof matter only if one thread advances the epoch while another retires and a third reads. The tests with three
//! threads explore too few schedules to detect their absence, so these pairs rely on the proof alone.
#![cfg(loom)]

mod held;
mod per_thread;
mod rcu;
mod version_lock;
mod worlds;

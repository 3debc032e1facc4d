//! Ctrl-C, SIGTERM and SIGHUP. The first signal asks the measurement to stop at the next chunk of operations, so that
//! the complete runs can be reported. The second signal ends the process at once.

// The standard library's atomics, not the platform crate's. A signal handler may run in the middle of a simulated
// access, and the platform's atomics would make the handler's accesses a part of that access.
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::process::ExitCode;

/// Tells threads to stop.
pub type Flag = AtomicBool;

static INTERRUPTED: Flag = AtomicBool::new(false);

/// The first signal; 0 before any signal. Ctrl-C is SIGINT.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
const SIGINT: i32 = 2;

/// From now on, signals set the flag. A signal before this call ends the process as usual, since there is nothing to
/// report yet.
pub fn install() {
    #[cfg(unix)]
    unix::install();
    // Fails only if a handler is installed already (tests in one process); that handler serves as well.
    #[cfg(not(unix))]
    let _ = ctrlc::set_handler(|| hear(SIGINT));
}

/// Records a signal. Calls only functions that a signal handler may call.
fn hear(signal: i32) {
    // Relaxed everywhere: neither word carries data.
    if SIGNAL.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        end_at_once(code(signal));
    }
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Returns the exit code of a process that a signal ended, as shells report it.
fn code(signal: i32) -> u8 {
    128 + u8::try_from(signal).unwrap_or_default()
}

#[cfg(unix)]
fn end_at_once(code: u8) -> ! {
    // SAFETY: `_exit` ends the process, and a signal handler may call it.
    unsafe { libc::_exit(code.into()) }
}

#[cfg(not(unix))]
fn end_at_once(code: u8) -> ! {
    std::process::exit(code.into())
}

#[cfg(unix)]
mod unix {
    /// Called in any thread to which the system delivers the signal.
    extern "C" fn handler(signal: libc::c_int) {
        super::hear(signal);
    }

    pub(super) fn install() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the structure consists of numbers and addresses, for which zero means none.
            let (mut new, mut old) = unsafe { core::mem::zeroed::<(libc::sigaction, libc::sigaction)>() };
            new.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
            // Interrupted system calls are restarted.
            new.sa_flags = libc::SA_RESTART;
            // SAFETY: both structures are this function's, and the handler calls only what a handler may call.
            unsafe {
                libc::sigaction(signal, &raw const new, &raw mut old);
                // `nohup` starts programs with SIGHUP ignored; it stays ignored.
                if signal == libc::SIGHUP && old.sa_sigaction == libc::SIG_IGN {
                    libc::sigaction(signal, &raw const old, core::ptr::null_mut());
                }
            }
        }
    }
}

/// Returns the flag that a signal sets.
pub fn flag() -> &'static Flag {
    &INTERRUPTED
}

/// Returns whether a signal has arrived.
#[inline]
pub fn requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Returns the exit code of a command that reported its complete runs after a signal: 130 after Ctrl-C, 143 after
/// SIGTERM, 129 after SIGHUP.
pub fn exit_code() -> ExitCode {
    let signal = SIGNAL.load(Ordering::Relaxed);
    ExitCode::from(code(if signal == 0 { SIGINT } else { signal }))
}

//! Ctrl-C, SIGTERM and SIGHUP: the first asks the measurement to stop at the next chunk of operations, so that what is complete
//! can be reported; the second ends the process at once.

// The standard library's, not the door's: a signal's handler may run in the midst of a simulated access, of which its own would be
// a part.
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::process::ExitCode;

/// Tells threads to stop.
pub type Flag = AtomicBool;

static INTERRUPTED: Flag = AtomicBool::new(false);

/// The signal that came first; 0 before. Ctrl-C is SIGINT.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
const SIGINT: i32 = 2;

/// From now on signals set the flag. What is done before has nothing to report, and is ended by them as usual.
pub fn install() {
    #[cfg(unix)]
    unix::install();
    // Fails only if a handler is already there (tests in one process): then that one serves.
    #[cfg(not(unix))]
    let _ = ctrlc::set_handler(|| hear(SIGINT));
}

/// Notes a signal. Calls nothing that a handler may not call.
fn hear(signal: i32) {
    // Relaxed everywhere: neither word carries data.
    if SIGNAL.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        end_at_once(code(signal));
    }
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// The exit code of a process that a signal has ended, as shells have it.
fn code(signal: i32) -> u8 {
    128 + u8::try_from(signal).unwrap_or_default()
}

#[cfg(unix)]
fn end_at_once(code: u8) -> ! {
    // SAFETY: ends the process; a handler may do so.
    unsafe { libc::_exit(code.into()) }
}

#[cfg(not(unix))]
fn end_at_once(code: u8) -> ! {
    std::process::exit(code.into())
}

#[cfg(unix)]
mod unix {
    /// Called in whatever thread the signal meets.
    extern "C" fn handler(signal: libc::c_int) {
        super::hear(signal);
    }

    pub(super) fn install() {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: a structure of numbers and addresses, for which zero stands for none.
            let (mut new, mut old) = unsafe { core::mem::zeroed::<(libc::sigaction, libc::sigaction)>() };
            new.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
            // What a system call was doing goes on.
            new.sa_flags = libc::SA_RESTART;
            // SAFETY: both structures are this function's, and the handler calls only what a handler may call.
            unsafe {
                libc::sigaction(signal, &raw const new, &raw mut old);
                // `nohup` has it ignored.
                if signal == libc::SIGHUP && old.sa_sigaction == libc::SIG_IGN {
                    libc::sigaction(signal, &raw const old, core::ptr::null_mut());
                }
            }
        }
    }
}

/// The flag.
pub fn flag() -> &'static Flag {
    &INTERRUPTED
}

/// Returns whether a signal came.
#[inline]
pub fn requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// The exit code when what is complete has been reported: 130 after Ctrl-C, 143 after SIGTERM.
pub fn exit_code() -> ExitCode {
    let signal = SIGNAL.load(Ordering::Relaxed);
    ExitCode::from(code(if signal == 0 { SIGINT } else { signal }))
}

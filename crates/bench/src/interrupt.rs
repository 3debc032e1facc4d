//! Ctrl-C: asks the measurement to stop at the next chunk of operations, so that what is complete can be reported.

use archipelago_platform::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C sets the flag; a second one ends the process at once.
pub fn install() {
    // Fails only if a handler is already there (tests in one process): then that one serves.
    let _ = ctrlc::set_handler(|| {
        // Relaxed everywhere: the flag carries no data.
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}

/// The flag.
pub fn flag() -> &'static AtomicBool {
    &INTERRUPTED
}

/// Whether Ctrl-C was pressed.
#[inline]
pub fn requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

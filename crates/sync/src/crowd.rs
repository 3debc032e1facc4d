//! How many threads can run at a time.

/// Processors that the process may use, as found at the first call. No number in the model world, where all threads run.
#[cfg(loom)]
pub(crate) fn processors() -> usize {
    usize::MAX
}

/// Processors that the process may use, as found at the first call.
#[cfg(not(loom))]
pub(crate) fn processors() -> usize {
    use archipelago_platform::sync::OnceLock;
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| archipelago_platform::thread::available_parallelism().map_or(1, |count| count.get()))
}

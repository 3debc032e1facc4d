//! The number of threads that can run at a time.

/// Returns the number of processors that the process may use. Under loom, where all threads run, there is no limit.
#[cfg(loom)]
pub(crate) fn processors() -> usize {
    usize::MAX
}

/// Returns the number of processors that the process may use, as determined at the first call. In a simulation, it is
/// the number of the simulated machine, which may differ between runs in one process, so it is determined at each call.
#[cfg(not(loom))]
pub(crate) fn processors() -> usize {
    use archipelago_platform::{sync::OnceLock, thread};
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let ask = || thread::available_parallelism().map_or(1, |count| count.get());
    if cfg!(archipelago_sim) { ask() } else { *PROCESSORS.get_or_init(ask) }
}

#[cfg(all(test, archipelago_sim))]
mod tests {
    use archipelago_sim::{Config, Machine, run};

    /// The number found in the first run of a process is not used in the second.
    #[test]
    fn each_machine_has_its_own() {
        for name in ["xeon-e5-4620-4s", "xeon-8180-8s"] {
            let machine = Machine::preset(name).unwrap();
            let cpus = machine.cpus();
            run(&machine, &Config::seeded(1), 1, |_| assert_eq!(super::processors(), cpus)).assert_done();
        }
    }
}

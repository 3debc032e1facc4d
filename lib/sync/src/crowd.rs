//! How many threads can run at a time.

/// Processors that the process may use, as found at the first call. No number in the model world, where all threads run.
#[cfg(loom)]
pub(crate) fn processors() -> usize {
    usize::MAX
}

/// Processors that the process may use, as found at the first call; in the simulated world those of the machine, which may be
/// another one in the process's next run.
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

    /// The first run of a process says nothing about its second.
    #[test]
    fn each_machine_has_its_own() {
        for name in ["xeon-e5-4620-4s", "xeon-8180-8s"] {
            let machine = Machine::preset(name).unwrap();
            let cpus = machine.cpus();
            run(&machine, &Config::seeded(1), 1, |_| assert_eq!(super::processors(), cpus)).assert_done();
        }
    }
}

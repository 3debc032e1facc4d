//! Pinning threads to CPUs.

use core::cell::Cell;
use std::io;

use crate::topology::{CpuId, NodeId, Topology};

/// The placement of threads on the machine's CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pinning {
    /// Placed by the operating system.
    #[default]
    None,
    /// Node after node. Within a node, all cores are used before the second hardware thread of any core.
    FillNodeFirst,
    /// One hardware thread of every core, node after node, before the second hardware thread of any core.
    FillCoresFirst,
    /// One thread on each node in turn.
    Spread,
}

impl Pinning {
    /// Returns the CPU of each of `threads` threads; `None` means that the operating system chooses. If there are more
    /// threads than CPUs, the CPUs are assigned again from the first.
    pub fn assign(self, topology: &Topology, threads: usize) -> Vec<Option<CpuId>> {
        let order = match self {
            Pinning::None => return vec![None; threads],
            Pinning::FillNodeFirst => topology.fill_order(),
            Pinning::FillCoresFirst => topology.cores_order(),
            Pinning::Spread => topology.spread_order().to_vec(),
        };
        order.into_iter().map(Some).cycle().take(threads).collect()
    }
}

#[cfg(archipelago_sim)]
use crate::simulated_thread_local as thread_local;
#[cfg(not(archipelago_sim))]
use std::thread_local;

thread_local! {
    static PINNED: Cell<Option<CpuId>> = const { Cell::new(None) };
}

/// Returns the CPU to which [`pin_current`] last pinned this thread, or one of the node to which [`bind_current`] bound
/// it.
#[cfg(not(loom))]
pub(crate) fn pinned() -> Option<CpuId> {
    PINNED.with(Cell::get)
}

/// Pins the calling thread to a CPU of [`Topology::current`]. If this topology is synthetic, the CPU is not a real one:
/// the thread is from now on assumed to run on it, and no call is made to the operating system.
///
/// # Errors
/// If the topology does not contain the CPU (it contains only CPUs that the process may use), if the operating system
/// refuses, or if it has no such call (only Linux has one).
pub fn pin_current(cpu: CpuId) -> io::Result<()> {
    let topology = Topology::current();
    let Some(node) = topology.node_of(cpu) else {
        let sentence = format!("CPU {} is not one that this process may use; choose from: {topology}", cpu.0);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    };
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::pin(cpu.0) {
        return Ok(());
    }
    if !topology.is_synthetic() {
        set_affinity(&[cpu])?;
    }
    PINNED.with(|pinned| pinned.set(Some(cpu)));
    super::note_node(node.0);
    Ok(())
}

/// Restricts the calling thread to the CPUs of one of `topology`'s nodes; the operating system chooses among them. If
/// the topology is synthetic, the thread is from now on assumed to run on the node's first CPU, and no call is made to
/// the operating system.
///
/// # Errors
/// If the topology has no such node, if the operating system refuses, or if it has no such call (only Linux has one).
pub fn bind_current(topology: &Topology, node: NodeId) -> io::Result<()> {
    let Some(cpus) = topology.nodes().get(node.0).map(|node| &node.cpus) else {
        let sentence = format!("there is no node {}; choose from: {topology}", node.0);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    };
    #[cfg(archipelago_sim)]
    if archipelago_sim::world::active() && !topology.is_synthetic() {
        archipelago_sim::world::bind(node.0);
        return Ok(());
    }
    if !topology.is_synthetic() {
        // The process's topology is read before any thread is restricted.
        Topology::machine();
        set_affinity(cpus)?;
    }
    PINNED.with(|pinned| pinned.set(cpus.first().copied()));
    if topology == Topology::current() {
        super::note_node(node.0);
    }
    Ok(())
}

/// Returns the CPUs on which the calling thread may run, ascending. Returns `None` if the operating system does not
/// report them.
pub fn allowed_cpus() -> Option<Vec<CpuId>> {
    affinity()
}

/// Returns the CPUs on which threads of the process may run, ascending. Returns `None` if the operating system does not
/// report them.
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) fn process_cpus() -> Option<Vec<CpuId>> {
    affinity_of_all()
}

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::io;

    use crate::topology::CpuId;

    /// A CPU mask of the kernel, large enough for any kernel (`CONFIG_NR_CPUS` is at most 8192).
    type Mask = [u64; 128];

    /// Restricts the calling thread to these CPUs of the operating system, independent of the topology.
    pub(crate) fn set_affinity(cpus: &[CpuId]) -> io::Result<()> {
        let mut mask: Mask = [0; 128];
        for cpu in cpus {
            let Some(word) = mask.get_mut(cpu.0 / 64) else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "CPU numbers end at 8191"));
            };
            *word |= 1 << (cpu.0 % 64);
        }
        // SAFETY: `mask` is a readable array of the size given, and 0 names the calling thread.
        let result = unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), mask.as_ptr().cast()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn affinity() -> Option<Vec<CpuId>> {
        mask_of(0).map(cpus)
    }

    /// Returns the CPUs of all threads together: the caller may be pinned, and others need not be.
    #[cfg(not(loom))]
    pub(super) fn affinity_of_all() -> Option<Vec<CpuId>> {
        let mut all = mask_of(0)?;
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let masks = threads.filter_map(|thread| mask_of(thread.file_name().to_str()?.parse().ok()?));
        for mask in masks {
            all.iter_mut().zip(mask).for_each(|(all, word)| *all |= word);
        }
        Some(cpus(all))
    }

    /// Returns the mask of a thread; 0 names the calling thread.
    fn mask_of(thread: libc::pid_t) -> Option<Mask> {
        let mut mask: Mask = [0; 128];
        // SAFETY: `mask` is a writable array of the size given.
        let result = unsafe { libc::sched_getaffinity(thread, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
        (result == 0).then_some(mask)
    }

    fn cpus(mask: Mask) -> Vec<CpuId> {
        let has = |cpu: &usize| mask[cpu / 64] >> (cpu % 64) & 1 == 1;
        (0..mask.len() * 64).filter(has).map(CpuId).collect()
    }
}
#[cfg(all(target_os = "linux", not(miri)))]
use linux::affinity;
#[cfg(all(target_os = "linux", not(any(miri, loom))))]
use linux::affinity_of_all;
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use linux::set_affinity;

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn set_affinity(_: &[CpuId]) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "Threads cannot be pinned to CPUs on this operating system."))
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn affinity() -> Option<Vec<CpuId>> {
    None
}

#[cfg(all(target_os = "linux", miri))]
fn affinity_of_all() -> Option<Vec<CpuId>> {
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn cpus(pinning: Pinning, topology: &Topology, threads: usize) -> Vec<Option<usize>> {
        pinning.assign(topology, threads).into_iter().map(|cpu| cpu.map(|cpu| cpu.0)).collect()
    }

    #[test]
    fn assigns() {
        let topology = Topology::synthetic(2, 2);
        assert_eq!(cpus(Pinning::None, &topology, 2), [None, None]);
        assert_eq!(cpus(Pinning::FillNodeFirst, &topology, 5), [0, 1, 2, 3, 0].map(Some));
        assert_eq!(cpus(Pinning::Spread, &topology, 5), [0, 2, 1, 3, 0].map(Some));
        let topology = Topology::parse("2x2x2").unwrap();
        assert_eq!(cpus(Pinning::FillNodeFirst, &topology, 4), [0, 1, 4, 5].map(Some));
        assert_eq!(cpus(Pinning::FillCoresFirst, &topology, 6), [0, 1, 2, 3, 4, 5].map(Some));
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn pins_to_every_allowed_cpu_and_to_no_other() {
        if Topology::current().is_synthetic() {
            return;
        }
        let pin_everywhere = || {
            for cpu in allowed_cpus().unwrap() {
                pin_current(cpu).unwrap();
                assert_eq!(allowed_cpus().unwrap(), [cpu]);
            }
            let error = pin_current(CpuId(8000)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        };
        std::thread::spawn(pin_everywhere).join().unwrap();
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn binds_to_all_cpus_of_a_node() {
        let bind = || {
            let machine = Topology::machine();
            for node in machine.nodes() {
                bind_current(machine, node.id).unwrap();
                assert_eq!(allowed_cpus().unwrap(), node.cpus);
                assert_eq!((machine.node_of_current(), super::super::slot().node), (node.id.0, node.id.0));
            }
            let error = bind_current(machine, NodeId(machine.nodes().len())).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        };
        std::thread::spawn(bind).join().unwrap();
    }

    /// Returns whether this process has no purpose but this test, so that its topology has not been read yet. Otherwise
    /// runs the test in such a process.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn alone(test: &str) -> bool {
        const VARIABLE: &str = "ARCHIPELAGO_TEST_ALONE";
        if std::env::var_os(VARIABLE).is_some() {
            return true;
        }
        let program = std::env::current_exe().expect("the test runs");
        let mut again = std::process::Command::new(program);
        let again = again.args(["--exact", test]).env(VARIABLE, "1").env_remove("ARCHIPELAGO_TOPOLOGY");
        let output = again.output().expect("it can be run again");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        false
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_pinned_thread_asks_for_the_whole_process() {
        if alone("thread::pinning::tests::a_pinned_thread_asks_for_the_whole_process") {
            let all = allowed_cpus().unwrap();
            let ask = || {
                set_affinity(&[all[0]]).unwrap();
                Topology::machine().cpus().len()
            };
            assert_eq!(std::thread::scope(|scope| scope.spawn(ask).join().unwrap()), all.len());
        }
    }

    /// Pins the process's first thread, which has the process's number.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn pin_the_first(cpu: CpuId) {
        let mut mask = [0_u64; 128];
        mask[cpu.0 / 64] = 1 << (cpu.0 % 64);
        // SAFETY: `mask` is a readable array of the size given.
        let result = unsafe { libc::sched_setaffinity(libc::getpid(), size_of_val(&mask), mask.as_ptr().cast()) };
        assert_eq!(result, 0);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn counters_that_were_not_compared_are_no_clock() {
        use crate::clock::{ClockKind, OrderedClock};
        if alone("thread::pinning::tests::counters_that_were_not_compared_are_no_clock") {
            let first = allowed_cpus().unwrap()[0];
            pin_the_first(first);
            set_affinity(&[first]).unwrap();
            assert_eq!(Topology::machine().cpus().len(), 1);
            if crate::topology::online_cpus() > 1 {
                assert_eq!(OrderedClock::shared().kind(), ClockKind::Logical);
            }
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_machine_is_looked_at_before_a_thread_is_bound() {
        if alone("thread::pinning::tests::the_machine_is_looked_at_before_a_thread_is_bound") {
            let all = allowed_cpus().unwrap();
            let first = Topology::builder().node(0, [all[0].0]).real().build().unwrap();
            pin_the_first(all[0]);
            bind_current(&first, NodeId(0)).unwrap();
            assert_eq!(allowed_cpus().unwrap(), all[..1]);
            assert_eq!(Topology::machine().cpus().len(), all.len());
        }
    }

    #[test]
    fn binding_to_an_imagined_node_is_remembered() {
        let bind = || {
            let topology = Topology::synthetic(4, 2);
            for node in [3, 1] {
                bind_current(&topology, NodeId(node)).unwrap();
                assert_eq!(topology.node_of_current(), node);
            }
        };
        std::thread::spawn(bind).join().unwrap();
    }
}

//! The process's own topology, and the calling thread's position in it.

#[cfg(not(loom))]
use core::cell::Cell;
use std::sync::OnceLock;

use super::{CpuId, Topology, TopologyError};

/// The environment variable that replaces the machine's topology by a synthetic one.
const VARIABLE: &str = "ARCHIPELAGO_TOPOLOGY";

impl Topology {
    /// Returns the topology that `ARCHIPELAGO_TOPOLOGY` describes (see [`Topology::parse`]), or `None` if the variable
    /// is unset or empty.
    ///
    /// # Errors
    /// If the variable has an invalid value. A program should check this first, since [`Topology::current`] can only
    /// panic.
    pub fn from_env() -> Result<Option<Topology>, TopologyError> {
        match std::env::var_os(VARIABLE) {
            Some(text) if !text.is_empty() => Topology::parse(&text.to_string_lossy()).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the topology of this process: [`from_env`](Self::from_env)'s if there is one, otherwise
    /// [`machine`](Self::machine). Determined once (in the simulator, once per run).
    ///
    /// # Panics
    /// If `ARCHIPELAGO_TOPOLOGY` has an invalid value.
    pub fn current() -> &'static Topology {
        #[cfg(archipelago_sim)]
        if let Some(topology) = super::simulated::of_this_run() {
            return topology;
        }
        static SYNTHETIC: OnceLock<Option<Topology>> = OnceLock::new();
        let read = || Topology::from_env().unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
        SYNTHETIC.get_or_init(read).as_ref().unwrap_or_else(|| Topology::machine())
    }

    /// Returns the real machine's topology, as far as this process may use it, independent of `ARCHIPELAGO_TOPOLOGY`:
    /// the result of the first call of [`from_os`](Self::from_os). [`pin_current`](crate::thread::pin_current) and
    /// [`bind_current`](crate::thread::bind_current) ensure that this call is made before any thread is pinned.
    pub fn machine() -> &'static Topology {
        #[cfg(archipelago_sim)]
        if let Some(topology) = super::simulated::of_this_run() {
            return topology;
        }
        static MACHINE: OnceLock<Topology> = OnceLock::new();
        MACHINE.get_or_init(Topology::from_os)
    }

    /// Reads the machine's topology, restricted to the CPUs that threads of the process may use. If the operating
    /// system does not describe the topology, returns one node with
    /// [`available_parallelism`](std::thread::available_parallelism) CPUs.
    pub fn from_os() -> Topology {
        #[cfg(all(target_os = "linux", not(loom)))]
        if !cfg!(miri)
            && let Some(topology) = super::sysfs::read("/sys".as_ref(), crate::thread::process_cpus().as_deref())
        {
            return topology;
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let one_node = Topology::builder().node(0, 0..cpus).real().build();
        one_node.expect("one node with at least one CPU is a topology")
    }
}

#[cfg(not(loom))]
std::thread_local! {
    static PLACE: Cell<LastSeen> = const { Cell::new(LastSeen { cpu: CpuId(0), uses: 0 }) };
}

/// The CPU on which the thread was last seen, and how many times this value may still be used before it is determined
/// again.
#[cfg(not(loom))]
#[derive(Clone, Copy)]
struct LastSeen {
    cpu: CpuId,
    uses: u32,
}

/// How many further times [`Topology::node_of_current`] uses a CPU number before it determines the number again.
/// Determining it costs tens of nanoseconds, and the scheduler moves a thread to another node at most once in many
/// milliseconds.
#[cfg(not(loom))]
const USES: u32 = 128;

impl Topology {
    /// Returns the index of the node on which the calling thread runs. The result is a hint, for choosing the nearest
    /// of several objects.
    ///
    /// On one node the result is always 0. On a real topology, the CPU is determined about once in 128 calls, so the
    /// result may be out of date for a thread that is not pinned. On a synthetic topology, a thread is assumed to run
    /// where it was pinned, otherwise on the CPU that [`spread_order`](Self::spread_order) assigns to its slot, so that
    /// threads are distributed over all nodes. A CPU that the topology does not contain counts as a CPU of node 0.
    #[inline]
    pub fn node_of_current(&self) -> usize {
        if self.nodes().len() == 1 { 0 } else { self.node_among_many() }
    }

    #[cfg(not(loom))]
    fn node_among_many(&self) -> usize {
        let cpu = if self.is_synthetic() { self.synthetic_cpu() } else { recent_cpu() };
        let node = self.node_of(cpu).map_or(0, |node| node.0);
        if core::ptr::eq(self, Topology::current()) {
            crate::thread::note_node(node);
        }
        node
    }

    #[cfg(not(loom))]
    fn synthetic_cpu(&self) -> CpuId {
        let order = self.spread_order();
        crate::thread::pinned().unwrap_or_else(|| order[crate::thread::slot().index % order.len()])
    }

    #[cfg(loom)]
    fn node_among_many(&self) -> usize {
        crate::thread::slot().index % self.nodes().len()
    }
}

#[cfg(not(loom))]
fn recent_cpu() -> CpuId {
    #[cfg(archipelago_sim)]
    if let Some(current) = archipelago_sim::world::current() {
        return CpuId(current.cpu);
    }
    if let Some(cpu) = crate::thread::pinned() {
        return cpu;
    }
    PLACE.with(|place| {
        let LastSeen { mut cpu, uses } = place.get();
        if uses == 0 {
            cpu = current_cpu().unwrap_or(CpuId(0));
        }
        place.set(LastSeen { cpu, uses: if uses == 0 { USES } else { uses - 1 } });
        cpu
    })
}

/// Returns the number of the machine's CPUs, whether this process may use them or not; 1 if the operating system does
/// not report the number.
#[cfg(not(loom))]
pub(crate) fn online_cpus() -> usize {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: the call has no precondition.
        let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(count).unwrap_or(1)
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    1
}

/// Returns the CPU on which the operating system runs the calling thread at this moment, or `None` if it does not
/// report the CPU.
pub fn current_cpu() -> Option<CpuId> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: the call has no precondition.
        let cpu = unsafe { libc::sched_getcpu() };
        usize::try_from(cpu).ok().map(CpuId)
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn current_is_one_and_the_same() {
        assert!(core::ptr::eq(Topology::current(), Topology::current()));
        assert!(Topology::current().node_of_current() < Topology::current().nodes().len());
    }

    #[test]
    fn synthetic_threads_are_dealt_out_to_all_nodes() {
        let topology = Topology::synthetic(4, 2);
        let barrier = std::sync::Barrier::new(12);
        let nodes = std::thread::scope(|scope| {
            let ask = || {
                let (index, node) = (crate::thread::slot().index, topology.node_of_current());
                barrier.wait();
                (index, node)
            };
            let threads: Vec<_> = (0..12).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for (index, node) in nodes {
            assert_eq!(node, index % 4);
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn real_cpus_are_known() {
        let cpu = current_cpu().unwrap();
        assert!(crate::thread::allowed_cpus().unwrap().contains(&cpu));
        // A real topology of two nodes with one CPU each, which may differ from this machine's.
        let two = Topology::builder().node(0, [1]).node(1, [0]).real().build().unwrap();
        assert!(two.node_of_current() < 2);
    }
}

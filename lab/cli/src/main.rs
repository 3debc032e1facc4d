//! The `archipelago` command.

use std::process::ExitCode;

#[cfg(not(feature = "peers"))]
use archipelago_bench::roster::Own as Roster;
#[cfg(feature = "peers")]
use archipelago_peers::Peers as Roster;

/// Every index, ours and the peers, allocates through this one. Indexes allocate small nodes from several threads and
/// free them on others, where the system's allocators differ more than the indexes do; mimalloc is good at it, and it
/// is what the peers' own figures are made with. It is the command's choice alone: the library sets no allocator.
#[cfg(not(archipelago_sim))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// On the virtual machine memory is part of what is simulated: runs with equal seeds are equal only if equal words share
/// cache lines.
#[cfg(archipelago_sim)]
#[global_allocator]
static ALLOCATOR: archipelago_sim::SimAlloc = archipelago_sim::SimAlloc;

fn main() -> ExitCode {
    archipelago_bench::run::<Roster>(std::env::args_os(), release_memory)
}

/// Gives the allocator's free memory back to the system.
fn release_memory() {
    // SAFETY: may be called at any time from any thread; it touches only the allocator's own free memory.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

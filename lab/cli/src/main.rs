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
    if std::env::args_os().nth(1).is_some_and(|command| command == "serve") {
        release_memory_at_once();
    }
    archipelago_bench::run::<Roster>(std::env::args_os(), release_memory)
}

/// Gives the allocator's free memory back to the system.
fn release_memory() {
    // SAFETY: may be called at any time from any thread; it touches only the allocator's own free memory.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// Has the allocator give memory back as soon as it is free, not after a while of more work, which a server that is at rest does
/// not have: a million small keys were 87 bytes each so, and 96 to 123 without, and requests take as long either way. What the
/// environment says (`MIMALLOC_PURGE_DELAY`) comes first.
fn release_memory_at_once() {
    /// `mi_option_purge_delay`, which the bindings leave out of their list.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;
    // SAFETY: may be called at any time; it stores a number that the allocator reads when it frees pages.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, 0) }
}

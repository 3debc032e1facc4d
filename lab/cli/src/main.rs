//! The `archipelago` command.

use std::process::ExitCode;

#[cfg(not(feature = "peers"))]
use archipelago_bench::roster::Own as Roster;
#[cfg(feature = "peers")]
use archipelago_peers::Peers as Roster;

/// Every index, ours or a peer's, allocates through this allocator. Indexes allocate small nodes in several threads and
/// free them in others. In this pattern, the systems' allocators differ from each other more than the indexes do.
/// mimalloc handles it well, and the peers' own figures were measured with it. Only the command chooses an allocator;
/// the library sets none.
#[cfg(not(archipelago_sim))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// On the virtual machine memory is simulated, too: runs with equal seeds are equal only if equal data shares cache
/// lines.
#[cfg(archipelago_sim)]
#[global_allocator]
static ALLOCATOR: archipelago_sim::SimAlloc = archipelago_sim::SimAlloc;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|command| command == "serve") {
        release_memory_at_once();
    }
    archipelago_bench::run::<Roster>(std::env::args_os(), release_memory)
}

/// Makes the allocator return its free memory to the system.
fn release_memory() {
    // SAFETY: the function may be called at any time from any thread; it accesses only the allocator's own free memory.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// Makes the allocator return memory to the system as soon as the memory is free. By default it does so during later
/// work, which an idle server does not have. Measured with a million small keys, a key took 87 bytes with this setting,
/// and 96 to 123 without it; requests take equally long. The environment variable `MIMALLOC_PURGE_DELAY` takes
/// precedence.
fn release_memory_at_once() {
    /// The option `mi_option_purge_delay`, which the bindings do not define.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;
    // SAFETY: the function may be called at any time; it stores a number that the allocator reads when it frees pages.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, 0) }
}

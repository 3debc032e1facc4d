//! The room that nodes take: as much as their fields, or as much as the nodes of a published program.
//!
//! The lists with which RCX was measured are in a kernel, and their nodes have 1,024 bytes, aligned to cache lines. So
//! a search fetches one line for each node. A node that is as small as its fields may lie in two lines, and two nodes
//! may share a line.

use core::mem::MaybeUninit;

use archipelago_sync::version_lock::VersionLock;

/// The room that a node takes. The trait is sealed.
pub trait Room: Aside<Room = Self> + Default {
    /// A type whose alignment is the nodes' alignment.
    #[doc(hidden)]
    type Line: Send + Sync;
    /// What follows the fields.
    #[doc(hidden)]
    type Fill: Copy + Send + Sync;
    #[doc(hidden)]
    const FILL: Self::Fill;
}

/// Data of a mechanism's updaters in each node.
#[doc(hidden)]
pub trait Aside: Send + Sync + 'static {
    /// The room that the nodes take.
    type Room: Room;
}

/// Nodes are as small as their fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snug;

impl Room for Snug {
    type Line = u64;
    type Fill = ();
    const FILL: () = ();
}

impl Aside for Snug {
    type Room = Self;
}

impl Aside for () {
    type Room = Snug;
}

impl Aside for VersionLock {
    type Room = Snug;
}

/// Nodes have 1,024 bytes and are aligned to cache lines. All fields are in the first line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kilobyte;

/// A cache line.
#[doc(hidden)]
#[repr(align(64))]
pub struct Line;

/// The bytes that no field uses. Fields of 1 to 56 bytes and these bytes are 1,024 bytes, rounded up to whole lines.
const FILL: usize = 1_024 - 56;

impl Room for Kilobyte {
    type Line = Line;
    type Fill = MaybeUninit<[u8; FILL]>;
    const FILL: Self::Fill = MaybeUninit::uninit();
}

impl Aside for Kilobyte {
    type Room = Self;
}

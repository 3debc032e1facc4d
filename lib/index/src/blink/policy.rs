//! Policies: the variants of a tree, as type parameters.

use super::latch::{Latch, VersionOnly};
use core::marker::PhantomData;

/// The choices with which a [`BLinkTree`](super::BLinkTree) is compiled.
pub trait Policy: Send + Sync + 'static {
    /// The bytes of a page without its latch: a multiple of 64, from [`SMALLEST`] to [`LARGEST`]. A key is at most a
    /// quarter of this length.
    const PAGE: usize;

    /// The latch of a page, which writers take before its version lock.
    type Latch: Latch;

    /// Whether readers take the latch, too. Readers validate versions in both cases.
    const LATCHED_READS: bool;

    /// The lowest level whose pages have latches. A page below this level is covered by the latch of its ancestor on
    /// this level, or by the root's latch if the tree is not that high.
    const FINEST: usize = 0;

    /// Whether each NUMA node has a replica, and how replicas are kept up to date.
    const REPLICAS: Replicas = Replicas::None;

    /// Whether a full leaf first moves entries to a neighbour that has room, instead of being split.
    const DENSE: bool = false;
}

/// The kinds of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// No replicas.
    None,
    /// A tree on each node, all of them changed before an update returns.
    Together,
    /// A tree on each node, each brought up to date from a log before it is read.
    FromLog,
    /// One tree, with copies of its inner pages on each node.
    OfInnerPages,
}

/// The smallest page in bytes.
pub const SMALLEST: usize = 512;

/// The largest page in bytes: positions in a page are stored in 16 bits.
pub const LARGEST: usize = 128 << 10;

/// Pages of this size in bytes, version locks, reads without latches.
#[derive(Clone, Copy, Debug)]
pub enum Pages<const BYTES: usize> {}

impl<const BYTES: usize> Policy for Pages<BYTES> {
    const PAGE: usize = BYTES;
    type Latch = VersionOnly;
    const LATCHED_READS: bool = false;
}

/// Pages of this size in bytes with this kind of latch, which readers take, too, if the third parameter is true. These
/// policies are for comparisons; [`Standard`] is the fastest in measurements.
#[derive(Clone, Copy, Debug)]
pub struct Latched<const BYTES: usize, L, const READS: bool>(PhantomData<L>);

impl<const BYTES: usize, L: Latch, const READS: bool> Policy for Latched<BYTES, L, READS> {
    const PAGE: usize = BYTES;
    type Latch = L;
    const LATCHED_READS: bool = READS;
}

/// A policy that differs from another one in the items that it defines.
pub trait Variation: Send + Sync + 'static {
    /// The other policy.
    type Of: Policy;

    /// Replaces [`Policy::FINEST`].
    const FINEST: usize = <Self::Of as Policy>::FINEST;

    /// Replaces [`Policy::REPLICAS`].
    const REPLICAS: Replicas = <Self::Of as Policy>::REPLICAS;

    /// Replaces [`Policy::DENSE`].
    const DENSE: bool = <Self::Of as Policy>::DENSE;
}

impl<W: Variation> Policy for W {
    const PAGE: usize = <W::Of as Policy>::PAGE;
    type Latch = <W::Of as Policy>::Latch;
    const LATCHED_READS: bool = <W::Of as Policy>::LATCHED_READS;
    const FINEST: usize = <W as Variation>::FINEST;
    const REPLICAS: Replicas = <W as Variation>::REPLICAS;
    const DENSE: bool = <W as Variation>::DENSE;
}

/// The same as another policy, with fuller leaves: before a full leaf is split, some of its entries are moved to a
/// neighbour that has room. This takes less memory, and insertions are slower.
#[derive(Clone, Copy, Debug)]
pub struct Dense<P>(PhantomData<P>);

impl<P: Policy> Variation for Dense<P> {
    type Of = P;
    const DENSE: bool = true;
}

/// The same as another policy, with a replica of the tree on each node: a read uses only its own node's replica, and an
/// update changes all replicas before it returns.
#[derive(Clone, Copy, Debug)]
pub struct Mirrored<P>(PhantomData<P>);

impl<P: Policy> Variation for Mirrored<P> {
    type Of = P;
    const REPLICAS: Replicas = Replicas::Together;
}

/// The same as another policy, with latches only at and above a level: with 1 the leaves have no latches, and with
/// `usize::MAX` only the root has one. A thread takes fewer latches in a descent, but its lowest latch covers more
/// pages. Since there are few latches, large latches take less memory in all. Every page still has its version lock, by
/// which reads are validated.
#[derive(Clone, Copy, Debug)]
pub struct Granular<P, const LEVEL: usize>(PhantomData<P>);

impl<P: Policy, const LEVEL: usize> Variation for Granular<P, LEVEL> {
    type Of = P;
    const FINEST: usize = LEVEL;
}

/// The same as another policy, with a replica of the tree on each node: an update is appended to a log and applied to
/// the replica of its own node before it returns. Other replicas apply the log before they are read, so that a read
/// sees all updates that had returned before.
#[derive(Clone, Copy, Debug)]
pub struct LogFed<P>(PhantomData<P>);

impl<P: Policy> Variation for LogFed<P> {
    type Of = P;
    const REPLICAS: Replicas = Replicas::FromLog;
}

/// The same as another policy, with copies of the inner pages on each node. Readers validate the versions of the
/// copies. Of the tree's own pages, a look-up reads and latches only the leaf. If a copy is found to lead to the wrong
/// leaf, the copy is renewed. A descent by copies takes no latch above the leaf, so each leaf needs its own latch, and
/// the policy cannot be combined with [`Granular`], in either order:
///
/// ```compile_fail,E0080
/// use archipelago::BLinkTree;
/// use archipelago::index::blink::{Granular, InnerReplicas, Standard};
///
/// BLinkTree::<u64, u64, InnerReplicas<Granular<Standard, 1>>>::default().pin().insert(7, 42);
/// ```
/// ```compile_fail,E0080
/// use archipelago::BLinkTree;
/// use archipelago::index::blink::{Granular, InnerReplicas, Standard};
///
/// BLinkTree::<u64, u64, Granular<InnerReplicas<Standard>, 1>>::default().pin().insert(7, 42);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InnerReplicas<P>(PhantomData<P>);

impl<P: Policy> Variation for InnerReplicas<P> {
    type Of = P;
    const REPLICAS: Replicas = Replicas::OfInnerPages;
}

/// The default policy. 3 million integers that are inserted in random order take 20.4 bytes a key, 1.28 times as much
/// as their sorted array. If full pages are split at once, the integers take 23.9 bytes a key, and insertion is equally
/// fast.
pub type Standard = Dense<Pages<4096>>;

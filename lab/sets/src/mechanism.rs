//! The operations that a structure needs of a synchronization mechanism.
//!
//! A link is valid inside the section that read it. Structures must follow this one rule, so following a link is
//! `unsafe` here. The structures are safe for their users because links never leave an operation.

/// A node of a list (one link) or of a tree (two links).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Node<L, const LINKS: usize> {
    pub(crate) key: u64,
    pub(crate) next: [Option<L>; LINKS],
    /// The value is the last field, since a search seldom reads it.
    pub(crate) value: u64,
}

/// The change of a link from an old value to a new one.
#[doc(hidden)]
pub struct Change<L> {
    pub(crate) from: Option<L>,
    pub(crate) to: Option<L>,
}

/// Another update conflicts, and this update has to begin again.
pub struct Conflict;

/// A mechanism over which structures of nodes with `LINKS` links are built. The trait is sealed: its parts are not for
/// use elsewhere.
pub trait Mechanism<const LINKS: usize>: Default + Send + Sync + 'static {
    /// A reference to a node.
    #[doc(hidden)]
    type Link: Copy + Eq + Send + Sync;
    #[doc(hidden)]
    type Session<'m>: Session<LINKS, Link = Self::Link>;

    /// Returns the same mechanism for `scopes` scopes. A scope is a set of nodes that is updated independently of other
    /// scopes, such as a bucket. The number is a hint for mechanisms with locks. A structure calls this first, with the
    /// number of scopes that it has, so that structure and mechanism agree.
    #[doc(hidden)]
    #[must_use]
    fn for_scopes(self, scopes: usize) -> Self;

    /// Makes a node without successors that is never removed.
    #[doc(hidden)]
    fn root(&self) -> Self::Link;

    #[doc(hidden)]
    fn session(&self) -> Self::Session<'_>;
}

/// A thread's access to a mechanism.
#[doc(hidden)]
pub trait Session<const LINKS: usize> {
    type Link: Copy + Eq;
    type View<'s>: View<LINKS, Link = Self::Link>
    where
        Self: 's;
    type Update<'s>: Update<LINKS, Link = Self::Link>
    where
        Self: 's;

    /// Runs `body` in a read-side section.
    fn read<R>(&mut self, body: impl FnOnce(&Self::View<'_>) -> R) -> R;

    /// Runs `body` like [`read`](Self::read). All nodes of the given scopes are seen as of one moment. `scopes` is
    /// ascending.
    fn read_at_once<R>(&mut self, scopes: &[usize], body: impl FnOnce(&Self::View<'_>) -> R) -> R;

    /// Runs `body` in an update that may change the given scopes, repeatedly until it commits. `scopes` is ascending.
    fn update<R>(&mut self, scopes: &[usize], body: impl FnMut(&mut Self::Update<'_>) -> Result<R, Conflict>) -> R;

    fn aborts(&self) -> u64;
}

/// Reading nodes.
#[doc(hidden)]
pub trait View<const LINKS: usize> {
    type Link: Copy + Eq;

    /// Returns the key and one link of a node.
    ///
    /// # Safety
    /// The link is a root, was read in this section, or was made in this update. The link is not used after the
    /// section.
    unsafe fn step(&self, link: Self::Link, side: usize) -> (u64, Option<Self::Link>);

    /// Returns the key of a node, and its link 1 if `key` is greater than the node's key, else its link 0.
    ///
    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn toward(&self, link: Self::Link, key: u64) -> (u64, Option<Self::Link>);

    /// Returns the whole node.
    ///
    /// # Safety
    /// As [`step`](Self::step).
    unsafe fn node(&self, link: Self::Link) -> Node<Self::Link, LINKS>;
}

/// Changing nodes. All changes of an update become visible at once, or one after another, in order (over RCU and RCX,
/// and over RCU-HTM without a transaction).
#[doc(hidden)]
pub trait Update<const LINKS: usize>: View<LINKS> {
    /// Changes a link. `Change::from` is the value that the update has read in the link and on which it was decided.
    /// Mechanisms whose updates run in parallel compare the link with this value again.
    ///
    /// # Safety
    /// As [`View::step`].
    unsafe fn set_next(&mut self, link: Self::Link, side: usize, change: Change<Self::Link>) -> Result<(), Conflict>;

    /// Makes a new node, which is to be linked in this update.
    ///
    /// # Safety
    /// The link is not used after this attempt if the attempt fails.
    unsafe fn alloc(&mut self, node: Node<Self::Link, LINKS>) -> Self::Link;

    /// Retires a node, which the update has read as `node`.
    ///
    /// # Safety
    /// As [`View::step`]. When the update has committed, no remaining node has a link to the node. Each node is retired
    /// once.
    unsafe fn retire(&mut self, link: Self::Link, node: &Node<Self::Link, LINKS>) -> Result<(), Conflict>;

    /// Called with the successor of a node that the update inserts before it, or removes. The update does not change
    /// the successor. A mechanism may exclude other updates of the successor nevertheless, as published programs do.
    ///
    /// # Safety
    /// As [`View::step`].
    #[inline]
    unsafe fn beside(&mut self, _: Self::Link) {}

    /// Called between two changes. A reader that can see the second change must have begun after the first change. So
    /// if changes do not become visible at once, this function waits for readers.
    fn settle(&mut self) {}

    /// Returns whether the update should change only one link that readers see. If so, the update replaces the other
    /// nodes whose links it would change by copies. It does not call [`settle`](Self::settle), and so does not wait for
    /// readers.
    fn changes_one_link(&self) -> bool {
        false
    }
}
